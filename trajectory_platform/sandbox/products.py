"""Product documents: the schema of the marketplace (domain 3) and the catalogue that holds them.

A document is kept as published; only ids become text. Broken lines are skipped and counted with a reason,
never repaired by guessing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import orjson

from trajectory_platform.errors import RejectRow
from trajectory_platform.jsontext import canonical, dumps, parse
from trajectory_platform.sandbox.product_files import MAX_LINE_BYTES, Source, inflated, lines_of

SERVICES = ("official", "freeShipping", "COD", "flashsale")
VIEW_FIELDS = ("product_id", "short_description", "description", "sku_options", "attributes")
ROW_FIELDS = ("product_id", "shop_id", "title", "price", "service", "sold_count")
MAX_DEPTH = 100  # nesting; as everywhere else (jsontext.parse)
BLANK = b"\x00\r\n\t "
_DETAIL_CHARS = 80  # ids are hostile text of any length


@dataclass(frozen=True)
class SkippedLine:
    """One line of a catalogue file that is no usable document.

    Attributes:
        line: 0-based line (or item) number.
        reason: a reason of ``jsontext.parse`` | not_object | product_id_missing | title_missing | line_too_long |
            too_deep | duplicate_product_id (of different documents the first by content is kept, so that the order of
            the lines decides nothing).
        detail: free text for people.
    """

    line: int
    reason: str
    detail: str


class ProductCatalogue(Protocol):
    """What tools, search and scorer need of a catalogue, in memory (``Catalogue``) or on disk (``CatalogueStore``)."""

    @property
    def digest(self) -> str:
        """Names the content; equal documents may have several names (packing and order, ``product_files``)."""

    def get(self, product_id: str, /) -> dict[str, Any] | None:
        """The document, or None; the id is compared exactly, nothing is stripped."""

    def __contains__(self, product_id: object, /) -> bool: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[dict[str, Any]]: ...

    def skipped_by_reason(self) -> dict[str, int]:
        """How many lines were skipped, per reason, sorted by reason."""


class Catalogue:
    """Product documents by id, in memory, in the order of the file.

    Attributes:
        skipped: what was not usable, one entry a line.
    """

    def __init__(
        self, documents: Mapping[str, dict[str, Any]], skipped: Iterable[SkippedLine] = (), digest: str | None = None
    ) -> None:
        self._documents = dict(documents)
        self._named = digest
        self.skipped = tuple(skipped)

    @cached_property
    def digest(self) -> str:
        """Content digest of the file; of documents that came from no file, the one of their canonical lines."""
        if self._named is not None:
            return self._named
        hasher = hashlib.sha256()
        for product_id in sorted(self._documents):
            hasher.update(canonical(self._documents[product_id]).encode() + b"\n")
        return hasher.hexdigest()

    def get(self, product_id: str, /) -> dict[str, Any] | None:
        """The document, or None; the id is compared exactly, nothing is stripped."""
        return self._documents.get(product_id)

    def __contains__(self, product_id: object, /) -> bool:
        return product_id in self._documents

    def __len__(self) -> int:
        return len(self._documents)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._documents.values())

    def skipped_by_reason(self) -> dict[str, int]:
        """How many lines were skipped, per reason, sorted by reason."""
        return count_reasons(entry.reason for entry in self.skipped)


def count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """How often each reason occurs, sorted by reason."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items()))


def load_products(source: Source | Iterable[Mapping[str, Any] | bytes]) -> Catalogue:
    """A catalogue in memory from a file, its bytes, or an iterable of documents or JSON lines.

    Files may be plain, gzip or zstd JSON lines; the form is read from the first bytes, not from the name. Large files
    are for ``catalogue_index.build_index``, which holds no document in memory.

    Raises:
        Abort: the file does not exist.
        FailPartition: its compression is damaged: nobody knows what is missing.
    """
    if not isinstance(source, str | Path | bytes) and not callable(source):
        return _collected(source, None)
    hasher = hashlib.sha256()

    def hashed() -> Iterator[bytes]:
        for piece in inflated(source):
            hasher.update(piece)
            yield piece

    return _collected(lines_of(hashed()), hasher)


def _collected(items: Iterable[Mapping[str, Any] | bytes], hasher: hashlib._Hash | None) -> Catalogue:
    """The usable documents; ``hasher`` has seen the whole file once the items are used up."""
    documents: dict[str, dict[str, Any]] = {}
    skipped: list[SkippedLine] = []
    line_of: dict[str, int] = {}
    for number, item in enumerate(items):
        if isinstance(item, bytes) and not item.strip(BLANK):
            continue
        try:
            document = read_document(item)
        except RejectRow as error:
            skipped.append(SkippedLine(number, error.reason, error.detail))
            continue
        product_id = document["product_id"]
        held = documents.get(product_id)
        if held is None or canonical(document) < canonical(held):
            documents[product_id] = document
            # the line that is reported below is the one that gave way
            number, line_of[product_id] = line_of.get(product_id, number), number
        if held is not None:
            skipped.append(SkippedLine(number, "duplicate_product_id", product_id[:_DETAIL_CHARS]))
    digest = hasher.hexdigest() if hasher else None
    return Catalogue(documents, sorted(skipped, key=lambda entry: entry.line), digest)


def read_document(item: Mapping[str, Any] | bytes) -> dict[str, Any]:
    """One usable document with text ids.

    Raises:
        RejectRow: a reason of ``SkippedLine``.
    """
    value: Any = item
    if isinstance(item, bytes):
        if len(item) > MAX_LINE_BYTES:
            raise RejectRow("line_too_long", f"more than {MAX_LINE_BYTES} bytes")
        try:
            value = orjson.loads(item)
        except orjson.JSONDecodeError:
            # NaN, lone surrogates, NUL bytes at the end, numbers beyond a double
            value = json.loads(dumps(parse(item.strip(BLANK)).value), parse_int=_integer)
        if item.count(b"[") + item.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise RejectRow("too_deep", f"nested more than {MAX_DEPTH} levels")
    if not isinstance(value, Mapping):
        raise RejectRow("not_object", type(value).__name__)
    document = dict(value)
    for name in ("product_id", "shop_id"):
        raw = document.get(name)
        if isinstance(raw, int) and not isinstance(raw, bool):
            document[name] = str(raw)
    product_id = document.get("product_id")
    if not isinstance(product_id, str) or not product_id:
        raise RejectRow("product_id_missing", repr(product_id)[:_DETAIL_CHARS])
    if not isinstance(document.get("title"), str):
        raise RejectRow("title_missing", product_id[:_DETAIL_CHARS])
    return document


def _integer(digits: str) -> int | float | None:
    """An integer as orjson reads it on every other line: a float beyond 64 bits, null beyond a double."""
    value = int(digits)
    if -(1 << 63) <= value < 1 << 64:
        return value
    try:
        return float(value)
    except OverflowError:
        return None


def _depth(value: Any) -> int:
    """Levels of lists and objects, counted without recursion."""
    depth = 0
    level = [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def options_of(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """The SKU options as a list of {key: value} texts; empty for null, ``{}`` or any other shape (case 22)."""
    options = document.get("sku_options")
    if not isinstance(options, Mapping):
        return []
    return [
        {str(key): str(value) for key, value in option.items()}
        for option in options.values()
        if isinstance(option, Mapping) and option
    ]


def attributes_of(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """The attributes as key -> list of texts; a single value becomes a list, other shapes are empty."""
    attributes = document.get("attributes")
    if not isinstance(attributes, Mapping):
        return {}
    return {
        str(key): [str(value) for value in values] if isinstance(values, list) else [str(values)]
        for key, values in attributes.items()
        if values is not None
    }


def price_of(document: Mapping[str, Any]) -> float | None:
    """The price in PHP, or None where the document has no finite number (text is refused, case 19)."""
    price = document.get("price")
    if isinstance(price, bool) or not isinstance(price, int | float):
        return None
    try:
        value = float(price)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return value if value == value and abs(value) != float("inf") else None


def search_text(document: Mapping[str, Any]) -> str:
    """What the search looks at: title, SKU values and attribute values (domain 3), never keys or descriptions."""
    parts: list[str] = [document["title"]]
    options, attributes = document.get("sku_options"), document.get("attributes")
    if isinstance(options, Mapping):
        for option in options.values():
            if isinstance(option, Mapping):
                parts += map(str, option.values())
    if isinstance(attributes, Mapping):
        for values in attributes.values():
            if isinstance(values, list):
                parts += map(str, values)
            elif values is not None:
                parts.append(str(values))
    text = " ".join(parts)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def services_of(document: Mapping[str, Any]) -> list[str]:
    """The service list; empty for any other shape."""
    services = document.get("service")
    return [str(service) for service in services] if isinstance(services, list) else []
