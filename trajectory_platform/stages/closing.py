"""Short texts over the lake: the funnel, the splits and the scores, for the end of a run."""

from __future__ import annotations

from typing import Any

from trajectory_platform.lake import tables
from trajectory_platform.stages.checkpoint_scores import action_row
from trajectory_platform.stages.checkpoints import current_checkpoint
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.evaluations import EVALUATIONS, evaluated_rows, looks_line
from trajectory_platform.stages.result_words import singular
from trajectory_platform.stages.stage_table import resampling, stage_lines, stage_rows
from trajectory_platform.stages.text import shown

FUNNEL_STEPS = (
    ("pairs judged that day", "raw"),
    ("with a usable trace", "ingest"),
    ("readable", "read"),
    ("one line per problem", "duplicate"),
    ("no injected text", "injection"),
    ("an agent that acts", "protocol"),
    ("fits a template", "format"),
    ("axis A", "axis"),
    ("outcome holds", "outcome"),
    ("judged", "judge"),
    ("first of its copies", "copies"),
    ("no copied strategy", "strategy"),
    ("within the caps", "caps"),
)

FUNNEL_TITLE = "funnel (pairs of run and problem)"


def funnel_steps(summary: dict[str, Any]) -> list[tuple[str, int]]:
    """(step, traces left) of one curated day, from its ``summary`` (input and by_stage)."""
    left = summary["input"]
    steps = [(FUNNEL_STEPS[0][0], left)]
    by_stage = dict(summary["by_stage"])
    for label, stage in FUNNEL_STEPS[1:]:
        left -= by_stage.pop(stage, 0)
        steps.append((label, left))
    for stage, count in sorted(by_stage.items()):
        left -= count
        steps.append((stage, left))
    for use, count in sorted(summary["by_use"].items(), key=lambda item: (item[0] != "sft", item[0])):
        steps.append((f"use: {use}", count))
    return steps


def day_summaries(ctx: StageContext) -> dict[str, dict[str, Any]]:
    """Curation summary per published day, oldest first."""
    return {one.day: dict(one.summary) for one in ctx.lake.manifests(tables.AXIS_A_CORPUS) if one.summary}


def funnel_text(ctx: StageContext) -> str:
    """The funnel of every day side by side, with a bar for the sum."""
    per_day = {day: funnel_steps(summary) for day, summary in day_summaries(ctx).items()}
    if not per_day:
        return "funnel: no curated day"
    labels: list[str] = []
    for steps in per_day.values():
        labels.extend(label for label, _ in steps if label not in labels)
    table = {label: [dict(steps).get(label, 0) for steps in per_day.values()] for label in labels}
    top = max(1, sum(table[labels[0]]))
    width = max(24, len(FUNNEL_TITLE) + 1)
    lines = [f"{FUNNEL_TITLE:<{width}}" + "".join(f"{day[5:]:>8}" for day in per_day) + "     all"]
    for label in labels:
        total = sum(table[label])
        bar = "█" * round(28 * total / top)
        lines.append(f"{label:<{width}}" + "".join(f"{count:>8}" for count in table[label]) + f"{total:>8}  {bar}")
    return "\n".join(lines)


def splits_text(ctx: StageContext, day: str) -> str:
    """Clusters and pools as of a day."""
    clusters = ctx.lake.manifest("leak_clusters", day)
    splits = ctx.lake.manifest("leak_guarded_splits", day)
    if clusters is None or splits is None:
        return f"splits as of {day}: not published"
    c, s = dict(clusters.summary or {}), dict(splits.summary or {})
    return "\n".join(
        (
            f"leak clusters as of {day}",
            singular(f"  {c['problems']} problems in {c['clusters']} clusters ")
            + f"({c['clusters_of_several']} with several, largest {c['largest_cluster']})",
            f"  problems   train {c['pool_train']}  dev {c['pool_dev']}  sealed {c['pool_sealed']}",
            f"  traces     train {s['pool_train']}  dev {s['pool_dev']}  sealed {s['pool_sealed']}",
        )
    )


SCORES_NOTE = (
    "Share of assistant turns of dev traces at which the model, shown the true history, emits the right next tool, "
    "and the right tool with equal arguments. Intervals are 95 % bootstraps over leak clusters; the baseline always "
    "answers with the commonest tool of the same turns."
)


def score_metrics(ctx: StageContext, day: str) -> dict[str, Any]:
    """Teacher-forced scores per category as of a day (``evaluation.action_metrics``)."""
    from trajectory_platform.evaluation.action_metrics import action_metrics
    from trajectory_platform.training.recipe import load_recipe

    checkpoint = current_checkpoint(ctx, day)
    name = checkpoint["checkpoint_id"] if checkpoint else None
    rows = [row for row in ctx.lake.read(tables.ACTION_SCORES, [day]).to_pylist() if row["checkpoint_id"] == name]
    return action_metrics(rows, load_recipe(ctx.settings.recipe).evaluation)


def scores_text(ctx: StageContext, day: str) -> str:
    """Scores per category with their intervals and what they rest on."""
    from trajectory_platform.evaluation.action_metrics import metric_lines

    lines = metric_lines(score_metrics(ctx, day))
    heading = f"next action on dev traces, teacher-forced, as of {day}"
    return "\n".join([heading, *(f"  {singular(line)}" for line in lines), "", tasks_text(ctx, day)])


def task_metrics_of(ctx: StageContext, day: str) -> dict[str, dict[str, Any]]:
    """Strict task metrics per evaluation that attempted something as of a day: stage -> ``metrics.task_metrics``."""
    from trajectory_platform.evaluation.metrics import task_metrics

    how = resampling(ctx)
    found = {row.stage: evaluated_rows(ctx, day, row) for row in EVALUATIONS}
    return {stage: task_metrics(rows, **how) for stage, rows in found.items() if rows}


def task_comparison(ctx: StageContext, day: str) -> dict[str, Any] | None:
    """The last stage of training that was evaluated beside the untrained model: ``comparison.compare`` and the names of
    the two ``stages``; None without both."""
    from trajectory_platform.evaluation.comparison import compare

    sides = [
        (row, rows)
        for row in EVALUATIONS
        if (rows := [one for one in evaluated_rows(ctx, day, row) if one["outcome"] != "no_reward"])
    ]
    before = next((side for side in sides if side[0].untrained), None)
    after = next((side for side in reversed(sides) if not side[0].untrained), None)
    if before is None or after is None:
        return None
    return compare(before[1], after[1], **resampling(ctx)) | {"stages": (before[0].stage, after[0].stage)}


def tasks_text(ctx: StageContext, day: str) -> str:
    """Success in the sandbox, stage by stage, and what the comparison of the last with the untrained model says."""
    lines = [f"success in the sandbox on held-out problems, strict, as of {day}"]
    lines += [f"  {line}" for line in stage_lines(stage_rows(ctx, day))]
    lines += [f"  {shown(words)}" for words in report_words(task_comparison(ctx, day))]
    return "\n".join(lines)


def report_scores(ctx: StageContext, day: str) -> list[dict[str, Any]]:
    """The scores as rows of the report; categories without a turn are left out."""
    return [action_row(entry) for entry in score_metrics(ctx, day)["categories"] if entry["turns"]]


TASKS_NOTE = (
    "Share of problems of the dev pool that the policy solves by acting in the sandbox, scored by the subnet's rule. "
    "A crash, a timeout or an attempt that cannot be scored is a failure; problems without a known reward are left "
    "out. Intervals are 95 % bootstraps over leak clusters; base is the model before training."
)


def tasks_note(ctx: StageContext, day: str) -> str:
    """What the success rates of a day are, and how often sealed problems were looked at where they are sealed ones."""
    looked = [looks_line(ctx, evaluated_rows(ctx, day, row)) for row in EVALUATIONS]
    return " ".join([TASKS_NOTE, *(f"Scores on the sealed pool: {line}." for line in looked if line)])


def report_tasks(ctx: StageContext, day: str) -> list[dict[str, Any]]:
    """Success in the sandbox as rows of the report, evaluations in the order of training."""
    rows = []
    for stage, metrics in task_metrics_of(ctx, day).items():
        for name, entry in {"all": metrics["overall"], **metrics["categories"]}.items():
            if "success_rate" in entry:
                rows.append({"policy": stage, "category": name, **_task_row(entry)})
    return rows


def _task_row(entry: dict[str, Any]) -> dict[str, Any]:
    interval = entry["success_rate"]["interval"] or {}
    return {
        "success": entry["success_rate"]["value"],
        "success_low": interval.get("low"),
        "success_high": interval.get("high"),
        "success_note": interval.get("note"),
        "pass_at": {int(k): one["value"] for k, one in entry["pass_at_k"].items()},
        "lenient": entry["lenient_success_rate"]["value"],
        "truncated": entry["truncated"]["value"],
        "hallucinated": entry["hallucinated"]["value"],
        "unviewed": entry["unviewed"]["value"],
        "clean": entry["discipline"]["clean"]["value"],
        "process": entry["process_score"]["value"],
        "conduct": entry["conduct_score"]["value"],
        "thin": entry["state"] == "thin",
        **{name: entry[name] for name in ("problems", "attempts", "clusters")},
    }


def report_pairs(comparison: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The comparison with the untrained model as rows of the report."""
    if comparison is None:
        return []
    return [
        {
            "category": name,
            "before": entry["a"],
            "after": entry["b"],
            **_difference("difference", entry["difference"]),
            **_difference("process", entry["process_score"]),
            "detectable": entry["smallest_detectable"]["value"],
            "thin": entry["state"] == "thin",
            **{key: entry[key] for key in ("problems", "clusters")},
        }
        for name, entry in {"all": comparison["overall"], **comparison["categories"]}.items()
    ]


def _difference(name: str, score: dict[str, Any]) -> dict[str, Any]:
    interval = score["interval"] or {}
    ends = {f"{name}_low": interval.get("low"), f"{name}_high": interval.get("high")}
    return {name: score["value"], **ends, f"{name}_note": interval.get("note")}


def report_words(comparison: dict[str, Any] | None) -> list[str]:
    """What the comparison allows to say, the sides called by their stages; asterisks are explained at the tables."""
    from trajectory_platform.evaluation.comparison import words

    if comparison is None:
        return []
    before, after = comparison["stages"]
    return [singular(line) for line in words(comparison["overall"], a=before, b=after, marked=False)]
