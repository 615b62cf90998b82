"""Product search with the semantics of the benchmark's search server (domain 3).

BM25 over title, SKU values and attribute values. The hits are walked in rank order, filters are applied on the
way, and the walk stops at 50 survivors; only those 50 are sorted and paged. So "cheapest" means cheapest among
the 50 best-ranked, and a filter that the server cannot read is silently no filter at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trajectory_platform.sandbox.products import (
    ROW_FIELDS,
    SERVICES,
    VIEW_FIELDS,
    Catalogue,
    attributes_of,
    options_of,
    price_of,
    services_of,
)

MAX_HITS = 10_000
MAX_SURVIVORS = 50
PAGE_ROWS = 10
LAST_PAGE = 5
_FIRST_LOOK = 256  # hits read before the full list is asked for: most searches end here
_NOT_A_WORD = re.compile(r"[\W_]+")
_CACHED_SEARCHES = 20_000


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
    """The query as plain lower-case words: special characters, and so every query operator, become spaces."""
    return _NOT_A_WORD.sub(" ", text).strip().lower()


class _Listing(NamedTuple):
    """What the filters and the result rows need of one product."""

    shop_id: Any
    price: float | None
    services: frozenset[str]
    row: dict[str, Any]


class _Request(NamedTuple):
    """The part of a request that decides the survivors; page and sort come afterwards."""

    words: str
    shop_id: str | None
    price: str | None
    service: str | None


class SearchIndex:
    """The search server over one catalogue, in memory. Results depend only on the catalogue and the request."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._ids: dict[tuple[int, int], str] = {}
        self._listings: dict[str, _Listing] = {}
        self._survivors_of: dict[_Request, list[str]] = {}
        self._index = _build(catalogue)
        self._index.reload()
        self._searcher = self._index.searcher()

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
            if len(self._survivors_of) >= _CACHED_SEARCHES:
                self._survivors_of.clear()
            survivors = self._survivors_of[request] = self._survivors(request)
        listings = _sorted([self._listing(product_id) for product_id in survivors], _text(params.get("sort")))
        page_rows = listings[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
        return [{**listing.row, "service": list(listing.row["service"])} for listing in page_rows]

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

    def _survivors(self, request: _Request) -> list[str]:
        """The best-ranked ids that pass the filters, at most 50, in rank order."""
        passes = _filter(request.shop_id, parse_price(request.price), parse_services(request.service))
        query = self._index.parse_query(request.words, ["text"])
        found: list[str] = []
        for limit in (_FIRST_LOOK, MAX_HITS):
            hits = self._searcher.search(query, limit, count=False).hits
            complete = len(hits) < limit or limit == MAX_HITS
            if not complete:  # the last score may go on behind the cut, where ties are not yet in id order
                last = hits[-1][0]
                hits = [hit for hit in hits if hit[0] != last]
            ranked = sorted((-score, self._product_id(address)) for score, address in hits)
            found = [product_id for _, product_id in ranked if passes(self._listing(product_id))][:MAX_SURVIVORS]
            if complete or len(found) == MAX_SURVIVORS:
                break
        return found

    def _listing(self, product_id: str) -> _Listing:
        found = self._listings.get(product_id)
        if found is None:
            document = self.catalogue.get(product_id) or {}
            services = services_of(document)
            row = {name: document.get(name) for name in ROW_FIELDS} | {"service": services}
            found = _Listing(document.get("shop_id"), price_of(document), frozenset(services), row)
            self._listings[product_id] = found
        return found

    def _product_id(self, address: Any) -> str:
        place = (address.segment_ord, address.doc)
        found = self._ids.get(place)
        if found is None:
            found = self._ids[place] = self._searcher.doc(address)["product_id"][0]
        return found


def _build(catalogue: Catalogue) -> Any:
    """A tantivy index of {product_id stored, text}: one thread, documents in id order: equal input, equal ranking."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("product_id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("text", stored=False, tokenizer_name="en_stem", index_option="freq")
    index = tantivy.Index(builder.build())
    writer = index.writer(heap_size=256 << 20, num_threads=1)
    for document in sorted(catalogue, key=lambda item: str(item["product_id"])):
        parts = [document["title"]]
        parts += [value for option in options_of(document) for value in option.values()]
        parts += [value for values in attributes_of(document).values() for value in values]
        text = " ".join(parts).encode("utf-8", "replace").decode("utf-8")
        writer.add_document(tantivy.Document(product_id=[document["product_id"]], text=[text]))
    writer.commit()
    writer.wait_merging_threads()
    return index


def _filter(shop_id: str | None, price: PriceRange, services: frozenset[str]) -> Callable[[_Listing], bool]:
    """One predicate over products; a product without a readable price fails every price bound."""

    def passes(listing: _Listing) -> bool:
        if shop_id is not None and listing.shop_id != shop_id:
            return False
        if not services <= listing.services:
            return False
        if price.low is None and price.high is None:
            return True
        value = listing.price
        if value is None:
            return False
        return (price.low is None or value >= price.low) and (price.high is None or value <= price.high)

    return passes


def _sorted(listings: list[_Listing], sort: str | None) -> list[_Listing]:
    """By price or sales; anything else keeps the rank. Stable, and products without a price come last."""
    if sort in ("priceasc", "pricedesc"):
        sign = 1 if sort == "priceasc" else -1

        def by_price(listing: _Listing) -> tuple[bool, float]:
            return (listing.price is None, 0.0 if listing.price is None else sign * listing.price)

        return sorted(listings, key=by_price)
    if sort == "order":
        return sorted(listings, key=lambda listing: -_sold(listing))
    return listings


def _sold(listing: _Listing) -> int:
    count = listing.row["sold_count"]
    return count if isinstance(count, int) else 0


def _bound(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if value != value else value


def _text(value: Any) -> str | None:
    """A request parameter as text, the way a client puts it into a URL; None means it is not sent."""
    return value if value is None or isinstance(value, str) else str(value)
