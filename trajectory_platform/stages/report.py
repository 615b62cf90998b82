"""The report over the lake: reads tables and manifests, fills :class:`ReportData`, writes one HTML file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from trajectory_platform.errors import Abort
from trajectory_platform.lake import sealing, tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages import closing
from trajectory_platform.stages.calibration import calibration_facts
from trajectory_platform.stages.checkpoints import (
    NOT_IN_RECIPE,
    current_checkpoint,
    example_trace,
    folder_of,
    last_checkpoint,
)
from trajectory_platform.stages.contamination import contamination_report
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.cost_facts import cost_facts
from trajectory_platform.stages.day_report import AXIS_LABELS
from trajectory_platform.stages.flows import counted_rows, day_flows
from trajectory_platform.stages.stage_table import NOT_RUN, stage_rows
from trajectory_platform.stages.strategy_facts import removed, strategies_over
from trajectory_platform.training.stage_recipes import STAGES

_MOST_CLUSTERS = 10


def write_report(settings: Settings, out: Path, day: str | None) -> Path:
    """Write the page as of ``day`` (the newest curated day when None), replacing an older one atomically.

    Raises:
        Abort: when no day was curated yet, or none up to ``day``.
    """
    from trajectory_platform.reports.html import build_report
    from trajectory_platform.reports.page import write_page

    ctx = StageContext(settings)
    curated = closing.day_summaries(ctx)
    summaries = {one: summary for one, summary in curated.items() if day is None or one <= day}
    if curated and not summaries:
        raise Abort(f"nothing to report up to {day}: the first day in {settings.lake_uri} is {min(curated)}")
    if not summaries:
        raise Abort(f"nothing to report in {settings.lake_uri}: run 'trajectory-platform ingest' first")
    return write_page(out, build_report(report_data(ctx, summaries)))


def report_data(ctx: StageContext, summaries: dict[str, dict[str, Any]]) -> Any:
    """Everything the page shows about the given curated days (day -> summary, oldest first); as of the last one."""
    from trajectory_platform.reports.data import ReportData
    from trajectory_platform.reports.flow import added

    days = list(summaries)
    as_of = days[-1]
    scores = closing.report_scores(ctx, as_of)
    tasks = closing.report_tasks(ctx, as_of)
    comparison = closing.task_comparison(ctx, as_of)
    checkpoint = _checkpoint(ctx, as_of)
    traced, steps = _lineage(ctx, as_of)
    return ReportData(
        title="Trajectory platform",
        subtitle=f"{days[0]} to {as_of} · lake {ctx.settings.lake_uri}",
        tiles=_tiles(ctx, as_of, summaries, scores, tasks),
        days=_day_rows(ctx, summaries),
        funnels={day: closing.funnel_steps(summary) for day, summary in summaries.items()},
        flow=added(list(day_flows(ctx, days).values())),
        strategies=strategies_over(ctx, days),
        cost=cost_facts(ctx, days, as_of=as_of),
        axis={
            day: {label: summary["by_axis"].get(label, 0) for label in AXIS_LABELS}
            for day, summary in summaries.items()
        },
        reasons=_reasons(ctx, days),
        pools=_pools(ctx, as_of),
        cluster_sizes=_cluster_sizes(ctx, as_of),
        clusters=_largest_clusters(ctx, as_of),
        scores=scores,
        scores_note=closing.SCORES_NOTE,
        stages=[row for row in stage_rows(ctx, as_of) if row["reason"] != NOT_IN_RECIPE and row["state"] != NOT_RUN],
        tasks=tasks,
        tasks_note=closing.tasks_note(ctx, as_of),
        task_pairs=closing.report_pairs(comparison),
        task_words=closing.report_words(comparison),
        calibration=calibration_facts(ctx, days[0], as_of)["comparisons"],
        contamination=contamination_report(ctx, as_of),
        checkpoint=checkpoint,
        loss_masks=_loss_masks(ctx, as_of),
        lineage_of=traced,
        lineage=steps,
        notes=_notes(ctx),
    )


def _tiles(
    ctx: StageContext,
    as_of: str,
    summaries: dict[str, dict[str, Any]],
    scores: list[dict[str, Any]],
    tasks: list[dict[str, Any]],
) -> list[tuple[str, str]]:
    total = sum(summary["input"] for summary in summaries.values())
    accepted = sum(summary["accepted"] for summary in summaries.values())
    sft = sum(summary["by_use"].get("sft", 0) for summary in summaries.values())
    clusters = ctx.lake.manifest("leak_clusters", as_of)
    tiles = [("pairs judged", f"{total:,}"), ("accepted, axis A", f"{accepted:,}"), ("fit for SFT", f"{sft:,}")]
    if clusters is not None and clusters.summary:
        tiles.append(("leak clusters", f"{clusters.summary['clusters']:,}"))
    overall = [row for row in scores if row["category"] == "all" and row["n"]]
    if overall:
        tiles.append(("next tool right", f"{overall[0]['tool']:.1%}"))
    tiles += [
        (f"success, {row['policy']}", f"{row['success']:.1%}") for row in tasks[::-1] if row["category"] == "all"
    ][:1]
    return tiles


def _day_rows(ctx: StageContext, summaries: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    counted = {row["day"]: row for row in ctx.lake.read(tables.DAY_SUMMARIES, list(summaries)).to_pylist()}
    for day, summary in summaries.items():
        listing = counted.get(day, {})
        rows.append(
            {
                "day": day,
                **{name: listing.get(name, 0) for name in ("found", "moved_in", "moved_out")},
                "accepted": summary.get("accepted", 0),
                "rejected": summary.get("rejected", 0),
            }
        )
    return rows


def _reasons(ctx: StageContext, days: list[str]) -> list[dict[str, Any]]:
    return removed(counted_rows(ctx, tables.REJECTED_TRACES, days, ["stage", "reason"]))


def _pools(ctx: StageContext, as_of: str) -> list[dict[str, Any]]:
    columns = ["pool", "cluster_id", "reward_state"]
    clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [as_of], columns=columns).to_pylist()
    traces = Counter(ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [as_of], columns=["pool"]).column("pool").to_pylist())
    return [
        {
            "pool": pool,
            "clusters": len({row["cluster_id"] for row in clusters if row["pool"] == pool}),
            "problems": sum(row["pool"] == pool for row in clusters),
            "traces": traces.get(pool, 0),
            "no_reward": sum(row["pool"] == pool and row["reward_state"] != "public" for row in clusters),
        }
        for pool in ("train", "dev", "sealed")
        if clusters
    ]


def _cluster_sizes(ctx: StageContext, as_of: str) -> dict[int, int]:
    ids = ctx.lake.read(tables.LEAK_CLUSTERS, [as_of], columns=["cluster_id"]).column("cluster_id").to_pylist()
    return dict(sorted(Counter(Counter(ids).values()).items()))


def _largest_clusters(ctx: StageContext, as_of: str) -> list[dict[str, Any]]:
    seal = sealing.sealed(ctx.lake)  # by the newest clusters: what was open as of the day may be sealed by now
    members: dict[str, list[dict[str, Any]]] = {}
    hidden: set[str] = set()
    for row in ctx.lake.read(tables.LEAK_CLUSTERS, [as_of]).to_pylist():
        members.setdefault(row["cluster_id"], []).append(row)
        if row["pool"] == "sealed" or (seal is not None and row["problem_key"] in seal.keys):
            hidden.add(row["cluster_id"])  # sealed problems are not shown, only counted
    members = {name: rows for name, rows in members.items() if name not in hidden}
    kinds: dict[str, set[str]] = {}
    for edge in ctx.lake.read(tables.LEAK_EDGES, [as_of]).to_pylist():
        for key in (edge["left_key"], edge["right_key"]):
            kinds.setdefault(key, set()).add(edge["kind"])
    largest = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))[:_MOST_CLUSTERS]
    return [
        {
            "cluster_id": cluster_id,
            "pool": rows[0]["pool"],
            "size": len(rows),
            "category": ", ".join(sorted({row["category"] for row in rows})),
            "problems": sorted(problem for row in rows for problem in row["problem_ids"]),
            "why": ", ".join(sorted(set().union(*(kinds.get(row["problem_key"], set()) for row in rows)))),
        }
        for cluster_id, rows in largest
        if len(rows) > 1
    ]


def _checkpoint(ctx: StageContext, as_of: str) -> list[tuple[str, Any]]:
    from trajectory_platform.lineage import questions

    checkpoint = last_checkpoint(ctx, as_of)
    facts = questions.about_checkpoint(ctx.lake, checkpoint["checkpoint_id"]) if checkpoint else None
    if facts is None:
        return []
    holds = "yes" if facts["trace_list_holds"] else "NO: the published list is not the trained one"
    return [
        ("checkpoint", facts["checkpoint_id"]),
        ("as of", facts["day"]),
        ("stage and recipe", f"{facts['stage']}, {facts['recipe']['name']}"),
        ("parents", ", ".join(facts["parents"]) or "none"),
        ("traces", facts["traces"]),
        ("problems / leak clusters", f"{facts['problems']} / {facts['clusters']}"),
        ("days", _listed(dict(sorted(facts["days"].items())))),
        ("categories", _listed(facts["categories"])),
        ("miners", len(facts["miners"])),
        ("strategies", len(facts["strategies"])),
        ("verdict sources", _listed(facts["verdict_sources"])),
        ("trace list holds", holds),
        ("seeds", _listed(facts["seeds"])),
    ]


def _loss_masks(ctx: StageContext, as_of: str) -> list[dict[str, Any]]:
    """The picture of one trained row of each of the day's checkpoints that has one, in the order of the stages.

    A row whose trace was retracted or sealed since keeps its numbers and says so (``withheld``) in place of its text.
    """
    from trajectory_platform.stages.trace_seals import not_to_show
    from trajectory_platform.training.loss_mask import read_loss_mask, traces_shown

    found = []
    for stage in STAGES:
        checkpoint = current_checkpoint(ctx, as_of, stage)
        mask = read_loss_mask(folder_of(ctx, checkpoint)) if checkpoint is not None else None
        if checkpoint is not None and mask is not None:
            found.append({**mask, "checkpoint_id": checkpoint["checkpoint_id"], "stage": stage})
    hidden = not_to_show(ctx.lake, {name for mask in found for name in traces_shown(mask)})
    why = [next((hidden[name] for name in sorted(traces_shown(mask)) if name in hidden), None) for mask in found]
    return [mask if reason is None else {**mask, "withheld": reason} for mask, reason in zip(found, why, strict=True)]


def _listed(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _lineage(ctx: StageContext, as_of: str) -> tuple[str, list[dict[str, Any]]]:
    from trajectory_platform.lineage import questions
    from trajectory_platform.lineage.words import used

    first = example_trace(ctx, as_of)
    facts = questions.about_trace(ctx.lake, first) if first else None
    if first is None or facts is None:
        return "", []
    steps = [
        {
            "step": step["stage"],
            "value": step["decision"] + (f" ({step['reason']})" if step["reason"] else ""),
            "detail": "; ".join(
                f"{key} {', '.join(map(str, value)) if isinstance(value, list) else value}"
                for key, value in step["facts"].items()
                if value not in (None, [], "")
            ),
        }
        for step in facts["steps"]
    ]
    fed = [
        {"step": "checkpoint", "value": row["checkpoint_id"], "detail": f"{row['role']}, {used(row['weight'])}"}
        for row in facts["fed"]
    ]
    return first, [*steps, *fed]


def _notes(ctx: StageContext) -> list[str]:
    notes = [
        "Next-action scores are teacher-forced: the model is shown the true history and asked for its next action. "
        "Success rates are those of the section on the sandbox.",
        "Sealed problems are counted and never shown.",
    ]
    if ctx.settings.recipe in ("smoke", "fast"):
        notes.append("The checkpoint is a tiny Qwen3 trained from random weights: it shows that the flow holds.")
    return notes
