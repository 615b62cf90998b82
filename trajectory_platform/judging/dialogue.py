"""What a dialogue says, read twice: strictly as the reference scorer reads it, and leniently for evidence.

A dialogue is the list of steps of one trace (domain 1.4): ``{completion: {message: {think, tool_call, response,
obs}}, extra_info: {...}}``; chat steps ``{role, content}`` occur too. Nothing here raises on any JSON value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow

RECOMMEND, TERMINATE, VIEW, MATCH = (
    "recommend_product",
    "terminate",
    "view_product_information",
    "check_product_match",
)
# Their result only repeats what the agent said: an id that occurs nowhere else has not been seen.
_ECHOING_TOOLS = frozenset({RECOMMEND, TERMINATE, "calculate_voucher"})
_MAX_DEPTH = 20  # of a result that is searched for ids
_WORD = re.compile(r"[^\W_]+")
_VIEWING_TOOLS = frozenset({VIEW, MATCH})
_AROUND_IDS = "\"'`\u200b\u200c\u200d\u2060\ufeff"
_EXACT_FLOAT = 2**53
_STORED_DEPTH = 10_000  # what a reader let through was within its own limit
_DIGITS = bytes(ord("0") if chr(code) in "0123456789" else ord("x") for code in range(256))
_LONG_NUMBER = b"0" * 19


class Call(NamedTuple):
    """One tool call, leniently read. ``step`` is the 0-based position of its step."""

    step: int
    name: str
    parameters: Any
    result: Any


class SeenIds(NamedTuple):
    """Ids that tool results of the trace show: anywhere (``listed``), on a detail page (``viewed``), texts unparsed.

    ``words`` are the words of the texts, so that thousands of ids do not mean thousands of walks through them.
    """

    listed: set[str]
    viewed: set[str]
    texts: list[str]
    words: set[str]

    def shows(self, product_id: str) -> bool:
        """Whether any result of the trace contains the id, as a field or as a word of a text result."""
        if product_id in self.listed:
            return True
        if not self.words.issuperset(_WORD.findall(product_id)):
            return False
        return product_id.isalnum() or any(_has_word(text, product_id) for text in self.texts)


def read_text(data: bytes) -> Any:
    """The JSON value of a stored dialogue; integers are exact.

    The platform's reader wrote the text, so it is not checked again for what that reader repairs or refuses
    (``jsontext.parse``); of a repeated key the last value counts, as in the reference. Text that is no strict JSON
    takes the slow way.

    Raises:
        RejectRow: as ``jsontext.parse``.
    """
    if _LONG_NUMBER not in data.translate(_DIGITS):  # orjson turns integers beyond 64 bits into floats
        try:
            return orjson.loads(data)
        except ValueError:
            pass
    return jsontext.parse(data, max_depth=_STORED_DEPTH).value


def message_of(step: Any) -> Any:
    """``step.completion.message``, or None where the path breaks off."""
    completion = step.get("completion") if isinstance(step, dict) else None
    return completion.get("message") if isinstance(completion, dict) else None


def strict_ids(steps: list[Any]) -> list[str]:
    """The recommended ids as the reference scorer reads them (domain 2.1).

    The last ``recommend_product`` wins, even after ``terminate``. A ``product_ids`` that is absent, a list or a
    number erases an earlier good one; parameters that are no object are skipped. Split on ",", stripped (non-breaking
    spaces too), blanks dropped, which shifts positions, later duplicates dropped.
    """
    chosen: Any = ""
    for step in steps:
        message = message_of(step)
        calls = message.get("tool_call") if isinstance(message, dict) else None
        if not isinstance(calls, list):
            continue
        for call in calls:
            if not isinstance(call, dict) or "name" not in call:
                break  # the reference leaves the step at its first broken call
            if call["name"] != RECOMMEND:
                continue
            if not isinstance(call.get("parameters"), dict):
                break
            chosen = call["parameters"].get("product_ids", "")
    return _unique(chosen.split(",")) if isinstance(chosen, str) else []


def lenient_ids(calls: list[Call]) -> list[str]:
    """The ids of the last recommendation, read as an obliging person would (domain 6: 4 to 6).

    ``product_ids``, or else ``product_id``, as comma-separated text, a number, a list of both, or the text of such a
    list. Quotes and invisible characters around an id are dropped; order, blanks and repeats are treated as strictly.
    """
    for call in reversed(calls):
        if call.name == RECOMMEND and isinstance(call.parameters, Mapping):
            return id_list(call.parameters.get("product_ids")) or id_list(call.parameters.get("product_id"))
    return []


def id_list(value: Any) -> list[str]:
    """Ids from text, a whole number or a list of both (see ``lenient_ids``); everything else gives none."""
    listed = _json_or_none(value)
    items = listed if isinstance(listed, list) else value if isinstance(value, list) else [value]
    texts = []
    for item in items:
        if isinstance(item, str):
            texts += [part.strip().strip(_AROUND_IDS).strip() for part in item.split(",")]
        elif isinstance(item, int) and not isinstance(item, bool):
            texts.append(str(item))
        elif isinstance(item, float) and item.is_integer() and abs(item) < _EXACT_FLOAT:
            texts.append(str(int(item)))
    return list(dict.fromkeys(text for text in texts if text))


def read_calls(steps: list[Any]) -> list[Call]:
    """Every tool call that can be read without guessing, in dialogue order, with its result.

    ``tool_call`` may be a list, one object, or JSON text of either (domain 6: 2, 3). A result is the call's own
    ``result`` or, in the upstream shape, the ``obs`` entry at the same position.
    """
    found: list[Call] = []
    for number, step in enumerate(steps):
        message = message_of(step)
        if not isinstance(message, dict):
            continue
        observed = message.get("obs")
        raw = message.get("tool_call")
        for position, call in enumerate(raw if isinstance(raw, list) else _call_items(raw)):
            item = call if isinstance(call, dict) else _json_or_none(call)
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                continue
            parameters = item.get("parameters", item.get("arguments"))
            if isinstance(parameters, str):
                parameters = _json_or_none(parameters)
            result = item.get("result")
            if result is None and isinstance(observed, list) and position < len(observed):
                entry = observed[position]
                result = entry.get("results") if isinstance(entry, dict) else None
            found.append(Call(number, item["name"], parameters, result))
    return found


def seen_ids(calls: list[Call], steps: list[Any]) -> SeenIds:
    """Which ids the results of a trace show; the agent's own confirmation texts do not count."""
    seen = SeenIds(set(), set(), [], set())
    for call in calls:
        if call.name in _ECHOING_TOOLS or call.result is None:
            continue
        result = _json_or_none(call.result) if isinstance(call.result, str) else call.result
        if result is None:
            seen.texts.append(call.result)
            continue
        ids: set[str] = set()
        _add_product_ids(result, ids)
        seen.listed.update(ids)
        if call.name in _VIEWING_TOOLS:
            seen.viewed.update(ids)
    for step in steps:
        if isinstance(step, dict) and step.get("role") == "tool" and isinstance(step.get("content"), str):
            seen.texts.append(step["content"])
    for text in seen.texts:
        seen.words.update(_WORD.findall(text))
    return seen


def tool_results(messages: list[dict[str, Any]]) -> list[Any]:
    """The result of every tool message, in order: the value of JSON text, else the text itself."""
    results = []
    for message in messages:
        if message.get("role") == "tool":
            content = message.get("content")
            value = _json_or_none(content)
            results.append(content if value is None else value)
    return results


def loose_messages(steps: list[Any]) -> list[dict[str, Any]]:
    """Messages with whatever a quarantined dialogue still says; to scan its text, never to train on."""
    found: list[dict[str, Any]] = [{"role": "user", "content": query} for query in queries(steps)]
    for step in steps:
        message = message_of(step)
        if isinstance(message, dict) and isinstance(message.get("think"), str):
            found.append({"role": "assistant", "content": "", "reasoning_content": message["think"]})
        elif isinstance(step, dict) and isinstance(step.get("content"), str):
            role = "tool" if step.get("role") == "tool" else "assistant"
            found.append({"role": role, "content": step["content"]})
    for call in read_calls(steps):
        function = {"name": call.name, "arguments": _scanned(call.parameters)}
        result = call.result if isinstance(call.result, str) else _scanned(call.result)
        found.append({"role": "assistant", "content": "", "tool_calls": [{"function": function}]})
        found.append({"role": "tool", "content": result})
    return found


def _scanned(value: Any) -> str:
    """JSON text of a value to look for signs in; nothing where it is nested beyond every limit."""
    try:
        return jsontext.dumps(value)
    except RejectRow:
        return ""


def queries(steps: list[Any]) -> list[str]:
    """The different queries the steps state, in order of appearance (the agent can change them: domain 6: 47)."""
    found: dict[str, None] = {}
    for step in steps:
        extra = step.get("extra_info") if isinstance(step, dict) else None
        query = extra.get("query") if isinstance(extra, dict) else None
        if isinstance(query, str):
            found.setdefault(query, None)
    return list(found)


def discipline(calls: list[Call], recommended: list[str], steps: int) -> list[str]:
    """Violations of "recommend once, then terminate" (domain 6: 8, 9), in a fixed order.

    several_recommends, recommend_after_terminate, empty_recommend (the last one names nothing that can be read),
    no_recommend, no_terminate (the last step does not terminate), steps_after_terminate.
    """
    recommends = [position for position, call in enumerate(calls) if call.name == RECOMMEND]
    ends = [position for position, call in enumerate(calls) if call.name == TERMINATE]
    found = []
    if len(recommends) > 1:
        found.append("several_recommends")
    if recommends and ends and recommends[-1] > ends[0]:
        found.append("recommend_after_terminate")
    if recommends and not recommended:
        found.append("empty_recommend")
    if not recommends:
        found.append("no_recommend")
    if not ends:
        found.append("no_terminate")
    elif calls[ends[0]].step < steps - 1:
        found.append("steps_after_terminate")
    return found


def _unique(items: list[str]) -> list[str]:
    stripped = (item.strip() for item in items)
    return list(dict.fromkeys(item for item in stripped if item))


def _call_items(raw: Any) -> list[Any]:
    value = _json_or_none(raw) if isinstance(raw, str) else raw
    if isinstance(value, dict):
        return [value]
    return value if isinstance(value, list) else []


def _json_or_none(value: Any) -> Any:
    """JSON text of an object or array as its value; anything else is None."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return orjson.loads(value)
    except (ValueError, RecursionError):
        return None


def _add_product_ids(value: Any, found: set[str], depth: int = 0) -> None:
    """Ids of the rows in a result, however they are nested; what is inside a row belongs to that row."""
    if isinstance(value, list) and depth < _MAX_DEPTH:
        for inner in value:
            if isinstance(inner, dict | list):
                _add_product_ids(inner, found, depth + 1)
    elif isinstance(value, dict):
        product_id = value.get("product_id")
        if isinstance(product_id, str):
            found.add(product_id.strip())
        elif isinstance(product_id, int) and not isinstance(product_id, bool):
            found.add(str(product_id))
        elif depth < _MAX_DEPTH:
            for inner in value.values():
                if isinstance(inner, dict | list):
                    _add_product_ids(inner, found, depth + 1)


def _has_word(text: str, word: str) -> bool:
    at = text.find(word)
    while at != -1:
        after = at + len(word)
        before_ok = at == 0 or not text[at - 1].isalnum()
        if before_ok and (after == len(text) or not text[after].isalnum()):
            return True
        at = text.find(word, at + 1)
    return False
