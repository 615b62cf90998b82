"""Raw days are written whole or not at all, to a folder and to S3, and a fetched day lies on S3 as in a folder."""

from __future__ import annotations

import os
import stat
import time
from datetime import date
from pathlib import Path

import pytest

from trajectory_platform.errors import RetryLater
from trajectory_platform.sources.files import FileSource
from trajectory_platform.sources.oro_api import ApiAccess, read_report
from trajectory_platform.sources.raw_day_writer import RawDayWriter
from trajectory_platform_tests.sources.oro_fake import serving
from trajectory_platform_tests.sources.test_oro_api import ALL, DAY, P1, R1, Setup, small_world
from trajectory_platform_tests.sources.test_s3 import bucket

__all__ = ["bucket"]


def test_equal_content_is_not_written_again(tmp_path: Path) -> None:
    writer = RawDayWriter(str(tmp_path))
    assert writer.write_lines("2026-05-01/runs.jsonl", [{"a": "\u2028", "b": float("inf")}])
    path = tmp_path / "2026-05-01/runs.jsonl"
    assert path.read_text() == '{"a":"\\u2028","b":null}\n'
    os.utime(path, (1, 1))
    assert not writer.write_lines("2026-05-01/runs.jsonl", [{"a": "\u2028", "b": float("inf")}])
    assert path.stat().st_mtime == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    writer.remove("2026-05-01/runs.jsonl")
    writer.remove("2026-05-01/runs.jsonl")
    assert writer.read("2026-05-01/runs.jsonl") is None


def test_unfinished_files_of_dead_processes_are_removed_and_are_no_day(tmp_path: Path) -> None:
    writer = RawDayWriter(str(tmp_path))
    writer.write("2026-05-01/runs.jsonl", b"")
    (tmp_path / ".staging/part-dead").write_bytes(b"half")
    (tmp_path / ".staging/part-alive").write_bytes(b"half")
    os.utime(tmp_path / ".staging/part-dead", (time.time() - 7200,) * 2)
    writer.clean()
    assert os.listdir(tmp_path / ".staging") == ["part-alive"]
    assert FileSource(str(tmp_path)).days() == [date(2026, 5, 1)]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_disk_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RawDayWriter(str(tmp_path))
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), str(tmp_path / "gone")))
    with pytest.raises(RetryLater, match="No space left"):
        writer.write("2026-05-01/runs.jsonl", b"x")
    assert writer.read("2026-05-01/runs.jsonl") is None


def test_ids_become_names_only_when_they_are_safe(tmp_path: Path) -> None:
    writer = RawDayWriter(str(tmp_path))
    assert writer.artifact_uri(DAY, R1, P1) == f"2026-05-01/artifacts/{R1}/{P1}.json.gz"
    assert ".." not in writer.artifact_uri(DAY, "../x", "a/b")


def test_a_day_fetched_to_s3(bucket: object, tmp_path: Path) -> None:
    root = "s3://raw/fetched"
    with serving(small_world()) as fake:
        setup = Setup(fake, tmp_path)
        setup.access = ApiAccess(**{**vars(setup.access), "data_root": root})
        report = setup.fetch()
        assert report.state == "final"
        raw = FileSource(root).open_day(DAY)
        assert {(ref.eval_run_id, f"{ref.problem_id}.json.gz") for ref in raw.artifacts} == ALL
        assert (len(raw.runs), len(raw.problems), len(raw.agent_versions), raw.faults) == (2, 2, 1, [])
        assert raw.fetch is not None
        assert raw.fetch["state"] == "final"
        assert read_report(root, DAY) == report
        lost = Setup(fake, tmp_path / "other")
        lost.access = ApiAccess(**{**vars(lost.access), "data_root": root})
        assert lost.fetch().adopted == 4
        assert set(fake.downloads().values()) == {1}
