"""Product documents: the schema of the marketplace (domain 3) and the catalogue that holds them.

A document is kept as published; only ids become text. Broken lines are skipped and counted with a reason,
never repaired by guessing.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from trajectory_platform.errors import Abort, FailPartition, RejectRow
from trajectory_platform.jsontext import canonical, parse

SERVICES = ("official", "freeShipping", "COD", "flashsale")
VIEW_FIELDS = ("product_id", "short_description", "description", "sku_options", "attributes")
ROW_FIELDS = ("product_id", "shop_id", "title", "price", "service", "sold_count")
MAX_LINE_BYTES = 1 << 20  # the largest real document has 5.2 KB (domain 3)
_BLANK = b"\x00\r\n\t "
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class SkippedLine:
    """One line of a catalogue file that is no usable document.

    Attributes:
        line: 0-based line (or item) number.
        reason: a reason of ``jsontext.parse`` | not_object | product_id_missing | title_missing | line_too_long |
            duplicate_product_id (of different documents the first by content is kept, so that the order of the
            lines decides nothing).
        detail: free text for people.
    """

    line: int
    reason: str
    detail: str


class Catalogue:
    """Product documents by id, in the order of the file.

    Attributes:
        skipped: what was not usable, one entry a line.
    """

    def __init__(self, documents: Mapping[str, dict[str, Any]], skipped: Iterable[SkippedLine] = ()) -> None:
        self._documents = dict(documents)
        self.skipped = tuple(skipped)

    def get(self, product_id: str) -> dict[str, Any] | None:
        """The document, or None; the id is compared exactly, nothing is stripped."""
        return self._documents.get(product_id)

    def __contains__(self, product_id: object) -> bool:
        return product_id in self._documents

    def __len__(self) -> int:
        return len(self._documents)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._documents.values())

    def skipped_by_reason(self) -> dict[str, int]:
        """How many lines were skipped, per reason, sorted by reason."""
        counts: dict[str, int] = {}
        for entry in self.skipped:
            counts[entry.reason] = counts.get(entry.reason, 0) + 1
        return dict(sorted(counts.items()))


def load_products(source: str | Path | bytes | Iterable[Mapping[str, Any] | bytes]) -> Catalogue:
    """A catalogue from a file, its bytes, or an iterable of documents or JSON lines.

    Files may be plain, gzip or zstd JSON lines; the form is read from the first bytes, not from the name.

    Raises:
        Abort: the file does not exist.
        FailPartition: its compression is damaged: nobody knows what is missing.
    """
    if isinstance(source, str | Path):
        try:
            source = Path(source).read_bytes()
        except OSError as error:
            raise Abort(f"cannot read the product catalogue: {error}") from error
    items: Iterable[Mapping[str, Any] | bytes]
    items = _lines(source) if isinstance(source, bytes) else source
    documents: dict[str, dict[str, Any]] = {}
    skipped: list[SkippedLine] = []
    line_of: dict[str, int] = {}
    for number, item in enumerate(items):
        if isinstance(item, bytes) and not item.strip(_BLANK):
            continue
        try:
            document = _document(item)
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
            skipped.append(SkippedLine(number, "duplicate_product_id", product_id))
    return Catalogue(documents, sorted(skipped, key=lambda entry: entry.line))


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
    value = float(price)
    return value if value == value and abs(value) != float("inf") else None


def services_of(document: Mapping[str, Any]) -> list[str]:
    """The service list; empty for any other shape."""
    services = document.get("service")
    return [str(service) for service in services] if isinstance(services, list) else []


def _lines(data: bytes) -> Iterator[bytes]:
    """Lines of plain, gzip or zstd bytes, one at a time: the inflated text is never held as a whole."""
    try:
        if data.startswith(_GZIP):
            yield from _capped(gzip.GzipFile(fileobj=io.BytesIO(data)))
        elif data.startswith(_ZSTD):
            import pyarrow as pa

            with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                yield from _capped(io.BufferedReader(stream))
        else:
            yield from _capped(io.BytesIO(data))
    except (OSError, EOFError, zlib.error) as error:
        raise FailPartition(f"the product catalogue is damaged: {error}; fetch it again") from error


def _capped(stream: BinaryIO | io.BufferedIOBase) -> Iterator[bytes]:
    """Lines of a stream; of one that is too long (a decompression bomb has no line ends) only the beginning."""
    first = True
    while line := stream.readline(MAX_LINE_BYTES + 1):
        rest = line
        while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE_BYTES + 1)
        yield line.removeprefix(_BOM) if first else line
        first = False


def _document(item: Mapping[str, Any] | bytes) -> dict[str, Any]:
    """One usable document with text ids, or RejectRow."""
    value: Any = item
    if isinstance(item, bytes):
        if len(item) > MAX_LINE_BYTES:
            raise RejectRow("line_too_long", f"more than {MAX_LINE_BYTES} bytes")
        try:
            value = orjson.loads(item)
        except orjson.JSONDecodeError:
            value = parse(item.strip(_BLANK)).value  # NaN, lone surrogates, NUL bytes at the end
    if not isinstance(value, Mapping):
        raise RejectRow("not_object", type(value).__name__)
    document = dict(value)
    for name in ("product_id", "shop_id"):
        raw = document.get(name)
        if isinstance(raw, int) and not isinstance(raw, bool):
            document[name] = str(raw)
    product_id = document.get("product_id")
    if not isinstance(product_id, str) or not product_id:
        raise RejectRow("product_id_missing", repr(product_id)[:80])
    if not isinstance(document.get("title"), str):
        raise RejectRow("title_missing", product_id)
    return document
