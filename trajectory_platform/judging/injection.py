"""Text that speaks to the judge or to the model instead of doing its work (domain 6: 28, 29; 8.9).

Detection is by intent, not by known sentences: several families of signs, each with a weight; a text is suspected
when the weights of the families that occur in it reach ``THRESHOLD``. A sign that never occurs in honest shopping
text (a forged log section, ``reasoning_quality``) is enough alone; one that may (``reviewer:``, ``five points``) needs
a second. Texts are compared in plain letters (``letters``: look-alikes, accents, ornaments and escapes folded) with
spaced-out words joined. Runs of base64 or hex that decode to words, and text turned by rot13, are read as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from trajectory_platform.judging.dialogue import tool_results
from trajectory_platform.judging.injection_encoded import hidden_texts
from trajectory_platform.judging.injection_families import Family
from trajectory_platform.judging.injection_signs import FAMILIES
from trajectory_platform.judging.injection_words import possible_families
from trajectory_platform.judging.letters import decoded, plain_letters

INJECTION_VERSION = "intent-3"
THRESHOLD = 2
SOURCES = ("think", "query", "param", "response", "product_text")

_SPACED = re.compile(r"(?<!\w)(?:[a-z][ ._*\-~|/]){5,}[a-z](?!\w)")
_LETTER_GAP = re.compile(r"[ ._*\-~|/]")
_BLANKS = re.compile(r"[^\S\n]+")
_CACHED_LENGTH = 2048
_SHORT_FIELDS = frozenset({"service"})
_JSON_ESCAPES = (("\\n", "\n"), ("\\r", "\n"), ("\\t", " "), ('\\"', '"'), ("\\/", "/"))


def suspicious(text: str) -> bool:
    """Whether a text addresses the judge or tries to steer the model, whatever its source."""
    # Product texts, queries and names repeat from trace to trace; long texts do not, and would make the cache large.
    return _cached(text) if len(text) <= _CACHED_LENGTH else _suspicious(text)


@lru_cache(maxsize=1 << 15)
def _cached(text: str) -> bool:
    return _suspicious(text)


def _suspicious(text: str) -> bool:
    return _says(text) or any(map(_says, hidden_texts(text)))


def _says(text: str) -> bool:
    plain = comparison_form(text)
    possible = possible_families(plain)
    total, reachable = 0, sum(family.weight for family in possible)
    for family in possible:
        if total + reachable < THRESHOLD:
            return False
        reachable -= family.weight
        if _occurs(family, plain):
            total += family.weight
        if total >= THRESHOLD:
            return True
    return False


def signs(text: str) -> tuple[str, ...]:
    """Names of the families that occur in a text, in the order of ``FAMILIES``; for people and tests."""
    plain = comparison_form(text)
    return tuple(family.name for family in FAMILIES if _occurs(family, plain))


def _occurs(family: Family, plain: str) -> bool:
    for stems in family.stems:
        for stem in stems:
            if stem in plain:
                break
        else:
            return False
    return family.pattern.search(plain) is not None


def comparison_form(text: str) -> str:
    """The form in which texts are compared: folded, invisible characters gone, spaced-out words joined."""
    plain = plain_letters(text)
    if "\\" in plain:
        for escaped, character in _JSON_ESCAPES:
            plain = plain.replace(escaped, character)
    plain = decoded(plain)
    plain = _SPACED.sub(lambda match: _LETTER_GAP.sub("", match.group()), plain)
    return plain if text.isascii() and "  " not in plain and "\t" not in plain else _BLANKS.sub(" ", plain)


def scan_messages(
    messages: list[dict[str, Any]],
    extra_queries: Iterable[str] = (),
    results: Sequence[Any] | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Sources of suspicious text in a canonical trajectory, in the order of ``SOURCES``.

    Args:
        messages: OpenAI chat messages of one trace.
        extra_queries: queries that steps state besides the first user message.
        results: ``dialogue.tool_results(messages)`` where the caller already has it.
        evidence: ``traces.evidence`` of the trace: a judge is shown its requests, which need not stand in the dialogue.

    The thoughts of a trace are also read together, so that a directive cannot be split over two steps.
    """
    found: set[str] = set()
    thoughts: list[str] = []
    for message in messages:
        role = message.get("role")
        content = message.get("content")
        text = content if isinstance(content, str) else ""
        if role == "user":
            _note(found, "query", (text,))
        elif role == "assistant":
            thought = message.get("reasoning_content")
            thoughts += [thought] if isinstance(thought, str) and thought else []
            _note(found, "response", (text,))
            _note(found, "param", _argument_texts(message.get("tool_calls")))
    for result in tool_results(messages) if results is None else results:
        _note(found, "product_text", _row_texts(result))
    _note(found, "think", ("\n".join(thoughts),))
    _note(found, "query", extra_queries)
    _note(found, "param", _request_texts(evidence or {}))
    return tuple(source for source in SOURCES if source in found)


def _note(found: set[str], source: str, texts: Iterable[str]) -> None:
    judge = _suspicious if source == "think" else suspicious  # all thoughts of a trace together occur once
    if source not in found and any(text and judge(text) for text in texts):
        found.add(source)


def _row_texts(result: Any) -> Iterator[str]:
    """One text per result row, so that words split over fields meet and repeated rows are judged once."""
    for row in result if isinstance(result, list) else (result,):
        parts: list[str] = []
        _collect(row, parts, 0)
        if parts:
            yield "\n".join(parts)


def _collect(value: Any, parts: list[str], depth: int) -> None:
    if isinstance(value, str):
        parts.append(value)
    elif isinstance(value, dict) and depth < 20:
        for name, inner in value.items():
            if isinstance(inner, str):
                if len(inner) > 10:  # ids and flags say nothing
                    parts.append(inner)
            elif isinstance(inner, dict | list) and inner and name not in _SHORT_FIELDS:
                if depth and len(name) > 16:  # a key of free-form attributes can carry a sentence
                    parts.append(name)
                _collect(inner, parts, depth + 1)
    elif isinstance(value, list) and depth < 20:
        for inner in value:
            if isinstance(inner, str):
                parts.append(inner)
            elif isinstance(inner, dict | list):
                _collect(inner, parts, depth + 1)


def _request_texts(evidence: Mapping[str, Any]) -> Iterator[str]:
    """What the agent's own process wrote into the requests of its log; equal requests once."""
    seen: set[str] = set()
    for event in evidence.get("events") or ():
        if event.get("kind") != "dispatch":
            continue
        ids = [name for name in event.get("result_ids") or () if not name.isdecimal()]
        for text in (event.get("tool"), event.get("arguments"), "\n".join(ids)):
            if isinstance(text, str) and text not in seen:
                seen.add(text)
                yield text


def _argument_texts(calls: Any) -> list[str]:
    texts = []
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            texts += [value for value in (function.get("arguments"), function.get("name")) if isinstance(value, str)]
    return texts
