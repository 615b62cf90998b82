"""Two sections on what a reader may trust: the judges against the validators, and what checkpoints have seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trajectory_platform.reports import figures
from trajectory_platform.reports.calibration import COLUMNS, calibration_figure, calibration_rows
from trajectory_platform.reports.data import ReportData
from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.tables import Column, folded, nothing, table

_SEEN: list[Column] = [
    ("checkpoint_id", "checkpoint", "text"),
    ("all", "all problems", "text"),
    ("clean", "clean", "text"),
    ("near", "clean, but near a trained one", "text"),
    ("contaminated", "contaminated", "text"),
    ("flags", "flagged for", "text"),
]


def judges_section(data: ReportData, add: Callable[[figures.Figure, str], str]) -> str:
    """Agreement of every judge with the validators, never over two score regimes at once."""
    if not data.calibration:
        return nothing("no trace has two verdicts")
    figure = calibration_figure(data.calibration)
    drawn = add(figure, "Verdicts of the judges against those of the validators") if figure["data"] else ""
    rows = calibration_rows(data.calibration)
    return (
        '<p class="muted">A judge that is cheaper than the validators is worth what it agrees with them. Verdicts of '
        "the continuous and of the discrete era are never mixed.</p>"
        + drawn
        + "".join(_reading(row) for row in rows)
        + folded("The numbers", table([column for column in COLUMNS if column[0] not in ("why", "reading")], rows))
    )


def contamination_section(data: ReportData) -> str:
    """Success on all problems, and on those that training has not seen, side by side."""
    if not data.contamination:
        return nothing("no checkpoint was compared with the problems it is measured on")
    rows = [
        {
            "checkpoint_id": row["checkpoint_id"],
            "flags": "; ".join(row["flags"]) or None,
            **{name: _score(row[name]) for name in ("all", "clean", "near", "contaminated")},
        }
        for row in data.contamination
    ]
    return (
        '<p class="muted">A problem is contaminated for a checkpoint when the checkpoint was trained on its leak '
        "cluster, by the clusters of today: a merge or a late reward counts for old checkpoints too. Quote the clean "
        "score. Near is alike without proof of a variant.</p>"
        f'<div class="seen">{table(_SEEN, rows)}</div>'
    )


def _reading(row: Mapping[str, Any]) -> str:
    """What one comparison allows to say: a judgement and the reasons for it, in words."""
    words = f"{row['judge']}, against {row['regime']} scores: {row['reading']}"
    return f"<p><b>{html_text(words, 200)}</b><br>{html_text(row['why'], 600)}</p>"


def _score(measured: Mapping[str, Any]) -> str | None:
    if not measured["problems"]:
        return None
    success = measured["success"]
    words = f"{measured['problems']:,} problems"
    if measured.get("clusters") is not None:
        words += f" in {measured['clusters']:,} clusters"
    return words if success is None else f"{success:.1%} of {words}"
