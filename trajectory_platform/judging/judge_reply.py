"""A judge's reply, read strictly: a number of the rubric's grid, or null with the reason (domain 2.6, cases E*).

Accepted is exactly one top-level JSON object, bare or in one code fence around the whole reply. A value is never taken
out of prose, never clamped, never guessed from text: a judge that quotes what the agent wrote about scores must not
be able to pass that on (case E03), and NaN, true, 85 or "0.9" are no verdicts (case E05).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from trajectory_platform.errors import RejectRow
from trajectory_platform.jsontext import parse as parse_json
from trajectory_platform.judging import rubric

MAX_REPLY_BYTES = 64 << 10
MAX_EXPLANATION_CHARS = 500
FIELD = "reasoning_quality"

RESPONSE_SCHEMA: dict[str, Any] = {
    "name": "reasoning_verdict",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {
            "request": {"type": "string"},
            FIELD: {"type": "number", "enum": list(rubric.GRID)},
            "explanation": {"type": "string"},
        },
        "required": ["request", FIELD, "explanation"],
        "additionalProperties": False,
    },
}

# Reasons of a null that a reply gives. Those of a call without a reply are judge_router.FAILURES.
REASONS = {
    "empty": "the reply holds no text",
    "truncated": "the reply was cut by the token limit",
    "unparsed": "not exactly one JSON object",
    "no_quality": "the object has no reasoning_quality",
    "not_a_number": "the value is text, true, false or null",
    "not_finite": "the value is NaN or infinite",
    "off_grid": "the value is none of the rubric's five",
    "other_request": "the object answers another request",
    "refused": "the model declines to grade",
    "filtered": "a content filter ended the reply",
}
_THINK_START, _THINK_END = "<think>", "</think>"
_FENCE_STARTS, _FENCE_END = ("```json", "```JSON", "```"), "```"
_REFUSAL = re.compile(
    r"\b(?:i (?:can(?:'|no)?t|cannot|am unable to|won't|will not)|i'm (?:sorry|unable)|as an ai)\b", re.IGNORECASE
)


class JudgeReply(NamedTuple):
    """``quality`` on the grid, or None with ``null_reason`` (a key of ``REASONS``); ``explanation`` for people."""

    quality: float | None
    null_reason: str | None
    explanation: str | None


def parse(text: str | None, finish_reason: str | None = None, *, nonce: str | None = None) -> JudgeReply:
    """One reply to one verdict.

    Args:
        finish_reason: as the endpoint gives it; ``length`` and ``content_filter`` are nulls of their own.
        nonce: the token of the request; a reply that names another one is about something else.
    """
    if finish_reason == "content_filter":
        return _null("filtered")
    body = _without_thinking(text or "")
    if not body:
        return _null("truncated" if finish_reason == "length" else "empty")
    if len(body) > MAX_REPLY_BYTES:
        return _null("unparsed")
    try:
        value = parse_json(_without_fence(body).encode("utf-8", "replace"))
    except RejectRow:
        if finish_reason == "length":
            return _null("truncated")
        return _null("refused" if _REFUSAL.search(body[:400]) and "{" not in body else "unparsed")
    return _verdict(value.value, bool(value.repairs.get("non_finite_number")), nonce)


def _without_thinking(text: str) -> str:
    """The reply after one closed block of thinking at its beginning. Plain searches: a reply may be made to be slow."""
    body = text.strip()
    if body.startswith(_THINK_START) and (end := body.find(_THINK_END)) >= 0:
        return body[end + len(_THINK_END) :].strip()
    return body


def _without_fence(body: str) -> str:
    """The inside of one code fence around the whole reply (case E01)."""
    if not body.endswith(_FENCE_END):
        return body
    head, _, rest = body.partition("\n")
    return rest.removesuffix(_FENCE_END).strip() if rest and head.rstrip() in _FENCE_STARTS else body


def _verdict(value: Any, repaired: bool, nonce: str | None) -> JudgeReply:
    if not isinstance(value, dict):
        return _null("unparsed")
    if FIELD not in value:
        return _null("no_quality")
    quality = value[FIELD]
    if quality is None and repaired:
        return _null("not_finite")
    if isinstance(quality, bool) or not isinstance(quality, int | float):
        return _null("not_a_number")
    if not rubric.on_grid(float(quality)):
        return _null("off_grid")
    told = value.get("request")
    if nonce is not None and told is not None and told != nonce:
        return _null("other_request")
    explanation = value.get("explanation")
    words = explanation[:MAX_EXPLANATION_CHARS] if isinstance(explanation, str) else None
    nearest = min(rubric.GRID, key=lambda step: abs(step - float(quality)))
    return JudgeReply(nearest, None, words)


def _null(reason: str) -> JudgeReply:
    return JudgeReply(None, reason, REASONS[reason])
