"""A trace as spans, tags and feedback: plain values, ready for a tracing store, without one.

The root span is the trace with its query, recommendation and outcome; below it one span per reply of the model and one
per call, in order, with the trace's own times. Ids are made from the trace, so the same trace is always the same spans.
Texts are capped with a mark that names their length and digest (case H01), and what is not printable in them is shown
as its escape.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.escaping import escaped
from trajectory_platform.identity import sha256_hex

LOG_VERSION = "1"
MAX_TEXT, MAX_TAG, MAX_ITEMS = 8_000, 250, 200  # characters of a text and of a tag, items of one list
ROOT, REPLY, TOOL = "AGENT", "CHAT_MODEL", "TOOL"
_MAX_DEPTH = 12
_LARGE = 1 << 63  # larger integers are shown as text

View = Mapping[str, Any]


class SpanFacts(NamedTuple):
    """One span.

    Attributes:
        span_id: 16 hex digits; ``parent``: of the root None.
        kind: span type. ``start_ns``, ``end_ns``: Unix time; ``end_ns`` is never before ``start_ns``.
        error: None, or why it failed.
    """

    span_id: str
    parent: str | None
    name: str
    kind: str
    start_ns: int
    end_ns: int
    inputs: Any
    outputs: Any
    attributes: dict[str, Any]
    error: str | None = None


class Said(NamedTuple):
    """One verdict: ``value`` or, where there is none, ``missing`` with the reason.

    Attributes:
        kind: CODE or LLM_JUDGE; ``source``: who judged.
    """

    name: str
    value: float | bool | None
    missing: str | None
    kind: str
    source: str
    rationale: str | None
    metadata: dict[str, str]


class TraceFacts(NamedTuple):
    """Everything of one trace that is logged.

    Attributes:
        request_id: ``tr-`` and 32 hex digits, made from the trace id; ``digest``: of all that is shown.
        usage: input_tokens, output_tokens, total_tokens, where both counts are known; else None.
    """

    request_id: str
    digest: str
    name: str
    spans: list[SpanFacts]
    tags: dict[str, str]
    verdicts: list[Said]
    usage: dict[str, int] | None
    request: str
    response: str
    failed: bool


def trace_facts(view: View) -> TraceFacts:
    """A view of ``stages.trace_views`` as it is logged; same view, same facts."""
    request_id = request_of(view["trace_id"])
    digest = sha256_hex(f"{LOG_VERSION}\n{jsontext.canonical(view)}".encode("utf-8", "surrogatepass"))
    spans = list(_spans(view, request_id))
    used = view["usage"]
    usage = None
    if used["prompt_tokens"] is not None and used["completion_tokens"] is not None:
        counts = (used["prompt_tokens"], used["completion_tokens"])
        usage = {"input_tokens": counts[0], "output_tokens": counts[1], "total_tokens": sum(counts)}
    recommended = ", ".join(view["recommended"]) or "nothing"
    return TraceFacts(
        request_id=request_id,
        digest=digest,
        name=_tag(f"{view['kind']} {view['by'] or view['facts']['miner_hotkey'] or ''}".strip()),
        spans=spans,
        tags={**_tags(view), "view_digest": digest},
        verdicts=list(_verdicts(view)),
        usage=usage,
        request=capped(view["query"] or "", 1_000),
        response=capped(f"recommended {recommended}", 1_000),
        failed=spans[0].error is not None,
    )


def capped(text: str, limit: int = MAX_TEXT) -> str:
    """A text with unprintable characters as escapes; of a longer one the beginning and a mark.

    MLflow's pages read texts as Markdown and would load a picture from wherever it says, so ``![`` becomes ``!\\[``.
    """
    shown = escaped(text[:limit], keep="\n\t").replace("![", "!\\[")
    if len(text) <= limit:
        return shown
    digest = sha256_hex(text.encode("utf-8", "surrogatepass"))[:16]
    return f"{shown}\n[cut: the first {limit:,} of {len(text):,} characters, sha256 {digest}]"


def capped_value(text: str) -> Any:
    """JSON text as a value whose texts are capped; what is no JSON, or large, as capped text."""
    if len(text) > 4 * MAX_TEXT:
        return capped(text)
    try:
        return _capped(json.loads(text), _MAX_DEPTH)
    except (ValueError, RecursionError):
        return capped(text)


def _capped(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return capped(value)
    if isinstance(value, list | dict) and not depth:
        return capped(jsontext.dumps(value))
    if isinstance(value, list):
        kept = [_capped(item, depth - 1) for item in value[:MAX_ITEMS]]
        return kept + ([f"[cut: {len(value) - MAX_ITEMS:,} more items]"] if len(value) > MAX_ITEMS else [])
    if isinstance(value, dict):
        return {capped(key, MAX_TAG): _capped(inner, depth - 1) for key, inner in list(value.items())[:MAX_ITEMS]}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, int) and abs(value) >= _LARGE else value


def request_of(trace_id: str) -> str:
    """The id of a trace of the lake in MLflow."""
    return f"tr-{sha256_hex(trace_id.encode('utf-8', 'surrogatepass'))[:32]}"


def _spans(view: View, request_id: str) -> Iterator[SpanFacts]:
    """The root first, then the turns in order, each followed by its calls."""
    below = list(_turns(view, request_id))
    first = _day_ms(view["day"])
    starts = [span.start_ns for span in below] or [_ns(first)]
    ends = [span.end_ns for span in below] or starts
    outcome = view["outcome"] or {}
    decision = {name: value for name, value in view["decision"].items() if value not in (None, [], "")}
    error = None if view["readable"] else capped(": ".join(filter(None, (view["malformed"], view["malformed_detail"]))))
    outputs = {"recommended": view["recommended"][:MAX_ITEMS], "outcome": outcome.get("outcome"), **decision}
    yield SpanFacts(
        span_id=_span_id(request_id, "root"),
        parent=None,
        name=view["kind"],
        kind=ROOT,
        start_ns=min(starts),
        end_ns=max(ends),
        inputs={"query": capped(view["query"] or "")},
        outputs=_capped(outputs, _MAX_DEPTH),
        attributes={
            "checks": {one["name"]: one["value"] for one in view["checks"]},
            "oddities": _capped(outcome.get("oddities", {}), _MAX_DEPTH),
            "wanted": (view["wanted"] or [])[:MAX_ITEMS],
            "path": _capped([step for step in view["path"] if step["state"] != "passed"], _MAX_DEPTH),
            "checkpoints": _capped(view["checkpoints"], _MAX_DEPTH),
            "after": _messages(view["after"]),
        },
        error=error,
    )
    yield from below


def _turns(view: View, request_id: str) -> Iterator[SpanFacts]:
    root = _span_id(request_id, "root")
    cursor = next((ms for turn in view["turns"] for ms in _moments(turn)), _day_ms(view["day"]))
    answers: list[dict[str, str]] = []
    for turn in view["turns"]:
        number = turn["number"]
        start, end = _between(cursor, turn)
        cursor = end
        reply = _span_id(request_id, f"turn {number}")
        yield SpanFacts(
            span_id=reply,
            parent=root,
            name=f"turn {number}",
            kind=REPLY,
            start_ns=_ns(start),
            end_ns=_ns(end),
            inputs={"messages": [*answers, *_messages(turn["before"])]},
            outputs={"choices": [{"index": 0, "message": _message(turn)}]},
            attributes={
                "completion_tokens": turn["tokens"],
                "reply_in_log": turn["state"],
                "times": "from the log" if turn["start_ms"] is not None else "not known",
            },
        )
        answers = []
        for place, call in enumerate(turn["calls"]):
            start, end = _between(cursor, call)
            cursor = max(cursor, end)
            yield _tool_span(call, _span_id(request_id, f"turn {number} call {place}"), root, start, end)
            answers.append(_answer(call, call["id"]))
        answers += [_answer(one, "none") for one in turn["orphans"]]


def _tool_span(call: Mapping[str, Any], span_id: str, parent: str, start: float, end: float) -> SpanFacts:
    emitted = {True: "model", False: "agent's code", None: "not known"}[call["emitted"]]
    return SpanFacts(
        span_id=span_id,
        parent=parent,
        name=_tag(call["name"]) or "(no name)",
        kind=TOOL,
        start_ns=_ns(start),
        end_ns=_ns(end),
        inputs=capped_value(call["arguments"]),
        outputs=None if call["result"] is None else capped_value(call["result"]),
        attributes={
            "emitted_by": emitted,
            "http_status": call["status"],
            "answered": call["result"] is not None,
            "times": "from the log" if call["start_ms"] is not None else "not known",
        },
        error=None if call["error"] is None else capped(call["error"]),
    )


def _message(turn: Mapping[str, Any]) -> dict[str, Any]:
    """The reply as a chat message whose thinking is a part of its content: the form whose thinking MLflow shows."""
    content: Any = capped(turn["content"])
    if turn["think"]:
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": capped(turn["think"])}]}
        content = [thinking, *([{"type": "text", "text": content}] if content else [])]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if turn["calls"]:
        message["tool_calls"] = [
            {
                "id": capped(call["id"], MAX_TAG),
                "type": "function",
                "function": {"name": capped(call["name"], MAX_TAG), "arguments": capped(call["arguments"])},
            }
            for call in turn["calls"]
        ]
    return message


def _answer(call: Mapping[str, Any], call_id: str) -> dict[str, str]:
    name, text = capped(call["name"], MAX_TAG), capped(call.get("result") or call.get("text") or "")
    return {"role": "tool", "tool_call_id": capped(call_id, MAX_TAG), "name": name, "content": text}


def _messages(said: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [{"role": capped(one["role"], MAX_TAG), "content": capped(one["text"])} for one in said]


def _moments(one: Mapping[str, Any]) -> Iterator[float]:
    times = [one["start_ms"], one["end_ms"], *(call["start_ms"] for call in one.get("calls", ()))]
    yield from (ms for ms in times if ms is not None)


def _between(cursor: float, one: Mapping[str, Any]) -> tuple[float, float]:
    """Start and end in milliseconds; what is not known is put where the step before ended."""
    end = one["end_ms"]
    start = one["start_ms"] if one["start_ms"] is not None else cursor if end is None else min(cursor, end)
    return start, start if end is None else max(start, end)


def _ns(moment_ms: float) -> int:
    return round(moment_ms * 1000) * 1000


def _day_ms(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000


def _span_id(request_id: str, place: str) -> str:
    return hashlib.sha256(f"{request_id}\n{place}".encode()).hexdigest()[:16]


def _tags(view: View) -> dict[str, str]:
    facts, decision, axis = view["facts"], view["decision"], view["axis"] or {}
    outcome = view["outcome"] or {}
    told = {
        "trace_id": view["trace_id"],
        "day": view["day"],
        "kind": view["kind"],
        "by": view["by"],
        "stage": view["stage"],
        "miner": facts["miner_hotkey"],
        "agent_version": facts["agent_version_id"],
        "problem_id": facts["problem_id"],
        "suite_id": facts["suite_id"],
        "category": facts["category"],
        "axis": axis.get("label"),
        "decision": decision["state"],
        "uses": ", ".join(decision["uses"] or ()),
        "rejected_at": decision["stage"] if decision["state"] == "rejected" else None,
        "reason": decision["reason"],
        "outcome": outcome.get("outcome"),
        "cluster": view["strategy_cluster"],
        "leak_cluster": view["leak_cluster"],
        "pool": view["pool"],
        "checkpoint": ", ".join(sorted({one["checkpoint_id"] for one in view["checkpoints"]})),
        "retracted": None if view["retracted"] is None else view["retracted"]["retraction_id"],
        "sealed": "yes" if view["sealed"] else None,
    }
    return {name: _tag(value) for name, value in told.items() if value not in (None, "")}


def _tag(value: Any) -> str:
    """A tag's value; a longer one says that it was cut, with its digest."""
    text = escaped(str(value)).replace("![", "!\\[")
    if len(text) <= MAX_TAG:
        return text
    return f"{text[: MAX_TAG - 40]}… [cut, sha256 {sha256_hex(text.encode())[:16]}]"


def _verdicts(view: View) -> Iterator[Said]:
    outcome = view["outcome"]
    if outcome is not None:
        source = {"rule": "reward rule", "validator": "validator"}.get(outcome["source"], "none")
        missing = None if outcome["success"] is not None else outcome["reason"] or "unscorable"
        told = {"outcome": str(outcome["outcome"]), "validator_success": str(outcome["validator_success"])}
        yield Said("outcome", outcome["success"], missing, "CODE", source, outcome["reason"], told)
    for one in view["verdicts"]:
        kind = one["judge_kind"]
        judge = {"rules": one["judge_model"] or "rules", "llm": one["judge_model"]}.get(kind)
        what = "reasoning" if one["score_regime"] not in ("conduct", "process") else one["score_regime"]
        value = one["reasoning_quality"]
        yield Said(
            name=f"{what}_{kind}" if what == "reasoning" else what,
            value=value,
            missing=None if value is not None else one["null_reason"] or "not judged",
            kind="CODE" if kind == "rules" else "LLM_JUDGE",
            source=_tag(judge or f"{kind}: {one['judge_model']}"),
            rationale=None if not one["explanation"] else capped(one["explanation"]),
            metadata={"regime": str(one["score_regime"]), "counts": "yes" if one["counts"] else "no"},
        )
