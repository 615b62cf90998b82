"""Who made the calls, over days and over eras, as stacked shares."""

from __future__ import annotations

from collections.abc import Mapping

from trajectory_platform.curation.corpus import ERAS
from trajectory_platform.reports.escape import figure_text
from trajectory_platform.reports.figures import AXIS_COLOURS, Figure, axis_figure, axis_shares, themed

MANY_DAYS = 14  # from here on the days stand side by side instead of below one another


def axis_days_figure(axis: Mapping[str, Mapping[str, int]]) -> Figure:
    """Shares of each day: bars below one another while there are few, else columns with the borders of the eras."""
    return axis_figure(axis) if len(axis) <= MANY_DAYS else _columns(axis)


def _columns(axis: Mapping[str, Mapping[str, int]]) -> Figure:
    days = sorted(axis)
    traces = []
    for label, counts, shares in axis_shares(axis):
        traces.append(
            {
                "type": "bar",
                "name": figure_text(label),
                "x": days,
                "y": shares,
                "customdata": counts,
                "marker": {"color": AXIS_COLOURS.get(label, "var(--unknown)"), "line": {"width": 0}},
                "hovertemplate": "%{x}: %{customdata:,} traces, %{y:.1%}<extra>%{fullData.name}</extra>",
            }
        )
    layout = themed(
        340,
        barmode="stack",
        bargap=0.12,
        xaxis={"type": "category", "nticks": 10, "showgrid": False},
        yaxis={"tickformat": ".0%", "range": [0, 1], "tickvals": [0, 0.25, 0.5, 0.75, 1]},
    )
    layout["shapes"] = [_border(place) for place in _borders(days)]
    return {"data": traces, "layout": layout}


def _borders(days: list[str]) -> list[float]:
    """Places between two columns at which an era begins."""
    found = []
    for era in ERAS:
        place = next((place for place, day in enumerate(days) if era.first and day >= era.first), None)
        if place:
            found.append(place - 0.5)
    return sorted(set(found))


def _border(place: float) -> Figure:
    line = {"color": "var(--text)", "width": 1.5, "dash": "dot"}
    return {"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper", "line": line}
