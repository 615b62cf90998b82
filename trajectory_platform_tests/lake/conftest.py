"""Lakes to test on: in a local folder, and on a local S3 server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.storage import LOCAL_VARIABLE
from trajectory_platform_tests import s3_server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3_process() -> Iterator[s3_server.Server]:
    """The server of this test session."""
    for module in ("boto3", "moto.server"):
        pytest.importorskip(module)
    with s3_server.running() as server:
        yield server


@pytest.fixture
def s3(s3_process: s3_server.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> s3_server.Server:
    """The server with an empty bucket ``lake{number}`` (``bucket_name``), reached by this test's environment."""
    s3_process.calm()
    s3_process.environment[LOCAL_VARIABLE] = str(tmp_path / "lake_local")
    for name in ("AWS_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in s3_process.environment.items():
        monkeypatch.setenv(name, value)
    s3_process.bucket_name = f"lake{next(_numbers)}"
    s3_process.bucket(s3_process.bucket_name)
    s3_process.requests()
    return s3_process


@pytest.fixture
def s3_lake(s3: s3_server.Server) -> Lake:
    """An empty lake on S3."""
    return Lake(f"s3://{s3.bucket_name}/team/lake")


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.slow)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """An empty lake, of either kind."""
    if request.param == "s3":
        found: Lake = request.getfixturevalue("s3_lake")
        return found
    return Lake(str(tmp_path / "lake"))
