"""Raw days on S3: complete listings (case G10), and errors said in words (case G12)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, PlatformError, RejectRow, RetryLater
from trajectory_platform.sources.files import FileSource
from trajectory_platform.sources.stores import TRIES, attempt, classify_storage_error

DAY = date(2026, 5, 1)


def test_clock_skew_is_said_in_words(shared: Path) -> None:
    case = json.loads((shared / "cases" / "G12.json").read_text())
    answer = classify_storage_error(case["input"])
    assert isinstance(answer, RetryLater)
    assert answer.reason == case["expect"]["reason"] == "clock_skew"
    assert f"offset_s={case['expect']['offset_s']}" in answer.detail
    assert "35 min 42 s behind" in answer.detail
    assert "credentials are not at fault" in answer.detail


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (OSError("When reading: AWS Error UNKNOWN (HTTP status 403) RequestTimeTooSkewed"), RetryLater, "clock_skew"),
        (OSError("AWS Error SLOW_DOWN during GetObject: SlowDown (HTTP status 503)"), RetryLater, "rate_limited"),
        (OSError("AWS Error NETWORK_CONNECTION during GetObject: curlCode: 7"), RetryLater, "storage_unavailable"),
        (FileNotFoundError("Path does not exist"), RejectRow, "not_found"),
        ({"status": 429, "code": "TooManyRequests"}, RetryLater, "rate_limited"),
        ({"status": 404, "code": "NoSuchKey"}, RejectRow, "not_found"),
        ({"status": 403, "code": "AccessDenied"}, Abort, None),
        (OSError("AWS Error ACCESS_DENIED during ListObjectsV2"), Abort, None),
    ],
)
def test_storage_errors_are_told_apart(error: Any, kind: type[PlatformError], reason: str | None) -> None:
    answer = classify_storage_error(error, what="key")
    assert type(answer) is kind
    assert getattr(answer, "reason", None) == reason


def test_no_endless_retry() -> None:
    calls: list[int] = []

    def skewed() -> bytes:
        calls.append(1)
        raise OSError("AWS Error (HTTP status 403) RequestTimeTooSkewed")

    with pytest.raises(RetryLater, match="clock skew"):
        attempt(skewed, what="key")
    assert len(calls) == TRIES == 2


def test_credentials_in_the_data_root_are_refused() -> None:
    with pytest.raises(Abort) as refused:
        FileSource("s3://user:secret@bucket/prefix")
    assert "secret" not in str(refused.value)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    """A local S3 server with an empty bucket ``raw``; its listings return 1000 keys a page."""
    boto3 = pytest.importorskip("boto3")
    server_module = pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        patch.delenv("AWS_REGION", raising=False)
        client = boto3.client("s3")
        client.create_bucket(Bucket="raw")
        yield client
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1001, 1000, 0])
def test_every_page_of_a_listing_is_read(bucket: Any, count: int) -> None:
    prefix = f"root{count}"
    for number in range(count):
        bucket.put_object(Bucket="raw", Key=f"{prefix}/2026-05-01/artifacts/r1/p{number:04}.json.gz", Body=b"[]")
    page = bucket.list_objects_v2(Bucket="raw", Prefix=f"{prefix}/")
    assert page["KeyCount"] == min(count, 1000)
    source = FileSource(f"s3://raw/{prefix}")
    assert source.days() == ([DAY] if count else [])
    assert len(source.open_day(DAY).artifacts) == count


@pytest.mark.slow
def test_a_day_on_s3_is_the_day_on_disk(bucket: Any, tmp_path: Path) -> None:
    files = {
        "2026-05-01/runs.jsonl": b'{"eval_run_id": "r1"}\n',
        "2026-05-01/problems.jsonl": b"",
        "2026-05-01/agent_versions.jsonl": b"",
        "2026-05-01/suite.json": b"[]",
        "2026-05-01/artifacts/r1/p1.json.gz": b"[]",
        "catalogue/products.jsonl": b"{}",
    }
    for name, body in files.items():
        bucket.put_object(Bucket="raw", Key=f"same/{name}", Body=body)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(body)
    remote, local = FileSource("s3://raw/same"), FileSource(str(tmp_path))
    assert remote.days() == local.days()
    assert remote.open_day(DAY) == local.open_day(DAY)
    assert remote.digest(DAY) == local.digest(DAY)
    assert remote.read("2026-05-01/runs.jsonl") == files["2026-05-01/runs.jsonl"]
    with pytest.raises(RejectRow, match="not_found"):
        remote.read("2026-05-01/none")
    with pytest.raises(RejectRow, match="outside_root"):
        remote.read("../other-prefix/file")
