"""The figures of a checkpoint and of its evaluation in the metadata of their assets, as small pictures."""

from __future__ import annotations

from typing import Any

import dagster as dg

from trajectory_platform.reports.escape import markdown_text
from trajectory_platform.reports.figures import markdown_image
from trajectory_platform.stages.checkpoint_figures import Drawn, figures_of
from trajectory_platform.stages.context import StageContext, StageResult

_WIDTH = 560
_SHOWN = ("loss", "success", "rewards", "stages", "failures", "pass_at_k", "learning_rate")  # what tells most first
_MOST = 2  # pictures of one event: the row that holds them stays small (case F14)


def checkpoint_figures(ctx: StageContext, result: StageResult, table: str) -> dict[str, Any]:
    """Markdown metadata with pictures of a published checkpoint or evaluation; ``{}`` for any other table.

    A figure that cannot be drawn is named with its error: the partition is published by then, and stays so.
    """
    if table not in ("checkpoints", "eval_scores"):
        return {}
    try:
        drawn = {one.name: one for one in figures_of(ctx, result)}
        chosen = [drawn[name] for name in _SHOWN if name in drawn][:_MOST]
        return {one.name.replace("_", " "): dg.MetadataValue.md(_markdown(one)) for one in chosen}
    except Exception as error:
        log = dg.get_dagster_logger()
        log.exception(f"{result.day}: the figures of {result.stage} were not drawn")
        return {"figures": dg.MetadataValue.text(f"not drawn: {type(error).__name__}: {error}"[:400])}


def _markdown(one: Drawn) -> str:
    from trajectory_platform.reports.figure_svg import svg

    picture = markdown_image(svg(one.spec, width=_WIDTH, title=one.title), one.title)
    return f"{picture}\n\n{markdown_text(one.words)}" if one.words else picture
