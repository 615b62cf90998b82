"""The section on who made the calls: the day's share with its interval, the days beside one another, the eras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajectory_platform.curation.corpus import ERAS, era_of
from trajectory_platform.reports.axis_figures import MANY_DAYS, axis_days_figure
from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.figures import AXIS_COLOURS, axis_figure
from trajectory_platform.reports.page import Figures
from trajectory_platform.reports.tables import Column, folded, footnote, nothing, table, with_interval

Axis = Mapping[str, Mapping[str, int]]
_WHAT = (
    "A: the model made the calls itself. B: the agent's code made them. mixed: both. unknown: the evidence does not "
    "tell. Decided by matching calls to the model's replies, not by a flag; traces that cannot be read are not in it."
)


def axis_section(axis: Axis, drawn: Figures, day_share: Mapping[str, Any] | None = None) -> str:
    """Days and eras.

    Args:
        axis: day -> axis label -> traces.
        day_share: of one day: ``day, a, a_low, a_high, a_note, n, agents``; None for an overview.
    """
    if not any(sum(counts.values()) for counts in axis.values()):
        return nothing("no trace was readable")
    shown = {day: counts for day, counts in axis.items() if sum(counts.values())}
    parts = [f'<p class="muted">{html_text(_WHAT)}</p>', _sentence(day_share)]
    if len(shown) > 1 or day_share is None:
        parts.append("<h3>Day by day</h3>")
    if len(shown) > MANY_DAYS:
        parts.append('<p class="muted">A dotted line is the border of an era.</p>')
    parts.append(drawn.add(axis_days_figure(shown), "Share of each axis label by day"))
    parts.append(folded("The numbers of the days", _counts(axis)))
    parts.append("<h3>Era by era</h3>")
    parts.append(
        '<p class="muted">What a trace can show about who acted changed with its format: compare days of one era, and '
        "read a step at a border as a change of the format first.</p>"
    )
    eras = by_era(shown)
    if len(eras) > 1:
        named = {f"{row['first'][5:]} {row['era']}": row["counts"] for row in eras}
        parts.append(drawn.add(axis_figure(named), "Share of each axis label by era"))
    parts.append(_era_table(eras))
    return "".join(parts)


def by_era(axis: Axis) -> list[dict[str, Any]]:
    """The days of each era together, oldest first: ``era, first, change, days, counts, n, a, low_day, high_day``.

    ``a`` is the share of A among all traces of the era, ``low_day`` and ``high_day`` the smallest and largest share of
    a day: between them the days differ.
    """
    grouped: dict[str, list[Mapping[str, int]]] = {}
    for day in sorted(axis):
        grouped.setdefault(era_of(day).first, []).append(axis[day])
    found = []
    for first, days in grouped.items():
        era = era_of(first)
        counts = {label: sum(day.get(label, 0) for day in days) for label in sorted(set().union(*days))}
        shares = [day.get("A", 0) / sum(day.values()) for day in days if sum(day.values())]
        total = sum(counts.values())
        found.append(
            {
                "era": era.name,
                "first": first,
                "change": era.change,
                "days": len(days),
                "counts": counts,
                "n": total,
                "a": counts.get("A", 0) / total if total else None,
                "low_day": min(shares, default=None),
                "high_day": max(shares, default=None),
            }
        )
    return found


def _sentence(share: Mapping[str, Any] | None) -> str:
    if share is None:
        return ""
    if share.get("a") is None:
        return f"<p>No trace of {html_text(share['day'])} could be read, so there is no share of axis A.</p>"
    between = with_interval(share, "a")
    words = (
        f"On {share['day']} the model itself acted in {between} of {share['n']:,} readable traces of "
        f"{share['agents']:,} agent versions (95 % interval over agent versions: traces of one agent resemble each "
        "other)."
    )
    return f"<p>{html_text(words)}</p>{footnote([share], ['a'])}"


def _counts(axis: Axis) -> str:
    labels = [*AXIS_COLOURS, *sorted({x for counts in axis.values() for x in counts} - set(AXIS_COLOURS))]
    columns: list[Column] = [("day", "day", "word"), *((label, html_text(label), "number") for label in labels)]
    columns += [("n", "readable", "number"), ("a_share", "share of A", "share"), ("era", "era", "word")]
    rows = []
    for day in sorted(axis):
        total = sum(axis[day].values())
        counts = {label: axis[day].get(label, 0) for label in labels}
        share = counts["A"] / total if total else None
        rows.append({"day": day, **counts, "n": total, "a_share": share, "era": era_of(day).name})
    return table(columns, rows)


def _era_table(eras: Sequence[Mapping[str, Any]]) -> str:
    seen = {row["first"]: row for row in eras}
    columns: list[Column] = [
        ("from", "from", "word"),
        ("era", "era and what changed", "html"),
        ("a", "share of A", "share"),
        ("between", "its days lie between", "word"),
        ("n", "readable traces", "number"),
        ("days", "days", "number"),
    ]
    rows: list[dict[str, Any]] = []
    listed = [(era.first, era.name, era.change) for era in ERAS]
    listed = [(row["first"], row["era"], row["change"]) for row in eras if row["first"] < ERAS[0].first] + listed
    for first, name, change in listed:
        row = seen.get(first, {})
        between = f"{row['low_day']:.1%} and {row['high_day']:.1%}" if row.get("days", 0) > 1 else None
        told = {key: row.get(key) for key in ("a", "n", "days")}
        words = f'{html_text(name)}<br><span class="muted">{html_text(change)}</span>'
        rows.append({"from": first or "not dated", "era": words, "between": between, **told})
    return f'<div class="eras">{table(columns, rows)}</div>'
