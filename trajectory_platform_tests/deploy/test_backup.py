"""A copy of a lake that is being published to is whole, and answers as the lake did; a copy goes on where it ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trajectory_platform.cli import app
from trajectory_platform.errors import Abort, PlatformError
from trajectory_platform.lake import backup, ledger
from trajectory_platform.lake.backup import copy
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.storage import LOCAL_VARIABLE
from trajectory_platform.lake.verification import verify
from trajectory_platform.lineage import questions
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests import s3_server
from trajectory_platform_tests.deploy.publishing import TABLES
from trajectory_platform_tests.deploy.stack import REPOSITORY
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, settings_for, split
from trajectory_platform_tests.stages.made_checkpoints import made

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A lake of three days with two checkpoints and a look at sealed problems; the checkpoints' names."""
    root = tmp_path_factory.mktemp("kept")
    settings = settings_for(make_days(root / "days", days=3, traces=12), root / "lake", pool_train=100, pool_dev=0,
                            pool_sealed=0)  # fmt: skip
    ingest(settings, DAYS[:3])
    ctx = StageContext(settings)
    names: list[str] = []
    for day in DAYS[1:3]:
        split(settings, day)
        names.append(made(ctx, day, "sft" if not names else "resft", names[0] if names else None))
    from datetime import UTC, datetime

    ledger.record(ctx.lake, what="sql", reason="a look", at=datetime(2026, 5, 9, tzinfo=UTC), keys=["one"])
    (root / "lake" / "_release.key").write_text("0" * 64)
    return root / "lake", names


@pytest.fixture
def lake(kept: tuple[Path, list[str]], tmp_path: Path) -> Lake:
    """A copy of that lake, made while nobody writes, that a test may change."""
    shutil.copytree(kept[0], tmp_path / "lake")
    return Lake(str(tmp_path / "lake"))


@contextmanager
def publishing(uri: str) -> Iterator[list[str]]:
    """Another process publishes to the lake as fast as it can; the list grows by a line for every publish."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trajectory_platform_tests.deploy.publishing", uri], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    lines: list[str] = []
    assert process.stdout is not None and process.stdin is not None
    reader = threading.Thread(target=lines.extend, args=(iter(process.stdout.readline, ""),))
    reader.start()
    try:
        wait_for(lines, 1)
        yield lines
    finally:
        process.stdin.close()
        assert process.wait(120) == 0
        reader.join()


def wait_for(lines: list[str], count: int) -> None:
    deadline = time.monotonic() + 120
    while len(lines) < count:
        assert time.monotonic() < deadline, "the other process does not publish"
        time.sleep(0.05)


def answers(lake: Lake, checkpoints: list[str]) -> dict[str, Any]:
    """What lineage says of every checkpoint and of every trace that fed one."""
    traces = sorted(set(lake.read("checkpoint_traces").column("trace_id").to_pylist()))
    assert traces
    found: dict[str, Any] = {name: questions.about_checkpoint(lake, name) for name in checkpoints}
    return found | {name: questions.about_trace(lake, name) for name in traces}


def fed(lake: Lake, checkpoints: list[str]) -> list[dict[str, Any]]:
    """What fed the checkpoints: the part of the answers that does not change with the days."""
    rows: list[dict[str, Any]] = lake.read("checkpoint_traces").to_pylist()
    assert {row["checkpoint_id"] for row in rows} == set(checkpoints)
    assert all(questions.about_checkpoint(lake, name) is not None for name in checkpoints)
    return rows


def test_a_copy_taken_between_publishes_answers_every_question_alike(
    lake: Lake, kept: tuple[Path, list[str]], tmp_path: Path
) -> None:
    target = Lake(str(tmp_path / "copy"))
    report = copy(lake, target)
    assert verify(target) == [] and report.files > 10 and report.forgotten == 0
    assert answers(target, kept[1]) == answers(lake, kept[1])
    assert {name: target.days(name) for name in ("axis_a_corpus", "checkpoints")} == {
        name: lake.days(name) for name in ("axis_a_corpus", "checkpoints")
    }
    assert ledger.read_ledger(target) == ledger.read_ledger(lake) and ledger.read_ledger(target).faults == ()
    assert (tmp_path / "copy" / "_release.key").read_text() == "0" * 64
    again = copy(lake, target)
    assert (again.files, again.log_entries, again.manifests, again.beside) == (
        0,
        0,
        0,
        0,
    ) and again.kept == report.files


def test_a_copy_taken_while_another_process_publishes_is_whole(
    lake: Lake, kept: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading of two tables, and between that and the copying of the data, something is published."""
    before, target = fed(lake, kept[1]), Lake(str(tmp_path / "copy"))
    with publishing(lake.uri) as lines, monkeypatch.context() as patched:
        freeze = backup._freeze

        def slowly(source: Any, table: Any) -> Any:
            found = freeze(source, table)
            if table.name in TABLES:
                wait_for(lines, len(lines) + 2)
            return found

        patched.setattr(backup, "_freeze", slowly)
        copy(lake, target)
        assert verify(target) == [] and fed(target, kept[1]) == before
        assert copy(lake, target).files > 0  # an earlier copy is brought up to date
        assert verify(target) == [] and fed(target, kept[1]) == before
    copy(lake, target)
    assert verify(target) == [] and answers(target, kept[1]) == answers(lake, kept[1])


@pytest.mark.parametrize("fails_at", [1, 5, 20, 60])
def test_an_interrupted_copy_is_readable_and_the_next_one_completes_it(
    lake: Lake, kept: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """Wherever it stops, no manifest in the copy names rows that are not there."""
    target = Lake(str(tmp_path / "copy"))
    done = 0

    def counted(call: Any) -> Any:
        def wrapped(*arguments: Any) -> Any:
            nonlocal done
            done += 1
            if done == fails_at:
                raise OSError(28, "No space left on device")
            return call(*arguments)

        return wrapped

    with monkeypatch.context() as patched:
        patched.setattr(target.storage, "write", counted(target.storage.write))
        patched.setattr(target.storage, "place", counted(target.storage.place))
        with pytest.raises((OSError, PlatformError), match="No space left"):
            copy(lake, target)
    reasons = {damage.reason for damage in verify(target)}
    assert reasons <= {"no_manifest", "missing_file", "score_without_look", "manifest_stale"} - {"missing_file"}
    copy(lake, target)
    assert verify(target) == [] and answers(target, kept[1]) == answers(lake, kept[1])


def test_a_copy_that_was_written_to_is_not_overwritten(lake: Lake, tmp_path: Path) -> None:
    target = Lake(str(tmp_path / "copy"))
    copy(lake, target)
    for one in (lake, target):  # both go on by themselves
        rows = one.read("verdicts", [DAYS[0]])
        one.publish("verdicts", DAYS[0], rows.slice(1), identity="x", inputs={}, code_version="1", settings={})
    with pytest.raises(Abort, match="another history"):
        copy(lake, target)
    with pytest.raises(Abort, match="the lake itself"):
        copy(lake, lake)
    with pytest.raises(Abort, match="nothing is published"):
        copy(Lake(str(tmp_path / "none")), target)


def test_a_day_that_was_made_not_current_is_not_current_in_the_copy(lake: Lake, tmp_path: Path) -> None:
    target = Lake(str(tmp_path / "copy"))
    copy(lake, target)
    lake.invalidate("verdicts", DAYS[0])
    assert copy(lake, target).forgotten == 1
    assert target.manifest("verdicts", DAYS[0]) is None


def test_the_commands_back_up_and_restore(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    monkeypatch.setenv("TRAJECTORY_PLATFORM_LAKE_URI", lake.uri)
    made_copy = run(app, ["lake", "backup", "--to", str(tmp_path / "backup"), "--json"])
    assert made_copy.exit_code == 0 and json.loads(made_copy.stdout)["files"] > 10
    monkeypatch.setenv("TRAJECTORY_PLATFORM_LAKE_URI", str(tmp_path / "restored"))
    restored = run(app, ["lake", "restore", "--from", str(tmp_path / "backup")])
    assert restored.exit_code == 0 and "lake verify" in restored.stdout
    assert run(app, ["lake", "verify"]).exit_code == 0


@pytest.mark.slow
def test_an_object_store_is_copied_out_while_it_is_published_to_and_in_again(
    lake: Lake, kept: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("boto3", "moto.server"):
        pytest.importorskip(module)
    with s3_server.running() as server:
        for name, value in {**server.environment, LOCAL_VARIABLE: str(tmp_path / "local")}.items():
            monkeypatch.setenv(name, value)
        for bucket in ("lake", "backup"):
            server.bucket(bucket)
        remote, saved, back = Lake("s3://lake/lake"), Lake("s3://backup/lake"), Lake(str(tmp_path / "back"))
        copy(lake, remote)
        before = answers(remote, kept[1])
        assert before == answers(lake, kept[1])
        with publishing(remote.uri) as lines:
            began = len(lines)
            copy(remote, saved)
            wait_for(lines, began + 1)
            assert verify(saved) == []
        copy(remote, saved)
        copy(saved, back)
        assert verify(back) == [] and answers(back, kept[1]) == answers(remote, kept[1])
        for one in (remote, back):  # keys and journals go where a machine keeps them, also over an object store
            assert (one.workspace / "_release.key").read_text() == "0" * 64


def test_settings_name_what_a_backup_has_to_hold() -> None:
    """A new setting that names a place of data has to be thought of in the guide's list."""
    places = {name for name in Settings.model_fields if name.endswith(("_root", "_uri", "_local", "_state"))}
    assert places == {"data_root", "lake_uri", "lake_local", "checkpoint_root", "index_root", "api_state"}
