"""A lake of an older version: its tables know fewer columns, or others, and take days of this version all the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.tables import Table
from trajectory_platform_tests.stages.built_lake import row

OLD, NEW = "2026-05-02", "2026-05-03"


def without(table: Table, columns: Sequence[str]) -> Table:
    return dataclasses.replace(table, columns={name: of for name, of in table.columns.items() if name not in columns})


def publish(lake: Lake, table: Table, day: str) -> None:
    part = {"stage": "sft"} if "stage" in table.partition else None
    values = {name: "sft" if name == "stage" else day for name in table.partition}
    rows = pa.Table.from_pylist([row(table, **values)], schema=table.schema())
    data = iter(rows.to_batches()) if table.big_text else rows
    lake.publish(table, day, data, identity=day, inputs={}, code_version="1", settings={}, part=part)


LATER = [(tables.CHECKPOINTS, "parent"), (tables.TRAJECTORIES, "policy_checkpoint_id")]


@pytest.mark.parametrize(("table", "column"), LATER, ids=lambda value: getattr(value, "name", value))
def test_a_column_that_came_later_is_null_in_older_days(tmp_path: Path, table: Table, column: str) -> None:
    lake = Lake(str(tmp_path / "lake"))
    publish(lake, without(table, [column]), OLD)
    assert lake.read(table, [OLD]).column(column).to_pylist() == [None]
    publish(lake, table, NEW)
    publish(lake, table, OLD)  # and a day of the old version is built anew
    assert lake.read(table).num_rows == 2
    assert lake.read(table).schema == table.schema()


def test_a_column_that_is_gone_hides_nothing_of_the_others(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    publish(lake, tables.CHECKPOINTS, OLD)
    later = without(tables.CHECKPOINTS, ["parent"])
    publish(lake, later, NEW)
    assert lake.read(later).column("day").to_pylist() == [OLD, NEW]


def test_a_required_column_that_came_later_is_said_to_be_missing_until_the_day_is_built_anew(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    publish(lake, without(tables.CHECKPOINTS, ["traces"]), OLD)
    publish(lake, tables.CHECKPOINTS, NEW)
    with pytest.raises(FailPartition, match="older version.*traces.*run their days again"):
        lake.read(tables.CHECKPOINTS)
    publish(lake, tables.CHECKPOINTS, OLD)
    assert lake.read(tables.CHECKPOINTS).num_rows == 2
