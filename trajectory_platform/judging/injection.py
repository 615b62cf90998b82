"""Text that speaks to the judge or to the model instead of doing its work (domain 6: 28, 29; 8.9).

Detection is by intent, not by known sentences: several families of signs, each with a weight; a text is suspected
when the weights of the families that occur in it reach ``THRESHOLD``. A sign that never occurs in honest shopping
text (a forged log section, ``reasoning_quality``) is enough alone; one that may (``reviewer:``, ``five points``) needs
a second. Texts are compared after NFKC, without invisible characters, with look-alike letters folded and spaced-out
words joined.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from trajectory_platform.judging.dialogue import tool_results
from trajectory_platform.judging.injection_signs import FAMILIES, Family

INJECTION_VERSION = "intent-1"
THRESHOLD = 2
SOURCES = ("think", "query", "param", "response", "product_text")

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u0261\u04bb\u0475\u051b\u051d\u043a\u043c\u0442\u043d\u0432"
    "\u03b1\u03b5\u03bf\u03c1\u03b9\u03ba\u03bd\u03c5\u03c7\u0131\u0269\u026a\u1d00\u0280\u1d07",
    "aeopcyxijsdghvqwkmthbaeopikvuxiiiare",
)
_NON_LATIN = re.compile("[\u0131\u0250-\u02af\u0370-\u03ff\u0400-\u052f\u1d00-\u1d2b]")
_DASHES = re.compile("[\u2010-\u2015\u2212]")
_SPACED = re.compile(r"(?<!\w)(?:[a-z][ ._*\-~|/]){5,}[a-z](?!\w)")
_LETTER_GAP = re.compile(r"[ ._*\-~|/]")
_BLANKS = re.compile(r"[^\S\n]+")
_CACHED_LENGTH = 2048
_SHORT_FIELDS = frozenset({"service"})
_JSON_ESCAPES = (("\\n", "\n"), ("\\r", "\n"), ("\\t", " "), ('\\"', '"'), ("\\/", "/"))


def suspicious(text: str) -> bool:
    """Whether a text addresses the judge or tries to steer the model, whatever its source."""
    # Product texts repeat from trace to trace; long texts do not, and would make the cache large.
    return _cached(text) if len(text) <= _CACHED_LENGTH else _suspicious(text)


@lru_cache(maxsize=1 << 14)
def _cached(text: str) -> bool:
    return _suspicious(text)


def _suspicious(text: str) -> bool:
    plain = comparison_form(text)
    total, reachable = 0, sum(family.weight for family in FAMILIES)
    for family in FAMILIES:
        reachable -= family.weight
        if _occurs(family, plain):
            total += family.weight
        if total >= THRESHOLD:
            return True
        if total + reachable < THRESHOLD:
            return False
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
    plain = text
    if not text.isascii():
        plain = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
        plain = _DASHES.sub("-", plain)
    plain = plain.casefold()
    if not plain.isascii() and _NON_LATIN.search(plain):
        plain = plain.translate(_LOOKALIKES)
    if "\\" in plain:
        for escaped, character in _JSON_ESCAPES:
            plain = plain.replace(escaped, character)
    plain = _SPACED.sub(lambda match: _LETTER_GAP.sub("", match.group()), plain)
    return plain if text.isascii() and "  " not in plain and "\t" not in plain else _BLANKS.sub(" ", plain)


def scan_messages(
    messages: list[dict[str, Any]], extra_queries: Iterable[str] = (), results: Sequence[Any] | None = None
) -> tuple[str, ...]:
    """Sources of suspicious text in a canonical trajectory, in the order of ``SOURCES``.

    Args:
        messages: OpenAI chat messages of one trace.
        extra_queries: queries that steps state besides the first user message.
        results: ``dialogue.tool_results(messages)`` where the caller already has it.

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
    return tuple(source for source in SOURCES if source in found)


def _note(found: set[str], source: str, texts: Iterable[str]) -> None:
    if source not in found and any(text and suspicious(text) for text in texts):
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


def _argument_texts(calls: Any) -> list[str]:
    texts = []
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            texts += [value for value in (function.get("arguments"), function.get("name")) if isinstance(value, str)]
    return texts
