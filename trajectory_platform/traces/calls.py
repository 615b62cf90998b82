"""One tool call in any of its spellings, and its arguments as an object (domain 1.7, forms 2 to 4).

Nothing is completed or invented: arguments cut by the token limit are an error, not arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from trajectory_platform.errors import RejectRow
from trajectory_platform.jsontext import canonical, parse
from trajectory_platform.traces.arguments import normalise_arguments
from trajectory_platform.traces.literals import JsonText, balanced_end, read_literal, read_value

TRUNCATED_CALL = "truncated_tool_call"
MALFORMED_CALL = "malformed_tool_call"

_MAX_ENCODINGS = 3  # case A03: JSON text inside JSON text, decoded at most this often
_FORM_DEPTH = 1_000  # of arguments that are compared; deeper ones compare with nothing
_KEPT_LENGTH = 512  # characters of arguments whose form is remembered; code and pasted pages are not
NAME_KEYS = ("name", "tool", "tool_name", "function")
ARGUMENT_KEYS = ("arguments", "parameters", "args")


class ParsedCall(NamedTuple):
    """One call.

    Attributes:
        name: tool name as written.
        arguments: decoded object; non-finite numbers are None.
        arguments_text: canonical JSON text of ``arguments`` (sorted keys, no spaces).
        repairs: reasons of what was repaired on the way (``empty_arguments``, ``double_encoded_arguments``,
            ``python_literal_arguments``, ``non_finite_number``, ``call_as_text``, ``tool_call_not_list``).
        call_id: the id the model or the API gave it, or None.
    """

    name: str
    arguments: dict[str, Any]
    arguments_text: str
    repairs: tuple[str, ...]
    call_id: str | None


def parse_arguments(value: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Arguments of one call as an object, with the repairs it took (cases A01, A03, A05, A06).

    Strict JSON is tried first and a Python literal (never evaluated) only afterwards, so an apostrophe inside valid
    JSON survives. JSON text inside JSON text is decoded at most three times.

    Raises:
        RejectRow: ``truncated_arguments``, ``malformed_arguments``, ``duplicate_key`` or ``arguments_not_object``.
    """
    repairs: list[str] = []
    for level in range(_MAX_ENCODINGS + 1):
        if isinstance(value, dict):
            return value, tuple(dict.fromkeys(repairs))
        if value is None or (isinstance(value, str) and not value.strip()):
            return {}, (*repairs, "empty_arguments")
        if not isinstance(value, str):
            if isinstance(value, Mapping):
                return dict(value), tuple(dict.fromkeys(repairs))
            raise RejectRow("arguments_not_object", type(value).__name__)
        if level == _MAX_ENCODINGS:
            break
        if level:
            repairs.append("double_encoded_arguments")
        read = read_whole(value)
        repairs.extend(read.repairs)
        value = read.value
    raise RejectRow("arguments_not_object", f"still text after {_MAX_ENCODINGS} decodings")


def read_whole(text: str) -> JsonText:
    """One JSON value (or, failing that, one Python literal) that fills the whole text.

    Raises:
        RejectRow: ``truncated_arguments``, ``malformed_arguments`` or ``duplicate_key``.
    """
    stripped = text.strip()
    try:
        read = read_value(stripped, 0)
        if read.end == len(stripped):
            return read
    except ValueError as error:
        if stripped[:1] in "[{" and balanced_end(stripped, 0) is None:
            raise RejectRow("truncated_arguments", stripped[:80]) from error
    try:
        literal = read_literal(stripped)
    except ValueError as error:
        raise RejectRow("malformed_arguments", stripped[:80]) from error
    return JsonText(literal.value, len(stripped), (*literal.repairs, "python_literal_arguments"))


def call_of(item: Any) -> ParsedCall:
    """One call object of any known key spelling as a ParsedCall.

    Raises:
        RejectRow: ``malformed_tool_call`` (no name, arguments that cannot be read) or ``truncated_tool_call``.
    """
    repairs: list[str] = []
    if isinstance(item, str):
        item = read_whole_call(item)
        repairs.append("call_as_text")
    if not isinstance(item, dict):
        raise RejectRow(MALFORMED_CALL, f"a call is an object, not {type(item).__name__}")
    function = item.get("function")
    body: dict[str, Any] = function if isinstance(function, dict) else item
    name = _first(body, NAME_KEYS)
    if not isinstance(name, str) or not name.strip():
        raise RejectRow(MALFORMED_CALL, "a call without a name")
    raw = _first(body, ARGUMENT_KEYS)
    try:
        arguments, more = parse_arguments(raw)
        arguments_text = canonical(arguments)
    except RejectRow as error:
        reason = TRUNCATED_CALL if error.reason == "truncated_arguments" else MALFORMED_CALL
        raise RejectRow(reason, str(error)) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise RejectRow(MALFORMED_CALL, f"arguments that are no JSON: {type(error).__name__}") from error
    call_id = item.get("id", item.get("tool_call_id"))
    return ParsedCall(
        name.strip(),
        arguments,
        arguments_text,
        (*repairs, *more),
        call_id if isinstance(call_id, str) and call_id else None,
    )


def comparison_form(tool: str, text: str) -> str | None:
    """Comparison form (``traces.arguments``) of arguments given as JSON text; None where they are no JSON object.

    Integers of any length stay exact. Every stage of the filter asks for the same calls, and agents repeat theirs.
    """
    return _kept_form(tool, text) if len(text) <= _KEPT_LENGTH else _form_of_text(tool, text)


@lru_cache(maxsize=1 << 12)
def _kept_form(tool: str, text: str) -> str | None:
    return _form_of_text(tool, text)


def _form_of_text(tool: str, text: str) -> str | None:
    data = text.encode("utf-8", "surrogatepass")
    try:
        value = orjson.loads(data)
        exact = orjson.dumps(value, option=orjson.OPT_SORT_KEYS) == data  # canonical text, as the readers write it
    except (ValueError, TypeError):
        exact = False
    if not exact:
        try:
            value = parse(data, max_depth=_FORM_DEPTH).value
        except RejectRow:
            return None
    return normalise_arguments(tool, value) if isinstance(value, dict) else None


def _first(body: dict[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        if key in body:
            return body[key]
    return None


def read_whole_call(text: str) -> Any:
    """A call stored as text (domain 6, item 3), decoded once.

    Raises:
        RejectRow: ``truncated_tool_call`` or ``malformed_tool_call``.
    """
    try:
        return read_whole(text).value
    except RejectRow as error:
        reason = TRUNCATED_CALL if error.reason == "truncated_arguments" else MALFORMED_CALL
        raise RejectRow(reason, error.detail) from error


def calls_of(value: Any) -> tuple[list[ParsedCall], str | None]:
    """All calls of a decoded value: a list, one object, ``{"tool_calls": [...]}`` or text of these.

    Returns:
        The readable calls in order, and the first error or None. One unreadable call does not cost the others.
    """
    repairs: tuple[str, ...] = ()
    if isinstance(value, str):
        try:
            value, repairs = read_whole_call(value), ("call_as_text",)
        except RejectRow as error:
            return [], error.reason
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        return [], MALFORMED_CALL
    calls: list[ParsedCall] = []
    problem: str | None = None
    for item in value:
        try:
            call = call_of(item)
        except RejectRow as error:
            problem = problem or error.reason
        else:
            calls.append(call._replace(repairs=(*repairs, *call.repairs)) if repairs else call)
    return calls, problem
