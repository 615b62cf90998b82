"""Vacuum keeps what is named and what readers may hold; purge removes retracted text from everywhere."""

from __future__ import annotations

import json

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.snapshots import open_snapshot
from trajectory_platform.lake.tables import AXIS_A_CORPUS, CHECKPOINTS, RAW_TRACES, TRAJECTORIES, Table
from trajectory_platform.lake.verification import verify
from trajectory_platform_tests.lake.rows import DAY, DAY2, LOCAL, active_files, data_files, fill, put, trace_ids


def publish_versions(lake: Lake, table: Table, count: int) -> list[int]:
    return [
        put(lake, table, fill(table, trace_ids(3, start=number)), identity=str(number)).table_version
        for number in range(count)
    ]


def files_at(lake: Lake, table: Table, version: int) -> list[bool]:
    snapshot = open_snapshot(lake.storage, table, version)
    assert snapshot is not None
    return [bool(lake.storage.sizes(table.name, [file.path])) for file in snapshot.files]


def test_replaced_files_stay_for_readers_until_the_retention_is_over(lake: Lake) -> None:
    publish_versions(lake, TRAJECTORIES, 3)
    assert lake.vacuum().removed == []
    planned = lake.vacuum(retention_days=0, dry_run=True)
    assert len(planned.removed) == 2 and planned.removed_bytes > 0
    assert len(data_files(lake)) == 3, "a dry run removes nothing"
    assert lake.vacuum(retention_days=0).removed == planned.removed
    assert data_files(lake) == active_files(lake, TRAJECTORIES)
    assert verify(lake) == []


@LOCAL
def test_leftovers_of_killed_writers_go_at_once(lake: Lake) -> None:
    publish_versions(lake, TRAJECTORIES, 1)
    planted = [
        "trajectories/day=2026-03-01/part-dead.parquet",
        "trajectories/day=2026-03-01/part-dead.parquet#1",
        "trajectories/_delta_log/_commit_1b9d6bcd.json.tmp",
        "_staging/trajectories/0123/part.parquet",
    ]
    for name in planted:
        (lake.root / name).parent.mkdir(parents=True, exist_ok=True)
        (lake.root / name).write_bytes(b"x")
    (lake.root / "_staging/trajectories/0123.lock").touch()
    assert sorted(lake.vacuum().removed) == sorted(planted)
    assert not any((lake.root / name).exists() for name in planted)


def test_a_live_staging_folder_stays(lake: Lake) -> None:
    from trajectory_platform.lake.staging import staging_folder

    with staging_folder(lake.storage, "trajectories") as folder:
        (folder / "part.parquet").write_bytes(b"x")
        assert lake.vacuum().removed == []
        assert (folder / "part.parquet").exists()
    assert not folder.exists()


def checkpoint(lake: Lake, manifest: object) -> None:
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    row = fill(CHECKPOINTS, ["sft-1"], stage=["sft"], manifest=[text])
    put(lake, CHECKPOINTS, row, part={"stage": "sft"}, identity=text)


def test_versions_named_by_checkpoints_and_callers_stay_whole(lake: Lake) -> None:
    versions = publish_versions(lake, AXIS_A_CORPUS, 5)
    checkpoint(lake, {"inputs": {"axis_a_corpus": {"version": versions[1], "days": {DAY: "digest"}}}})
    report = lake.vacuum(retention_days=0, keep={"axis_a_corpus": [versions[2]]})
    kept = [version for version in versions if all(files_at(lake, AXIS_A_CORPUS, version))]
    assert kept == [versions[1], versions[2], versions[4]]
    assert report.kept_versions["axis_a_corpus"] == kept
    assert report.missing_versions == {} and report.broken_versions == {}


def test_a_version_named_by_another_days_manifest_stays_unless_told_otherwise(lake: Lake) -> None:
    put(lake, RAW_TRACES, fill(RAW_TRACES, ["a"]))
    other = put(lake, RAW_TRACES, fill(RAW_TRACES, ["b"], DAY2), day=DAY2)
    put(lake, RAW_TRACES, fill(RAW_TRACES, ["c"]), identity="two")
    lake.vacuum(retention_days=0)
    assert files_at(lake, RAW_TRACES, other.table_version) == [True, True]
    lake.vacuum(retention_days=0, partition_versions=False)
    assert data_files(lake) == active_files(lake, RAW_TRACES)


def test_a_version_that_is_gone_is_reported(lake: Lake) -> None:
    publish_versions(lake, AXIS_A_CORPUS, 1)
    checkpoint(lake, {"inputs": {"axis_a_corpus": {"version": 99}}})
    assert lake.vacuum().missing_versions == {"axis_a_corpus": [99]}


def test_nothing_is_removed_on_a_guess(lake: Lake) -> None:
    publish_versions(lake, AXIS_A_CORPUS, 2)
    checkpoint(lake, "{broken")
    with pytest.raises(FailPartition, match="manifest of checkpoint 'sft-1'"):
        lake.vacuum(retention_days=0)
    assert len([name for name in data_files(lake) if name.startswith("axis_a_corpus")]) == 2


def test_purge_removes_the_rows_and_every_byte_of_them(lake: Lake) -> None:
    ids = trace_ids(4)
    secret = "the retracted sentence"
    texts = [secret if name == ids[2] else "fine" for name in ids]
    for table in (TRAJECTORIES, AXIS_A_CORPUS):
        put(lake, table, fill(table, ids, messages=texts))
        put(lake, table, fill(table, trace_ids(4, start=50), DAY2), day=DAY2)
    named = lake.manifest(AXIS_A_CORPUS, DAY).table_version
    checkpoint(lake, {"inputs": {"axis_a_corpus": {"version": named}}})
    before = lake.manifest(TRAJECTORIES, DAY)

    report = lake.purge([ids[2], "unknown:trace"])

    assert report.rows == {"trajectories": {DAY: 1}, "axis_a_corpus": {DAY: 1}}
    for table in (TRAJECTORIES, AXIS_A_CORPUS):
        assert lake.read(table, [DAY]).column("trace_id").to_pylist() == [ids[0], ids[1], ids[3]]
        assert lake.read(table, [DAY2]).num_rows == 4
        assert lake.is_current(table, DAY, "one"), "the next run must not build the retracted rows anew"
    after = lake.manifest(TRAJECTORIES, DAY)
    assert after.content_digest != before.content_digest, "what depends on the day is rebuilt"
    assert after.summary == {"retracted": 1} and after.rows == 3
    assert list(report.vacuum.broken_versions["axis_a_corpus"]) == [1, 2], "every named version that lost the file"
    assert all(ids[2] not in str(_all_ids(lake, name)) for name in data_files(lake))
    written = [lake.storage.read(name).data for name in lake.storage.walk("") if name.endswith(".json")]
    assert written and secret.encode() not in b"".join(written)
    assert verify(lake) == []
    assert lake.purge([ids[2]]).rows == {}, "a second time there is nothing to do"


def _all_ids(lake: Lake, name: str) -> list[str]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(lake.storage.source(name)) as file:
        known = "trace_id" in file.schema_arrow.names
        return file.read(columns=["trace_id"]).column(0).to_pylist() if known else []


def test_vacuum_alone_removes_retracted_text_from_old_versions(lake: Lake) -> None:
    first = put(lake, TRAJECTORIES, fill(TRAJECTORIES, ["a", "b"]))
    put(lake, TRAJECTORIES, fill(TRAJECTORIES, ["b"]), identity="two")
    report = lake.vacuum(keep={"trajectories": [first.table_version]}, retracted=["a"])
    assert len(report.removed) == 1
    assert report.broken_versions == {"trajectories": {first.table_version: list(first.files)}}
    assert verify(lake) == []
