"""The stages of a run side by side: what each solves on the same held-out problems, and what it added."""

from __future__ import annotations

from typing import Any

from trajectory_platform.lake import tables
from trajectory_platform.stages.checkpoints import NOT_IN_RECIPE, current_checkpoint
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.evaluations import EVALUATIONS, Evaluation, evaluated_rows, looks_line
from trajectory_platform.stages.result_words import singular

Row = dict[str, Any]
NOT_RUN = "not_run"
"""State of an evaluation that never ran as of a day."""


def stage_rows(ctx: StageContext, day: str) -> list[Row]:
    """One row per evaluation, the untrained model first, in the order of the stages.

    ``{stage, checkpoint_id, parent, traces, state, reason}``; where something was attempted also ``success,
    success_low, success_high, pass_at (k -> value or None), process, process_low, process_high, conduct, hallucinated,
    truncated, problems, attempts, clusters, thin, looks`` and, paired on the same problems, ``against`` (the evaluation
    before it that attempted something), ``difference, difference_low, difference_high, detectable, words``.
    """
    from trajectory_platform.evaluation.metrics import task_metrics

    how = resampling(ctx)
    found: list[Row] = []
    before: tuple[str, list[Row]] | None = None
    for evaluation in EVALUATIONS:
        row = _about(ctx, day, evaluation)
        scored = evaluated_rows(ctx, day, evaluation)
        if row["state"] == "ok" and scored:
            row |= _measured(task_metrics(scored, **how)["overall"]) | {"looks": looks_line(ctx, scored)}
            kept = [one for one in scored if one["outcome"] != "no_reward"]
            if before is not None:
                row |= _paired(before, kept, how)
            before = evaluation.stage, kept
        found.append(row)
    return found


def resampling(ctx: StageContext) -> Row:
    """How intervals are drawn, as the recipe says."""
    from trajectory_platform.training.recipe import load_recipe

    plan = load_recipe(ctx.settings.recipe).evaluation
    return {"seed": plan.seed, "resamples": plan.bootstrap, "thin_below": plan.thin_below}


def _about(ctx: StageContext, day: str, evaluation: Evaluation) -> Row:
    scored = ctx.lake.manifest(tables.EVAL_SCORES, day, evaluation.part)
    state = scored.summary["state"] if scored is not None else NOT_RUN
    row: Row = {"stage": evaluation.stage, "state": state, "reason": "", "parent": "", "traces": None}
    row["checkpoint_id"] = scored.summary["checkpoint_id"] if scored is not None else ""
    if evaluation.untrained:
        return row
    made = ctx.lake.manifest(tables.CHECKPOINTS, day, evaluation.part)
    if made is not None:
        row["reason"] = made.summary.get("reason") or ""
    checkpoint = current_checkpoint(ctx, day, evaluation.stage)
    if checkpoint is not None:
        row |= {"parent": checkpoint["parent"] or "", "traces": checkpoint["traces"]}
    return row


def _measured(overall: Row) -> Row:
    if "success_rate" not in overall:
        return {}
    row = {
        "pass_at": {int(k): one["value"] for k, one in overall["pass_at_k"].items()},
        "conduct": overall["conduct_score"]["value"],
        "hallucinated": overall["hallucinated"]["value"],
        "truncated": overall["truncated"]["value"],
        "thin": overall["state"] == "thin",
        **{name: overall[name] for name in ("problems", "attempts", "clusters")},
    }
    return row | _score("success", overall["success_rate"]) | _score("process", overall["process_score"])


def _score(name: str, score: Row) -> Row:
    interval = score.get("interval") or {}
    told = {name: score["value"], f"{name}_low": interval.get("low"), f"{name}_high": interval.get("high")}
    return told | ({f"{name}_note": interval["note"]} if interval.get("note") else {})


def _paired(before: tuple[str, list[Row]], rows: list[Row], how: Row) -> Row:
    """This evaluation beside the one before it on the problems both attempted; {} where they share none."""
    from trajectory_platform.errors import PlatformError
    from trajectory_platform.evaluation.comparison import compare

    try:
        overall = compare(before[1], rows, **how)["overall"]
    except PlatformError:  # another plan since: nothing can be paired
        return {}
    told = {"against": before[0], "detectable": overall["smallest_detectable"]["value"], "words": overall["words"]}
    return told | _score("difference", overall["difference"])


def stage_lines(rows: list[Row]) -> list[str]:
    """The table for people, what its asterisks mean below it; stages that were not run or not in the recipe are left
    out but for their reason."""
    shown = [row for row in rows if row["reason"] != NOT_IN_RECIPE and row["state"] != NOT_RUN]
    ks = sorted({k for row in shown for k, value in row.get("pass_at", {}).items() if value is not None})
    heads = ("stage", "success", *(f"pass@{k}" for k in ks), "process", "conduct", "halluc.", "cut", "problems", "gain")
    table = [heads, *(_cells(row, ks) for row in shown if "success" in row)]
    widths = [max(len(cells[place]) for cells in table) for place in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in table
    ]
    lines = lines if len(table) > 1 else []
    notes = [row.get(f"{name}_note") for row in shown for name in ("success", "process", "difference")]
    lines += [f"* {note}" for note in dict.fromkeys(notes) if note]
    for row in shown:
        if "success" not in row:
            why = f" ({row['reason']})" if row["reason"] else ""
            lines.append(f"{row['stage']}: nothing attempted: {row['state']}{why}")
        if row.get("looks"):
            lines.append(f"{row['stage']}: {row['looks']}")
    return lines


def _cells(row: Row, ks: list[int]) -> tuple[str, ...]:
    remark = " (thin)" if row["thin"] else ""
    gain = "-"
    if row.get("difference") is not None:
        gain = f"{100 * row['difference']:+.1f}{_between(row, 'difference', 100, '+.1f')} points on {row['against']}"
    return (
        row["stage"],
        f"{row['success']:.0%}{_between(row, 'success', 1, '.0%')}",
        *(_share(row["pass_at"].get(k)) for k in ks),
        "unknown" if row["process"] is None else f"{row['process']:+.2f}{_between(row, 'process', 1, '+.2f')}",
        "-" if row["conduct"] is None else f"{row['conduct']:.2f}",
        _share(row["hallucinated"]),
        _share(row["truncated"]),
        singular(f"{row['problems']} in {row['clusters']} clusters") + remark,
        gain,
    )


def _between(row: Row, name: str, scale: float, form: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    mark = "*" if row.get(f"{name}_note") else ""
    return "" if low is None or high is None else f" [{low * scale:{form}}, {high * scale:{form}}]{mark}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
