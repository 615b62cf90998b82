"""Which traces to look at: those of a problem, of a day, or of a checkpoint.

More than asked for are never shown; which of many is drawn by the digest of their ids, so a choice is the same at every
call and favours nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from trajectory_platform.errors import Abort
from trajectory_platform.identity import sha256_hex
from trajectory_platform.lake import tables
from trajectory_platform.lineage import retractions
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.trace_views import View, trace_views

Row = dict[str, Any]
SUCCESS, FAILURE = "success", "failure"
_CHUNK = 128  # traces read at once: what a view costs is mostly opening tables


def traces_of_problem(ctx: StageContext, name: str, *, limit: int) -> list[str]:
    """Up to ``limit`` traces of one problem, given by its id or key: as unlike one another as the lake allows.

    They are taken in turn from groups by who acted (miners, each stage's checkpoints, teachers) and whether it
    succeeded.

    Raises:
        Abort: no trace of such a problem, or none that was not retracted.
    """
    groups: dict[tuple[str, str, int], list[str]] = {}
    for who, stage, success, trace_id in _told(ctx, name):
        groups.setdefault((who, stage, (True, False, None).index(success)), []).append(trace_id)
    if not groups:
        raise Abort(f"no trace of a problem {name!a} in {ctx.settings.lake_uri}: give its id or its key")
    drawn = [_drawn(groups[group]) for group in sorted(groups)]
    turns = [group[turn] for turn in range(max(map(len, drawn))) for group in drawn if turn < len(group)]
    gone = retractions.tombstones(ctx.lake).among(ctx.lake, turns)
    named = dict.fromkeys(name for name in turns if name not in gone)
    if not named:
        raise Abort(f"every trace of the problem {name!a} was retracted: none is shown")
    read = ctx.lake.lookup(tables.TRAJECTORIES, "trace_id", named, None, ["trace_id", "readable"]).to_pylist()
    empty = {row["trace_id"] for row in read if not row["readable"]}
    return sorted(named, key=lambda one: one in empty)[:limit]  # what has no dialogue comes last


def _told(ctx: StageContext, name: str) -> Iterator[tuple[str, str, bool | None, str]]:
    """(who acted, for which stage, success, trace id) of every trace of a problem."""
    for row in _of_problem(ctx, tables.JUDGED_TRACES, name, ["trace_id", "outcome_success"]):
        yield "miner", "", row["outcome_success"], row["trace_id"]
    scored = _of_problem(ctx, tables.EVAL_SCORES, name, ["trace_id", "success"])
    scores = {row["trace_id"]: row["success"] for row in scored}
    for row in _of_problem(ctx, tables.ROLLOUTS, name, ["trace_id", "stage"]):
        yield "rollout", row["stage"], scores.get(row["trace_id"]), row["trace_id"]
    for row in _of_problem(ctx, tables.GENERATED_TRACES, name, ["trace_id", "stage", "success"]):
        yield "teacher", row["stage"], row["success"], row["trace_id"]


def traces_of_day(ctx: StageContext, day: str, *, only: str | None = None) -> list[str]:
    """Every trace of a day, in drawn order.

    Args:
        only: ``accepted``, ``rejected``, ``success``, ``failure``, a use, or a stage or reason of rejection.

    Raises:
        Abort: nothing is published for the day, or nothing of it is such.
    """
    accepted = ctx.lake.read(tables.AXIS_A_CORPUS, [day], ["trace_id", "uses", "outcome_success"]).to_pylist()
    rejected = ctx.lake.read(tables.REJECTED_TRACES, [day], ["trace_id", "stage", "reason"]).to_pylist()
    if not accepted and not rejected:
        raise Abort(f"no trace of {day} is curated: 'trajectory-platform ingest --day {day}' does it")
    if only in (SUCCESS, FAILURE):
        columns = ["trace_id", "outcome_success"]
        judged = ctx.lake.read(tables.JUDGED_TRACES, [day], columns).to_pylist()
        names = [row["trace_id"] for row in judged if row["outcome_success"] is (only == SUCCESS)]
    else:
        names = [row["trace_id"] for row in accepted if only in (None, "accepted", *row["uses"])]
        names += [row["trace_id"] for row in rejected if only in (None, "rejected", row["stage"], row["reason"])]
    if not names:
        told = sorted({row["reason"] for row in rejected} | {use for row in accepted for use in row["uses"]})
        raise Abort(f"no trace of {day} is {only!a}: accepted, rejected, {SUCCESS}, {FAILURE}, {', '.join(told)}")
    return _drawn(names)


def traces_of_checkpoint(ctx: StageContext, checkpoint_id: str, *, fed: bool = False) -> list[str]:
    """What a checkpoint did (its attempts, and what it generated for later stages), or what it was fed, in drawn order.

    Args:
        fed: True for the traces it was trained on; problems that were only attempted in training have no dialogue.

    Raises:
        Abort: the lake has nothing of the kind.
    """
    import pyarrow.compute as pc

    own = pc.field("checkpoint_id") == checkpoint_id
    if fed:
        rows = ctx.lake.read(tables.CHECKPOINT_TRACES, None, ["trace_id", "role"], own).to_pylist()
        names = [row["trace_id"] for row in rows if row["role"] != "prompt"]
    else:
        names = ctx.lake.read(tables.ROLLOUTS, None, ["trace_id"], own)["trace_id"].to_pylist()
        made = ctx.lake.read(tables.GENERATED_TRACES, None, ["trace_id"], pc.field("source") == checkpoint_id)
        names += made["trace_id"].to_pylist()
    if not names:
        what = "fed to" if fed else "of"
        raise Abort(f"no trace {what} {checkpoint_id!a} in {ctx.settings.lake_uri}")
    return _drawn(names)


def open_views(
    ctx: StageContext,
    trace_ids: Sequence[str],
    *,
    limit: int,
    sealed_reason: str | None,
    at: datetime,
    what: str,
    on_withheld: Callable[[View], None],
) -> Iterator[View]:
    """Views of up to ``limit`` traces that may be shown, in order, a bounded number in memory.

    Args:
        on_withheld: called for each sealed or retracted one that is passed over.
    """
    left = limit
    begin = 0
    while left > 0 and begin < len(trace_ids):
        names = trace_ids[begin : begin + min(_CHUNK, left if sealed_reason is not None else _CHUNK)]
        begin += len(names)
        views = trace_views(ctx, names, sealed_reason=sealed_reason, at=at, what=what)
        for view in views:
            if left <= 0:
                return
            if view["withheld"]:
                on_withheld(view)
            else:
                left -= 1
                yield view


def _of_problem(ctx: StageContext, table: tables.Table, name: str, columns: list[str]) -> list[Row]:
    import pyarrow.compute as pc

    own = (pc.field("problem_id") == name) | (pc.field("problem_key") == name)
    rows: list[Row] = ctx.lake.read(table, None, columns, own).to_pylist()
    return [row for row in rows if row["trace_id"] is not None]


def _drawn(names: Iterable[str]) -> list[str]:
    return sorted(set(names), key=lambda name: sha256_hex(name.encode("utf-8", "surrogatepass")))
