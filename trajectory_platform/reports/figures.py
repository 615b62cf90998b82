"""Figures as plotly specifications (plain dicts) for the report, and as small SVG pictures for event metadata.

Colours are written as CSS variables (``var(--a)``): the page resolves them when it draws, so that one
specification serves the light and the dark scheme. Labels pass through ``figure_text``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape as xml_escape

from trajectory_platform.reports.escape import figure_text, markdown_text, visible

Figure = dict[str, Any]

AXIS_COLOURS = {"A": "var(--a)", "mixed": "var(--mixed)", "B": "var(--b)", "unknown": "var(--unknown)"}


def themed(height: int, **more: Any) -> Figure:
    """The layout of every figure, in the colours of the page.

    Args:
        height: CSS pixels.
        more: keys of a plotly layout; an object is merged into what is here (``xaxis={"tickformat": ".0%"}``).
    """
    axis = {
        "gridcolor": "var(--line)",
        "zerolinecolor": "var(--line)",
        "linecolor": "var(--line)",
        "automargin": True,
        "fixedrange": True,
        "title": {"font": {"size": 12, "color": "var(--muted)"}, "standoff": 8},
    }
    layout: Figure = {
        "height": height,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "var(--text)"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--line)",
            "font": {"color": "var(--text)"},
            "align": "left",
        },
        "xaxis": dict(axis),
        "yaxis": dict(axis),
    }
    return _merged(layout, more)


def _merged(layout: Figure, more: Mapping[str, Any]) -> Figure:
    whole = dict(layout)
    for name, value in more.items():
        both = isinstance(whole.get(name), dict) and isinstance(value, dict)
        whole[name] = _merged(whole[name], value) if both else value
    return whole


def funnel_figure(stages: Sequence[tuple[str, int]], *, narrow: bool = False) -> Figure:
    """All days together: how many are left after each step, and the share of the first and of the step before.

    Args:
        narrow: write counts alone, so that they fit beside a small bar.
    """
    labels = [figure_text(name) for name, _ in stages]
    counts = [count for _, count in stages]
    trace = {
        "type": "funnel",
        "orientation": "h",
        "y": labels,
        "x": counts,
        "texttemplate": "%{value:,}" if narrow else "%{value:,}  (%{percentInitial:.0%})",
        "textposition": "auto",
        "insidetextfont": {"color": "var(--onbar)"},
        "marker": {"color": "var(--a)"},
        "connector": {"fillcolor": "var(--soft)", "line": {"width": 0}},
        "hovertemplate": "%{y}: %{x:,}<br>%{percentInitial:.1%} of the first, "
        "%{percentPrevious:.1%} of the step before<extra></extra>",
    }
    layout = themed(
        44 * max(2, len(stages)) + 24,
        xaxis={"visible": False},
        yaxis={"type": "category", "showgrid": False},
        funnelgap=0.25,
    )
    return {"data": [trace], "layout": layout}


def funnel_by_day_figure(funnels: Mapping[str, Sequence[tuple[str, int]]], *, narrow: bool = False) -> Figure:
    """Day by stage: the cell says how many are left, its shade which share of the day's first stage that is.

    Args:
        narrow: shades alone, where no number would be legible.
    """
    days = sorted(funnels)
    stages = list(dict.fromkeys(stage for day in days for stage, _ in funnels[day]))
    counts = [[dict(funnels[day]).get(stage) for stage in stages] for day in days]
    shares = [[_share(count, row[0]) for count in row] for row in counts]
    trace = {
        "type": "heatmap",
        "x": [figure_text(stage) for stage in stages],
        "y": days,
        "z": shares,
        "text": [["" if count is None else f"{count:,}" for count in row] for row in counts],
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, "var(--heat0)"], [1, "var(--heat1)"]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "texttemplate": "" if narrow else "%{text}",
        "hovertemplate": "%{y}, %{x}<br>%{text} traces, %{z:.1%} of the day<extra></extra>",
    }
    layout = themed(
        34 * len(days) + 140,  # on a narrow page the steps are written upright, and cut where there is no room
        xaxis={"type": "category", "side": "top", "showgrid": False},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
    )
    return {"data": [trace], "layout": layout}


def _share(count: int | None, first: int | None) -> float | None:
    return count / first if count is not None and first else None


def axis_shares(axis: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, list[int], list[float]]]:
    """Label, traces and share of each day (oldest first), for every label that some day has."""
    days = sorted(axis)
    extra = sorted({label for day in days for label in axis[day]} - set(AXIS_COLOURS))
    for label in [*AXIS_COLOURS, *extra]:
        counts = [axis[day].get(label, 0) for day in days]
        if any(counts):
            pairs = zip(counts, days, strict=True)
            yield label, counts, [_share(count, sum(axis[day].values())) or 0 for count, day in pairs]


def axis_figure(axis: Mapping[str, Mapping[str, int]]) -> Figure:
    """Who made the calls, as shares of each day: A the model itself, B the harness, mixed, unknown."""
    days = sorted(axis)
    traces = []
    for label, counts, shares in axis_shares(axis):
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": figure_text(label),
                "y": [f"{figure_text(day)} (n={sum(axis[day].values()):,})" for day in days],
                "x": shares,
                "customdata": counts,
                "marker": {
                    "color": AXIS_COLOURS.get(label, "var(--unknown)"),
                    "line": {"width": 1, "color": "var(--card)"},
                },
                "text": [f"{share:.0%}" if share >= 0.06 else "" for share in shares],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "insidetextfont": {"color": "var(--onbar)"},
                "textangle": 0,
                "hovertemplate": "%{y}: %{customdata:,} traces, %{x:.1%}<extra>%{fullData.name}</extra>",
            }
        )
    layout = themed(
        34 * len(days) + 90,
        barmode="stack",
        bargap=0.3,
        uniformtext={"minsize": 10, "mode": "hide"},
        xaxis={"tickformat": ".0%", "range": [0, 1.002], "tickvals": [0, 0.25, 0.5, 0.75, 1]},
        yaxis={"type": "category", "autorange": "reversed"},
    )
    return {"data": traces, "layout": layout}


def reasons_figure(reasons: Sequence[Mapping[str, Any]], top: int = 12) -> Figure:
    """The commonest reasons of rejection, largest first."""
    shown = sorted(reasons, key=lambda row: (-row["count"], row["stage"], row["reason"]))[:top]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": [figure_text(f"{row['stage']}: {row['reason']}", 44) for row in shown],
        "x": [row["count"] for row in shown],
        "text": [f"{row['count']:,}" for row in shown],
        "textposition": "auto",
        "textangle": 0,
        "cliponaxis": False,
        "insidetextfont": {"color": "var(--onbar)"},
        "marker": {"color": "var(--b)"},
        "hovertemplate": "%{y}: %{x:,}<extra></extra>",
    }
    layout = themed(
        28 * max(1, len(shown)) + 50,
        bargap=0.3,
        xaxis={"showgrid": True, "rangemode": "tozero"},
        yaxis={"type": "category", "autorange": "reversed"},
    )
    return {"data": [trace], "layout": layout}


def cluster_sizes_figure(sizes: Mapping[int, int]) -> Figure:
    """How many leak clusters have how many problems."""
    ordered = sorted(sizes.items())
    trace = {
        "type": "bar",
        "x": [str(size) for size, _ in ordered],
        "y": [count for _, count in ordered],
        "text": [f"{count:,}" for _, count in ordered],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": "var(--a)"},
        "hovertemplate": "%{y:,} clusters of %{x} problems<extra></extra>",
    }
    layout = themed(
        260,
        margin={"t": 24},
        bargap=0.3,
        xaxis={"type": "category", "title": {"text": "problems in the cluster"}},
        yaxis={"title": {"text": "clusters"}, "rangemode": "tozero"},
    )
    return {"data": [trace], "layout": layout}


def scores_figure(scores: Sequence[Mapping[str, Any]]) -> Figure:
    """Next-action accuracy per category: points with their interval, the baseline as a hollow mark."""
    traces: list[Figure] = []
    for key, name, colour, symbol, shift in (
        ("tool", "tool", "var(--a)", "circle", -0.13),
        ("arguments", "tool and arguments", "var(--mixed)", "square", 0.13),
    ):
        marks = {
            "type": "scatter",
            "mode": "markers",
            "y": [index + shift for index in range(len(scores))],
            "customdata": [figure_text(row["category"]) for row in scores],
            "hovertemplate": "%{customdata}: %{x:.1%}",
        }
        interval = {
            "type": "data",
            "symmetric": False,
            "array": [_gap(row.get(f"{key}_high"), row.get(key)) for row in scores],
            "arrayminus": [_gap(row.get(key), row.get(f"{key}_low")) for row in scores],
            "color": colour,
            "thickness": 1.5,
        }
        point = {"color": colour, "size": 10, "symbol": symbol}
        traces.append(
            {**marks, "name": name, "x": [row.get(key) for row in scores], "error_x": interval, "marker": point}
        )
        baseline = [row.get(f"baseline_{key}") for row in scores]
        if any(value is not None for value in baseline):
            hollow = {**point, "symbol": f"{symbol}-open", "line": {"width": 1.5}}
            traces.append({**marks, "name": f"baseline, {name}", "x": baseline, "marker": hollow})
    layout = themed(
        54 * max(1, len(scores)) + 110,
        xaxis={"tickformat": ".0%", "range": [-0.02, 1.02]},
        yaxis={
            "range": [len(scores) - 0.5, -0.5],
            "tickvals": list(range(len(scores))),
            "ticktext": [figure_text(f"{row['category']} (n={row['n']:,})") for row in scores],
            "zeroline": False,
            "showgrid": False,
        },
    )
    return {"data": traces, "layout": layout}


def tasks_figure(tasks: Sequence[Mapping[str, Any]]) -> Figure:
    """Success per category, one mark per policy with its interval."""
    categories = list(dict.fromkeys(row["category"] for row in tasks))
    policies = list(dict.fromkeys(row["policy"] for row in tasks))
    colours = ("var(--unknown)", "var(--a)", "var(--mixed)", "var(--b)", "var(--good)", "var(--bad)")
    symbols = ("circle", "square", "diamond")  # a second sign where there are more policies than colours
    step = min(0.26, 0.8 / max(1, len(policies)))  # all marks of a category stay within its own row
    traces: list[Figure] = []
    for number, policy in enumerate(policies):
        rows = [row for row in tasks if row["policy"] == policy]
        shift = step * (number - (len(policies) - 1) / 2)
        colour = colours[number % len(colours)]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": figure_text(policy),
                "x": [row["success"] for row in rows],
                "y": [categories.index(row["category"]) + shift for row in rows],
                "customdata": [figure_text(row["category"]) for row in rows],
                "hovertemplate": "%{customdata}: %{x:.1%}",
                "marker": {"color": colour, "size": 10, "symbol": symbols[number // len(colours) % len(symbols)]},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [_gap(row.get("success_high"), row["success"]) for row in rows],
                    "arrayminus": [_gap(row["success"], row.get("success_low")) for row in rows],
                    "color": colour,
                    "thickness": 1.5,
                },
            }
        )
    layout = themed(
        max(54, 20 * len(policies)) * max(1, len(categories)) + 110,
        xaxis={"tickformat": ".0%", "range": [-0.02, 1.02]},
        yaxis={
            "range": [len(categories) - 0.5, -0.5],
            "tickvals": list(range(len(categories))),
            "ticktext": [figure_text(category) for category in categories],
            "zeroline": False,
            "showgrid": False,
        },
    )
    return {"data": traces, "layout": layout}


def _gap(high: float | None, low: float | None) -> float:
    return max(0.0, high - low) if high is not None and low is not None else 0.0


_SVG_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1c2430}.n{font-variant-numeric:tabular-nums}.m{fill:#5b6675}"
    ".g{fill:#fff}.t{fill:#e8ecf1}.b{fill:#2f6fb5}.h{font-weight:600}"
    "@media(prefers-color-scheme:dark){text{fill:#e7ebf0}.m{fill:#9aa5b3}.g{fill:#1a2029}.t{fill:#2a323d}.b{fill:#6aa5e6}}"
)


def bars_svg(title: str, rows: Sequence[tuple[str, int]], *, width: int = 560) -> str:
    """A small self-contained picture: one bar a row, its count and its share of the largest.

    It paints its own ground, because the page around it may follow another colour scheme than the system.

    Args:
        title: heading and accessible name.
        rows: (label, count) in the order to show. For a funnel the first row is the largest.
    """
    line, top, left, label_width, count_width = 26, 42, 14, 150, 110
    room = width - 2 * left - label_width - count_width
    bars, numbers = left + label_width, left + label_width + room + 10
    largest = max((count for _, count in rows), default=0)
    parts = []
    for index, (label, count) in enumerate(rows):
        y = top + index * line
        length = round(room * count / largest, 1) if largest else 0
        share = f"{count / largest:.0%}" if largest else ""
        parts.append(
            f'<text x="{left}" y="{y + 14}">{_svg_text(label, 22)}</text>'
            f'<rect class="t" x="{bars}" y="{y + 2}" width="{room}" height="16" rx="3"/>'
            f'<rect class="b" x="{bars}" y="{y + 2}" width="{length}" height="16" rx="3"/>'
            f'<text class="n" x="{numbers}" y="{y + 14}">{count:,}'
            f'<tspan class="m" dx="6">{share}</tspan></text>'
        )
    height = top + line * len(rows) + 10
    name = _svg_text(title, 70)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{name}"><title>{name}</title><style>{_SVG_STYLE}</style>'
        f'<rect class="g" width="{width}" height="{height}" rx="8"/>'
        f'<text class="h" x="{left}" y="26">{name}</text>{"".join(parts)}</svg>'
    )


def _svg_text(text: object, limit: int) -> str:
    shown = visible(text)
    return xml_escape(shown if len(shown) <= limit else shown[: limit - 1] + "…", {'"': "&quot;"})


def markdown_image(svg: str, alt: str) -> str:
    """An SVG as a Markdown image with a data URI, for Dagster's Markdown metadata. No script runs in an image."""
    encoded = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return f"![{markdown_text(alt)}](data:image/svg+xml;base64,{encoded})"


def funnel_markdown(title: str, stages: Sequence[tuple[str, int]]) -> str:
    """Markdown metadata of a day: the funnel as a picture and, below it, as a table."""
    first = stages[0][1] if stages else 0
    lines = [markdown_image(bars_svg(title, stages), title), "", "| step | traces | of the first |", "|---|--:|--:|"]
    lines += [
        f"| {markdown_text(name)} | {count:,} | {f'{count / first:.1%}' if first else ''} |" for name, count in stages
    ]
    return "\n".join(lines)
