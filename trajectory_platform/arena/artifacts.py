"""From an episode to the published artifact: rendered steps, bucketed request log, the eras and their oddities.

Sources: domain 1.3 to 1.5 and 1.11. What is odd in real files is made odd here on purpose, by name (``quirk``).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from trajectory_platform.arena.race import Episode, Step

TRUNCATE_AT = 2_000
Dialogue = list[Any]


@dataclass(frozen=True)
class Era:
    """What the subnet's software did on one day (domain 1.11).

    Attributes:
        regime: score regime of the validators' judge, or None before there was one.
    """

    proxy_log: bool
    first_step_only: bool
    kind_field: bool
    result_ids: bool
    execution_time: bool
    whole_file: bool
    regime: str | None


def era_of(day: date, hour: int = 12) -> Era:
    """The era of a UTC day; within 04-19 and 04-29 the software changed at noon."""

    def since(month: int, number: int) -> bool:
        return day >= date(2026, month, number)

    regime = None
    if since(4, 12):
        regime = "discrete" if since(4, 30) else "continuous"
        if since(4, 19) and not since(4, 23):
            regime = "continuous_step0_only"
    return Era(
        proxy_log=since(4, 19),
        first_step_only=day == date(2026, 4, 19) and hour < 12,
        kind_field=since(4, 27),
        result_ids=since(4, 22),
        execution_time=since(4, 24),
        whole_file=day == date(2026, 4, 28) or (day == date(2026, 4, 29) and hour < 12),
        regime=regime,
    )


def bucket(step_times: Sequence[Any], entry_times: Sequence[int]) -> list[int]:
    """For each log entry the step it is filed under, the way the subnet does it (domain 1.5).

    The last step, scanning from the start and stopping at the first later timestamp, whose timestamp is <= the
    entry's; entries before the first step go to step 0. Steps are stamped after their tools ran, so what step N+1
    did usually lands under step N.
    """
    places = []
    for moment in entry_times:
        place = 0
        for index, stamp in enumerate(step_times):
            if not isinstance(stamp, int | float) or not stamp <= moment:
                break
            place = index
        places.append(place)
    return places


def tool_call_id(name: str, parameters: Any) -> str:
    """The subnet's call id: equal calls collide (domain 1.4)."""
    digest = hashlib.md5(f"{name}\n{parameters!r}".encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).decode("ascii")[:8]


def dialogue_of(episode: Episode, problem_id: str, era: Era, seconds: float) -> Dialogue:
    """The published steps of one episode, with the oddities its quirk asks for."""
    query = episode.query
    stamps = _stamps(episode)
    steps: Dialogue = []
    for number, (step, stamp) in enumerate(zip(episode.steps, stamps, strict=True), 1):
        extra: dict[str, Any] = {"step": number, "query": query, "timestamp": stamp, "problem_id": problem_id}
        if era.execution_time and number == 1:
            extra["execution_time"] = seconds
        completion = {"reasoning_content": "", "content": _content(step), "message": _message(step)}
        steps.append({"completion": completion, "extra_info": extra})
    if era.proxy_log and episode.quirk != "no_log" and steps:
        _file_log(steps, episode, era, stamps)
    if episode.quirk in MALFORM and steps:
        MALFORM[episode.quirk](steps)
    return steps


def envelope_of(
    problem_id: str, status: str, seconds: float, calls: int, dialogue: Dialogue | None, error: str | None
) -> Any:
    """One line of the sandbox output file (domain 1.2)."""
    return {
        "problem_id": problem_id,
        "status": status,
        "execution_time": seconds,
        "inference_failure_count": 0,
        "inference_total": calls,
        "error": None if error is None else {"type": error, "message": "the agent did not return"},
        "dialogue": dialogue,
    }


def dialogue_bytes(dialogue: Dialogue, quirk: str | None) -> bytes:
    """The stored bytes of one artifact: gzip of the ASCII JSON array; damaged for the quirks of storage."""
    text = json.dumps(dialogue).encode("ascii")
    if quirk == "cut_line":
        text = text[: len(text) * 6 // 10]
    elif quirk == "trailing_nuls":
        text += b"\x00" * 64
    elif quirk == "plain_array":
        return text
    data = gzip.compress(text, compresslevel=6, mtime=0)
    return data[: len(data) // 2] if quirk == "truncated_gzip" else data


def lines_bytes(envelopes: Sequence[Any]) -> bytes:
    """The whole output file of a run, as validator 1.0.60 uploaded it (domain 1.3)."""
    text = "".join(json.dumps(envelope) + "\n" for envelope in envelopes)
    return gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)


def _message(step: Step) -> dict[str, Any]:
    message: dict[str, Any] = {}
    if step.think:
        message["think"] = step.think
    if step.calls:
        message["tool_call"] = [
            {
                "name": call["name"],
                "parameters": call["parameters"],
                "tool_call_id": tool_call_id(call["name"], call["parameters"]),
                "result": call["result"],
            }
            for call in step.calls
        ]
    if step.response:
        message["response"] = step.response
    return message


def _content(step: Step) -> str:
    """The harness's rendering: it looks the same whoever made the calls."""
    parts = [f"<think>{step.think}</think>"] if step.think else []
    if step.calls:
        calls = [{"name": call["name"], "parameters": call["parameters"]} for call in step.calls]
        parts.append(f"<tool_call>{json.dumps(calls)}</tool_call>")
    if step.response:
        parts.append(f"<response>{step.response}</response>")
    return "\n".join(parts)


def _stamps(episode: Episode) -> list[Any]:
    stamps: list[Any] = [step.timestamp for step in episode.steps]
    if episode.quirk == "clock_seconds":
        return [stamp // 1000 for stamp in stamps]
    if episode.quirk == "clock_reversed":
        return stamps[::-1]
    if episode.quirk == "clock_zero":
        return [0 for _ in stamps]
    if episode.quirk == "nan_timestamp" and len(stamps) > 1:
        stamps[1] = float("nan")
    return stamps


def _file_log(steps: Dialogue, episode: Episode, era: Era, stamps: Sequence[Any]) -> None:
    """Put the shaped log entries under the steps, then what a forging agent planted in an empty bucket."""
    entries = [shape_entry(entry, era) for entry in episode.log]
    places = bucket(stamps, [entry["timestamp"] for entry in entries])
    if era.first_step_only:
        places = [0] * len(entries)
    for place, entry in zip(places, entries, strict=True):
        steps[place]["extra_info"].setdefault("proxy_calls", []).append(entry)
    if episode.quirk in ("forged_planted", "forged_repeated"):
        planted = forged_entries(episode, era)
        for step in reversed(steps):
            if "proxy_calls" not in step["extra_info"]:
                step["extra_info"]["proxy_calls"] = planted
                return


def shape_entry(entry: dict[str, Any], era: Era) -> dict[str, Any]:
    """One entry as published: ``kind`` where it exists, long responses replaced by their length (domain 1.5)."""
    shaped: dict[str, Any] = {"kind": "summary"} if era.kind_field else {}
    shaped |= {key: value for key, value in entry.items() if key != "response"}
    response = entry["response"]
    length = len(json.dumps(response))
    if length <= TRUNCATE_AT:
        shaped["response"] = response
        return shaped
    shaped |= {"response_truncated": True, "response_length": length}
    if era.result_ids and entry["path"] == "/search/find_product":
        shaped["result_product_ids"] = [row["product_id"] for row in response]
    return shaped


def forged_entries(episode: Episode, era: Era) -> list[dict[str, Any]]:
    """Inference replies that never happened: each asks for exactly what the code had already done."""
    planted = []
    for step in episode.steps:
        native = [
            {
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["parameters"])},
            }
            for index, call in enumerate(step.calls)
        ]
        message = {"role": "assistant", "content": step.think, "tool_calls": native}
        entry: dict[str, Any] = {
            "method": "POST",
            "path": "/inference/chat/completions",
            "timestamp": step.timestamp - 500,
            "duration_ms": 400.0 if episode.quirk == "forged_planted" else 9_000_000.0,
            "status_code": 200,
            "json_data": {"model": episode.voice.model},
            "response": {"choices": [{"index": 0, "message": message}], "usage": {"completion_tokens": 80}},
        }
        planted.append(shape_entry(entry, era))
        if episode.quirk == "forged_repeated":
            planted.append(shape_entry(entry, era))
    return planted


def _calls(step: Any) -> Any:
    return step["completion"]["message"].get("tool_call")


def _first_calls(steps: Dialogue, change: Callable[[list[Any]], Any]) -> None:
    message = steps[0]["completion"]["message"]
    if "tool_call" in message:
        message["tool_call"] = change(message["tool_call"])


def _nan_result(steps: Dialogue) -> None:
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


def _nan_parameter(steps: Dialogue) -> None:
    for call in _calls(steps[-1]) or []:
        if call["name"] == "terminate":
            call["parameters"] = {**call["parameters"], "confidence": float("nan")}


def _null_completion(index: int) -> Callable[[Dialogue], None]:
    def change(steps: Dialogue) -> None:
        steps[min(index, len(steps) - 1)]["completion"] = None

    return change


def _null_message(steps: Dialogue) -> None:
    steps[1 if len(steps) > 2 else 0]["completion"]["message"] = None


def _set_think(value: Any) -> Callable[[Dialogue], None]:
    def change(steps: Dialogue) -> None:
        steps[0]["completion"]["message"]["think"] = value

    return change


def _nameless(steps: Dialogue) -> None:
    for call in _calls(steps[-1]) or []:
        call.pop("name")


MALFORM: dict[str, Callable[[Dialogue], None]] = {
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
}
