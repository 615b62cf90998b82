"""The section about success in the sandbox: who solves what, how, and whether training made a difference."""

from __future__ import annotations

from collections.abc import Callable

from trajectory_platform.reports import figures
from trajectory_platform.reports.data import ReportData
from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.stage_section import stages_table
from trajectory_platform.reports.tables import Column, Row, folded, footnote, nothing, table, thin_remark, with_interval


def tasks_section(data: ReportData, add: Callable[[figures.Figure, str], str]) -> str:
    """Success per policy and category, conduct, and the paired comparison; ``add`` places a figure."""
    if not data.tasks:
        return nothing("no policy acted in the sandbox")
    ks = sorted({k for row in data.tasks for k, value in row["pass_at"].items() if value is not None})
    columns: list[Column] = [
        ("policy", "policy", "word"),
        ("category", "category", "word"),
        ("success_shown", "success (interval)", "word"),
        *((f"pass_{k}", f"pass@{k}", "share") for k in ks),
        ("process_plain", "process score", "word"),
        ("truncated", "cut by a limit", "share"),
        ("problems", "problems", "number"),
        ("clusters", "clusters", "number"),
        ("remark", "remark", "text"),
    ]
    conduct: list[Column] = [
        ("policy", "policy", "word"),
        ("category", "category", "word"),
        ("conduct", "conduct score", "share"),
        ("clean", "clean protocol", "share"),
        ("hallucinated", "with hallucinated ids", "share"),
        ("unviewed", "with unviewed ids", "share"),
        ("lenient", "lenient success", "share"),
        ("attempts", "attempts", "number"),
    ]
    rows = [
        {
            **row,
            **{f"pass_{k}": row["pass_at"].get(k) for k in ks},
            "success_shown": with_interval(row, "success"),
            "process_plain": _signed(row.get("process")),
            "remark": thin_remark(row),
        }
        for row in data.tasks
    ]
    return (
        (f'<p class="muted">{html_text(data.tasks_note)}</p>' if data.tasks_note else "")
        + (f"<h3>Stage by stage</h3>{stages_table(data.stages)}" if data.stages else "")
        + add(figures.tasks_figure(data.tasks), "Success in the sandbox per category and policy, with intervals")
        + table(columns, rows)
        + footnote(data.tasks, ("success",))
        + _pairs(data)
        + folded("How they went about it", table(conduct, rows))
    )


def _pairs(data: ReportData) -> str:
    if not data.task_pairs:
        return ""
    columns: list[Column] = [
        ("category", "category", "word"),
        ("before", "before", "share"),
        ("after", "after", "share"),
        ("shown", "difference, points (interval)", "word"),
        ("seen", "sees differences above", "word"),
        ("process_shown", "process score, difference", "word"),
        ("problems", "problems", "number"),
        ("clusters", "clusters", "number"),
    ]
    rows = [
        {
            **row,
            "shown": _marked(_points(row, "difference"), row, "difference"),
            "seen": _plain_points(row.get("detectable")),
            "process_shown": _marked(
                _signed(row.get("process"), row.get("process_low"), row.get("process_high")), row, "process"
            ),
        }
        for row in data.task_pairs
    ]
    words = "".join(f"<p>{html_text(sentence)}</p>" for sentence in data.task_words)
    notes = footnote(data.task_pairs, ("difference", "process"))
    return f"<h3>Before and after training, on the same problems</h3>{table(columns, rows)}{notes}{words}"


def _marked(shown: str | None, row: Row, key: str) -> str | None:
    """With an asterisk where ``footnote`` explains one."""
    return f"{shown}*" if shown is not None and footnote((row,), (key,)) else shown


def _signed(value: float | None, low: float | None = None, high: float | None = None) -> str | None:
    """A process score (-1 to 1) or a difference of two, with its interval; None where no problem has a reference."""
    if value is None:
        return None
    shown = f"{value:+.2f}"
    return shown if low is None or high is None else f"{shown} ({low:+.2f} to {high:+.2f})"


def _points(row: Row, key: str) -> str | None:
    """A difference of shares in percentage points, with its interval."""
    value, low, high = row.get(key), row.get(f"{key}_low"), row.get(f"{key}_high")
    if value is None:
        return None
    shown = f"{100 * value:+.1f}"
    return shown if low is None or high is None else f"{shown} ({100 * low:+.1f} to {100 * high:+.1f})"


def _plain_points(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.1f}"
