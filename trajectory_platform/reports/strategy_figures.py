"""Figures of the strategies of a corpus: their sizes by rank, and how the diversity goes from day to day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trajectory_platform.reports.diversity import Tail
from trajectory_platform.reports.escape import figure_text
from trajectory_platform.reports.figures import Figure, themed

_COLOURS = ("var(--text)", "var(--a)", "var(--mixed)", "var(--b)", "var(--good)", "var(--unknown)")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
_MOST_POINTS = 300  # of one line: the far tail is flat


def rank_size_figure(tails: Mapping[str, Tail], *, points: int = _MOST_POINTS) -> Figure:
    """Traces of a strategy by its rank, both logarithmic; one line per name, the first one (all) strongest.

    A straight line down is a long tail; a cliff after the first ranks is a corpus of few ways.

    Args:
        points: at most so many of one line; they lie evenly on the logarithmic axis.
    """
    traces = []
    for number, (name, tail) in enumerate(tails.items()):
        ranks = _ranks(len(tail.sizes), points)
        colour = _COLOURS[number % len(_COLOURS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": figure_text(f"{name} (n={tail.traces:,})", 40),
                "x": ranks,
                "y": [tail.sizes[rank - 1] for rank in ranks],
                "line": {"color": colour, "width": 2.5 if number == 0 else 1.5},
                "marker": {"color": colour, "size": 6, "symbol": _SYMBOLS[number % len(_SYMBOLS)]},
                "hovertemplate": "rank %{x}: %{y:,} traces<extra>%{fullData.name}</extra>",
            }
        )
    most_ranks = max((len(tail.sizes) for tail in tails.values()), default=1)
    most_traces = max((tail.sizes[0] for tail in tails.values() if tail.sizes), default=1)
    layout = themed(
        360,
        legend={"y": 1.02},
        xaxis={"type": "log", "title": {"text": "rank of the strategy"}, **_ticks(most_ranks)},
        yaxis={"type": "log", "title": {"text": "traces"}, **_ticks(most_traces)},
    )
    return {"data": traces, "layout": layout}


def diversity_figure(days: Mapping[str, tuple[int, float]]) -> Figure:
    """Strategies and their effective number, day by day.

    Args:
        days: ISO day -> (strategies, effective number).
    """
    ordered = sorted(days)
    rows: tuple[tuple[str, list[float], str, str], ...] = (
        ("strategies", [float(days[day][0]) for day in ordered], "var(--unknown)", "circle"),
        ("effective number", [round(days[day][1], 2) for day in ordered], "var(--a)", "square"),
    )
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": ordered,
            "y": values,
            "line": {"color": colour, "width": 2},
            "marker": {"color": colour, "size": 7, "symbol": symbol},
            "hovertemplate": "%{x}: %{y:,.1f}<extra>%{fullData.name}</extra>",
        }
        for name, values, colour, symbol in rows
    ]
    layout = themed(
        280,
        xaxis={"type": "category", "nticks": 12},
        yaxis={"rangemode": "tozero", "title": {"text": "strategies"}},
    )
    return {"data": traces, "layout": layout}


def _ranks(length: int, points: int) -> list[int]:
    """Every rank while there are few, then ranks that lie evenly on a logarithmic axis; the last one always."""
    if length <= points:
        return list(range(1, length + 1))
    return sorted({length, *(min(length, round(length ** (place / points))) for place in range(points))})


def _ticks(largest: int) -> dict[str, Sequence[float] | list[str]]:
    """1, 2, 5, 10, 20 ... up to the first that is not below the largest value."""
    values = [1]
    while values[-1] < largest:
        last = values[-1]
        lead = int(str(last)[0])
        values.append(last * 5 // 2 if lead == 2 else last * 2)
    return {"tickvals": [float(value) for value in values], "ticktext": [f"{value:,}" for value in values]}
