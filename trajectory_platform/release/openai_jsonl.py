"""OpenAI's fine-tuning JSONL, and beside it what that format cannot carry.

One line per row in ``{split}.jsonl``: messages, tool definitions, calls (several in one turn where there were several)
with ``arguments`` as JSON text. Left out of the line, kept in the row of ``{split}.side.jsonl`` at the same place:

* everything about the row (id, cluster, pool, filter version, uses, quality, ...);
* ``reasoning_content``, and ``name`` of tool messages: the format has no such fields;
* what follows the last assistant message (the result of ``terminate``): a line must end with the assistant, and
  nothing behind it is trained on;
* an empty list of tools, which the format refuses;
* a whole row with a call whose name the format does not allow: it has a side row and no line.

A side row says how the text of messages and tools is made again from its line. That is tried when it is written; where
it would not give every byte, the side row holds the text itself. So the way back is exact for every row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.identity import sha256_hex
from trajectory_platform.release.rows import COLUMNS, MAX_TEXT_BYTES, MAX_VALUE_BYTES, Row, SetAside

NOT_CARRIED = ("reasoning_content", "name")  # fields of a message
_ORDER = {
    "assistant": ("role", "content", "reasoning_content", "tool_calls"),
    "tool": ("role", "tool_call_id", "name", "content"),
}
_FUNCTION = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_LINE = 4 * MAX_TEXT_BYTES + 32 * MAX_VALUE_BYTES  # bytes; characters may be written as escapes
_FACTS = tuple(name for name in COLUMNS if name not in ("messages", "tools"))


class Pair(NamedTuple):
    """One row on its way out: the line of the training file (None: the format cannot carry it) and its side row."""

    line: str | None
    side: Row


def pair_of(row: Mapping[str, Any]) -> Pair:
    """Line and side row of an exported row (``rows.COLUMNS``); ``row_of`` gives the row back, byte for byte."""
    messages = jsontext.parse(row["messages"].encode()).value
    tools = jsontext.parse(row["tools"].encode()).value
    side: Row = {"row": {name: row[name] for name in _FACTS}}
    if not _carried(messages, tools):
        return Pair(None, {**side, "line": None, "messages": row["messages"], "tools": row["tools"]})
    last = max(place for place, message in enumerate(messages) if message["role"] == "assistant")
    left: list[Row] = []
    kept = []
    for place, message in enumerate(messages[: last + 1]):
        own = {name: message[name] for name in _left_out(message)}
        if own:
            left.append({"message": place, **own})
        kept.append({name: value for name, value in message.items() if name not in own})
    line: Row = {"messages": kept}
    if tools:
        line |= {"tools": tools, "parallel_tool_calls": True}
    text = jsontext.dumps_line(line)
    side |= {"line": sha256_hex(text.encode()), "left_out": left, "after": messages[last + 1 :]}
    again = _texts_of(jsontext.parse(text.encode()).value, side)
    for name, value in zip(("messages", "tools"), again, strict=True):
        if value != row[name]:
            side[name] = row[name]
    return Pair(text, side)


def row_of(line: bytes | None, side: Any) -> Row:
    """The exported row of a line and its side row.

    Args:
        line: without its line end; None where the side row says that there is none.
        side: the parsed side row.

    Raises:
        RejectRow: ``bad_side_row``, ``line_differs`` (not the line that the side row was written with), or what the
            strict JSON reader says.
    """
    if not isinstance(side, dict) or not isinstance(side.get("row"), dict) or "line" not in side:
        raise RejectRow("bad_side_row", "expected an object with row and line")
    texts: dict[str, Any] = {name: side[name] for name in ("messages", "tools") if name in side}
    if line is not None:
        if sha256_hex(line) != side["line"]:
            raise RejectRow("line_differs", "the line was changed since its side row was written")
        if len(texts) < 2:
            made = _texts_of(jsontext.parse(line).value, side)
            texts = {**dict(zip(("messages", "tools"), made, strict=True)), **texts}
    if len(texts) < 2 or not texts.keys().isdisjoint(side["row"]):
        raise RejectRow("bad_side_row", "messages and tools must come from the line or from the side row")
    return {**side["row"], **texts}


def read_pairs(lines: Path, sides: Path, names: tuple[str, str]) -> Iterator[tuple[int, Row | SetAside]]:
    """(0-based place in the side file, row) of a training file and its side file.

    Lines are taken in order by the side rows that say they have one, and bound to them by their digest. A side row
    that cannot be read takes a line with it, as nearly every side row has one.
    """
    waiting = _lines(lines, names[0])
    place = -1
    for place, raw in _lines(sides, names[1]):
        if isinstance(raw, SetAside):
            next(waiting, None)
            yield place, raw
            continue
        try:
            side = _side(raw, waiting)
            yield place, row_of(_next(waiting) if side.get("line") is not None else None, side)
        except RejectRow as error:
            yield place, SetAside(names[1], place, error.reason, error.detail)
    for number, _ in waiting:
        yield place, SetAside(names[0], number, "no_side_row", "a line that no side row belongs to")


def _side(raw: bytes, waiting: Iterator[Any]) -> Row:
    try:
        side = jsontext.parse(raw).value
        if not isinstance(side, dict):
            raise RejectRow("bad_side_row", "expected an object")
    except RejectRow:
        next(waiting, None)
        raise
    return side


def _next(waiting: Iterator[tuple[int, bytes | SetAside]]) -> bytes:
    _, raw = next(waiting, (0, None))
    if raw is None:
        raise RejectRow("no_line", "the side row has no line in the training file")
    if isinstance(raw, SetAside):
        raise RejectRow(raw.reason, raw.detail)
    return raw


def _lines(path: Path, name: str) -> Iterator[tuple[int, bytes | SetAside]]:
    """Lines without their ends; one that is longer than any row can be is set aside unread."""
    with path.open("rb") as stream:
        number = 0
        while raw := stream.readline(_MAX_LINE + 1):
            if len(raw) > _MAX_LINE:
                while raw and not raw.endswith(b"\n"):
                    raw = stream.readline(_MAX_LINE)
                yield number, SetAside(name, number, "too_large", f"a line of more than {_MAX_LINE} bytes")
            else:
                yield number, raw.removesuffix(b"\n")
            number += 1


def _carried(messages: list[Row], tools: list[Row]) -> bool:
    names = [call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()]
    for tool in tools:
        function = tool.get("function")
        names.append(function.get("name") if isinstance(function, dict) else None)
    return all(isinstance(name, str) and _FUNCTION.fullmatch(name) for name in names)


def _left_out(message: Row) -> list[str]:
    names = [name for name in NOT_CARRIED if name in message]
    return [*names, "tool_calls"] if message.get("tool_calls", ...) in ([], None) else names


def _texts_of(line: Any, side: Mapping[str, Any]) -> tuple[str, str]:
    """JSON text of messages and tools, made from a line and the parts that its side row kept."""
    messages = line.get("messages") if isinstance(line, dict) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise RejectRow("bad_messages", "the line has no list of messages")
    left, after = side.get("left_out", []), side.get("after", [])
    if not isinstance(left, list) or not isinstance(after, list):
        raise RejectRow("bad_side_row", "left_out and after are lists")
    whole = [dict(message) for message in messages]
    for part in left:
        place = part.get("message") if isinstance(part, dict) else None
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(whole):
            raise RejectRow("bad_side_row", "left_out names a message that is not in the line")
        whole[place] |= {name: value for name, value in part.items() if name != "message"}
    ordered = [_ordered(message) for message in whole]
    return jsontext.dumps([*ordered, *after]), jsontext.dumps(line.get("tools", []))


def _ordered(message: Row) -> Row:
    """A message with its fields in the order in which the readers write them."""
    order = _ORDER.get(str(message.get("role")), ())
    return {**{name: message[name] for name in order if name in message}, **message}
