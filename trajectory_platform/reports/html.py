"""The overview report: its sections, from :class:`ReportData`, on one self-contained page (``reports.page``)."""

from __future__ import annotations

from typing import Any

from trajectory_platform.reports import figures
from trajectory_platform.reports.axis_section import axis_section
from trajectory_platform.reports.cost_section import cost_section
from trajectory_platform.reports.data import ReportData, total_funnel
from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.flow_section import flow_section
from trajectory_platform.reports.mask_section import mask_section
from trajectory_platform.reports.page import Figures, build_page
from trajectory_platform.reports.strategy_section import strategy_section
from trajectory_platform.reports.tables import Column, folded, nothing, table, thin_remark, with_interval
from trajectory_platform.reports.task_section import tasks_section
from trajectory_platform.reports.trust_section import contamination_section, judges_section

_MOST_DAYS = 31  # in the figure of the days: each is a line of it


def build_report(data: ReportData) -> str:
    """The page as text, about 5 MB because plotly's library is inside once; same data, same bytes."""
    drawn = Figures()
    sections = [(anchor, title, render(data, drawn)) for anchor, title, render in _SECTIONS]
    return build_page(
        title=data.title,
        subtitle=data.subtitle,
        tiles=data.tiles,
        notes=data.notes,
        sections=sections,
        figures=drawn,
        footer="Counts are traces unless said otherwise. Days are UTC days of the judgment.",
    )


def _days(data: ReportData, drawn: Figures) -> str:
    if not data.days:
        return nothing("no day was read")
    counted = ("found", "moved_in", "moved_out", "accepted", "rejected")
    rows = []
    for day in data.days:
        pairs = day["found"] + day["moved_in"] - day["moved_out"]
        rows.append({**day, "pairs": pairs, "difference": pairs - day["accepted"] - day["rejected"]})
    total: dict[str, Any] = {key: sum(row[key] for row in rows) for key in (*counted, "pairs", "difference")}
    columns = [("day", "day", "word"), *((key, key.replace("_", " "), "number") for key in counted[:3])]
    columns += [("pairs", "of the day", "number"), ("accepted", "accepted", "number")]
    columns += [("rejected", "rejected", "number"), ("difference", "adds up", "check")]
    return (
        '<p class="muted">A pair of run and problem belongs to the day on which it was judged. Pairs of a '
        "neighbouring folder move in, others move out; each of the day's own ends accepted or rejected.</p>"
        + table(columns, rows, {"day": "all days", **total})
    )


def _funnel(data: ReportData, drawn: Figures) -> str:
    total = total_funnel(data.funnels)
    if not total:
        return nothing("no trace was counted")
    before = [None, *(count for _, count in total)]
    rows = [  # the uses of a row overlap: one does not lose what another keeps
        {"stage": stage, "left": left, "lost": None if earlier is None or stage.startswith("use: ") else earlier - left}
        for (stage, left), earlier in zip(total, before, strict=False)
    ]
    columns: list[Column] = [("stage", "step", "word"), ("left", "left", "number"), ("lost", "lost here", "number")]
    newest = {day: data.funnels[day] for day in sorted(data.funnels)[-_MOST_DAYS:]}
    rest = len(data.funnels) - len(newest)
    return (
        (flow_section(data.flow, drawn) if data.flow is not None else "")
        + "<h3>What is left after each step</h3>"
        + '<p class="muted">All days together. The uses at the end overlap.</p>'
        + drawn.add(
            figures.funnel_figure(total),
            "Funnel from raw pairs to training rows",
            figures.funnel_figure(total, narrow=True),
        )
        + folded("The numbers of all days", table(columns, rows))
        + "<h3>By day</h3>"
        + (
            f'<p class="muted">The last {_MOST_DAYS} of {len(data.funnels):,} days; the table has all.</p>'
            if rest
            else ""
        )
        + drawn.add(
            figures.funnel_by_day_figure(newest),
            "The same funnel for each day",
            figures.funnel_by_day_figure(newest, narrow=True),
        )
        + folded("The numbers of each day", _funnel_days(data))
    )


def _funnel_days(data: ReportData) -> str:
    steps = [step for step, _ in total_funnel(data.funnels)]
    columns: list[Column] = [("day", "day", "word"), *((step, html_text(step), "number") for step in steps)]
    return table(columns, [{"day": day, **dict(data.funnels[day])} for day in sorted(data.funnels)])


def _axis(data: ReportData, drawn: Figures) -> str:
    return axis_section(data.axis, drawn)


def _strategies(data: ReportData, drawn: Figures) -> str:
    return strategy_section(data.strategies, drawn)


def _cost(data: ReportData, drawn: Figures) -> str:
    return cost_section(data.cost)


def _reasons(data: ReportData, drawn: Figures) -> str:
    if not data.reasons:
        return nothing("no trace was rejected")
    columns: list[Column] = [("stage", "stage", "word"), ("reason", "reason", "text"), ("count", "traces", "number")]
    if any(row.get("meaning") for row in data.reasons):
        columns.append(("meaning", "meaning", "text"))
    return drawn.add(figures.reasons_figure(data.reasons), "The commonest reasons of rejection") + folded(
        f"All {len(data.reasons)} reasons", table(columns, data.reasons)
    )


def _leaks(data: ReportData, drawn: Figures) -> str:
    if not data.pools:
        return nothing("no problem was seen")
    columns: list[Column] = [
        ("pool", "pool", "word"),
        ("clusters", "clusters", "number"),
        ("problems", "problems", "number"),
        ("no_reward", "without known reward", "number"),
        ("traces", "traces in the window", "number"),
    ]
    parts = [
        '<p class="muted">Variants of one problem form a cluster and share one pool, so that no checkpoint is '
        "measured on a problem it trained on in other words.</p>",
        table(columns, data.pools),
    ]
    if data.cluster_sizes:
        parts.append("<h3>Sizes</h3>")
        parts.append(drawn.add(figures.cluster_sizes_figure(data.cluster_sizes), "Leak clusters by size"))
    if data.clusters:
        shown: list[Column] = [
            ("cluster_id", "cluster", "word"),
            ("pool", "pool", "word"),
            ("size", "problems", "number"),
            ("category", "category", "word"),
            ("why", "joined by", "text"),
            ("problems", "which", "text"),
        ]
        parts.append(folded("The largest clusters", table(shown, data.clusters)))
    return "".join(parts)


def _scores(data: ReportData, drawn: Figures) -> str:
    if not data.scores:
        return nothing("no checkpoint was measured")
    columns: list[Column] = [
        ("category", "category", "word"),
        ("n", "actions", "number"),
        ("clusters", "clusters", "number"),
        ("tool_shown", "tool (interval)", "word"),
        ("baseline_tool", "baseline", "share"),
        ("arguments_shown", "with arguments (interval)", "word"),
        ("baseline_arguments", "baseline", "share"),
        ("remark", "remark", "text"),
    ]
    rows = [
        {
            **row,
            "tool_shown": with_interval(row, "tool"),
            "arguments_shown": with_interval(row, "arguments"),
            "remark": thin_remark(row),
        }
        for row in data.scores
    ]
    shown = [column for column in columns if any(row.get(column[0]) not in (None, "") for row in rows)]
    faults: list[Column] = [
        ("category", "category", "word"),
        ("parse_errors", "unreadable replies", "number"),
        ("clipped", "cut at the token limit", "number"),
    ]
    note = f'<p class="muted">{html_text(data.scores_note)}</p>' if data.scores_note else ""
    faulty = any(row.get("parse_errors") is not None or row.get("clipped") is not None for row in rows)
    return (
        note
        + drawn.add(figures.scores_figure(data.scores), "Next-action accuracy per category, with intervals")
        + table(shown, rows)
        + (folded("Replies that could not be scored as calls", table(faults, rows)) if faulty else "")
    )


def _tasks(data: ReportData, drawn: Figures) -> str:
    return tasks_section(data, drawn.add)


def _judges(data: ReportData, drawn: Figures) -> str:
    return judges_section(data, drawn.add)


def _contamination(data: ReportData, drawn: Figures) -> str:
    return contamination_section(data)


def _checkpoint(data: ReportData, drawn: Figures) -> str:
    if not data.checkpoint:
        return nothing("nothing was trained")
    return table(
        [("fact", "fact", "word"), ("value", "value", "text")],
        [{"fact": label, "value": value} for label, value in data.checkpoint],
    )


def _masks(data: ReportData, drawn: Figures) -> str:
    return mask_section(data.loss_masks)


def _lineage(data: ReportData, drawn: Figures) -> str:
    if not data.lineage:
        return nothing("no trace was followed")
    steps = "".join(
        f'<li><b>{html_text(step["step"])}</b><span class="id">{html_text(step["value"], 400)}</span>'
        + (f'<br><span class="muted">{html_text(step["detail"], 600)}</span>' if step.get("detail") else "")
        + "</li>"
        for step in data.lineage
    )
    return (
        f'<p class="muted">From the raw artifact to the checkpoint, for '
        f'<span class="id">{html_text(data.lineage_of)}</span>.</p><ol class="steps">{steps}</ol>'
    )


_SECTIONS = (
    ("days", "What happened each day", _days),
    ("funnel", "From raw pairs to training rows", _funnel),
    ("axis", "Who made the calls", _axis),
    ("reasons", "Why traces were rejected", _reasons),
    ("judges", "Whether the judges can be trusted", _judges),
    ("strategies", "Strategies and their long tail", _strategies),
    ("leaks", "Leak clusters and pools", _leaks),
    ("scores", "What the checkpoint does next", _scores),
    ("tasks", "What it achieves in the sandbox", _tasks),
    ("contamination", "What checkpoints have seen", _contamination),
    ("checkpoint", "The checkpoint", _checkpoint),
    ("trained", "What is trained in a row", _masks),
    ("lineage", "The path of one trace", _lineage),
    ("cost", "Cost", _cost),
)
