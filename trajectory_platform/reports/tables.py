"""Tables and small parts of the report page; every text passes through ``html_text``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trajectory_platform.reports.escape import html_text

Row = Mapping[str, Any]
Column = tuple[str, str, str]  # key, heading, kind: word (one line) | text (may wrap) | number | share | check


def table(columns: Sequence[Column], rows: Iterable[Row], foot: Row | None = None) -> str:
    """Rows by column; a missing value is a dash, ``foot`` a last row for totals."""
    heads = "".join(f'<th scope="col"{_cell_class(kind)}>{heading}</th>' for _, heading, kind in columns)
    body = "".join("<tr>" + "".join(_cell(row.get(key), kind) for key, _, kind in columns) + "</tr>" for row in rows)
    last = "".join(_cell(foot.get(key), kind) for key, _, kind in columns) if foot else ""
    footer = f"<tfoot><tr>{last}</tr></tfoot>" if foot else ""
    whole = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody>{footer}</table>"
    return f'<div class="table" tabindex="0">{whole}</div>'


def _cell_class(kind: str) -> str:
    return f' class="{kind}"' if kind in ("word", "text") else ' class="number"'


def _cell(value: Any, kind: str) -> str:
    if kind == "check":
        return '<td class="number ok">yes</td>' if value == 0 else f'<td class="number bad">no: {value:+,}</td>'
    if value is None:
        return f'<td{_cell_class(kind)}><span class="muted">–</span></td>'
    if kind == "share":
        return f'<td class="number">{value:.1%}</td>'
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


def with_interval(row: Row, key: str) -> str | None:
    """A share with its interval, from ``key``, ``key_low`` and ``key_high``."""
    value, low, high = row.get(key), row.get(f"{key}_low"), row.get(f"{key}_high")
    if value is None:
        return None
    return f"{value:.1%}" if low is None or high is None else f"{value:.1%} ({low:.1%} to {high:.1%})"
