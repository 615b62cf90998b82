"""Rows for the lake's tests: any table filled with plain values, published with little writing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from trajectory_platform.lake import snapshots
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.tables import Table

LOCAL = pytest.mark.parametrize("lake", ["local"], indirect=True)  # for tests that touch the files of a lake
DAY = "2026-03-01"
DAY2 = "2026-03-02"

MOMENT = datetime(2026, 3, 1, tzinfo=UTC)  # where a time may not be null
PLAIN: dict[str, Any] = {"text": "x", "int": 7, "float": 0.5, "bool": True, "texts": ["a", "b"], "time": None}


def fill(table: Table, ids: list[str], day: str = DAY, **columns: list[Any]) -> pa.Table:
    """One row per id (the first key column); other columns as given, else a plain value of their type."""
    arrays = []
    for field in table.schema():
        name = field.name
        if name in columns:
            values = columns[name]
        elif name == "day":
            values = [day] * len(ids)
        elif name == table.key[0]:
            values = list(range(len(ids))) if table.columns[name] == "int" else ids
        elif name in table.values:
            values = [table.values[name][0]] * len(ids)
        else:
            kind = table.columns[name]
            values = [MOMENT if kind == "time" else PLAIN[kind.rstrip("?")]] * len(ids)
        arrays.append(pa.array(values, field.type))
    return pa.table(arrays, schema=table.schema())


def trace_ids(count: int, start: int = 0) -> list[str]:
    return [f"run{number:06d}:p" for number in range(start, start + count)]


def batches(table: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=rows)


def put(lake: Lake, table: Table, data: Any, day: str = DAY, identity: str = "one", **more: Any) -> Any:
    """Publish with the arguments a test does not care about filled in."""
    given = {"inputs": {"raw": "abc"}, "code_version": "1", "settings": {"limit": 1}, **more}
    return lake.publish(table, day, data, identity=identity, **given)


def data_files(lake: Lake) -> set[str]:
    """Every file of the lake that is no log, manifest, lease or index."""
    aside = {"_delta_log", "_manifests", "_leases", "_index"}
    return {name for name in lake.storage.walk("") if not aside & set(name.split("/"))}


def active_files(lake: Lake, *tables: Table) -> set[str]:
    found = set()
    for table in tables:
        snapshot = snapshots.open_snapshot(lake.storage, table)
        found |= {f"{table.name}/{file.path}" for file in (snapshot.files if snapshot else ())}
    return found


def temporary_files(lake: Lake) -> list[str]:
    return sorted(name for name in lake.storage.walk("") if name.endswith(".tmp") or "#" in name)
