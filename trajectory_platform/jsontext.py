"""JSON text in and out, strictly: one reading for every part of the platform.

Three of the silent faults of the field are closed here. A key given twice with different values is refused (case A21),
non-finite numbers become null and are counted (case A19), lone surrogates become U+FFFD and are counted (case A17).
Integers keep every digit (case G04). Nothing written by this module is refused by a strict reader.
"""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any, NamedTuple

import orjson

from trajectory_platform.errors import RejectRow

NON_FINITE = "non_finite_number"
LONE_SURROGATE = "lone_surrogate"
REPEATED_KEY = "repeated_key"

_SURROGATE = re.compile("[\ud800-\udfff]")
_BRACKETS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_DIGITS = bytes(ord("0") if chr(code) in "0123456789" else ord("x") for code in range(256))
_INDENTED_BYTES = 1 << 18  # above this, indentation could take more memory than it saves time
_LONG_NUMBER = b"0" * 19  # orjson turns integers beyond 64 bits into floats
_UNICODE_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class ParsedJson(NamedTuple):
    """A JSON value and what was repaired to read it: reason -> count."""

    value: Any
    repairs: dict[str, int]


def parse(data: bytes, *, max_depth: int = 100) -> ParsedJson:
    """One JSON value that fills the bytes, read strictly.

    ``NaN``, ``Infinity`` and ``1e999`` become None (``non_finite_number``), lone surrogates U+FFFD
    (``lone_surrogate``), a key repeated with an equal value is read once (``repeated_key``). Integers are exact.

    Raises:
        RejectRow: ``not_json``, ``truncated_json`` (the text ends inside the value), ``duplicate_key``,
            ``too_deep``, ``bad_encoding`` (no UTF-8), ``nul_bytes``, ``number_too_long``.
    """
    try:
        value = orjson.loads(data)
    except ValueError:
        return _parse_odd(data, max_depth)
    if _is_odd(data, value, max_depth):
        return _parse_odd(data, max_depth)
    return ParsedJson(value, {})


def dumps(value: Any) -> str:
    """Compact JSON text in insertion order; NaN is null, lone surrogates are U+FFFD.

    Raises:
        TypeError: for a value that JSON has no form for.
        RejectRow: ``too_deep`` for nesting beyond the interpreter's limit (several hundred levels).
    """
    return _write(value, sort=False)


def dumps_line(value: Any) -> str:
    """``dumps`` for one line of a JSON-lines file: also safe for readers that split at Unicode line ends."""
    return dumps(value).translate(_UNICODE_LINE_ENDS)


def canonical(value: Any) -> str:
    """Compact JSON text with sorted keys: equal values give equal text, 1, 1.5 and "1" stay what they are.

    Raises:
        TypeError, RejectRow: as ``dumps``.
    """
    return _write(value, sort=True)


def _write(value: Any, *, sort: bool) -> str:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort else None).decode()
    except TypeError:  # integers beyond 64 bits, lone surrogates, more than 254 levels
        try:
            repaired = _repair(value, {})
            return json.dumps(repaired, sort_keys=sort, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        except RecursionError as error:
            raise RejectRow("too_deep", "nested beyond the interpreter's limit") from error


def _structure(data: bytes) -> bytes:
    """The bytes outside of strings. Exact for valid JSON: there every backslash is inside a string."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(data.split(b'"')[::2])


def _depth(structure: bytes) -> int:
    steps = structure.translate(_BRACKETS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)


def _is_odd(data: bytes, value: Any, max_depth: int) -> bool:
    """Whether the slow reader has to look at ``data``; False only when ``value`` is exactly what it says.

    Three cheap tests instead of a walk in Python. A key that was dropped because it is repeated takes its colon with
    it, so the value written again has fewer colons than its source (an escaped colon could hide that). Each level
    of nesting indents a line by two blanks. Integers beyond 64 bits have at least 19 digits.
    """
    if b"\\u003" in data or _LONG_NUMBER in data.translate(_DIGITS):
        return True
    large = len(data) > _INDENTED_BYTES
    if large and _depth(_structure(data)) > max_depth:
        return True
    try:
        written = orjson.dumps(value, option=None if large else orjson.OPT_INDENT_2)
    except TypeError:  # more than 254 levels
        return True
    return data.count(b":") != written.count(b":") or (not large and b"\n" + b"  " * max_depth in written)


def _parse_odd(data: bytes, max_depth: int) -> ParsedJson:
    """The slow reader: exact integers, pairs of every object, tokens that are no JSON."""
    repairs: dict[str, int] = {}
    text = _decode(data)
    if _depth(_structure(data)) > max_depth:
        raise RejectRow("too_deep", f"nested more than {max_depth} levels")

    def count(reason: str) -> None:
        repairs[reason] = repairs.get(reason, 0) + 1

    def non_finite(_token: str) -> None:
        count(NON_FINITE)

    def number(token: str) -> float | None:
        value = float(token)
        if math.isfinite(value):
            return value
        count(NON_FINITE)
        return None

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            _compare_repeated(pairs)
            repairs[REPEATED_KEY] = repairs.get(REPEATED_KEY, 0) + len(pairs) - len(result)
        return result

    decoder = json.JSONDecoder(object_pairs_hook=members, parse_float=number, parse_constant=non_finite)
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise RejectRow(_damage(data, text, error), f"{error.msg} at character {error.pos} of {len(text)}") from error
    except RecursionError as error:
        raise RejectRow("too_deep", "nested beyond the interpreter's limit") from error
    except ValueError as error:
        raise RejectRow("number_too_long", str(error)[:120]) from error
    if _SURROGATE.search(text) or "\\ud" in text.lower():
        value = _repair(value, repairs)
    return ParsedJson(value, repairs)


def _decode(data: bytes) -> str:
    """UTF-8 text; encoded surrogates, which orjson refuses, are let through for :func:`_repair`."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            reason = "nul_bytes" if data[:1] == b"\x00" else "bad_encoding"
            raise RejectRow(reason, f"no UTF-8 at byte {error.start} of {len(data)}") from error


def _damage(data: bytes, text: str, error: json.JSONDecodeError) -> str:
    if b"\x00" in data:
        return "nul_bytes"
    cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
    return "truncated_json" if cut and text.strip() else "not_json"


def _compare_repeated(pairs: list[tuple[str, Any]]) -> None:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen and canonical(seen[key]) != canonical(value):
            raise RejectRow("duplicate_key", f"{key[:80]!a} has different values in one object")
        seen[key] = value


def _repair(value: Any, repairs: dict[str, int]) -> Any:
    """A copy without lone surrogates and non-finite floats; counts what was replaced.

    Raises:
        RejectRow: ``duplicate_key`` when two keys differ only in what had to be replaced.
    """
    if isinstance(value, str):
        fixed, found = _SURROGATE.subn("\ufffd", value)
        if found:
            repairs[LONE_SURROGATE] = repairs.get(LONE_SURROGATE, 0) + found
        return fixed
    if isinstance(value, float) and not math.isfinite(value):
        repairs[NON_FINITE] = repairs.get(NON_FINITE, 0) + 1
        return None
    if isinstance(value, dict):
        items = {_repair(key, repairs): _repair(item, repairs) for key, item in value.items()}
        if len(items) != len(value):
            raise RejectRow("duplicate_key", "two keys of one object differ only in lone surrogates")
        return items
    if isinstance(value, list | tuple):
        return [_repair(item, repairs) for item in value]
    return value
