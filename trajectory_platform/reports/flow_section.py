"""The section of the flow: a Sankey figure, and the same numbers as a table that adds up."""

from __future__ import annotations

from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.flow import MEANINGS, Flow, stage_words, use_words
from trajectory_platform.reports.flow_figures import ends_figure, flow_figure
from trajectory_platform.reports.page import Figures
from trajectory_platform.reports.tables import Column, Row, folded, nothing, table

_COLUMNS: list[Column] = [
    ("end", "end", "word"),
    ("what", "what", "text"),
    ("pairs", "pairs", "number"),
    ("share", "of all", "share"),
]


def flow_section(flow: Flow | None, drawn: Figures) -> str:
    """Figure, words and table of where all pairs went."""
    if flow is None or not flow.pairs:
        return nothing("no pair was judged")
    words = (
        f"{flow.pairs:,} pairs of run and problem, each in exactly one band: {flow.accepted:,} "
        f"({flow.accepted / flow.pairs:.1%}) accepted, {flow.lost:,} rejected by the first stage that objects. Read "
        "from left to right; the width of a band is its number of pairs. Uses are sets: a trace for SFT and KTO is "
        "counted once."
    )
    holds = (
        '<span class="ok">The parts add up to the whole.</span>'
        if flow.difference == 0
        else f'<span class="bad">The parts do not add up: {flow.difference:+,} pairs.</span>'
    )
    return (
        f'<p class="muted">{html_text(words)} {holds}</p>'
        + drawn.add(flow_figure(flow), "Flow of all pairs to their uses and rejections", ends_figure(flow))
        + folded("The same as a table", flow_table(flow))
    )


def flow_table(flow: Flow) -> str:
    """Every end with its count; the foot is the sum."""
    rows: list[Row] = [
        {"end": "accepted", "what": use_words(uses), "pairs": count, "share": _share(count, flow.pairs)}
        for uses, count in flow.uses
    ]
    for stage, reason, count in flow.rejected:
        meaning = MEANINGS.get((stage, reason))
        rows.append(
            {
                "end": f"{stage}: {stage_words(stage)}" if stage_words(stage) != stage else stage,
                "what": f"{reason}: {meaning}" if meaning else reason,
                "pairs": count,
                "share": _share(count, flow.pairs),
            }
        )
    counted = flow.accepted + flow.lost
    return table(_COLUMNS, rows, {"end": "all", "pairs": counted, "share": _share(counted, flow.pairs)})


def _share(count: int, of: int) -> float | None:
    return count / of if of else None
