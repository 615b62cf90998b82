"""The figures of a checkpoint as plotly specifications: learning curves, pass@k, stages, failures, what it was fed.

One definition serves the page, Dagster's metadata and MLflow's artifacts (``figure_svg``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform.reports.escape import figure_text
from trajectory_platform.reports.figures import Figure, tasks_figure, themed

Row = Mapping[str, Any]
COLOURS = ("var(--a)", "var(--b)", "var(--mixed)", "var(--good)", "var(--unknown)", "var(--bad)")
OTHERS = ("var(--unknown)", "var(--b)", "var(--mixed)", "var(--good)", "var(--bad)")  # beside the own one in var(--a)
ROLES = ("train", "generated", "teacher", "desirable", "undesirable", "prompt", "reference")
"""Roles of training rows. Each has a colour of its own name, told apart also by the colour-blind (``report.css``)."""
_NAMED, _COUNTED = 0.2, 0.08  # share of a bar from which there is room for the name of its role, and for its count
_LARGEST = 1e100  # drawn; far below where the arithmetic of axes overflows
MOST_POINTS = 400  # of a learning curve; a longer history is thinned out evenly, its last point kept


class Curve(NamedTuple):
    """One figure of learning curves.

    Attributes:
        name: short and stable, of artifacts. title: for people.
        series: (key of the training history, what it is called).
        share: values are shares, written as percentages.
        log: on a logarithmic axis where all values are positive and span more than a power of ten.
    """

    name: str
    title: str
    series: tuple[tuple[str, str], ...]
    share: bool = False
    log: bool = False


CURVES: tuple[Curve, ...] = (
    Curve("loss", "Loss", (("loss", "loss"), ("eval_loss", "loss on dev rows")), log=True),
    Curve("learning_rate", "Learning rate", (("learning_rate", "learning rate"),)),
    Curve("accuracy", "Next token right", (("mean_token_accuracy", "next token right"),), share=True),
    Curve("gradient", "Norm of the gradient", (("grad_norm", "norm of the gradient"),), log=True),
    Curve(
        "rewards",
        "KTO: implied rewards",
        (("rewards/chosen", "desirable"), ("rewards/rejected", "undesirable"), ("rewards/margins", "margin")),
    ),
    Curve("kl", "KTO: KL from the reference model", (("kl", "KL"),)),
    Curve(
        "success",
        "Dr. GRPO: attempts of a step",
        (("success", "success"), ("solved_groups", "groups solved"), ("process", "process score")),
        share=True,
    ),
    Curve(
        "groups",
        "Dr. GRPO: what a step can learn from",
        (
            ("zero_variance", "groups without a difference"),
            ("same_outcome", "groups of one outcome"),
            ("clipped", "cut by a limit"),
            ("hallucinated", "with hallucinated ids"),
        ),
        share=True,
    ),
    Curve("entropy", "Entropy per token", (("sampled_entropy", "of the drawn tokens"), ("entropy", "exact"))),
)


def curve_figures(history: Sequence[Row], *, most: int = MOST_POINTS) -> list[tuple[Curve, Figure]]:
    """One figure per group of numbers that the history of a training holds, in the order of :data:`CURVES`.

    Args:
        history: entries with ``step`` and numbers, in the order of the steps, as the trainer logged them.
        most: points of a line.
    """
    found = []
    for curve in CURVES:
        traces = [
            trace
            for place, (key, name) in enumerate(curve.series)
            if (trace := _series(history, key, name, COLOURS[place % len(COLOURS)], most)) is not None
        ]
        if traces:
            found.append((curve, _curve(curve, traces)))
    return found


def _series(history: Sequence[Row], key: str, name: str, colour: str, most: int) -> Figure | None:
    points = [(row["step"], row[key]) for row in history if drawable(row.get(key)) and drawable(row.get("step"))]
    if not points:
        return None
    points = thinned(points, most)
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(points) <= 40 else "lines",
        "name": figure_text(name),
        "x": [step for step, _ in points],
        "y": [value for _, value in points],
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 5},
        "hovertemplate": "step %{x}: %{y:.4g}<extra>%{fullData.name}</extra>",
    }


def drawable(value: Any) -> bool:
    """A number that has a place on an axis; a training that came apart logs infinite ones and ones that are none."""
    return isinstance(value, int | float) and abs(value) <= _LARGEST


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most so many points, evenly chosen; the first and the last are kept."""
    if len(points) <= most:
        return list(points)
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


def _curve(curve: Curve, traces: list[Figure]) -> Figure:
    values = [value for trace in traces for value in trace["y"]]
    y: Figure = {"tickformat": ".0%"} if curve.share else {}
    if max(map(abs, values)) < 0.001:
        y["tickformat"] = ".1e"
    if curve.log and min(values) > 0 and max(values) > 10 * min(values):
        y |= {"type": "log", "tickvals": _log_ticks(min(values), max(values))}
    if curve.share and min(values) >= 0:
        y["range"] = [0, 1.02]
    return {
        "data": traces,
        "layout": themed(
            240 + 24 * max(0, len(traces) - 2),  # a legend of many names takes several lines
            xaxis={"title": {"text": "step"}},
            yaxis=y,
            showlegend=len(traces) > 1,
        ),
    }


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of every power of ten in a range; the powers alone where there are more than three."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1,) if last - first > 3 else (1, 2, 5)
    ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    return [float(f"{tick:.6g}") for tick in ticks if low / 2 <= tick <= high * 2]


def pass_figure(curves: Sequence[Row]) -> Figure:
    """The chance that one of k attempts succeeds: a line per model, the band of the report's own checkpoint.

    Args:
        curves: ``{label, own, points: [{k, value, low, high}]}``; the own one has its interval drawn.
    """
    traces: list[Figure] = []
    others = [curve for curve in curves if not curve["own"]]
    for curve in (one for one in curves if one["own"]):
        known = [point for point in curve["points"] if point["low"] is not None]
        ks = [point["k"] for point in known]
        edge = {"type": "scatter", "mode": "lines", "x": ks, "line": {"width": 0, "color": "var(--a)"}}
        traces.append({**edge, "y": [point["low"] for point in known], "showlegend": False, "hoverinfo": "skip"})
        traces.append(
            {
                **edge,
                "y": [point["high"] for point in known],
                "fill": "tonexty",
                "fillcolor": "var(--asoft)",
                "name": "95 % interval",
                "hoverinfo": "skip",
            }
        )
    for place, curve in enumerate(others):
        traces.append(_pass_line(curve, OTHERS[place % len(OTHERS)], dash="dot"))
    traces += [_pass_line(curve, "var(--a)", dash="solid") for curve in curves if curve["own"]]
    ks = sorted({point["k"] for curve in curves for point in curve["points"]})
    return {
        "data": traces,
        "layout": themed(
            340,
            xaxis={"title": {"text": "attempts k"}, "tickvals": ks},
            yaxis={"tickformat": ".0%", "range": [0, 1.03]},
        ),
    }


def _pass_line(curve: Row, colour: str, *, dash: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": figure_text(curve["label"]),
        "x": [point["k"] for point in curve["points"]],
        "y": [point["value"] for point in curve["points"]],
        "line": {"color": colour, "width": 2, "dash": dash},
        "marker": {"color": colour, "size": 6},
        "hovertemplate": "k = %{x}: %{y:.1%}<extra>%{fullData.name}</extra>",
    }


def stages_figure(rows: Sequence[Row]) -> Figure:
    """Success of each stage of a run on the same problems, with its interval; the report's own stage stands out."""
    shown = [row for row in rows if row.get("success") is not None]
    names = [figure_text(row["stage"]) for row in shown]
    traces = []
    for own, name, colour in ((False, "other stages", "var(--unknown)"), (True, "this checkpoint", "var(--a)")):
        places = [place for place, row in enumerate(shown) if bool(row.get("own")) is own]
        if not places:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [shown[place]["success"] for place in places],
                "y": places,
                "customdata": [names[place] for place in places],
                "marker": {"color": colour, "size": 11},
                "error_x": _interval([shown[place] for place in places], "success", colour),
                "hovertemplate": "%{customdata}: %{x:.1%}<extra></extra>",
            }
        )
    layout = themed(
        34 * max(1, len(shown)) + 80,
        xaxis={"tickformat": ".0%", "range": [-0.02, 1.02]},
        yaxis={
            "range": [len(shown) - 0.5, -0.5],
            "tickvals": list(range(len(shown))),
            "ticktext": names,
            "zeroline": False,
            "showgrid": False,
        },
    )
    return {"data": traces, "layout": layout}


def categories_figure(rows: Sequence[Row], own: str) -> Figure:
    """Success per category of the checkpoint beside others, in the colours of the other figures.

    Args:
        own: the ``policy`` of the report's own checkpoint.
    """
    figure = tasks_figure(rows)
    others = iter(OTHERS)
    for trace in figure["data"]:
        colour = "var(--a)" if trace["name"] == figure_text(own) else next(others, OTHERS[-1])
        trace["marker"] = {**trace["marker"], "color": colour}
        trace["error_x"] = {**trace["error_x"], "color": colour}
    return figure


def _interval(rows: Sequence[Row], name: str, colour: str) -> Figure:
    def gap(high: float | None, low: float | None) -> float:
        return max(0.0, high - low) if high is not None and low is not None else 0.0

    return {
        "type": "data",
        "symmetric": False,
        "array": [gap(row.get(f"{name}_high"), row[name]) for row in rows],
        "arrayminus": [gap(row[name], row.get(f"{name}_low")) for row in rows],
        "color": colour,
        "thickness": 1.5,
    }


def failures_figure(counts: Mapping[str, Mapping[str, int]]) -> Figure:
    """Failures per kind, stacked by category where there are several.

    Args:
        counts: kind -> category -> failures (``taxonomy.counted``).
    """
    kinds = [figure_text(kind.replace("_", " ")) for kind in counts]
    categories = sorted({name for of_kind in counts.values() for name in of_kind})
    traces = []
    for place, category in enumerate(categories):
        numbers = [of_kind.get(category, 0) for of_kind in counts.values()]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": figure_text(category),
                "y": kinds,
                "x": numbers,
                "text": [f"{number:,}" if number else "" for number in numbers],
                "textposition": "auto",
                "insidetextanchor": "middle",
                "cliponaxis": False,
                "insidetextfont": {"color": "var(--onbar)"},
                "textangle": 0,
                "marker": {"color": COLOURS[(place + 1) % len(COLOURS)]},
                "hovertemplate": "%{y}: %{x:,}<extra>%{fullData.name}</extra>",
            }
        )
    layout = themed(
        32 * max(2, len(kinds)) + (100 if len(categories) > 1 else 68),
        barmode="stack",
        bargap=0.3,
        showlegend=len(categories) > 1,
        xaxis={"rangemode": "tozero", "title": {"text": "failed attempts"}},
        yaxis={"type": "category", "autorange": "reversed"},
    )
    return {"data": traces, "layout": layout}


def fed_figure(chain: Sequence[Row], *, named: bool = True) -> Figure:
    """What each stage of a chain was fed: the share of its weight per role of its rows, the base first.

    Args:
        chain: ``lineage.questions.about_checkpoint``'s ``made_of``, nearest first.
        named: wide bars also carry the name of their role, so that print without colours tells them apart.
    """
    known = [row for row in reversed(chain) if row["known"] and row["roles"]]
    stages = [figure_text(row["stage"]) for row in known]
    traces = []
    for role in ROLES:
        shares = [row["roles"].get(role, {}).get("share", 0.0) for row in known]
        if not any(shares):
            continue
        counts = [row["roles"].get(role, {}).get("traces", 0) for row in known]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": role,
                "y": stages,
                "x": shares,
                "customdata": counts,
                "marker": {"color": f"var(--{role})", "line": {"width": 1, "color": "var(--card)"}},
                "text": [
                    f"{role} {count:,}" if named and share >= _NAMED else f"{count:,}" if share >= _COUNTED else ""
                    for share, count in zip(shares, counts, strict=True)
                ],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "insidetextfont": {"color": "var(--onbar)"},
                "textangle": 0,
                "hovertemplate": "%{y}: %{customdata:,} traces, %{x:.1%} of the weight<extra>%{fullData.name}</extra>",
            }
        )
    layout = themed(
        34 * max(1, len(known)) + 90,
        barmode="stack",
        bargap=0.3,
        xaxis={"tickformat": ".0%", "range": [0, 1], "tickvals": [0, 0.25, 0.5, 0.75, 1]},
        margin={"r": 26},  # room for half of the last label, which is left out else
        yaxis={"type": "category", "autorange": "reversed"},
        showlegend=True,
    )
    return {"data": traces, "layout": layout}
