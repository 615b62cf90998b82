"""What the proxy log of a trace says about who made the calls: compact facts, no verdict.

The log is written by the agent's own process and its buckets mean nothing (domain 1.5): entries of all steps are
concatenated and stable-sorted by ``timestamp - duration_ms``. Facts are kept here, thresholds are applied later in
``curation.agency``, so that a changed threshold needs no second reading.

Evidence (JSON-able)::

    {"version", "steps", "log_present", "entries", "attempts", "unreadable_entries",
     "inference_total", "problem_status", "execution_time", "shared_log",
     "events": [inference | dispatch], "calls": [call], "log_problems": [reason], "notes": [reason]}
    inference = {"kind": "inference", "start", "end", "status", "state", "calls": [{"name", "arguments"}],
                 "completion_tokens", "choices", "cut", "incomplete", ["echoed": [bool]]}
    dispatch  = {"kind": "dispatch", "tool", "arguments", "start", "end", "status", "empty", "truncated", "result_ids",
                 "nonce_status"}
    call      = {"step", "name", "arguments", "result_ids"}

Times are milliseconds or null. ``arguments`` is the comparison form of ``traces.arguments``. ``state`` of an inference
is ``readable``, ``truncated`` (the log cut it), ``unreadable`` (no message in it) or ``failed`` (the agent got none).
``cut`` says that the token limit ended the reply, ``incomplete`` that a call or a think block in it has no end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from trajectory_platform.errors import RejectRow
from trajectory_platform.traces.arguments import normalise_arguments
from trajectory_platform.traces.consistency import log_problems
from trajectory_platform.traces.echoes import EchoTest
from trajectory_platform.traces.literals import finite_number, read_value
from trajectory_platform.traces.toolcalls import ParsedCall, calls_of, parse_reply

EVIDENCE_VERSION = 1


def extract(steps: list[Any], *, binding: Mapping[str, Any] | None) -> dict[str, Any]:
    """Evidence of one dialogue (see the module).

    Args:
        steps: dialogue steps of any shape; what is no step or no log entry is counted, never fatal.
        binding: the pair's RAW_TRACES values (``inference_total``, ``problem_status``, ``problem_id``,
            ``execution_time``), or None when nothing is known about the run.
    """
    steps = steps if isinstance(steps, list) else []
    entries, unreadable = _flatten(steps)
    summaries = [entry for entry in entries if entry.get("kind") != "attempt"]
    echo = EchoTest()
    events: list[dict[str, Any]] = []
    raw: list[dict[str, Any]] = []
    for start, end, entry in _by_start(summaries):
        if not isinstance(entry.get("path"), str):
            unreadable += 1
            continue
        event = _event(entry, start, end, echo)
        if event is not None:
            events.append(event)
            raw.append(entry)
    calls: list[dict[str, Any]] = []
    results: list[Any] = []
    for call, result in _dialogue_calls(steps):
        calls.append(call)
        results.append(result)
    known = binding or {}
    evidence: dict[str, Any] = {
        "version": EVIDENCE_VERSION,
        "steps": sum(isinstance(step, dict) and "completion" in step for step in steps),
        "log_present": bool(summaries) or unreadable > 0,
        "entries": len(entries),
        "attempts": len(entries) - len(summaries),
        "unreadable_entries": unreadable,
        "inference_total": _integer(known.get("inference_total")),
        "problem_status": known.get("problem_status") if isinstance(known.get("problem_status"), str) else None,
        "execution_time": finite_number(known.get("execution_time")),
        "shared_log": binding is not None and "problem_id" in binding and binding["problem_id"] is None,
        "events": events,
        "calls": calls,
        "log_problems": [],
        "notes": [],
    }
    evidence["log_problems"], evidence["notes"] = log_problems(evidence, raw, results, _buckets(steps))
    return evidence


def _flatten(steps: list[Any]) -> tuple[list[dict[str, Any]], int]:
    """All log entries in step order, and how many were no entries at all."""
    entries: list[dict[str, Any]] = []
    unreadable = 0
    for bucket in _buckets(steps):
        for entry in bucket:
            if isinstance(entry, dict):
                entries.append(entry)
            else:
                unreadable += 1
    return entries, unreadable


def _buckets(steps: list[Any]) -> Iterator[list[Any]]:
    for step in steps:
        info = step.get("extra_info") if isinstance(step, dict) else None
        bucket = info.get("proxy_calls") if isinstance(info, dict) else None
        if isinstance(bucket, list):
            yield bucket


def _by_start(entries: list[dict[str, Any]]) -> list[tuple[float | None, float | None, dict[str, Any]]]:
    """(start, end, entry) in stable order by ``timestamp - duration_ms``; one without a usable time stays behind its
    predecessor."""
    keyed: list[tuple[float, float | None, dict[str, Any]]] = []
    last = -math.inf
    for entry in entries:
        end = finite_number(entry.get("timestamp"))
        if end is not None:
            last = end - (finite_number(entry.get("duration_ms")) or 0.0)
        keyed.append((last, end, entry))
    keyed.sort(key=itemgetter(0))
    return [(None if end is None else round(start, 1), end, entry) for start, end, entry in keyed]


def _event(entry: dict[str, Any], start: float | None, end: float | None, echo: EchoTest) -> dict[str, Any] | None:
    path = entry["path"].partition("?")[0].rstrip("/")
    if "/search/" in path:
        return _dispatch(entry, path.rpartition("/")[2], start, end)
    if "inference" in path and path.endswith("completions"):
        return _inference(entry, start, end, echo)
    return None


def _status(entry: dict[str, Any]) -> int | None:
    status = entry.get("status_code")
    if isinstance(status, str) and status.strip().isdecimal():
        status = int(status) if len(status) < 6 else None
    return _integer(status)


def _inference(entry: dict[str, Any], start: float | None, end: float | None, echo: EchoTest) -> dict[str, Any]:
    status = _status(entry)
    event: dict[str, Any] = {"kind": "inference", "start": start, "end": end, "status": status}
    body = entry.get("response")
    calls: list[ParsedCall] = []
    tokens, choices, cut, incomplete = None, 0, False, False
    if status is None or not 200 <= status < 300:
        state = "failed"
    elif entry.get("response_truncated"):
        state = "truncated"
    else:
        body = _json_text(body) if isinstance(body, str) else body
        state, calls, choices, cut, incomplete = _reply(body)
        usage = body.get("usage") if isinstance(body, dict) else None
        tokens = _integer(usage.get("completion_tokens")) if isinstance(usage, dict) else None
    event.update(
        state=state,
        calls=[{"name": call.name, "arguments": normalise_arguments(call.name, call.arguments)} for call in calls],
        completion_tokens=tokens,
        choices=choices,
        cut=cut,
        incomplete=incomplete,
    )
    echoed = echo.test(entry.get("json_data"), calls, event["calls"])
    if echoed is not None:
        event["echoed"] = echoed
    return event


def _reply(body: Any) -> tuple[str, list[ParsedCall], int, bool, bool]:
    """(state, calls of all choices, number of choices, cut by the token limit, incomplete)."""
    options = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(options, list) or not options:
        return "unreadable", [], 0, False, False
    calls: list[ParsedCall] = []
    state, cut, incomplete = "readable", False, False
    for option in options:
        message = option.get("message") if isinstance(option, dict) else None
        if not isinstance(message, dict):
            state = "unreadable"
            continue
        cut = cut or option.get("finish_reason") == "length"
        content, native = _text(message.get("content")), message.get("tool_calls") or message.get("function_call")
        reply = parse_reply(content, native)
        calls.extend(reply.calls)
        if native and content and "<tool_call>" in content:  # both forms in one reply: the text may name further calls
            named = {(call.name, call.arguments_text) for call in reply.calls}
            calls.extend(call for call in parse_reply(content).calls if (call.name, call.arguments_text) not in named)
        incomplete = incomplete or reply.error is not None
        if content is None and not native and not message.get("reasoning_content"):
            state = "unreadable"
    return state, calls, len(options), cut, incomplete


def _dispatch(entry: dict[str, Any], tool: str, start: float | None, end: float | None) -> dict[str, Any]:
    arguments = entry.get("params")
    if not isinstance(arguments, dict):
        arguments = entry.get("json_data")
        arguments = _json_text(arguments) if isinstance(arguments, str) else arguments
    truncated = bool(entry.get("response_truncated"))
    body = entry.get("response")
    ids = entry.get("result_product_ids")
    listed = ids if isinstance(ids, list) else None
    found = [str(item) for item in listed if _is_id(item)] if listed is not None else result_ids(body)
    nonce = entry.get("nonce_status")
    return {
        "kind": "dispatch",
        "tool": tool,
        "arguments": normalise_arguments(tool, arguments) if isinstance(arguments, dict) else None,
        "start": start,
        "end": end,
        "status": _status(entry),
        "empty": not truncated and not body,
        "truncated": truncated,
        "result_ids": None if truncated and listed is None else found,
        "nonce_status": nonce if isinstance(nonce, str) else None,
    }


def result_ids(body: Any) -> list[str] | None:
    """Product ids of a list result in order; None when the result is no list of products."""
    if not isinstance(body, list):
        return None
    ids = []
    for row in body:
        found = row.get("product_id") if isinstance(row, dict) else None
        if isinstance(found, str):
            ids.append(found)
        elif _is_id(found):
            ids.append(str(found))
    return ids if ids or not body else None


def _is_id(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 14_000
    )


def _dialogue_calls(steps: list[Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    """The calls the dialogue shows, each with its result; calls that cannot be read are left out."""
    for number, step in enumerate(steps):
        completion = step.get("completion") if isinstance(step, dict) else None
        message = completion.get("message") if isinstance(completion, dict) else None
        shown = message.get("tool_call") if isinstance(message, dict) else None
        if not shown:
            continue
        for item in shown if isinstance(shown, list) else [shown]:
            result = item.get("result") if isinstance(item, dict) else None
            for name, arguments in _named_arguments(item):
                form = normalise_arguments(name, arguments)
                yield {"step": number, "name": name, "arguments": form, "result_ids": result_ids(result)}, result


def _named_arguments(item: Any) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(item, dict):
        name, parameters = item.get("name"), item.get("parameters")
        if isinstance(name, str) and isinstance(parameters, dict):  # the published form needs no further reading
            return [(name.strip(), parameters)]
    return [(call.name, call.arguments) for call in calls_of(item)[0]]


def _text(content: Any) -> str | None:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else None


def _json_text(text: str) -> Any:
    try:
        return read_value(text.strip(), 0).value
    except (ValueError, RejectRow):
        return None  # third-party text that is no JSON is no object


def _integer(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15 else None
