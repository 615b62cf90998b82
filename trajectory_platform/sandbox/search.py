"""Product search with the semantics of the benchmark's search server (domain 3).

BM25 over title, SKU values and attribute values. The 10,000 best hits are walked in rank order, filters are applied
on the way, and the walk stops at 50 survivors; only those 50 are sorted and paged. So "cheapest" means cheapest among
the 50 best-ranked, and a filter that the server cannot read is silently no filter at all.

Filters look at columns (``store.Columns``), all hits at once; a document is parsed only where a row shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.sandbox.products import (
    ROW_FIELDS,
    SERVICES,
    VIEW_FIELDS,
    ProductCatalogue,
    price_of,
    search_text,
    services_of,
)
from trajectory_platform.sandbox.ranking import Ranking, write_ranking
from trajectory_platform.sandbox.store import CatalogueStore, Columns, columns_of, service_bits, shop_key

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Passes = Callable[[NDArray[np.uint32]], NDArray[np.bool_]]

MAX_HITS = 10_000
MAX_SURVIVORS = 50
PAGE_ROWS = 10
LAST_PAGE = 5
_NOT_A_WORD = re.compile(r"[\W_]+")
_ASCII_LOWER = {ord(letter): letter.lower() for letter in ascii_uppercase}
REMEMBERED_SEARCHES = 20_000  # at most 50 numbers each
_REMEMBERED_RANKINGS = 64  # 40 KB each: one question of many shops asks for the same words again and again
_SAMPLE = 4096  # products by which the share that passes a filter is guessed
_IN_MEMORY_HEAP = 256 << 20


class ServerError(ValueError):
    """The request makes the reference server answer with status 500; the tool layer turns it into an error result."""


class PriceRange(NamedTuple):
    """Inclusive bounds in PHP; None is an open bound."""

    low: float | None
    high: float | None


def parse_price(text: str | None) -> PriceRange:
    """The bounds of a ``price`` filter; both open when the text cannot be read.

    A price needs exactly one ASCII dash; a side that does not parse as a float is an open bound, and so is NaN.
    """
    if text is None or text.count("-") != 1:
        return PriceRange(None, None)
    low, high = (_bound(side) for side in text.split("-"))
    return PriceRange(low, high)


def parse_services(text: str | None) -> frozenset[str]:
    """The known service names of a csv filter; anything else ("LazMall", " COD", "cod") is ignored silently."""
    return frozenset(name for name in (text or "").split(",") if name in SERVICES)


def parse_page(text: str | None) -> int | None:
    """The page number, or None for a page that has no rows (missing, 0, 6, "1.0", " 1").

    Raises:
        ServerError: a digit that is no decimal, such as a superscript.
    """
    if text is None or not text.isdigit():
        return None
    try:
        page = int(text)
    except ValueError as error:
        raise ServerError(f"page {text!r} is no number") from error
    return page if 1 <= page <= LAST_PAGE else None


def words_of(text: str) -> str:
    """The query as plain words: special characters become spaces, and in lower case no word is an operator.

    Only ASCII is folded here. The engine folds the rest as it did in the documents, and the two differ: Python writes
    U+0130 as two characters, of which the engine makes two words, and ends a Greek word with another sigma.
    """
    return _NOT_A_WORD.sub(" ", text).strip().translate(_ASCII_LOWER)


class _Request(NamedTuple):
    """The part of a request that decides the survivors; page and sort come afterwards."""

    words: str
    shop_id: str | None
    price: str | None
    service: str | None


class _Listing(NamedTuple):
    """One row of an answer and the price it is sorted by."""

    row: dict[str, Any]
    price: float | None


class SearchIndex:
    """The search server over one catalogue. Results depend only on the documents and the request.

    Args:
        catalogue: a catalogue in memory, which is indexed now, or a ``CatalogueStore``.
        ranking: the ranking that was built for the store; none for a catalogue in memory.
        remembered: how many searches are remembered; 0 for none.
    """

    def __init__(
        self, catalogue: ProductCatalogue, ranking: Ranking | None = None, *, remembered: int = REMEMBERED_SEARCHES
    ) -> None:
        self.catalogue = catalogue
        self._document: Callable[[int], dict[str, Any]]
        if isinstance(catalogue, CatalogueStore) and ranking is not None:
            self._columns = catalogue.columns()
            self._document = catalogue.document
            self._ranking = ranking
        else:
            documents = sorted(catalogue, key=lambda document: str(document["product_id"]))
            self._columns = columns_of(documents)
            self._document = documents.__getitem__
            self._ranking = write_ranking(map(search_text, documents), heap_bytes=_IN_MEMORY_HEAP)
        self._remembered = remembered
        self._survivors_of: dict[_Request, list[int]] = {}
        self._best_of: dict[str, NDArray[np.uint32]] = {}
        self._sample = _sample(len(self._columns.price))
        self._sampled = self._columns.at(self._sample)

    def find(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows of ``GET /search/find_product``: at most 10 of {product_id, shop_id, title, price, service, sold_count}.

        ``params`` are the request's parameters as sent: a missing page is *not* page 1 here (that default is the
        client's). Numbers are read as their text.

        Raises:
            ServerError: the reference server would answer 500.
        """
        page = parse_page(_text(params.get("page")))
        query = words_of(_text(params.get("q")) or "")
        if page is None or not query:
            return []
        request = _Request(
            query,
            _text(params.get("shop_id")) or None,
            _text(params.get("price")),
            _text(params.get("service")),
        )
        survivors = self._survivors_of.get(request)
        if survivors is None:
            survivors = _remember(self._survivors_of, request, self._survivors(request), self._remembered)
        sort = _text(params.get("sort"))
        shown = slice((page - 1) * PAGE_ROWS, page * PAGE_ROWS)
        if sort not in _ORDERS:  # only the rows that are shown are parsed
            return [self._listing(ordinal).row for ordinal in survivors[shown]]
        listings = sorted((self._listing(ordinal) for ordinal in survivors), key=_ORDERS[sort])
        return [listing.row for listing in listings[shown]]

    def view(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows of ``GET /search/view_product_information``: {product_id, short_description, description,
        sku_options, attributes}; no title, price or shop. Ids are split on "," and not stripped; unknown ones are
        silently missing.

        Raises:
            ServerError: ``product_ids`` is absent.
        """
        ids = _text(params.get("product_ids"))
        if ids is None:
            raise ServerError("product_ids is missing")
        documents = (self.catalogue.get(product_id) for product_id in ids.split(","))
        return [{name: document.get(name) for name in VIEW_FIELDS} for document in documents if document is not None]

    def _survivors(self, request: _Request) -> list[int]:
        """The best-ranked products that pass the filters, at most 50, in rank order."""
        price, wanted = parse_price(request.price), service_bits(parse_services(request.service))
        if request.shop_id is None and price == (None, None) and not wanted:
            return _as_list(self._best(request.words, MAX_SURVIVORS))
        share = float(_passing(self._sampled, request.shop_id, price, wanted).mean()) if len(self._sample) else 0.0
        # twice what the share asks for; the guess costs time where it is wrong, never a survivor
        guess = int(2 * MAX_SURVIVORS / share) + MAX_SURVIVORS if share else MAX_HITS
        found: list[int] = []
        for limit in (guess, MAX_HITS) if guess < MAX_HITS // 2 else (MAX_HITS,):
            best = self._best(request.words, limit)
            passing = _as_list(best[_passing(self._columns.at(best), request.shop_id, price, wanted)])
            found = list(
                islice((ordinal for ordinal in passing if self._is_of(request.shop_id, ordinal)), MAX_SURVIVORS)
            )
            if len(found) == MAX_SURVIVORS or len(best) < limit:
                break
        return found

    def _best(self, words: str, limit: int) -> NDArray[np.uint32]:
        """The best-ranked ordinals; only full lists are remembered, and each shorter one is the beginning of it."""
        known = self._best_of.get(words)
        if known is None:
            known = self._ranking.best(words, limit)
            if limit == MAX_HITS:
                _remember(self._best_of, words, known, min(self._remembered, _REMEMBERED_RANKINGS))
        return known[:limit]

    def _is_of(self, shop_id: str | None, ordinal: int) -> bool:
        """Whether the product is of the shop: equal keys are not yet equal ids."""
        return shop_id is None or self._document(ordinal).get("shop_id") == shop_id

    def _listing(self, ordinal: int) -> _Listing:
        document = self._document(ordinal)
        row = {name: document.get(name) for name in ROW_FIELDS} | {"service": services_of(document)}
        return _Listing(row, price_of(document))


def _as_list(ordinals: NDArray[np.uint32]) -> list[int]:
    found: list[int] = ordinals.tolist()
    return found


def _sample(count: int) -> NDArray[np.int64]:
    """Up to ``_SAMPLE`` ordinals, evenly spread."""
    import numpy as np

    return np.arange(0, count, max(1, count // _SAMPLE), np.int64)


def _remember(held: dict[Any, Any], key: Any, value: Any, most: int) -> Any:
    """Keep a value under its key; a full memory is emptied, which no answer can tell."""
    if most:
        if len(held) >= most:
            held.clear()
        held[key] = value
    return value


def _passing(products: Columns, shop_id: str | None, price: PriceRange, wanted: int) -> NDArray[np.bool_]:
    """Which products pass; one without a readable price (NaN) fails every price bound."""
    passes: NDArray[np.bool_] = products.services & wanted == wanted
    if shop_id is not None:
        passes &= products.shop == shop_key(shop_id)
    if price.low is not None:
        passes &= products.price >= price.low
    if price.high is not None:
        passes &= products.price <= price.high
    return passes


def _by_price(sign: int) -> Callable[[_Listing], tuple[bool, float]]:
    """Products without a price come last in both directions."""

    def key(listing: _Listing) -> tuple[bool, float]:
        return (listing.price is None, 0.0 if listing.price is None else sign * listing.price)

    return key


def _by_sales(listing: _Listing) -> int:
    count = listing.row["sold_count"]
    return -count if isinstance(count, int) else 0


# Any other value keeps the rank. Sorting is stable, so equal products stay in rank order.
_ORDERS: dict[str | None, Callable[[_Listing], Any]] = {
    "priceasc": _by_price(1),
    "pricedesc": _by_price(-1),
    "order": _by_sales,
}


def _bound(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if value != value else value


def _text(value: Any) -> str | None:
    """A request parameter as text, the way a client puts it into a URL; None means it is not sent."""
    return value if value is None or isinstance(value, str) else str(value)
