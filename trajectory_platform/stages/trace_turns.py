"""The conversation of a trace as turns: what the model said, its calls with their results, who emitted them, and when.

Every message and every call of the canonical messages appears exactly once. Times come from the proxy log where it
names the same request (by tool and equal arguments, in order), else from the step's own stamp; what neither tells is
null.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.traces.calls import comparison_form

Row = dict[str, Any]
Key = tuple[str, str]
_EARLIEST_MS, _LATEST_MS = 1_500_000_000_000, 4_100_000_000_000  # 2017 to 2099: other stamps are no times
_MILLISECONDS = 100_000_000_000  # stamps below are seconds


def turns_of(
    messages: Sequence[Mapping[str, Any]],
    *,
    emitted: Sequence[Sequence[bool | None]] = (),
    events: Sequence[Mapping[str, Any]] = (),
    stamps: Sequence[Any] = (),
) -> tuple[list[Row], list[Row]]:
    """(turns, messages behind the last turn that belong to none).

    Args:
        messages: canonical messages.
        emitted: per assistant message and call whether the model emitted it (``curation.agency``).
        events: events of the proxy log in time order (``traces.evidence``).
        stamps: one per source step, as stated there; used where there is one per turn.

    Returns:
        A turn is {number, before, think, content, calls, orphans, start_ms, end_ms, state, tokens}: ``before`` holds
        the messages of other roles ahead of it ({role, text}), ``orphans`` tool results that answer no call of it
        ({name, text}), ``state`` how the log tells the reply. A call is {id, name, arguments, form, emitted, result,
        error, start_ms, end_ms, status}; ``arguments`` is JSON text, ``form`` the same as calls are compared
        (``traces.arguments``); a call without an answer has the result None.
    """
    turns: list[Row] = []
    before: list[Row] = []
    waiting: dict[str, deque[Row]] = {}
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            turn = _turn(message, len(turns) + 1, before)
            waiting = {}
            for call in turn["calls"]:
                waiting.setdefault(call["id"], deque()).append(call)
            before = []
            turns.append(turn)
        elif role == "tool" and turns and not before:
            _answer(turns[-1], waiting.get(str(message.get("tool_call_id"))), message)
        else:
            before.append({"role": text_of(role), "text": text_of(message.get("content"))})
    for turn, flags in zip(turns, emitted, strict=False):
        for call, flag in zip(turn["calls"], flags, strict=False):
            call["emitted"] = flag
    _time(turns, events, stamps)
    return turns, before


def text_of(value: Any) -> str:
    """A value as text: text as it is, nothing as the empty one, anything else as compact JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return jsontext.dumps(value)


def time_ms(value: Any) -> float | None:
    """A stated time in milliseconds; seconds are recognised, what is no time of these decades is None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    moment = float(value) * 1000 if abs(value) < _MILLISECONDS else float(value)
    return moment if _EARLIEST_MS <= moment <= _LATEST_MS else None


def _turn(message: Mapping[str, Any], number: int, before: list[Row]) -> Row:
    calls = message.get("tool_calls")
    return {
        "number": number,
        "before": before,
        "think": text_of(message.get("reasoning_content")),
        "content": text_of(message.get("content")),
        "calls": [_call(call) for call in (calls if isinstance(calls, list) else [])],
        "orphans": [],
        "start_ms": None,
        "end_ms": None,
        "state": None,
        "tokens": None,
    }


def _call(call: Any) -> Row:
    function = call.get("function") if isinstance(call, Mapping) else None
    named = function if isinstance(function, Mapping) else call if isinstance(call, Mapping) else {"arguments": call}
    name, arguments = text_of(named.get("name")), text_of(named.get("arguments"))
    form = comparison_form(name, arguments)
    return {
        "id": text_of(call.get("id")) if isinstance(call, Mapping) else "",
        "name": name,
        "arguments": arguments,
        "form": arguments if form is None else form,
        "emitted": None,
        "result": None,
        "error": None,
        "start_ms": None,
        "end_ms": None,
        "status": None,
    }


def _answer(turn: Row, calls: deque[Row] | None, message: Mapping[str, Any]) -> None:
    text = text_of(message.get("content"))
    if not calls:
        turn["orphans"].append({"name": text_of(message.get("name")), "text": text})
        return
    call = calls.popleft()
    call["result"] = text
    call["error"] = _error_in(text)


def _error_in(result: str) -> str | None:
    """What a tool says went wrong: the ``error`` of its answer (``sandbox.tools``)."""
    if '"error"' not in result:
        return None
    try:
        value = jsontext.parse(result.encode("utf-8", "surrogatepass")).value
    except RejectRow:
        return None
    found = value.get("error") if isinstance(value, dict) else None
    return text_of(found) or None


def _time(turns: list[Row], events: Sequence[Mapping[str, Any]], stamps: Sequence[Any]) -> None:
    """Times and states, in place."""
    for turn, event in _replies(turns, [one for one in events if one["kind"] == "inference"]):
        turn |= {
            "start_ms": time_ms(event["start"]),
            "end_ms": time_ms(event["end"]),
            "state": event["state"],
            "tokens": event["completion_tokens"],
        }
    requests: dict[Key, deque[Mapping[str, Any]]] = {}
    for event in events:
        if event["kind"] == "dispatch" and event["arguments"] is not None:
            requests.setdefault((event["tool"], event["arguments"]), deque()).append(event)
    for call in (call for turn in turns for call in turn["calls"]):
        found = requests.get((call["name"], call["form"]))
        if found:
            event = found.popleft()
            call |= {"start_ms": time_ms(event["start"]), "end_ms": time_ms(event["end"]), "status": event["status"]}
            if call["error"] is None and event["status"] is not None and not 200 <= event["status"] < 300:
                call["error"] = f"HTTP {event['status']}"
    if len(stamps) == len(turns):
        for turn, stamp in zip(turns, stamps, strict=True):
            if turn["end_ms"] is None:
                turn["end_ms"] = time_ms(stamp)


def _replies(turns: list[Row], events: list[Mapping[str, Any]]) -> Iterable[tuple[Row, Mapping[str, Any]]]:
    """Each turn with the reply that made it, as far as that can be told: one each, or the next with a call of it."""
    answered = [event for event in events if event["state"] != "failed"]
    if len(answered) == len(turns):
        yield from zip(turns, answered, strict=True)
        return
    begin = 0
    for turn in turns:
        wanted = {(call["name"], call["form"]) for call in turn["calls"]}
        for place in range(begin, len(answered)):
            if wanted & {(call["name"], call["arguments"]) for call in answered[place]["calls"]}:
                begin = place + 1
                yield turn, answered[place]
                break
