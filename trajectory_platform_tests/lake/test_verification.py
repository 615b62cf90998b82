"""Damage is named: one byte, one file, one manifest, one log entry. Sound days stay readable beside it."""

from __future__ import annotations

import io

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.tables import RAW_TRACES, TRAJECTORIES, Table
from trajectory_platform.lake.verification import verify
from trajectory_platform_tests.lake.rows import DAY, DAY2, fill, put, trace_ids

BOTH_PATHS = pytest.mark.parametrize("table", [RAW_TRACES, TRAJECTORIES], ids=["small", "big-text"])


@pytest.fixture
def lake(lake: Lake) -> Lake:
    """Two days of two tables."""
    for table in (RAW_TRACES, TRAJECTORIES):
        for day in (DAY, DAY2):
            put(lake, table, fill(table, trace_ids(300), day), day=day)
    assert verify(lake) == []
    return lake


def file_of(lake: Lake, table: Table, day: str = DAY) -> str:
    (name,) = lake.manifest(table, day).files
    return f"{table.name}/{name}"


def bytes_of(lake: Lake, path: str) -> bytes:
    return lake.storage.read(path).data


def flip(lake: Lake, path: str, position: int) -> None:
    content = bytearray(bytes_of(lake, path))
    content[position] ^= 0xFF
    lake.storage.write(path, bytes(content))


@BOTH_PATHS
@pytest.mark.parametrize("where", [0.02, 0.3, 0.6, 0.9, 0.999])
def test_one_flipped_byte_is_named_and_repaired_by_a_rerun(lake: Lake, table: Table, where: float) -> None:
    path = file_of(lake, table)
    flip(lake, path, int(len(bytes_of(lake, path)) * where))
    damage = verify(lake)
    assert [(one.table, one.day) for one in damage] in ([(table.name, DAY)], []), "no other day is blamed"
    if damage:  # bytes of padding and of unused footer fields carry no rows
        assert damage[0].reason in ("unreadable_file", "digest_mismatch")
        assert damage[0].file == path
    put(lake, table, fill(table, trace_ids(300)))
    assert verify(lake) == []
    assert lake.read(table, [DAY]).equals(fill(table, trace_ids(300)))


@BOTH_PATHS
def test_a_byte_of_the_values_is_always_found(lake: Lake, table: Table) -> None:
    import pyarrow.parquet as pq

    path = file_of(lake, table)
    chunk = pq.read_metadata(io.BytesIO(bytes_of(lake, path))).row_group(0).column(0)
    flip(lake, path, chunk.data_page_offset + chunk.total_compressed_size // 2)
    assert [one.file for one in verify(lake)] == [path]


@BOTH_PATHS
def test_g08_a_truncated_file_names_itself_and_hides_no_other(lake: Lake, table: Table) -> None:
    path = file_of(lake, table)
    lake.storage.write(path, bytes_of(lake, path)[:-10])
    with pytest.raises(FailPartition, match=path.rpartition("/")[2]):
        lake.read(table)
    with pytest.raises(FailPartition, match=path.rpartition("/")[2]):
        list(lake.batches(table, DAY))
    assert lake.read(table, [DAY2]).num_rows == 300
    assert not lake.is_current(table, DAY, "one") and lake.is_current(table, DAY2, "one")
    (damage,) = verify(lake)
    assert (damage.table, damage.day, damage.reason) == (table.name, DAY, "missing_file")
    put(lake, table, fill(table, trace_ids(300)))
    assert verify(lake) == [] and lake.read(table).num_rows == 600


@BOTH_PATHS
def test_a_deleted_partition_is_named_and_not_current(lake: Lake, table: Table) -> None:
    lake.storage.delete(file_of(lake, table))
    (damage,) = verify(lake, [table], invalidate=True)
    assert (damage.day, damage.reason) == (DAY, "missing_file")
    assert not lake.is_current(table, DAY, "one")
    assert [one.reason for one in verify(lake)] == ["no_manifest"]
    put(lake, table, fill(table, trace_ids(300)))
    assert verify(lake) == []


def test_rows_deleted_through_delta_are_named(lake: Lake) -> None:
    from deltalake import DeltaTable

    uri, options = lake.storage.delta("raw_traces")
    DeltaTable(uri, storage_options=options).delete(f"day = '{DAY}'")
    assert [(one.day, one.reason) for one in verify(lake)] == [(DAY, "manifest_stale")]
    assert not lake.is_current("raw_traces", DAY, "one")


def test_a_damaged_manifest_is_named_and_rebuilt(lake: Lake) -> None:
    path = f"_manifests/raw_traces/{DAY}.json"
    lake.storage.write(path, bytes_of(lake, path).replace(b'"rows": 300', b'"rows": 301'))
    assert [(one.day, one.reason) for one in verify(lake)] == [(DAY, "manifest_damaged")]
    assert not lake.is_current("raw_traces", DAY, "one")
    put(lake, RAW_TRACES, fill(RAW_TRACES, trace_ids(300)))
    assert verify(lake) == []


def test_a_damaged_log_is_named(lake: Lake) -> None:
    lake.storage.write(f"raw_traces/_delta_log/{2:020d}.json", b"{")
    lake = Lake(lake.uri)  # one that does not know the log yet
    assert [(one.table, one.reason) for one in verify(lake)] == [("raw_traces", "log_unreadable")]
    with pytest.raises(FailPartition, match="table raw_traces: the log"):
        lake.read(RAW_TRACES)
    assert lake.read(TRAJECTORIES).num_rows == 600


@pytest.mark.parametrize(
    "target", ["/etc/passwd.parquet", "../x.parquet", "file:///etc/x.parquet", "day=a/../../x.parquet"]
)
def test_a_log_that_names_a_file_elsewhere_is_refused(lake: Lake, target: str) -> None:
    entry = f"raw_traces/_delta_log/{2:020d}.json"
    (name,) = lake.manifest(RAW_TRACES, DAY2).files
    lake.storage.write(entry, bytes_of(lake, entry).replace(name.encode(), target.encode()))
    with pytest.raises(FailPartition, match="raw_traces"):
        Lake(lake.uri).read(RAW_TRACES, [DAY2])
