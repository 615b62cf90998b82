"""Tables and small parts of the report page; every text passes through ``html_text``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trajectory_platform.reports.escape import html_text

Row = Mapping[str, Any]
# key, heading, kind: word (one line) | text (may wrap) | number | float (one decimal) | money | share | check |
# html (escaped by the caller)
Column = tuple[str, str, str]


def table(columns: Sequence[Column], rows: Iterable[Row], foot: Row | None = None) -> str:
    """Rows by column; a missing value is a dash, ``foot`` a last row for totals."""
    heads = "".join(f'<th scope="col"{_cell_class(kind)}>{heading}</th>' for _, heading, kind in columns)
    body = "".join("<tr>" + "".join(_cell(row.get(key), kind) for key, _, kind in columns) + "</tr>" for row in rows)
    last = "".join(_cell(foot.get(key), kind) for key, _, kind in columns) if foot else ""
    footer = f"<tfoot><tr>{last}</tr></tfoot>" if foot else ""
    whole = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody>{footer}</table>"
    return f'<div class="table" tabindex="0">{whole}</div>'


def _cell_class(kind: str) -> str:
    if kind == "html":
        return ' class="text"'
    return f' class="{kind}"' if kind in ("word", "text") else ' class="number"'


def _cell(value: Any, kind: str) -> str:
    if kind == "check":
        return '<td class="number ok">yes</td>' if value == 0 else f'<td class="number bad">no: {value:+,}</td>'
    if value is None:
        return f'<td{_cell_class(kind)}><span class="muted">–</span></td>'
    if kind == "html":
        return f'<td class="text">{value}</td>'
    if kind == "share":
        return f'<td class="number">{value:.1%}</td>'
    if kind == "float":
        return f'<td class="number">{value:,.1f}</td>'
    if kind == "money":
        return f'<td class="number">{value:,.{4 if 0 < value < 1 else 2}f}</td>'
    if kind == "number":
        return f'<td class="number">{value:,}</td>'
    if isinstance(value, list | tuple):
        value = ", ".join(str(item) for item in value)
    return f"<td{_cell_class(kind)}>{html_text(value, 80 if kind == 'word' else 400)}</td>"


def nothing(what: str) -> str:
    """In place of a part that is empty: why."""
    return f'<p class="muted">Nothing to show: {what}.</p>'


def folded(title: str, body: str) -> str:
    """A part that opens on a click."""
    return f"<details><summary>{title}</summary>{body}</details>"


def thin_remark(row: Row) -> str:
    """What is said beside a row of too few clusters."""
    return "too few to conclude from" if row.get("thin") else ""


def with_interval(row: Row, key: str) -> str | None:
    """A share with its interval, from ``key``, ``key_low`` and ``key_high``; an asterisk where ``key_note`` is set."""
    value, low, high = row.get(key), row.get(f"{key}_low"), row.get(f"{key}_high")
    if value is None:
        return None
    if low is None or high is None:
        return f"{value:.1%}"
    return f"{value:.1%} ({low:.1%} to {high:.1%}){'*' if row.get(f'{key}_note') else ''}"


def footnote(rows: Iterable[Row], keys: Sequence[str]) -> str:
    """What the asterisks of ``with_interval`` mean; "" where none of these rows has one."""
    notes = {
        str(row[f"{key}_note"])
        for row in rows
        for key in keys
        if row.get(f"{key}_note") and None not in (row.get(key), row.get(f"{key}_low"), row.get(f"{key}_high"))
    }
    return "".join(f'<p class="muted">* {html_text(note)}</p>' for note in sorted(notes))
