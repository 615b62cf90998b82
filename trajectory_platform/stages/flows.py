"""Where the pairs of a day went, read from the lake: for the reports and for the metadata of the daily assets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajectory_platform.lake import tables
from trajectory_platform.reports.flow import Flow, flow_of
from trajectory_platform.stages.context import StageContext

Row = dict[str, Any]


def day_flows(ctx: StageContext, days: Sequence[str]) -> dict[str, Flow]:
    """The flow of each published day; a day without a published corpus is left out."""
    manifests = {one.day: one for one in ctx.lake.manifests(tables.AXIS_A_CORPUS, days)}
    wanted = sorted(manifests)
    if not wanted:
        return {}
    rejected: dict[str, dict[tuple[str, str], int]] = {day: {} for day in wanted}
    for row in counted_rows(ctx, tables.REJECTED_TRACES, wanted, ["day", "stage", "reason"]):
        rejected[row["day"]][row["stage"], row["reason"]] = row["traces"]
    uses: dict[str, dict[tuple[str, ...], int]] = {day: {} for day in wanted}
    for row in counted_rows(ctx, tables.AXIS_A_CORPUS, wanted, ["day", "uses"]):
        uses[row["day"]][tuple(filter(None, row["uses"].split(",")))] = row["traces"]
    listed = {row["day"]: row for row in ctx.lake.read(tables.DAY_SUMMARIES, wanted).to_pylist()}
    flows = {}
    for day in wanted:
        listing = listed.get(day)
        pairs = (manifests[day].summary or {}).get("input")
        if pairs is None:  # published without counts
            pairs = sum(rejected[day].values()) + sum(uses[day].values())
        flows[day] = flow_of(
            pairs,
            rejected[day],
            uses[day],
            found=None if listing is None else listing["found"],
            moved_in=0 if listing is None else listing["moved_in"],
            moved_out=0 if listing is None else listing["moved_out"],
        )
    return flows


def counted_rows(ctx: StageContext, table: tables.Table, days: Sequence[str], columns: Sequence[str]) -> list[Row]:
    """How many rows have the same values in some columns: the columns and ``traces``, in the order of the values.

    Counted without a Python object per row, because some days have 60,000. A list column becomes its texts joined by
    commas.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = ctx.lake.read(table, days, columns=columns, ordered=False)
    for place, field in enumerate(rows.schema):
        if pa.types.is_list(field.type):
            rows = rows.set_column(place, field.name, pc.binary_join(rows.column(place), ","))
    counts = rows.group_by(list(columns)).aggregate([([], "count_all")]).rename_columns([*columns, "traces"])
    found: list[Row] = counts.sort_by([(name, "ascending") for name in columns]).to_pylist()
    return found
