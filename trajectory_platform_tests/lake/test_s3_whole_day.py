"""Whole days with raw files and lake on S3: the same content as on disk, the same answers of every command."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from trajectory_platform.cli import main
from trajectory_platform.lake import object_store, tables
from trajectory_platform.lake.publish import Lake
from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.lake.sealed_lake import CHECKPOINT, sealed_lake
from trajectory_platform_tests.s3_server import Server
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, settings_for, split

pytestmark = pytest.mark.slow
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Call the command line on a lake: its exit code and what it printed."""

    def call(lake: str, *words: str) -> tuple[int, str]:
        monkeypatch.setenv("TRAJECTORY_PLATFORM_LAKE_URI", lake)
        monkeypatch.setenv("TRAJECTORY_PLATFORM_DATA_ROOT", str(tmp_path / "days"))
        monkeypatch.setattr("sys.argv", ["trajectory-platform", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capfd.readouterr()
        return int(stop.value.code or 0), printed.out + printed.err

    return call


def contents(lake: Lake) -> dict[tuple[str, str], str]:
    """(table, day) -> content digest of everything published."""
    return {(name, one.day): one.content_digest for name in tables.TABLES for one in lake.manifests(name)}


def test_days_on_s3_are_the_days_on_disk(s3: Server, tmp_path: Path, run: Run) -> None:
    days = make_days(tmp_path / "days", days=2)
    client = object_store.client()
    for path in sorted(days.rglob("*")):
        if path.is_file():
            client.upload_file(str(path), s3.bucket_name, f"raw/{path.relative_to(days).as_posix()}")
    local = settings_for(days, tmp_path / "lake")
    uri = f"s3://{s3.bucket_name}/lake"
    remote = local.model_copy(
        update={"data_root": f"s3://{s3.bucket_name}/raw", "lake_uri": uri, "lake_local": str(tmp_path / "lake_local")}
    )
    said = [ingest(settings, DAYS[:2]) for settings in (local, remote)]
    assert said[0] == said[1] and set(said[1].values()) == {"published"}
    assert [split(settings, DAYS[1]) for settings in (local, remote)][0]
    here, there = StageContext(local).lake, StageContext(remote).lake
    assert contents(there) == contents(here) and len(contents(there)) > 10
    assert set(ingest(remote, DAYS[:2]).values()) == {"current"}
    for words in (
        ("status",),
        ("sql", "select day, count(*) from judged_traces group by day order by day"),
        ("lake", "verify"),
    ):
        answers = [run(lake, *words) for lake in (local.lake_uri, uri)]
        assert answers[1][0] == answers[0][0] == 0
        assert answers[1][1].replace(uri, local.lake_uri) == answers[0][1]
    code, text = run(uri, "lake", "vacuum", "--delete")
    assert code == 0 and run(uri, "lake", "verify")[0] == 0, text
    code, text = run(uri, "doctor")
    assert f"{uri} answers" in text and str(tmp_path / "lake_local") in text


def test_every_question_has_the_same_answer(s3: Server, tmp_path: Path, run: Run) -> None:
    uri = f"s3://{s3.bucket_name}/sealed"
    local = str(sealed_lake(tmp_path / "lake").root)
    sealed_lake(uri)
    asked = [
        (0, "lineage", "checkpoint", CHECKPOINT),
        (0, "lineage", "trace", "r1:o"),
        (0, "traces", "show", "r1:o"),
        (0, "traces", "show", "r1:s"),
        (0, "sql", "from judged_traces order by all"),
        (0, "sql", "from judged_traces order by all", "--sealed", "audit"),
        (1, "lake", "verify"),  # a sealed score that nobody looked for
        (0, "lineage", "retract", "r1:o", "--reason", "asked for"),
        (2, "lineage", "retract", "r1:o", "--reason", "asked again"),
        (0, "lake", "purge", "--json"),
        (1, "lake", "verify"),
        (0, "lineage", "trace", "r1:o"),
        (0, "lake", "vacuum", "--delete"),
    ]
    for code, *words in asked:
        here, there = run(local, *words), run(uri, *words)
        assert here[0] == there[0] == code, (words, here, there)
        assert _plain(there[1]) == _plain(here[1])


def _plain(text: str) -> str:
    """Without times and what is made of them or at random: the retraction's id, names of data files."""
    text = re.sub(r"part-[^ ]*?\.parquet", "FILE", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:[\d.]+)?(\+00:00)?", "TIME", text)
    return re.sub(r"\b[0-9a-f]{12,32}\b", "ID", text)
