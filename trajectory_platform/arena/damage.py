"""What happens to finished dialogues: fields of wrong types, lost parts, numbers that are none (domain 6: 1 to 3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Steps = list[Any]


def _calls(step: Any) -> Any:
    return step["completion"]["message"].get("tool_call")


def _first_calls(steps: Steps, change: Callable[[list[Any]], Any]) -> None:
    message = steps[0]["completion"]["message"]
    if "tool_call" in message:
        message["tool_call"] = change(message["tool_call"])


def _nan_result(steps: Steps) -> None:
    for step in steps:
        for call in _calls(step) or []:
            rows = call["result"]
            if isinstance(rows, list) and rows and "price" in rows[0]:
                call["result"] = [{**rows[0], "price": float("nan")}, *rows[1:]]
                logged = (entry for other in steps for entry in other["extra_info"].get("proxy_calls", ()))
                same = next((entry for entry in logged if entry.get("response") == rows), None)
                if same is not None:
                    same["response"] = call["result"]
                return


def _nan_parameter(steps: Steps) -> None:
    for call in _calls(steps[-1]) or []:
        if call["name"] == "terminate":
            call["parameters"] = {**call["parameters"], "confidence": float("nan")}


def _null_completion(index: int) -> Callable[[Steps], None]:
    def change(steps: Steps) -> None:
        steps[min(index, len(steps) - 1)]["completion"] = None

    return change


def _null_message(steps: Steps) -> None:
    steps[1 if len(steps) > 2 else 0]["completion"]["message"] = None


def _set_think(value: Any) -> Callable[[Steps], None]:
    def change(steps: Steps) -> None:
        steps[0]["completion"]["message"]["think"] = value

    return change


def _nameless(steps: Steps) -> None:
    for call in _calls(steps[-1]) or []:
        call.pop("name")


def _unknown_fields(steps: Steps) -> None:
    steps[0]["trace_id"] = "t-1"
    steps[0]["completion"]["message"]["confidence"] = 0.5
    for call in _calls(steps[0]) or []:
        call["latency"] = {"ms": 12}


DAMAGE: dict[str, Callable[[Steps], None]] = {
    "tool_call_object": lambda steps: _first_calls(steps, lambda calls: calls[0]),
    "tool_call_text": lambda steps: _first_calls(steps, json.dumps),
    "tool_call_strings": lambda steps: _first_calls(steps, lambda calls: [json.dumps(call) for call in calls]),
    "message_null": _null_message,
    "completion_null": _null_completion(1),
    "completion_null_last": lambda steps: _null_completion(len(steps) - 1)(steps),
    "think_number": _set_think(7),
    "think_null": _set_think(None),
    "call_without_name": _nameless,
    "nan_result": _nan_result,
    "nan_parameter": _nan_parameter,
    "unknown_fields": _unknown_fields,
}
