"""The figures of the report in the metadata of a day's assets: small pictures that fit an event row."""

from __future__ import annotations

from typing import Any

import dagster as dg

from trajectory_platform.reports.figures import Figure, funnel_markdown, markdown_image
from trajectory_platform.stages.closing import funnel_steps
from trajectory_platform.stages.context import StageContext, StageResult

_DAYS = 5  # beside one another in the picture of the axis
_POINTS = 18  # of the line of strategies
_WIDTH = 560


def day_figures(ctx: StageContext, result: StageResult, table: str) -> dict[str, Any]:
    """Markdown metadata with pictures of a curated day: what is left and how diverse it is beside the corpus, where
    the rest went and who acted beside the rejections. ``{}`` for any other table.

    A figure that cannot be drawn is named with its error: the day is published by then, and stays so.
    """
    if table not in ("axis_a_corpus", "rejected_traces") or "by_stage" not in result.summary:
        return {}
    try:
        return _beside_corpus(ctx, result) if table == "axis_a_corpus" else _beside_rejections(ctx, result)
    except Exception as error:
        log = dg.get_dagster_logger()
        log.exception(f"{result.day}: the figures of {table} were not drawn")
        return {"figures": dg.MetadataValue.text(f"not drawn: {type(error).__name__}: {error}"[:400])}


def _beside_corpus(ctx: StageContext, result: StageResult) -> dict[str, Any]:
    from trajectory_platform.reports.strategy_figures import rank_size_figure
    from trajectory_platform.reports.strategy_section import ALL, tail_words
    from trajectory_platform.stages.strategy_facts import strategy_tails

    funnel = funnel_markdown(f"{result.day}: from raw pairs to training rows", funnel_steps(result.summary))
    columns = ["category", "strategy_cluster"]
    rows = ctx.lake.read("axis_a_corpus", [result.day], columns=columns, ordered=False).to_pylist()
    tail = strategy_tails(rows)[ALL]
    if not tail.traces:
        return {"funnel": dg.MetadataValue.md(funnel)}
    picture = _picture(rank_size_figure({ALL: tail}, points=_POINTS), f"{result.day}: traces per strategy by rank")
    return {
        "funnel": dg.MetadataValue.md(funnel),
        "strategies by rank": dg.MetadataValue.md(f"{picture}\n\n{tail_words(tail)}"),
    }


def _beside_rejections(ctx: StageContext, result: StageResult) -> dict[str, Any]:
    from trajectory_platform.reports.axis_figures import axis_days_figure
    from trajectory_platform.reports.flow_figures import ends_figure
    from trajectory_platform.stages.day_report import axis_counts
    from trajectory_platform.stages.flows import day_flows

    flow = day_flows(ctx, [result.day])[result.day]
    known = [day for day in ctx.lake.days("axis_a_corpus") if day <= result.day]
    axis = {day: counts for day, counts in axis_counts(ctx, known[-_DAYS:]).items() if sum(counts.values())}
    found: dict[str, Any] = {}
    if flow.pairs:
        words = f"{flow.accepted:,} accepted + {flow.lost:,} rejected = {flow.pairs:,} pairs"
        picture = _picture(ends_figure(flow), f"{result.day}: where its pairs went")
        found["flow"] = dg.MetadataValue.md(f"{picture}\n\n{words}")
    if axis:
        title = "Who made the calls: share of the readable traces"
        found["axis"] = dg.MetadataValue.md(_picture(axis_days_figure(axis), title))
    return found


def _picture(figure: Figure, title: str) -> str:
    from trajectory_platform.reports.figure_svg import svg

    return markdown_image(svg(figure, width=_WIDTH, title=title), title)
