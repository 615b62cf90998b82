"""The figures of a checkpoint and of its evaluation outside of its report: Dagster's metadata and MLflow's artifacts.

They are those of the report, drawn as static SVG. Both places are conveniences: what cannot be drawn or logged is said
and changes nothing of what was published.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trajectory_platform.lake import tables
from trajectory_platform.stages.checkpoints import current_checkpoint
from trajectory_platform.stages.context import StageContext, StageResult

_MOST_POINTS = 40  # of a curve in a small picture


class Drawn(NamedTuple):
    """One figure: a short stable name, a title for people, its plotly specification, and words beside it."""

    name: str
    title: str
    spec: Mapping[str, Any]
    words: str = ""


def figures_of(ctx: StageContext, result: StageResult) -> list[Drawn]:
    """The figures of what a stage of training or an evaluation published; none for other stages, nor without rows."""
    stage = _stage_of(result)
    if stage is None:
        return []
    if result.stage.endswith("_checkpoint"):
        return _of_training(ctx, result.day, stage)
    return _of_evaluation(ctx, result.day, stage)


def svg_files(drawn: list[Drawn], page: str) -> dict[str, bytes]:
    """Name in an MLflow run -> content: every figure as an SVG, and one page of this name with all of them."""
    from trajectory_platform.reports.escape import html_text
    from trajectory_platform.reports.figure_svg import svg

    pictures = {one.name: svg(one.spec, title=one.title) for one in drawn}
    body = "".join(f"<p>{html_text(one.words)}</p>{pictures[one.name]}" for one in drawn)
    whole = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        "<title>figures</title><style>body{font:15px system-ui,sans-serif;margin:16px}svg{max-width:100%;height:auto}"
        "</style></head>"
        f"<body>{body}</body></html>\n"
    )
    files = {f"figures/{name}.svg": text.encode() for name, text in pictures.items()}
    return files | ({f"figures/{page}.html": whole.encode()} if drawn else {})


def mirrored(stage: Callable[..., StageResult]) -> Callable[..., StageResult]:
    """A stage that also logs its figures to the MLflow run of its checkpoint, where there is a store and a run."""

    def run(ctx: StageContext, day: str, **how: Any) -> StageResult:
        result = stage(ctx, day, **how)
        if not result.skipped:
            log_figures(ctx, result)
        return result

    return run


def log_figures(ctx: StageContext, result: StageResult) -> bool:
    """Log the figures of a result, and of an evaluation its scores, to the run of its checkpoint; True when done."""
    from trajectory_platform.training.tracking import add_to_run

    uri = os.environ.get("MLFLOW_TRACKING_URI")  # as the training process reads it
    name = str(result.summary.get("checkpoint_id") or "")
    if not uri or not name:
        return False
    log = logging.getLogger(__name__)
    try:
        drawn = figures_of(ctx, result)
    except Exception:
        # a figure is never a reason to fail what is published; the fault is named for whoever reads the log
        log.exception("%s %s: its figures were not drawn", result.stage, result.day)
        return False
    page = "training" if result.stage.endswith("_checkpoint") else "evaluation"
    return bool(drawn) and add_to_run(uri, name, svg_files(drawn, page), log.warning, numbers=_numbers(result))


def _numbers(result: StageResult) -> dict[str, float]:
    names = ("success_share", "problems", "clusters", "contaminated_problems", "truncated")
    if not result.stage.endswith("_eval"):
        return {}
    found = {name: result.summary.get(name) for name in names}
    return {f"eval_{name}": float(value) for name, value in found.items() if isinstance(value, int | float)}


def _stage_of(result: StageResult) -> str | None:
    for ending in ("_checkpoint", "_eval"):
        if result.stage.endswith(ending):
            return result.stage.removesuffix(ending)
    return None


def _of_training(ctx: StageContext, day: str, stage: str) -> list[Drawn]:
    from trajectory_platform.lineage import ledger
    from trajectory_platform.reports.checkpoint_figures import curve_figures
    from trajectory_platform.stages.checkpoint_evaluations import Member
    from trajectory_platform.stages.checkpoint_facts import training_report

    current = current_checkpoint(ctx, day, stage)
    row = ledger.checkpoint_row(ctx.lake, current["checkpoint_id"], [day]) if current is not None else None
    if row is None:
        return []
    member = Member(stage, row["checkpoint_id"], day, row["parent"], row["manifest"])
    history = (training_report(ctx, member) or {}).get("history") or []
    return [
        Drawn(curve.name, f"{row['checkpoint_id']}: {curve.title}", spec)
        for curve, spec in curve_figures(history, most=_MOST_POINTS)
    ]


def _of_evaluation(ctx: StageContext, day: str, stage: str) -> list[Drawn]:
    from trajectory_platform.reports.checkpoint_figures import failures_figure, pass_figure, stages_figure
    from trajectory_platform.stages import checkpoint_scores
    from trajectory_platform.stages.checkpoint_failures import failure_report
    from trajectory_platform.stages.checkpoint_report import find

    manifest = ctx.lake.manifest(tables.EVAL_SCORES, day, {"stage": stage})
    name = manifest.summary.get("checkpoint_id") if manifest is not None else None
    if not name or current_checkpoint(ctx, day, stage) is None:  # nothing measured, or the model before training
        return []
    found = find(ctx, name)
    own = [one for one in found.of(name) if one.counted]
    if not own:
        return []
    rows, words = checkpoint_scores.stage_by_stage(found.members, found.measured, own, found.how)
    said = next((sentences for sentences in words.values()), [])
    drawn = [
        Drawn("stages", f"{own[0].label}: success of each stage", stages_figure(rows), _last(said, stage)),
    ]
    failed = failure_report(ctx, own[0], with_examples=False)
    if failed.failed:
        told = f"{failed.failed:,} of {failed.attempts:,} attempts failed."
        drawn.append(Drawn("failures", f"{name}: why attempts failed", failures_figure(failed.counts), told))
    curves, _ = checkpoint_scores.pass_curves(found.members, found.measured, own, found.how)
    if curves:
        drawn.append(Drawn("pass_at_k", f"{name}: pass@k", pass_figure(curves)))
    return drawn


def _last(sentences: list[str], stage: str) -> str:
    return next((sentence for sentence in sentences if sentence.startswith(f"{stage} against ")), "")
