"""The stages of training side by side, as a table above the details of each."""

from __future__ import annotations

from collections.abc import Sequence

from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.tables import Column, Row, footnote, table, thin_remark, with_interval


def stages_table(rows: Sequence[Row]) -> str:
    """What each stage of a run solves on the same problems and what it added, then how it went about it
    (``stages.stage_table``); "" without any. pass@1 is the success rate, so a column of it alone is left out.

    Two tables, whose headings and intervals wrap: one of all columns is wider than a page.
    """
    if not rows:
        return ""
    ks = sorted({k for row in rows for k, value in row.get("pass_at", {}).items() if value is not None})
    ks = [] if ks == [1] else ks
    scores: list[Column] = [
        ("success_shown", "success (interval)", "html"),
        ("gain", "points on the stage before (interval)", "html"),
        ("seen", "sees above", "word"),
        ("clusters", "evaluable clusters", "number"),
        *((f"pass_{k}", f"pass@{k}", "share") for k in ks),
        ("process_shown", "process score", "html"),
        ("remark", "remark", "text"),
    ]
    conduct: list[Column] = [
        ("hallucinated", "attempts with hallucinated ids", "share"),
        ("truncated", "attempts cut by a limit", "share"),
        ("excluded", "problems left out as contaminated", "number"),
        ("traces", "traces it was trained on", "number"),
    ]
    shown = [_row(row, ks) for row in rows]
    parts = [_filled(columns, shown) for columns in (scores, conduct)]
    notes = footnote(rows, ("success", "process", "difference"))
    return f'<div class="stages">{parts[0]}{notes}{parts[1]}</div>'


def _filled(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """A table of the columns that hold something, behind the names of the stages; "" where none does."""
    kept = [one for one in columns if any(row.get(one[0]) not in (None, "") for row in rows)]
    return table([("stage", "stage", "word"), *kept], rows) if kept else ""


def _row(row: Row, ks: list[int]) -> Row:
    if "success" not in row:
        return {"stage": row["stage"], "traces": row.get("traces"), "remark": _why_nothing(row)}
    process = row.get("process")
    return {
        **row,
        **{f"pass_{k}": row["pass_at"].get(k) for k in ks},
        "success_shown": _wrapping(with_interval(row, "success")),
        "process_shown": _wrapping(
            None if process is None else f"{process:+.2f}" + _between(row, "process", 1.0, "+.2f")
        ),
        "gain": _wrapping(_gain(row)),
        "seen": None if row.get("detectable") is None else f"{100 * row['detectable']:.1f}",
        "remark": thin_remark(row),
    }


def _wrapping(shown: str | None) -> str | None:
    """HTML of a value with its interval that may only break between the two."""
    if shown is None:
        return None
    value, bracket, rest = shown.partition(" (")
    return f"<span>{html_text(value)}</span>" + (f" <span>({html_text(rest)}</span>" if bracket else "")


def _why_nothing(row: Row) -> str:
    state = str(row["state"]).replace("_", " ")
    return f"{state}: {str(row['reason']).replace('_', ' ')}" if row.get("reason") else state


def _gain(row: Row) -> str | None:
    value = row.get("difference")
    return None if value is None else f"{100 * value:+.1f}" + _between(row, "difference", 100.0, "+.1f")


def _between(row: Row, name: str, scale: float, form: str) -> str:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    mark = "*" if row.get(f"{name}_note") else ""
    return "" if low is None or high is None else f" ({low * scale:{form}} to {high * scale:{form}}){mark}"
