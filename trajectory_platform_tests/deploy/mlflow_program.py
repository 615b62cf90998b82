"""A full MLflow of this machine with what its server needs beside it, as ``docker/Dockerfile.mlflow`` installs it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PLACES = (REPOSITORY / ".venv-mlflow", Path("/opt/mlflow-venv"))
DRIVERS = ("psycopg2", "psycopg2_binary.libs", "boto3", "botocore", "s3transfer", "jmespath", "urllib3")


def program() -> Path:
    """``mlflow`` of the environment that ``make mlflow-ui`` makes; the test is skipped where there is none."""
    for place in PLACES:
        if (place / "bin" / "mlflow").exists():
            return place / "bin" / "mlflow"
    pytest.skip("no full MLflow is installed here (make mlflow-ui makes .venv-mlflow)")


def environment(folder: Path) -> dict[str, str]:
    """PATH with that program first, and the drivers of database and object store, lent by this interpreter."""
    found = program()
    lent = folder / "mlflow_drivers"
    lent.mkdir(exist_ok=True)
    for name in DRIVERS:
        source = _installed(name)
        if source is not None and not (lent / name).exists():
            (lent / name).symlink_to(source)
    able = subprocess.run(
        [found.with_name("python"), "-c", "import psycopg2, boto3"], env={"PYTHONPATH": str(lent)}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    if able.returncode != 0:
        pytest.skip(f"MLflow's interpreter cannot use the drivers of this one: {able.stderr[-200:]}")
    return {"PATH": f"{found.parent}:{os.environ['PATH']}", "PYTHONPATH": str(lent)}


def _installed(name: str) -> Path | None:
    if name.endswith(".libs"):
        beside = _installed("psycopg2")
        place = beside.with_name(name) if beside is not None else None
        return place if place is not None and place.exists() else None
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None
