"""How an attempt looks outside: replies in the forms models use, the dialogue and the log in the published form.

Sources: domain 1.4 (steps), 1.5 (log entries and their buckets), 1.7 (forms of a reply). ``traces.sn15.read_dialogue``
reads a dialogue back, so what our own policies do passes through the same doors as any miner's trace.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trajectory_platform.evaluation.environment import Call, Environment, Step

FORMS = ("native", "xml_array", "xml_blocks", "alias", "fenced")
"""How a reply carries its calls; ``alias`` uses the other key names, ``fenced`` a code fence instead of a tag."""
TRUNCATE_AT = 2_000
"""Characters of JSON from which the subnet replaced a logged response by its length, until mid-2026."""
_ENCODER = json.JSONEncoder()  # the published text: ASCII, blanks after separators


@dataclass(frozen=True)
class LogForm:
    """How much of the log is published (domain 1.5, 1.11). The default is that of the later builds: all of it.

    Attributes:
        proxy_log: False before 2026-04-19.
        first_step_only: everything on step 0.
        kind: entries carry ``kind``.
        truncate_at: characters of JSON above which a response is replaced by its length; None keeps all.
        result_ids: search results carry ``result_product_ids``; where responses are cut, only the cut ones do.
    """

    proxy_log: bool = True
    first_step_only: bool = False
    kind: bool = True
    truncate_at: int | None = None
    result_ids: bool = True


WHOLE_LOG = LogForm()


def dialogue(
    environment: Environment,
    problem_id: str,
    *,
    seconds: float | None = None,
    form: LogForm = WHOLE_LOG,
    stamps: Sequence[Any] | None = None,
) -> list[dict[str, Any]]:
    """The published steps of an attempt, the log filed under them.

    An attempt that left requests but no step (the first reply failed, or said nothing) becomes one step with an empty
    message, so that its log is not lost; a reader calls that ``message_empty``.

    Args:
        seconds: ``execution_time`` of the first step; None leaves it out (before 2026-04-24).
        stamps: timestamps to state in place of the true ones, one per step.

    The values are those of the environment, not copies.
    """
    taken = environment.steps
    if not taken and environment.log and form.proxy_log:
        taken = [Step("", [], "", environment.clock_ms)]
    moments = [step.timestamp for step in taken] if stamps is None else list(stamps)
    steps: list[dict[str, Any]] = []
    for number, (step, stamp) in enumerate(zip(taken, moments, strict=True), 1):
        extra: dict[str, Any] = {
            "step": number,
            "query": environment.query,
            "timestamp": stamp,
            "problem_id": problem_id,
        }
        if number == 1 and seconds is not None:
            extra["execution_time"] = seconds
        completion = {"reasoning_content": "", "content": _content(step), "message": _message(step)}
        steps.append({"completion": completion, "extra_info": extra})
    if form.proxy_log and steps:
        _file_log(steps, environment.log, form, moments)
    return steps


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


def shape_entry(entry: dict[str, Any], form: LogForm) -> dict[str, Any]:
    """One log entry as published: ``kind`` where it exists, long responses replaced by their length (domain 1.5)."""
    shaped: dict[str, Any] = {"kind": "summary"} if form.kind else {}
    response = entry["response"]
    searched = form.result_ids and entry["path"] == "/search/find_product"
    length = 0 if form.truncate_at is None else len(_ENCODER.encode(response))
    if form.truncate_at is None or length <= form.truncate_at:
        shaped.update(entry)
        searched = searched and form.truncate_at is None
    else:
        shaped.update((key, value) for key, value in entry.items() if key != "response")
        shaped["response_truncated"] = True
        shaped["response_length"] = length
    if searched:
        shaped["result_product_ids"] = [row["product_id"] for row in response]
    return shaped


def assistant_message(
    form: str, think: str, calls: Sequence[Call], response: str = "", *, cut: bool = False
) -> dict[str, Any]:
    """The assistant message of a reply, as a model that uses this form of calls would write it.

    Args:
        form: one of ``FORMS``.
        cut: the token limit hit while the model was thinking: the think block is open and nothing follows.
    """
    message: dict[str, Any] = {"role": "assistant", "content": "", "reasoning_content": None, "tool_calls": None}
    if cut:
        message["content"] = f"<think>{think}"
    elif form == "native":
        message["content"] = f"{think}\n{response}" if response else think
        message["tool_calls"] = [_native(index, name, arguments) for index, (name, arguments) in enumerate(calls)]
        message["tool_calls"] = message["tool_calls"] or None
    elif form in FORMS:
        parts = [f"<think>{think}</think>"] if think else []
        parts += _calls_as_text(form, calls)
        if response:
            parts.append(response if form == "fenced" else f"<response>{response}</response>")
        message["content"] = "\n".join(parts)
    else:
        raise ValueError(f"no form of calls is named {form!r}")
    return message


def _native(index: int, name: str, arguments: Any) -> dict[str, Any]:
    return {
        "id": f"functions.{name}:{index}",
        "type": "function",
        "index": index,
        "function": {"name": name, "arguments": _ENCODER.encode(arguments)},
    }


def _calls_as_text(form: str, calls: Sequence[Call]) -> list[str]:
    if not calls:
        return []
    if form == "xml_blocks":
        written = (_ENCODER.encode({"name": name, "arguments": arguments}) for name, arguments in calls)
        return [f"<tool_call>\n{text}\n</tool_call>" for text in written]
    if form == "alias":
        entries = [{"tool": name, "arguments": _renamed(arguments)} for name, arguments in calls]
        return [f"<tool_call>{_ENCODER.encode(entries)}</tool_call>"]
    text = _ENCODER.encode([{"name": name, "parameters": arguments} for name, arguments in calls])
    return [f"```json\n{text}\n```"] if form == "fenced" else [f"<tool_call>{text}</tool_call>"]


def _renamed(arguments: Any) -> Any:
    """Arguments under the other names in use; the harness maps them back before it calls the tool."""
    if not isinstance(arguments, dict):
        return arguments
    return {{"q": "query"}.get(key, key): value for key, value in arguments.items()}


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
        parts.append(f"<tool_call>{_ENCODER.encode(calls)}</tool_call>")
    if step.response:
        parts.append(f"<response>{step.response}</response>")
    return "\n".join(parts)


def _file_log(steps: list[dict[str, Any]], log: Sequence[dict[str, Any]], form: LogForm, stamps: Sequence[Any]) -> None:
    places = [0] * len(log) if form.first_step_only else bucket(stamps, [entry["timestamp"] for entry in log])
    for place, entry in zip(places, log, strict=True):
        steps[place]["extra_info"].setdefault("proxy_calls", []).append(shape_entry(entry, form))
