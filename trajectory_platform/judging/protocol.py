"""Format and length of a dialogue, exactly as the reference computes them (domain 2.4).

``format`` is computed on a *re-rendering* of each message, results included, so tag text inside a thought or a tool
result can zero an honest step. The reference renders with ujson, which writes ``/`` as ``\\/``: a closing tag inside
a JSON string is therefore never seen, an opening one is. Both are kept on purpose: the score is the subnet's.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from trajectory_platform.judging.dialogue import TERMINATE

MISSING_TIMESTAMP_FACTOR = 0.5
_ROLES = ("think", "tool_call", "response")
_TEXT_FIELDS = ("user", "think", "response")
_LIST_FIELDS = ("tool_call", "obs")


class ScorerFault(Exception):
    """An input on which the reference scorer raises (domain 2.5).

    Args:
        kind: name of the exception the reference raises, e.g. ``ValidationError``.
        detail: which value of the input it was.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


def length_score(steps: list[Any]) -> float:
    """1 / number of steps when the last step calls ``terminate`` (with any status), else 0.

    Raises:
        ScorerFault: the last step is one on which the reference raises.
    """
    if not steps:
        return 0.0
    message = _last_message(steps[-1])
    if not message:
        return 0.0
    if not isinstance(message, dict | list | str):
        raise ScorerFault("TypeError", "last message is a number")
    if "tool_call" not in message:
        return 0.0
    if not isinstance(message, dict):
        raise ScorerFault("TypeError", "last message is no object")
    calls = message["tool_call"]
    if not calls:
        return 0.0
    if not isinstance(calls, list):
        raise ScorerFault("TypeError", f"last tool_call is {_kind(calls)}")
    terminated = False
    for call in calls:
        if not isinstance(call, dict):
            raise ScorerFault("TypeError", f"last tool_call holds {_kind(call)}")
        if "name" not in call:
            raise ScorerFault("KeyError", "call without name in the last step")
        terminated = terminated or call["name"] == TERMINATE
    return 1.0 / len(steps) if terminated else 0.0


def format_score(steps: list[Any]) -> float:
    """Mean over the steps of well-formedness, halved per step without a usable timestamp.

    Raises:
        ScorerFault: a message the reference refuses (think null or a number, tool_call no list of objects).
    """
    if not steps:
        return 0.0
    return sum(step_format(step) for step in steps) / len(steps)


def step_format(step: Any) -> float:
    """0, 0.5 or 1 for one step. ``True`` and NaN pass as timestamps, as in the reference."""
    completion = step.get("completion") if isinstance(step, dict) else None
    message = completion.get("message") if isinstance(completion, dict) else None
    if not isinstance(message, dict):
        return 0.0
    _validate(message)
    extra = step.get("extra_info", {})
    if not isinstance(extra, dict):
        return 0.0
    stamp = extra.get("timestamp")
    factor = MISSING_TIMESTAMP_FACTOR if not isinstance(stamp, int | float) or stamp <= 0 else 1.0
    return factor if well_formed(message) else 0.0


def well_formed(message: dict[str, Any]) -> bool:
    """Think present, tool_call or response present, each tag once, not interleaved, calls with name and parameters."""
    calls = message.get("tool_call") or []
    for call in calls:
        if not isinstance(call.get("name"), str) or not isinstance(call.get("parameters"), dict):
            return False
    think, response = message.get("think", ""), message.get("response", "")
    rendered = _ujson_text(calls) if calls else ""
    if "<" not in think and "<" not in response and "<" not in rendered:
        return bool(think) and bool(calls or response)
    parts = zip(_ROLES, (think, rendered, response), strict=True)
    return _tags_in_order("\n".join(f"<{role}>{text}</{role}>" for role, text in parts if text))


def _tags_in_order(text: str) -> bool:
    """Whether every tag pair occurs exactly once and no pair opens or closes inside another."""
    spans: dict[str, tuple[int, int]] = {}
    for role in _ROLES:
        opening, closing = f"<{role}>", f"</{role}>"
        opened, closed = text.count(opening), text.count(closing)
        if not opened and not closed:
            continue
        if opened != 1 or closed != 1:
            return False
        spans[role] = (text.index(opening), text.index(closing))
        if spans[role][0] >= spans[role][1]:
            return False
    if "think" not in spans or not ("tool_call" in spans or "response" in spans):
        return False
    return not any(
        start < edge < end
        for role, (start, end) in spans.items()
        for other, edges in spans.items()
        if other != role
        for edge in edges
    )


def _validate(message: dict[str, Any]) -> None:
    """What the reference's message model accepts; a violation raises there and ends the scoring of the trace."""
    for name in _TEXT_FIELDS:
        if name in message and not isinstance(message[name], str):
            raise ScorerFault("ValidationError", f"{name} is {_kind(message[name])}")
    for name in _LIST_FIELDS:
        if name not in message:
            continue
        value = message[name]
        if not isinstance(value, list):
            raise ScorerFault("ValidationError", f"{name} is {_kind(value)}")
        for item in value:
            if not isinstance(item, dict):
                raise ScorerFault("ValidationError", f"{name} holds {_kind(item)}")


def _last_message(step: Any) -> Any:
    for name in ("completion", "message"):
        if not isinstance(step, dict):
            raise ScorerFault("TypeError", f"last step: no {name} in {_kind(step)}")
        if name not in step:
            raise ScorerFault("KeyError", f"last step has no {name}")
        step = step[name]
    return step


def _ujson_text(value: Any) -> str:
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # integers above 64 bit
        text = json.dumps(value, ensure_ascii=True)
    return text.replace("/", "\\/")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    for kind, name in ((str, "text"), (list, "a list"), (dict, "an object")):
        if isinstance(value, kind):
            return name
    return "a number"
