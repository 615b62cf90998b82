"""The report: one HTML file with everything inside, that opens offline and runs nothing but its own two scripts.

The content security policy admits the two inline scripts by hash (plotly's library and the one that draws), inline
styles and pictures from data URIs; every other source, and every connection, is refused. Text of third parties
passes through ``html_text`` or ``figure_text``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

from trajectory_platform.reports import figures
from trajectory_platform.reports.data import ReportData, total_funnel
from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.mask_section import mask_section
from trajectory_platform.reports.tables import Column, folded, nothing, table, with_interval
from trajectory_platform.reports.task_section import tasks_section
from trajectory_platform.reports.trust_section import contamination_section, judges_section


def build_report(data: ReportData) -> str:
    """The page as text, about 5 MB because plotly's library is inside once; same data, same bytes."""
    drawn = _Figures()
    sections = [render(data, drawn) for _, _, render in _SECTIONS]
    library, draw = _library(), _asset("report.js")
    scripts = [_checked(library), _checked(draw)]
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        f"script-src {' '.join(_source_hash(script) for script in scripts)}"
    )
    links = "".join(f'<a href="#{anchor}">{title}</a>' for anchor, title, _ in _SECTIONS)
    bodies = "".join(
        f'<section id="{anchor}"><h2>{title}</h2>{body}</section>'
        for (anchor, title, _), body in zip(_SECTIONS, sections, strict=True)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f'<link rel="icon" href="data:,"><title>{html_text(data.title)}</title><style>{_asset("report.css")}</style>'
        f'</head><body><header><h1>{html_text(data.title)}</h1><p class="lead">{html_text(data.subtitle)}</p>'
        f'<nav aria-label="Sections">{links}</nav></header><main>{_tiles(data)}{bodies}</main>'
        "<footer>Counts are traces unless said otherwise. Days are UTC days of the judgment. "
        "This file is complete: it loads nothing and sends nothing.</footer>"
        f"{drawn.blocks()}{''.join(f'<script>{script}</script>' for script in scripts)}</body></html>\n"
    )


class _Figures:
    """Collects the figures of a page, so that their data lies in blocks the browser does not execute."""

    def __init__(self) -> None:
        self._specs: list[figures.Figure] = []

    def add(self, spec: figures.Figure, label: str) -> str:
        """The placeholder of a figure; ``label`` is its accessible name."""
        self._specs.append(spec)
        number = len(self._specs)
        height = spec["layout"]["height"]
        return (
            f'<div class="figure" id="figure-{number}" data-figure="figure-{number}-data" role="img" '
            f'aria-label="{html_text(label)}" style="height:{height}px"></div>'
        )

    def blocks(self) -> str:
        return "".join(
            f'<script type="application/json" id="figure-{number}-data">{_json_block(spec)}</script>'
            for number, spec in enumerate(self._specs, 1)
        )


def _json_block(spec: figures.Figure) -> str:
    # `<` never appears, so neither `</script` nor `<!--` can end the block early
    text = json.dumps(spec, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _library() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _asset(name: str) -> str:
    return files("trajectory_platform.reports").joinpath("assets", name).read_text("utf-8")


def _checked(script: str) -> str:
    # Normalised as the browser's parser does, since the hash is taken over what the parser saw.
    script = script.replace("\r\n", "\n").replace("\r", "\n")
    lowered = script.lower()
    if "</script" in lowered or "<!--" in script:
        raise ValueError("a script that contains </script or <!-- cannot be put inline")
    return script


def _source_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode('utf-8')).digest()).decode('ascii')}'"


def _tiles(data: ReportData) -> str:
    tiles = "".join(
        f"<div><dt>{html_text(label)}</dt><dd>{html_text(value, 60)}</dd></div>" for label, value in data.tiles
    )
    notes = "".join(f'<p class="note">{html_text(note)}</p>' for note in data.notes)
    return (f'<dl class="tiles">{tiles}</dl>' if tiles else "") + notes


def _days(data: ReportData, drawn: _Figures) -> str:
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


def _funnel(data: ReportData, drawn: _Figures) -> str:
    total = total_funnel(data.funnels)
    if not total:
        return nothing("no trace was counted")
    before = [None, *(count for _, count in total)]
    rows = [  # the uses of a row overlap: one does not lose what another keeps
        {"stage": stage, "left": left, "lost": None if earlier is None or stage.startswith("use: ") else earlier - left}
        for (stage, left), earlier in zip(total, before, strict=False)
    ]
    columns: list[Column] = [("stage", "step", "word"), ("left", "left", "number"), ("lost", "lost here", "number")]
    return (
        '<p class="muted">What is left after each step, all days together. The uses at the end overlap.</p>'
        + drawn.add(figures.funnel_figure(total), "Funnel from raw pairs to training rows")
        + "<h3>By day</h3>"
        + drawn.add(figures.funnel_by_day_figure(data.funnels), "The same funnel for each day")
        + folded("The numbers of all days", table(columns, rows))
    )


def _axis(data: ReportData, drawn: _Figures) -> str:
    if not any(sum(counts.values()) for counts in data.axis.values()):
        return nothing("no trace was readable")
    labels = [*figures.AXIS_COLOURS, *sorted({x for c in data.axis.values() for x in c} - set(figures.AXIS_COLOURS))]
    columns: list[Column] = [("day", "day", "word"), *((label, html_text(label), "number") for label in labels)]
    rows = [{"day": day, **{label: data.axis[day].get(label, 0) for label in labels}} for day in sorted(data.axis)]
    return (
        '<p class="muted">A: the model made the calls itself. B: the agent\'s code made them. mixed: both. '
        "unknown: the evidence does not tell. Decided by matching calls to the model's replies, not by a flag.</p>"
        + drawn.add(figures.axis_figure(data.axis), "Share of each axis label by day")
        + folded("The numbers", table(columns, rows))
    )


def _reasons(data: ReportData, drawn: _Figures) -> str:
    if not data.reasons:
        return nothing("no trace was rejected")
    columns: list[Column] = [("stage", "stage", "word"), ("reason", "reason", "text"), ("count", "traces", "number")]
    if any(row.get("meaning") for row in data.reasons):
        columns.append(("meaning", "meaning", "text"))
    return drawn.add(figures.reasons_figure(data.reasons), "The commonest reasons of rejection") + folded(
        f"All {len(data.reasons)} reasons", table(columns, data.reasons)
    )


def _leaks(data: ReportData, drawn: _Figures) -> str:
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


def _scores(data: ReportData, drawn: _Figures) -> str:
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
            "remark": "too few to conclude from" if row.get("thin") else "",
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


def _tasks(data: ReportData, drawn: _Figures) -> str:
    return tasks_section(data, drawn.add)


def _judges(data: ReportData, drawn: _Figures) -> str:
    return judges_section(data, drawn.add)


def _contamination(data: ReportData, drawn: _Figures) -> str:
    return contamination_section(data)


def _checkpoint(data: ReportData, drawn: _Figures) -> str:
    if not data.checkpoint:
        return nothing("nothing was trained")
    return table(
        [("fact", "fact", "word"), ("value", "value", "text")],
        [{"fact": label, "value": value} for label, value in data.checkpoint],
    )


def _masks(data: ReportData, drawn: _Figures) -> str:
    return mask_section(data.loss_masks)


def _lineage(data: ReportData, drawn: _Figures) -> str:
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
    ("leaks", "Leak clusters and pools", _leaks),
    ("scores", "What the checkpoint does next", _scores),
    ("tasks", "What it achieves in the sandbox", _tasks),
    ("contamination", "What checkpoints have seen", _contamination),
    ("checkpoint", "The checkpoint", _checkpoint),
    ("trained", "What is trained in a row", _masks),
    ("lineage", "The path of one trace", _lineage),
)
