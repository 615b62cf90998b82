"""The page of one subnet day: what came in, where it went, who acted, and what it is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajectory_platform.reports import figures
from trajectory_platform.reports.axis_section import axis_section
from trajectory_platform.reports.cost_section import cost_section
from trajectory_platform.reports.data import ReportData
from trajectory_platform.reports.day_data import DayReport
from trajectory_platform.reports.escape import figure_text, html_text
from trajectory_platform.reports.figures import Figure, themed
from trajectory_platform.reports.flow_section import flow_section
from trajectory_platform.reports.leak_section import leak_section
from trajectory_platform.reports.page import Figures, build_page
from trajectory_platform.reports.strategy_section import strategy_section
from trajectory_platform.reports.tables import Column, folded, footnote, nothing, table, with_interval
from trajectory_platform.reports.trace_links import NO_LINKS, TraceLinks
from trajectory_platform.reports.trust_section import judges_section

_MOST_BARS = 15
_MOST_MINERS = 40
FOOTER = "Counts are pairs of run and problem, or traces, of this UTC day of judgment unless said otherwise."


def build_day_page(data: DayReport, links: TraceLinks = NO_LINKS) -> str:
    """The page as text; same data, same bytes. ``links`` knows the pages of traces beside it."""
    drawn = Figures()
    sections = [(anchor, title, render(data, drawn, links)) for anchor, title, render in _SECTIONS]
    return build_page(
        title=f"Subnet day {data.day}",
        subtitle=data.subtitle,
        tiles=data.tiles,
        notes=data.notes,
        sections=sections,
        figures=drawn,
        footer=FOOTER,
    )


def _about(data: DayReport, drawn: Figures, links: TraceLinks) -> str:
    if not data.counted:
        return nothing("the day was not read")
    row = dict(data.counted)
    row["pairs"] = row["found"] + row["moved_in"] - row["moved_out"]
    row["difference"] = row["pairs"] - row["accepted"] - row["rejected"]
    columns: list[Column] = [
        ("found", "found in its folder", "number"),
        ("moved_in", "moved in", "number"),
        ("moved_out", "moved out", "number"),
        ("pairs", "judged that day", "number"),
        ("accepted", "accepted", "number"),
        ("rejected", "rejected", "number"),
        ("difference", "adds up", "check"),
    ]
    parts = [
        '<p class="muted">A pair of run and problem belongs to the day on which it was judged. Pairs of a neighbouring '
        "folder move in, others move out; each of the day's own ends accepted or rejected.</p>",
        table(columns, [row]),
    ]
    if data.fetch:
        parts.append("<h3>How it was fetched</h3>" + _pairs(data.fetch))
    parts.append(folded("What it was made from", _pairs(data.facts)) if data.facts else "")
    return "".join(parts)


def _pairs(facts: Sequence[tuple[str, Any]]) -> str:
    rows = [{"fact": label, "value": value} for label, value in facts]
    return table([("fact", "fact", "word"), ("value", "value", "text")], rows)


def _flow(data: DayReport, drawn: Figures, links: TraceLinks) -> str:
    return flow_section(data.flow, drawn)


def _axis(data: DayReport, drawn: Figures, links: TraceLinks) -> str:
    return axis_section(data.axis, drawn, data.axis_share or {"day": data.day, "a": None})


def _reasons(data: DayReport, drawn: Figures, links: TraceLinks) -> str:
    if not data.reasons:
        return nothing("no trace was rejected")
    columns: list[Column] = [
        ("stage", "stage", "word"),
        ("reason", "reason", "word"),
        ("count", "traces", "number"),
        ("share", "of the rejected", "share"),
        ("meaning", "what it means", "text"),
    ]
    total = sum(row["count"] for row in data.reasons)
    rows = [{**row, "share": row["count"] / total} for row in data.reasons]
    examples = "".join(_examples(row, links) for row in data.reasons if row["examples"])
    return (
        '<p class="muted">The first stage that objects names the rejection; later stages may object as well.</p>'
        + drawn.add(figures.reasons_figure(data.reasons), "The commonest reasons of rejection")
        + table(columns, rows)
        + (folded("Examples of each reason", f'<dl class="examples">{examples}</dl>') if examples else "")
        + (f'<p class="muted">{html_text(data.examples_note)}</p>' if data.examples_note else "")
    )


def _examples(row: Mapping[str, Any], links: TraceLinks) -> str:
    parts = [f"<dt>{html_text(row['stage'])}: {html_text(row['reason'])}</dt>"]
    for example in row["examples"]:
        detail = f"<br>{html_text(example['detail'], 160)}" if example.get("detail") else ""
        parts.append(f"<dd>{links.html(example['trace_id'])}{detail}</dd>")
    return "".join(parts)


def _judges(data: DayReport, drawn: Figures, links: TraceLinks) -> str:
    parts = [judges_section(ReportData(title="", calibration=data.calibration), drawn.add)]
    if data.verdicts:
        columns: list[Column] = [
            ("judge", "source", "word"),
            ("regime", "scale", "word"),
            ("verdicts", "verdicts", "number"),
            ("values", "with a value", "number"),
            ("mean", "mean", "word"),
            ("passed", "at or above the gate", "share"),
            ("nulls", "why without a value", "text"),
        ]
        parts.append("<h3>Verdicts of the day</h3>" + table(columns, data.verdicts))
    if data.outcomes:
        parts.append("<h3>Outcome by the rules</h3>" + _outcomes(data.outcomes))
    if data.situations:
        shown: list[Column] = [
            ("situation", "situation", "word"),
            ("traces", "traces", "number"),
            ("share", "of the accepted", "share"),
            ("uses", "used for", "text"),
            ("meaning", "what it means", "text"),
        ]
        parts.append("<h3>What the accepted are good for</h3>" + table(shown, data.situations))
    return "".join(parts)


def _outcomes(outcomes: Sequence[Mapping[str, Any]]) -> str:
    columns: list[Column] = [
        ("category", "category", "word"),
        ("shown", "success (interval)", "word"),
        ("traces", "scored traces", "number"),
        ("problems", "problems", "number"),
        ("unscorable", "unscorable", "number"),
    ]
    rows = [{**row, "shown": with_interval(row, "success")} for row in outcomes]
    return (
        '<p class="muted">All traces that could be scored, whoever acted; 95 % intervals over problems.</p>'
        + table(columns, rows)
        + footnote(outcomes, ["success"])
    )


def _strategies(data: DayReport, drawn: Figures, links: TraceLinks) -> str:
    return strategy_section(data.strategies, drawn, links)


def _leaks(data: DayReport, drawn: Figures, links: TraceLinks) -> str:
    return leak_section(data.leaks, data.day, drawn)


def _miners(data: DayReport, drawn: Figures, links: TraceLinks) -> str:
    if not data.miners:
        return nothing("no pair names a miner")
    columns: list[Column] = [
        ("miner", "miner", "word"),
        ("agents", "agent versions", "number"),
        ("pairs", "pairs", "number"),
        ("accepted", "accepted", "number"),
        ("not_a", "not axis A", "number"),
        ("other", "rejected otherwise", "number"),
        ("success", "success of the accepted", "share"),
        ("sft", "for SFT", "number"),
        ("strategies", "strategies", "number"),
    ]
    shown = data.miners[:_MOST_MINERS]
    rest = data.miners[_MOST_MINERS:]
    note = ""
    if rest:
        pairs = sum(row["pairs"] for row in rest)
        note = f'<p class="muted">{len(rest):,} more miners with {pairs:,} pairs.</p>'
    return (
        f'<p class="muted">{len(data.miners):,} miners, most pairs first. Hotkeys are shortened.</p>'
        + drawn.add(miners_figure(data.miners), "Pairs of the largest miners: accepted, not axis A, rejected otherwise")
        + folded("The numbers", table(columns, shown) + note)
    )


def miners_figure(miners: Sequence[Mapping[str, Any]]) -> Figure:
    """What became of the pairs of the largest miners."""
    shown = miners[:_MOST_BARS]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": [figure_text(row["miner"], 24) for row in shown],
            "x": [row[key] for row in shown],
            "marker": {"color": colour, "line": {"width": 1, "color": "var(--card)"}},
            "hovertemplate": "%{y}: %{x:,}<extra>%{fullData.name}</extra>",
        }
        for key, name, colour in (
            ("accepted", "accepted", "var(--good)"),
            ("not_a", "not axis A", "var(--b)"),
            ("other", "rejected otherwise", "var(--unknown)"),
        )
    ]
    layout = themed(
        26 * max(1, len(shown)) + 90,
        barmode="stack",
        bargap=0.3,
        xaxis={"rangemode": "tozero"},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
    )
    return {"data": traces, "layout": layout}


def _cost(data: DayReport, drawn: Figures, links: TraceLinks) -> str:
    return cost_section(data.cost)


_SECTIONS = (
    ("day", "What the day is", _about),
    ("flow", "Where its pairs went", _flow),
    ("axis", "Who made the calls", _axis),
    ("reasons", "Why traces were rejected", _reasons),
    ("judges", "Verdicts, and whether to trust them", _judges),
    ("strategies", "Strategies and their long tail", _strategies),
    ("leaks", "Leak clusters", _leaks),
    ("miners", "Miners", _miners),
    ("cost", "Cost", _cost),
)
