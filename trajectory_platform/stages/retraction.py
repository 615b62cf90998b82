"""What a retraction does to the stages: which rows leave, what is rebuilt, which checkpoints are to be retrained.

From its tombstone on, a retracted trace is

- out of every split (``split_exclusions``, reason ``retracted``), so out of every training, at the next as-of run;
- treated like one of an invalidated run (``run_unusable``) when its own day is built again: it has no trajectory, and
  the filter rejects it, so that accepted + rejected is the day as before;
- counted as stale in every checkpoint that learnt from it (``contamination``), which flags the checkpoint;
- gone from the data files, old versions included, after ``purge_retracted``. Only the days that hold it are rewritten.

An invalidated run that arrives from the source needs no tombstone: its newest listing says the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.identity import digest_json
from trajectory_platform.lake import tables
from trajectory_platform.lake.manifests import slot
from trajectory_platform.lineage.retractions import RETRACTED, detail_of, is_in, tombstones
from trajectory_platform.stages.context import StageContext, input_digests

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.lake.publish import Lake
    from trajectory_platform.lake.retention import PurgeReport, VacuumReport
    from trajectory_platform.lineage.retractions import Tombstones

INVALIDATED = "run_unusable"
PURGED_TABLES = (
    tables.TRAJECTORIES,
    tables.VERDICTS,  # explanations quote
    tables.AXIS_A_CORPUS,
    tables.GENERATED_TRACES,
    tables.ROLLOUTS,
)
"""Tables that hold the text of traces; ``raw_traces`` keeps the row (the count of the day) without any text of it."""
Row = dict[str, Any]


def retraction_inputs(ctx: StageContext) -> dict[str, str]:
    """The tombstones as input of an as-of stage: all of them, whenever they were written; nothing when there are none.

    Rows never change, so the content of the days they were written on says it.
    """
    return input_digests(ctx, {tables.RETRACTIONS.name: ctx.lake.days(tables.RETRACTIONS)})


def day_inputs(ctx: StageContext, day: str) -> dict[str, str]:
    """The retracted pairs of a day as input of its stages; nothing when it has none: other days stay current."""
    found = _of_day(ctx, day)
    return {"retracted": digest_json(sorted(found))} if found else {}


def generated_inputs(ctx: StageContext, day: str, stage: str) -> dict[str, str]:
    """The retracted ones of the traces generated for a stage as of a day as its input; nothing when there are none."""
    found = tombstones(ctx.lake).rows_of(ctx.lake, tables.GENERATED_TRACES, [day], ["trace_id", "stage"])
    names = sorted(row["trace_id"] for row, _ in found if row["stage"] == stage)
    return {f"retracted_of_{stage}": digest_json(names)} if names else {}


def present_raw(ctx: StageContext, day: str) -> pa.Table:
    """The ``raw_traces`` rows of a day; a retracted trace reads like one of an invalidated run."""
    import pyarrow as pa

    raw = ctx.lake.read(tables.RAW_TRACES, [day])
    found = _of_day(ctx, day)
    if not found:
        return raw
    rows = raw.to_pylist()
    for row in rows:
        if row["trace_id"] in found and row["state"] == "trace":
            row |= {"state": INVALIDATED, "state_reason": RETRACTED, "state_detail": found[row["trace_id"]]}
    return pa.Table.from_pylist(rows, schema=tables.RAW_TRACES.schema())


def _of_day(ctx: StageContext, day: str) -> dict[str, str]:
    """Trace id -> detail of the retracted pairs of a day, known copies among them."""
    stones = tombstones(ctx.lake)
    found = stones.rows_of(ctx.lake, tables.RAW_TRACES, [day], ["trace_id"])
    return {row["trace_id"]: detail_of(one) for row, one in found}


def retracted_rows(ctx: StageContext, days: Sequence[str]) -> dict[tuple[str, str], str]:
    """(trace id, day) -> detail, of the accepted traces of some days that were retracted, or have a retracted text."""
    stones = tombstones(ctx.lake)
    rows = stones.rows_of(ctx.lake, tables.AXIS_A_CORPUS, list(days), ["trace_id", "day"]) if stones else []
    return {(row["trace_id"], row["day"]): detail_of(one) for row, one in rows}


def retracted_among(ctx: StageContext, trace_ids: Iterable[str]) -> set[str]:
    """Which of these traces were retracted, generated ones and known copies included."""
    return set(tombstones(ctx.lake).among(ctx.lake, trace_ids))


def retract(
    ctx: StageContext, name: str, *, kind: str | None = None, reason: str | None = None, at: datetime | None
) -> Row:
    """``retraction_plan.plan`` of a trace, run or miner, and its tombstone unless ``at`` is None (a rehearsal).

    Returns the plan with ``retraction_id`` (None for a rehearsal), ``at``, ``who`` and ``reason``.

    Raises:
        Abort: nothing of that name, no reason, or it is retracted already.
    """
    from trajectory_platform.lake.ledger import user_name
    from trajectory_platform.lineage import retraction_plan, retractions

    subject = retractions.subject_of(ctx.lake, name, kind)
    planned = retraction_plan.plan_of(ctx.lake, subject, checkpoint_root=Path(ctx.settings.checkpoint_root))
    nothing: Row = {"retraction_id": None, "at": None, "who": None, "reason": reason}
    if at is None:
        return planned | nothing
    order = [row["checkpoint_id"] for row in planned["checkpoints"]]
    row = retractions.retract(ctx.lake, subject, reason=reason or "", who=user_name(), at=at, checkpoints=order)
    return planned | {name: row[name] for name in nothing} | {"at": row["at"].isoformat()}


def vacuum(ctx: StageContext, *, dry_run: bool, partition_versions: bool) -> VacuumReport:
    """``lake.vacuum``; superseded files with the text of anything retracted go as well."""
    stones = tombstones(ctx.lake)
    gone: set[str] = set()
    for table in (tables.RAW_TRACES, *PURGED_TABLES):
        gone |= {row["trace_id"] for row, _ in stones.rows_of(ctx.lake, table, None, ["trace_id"])}
    return ctx.lake.vacuum(dry_run=dry_run, partition_versions=partition_versions, retracted=gone)


class Purged(NamedTuple):
    """What ``purge_retracted`` did.

    Attributes:
        traces: traces whose text went.
        rejected: day -> rows written in place of accepted ones.
        report: the lake's own.
        pictures: checkpoints that lost the picture of the row they showed.
    """

    traces: int
    rejected: dict[str, int]
    report: PurgeReport
    pictures: list[str]


def purge_retracted(ctx: StageContext) -> Purged | None:
    """Remove the text of everything retracted from the data files, old versions included; None when nothing is.

    A checkpoint loses the picture of a trained row (``loss_mask.json``) that shows a retracted trace, not its weights.
    A row that leaves the corpus is written to ``rejected_traces``, so a day keeps its count. The raw artifacts are the
    source's and stay where they are. What is built from a purged day is built again by the next run.
    """
    lake = ctx.lake
    stones = tombstones(lake)
    if not stones:
        return None
    ids: dict[str, str] = {}
    for table in PURGED_TABLES:
        for row, one in stones.rows_of(lake, table, None, ["trace_id"]):
            ids.setdefault(row["trace_id"], detail_of(one))
    known = {*ids, *(row["trace_id"] for row, _ in stones.rows_of(lake, tables.RAW_TRACES, None, ["trace_id"]))}
    columns = ["trace_id", "day", "axis_label", "axis_share", "axis_reason", "filter_version"]
    accepted = lake.read(tables.AXIS_A_CORPUS, columns=columns, filter=is_in("trace_id", ids)).to_pylist()
    rejected = {
        day: _reject(lake, day, [row for row in accepted if row["day"] == day], ids)
        for day in sorted({row["day"] for row in accepted})
    }
    return Purged(len(ids), rejected, lake.purge(known, tables=PURGED_TABLES), _without_pictures(ctx, stones, known))


def _without_pictures(ctx: StageContext, stones: Tombstones, purged: Collection[str]) -> list[str]:
    """Remove the pictures of rows whose text went, and those that cannot be read; the checkpoints that held one."""
    from trajectory_platform.training.checkpoints import list_checkpoints, remove_loss_mask
    from trajectory_platform.training.loss_mask import LOSS_MASK, read_loss_mask, traces_shown

    root = Path(ctx.settings.checkpoint_root)
    masks = {name: read_loss_mask(root / name) for name in list_checkpoints(root) if (root / name / LOSS_MASK).exists()}
    shown = {name: None if mask is None else traces_shown(mask) for name, mask in masks.items()}
    gone = {*purged, *stones.among(ctx.lake, set().union(*(ids for ids in shown.values() if ids)))}
    found = [name for name, ids in shown.items() if ids is None or ids & gone]
    for name in found:
        remove_loss_mask(root / name)
    return found


def _reject(lake: Lake, day: str, rows: Sequence[Row], ids: Mapping[str, str]) -> int:
    """Write accepted rows that go to the day's rejections, as a build of the day would; the day keeps its identity."""
    import pyarrow as pa

    onto = lake.state(slot(tables.REJECTED_TRACES, day))  # what another process adds meanwhile is not overwritten
    manifest = lake.manifest(tables.REJECTED_TRACES, day)
    held = lake.read(tables.REJECTED_TRACES, [day])
    there = set(held.column("trace_id").to_pylist())
    told = [
        {
            **row,
            "stage": "ingest",
            "reason": INVALIDATED,
            "detail": f"{RETRACTED}: {ids[row['trace_id']]}",
            "duplicate_of": None,
            "retryable": False,
        }
        for row in rows
        if row["trace_id"] not in there
    ]
    added = pa.Table.from_pylist(told, schema=tables.REJECTED_TRACES.schema())
    lake.publish(
        tables.REJECTED_TRACES,
        day,
        pa.concat_tables([held, added]),
        identity=manifest.identity if manifest else "purged",
        inputs=manifest.inputs if manifest else {},
        code_version=manifest.code_version if manifest else "1",
        settings=manifest.settings if manifest else {},
        complete=manifest.complete if manifest else True,
        summary=manifest.summary if manifest else {},
        onto=onto,
    )
    return len(told)
