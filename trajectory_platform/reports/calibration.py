"""The calibration of judges for the report: one figure, and rows for its table. Text is escaped where it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajectory_platform.reports.escape import figure_text

Figure = dict[str, Any]

# (key, heading, kind of cell) as ``reports.html`` lays tables out
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("judge", "judge", "word"),
    ("regime", "scores of the validators", "word"),
    ("reading", "reading", "word"),
    ("pairs", "traces with both values", "number"),
    ("agreement", "agreement (interval)", "word"),
    ("gate", "same decision at the gate", "share"),
    ("bias", "judge minus validator", "word"),
    ("judge_without", "judge without a value", "share"),
    ("validator_without", "validator without a value", "share"),
    ("why", "why", "text"),
)
_MEASURES = {"quadratic_kappa": "quadratic kappa", "spearman": "Spearman"}


def calibration_rows(comparisons: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One table row per comparison (``judging.calibration.calibrate``); values are plain, not yet escaped."""
    rows = []
    for found in comparisons:
        name, measure = _measure(found)
        gate = found["gate"]
        rows.append(
            {
                "judge": f"{found['judge_kind']}: {found['judge_model']} ({found['rubric_version']})",
                "regime": found["regime"],
                "reading": found["reading"],
                "pairs": found["pairs"],
                "agreement": f"{name} {_interval(measure, '.2f')}",
                "gate": gate["agreement"]["value"] if gate else None,
                "bias": _interval(found["bias"], "+.2f"),
                "judge_without": found["null_rate"]["judge"],
                "validator_without": found["null_rate"]["validator"],
                "why": "; ".join(found["why"]),
            }
        )
    return rows


def calibration_figure(comparisons: Sequence[Mapping[str, Any]]) -> Figure:
    """Confusion on the five values, one heat map per judge of the discrete regime, side by side.

    The shade of a cell is its share of the validator's row, its text the count: a judge that agrees is dark on the
    diagonal from bottom left to top right.
    """
    shown = [found for found in comparisons if found["confusion"] is not None and found["pairs"]]
    traces, layout = [], _layout(len(shown))
    for number, found in enumerate(shown, 1):
        axis = "" if number == 1 else str(number)
        counts = found["confusion"]["counts"]
        labels = [str(value) for value in found["confusion"]["values"]]
        traces.append(
            {
                "type": "heatmap",
                "xaxis": f"x{axis}",
                "yaxis": f"y{axis}",
                "x": labels,
                "y": labels,
                "z": [[count / sum(row) if sum(row) else None for count in row] for row in counts],
                "text": [[f"{count:,}" if count else "" for count in row] for row in counts],
                "texttemplate": "%{text}",
                "zmin": 0,
                "zmax": 1,
                "colorscale": [[0, "var(--heat0)"], [1, "var(--heat1)"]],
                "showscale": False,
                "xgap": 2,
                "ygap": 2,
                "hovertemplate": "validator %{y}, judge %{x}: %{text} traces, %{z:.0%} of the row<extra></extra>",
            }
        )
        title = figure_text(f"{found['judge_model']} (n={found['pairs']:,})", 40)
        common = {"type": "category", "showgrid": False, "automargin": True, "fixedrange": True}
        width = 1 / max(1, len(shown))
        domain = [(number - 1) * width + (0.06 if number > 1 else 0), number * width]
        layout[f"xaxis{axis}"] = {**common, "domain": domain, "anchor": f"y{axis}", "title": {"text": title}}
        layout[f"yaxis{axis}"] = {**common, "anchor": f"x{axis}"}
    if shown:
        layout["yaxis"]["title"] = {"text": "validator"}
    return {"data": traces, "layout": layout}


def _layout(panels: int) -> Figure:
    return {
        "height": 330 if panels else 80,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "var(--text)"},
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--line)",
            "font": {"color": "var(--text)"},
            "align": "left",
        },
    }


def _measure(found: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    name = next(name for name in _MEASURES if name in found["agreement"])
    return _MEASURES[name], found["agreement"][name]


def _interval(estimate: Mapping[str, Any], form: str) -> str:
    if estimate["value"] is None:
        return f"undefined: {estimate['undefined']}"
    if estimate["low"] is None:
        return f"{estimate['value']:{form}} (no interval)"
    return f"{estimate['value']:{form}} ({estimate['low']:{form}} to {estimate['high']:{form}})"
