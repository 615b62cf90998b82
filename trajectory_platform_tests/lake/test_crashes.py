"""Kill -9, a full disk and two writers at once: readers see the old day or the new one, a rerun repairs the rest."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.snapshots import open_snapshot
from trajectory_platform.lake.tables import RAW_TRACES, TRAJECTORIES, Table
from trajectory_platform.lake.verification import verify
from trajectory_platform_tests.lake.children import (
    NEW,
    OLD,
    PROCESSES,
    finish,
    hold_the_lease,
    publish_day,
    publish_new,
    publish_with_a_small_limit,
    rows,
    start,
)
from trajectory_platform_tests.lake.rows import DAY, DAY2, active_files, data_files, put, temporary_files, trace_ids

BOTH_PATHS = pytest.mark.parametrize("table", [RAW_TRACES, TRAJECTORIES], ids=["small", "big-text"])


SMALL_POINTS = {
    "batch 3": "old",
    "before snapshots.replace_rows": "old",
    "before snapshots._commit_options": "old",
    "after snapshots._commit_options": "old",
    "before snapshots._after": "new",
    "after snapshots.replace_rows": "new",
    "before manifests.save": "new",
    "before os.replace": "new",
    "after os.replace": "new",
    "after manifests.save": "new",
}
BIG_POINTS = {
    "batch 0": "old",
    "batch 5": "old",  # the first row groups are written
    "before staging.stage": "old",
    "after staging.stage": "old",
    "before snapshots.replace_files": "old",
    "before snapshots.place": "old",
    "after os.replace": "old",  # in the table folder, in no log
    "after snapshots.place": "old",
    "after snapshots._commit_options": "old",
    "before snapshots._after": "new",
    "after snapshots.replace_files": "new",
    "before manifests.save": "new",
    "after manifests.save": "new",
}
POINTS = [
    *((RAW_TRACES, point, seen) for point, seen in SMALL_POINTS.items()),
    *((TRAJECTORIES, point, seen) for point, seen in BIG_POINTS.items()),
]


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Content digests of undisturbed publishes of the new day."""
    lake = Lake(str(tmp_path_factory.mktemp("undisturbed")))
    return {table.name: put(lake, table, rows(table, NEW)).content_digest for table in (RAW_TRACES, TRAJECTORIES)}


def assert_a_rerun_repairs(lake: Lake, table: Table, digest: str) -> None:
    """After any kill: the next run publishes the same rows, and vacuum leaves nothing but them."""
    if not lake.is_current(table, DAY, "new"):
        put(lake, table, rows(table, NEW), identity="new")
    assert lake.manifest(table, DAY).content_digest == digest
    assert lake.read(table, columns=["trace_id"]).column(0).to_pylist() == NEW
    lake.vacuum(retention_days=0)
    assert data_files(lake) == active_files(lake, table)
    assert [path for path in temporary_files(lake) if "_manifests" not in path] == []
    assert list((lake.workspace / "_staging").rglob("*.parquet")) == []
    assert verify(lake) == []


@pytest.mark.parametrize(("table", "point", "seen"), POINTS, ids=[f"{t.name}: {p}" for t, p, _ in POINTS])
def test_kill_at_every_point_leaves_the_old_or_the_new_day(
    lake: Lake, digests: dict[str, str], table: Table, point: str, seen: str
) -> None:
    if lake.storage.remote and "os.replace" in point:
        pytest.skip("nothing is renamed there")
    put(lake, table, rows(table, OLD), identity="old")
    child = start(publish_new, lake.uri, table.name, point)
    assert finish(child) == -signal.SIGKILL
    expected = OLD if seen == "old" else NEW
    assert lake.read(table).equals(rows(table, expected))
    assert lake.is_current(table, DAY, "old") == (seen == "old")
    manifest = lake.manifest(table, DAY)
    assert manifest is None or manifest.rows == len(expected), "a manifest never describes other data"
    assert_a_rerun_repairs(lake, table, digests[table.name])


@BOTH_PATHS
def test_kill_of_a_first_publish(lake: Lake, digests: dict[str, str], table: Table) -> None:
    child = start(publish_new, lake.uri, table.name, "after snapshots.create_table")
    assert finish(child) == -signal.SIGKILL
    assert lake.read(table).num_rows == 0 and lake.days(table) == []
    assert_a_rerun_repairs(lake, table, digests[table.name])


@BOTH_PATHS
def test_kill_at_random_times(lake: Lake, digests: dict[str, str], table: Table) -> None:
    """Also inside the libraries, where no point can be named. The delays are spread over a whole publish."""
    put(lake, table, rows(table, OLD), identity="old")
    began = time.monotonic()
    assert finish(start(publish_new, lake.uri, table.name, "never")) == 0
    whole = time.monotonic() - began
    generator = random.Random(7)
    outcomes = set()
    for attempt in range(10):
        put(lake, table, rows(table, OLD), identity="old")
        child = start(publish_new, lake.uri, table.name, "never")
        time.sleep(whole * (attempt + generator.random()) / 10)
        child.kill()
        child.join()
        found = lake.read(table)
        assert found.equals(rows(table, OLD)) or found.equals(rows(table, NEW))
        outcomes.add(found.num_rows)
    assert_a_rerun_repairs(lake, table, digests[table.name])
    assert len(OLD) in outcomes


@BOTH_PATHS
def test_a_full_disk_keeps_the_old_day(lake: Lake, tmp_path: Path, digests: dict[str, str], table: Table) -> None:
    if lake.storage.remote and not table.big_text:
        pytest.skip("nothing is written to the disk there")
    put(lake, table, rows(table, OLD), identity="old")
    assert finish(start(publish_with_a_small_limit, lake.uri, table.name, str(tmp_path / "said"))) == 0
    said = (tmp_path / "said").read_text()
    assert said.startswith(f"{table.name} {DAY} was not published") and "\n" not in said
    assert lake.read(table).equals(rows(table, OLD)) and lake.is_current(table, DAY, "old")
    assert_a_rerun_repairs(lake, table, digests[table.name])


# --- two writers ---------------------------------------------------------------------------------------------------


def race(lake: Lake, tmp_path: Path, table: Table, writers: list[tuple[str, list[str], str]]) -> list[dict[str, Any]]:
    barrier = PROCESSES.Barrier(len(writers))
    results = [tmp_path / f"said{number}" for number in range(len(writers))]
    children = [
        start(publish_day, lake.uri, table.name, day, ids, identity, barrier, str(result))
        for (day, ids, identity), result in zip(writers, results, strict=True)
    ]
    assert [finish(child) for child in children] == [0] * len(writers)
    return [json.loads(result.read_text()) for result in results]


@BOTH_PATHS
def test_first_writers_of_different_days_all_win(lake: Lake, tmp_path: Path, table: Table) -> None:
    days = [f"2026-04-0{number}" for number in range(1, 5)]
    said = race(lake, tmp_path, table, [(day, trace_ids(50), day) for day in days])
    assert all("published" in one for one in said)
    assert lake.days(table) == days and lake.read(table).num_rows == 200
    assert all(lake.is_current(table, day, day) for day in days)
    assert verify(lake) == []


@BOTH_PATHS
@pytest.mark.parametrize("before", [False, True], ids=["first writers", "later writers"])
def test_of_two_writers_of_a_day_one_wins_and_one_is_told(
    lake: Lake, tmp_path: Path, table: Table, before: bool
) -> None:
    if before:
        put(lake, table, rows(table, OLD), identity="old")
    said = race(lake, tmp_path, table, [(DAY, OLD[:100], "a"), (DAY, OLD[200:250], "b")])
    assert sorted(next(iter(one)) for one in said) == ["published", "refused"]
    refusal = next(one["refused"] for one in said if "refused" in one)
    assert "published by another process meanwhile" in refusal
    winner = "a" if "published" in said[0] else "b"
    assert lake.is_current(table, DAY, winner)
    assert lake.read(table).equals(rows(table, OLD[:100] if winner == "a" else OLD[200:250]))
    assert data_files(lake) >= active_files(lake, table)
    assert verify(lake) == []


@BOTH_PATHS
def test_the_same_run_twice_at_once_is_one_commit(lake: Lake, tmp_path: Path, table: Table) -> None:
    said = race(lake, tmp_path, table, [(DAY, NEW, "same"), (DAY, NEW, "same")])
    assert said[0] == said[1] and "published" in said[0]
    snapshot = open_snapshot(lake.storage, table)
    assert snapshot is not None and snapshot.version == 1, "one creation, one commit"


def test_a_dead_holder_frees_the_lease_and_a_live_one_is_named(lake: Lake, tmp_path: Path) -> None:
    held = tmp_path / "held"
    child = start(hold_the_lease, lake.uri, "verdicts", str(held))
    while not held.exists():
        time.sleep(0.01)
    lease = lake.storage.lease("verdicts", 0.1)
    with pytest.raises(FailPartition, match=f"written by process {child.pid}"), lease:
        pass
    child.kill()
    child.join()
    with lake.storage.lease("verdicts", 10 if lake.storage.remote else 1):
        pass


def test_g07_readers_and_writers_do_not_block_each_other(lake: Lake) -> None:
    """A reader in the middle of a day goes on with its snapshot while the day is replaced."""
    put(lake, TRAJECTORIES, rows(TRAJECTORIES, OLD), identity="old")
    reader = lake.batches(TRAJECTORIES, DAY, batch_rows=10)
    first = next(reader)
    put(lake, TRAJECTORIES, rows(TRAJECTORIES, NEW), identity="new")
    put(lake, TRAJECTORIES, rows(TRAJECTORIES, NEW, DAY2), day=DAY2)
    lake.vacuum()
    seen = pa.Table.from_batches([first, *reader]).column("trace_id").to_pylist()
    assert seen == OLD
    assert next(lake.batches(TRAJECTORIES, DAY)).column("trace_id")[0].as_py() == NEW[0]
