"""The stages of training side by side, as a table above the details of each."""

from __future__ import annotations

from collections.abc import Sequence

from trajectory_platform.reports.tables import Column, Row, table, with_interval


def stages_table(rows: Sequence[Row]) -> str:
    """What each stage of a run solves on the same problems, and what it added (``stages.stage_table``); "" without
    any. pass@1 is the success rate, so a column of it alone is left out."""
    if not rows:
        return ""
    ks = sorted({k for row in rows for k, value in row.get("pass_at", {}).items() if value is not None})
    ks = [] if ks == [1] else ks
    columns: list[Column] = [
        ("stage", "stage", "word"),
        ("success_shown", "success (interval)", "word"),
        ("gain", "points on the stage before (interval)", "word"),
        ("seen", "sees above", "word"),
        ("clusters", "evaluable clusters", "number"),
        ("excluded", "contaminated, left out", "number"),
        *((f"pass_{k}", f"pass@{k}", "share") for k in ks),
        ("process_shown", "process score", "word"),
        ("hallucinated", "hallucinated ids", "share"),
        ("truncated", "cut by a limit", "share"),
        ("traces", "traces", "number"),
        ("remark", "remark", "text"),
    ]
    shown = [_row(row, ks) for row in rows]
    return table(
        [one for one in columns if one[0] == "stage" or any(row.get(one[0]) not in (None, "") for row in shown)], shown
    )


def _row(row: Row, ks: list[int]) -> Row:
    if "success" not in row:
        return {"stage": row["stage"], "traces": row.get("traces"), "remark": _why_nothing(row)}
    process = row.get("process")
    return {
        **row,
        **{f"pass_{k}": row["pass_at"].get(k) for k in ks},
        "success_shown": with_interval(row, "success"),
        "process_shown": None if process is None else f"{process:+.2f}" + _between(row, "process", 1.0, "+.2f"),
        "gain": _gain(row),
        "seen": None if row.get("detectable") is None else f"{100 * row['detectable']:.1f}",
        "remark": "too few to conclude from" if row.get("thin") else "",
    }


def _why_nothing(row: Row) -> str:
    state = str(row["state"]).replace("_", " ")
    return f"{state}: {str(row['reason']).replace('_', ' ')}" if row.get("reason") else state


def _gain(row: Row) -> str | None:
    value = row.get("difference")
    return None if value is None else f"{100 * value:+.1f}" + _between(row, "difference", 100.0, "+.1f")


def _between(row: Row, name: str, scale: float, form: str) -> str:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return "" if low is None or high is None else f" ({low * scale:{form}} to {high * scale:{form}})"
