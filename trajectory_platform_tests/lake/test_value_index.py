"""A look by value finds what a read finds, whatever became of the index files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from trajectory_platform.lake import tables, value_index
from trajectory_platform.lake.publish import Lake
from trajectory_platform_tests.stages.built_lake import row

DAYS = ("2026-05-01", "2026-05-02", "2026-05-03")


def fill(root: Path, count: int = 700) -> Lake:
    """Trajectories of three days, texts shared between days, some absent; traces of two checkpoints in a slot."""
    lake = Lake(str(root))
    for number, day in enumerate(DAYS):
        rows = [
            row(
                tables.TRAJECTORIES,
                day=day,
                trace_id=f"r{place:05d}:{number}",
                content_hash=None if place % 50 == 0 else f"h{place % 90}",
            )
            for place in range(count)
        ]
        put(lake, tables.TRAJECTORIES, day, rows)
    fed = [
        row(tables.CHECKPOINT_TRACES, day=DAYS[0], stage="sft", checkpoint_id=name, trace_id=f"r{place:05d}:0")
        for name in ("sft-a", "sft-b")
        for place in range(0, count, 3)
    ]
    put(lake, tables.CHECKPOINT_TRACES, DAYS[0], fed, {"stage": "sft"})
    return lake


def put(lake: Lake, table: tables.Table, day: str, rows: list[dict[str, Any]], part: Any = None) -> None:
    data = pa.Table.from_pylist(rows, schema=table.schema())
    lake.publish(table, day, data, identity="x", inputs={}, code_version="1", settings={}, part=part)


def same(lake: Lake, table: tables.Table, column: str, values: list[str], days: Any = None) -> None:
    names = [name for name in table.columns if name not in ("messages", "tools")]
    expected = lake.read(table, days, names, pc.field(column).isin(pa.array(values, pa.string())))
    assert lake.lookup(table, column, values, days, names).equals(expected)


@pytest.mark.parametrize("column", ["trace_id", "content_hash"])
def test_a_look_by_value_is_a_filtered_read(tmp_path: Path, column: str) -> None:
    lake = fill(tmp_path)
    all_values = lake.read(tables.TRAJECTORIES, columns=[column]).column(0).drop_null().unique().to_pylist()
    for values in ([], ["none"], all_values[:1], all_values[3:400:7], [*all_values, "none"]):
        same(lake, tables.TRAJECTORIES, column, values)
        same(lake, tables.TRAJECTORIES, column, values, [DAYS[1]])
    same(lake, tables.TRAJECTORIES, "reader", ["", "other"])  # not indexed: a plain read
    assert lake.lookup(tables.ROLLOUTS, "trace_id", ["x"]).num_rows == 0  # never published


def test_indexes_are_written_with_the_publish_and_made_anew_when_lost_or_cut_off(tmp_path: Path) -> None:
    lake = fill(tmp_path)
    files = sorted((tmp_path / value_index.FOLDER / "trajectories").rglob("*.index"))
    assert len(files) == 2 * len(DAYS)
    whole = [path.read_bytes() for path in files]
    files[0].unlink()
    files[1].write_bytes(whole[1][:-16])
    files[2].write_bytes(b"")
    files[3].write_bytes(bytes(len(whole[3])))
    for day in range(len(DAYS)):
        same(lake, tables.TRAJECTORIES, "trace_id", [f"r00007:{day}"])
    same(lake, tables.TRAJECTORIES, "content_hash", ["h3", "h89"])
    assert [path.read_bytes() for path in files] == whole


def test_a_hash_that_lies_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All values under one hash: every row is a candidate, none but the right ones is an answer."""
    monkeypatch.setattr(
        value_index, "_hashes", lambda values: pa.array([7] * len(list(values)), pa.uint64()).to_numpy()
    )
    lake = fill(tmp_path)
    same(lake, tables.TRAJECTORIES, "trace_id", ["r00003:1", "r00699:2"])


def test_counts_need_no_values(tmp_path: Path) -> None:
    lake = fill(tmp_path)
    ids = [f"r{place:05d}:0" for place in range(0, 30)]
    rows = lake.lookup(
        tables.CHECKPOINT_TRACES, "trace_id", ids, columns=["checkpoint_id"], ordered=False, exact=False
    ).column(0)
    assert sorted(rows.to_pylist()) == ["sft-a"] * 10 + ["sft-b"] * 10


def test_rows_with_the_same_text_are_found_without_reading_it(tmp_path: Path) -> None:
    lake = fill(tmp_path)
    accepted = [
        row(tables.AXIS_A_CORPUS, day=DAYS[2], trace_id=name, content_hash=text, axis_label="A")
        for name, text in (("a:1", "h7"), ("b:1", "h8"), ("c:1", "h7"))
    ]
    put(lake, tables.AXIS_A_CORPUS, DAYS[2], accepted)
    assert lake.alike(tables.TRAJECTORIES, ["r00007:0"], [tables.AXIS_A_CORPUS]) == {"a:1", "c:1"}
    assert lake.alike(tables.TRAJECTORIES, ["r00007:0"], [tables.AXIS_A_CORPUS], [DAYS[1]]) == set()
    assert lake.alike(tables.TRAJECTORIES, ["r00000:0", "none"], tables.AXIS_A_CORPUS) == set(), "a null is no text"
    assert lake.alike(tables.GENERATED_TRACES, ["r00007:0"], tables.AXIS_A_CORPUS) == set()


def test_vacuum_removes_the_index_of_a_file_that_went(tmp_path: Path) -> None:
    lake = fill(tmp_path)
    put(lake, tables.TRAJECTORIES, DAYS[0], [row(tables.TRAJECTORIES, day=DAYS[0], trace_id="r1:0", content_hash="h")])
    (tmp_path / value_index.FOLDER / "trajectories" / f"day={DAYS[0]}" / ".left.tmp").touch()
    lake.vacuum(retention_days=0, partition_versions=False)
    left = sorted((tmp_path / value_index.FOLDER / "trajectories" / f"day={DAYS[0]}").iterdir())
    assert [path.suffix for path in left] == [".index"] * 2
    same(lake, tables.TRAJECTORIES, "trace_id", ["r1:0", "r00003:0"])
