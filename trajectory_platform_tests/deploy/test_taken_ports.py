"""``make ui`` and ``make mlflow-ui`` at a port where somebody listens: one line, and nothing is started."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize(
    ("target", "variable"), [("ui", "UI_PORT"), ("mlflow-ui", "MLFLOW_PORT")], ids=["ui", "mlflow"]
)
def test_a_taken_port_is_named_with_the_next_one(target: str, variable: str, tmp_path: Path) -> None:
    for name in ("Makefile", "constraints.txt", "pyproject.toml", "dagster.yaml"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    for name in (".venv", ".venv-mlflow"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").symlink_to(sys.executable)
        (tmp_path / name / ".installed").touch()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        command = ["make", target, f"{variable}={port}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stderr.splitlines()[0] == (
        f"port {port} is taken: make {target} {variable}={port + 1}"
    )
    assert "http://" not in done.stdout, "nothing was started"
