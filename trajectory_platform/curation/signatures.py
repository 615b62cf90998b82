"""The calls of a trace as a compact set of digests: what an agent did, without what it said (domain 6: 43).

Two traces with near-equal signatures on variants of one problem did the same. The signature is stored with the corpus,
so that copies can be found across days without the messages.

The shingles of a trace are, for every call, its place (the tool before it, the tool, and how many words each of its
arguments has) and each word of its arguments in the form in which they take effect: aliases, argument order, defaults
and filters the server ignores make no difference. Words count per tool and not per call, so that one more search moves
no other shingle; a repeated shingle counts as often as it occurs. Of n shingles one changed word leaves a similarity of
(n - 1) / (n + 1), one more word or filter (n - 1) / (n + 2): in a search, view, recommend, terminate of 10 shingles
0.82 and 0.75, in 30 shingles 0.94 and 0.91. A short sequence has few shingles, never none.
"""

from __future__ import annotations

import re
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import orjson

from trajectory_platform.sandbox.search import ServerError, parse_page, parse_price, parse_services
from trajectory_platform.traces.arguments import normalise_arguments

SIGNATURE_VERSION = "calls-2"
_FORM = "2."  # in front of every stored signature: digests of another form cannot be compared
_BYTES = 4
_MAX_SHINGLES = 1_000  # beyond it the smallest digests stand for all: a sample that is the same for equal calls
_MAX_TEXT = 20_000  # characters of one argument that are read; code and pasted pages are no search words
_WORD = re.compile(r"[^\W_]+(?:\.[0-9]+)?")
_SORTS = frozenset({"priceasc", "pricedesc", "order"})
_NO_CALL = "^"


def signature_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """The shingles of the calls as sorted 4-byte digests in base64; "" without calls.

    About 5.4 bytes a shingle: 150 bytes for a median trace of 5 calls.
    """
    counts: dict[str, int] = {}
    digests = set()
    for shingle in call_shingles(messages):
        count = counts[shingle] = counts.get(shingle, 0) + 1
        digests.add(_digest(shingle, count))
    if not digests:
        return ""
    kept = sorted(digests)[:_MAX_SHINGLES]
    return _FORM + b64encode(b"".join(kept)).decode("ascii")


def shingles(signature: str) -> frozenset[int]:
    """The set of shingles of a stored signature; empty for "".

    Raises:
        ValueError: a signature of another form, or none at all.
    """
    if not signature:
        return frozenset()
    if not signature.startswith(_FORM):
        raise ValueError(f"not a signature of form {_FORM!r}: {signature[:16]!r}")
    data = b64decode(signature[len(_FORM) :], validate=True)
    if len(data) % _BYTES:
        raise ValueError(f"a signature of {len(data)} bytes")
    return frozenset(int.from_bytes(data[at : at + _BYTES], "big") for at in range(0, len(data), _BYTES))


def similarity(one: frozenset[int], other: frozenset[int]) -> float:
    """Jaccard similarity; 0 where one of them is empty, for nothing cannot be a copy (case D01)."""
    if not one or not other:
        return 0.0
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


def call_shingles(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Shingles of every call in order, with repetitions."""
    before = _NO_CALL
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            name = str(function["name"])
            arguments = _effective(name, function["arguments"])
            words = {key: _words(name, key, arguments[key]) for key in sorted(arguments)}
            yield f"{before}>{name} " + " ".join(f"{key}:{len(found)}" for key, found in words.items())
            before = name
            for key, found in words.items():
                for word in found:
                    yield f"{name} {key} {word}"


def _effective(name: str, arguments: object) -> Mapping[str, str]:
    """The arguments by name, in the form in which they take effect; text that is no object stands for itself."""
    try:
        value = orjson.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return {"": str(arguments)}
    form: dict[str, str] = orjson.loads(normalise_arguments(name, value))
    return _search_form(form) if name == "find_product" else form


def _search_form(form: dict[str, str]) -> dict[str, str]:
    """Without the filters that the server ignores, and every page and price in one spelling (domain 3)."""
    price, service, sort, page = (form.pop(key, None) for key in ("price", "service", "sort", "page"))
    bounds = parse_price(price)
    if bounds.low is not None and bounds.low > 0:  # no product is below 0: "0-50" is "-50"
        form["price from"] = repr(bounds.low)
    if bounds.high is not None:
        form["price to"] = repr(bounds.high)
    if known := parse_services(service):
        form["service"] = " ".join(sorted(known))
    if sort in _SORTS:
        form["sort"] = sort
    if page is not None:
        try:
            number = parse_page(page)
        except ServerError:
            number = None
        if number != 1:
            form["page"] = "none" if number is None else str(number)
    return form


def _words(tool: str, key: str, text: str) -> list[str]:
    if key == "product_ids" and tool == "recommend_product":
        return [f"{place} {item}" for place, item in enumerate(text.split(","))]  # positions are scored
    if key in ("product_ids", "product_id", "product_prices", "shop_id"):
        return text.split(",")
    words = _WORD.findall(unicodedata.normalize("NFKC", text[:_MAX_TEXT]).casefold())
    return words or [text[:_MAX_TEXT]]


@lru_cache(maxsize=1 << 16)
def _digest(shingle: str, count: int) -> bytes:
    return blake2b(f"{count} {shingle}".encode("utf-8", "replace"), digest_size=_BYTES).digest()
