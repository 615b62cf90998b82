"""Product documents on disk: memory-mapped, found by id or by rank of the id, with the filter fields as columns.

A document's *ordinal* is its place among all ids in code point order; the search index numbers its documents the
same way, so a hit leads to price, shop and services without parsing a document. Files of a store (native byte order,
which the manifest of ``catalogue_index`` names):

    documents.jsonl   one document a line, in the order of the catalogue file
    ids.bin           all ids in order, joined;      id_ends.u64   n + 1 offsets into it
    starts.u64        offset of each document;       lengths.u32   its bytes, line end included
    price.f64         NaN without a readable price;  services.u8   one bit for each of ``SERVICES``
    shop.u64          ``shop_key`` of the shop id
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from trajectory_platform.errors import FailPartition
from trajectory_platform.sandbox.products import SERVICES, SkippedLine, price_of, services_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DOCUMENTS = "documents.jsonl"
IDS = "ids.bin"
ID_ENDS = "id_ends.u64"
STARTS = "starts.u64"
LENGTHS = "lengths.u32"
PRICE = "price.f64"
SERVICE_BITS = "services.u8"
SHOP = "shop.u64"
STORE_FILES = (DOCUMENTS, IDS, ID_ENDS, STARTS, LENGTHS, PRICE, SERVICE_BITS, SHOP)
NO_SHOP = 0
_BIT_OF = {name: 1 << place for place, name in enumerate(SERVICES)}


class Columns(NamedTuple):
    """The filter fields of all documents, each of length n, in ordinal order.

    ``price`` (float64) is in PHP; see the module for the meaning of all three.
    """

    price: NDArray[np.float64]
    services: NDArray[np.uint8]
    shop: NDArray[np.uint64]

    def at(self, ordinals: NDArray[Any]) -> Columns:
        """The fields of some documents."""
        return Columns(self.price[ordinals], self.services[ordinals], self.shop[ordinals])


class FilterFields(NamedTuple):
    """One document's entry in ``Columns``."""

    price: float
    services: int
    shop: int


def filter_fields(document: Mapping[str, Any]) -> FilterFields:
    """What a filter may ask of one document."""
    price = price_of(document)
    shop_id = document.get("shop_id")
    return FilterFields(
        float("nan") if price is None else price,
        service_bits(services_of(document)),
        shop_key(shop_id) if isinstance(shop_id, str) else NO_SHOP,
    )


def service_bits(names: Iterable[str]) -> int:
    """The known services as bits; other names have none."""
    bits = 0
    for name in names:
        bits |= _BIT_OF.get(name, 0)
    return bits


def shop_key(shop_id: str) -> int:
    """64 bits that equal shop ids share. Different ids may share them too: who filters compares the ids as well."""
    data = shop_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def columns_of(documents: Iterable[Mapping[str, Any]]) -> Columns:
    """The columns of documents in memory, in their order."""
    import numpy as np

    rows = [filter_fields(document) for document in documents]
    return Columns(
        np.array([row.price for row in rows], np.float64),
        np.array([row.services for row in rows], np.uint8),
        np.array([row.shop for row in rows], np.uint64),
    )


class CatalogueStore:
    """The documents of one built index folder; a ``products.ProductCatalogue``. Iterates in id order.

    What is read is mapped, not loaded: opening takes milliseconds, and processes share the pages. The mapping outlives
    the folder, so that a version which is replaced can be served to the end. Safe to share between threads; a
    pickled store opens its folder again.

    Attributes:
        folder: where the files lie.
        digest: content digest of the catalogue file.
        skipped: examples of the lines that were not usable (``skipped_by_reason`` counts all).
    """

    def __init__(
        self, folder: str | Path, digest: str, reasons: Mapping[str, int], skipped: Iterable[SkippedLine] = ()
    ) -> None:
        self.folder = Path(folder)
        self.digest = digest
        self.skipped = tuple(skipped)
        self._reasons = dict(reasons)
        self._documents = _mapped(self.folder / DOCUMENTS)
        self._ids = _mapped(self.folder / IDS)
        self._id_ends = memoryview(_mapped(self.folder / ID_ENDS)).cast("Q")
        self._starts = memoryview(_mapped(self.folder / STARTS)).cast("Q")
        self._lengths = memoryview(_mapped(self.folder / LENGTHS)).cast("I")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.folder, self.digest, self._reasons, self.skipped))

    def columns(self) -> Columns:
        """The filter fields, mapped."""
        import numpy as np

        return Columns(
            np.frombuffer(_mapped(self.folder / PRICE), np.float64),
            np.frombuffer(_mapped(self.folder / SERVICE_BITS), np.uint8),
            np.frombuffer(_mapped(self.folder / SHOP), np.uint64),
        )

    def document(self, ordinal: int) -> dict[str, Any]:
        """The document of an ordinal, parsed anew: the caller may change it.

        Raises:
            FailPartition: the stored bytes are no document any more.
        """
        start = self._starts[ordinal]
        data = self._documents[start : start + self._lengths[ordinal]]
        try:
            document: dict[str, Any] = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise FailPartition(f"document {ordinal} of {self.folder} is damaged; remove the folder") from error
        return document

    def ordinal(self, product_id: str) -> int | None:
        """The place of an id, by binary search, or None."""
        try:
            wanted = product_id.encode()
        except UnicodeEncodeError:  # a lone surrogate is in no stored id
            return None
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._id(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self._id(low) == wanted else None

    def get(self, product_id: str, /) -> dict[str, Any] | None:
        """The document, or None; the id is compared exactly, nothing is stripped."""
        ordinal = self.ordinal(product_id)
        return None if ordinal is None else self.document(ordinal)

    def __contains__(self, product_id: object, /) -> bool:
        return isinstance(product_id, str) and self.ordinal(product_id) is not None

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.document(ordinal) for ordinal in range(len(self)))

    def skipped_by_reason(self) -> dict[str, int]:
        """How many lines were skipped, per reason, sorted by reason."""
        return dict(sorted(self._reasons.items()))

    def _id(self, ordinal: int) -> bytes:
        return self._ids[self._id_ends[ordinal] : self._id_ends[ordinal + 1]]


def _mapped(path: Path) -> mmap.mmap | bytes:
    """The file's content, read only; an empty file cannot be mapped."""
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
