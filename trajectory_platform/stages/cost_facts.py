"""What days cost, read from the lake: judge calls, the agents' own calls, training and attempts, bytes kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajectory_platform.lake import tables
from trajectory_platform.reports.cost_section import CostFacts
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.flows import counted_rows

Row = dict[str, Any]
_DAY_TABLES = (
    tables.RAW_TRACES,
    tables.PROBLEM_SUITES,
    tables.TRAJECTORIES,
    tables.JUDGED_TRACES,
    tables.VERDICTS,
    tables.JUDGE_CALLS,
    tables.AXIS_A_CORPUS,
    tables.REJECTED_TRACES,
)


def cost_facts(ctx: StageContext, days: Sequence[str], *, as_of: str | None = None) -> CostFacts:
    """Cost of some days.

    Args:
        as_of: also what training and attempts as of that day used.
    """
    verdicts = {row["judge_kind"]: row["traces"] for row in counted_rows(ctx, tables.VERDICTS, days, ["judge_kind"])}
    calls, failures = _agents(ctx, days)
    return CostFacts(
        judges=_judges(ctx, days),
        rules_verdicts=verdicts.get("rules", 0),
        agent_calls=calls,
        agent_failures=failures,
        work=_work(ctx, as_of) if as_of is not None else (),
        stored=_stored(ctx, days),
    )


def _judges(ctx: StageContext, days: Sequence[str]) -> list[Row]:
    columns = [
        "day", "judge_model", "status", "canary", "quality", "prompt_tokens", "completion_tokens", "cost_usd",
        "cost_known", "call_key",
    ]  # fmt: skip
    found: dict[tuple[str, str], Row] = {}
    for call in ctx.lake.read(tables.JUDGE_CALLS, days, columns=columns).to_pylist():
        if not call["call_key"]:
            continue  # a row about a whole batch
        start = {"day": call["day"], "model": call["judge_model"], "calls": 0, "canaries": 0, "without_value": 0}
        row = found.setdefault(
            (call["day"], call["judge_model"]),
            {**start, "prompt_tokens": 0, "completion_tokens": 0, "usd": 0.0, "unknown": 0},
        )
        row["calls"] += 1
        row["canaries"] += call["canary"] is not None
        row["without_value"] += call["quality"] is None
        row["prompt_tokens"] += call["prompt_tokens"] or 0
        row["completion_tokens"] += call["completion_tokens"] or 0
        row["usd"] += call["cost_usd"]
        row["unknown"] += not call["cost_known"]
    return [found[key] for key in sorted(found)]


def _agents(ctx: StageContext, days: Sequence[str]) -> tuple[int | None, int]:
    """(model calls, failed ones) as the subnet counted them; None where no pair has a count."""
    import pyarrow.compute as pc

    columns = ["inference_total", "inference_failure_count"]
    rows = ctx.lake.read(tables.RAW_TRACES, days, columns=columns, ordered=False)
    calls, failures = (pc.sum(rows.column(name)).as_py() for name in columns)
    return calls, failures or 0


def _work(ctx: StageContext, as_of: str) -> list[Row]:
    """Checkpoints with the time of their run, attempts with their tokens; by stage."""
    rows: list[Row] = []
    for manifest in ctx.lake.manifests(tables.CHECKPOINTS, [as_of]):
        summary = manifest.summary or {}
        if manifest.rows:
            told = {"tokens": summary.get("run_tokens"), "usd": None, "seconds": _whole(summary.get("run_seconds"))}
            rows.append({"what": f"train {manifest.part['stage']}", "count": manifest.rows, **told})
    columns = ["stage", "prompt_tokens", "completion_tokens", "seconds", "cost_usd"]
    found: dict[str, list[Row]] = {}
    for row in ctx.lake.read(tables.ROLLOUTS, [as_of], columns=columns, ordered=False).to_pylist():
        found.setdefault(f"attempts of {row['stage']}", []).append(row)
    columns = ["stage", "prompt_tokens", "completion_tokens", "cost_usd"]
    sampled = {what for what in found if what.endswith("_rollouts")}  # their attempts are rollouts already
    for row in ctx.lake.read(tables.GENERATED_TRACES, [as_of], columns=columns, ordered=False).to_pylist():
        if f"attempts of {row['stage']}_rollouts" not in sampled:
            found.setdefault(f"generated for {row['stage']}", []).append({**row, "seconds": None})
    for what, attempts in sorted(found.items()):
        tokens = [(one["prompt_tokens"] or 0) + (one["completion_tokens"] or 0) for one in attempts]
        seconds = [one["seconds"] for one in attempts if one["seconds"] is not None]
        rows.append(
            {
                "what": what,
                "count": len(attempts),
                "tokens": sum(tokens) or None,
                "usd": sum(one["cost_usd"] for one in attempts),
                "seconds": _whole(sum(sorted(seconds))) if seconds else None,
            }
        )
    return rows


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _stored(ctx: StageContext, days: Sequence[str]) -> list[Row]:
    """Bytes of the raw artifacts and of the published tables of these days."""
    import pyarrow.compute as pc

    sizes = ctx.lake.read(tables.RAW_TRACES, days, columns=["artifact_uri", "artifact_bytes"], ordered=False)
    files = sizes.group_by("artifact_uri").aggregate([("artifact_bytes", "max")]).drop_null()  # a file may hold many
    total = pc.sum(files.column("artifact_bytes_max")).as_py() or 0
    rows: list[Row] = [{"what": f"{files.num_rows:,} raw artifacts", "bytes": total}]
    for table in _DAY_TABLES:
        kept = sum(sum(manifest.files.values()) for manifest in ctx.lake.manifests(table, days))
        if kept:
            rows.append({"what": f"table {table.name}", "bytes": kept})
    return rows
