"""One JSON value, or one Python literal, at a given place in a text.

The value's own syntax says where it ends, so text around it, a closing tag inside a string or a cut at the token limit
cannot mislead. Nothing is evaluated: Python literals are read from the syntax tree.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from typing import Any, NamedTuple

from trajectory_platform.errors import RejectRow

_BRACKET = re.compile(r"""["'\[\]{}()]""")
_STRING_END = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*{quote}", re.DOTALL) for quote in "\"'"}
_CLOSES = {"[": "]", "{": "}", "(": ")"}
_HUGE = re.compile(r"[eE]\+?\d{3}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORDS = {"true": True, "false": False, "null": None}
_MAX_LITERAL = 100_000  # characters; the syntax-tree parser is slow and needs memory


class JsonText(NamedTuple):
    """A value read from a text: ``end`` is the offset behind it, ``repairs`` the reasons of what was mended."""

    value: Any
    end: int
    repairs: tuple[str, ...]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen and (type(seen[key]) is not type(value) or seen[key] != value):
                raise RejectRow("duplicate_key", key[:80])
            seen[key] = value
    return result


_DECODER = json.JSONDecoder(object_pairs_hook=_object, strict=False)


def read_value(text: str, start: int) -> JsonText:
    """The JSON value that begins at ``start``; raw control characters inside strings are accepted.

    NaN, Infinity and 1e999 become None (``non_finite_number``), lone surrogates U+FFFD (``lone_surrogate``).

    Raises:
        ValueError: no JSON value begins here, or it is nested too deep.
        RejectRow: ``duplicate_key``: one object holds a key twice with different values (case A21).
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not text.isascii() or _may_need_cleaning(text, start, end):
        repairs: set[str] = set()
        try:
            value = _clean(value, repairs)
        except RecursionError as error:  # the walk here needs more of the stack than the decoder
            raise ValueError("nested too deep") from error
        return JsonText(value, end, tuple(sorted(repairs)))
    return JsonText(value, end, ())


def _may_need_cleaning(text: str, start: int, end: int) -> bool:
    """Whether the JSON text of a value may hold a lone surrogate or a number that is not finite."""
    if any(text.find(mark, start, end) >= 0 for mark in ("\\u", "NaN", "Infinity")):
        return True
    return _HUGE.search(text, start, end) is not None


def read_literal(text: str) -> JsonText:
    """A Python literal that fills the text: dict, list, tuple, text, number, True/False/None (case A06).

    Raises:
        ValueError: anything else; sets, bytes and complex numbers have no JSON form.
        RejectRow: ``duplicate_key``.
    """
    if len(text) > _MAX_LITERAL:
        raise ValueError("too long for a Python literal")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in third-party text are not our business
            value = _from_node(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise ValueError("no Python literal") from error
    repairs: set[str] = set()
    return JsonText(_clean(value, repairs), len(text), tuple(sorted(repairs)))


def _from_node(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and (node.value is None or type(node.value) in (str, int, float, bool)):
        return node.value
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_from_node(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        pairs = []
        for key, value in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                raise ValueError("only text keys have a JSON form")
            pairs.append((key.value, _from_node(value)))
        return _object(pairs)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _from_node(node.operand)
        if type(number) in (int, float):
            return -number
    raise ValueError(f"{type(node).__name__} has no JSON form")


def _clean(value: Any, repairs: set[str]) -> Any:
    if isinstance(value, str):
        if _SURROGATE.search(value):
            repairs.add("lone_surrogate")
            return _SURROGATE.sub("\ufffd", value)
        return value
    if isinstance(value, float) and not math.isfinite(value):
        repairs.add("non_finite_number")
        return None
    if isinstance(value, dict):
        return {_clean(key, repairs): _clean(item, repairs) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, repairs) for item in value]
    return value


def balanced_end(text: str, start: int) -> int | None:
    """Offset behind the bracket that closes the one at ``start``, or None when it is never closed.

    Brackets inside quoted text do not count. For text that is no valid JSON this is the best notion of an end.
    """
    stack: list[str] = []
    position = start
    while match := _BRACKET.search(text, position):
        mark = match.group()
        position = match.end()
        if mark in "\"'":
            closed = _STRING_END[mark].match(text, position)
            if closed is None:
                return None
            position = closed.end()
            if not stack:
                return position
        elif mark in _CLOSES:
            stack.append(_CLOSES[mark])
        elif not stack or stack.pop() != mark:
            return position if not stack else None
        elif not stack:
            return position
    return None


def finite_number(value: Any) -> float | None:
    """A JSON number as float; None for everything else, booleans, NaN and integers beyond a float included."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
