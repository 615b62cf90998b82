"""Tool calls as a model writes them, and the one form in which two calls are compared.

Models emit calls in many shapes (domain 1.7): ``<tool_call>`` with a JSON array or one object per block, native
``tool_calls`` with arguments as text or object, bare or fenced JSON, other key names. The end of a call is always
found by *parsing the JSON*, never by searching for the closing tag, because an argument may contain that tag as text.
Nothing is ever completed or invented: a call cut by the token limit is an error, not a call.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from trajectory_platform.errors import RejectRow
from trajectory_platform.traces.arguments import normalise_arguments
from trajectory_platform.traces.calls import (
    ARGUMENT_KEYS,
    MALFORMED_CALL,
    NAME_KEYS,
    TRUNCATED_CALL,
    ParsedCall,
    call_of,
    calls_of,
    parse_arguments,
)
from trajectory_platform.traces.literals import JsonText, balanced_end, read_literal, read_value

__all__ = ["ParsedCall", "ParsedReply", "call_of", "calls_of", "normalise_arguments", "parse_arguments", "parse_reply"]

TRUNCATED = "truncated"
_STRUCTURE = re.compile(r"<(tool_call|response)>")
_CALL_OPEN = re.compile("<tool_call>")
_FENCE = re.compile(r"```[A-Za-z_]*[ \t]*\r?\n?")
_MAX_DAMAGE = 50  # damaged calls after which a reply is not worth reading on; each costs a look at the whole text
_CALL_CLOSE = re.compile(r"\s*</tool_call>")


class ParsedReply(NamedTuple):
    """A model reply taken apart.

    Attributes:
        think: text of the leading think block, "" when there is none.
        calls: complete calls in order.
        response: text of ``<response>`` blocks.
        rest: remaining text; never holds call markup.
        error: None, ``truncated`` (think block never closed and no call follows), ``truncated_tool_call`` or
            ``malformed_tool_call``. Calls read before the damage are kept.
    """

    think: str
    calls: list[ParsedCall]
    response: str
    rest: str
    error: str | None


def parse_reply(content: str | None, native: Any = None) -> ParsedReply:
    """Take a reply apart, whatever the form of its calls (domain 1.7, cases A01 to A16).

    Args:
        content: text of the reply; None is the empty text (case A14).
        native: the message's ``tool_calls`` (or a legacy ``function_call`` object). Where it holds calls, calls
            written in the text are not counted a second time.

    Never raises for any content; damage is named in ``error``.
    """
    text = content if isinstance(content, str) else ""
    think, start, error = _split_think(text)
    tail = text[start:] if start else text
    if "<" not in tail and "{" not in tail and "[" not in tail:  # prose holds no markup
        calls, response, rest = [], "", tail.strip()
    else:
        reader = _TextReader(text, start)
        reader.read()
        calls, response, rest = reader.calls, "\n".join(reader.responses), "\n".join(reader.rest)
        error = reader.error or (None if calls else error)
    if native:
        native_calls, native_error = _native_calls(native)
        if native_calls or native_error:
            calls, error = native_calls, native_error or error
    return ParsedReply(think, calls, response, rest, error)


def _native_calls(native: Any) -> tuple[list[ParsedCall], str | None]:
    if isinstance(native, dict) and "name" not in native and "function" not in native:
        native = native.get("tool_calls", native)
    return calls_of(native)


def _split_think(text: str) -> tuple[str, int, str | None]:
    """(think, where the rest begins, error). Only a think tag at the very start counts (case A16)."""
    lead = len(text) - len(text.lstrip())
    if not text.startswith("<think>", lead):
        return "", 0, None
    inner = lead + len("<think>")
    close = text.find("</think>", inner)
    if close >= 0:
        return text[inner:close].strip(), close + len("</think>"), None
    # never closed: a readable call block ends it, else everything is thinking that the token limit cut
    for match in _STRUCTURE.finditer(text, inner):
        after = _skip_space(text, match.end())
        if match.group(1) == "response" or text[after : after + 1] in ("[", "{"):
            return text[inner : match.start()].strip(), match.start(), TRUNCATED
    return text[inner:].strip(), len(text), TRUNCATED


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


class _TextReader:
    """Walks the text after the think block once, from structural tag to structural tag."""

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.position = start
        self.calls: list[ParsedCall] = []
        self.responses: list[str] = []
        self.rest: list[str] = []
        self.error: str | None = None
        self.damage = 0

    def read(self) -> None:
        self._read_leading_calls()
        tagged = any(self._opens_call(match.end()) for match in _CALL_OPEN.finditer(self.text, self.position))
        plain = self.position
        for match in iter(lambda: _STRUCTURE.search(self.text, self.position), None):
            if match.group(1) == "tool_call" and not self._opens_call(match.end()):
                self.position = match.end()  # the tag as a word in prose
                continue
            self._read_plain(self.text[plain : match.start()], tagged)
            if match.group(1) == "tool_call":
                self._read_block(match.end())
            else:
                self._read_response(match.end())
                if not tagged:
                    self._read_leading_calls()
            plain = self.position
        self._read_plain(self.text[plain:], tagged)

    def _read_leading_calls(self) -> None:
        """Bare or fenced JSON where a stretch begins (domain 1.7, form 5). Read first: its texts may hold tags."""
        while True:
            start = _skip_space(self.text, self.position)
            fence = _FENCE.match(self.text, start)
            inner = _skip_space(self.text, fence.end()) if fence else start
            if self.text[inner : inner + 1] not in ("[", "{"):
                return
            calls, problem, end = _bare_calls(self.text, inner)
            if not calls and not problem:
                return
            self.calls.extend(calls)
            if problem:
                self._fail(problem)
            close = _skip_space(self.text, end)
            self.position = close + 3 if fence and self.text.startswith("```", close) else end

    def _opens_call(self, position: int) -> bool:
        after = _skip_space(self.text, position)
        return after >= len(self.text) or self.text[after] in '[{"' or self.text.startswith("</tool_call>", after)

    def _keep(self, piece: str) -> None:
        piece = piece.strip()
        if piece:
            self.rest.append(piece)

    def _fail(self, reason: str) -> None:
        self.error = self.error or reason
        self.damage += 1

    def _read_response(self, start: int) -> None:
        close = self.text.find("</response>", start)
        end = len(self.text) if close < 0 else close
        self.responses.append(self.text[start:end].strip())
        self.position = end if close < 0 else close + len("</response>")

    def _read_block(self, start: int) -> None:
        """Calls from ``start`` on: one value, or several written one after the other in the same block."""
        position = _skip_space(self.text, start)
        while position < len(self.text) and self.text[position] in '[{",':
            if self.text[position] == ",":
                position = _skip_space(self.text, position + 1)
                continue
            try:
                read = _value_at(self.text, position)
            except RejectRow as error:
                self._fail(error.reason)
                self.position = self._resume(position)
                return
            calls, problem = calls_of(read.value)
            if read.repairs:
                calls = [call._replace(repairs=(*read.repairs, *call.repairs)) for call in calls]
            self.calls.extend(calls)
            if problem:
                self._fail(problem)
            position = _skip_space(self.text, read.end)
        if position >= len(self.text) and position == _skip_space(self.text, start):
            self._fail(TRUNCATED_CALL)  # an opening tag and nothing behind it
        close = _CALL_CLOSE.match(self.text, position)
        self.position = close.end() if close else position

    def _resume(self, position: int) -> int:
        """Where to go on after damage: behind the damaged value when it has an end, else at the end of the text."""
        end = balanced_end(self.text, position) if self.damage < _MAX_DAMAGE else None
        if end is None:
            return len(self.text)
        close = _CALL_CLOSE.match(self.text, end)
        return close.end() if close else end

    def _read_plain(self, text: str, tagged: bool) -> None:
        """Text between tags. Where no tag opens a call anywhere, code fences may hold calls (form 5)."""
        plain = 0
        for match in () if tagged else _FENCE.finditer(text):
            if match.start() < plain or text[match.end() : match.end() + 1] not in ("[", "{"):
                continue
            calls, problem, end = _bare_calls(text, match.end())
            if not calls and not problem:
                self.damage += end == match.end()
                if end >= len(text) or self.damage > _MAX_DAMAGE:
                    break  # what never ends is not read again and again
                continue
            self.calls.extend(calls)
            if problem:
                self._fail(problem)
            self._keep(text[plain : match.start()])
            close = _skip_space(text, end)
            plain = close + 3 if text.startswith("```", close) else end
        self._keep(text[plain:])


def _bare_calls(text: str, start: int) -> tuple[list[ParsedCall], str | None, int]:
    """(calls, error, end) of untagged JSON. Without the tag only a value that *is* a call counts as one."""
    try:
        read = _value_at(text, start)
    except RejectRow as error:
        if error.reason != TRUNCATED_CALL:
            return [], None, start
        return [], (TRUNCATED_CALL if _looks_like_call(text[start : start + 200]) else None), len(text)
    items = read.value if isinstance(read.value, list) else [read.value]
    if not items or not all(isinstance(item, dict) and _has_call_keys(item) for item in items):
        return [], None, read.end
    calls, problem = calls_of(read.value)
    return [call._replace(repairs=(*read.repairs, *call.repairs)) for call in calls], problem, read.end


def _looks_like_call(head: str) -> bool:
    return any(f'"{key}"' in head for key in ("name", "tool", "function"))


def _has_call_keys(item: dict[str, Any]) -> bool:
    if isinstance(item.get("tool_calls"), list) or isinstance(item.get("function"), dict):
        return True
    return any(isinstance(item.get(key), str) for key in NAME_KEYS) and any(key in item for key in ARGUMENT_KEYS)


def _value_at(text: str, start: int) -> JsonText:
    """A JSON value (else a Python literal) that begins at ``start``; its own syntax says where it ends.

    Raises:
        RejectRow: ``truncated_tool_call`` when it never ends, ``malformed_tool_call`` when it cannot be read.
    """
    try:
        return read_value(text, start)
    except RejectRow as error:  # a key given twice with different values
        raise RejectRow(MALFORMED_CALL, str(error)) from error
    except ValueError as error:
        end = balanced_end(text, start)
        if end is None:
            raise RejectRow(TRUNCATED_CALL, text[start : start + 80]) from error
        try:
            literal = read_literal(text[start:end])
        except (ValueError, RejectRow):
            raise RejectRow(MALFORMED_CALL, text[start : start + 80]) from error
        return JsonText(literal.value, end, (*literal.repairs, "python_literal_arguments"))
