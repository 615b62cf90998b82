"""Medium edges: two problems that ask for the same thing by its constraints, though they share no product and no text.

A reward is a list of items; an item is its title, its (key, value) pairs, its services and its price bounds. Keys and
values are folded (one name per property, no case, width, white space or marks), so item order, pair order and unicode
form play no part. Two items with different product ids are the same request when their prices do not contradict and

* ``titled``: the titles are equal and tell something (``TITLE_WORDS``), no property has different values on the two
  sides, and the pairs are the same, or two are shared, or one is shared and the price bounds are equal;
* ``untitled``: every pair of the smaller item is in the larger, the shared ones tell enough (``UNTITLED_POINTS``), and
  one of them names a model: a data sheet without a name fits a whole series of laptops;
* ``two_titles``: the problems share two such titles, whatever else is asked.

What a pair tells is fixed per pair, never counted over the problems at hand: a rule that reads frequencies would take
an edge back when more problems arrive, and a problem could then move to a looser pool. Services tell nothing, nor do
the pairs that half of all listings carry (``BOILERPLATE``); an equal title with one shared pair joins nothing, since
sellers copy titles (two false pairs of that kind are in the shared days). Constraints that only the words of a hidden
problem's query state are no evidence here: read from free text they are too uncertain to merge on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

from trajectory_platform.judging.attributes import fold_key, fold_value
from trajectory_platform.sandbox.problem_shapes import product_id_text
from trajectory_platform.sandbox.queries import normalise_query

TITLE_WORDS = 4  # a shorter title names a kind of goods, not a listing
UNTITLED_POINTS = 8
UNTITLED_PAIRS = 5
# Items of one title (or one pair of titles) that every younger one is compared with; the others meet those through
# them. A title that more different requests share is no name of a listing any more.
TITLE_GROUP = 64
_TITLE_PAIRS = 8  # items of one problem whose titles are paired
_EVIDENCE_CHARS = 240

_WORD = re.compile(r"[^\W_]+")
# Marks between the words of a value ("heavy-duty", "black/white") are spelling. A mark between two numbers, a point, a
# colon and a sign are not: "1.5", "10-20", "1/2", "-5" and "eu: 42" mean what they say.
_MARKS = re.compile(r"(?<=[^\W\d_])[-_/]+(?=[^\W_])|(?<=[^\W_])[-_/]+(?=[^\W\d_])")
_QUOTES = re.compile(r"(?<!\d)[\"']|(?<=\d)'")
_INCHES = re.compile(r"(?<=\d) ?(?:\"|inch(?:es)?\b)")
_UNIT = re.compile(r"(?<=\d) (?=(?:ml|l|g|kg|mg|mm|cm|m|in|ft|w|kw|v|hp|mah|gb|tb|hz|oz|lb|pcs?)\b)")
_NAMES = {
    "color": ("colour", "color family", "colour family", "color classification", "warna"),
    "material": (
        "material type", "cookware material", "leather material", "clothing material", "fabric", "material filter"
    ),
    "size": ("plate size", "size class"),
    "length": ("cord length",),
    "model": ("compatibility", "compatibility by model", "compatible model"),
    "pattern": ("fa pattern", "patterned"),
    "style": ("fa general styles", "general style"),
    "season": ("fa season",),
    "neckline": ("m top neckline", "w top neckline", "neckline type"),
    "sleeve": ("sleeves type", "sleeve length", "sleeves"),
}  # fmt: skip
_NAME_OF = {fold_key(other): name for name, others in _NAMES.items() for other in others}
_SIZES = {"s": "small", "m": "medium", "l": "large", "xl": "xlarge", "xxl": "2xlarge", "2xl": "2xlarge"}
_WRITTEN = frozenset(_SIZES.values())
_REGIONS = frozenset({"int", "us", "eu", "uk", "jp", "cn", "asia"})
BOILERPLATE = frozenset(
    (
        "black", "white", "oem", "generic", "unbranded", "no brand", "none", "no", "yes", "other", "others", "n a",
        "not specified", "default", "standard", "normal", "regular", "plain", "casual", "premium", "unisex", "single",
        "single item", "regular size", "no warranty", "products only", "no stones",
    )
)  # fmt: skip


class Item(NamedTuple):
    """One wanted product.

    ``title`` folded; ``pairs`` are folded ``key=value``; ``low`` and ``high`` are price bounds in PHP (0 and infinity
    where the reward sets none), ``priced`` whether it sets any.
    """

    product_id: str
    title: str
    pairs: frozenset[str]
    services: frozenset[str]
    low: float
    high: float
    priced: bool


Spec = tuple[Item, ...]


class Match(NamedTuple):
    """Why two problems ask for the same thing; ``value`` is the share of the smaller constraint set that is shared."""

    left: str
    right: str
    value: float
    evidence: str


class _Placed(NamedTuple):
    """An item and the problem that asks for it; ``order`` is the age of the request."""

    order: int
    key: str
    item: Item


def spec_of(reward: Sequence[Mapping[str, Any]]) -> Spec:
    """The items of a reward, in an order that the reward's does not decide. Fields of another shape are left out."""
    items = [_item(entry) for entry in reward]
    return tuple(sorted(items, key=_sort_key) if len(items) > 1 else items)


def spec_order(spec: Spec) -> list[tuple[str, str, list[str], float, float]]:
    """A sort key that no hash or order of insertion enters."""
    return [_sort_key(item) for item in spec]


def _sort_key(item: Item) -> tuple[str, str, list[str], float, float]:
    return (item.product_id, item.title, sorted(item.pairs), item.low, item.high)


def _item(entry: Mapping[str, Any]) -> Item:
    titles = entry.get("title")
    title = titles[0] if isinstance(titles, list) and titles else titles
    services = entry.get("service")
    low, high, priced = _bounds(entry.get("price"))
    return Item(
        product_id_text(entry.get("product_id")) or "",
        fold_title(title) if isinstance(title, str) else "",
        frozenset(_pairs(entry)),
        frozenset(fold_key(name) for name in services if isinstance(name, str))
        if isinstance(services, list)
        else frozenset(),
        low,
        high,
        priced,
    )


def fold_title(title: str) -> str:
    """The words of a title in their order: no case, width, ornaments or punctuation."""
    return " ".join(_WORD.findall(normalise_query(title)))


@lru_cache(maxsize=1 << 16)
def fold_pair(key: str, value: str) -> str:
    """``key=value`` with one name per property; marks between words and the space before a unit are spelling.

    Size letters are written out, and the region before them is dropped (before a number it stays: 42 is another size in
    another region).
    """
    name = fold_key(normalise_query(key))
    name = _NAME_OF.get(name, name)
    text = _spelling(fold_value(normalise_query(value)))
    if name == "size":
        region, _, rest = text.replace(":", " ").partition(" ")
        letters = rest.strip() if region in _REGIONS else text
        text = _SIZES.get(letters, letters if letters in _WRITTEN else text.replace(":", " "))
    return f"{name}={text}"


def _spelling(value: str) -> str:
    """A folded value without marks between its words, quotes, and the space before a unit."""
    plain = value[1:-1] if len(value) > 2 and value[0] == value[-1] and value[0] in "\"'" else value
    plain = _QUOTES.sub("", _INCHES.sub("in", _MARKS.sub(" ", plain)))
    return _UNIT.sub("", " ".join(plain.split())) or value


def _pairs(entry: Mapping[str, Any]) -> Iterator[str]:
    """Pairs of options and attributes in the two shapes of domain 4.1; the options of a web reward's whole document
    are its alternatives, not wishes, and are left out."""
    options, attributes = entry.get("sku_options"), entry.get("attributes")
    for option in options if isinstance(options, list) else ():
        if isinstance(option, Mapping):
            yield from _folded(option)
    for part in attributes if isinstance(attributes, list) else [attributes]:
        if isinstance(part, Mapping):
            yield from _folded(part)


def _folded(pairs: Mapping[Any, Any]) -> Iterator[str]:
    for key, values in pairs.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, str | int | float) and not isinstance(value, bool) and str(value).strip():
                yield fold_pair(str(key), str(value))


def _bounds(prices: Any) -> tuple[float, float, bool]:
    low, high, priced = 0.0, math.inf, False
    if not prices:
        return low, high, priced
    for price in prices if isinstance(prices, list) else ():
        for limits in price.values() if isinstance(price, Mapping) else ():
            if isinstance(limits, list) and len(limits) == 2:
                one, two = map(_number, limits)
                low, high = max(low, one or 0.0), min(high, math.inf if two is None else two)
                priced = priced or one is not None or two is not None
    return low, high, priced


def _number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if plain else None


@lru_cache(maxsize=1 << 16)
def points(pair: str) -> int:
    """What one pair tells: 0 boilerplate, 2 a value of three words or of two with a number ("realme 14"), else 1."""
    value = pair.partition("=")[2]
    if value in BOILERPLATE:
        return 0
    words = _WORD.findall(value)
    return 2 if len(words) >= 3 or (len(words) == 2 and any(map(str.isdigit, value))) else 1


def same_request(left: Item, right: Item) -> bool:
    """Whether two items with different product ids are one request (rules ``titled`` and ``untitled``)."""
    if left.product_id == right.product_id or not prices_meet(left, right):
        return False
    shared = left.pairs & right.pairs
    if _one_listing(left, right, shared):
        return True
    return len(shared) == min(len(left.pairs), len(right.pairs)) and _tells_enough(shared)


def _one_listing(left: Item, right: Item, shared: frozenset[str]) -> bool:
    """The rule ``titled``, prices apart."""
    if left.title != right.title or not tells(left.title):
        return False
    if left.pairs == right.pairs:
        return True
    enough = len(shared) >= 2 or (len(shared) == 1 and _same_bounds(left, right))
    return enough and not _contradict(left.pairs - shared, right.pairs - shared)


def tells(title: str) -> bool:
    """Whether a folded title names a listing rather than a kind of goods."""
    return title.count(" ") + 1 >= TITLE_WORDS


def prices_meet(left: Item, right: Item) -> bool:
    """Whether one price can fulfil both bounds: a restated price always holds the product's own."""
    return max(left.low, right.low) <= min(left.high, right.high)


def _same_bounds(left: Item, right: Item) -> bool:
    return left.priced and right.priced and (left.low, left.high) == (right.low, right.high)


def _contradict(left: Iterable[str], right: Iterable[str]) -> bool:
    """Whether the two sides give one property different values, by the pairs that they do not share."""
    names = {pair.partition("=")[0] for pair in left}
    return any(pair.partition("=")[0] in names for pair in right)


def _tells_enough(pairs: frozenset[str]) -> bool:
    names = any(pair.startswith("model=") and points(pair) == 2 for pair in pairs)
    return names and len(pairs) >= UNTITLED_PAIRS and sum(map(points, pairs)) >= UNTITLED_POINTS


def matches(specs: Iterable[tuple[str, Spec]]) -> list[Match]:
    """The medium edges between problems.

    Args:
        specs: (problem key, items), by the day each request was first seen, then by key; one problem may have several.

    Returns:
        Sorted; ``left`` is the older request. Equal items are tied to the oldest of them only.
    """
    placed: list[_Placed] = []
    several: list[list[_Placed]] = []
    for order, (key, spec) in enumerate(specs):
        some = [_Placed(order, key, item) for item in spec]
        placed += some
        if len(some) > 1:
            several.append(some)
    found: set[Match] = set(_titled(placed))
    found.update(_untitled(placed))
    found.update(_two_titles(several))
    return sorted(found)


def _titled(placed: Iterable[_Placed]) -> Iterator[Match]:
    groups: dict[str, list[_Placed]] = {}
    for one in placed:
        if tells(one.item.title):
            groups.setdefault(one.item.title, []).append(one)
    for group in groups.values():
        if len(group) > 1:
            oldest, again = _distinct(group)
            yield from again
            for number, younger in enumerate(oldest):
                for older in oldest[: min(number, TITLE_GROUP)]:
                    if older.key != younger.key and same_request(older.item, younger.item):
                        yield _match(older, younger)


def _distinct(group: Sequence[_Placed]) -> tuple[list[_Placed], list[Match]]:
    """The oldest of each request, and the edges that tie equal requests (of other products) to it."""
    first: dict[tuple[frozenset[str], float, float, str], _Placed] = {}
    listing: dict[tuple[frozenset[str], float, float], _Placed] = {}
    again: list[Match] = []
    for one in group:
        item = one.item
        same = (item.pairs, item.low, item.high)
        if (*same, item.product_id) in first:
            continue  # the product id ties them
        first[(*same, item.product_id)] = one
        older = listing.setdefault(same, one)
        if older.key != one.key and same_request(older.item, item):
            again.append(_match(older, one))
    return list(listing.values()), again


def _untitled(placed: Iterable[_Placed]) -> Iterator[Match]:
    """Items whose pairs alone tell enough. The smaller one's rarest pair must stand in the larger, so only the items
    that hold it are looked at; which pair is the rarest decides the work, not the result."""
    rich: dict[tuple[frozenset[str], float, float], list[_Placed]] = {}
    for one in placed:
        if _tells_enough(one.item.pairs):
            rich.setdefault((one.item.pairs, one.item.low, one.item.high), []).append(one)
    holders: dict[str, list[_Placed]] = {}
    firsts: list[_Placed] = []
    for group in rich.values():
        oldest, *others = group
        firsts.append(oldest)
        for other in others:
            if other.key != oldest.key and same_request(oldest.item, other.item):
                yield _match(oldest, other)
        for pair in oldest.item.pairs:
            holders.setdefault(pair, []).append(oldest)
    for small in firsts:
        rarest = min(small.item.pairs, key=lambda pair: (len(holders[pair]), pair))
        for large in holders[rarest]:
            if large.key != small.key and small.item.pairs <= large.item.pairs and same_request(large.item, small.item):
                older, younger = sorted((large, small), key=lambda one: (one.order, one.key))
                yield _match(older, younger)


def _two_titles(problems: Iterable[Sequence[_Placed]]) -> Iterator[Match]:
    groups: dict[tuple[str, str], list[tuple[_Placed, _Placed]]] = {}
    for items in problems:
        named = sorted({one.item.title: one for one in items if tells(one.item.title)}.items())[:_TITLE_PAIRS]
        for (one, left), (two, right) in combinations(named, 2):
            groups.setdefault((one, two), []).append((left, right))
    for group in groups.values():
        for number, younger in enumerate(group):
            for older in group[: min(number, TITLE_GROUP)]:
                if older[0].key != younger[0].key and all(map(_other_listing, older, younger)):
                    yield _match(*max(zip(older, younger, strict=True), key=lambda pair: _share(pair[0], pair[1])))


def _other_listing(older: _Placed, younger: _Placed) -> bool:
    return older.item.product_id != younger.item.product_id and prices_meet(older.item, younger.item)


def _share(older: _Placed, younger: _Placed) -> float:
    smaller = min(len(older.item.pairs), len(younger.item.pairs))
    return len(older.item.pairs & younger.item.pairs) / smaller if smaller else 1.0


def _match(older: _Placed, younger: _Placed) -> Match:
    shared = sorted(older.item.pairs & younger.item.pairs)
    title = [f"title={older.item.title}"] if older.item.title == younger.item.title else []
    evidence = "; ".join([*title, *shared])[:_EVIDENCE_CHARS]
    return Match(older.key, younger.key, round(_share(older, younger), 6), evidence)
