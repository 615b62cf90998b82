"""Third-party texts of a trace on a page: long ones folded, answers of the shop's tools as compact tables."""

from __future__ import annotations

import html
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from trajectory_platform.escaping import escaped
from trajectory_platform.reports.escape import html_text

LONG_CHARS, LONG_LINES = 600, 14  # longer texts are folded
CAP_CHARS = 20_000  # of one text; what is beyond is counted, not shown
OPEN_ROWS = 5  # larger tables are folded
_MOST_ROWS, _MOST_COLUMNS = 200, 12
_CELL_CHARS, _HEAD_CHARS = 160, 90
_COLUMNS = (
    "product_id", "title", "price", "shop_id", "service", "sold_count", "short_description", "description",
    "sku_options", "attributes", "matched",
)  # fmt: skip
_NUMBERS = frozenset(("price", "sold_count"))


def text_html(text: str, kind: str = "") -> str:
    """A text of several lines as it is, every control character as its escape; a long one opens on a click.

    Args:
        kind: further class names.
    """
    shown = text[:CAP_CHARS]
    rest = f"\n[{len(text) - CAP_CHARS:,} more characters are left out]" if len(text) > CAP_CHARS else ""
    body = f'<pre class="said {kind}">{html.escape(escaped(shown, keep=chr(10) + chr(9)))}{rest}</pre>'
    if len(text) <= LONG_CHARS and text.count("\n") < LONG_LINES:
        return body
    head = html_text(text[:_HEAD_CHARS].strip())
    return f'<details class="long"><summary>{head}… <b>{len(text):,} characters</b></summary>{body}</details>'


def arguments_html(text: str) -> str:
    """Arguments of a call as names and values; what is no JSON object as text."""
    value = _value(text)
    if not isinstance(value, dict) or len(text) > LONG_CHARS:
        return text_html(text, "code") if text else '<span class="muted">no arguments</span>'
    if not value:
        return '<span class="muted">no arguments</span>'
    return '<span class="args">' + "".join(f"<span>{_named(key, value[key])}</span>" for key in value) + "</span>"


def result_html(text: str | None, *, chosen: Collection[str], wanted: Collection[str], folded: bool) -> str:
    """What a tool answered.

    Args:
        chosen: recommended product ids, marked in tables; ``wanted``: those of the reward.
        folded: True folds every table, whatever its size.
    """
    if text is None:
        return '<p class="muted">no answer</p>'
    rows = _rows(text)
    if rows is None:
        return text_html(text, "code") if text else '<p class="muted">an empty answer</p>'
    if not rows:
        return '<p class="muted">an empty list</p>'
    body = _table(rows, chosen, wanted)
    names = dict.fromkeys(str(row.get("product_id")) for row in rows)
    marked = " ".join(marks for name in names if (marks := _marks(name, chosen, wanted)))
    count = f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}"
    return (
        f'<details class="rows"{"" if folded or len(rows) > OPEN_ROWS else " open"}>'
        f"<summary>{count} {marked}</summary>{body}</details>"
    )


def ids_html(ids: Sequence[str], *, chosen: Collection[str] = (), wanted: Collection[str] = ()) -> str:
    """Product ids, the wanted ones marked; a dash where there are none."""
    if not ids:
        return '<span class="muted">none</span>'
    shown = (f"<code>{html_text(name, 60)}</code> {_marks(name, chosen, wanted)}" for name in ids[:_MOST_ROWS])
    return " ".join(shown)


def _marks(name: str, chosen: Collection[str], wanted: Collection[str]) -> str:
    marks = [("good", "wanted")] if name in wanted else []
    marks += [("chosen", "recommended")] if name in chosen else []
    return " ".join(f'<span class="mark {kind}">{word}</span>' for kind, word in marks)


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:  # no JSON, a lone surrogate, nested too deeply: shown as it is
        return None


def _rows(text: str) -> list[Mapping[str, Any]] | None:
    """An answer that is a list of objects of few columns; None for anything else, which is shown as text."""
    value = _value(text) if len(text) <= CAP_CHARS * 5 else None
    if isinstance(value, list) and all(isinstance(row, dict) for row in value) and len(value) <= _MOST_ROWS:
        columns = {key for row in value for key in row}
        return value if len(columns) <= _MOST_COLUMNS else None
    return None


def _table(rows: Sequence[Mapping[str, Any]], chosen: Collection[str], wanted: Collection[str]) -> str:
    present = {key for row in rows for key in row}
    names = [name for name in _COLUMNS if name in present] + sorted(present - set(_COLUMNS))
    head = "".join(f'<th scope="col"{_kind(name)}>{html_text(name, 40)}</th>' for name in names)
    body = []
    for row in rows:
        product = str(row.get("product_id"))
        marks = _marks(product, chosen, wanted)
        cells = "".join(
            f"<td{_kind(name)}>{_cell(row.get(name))}{f' {marks}' if marks and name == 'product_id' else ''}</td>"
            for name in names
        )
        body.append(f"<tr{' class=chosen' if product in chosen else ''}>{cells}</tr>")
    return (
        f'<div class="table" tabindex="0"><table class="products"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _kind(name: str) -> str:
    return ' class="number"' if name in _NUMBERS else ""


def _cell(value: Any) -> str:
    if value is None or value == "" or value == [] or value == {}:
        return '<span class="muted">–</span>'
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        text = ", ".join(value)
    else:
        text = value if isinstance(value, str) else _compact(value)
    if len(text) <= _CELL_CHARS:
        return html_text(text)
    return f'<details class="long"><summary>{html_text(text[:60])}…</summary>{html_text(text, CAP_CHARS)}</details>'


def _named(key: str, value: Any) -> str:
    text = value if isinstance(value, str) else _compact(value)
    return f"<i>{html_text(key, 40)}</i> {html_text(text) if text else '<span class=muted>empty</span>'}"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
