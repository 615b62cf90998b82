"""The best strict success known for a problem: what the dense reward and the process score are measured against."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trajectory_platform.lake import tables
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.splits import published_window

if TYPE_CHECKING:
    from trajectory_platform.evaluation.turn_rewards import Reference

Row = dict[str, Any]
STRICT = "rule"  # outcome_source of a success by the rule score of a public reward


def strict_successes(ctx: StageContext, day: str, keys: Collection[str], *, pool: str) -> list[Row]:
    """Accepted traces of the window that solved one of these problems by the rule, with their messages.

    Only traces that the guarded splits of the day place in ``pool``: what the window's view removed is no reference.
    Rows {trace_id, trace_day, problem_key, cluster_id, messages, tools}, sorted by trace id.
    """
    splits = ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [day]).to_pylist()
    wanted = {
        (row["trace_id"], row["trace_day"]): row for row in splits if row["pool"] == pool and row["problem_key"] in keys
    }
    found: list[Row] = []
    for trace_day in sorted({one for _, one in wanted}):
        for batch in _accepted(ctx, trace_day):
            for record in batch.to_pylist():
                split = wanted.get((record["trace_id"], record["day"]))
                if split is not None and record["outcome_success"] and record["outcome_source"] == STRICT:
                    place = {name: split[name] for name in ("trace_id", "trace_day", "problem_key", "cluster_id")}
                    found.append({**place, "messages": record["messages"], "tools": record["tools"]})
    return sorted(found, key=lambda row: row["trace_id"])


def _accepted(ctx: StageContext, day: str) -> Iterator[Any]:
    columns = ["trace_id", "day", "outcome_success", "outcome_source", "messages", "tools"]
    yield from ctx.lake.batches(tables.AXIS_A_CORPUS, day, columns=columns, batch_rows=ctx.settings.batch_rows)


def references_of(ctx: StageContext, day: str, keys: Collection[str], *, pool: str) -> Mapping[str, Reference]:
    """Problem key -> the best strict success of the window's corpus; problems that nobody solved are not in it."""
    from trajectory_platform.evaluation.turn_rewards import references_from_rows

    return references_from_rows(strict_successes(ctx, day, keys, pool=pool))


def reference_inputs(ctx: StageContext, day: str) -> dict[str, list[str]]:
    """The partitions that references are taken from."""
    published = [day] if ctx.lake.manifest(tables.LEAK_GUARDED_SPLITS, day) is not None else []
    return {"leak_guarded_splits": published, "axis_a_corpus": published_window(ctx, tables.AXIS_A_CORPUS, day)}
