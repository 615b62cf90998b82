"""What tool results have shown so far, indexed so that a thought can be asked which of it the thought names.

A datum is an id, a shop, a price, a brand, an attribute or SKU value, or words of a title that the request did not
hold and the agent had not written before it saw any result. All work is linear in the text read: phrases are looked
up by their words and are at most ``_PHRASE_WORDS`` words long, so a result of a million values costs a thought nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

# Scripts written without blanks: every character is a word of its own.
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
# 1.299,50 | 1,299.50 | 618,84 | 1299.5: thousands either way, and a comma as decimal sign before two digits
_NUMBER = re.compile(
    r"(?:\d{1,3}(?:\.\d{3})+,\d{1,2}(?!\d)|\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d{1,6},\d{2}(?![\d,])|\d+(?:\.\d+)?)"
)
_DIGITS = re.compile(r"[0-9][0-9.,]*")
_MONEY = re.compile(r"(?:php|pesos?|\u20b1)")
_PHRASE_WORDS = 6
_VALUE_CHARS = 200
_MIN_VALUE_LENGTH = 3
_MIN_PRICE_DIGITS = 3  # shorter numbers count rows and pieces unless a currency stands beside them
_ROUNDED_FROM = 100.0  # "619 pesos" names the listing of 618.84
_MOST_OWNERS = 8  # a phrase of more products than this names none of them
_MAX_DEPTH = 12
_NO_BRAND = frozenset({"nobrand", "no brand", "none", "generic", "others", "n a", "unbranded"})
# Words that say nothing about a product: a value made of them alone could be planted to match any thought.
_COMMON_WORDS = (
    "a all also an and any are as at be best better brand budget but buy by can candidate candidates check "
    "color colour complete details done each every find finish first for found from go good has have i id if in "
    "is it item items its last let list listing lists look make match matches me more most my need needs new next no "
    "not now of ok okay on one only open option options or order other out over page pages per pesos php plan price "
    "product products quality query recommend request result results row rows same search searching second see sale "
    "select selected set shop show shows size so step stock store task that the then there these they thing this to "
    "tool top two type under user view want wants was we what which will with yes you your"
)
_COMMON = frozenset(_COMMON_WORDS.split())


class Thought:
    """One thought, prepared once: ``text`` as compared and its ``numbers``; ``words`` where they are asked for."""

    def __init__(self, text: str) -> None:
        self.text = folded(text)
        self.numbers = list(_numbers(self.text))

    @cached_property
    def words(self) -> list[str]:
        """Words in order; each character of an unspaced script is one."""
        return _WORD.findall(self.text)


class ResultData:
    """What the tool results of one trace have shown so far; grows as the trace is read.

    Args:
        request: what the user asked; its words and numbers are no data.
    """

    def __init__(self, request: str) -> None:
        self.any = False
        self._request = Thought(request)
        self._own_words = [self._request.text]
        self._ids: set[str] = set()
        self._shops: set[str] = set()
        self._prices: dict[float, set[str]] = {}
        self._waiting: list[tuple[str, Mapping[str, Any]]] = []  # rows whose texts no thought has needed yet
        self._values = _Values()
        self._brands = _Values()
        self._titles = _Titles()

    def exclude(self, text: str) -> None:
        """Words the agent wrote before it saw any result cannot have come from one."""
        self._own_words.append(folded(text))

    def add(self, result: Any) -> None:
        """Take in one tool result; text that is no JSON counts as a result without data."""
        self.any = True
        self._walk(result, 0)

    def named_in(self, thought: Thought) -> bool:
        """Whether a thought names a datum that results showed and the request did not (gate 3)."""
        for token, _, _ in thought.numbers:
            if token in self._ids or token in self._shops:
                return True
        if any(self._priced(thought)):
            return True
        self._index_texts()
        if next(self._values.in_thought(thought, self._known), None) is not None:
            return True
        return any(names for names, _ in self._titles.in_thought(thought, self._known))

    def ids_in(self, thought: Thought) -> set[str]:
        """Ids of products in a thought."""
        return {token for token, _, _ in thought.numbers if token in self._ids}

    def several_in(self, thought: Thought) -> bool:
        """Whether a thought names two or more products: no single one explains every name in it (gate 4).

        Names are ids, prices, brands and words of titles. Attribute values are none: "it lacks a timer" speaks of
        one product, although another has the timer.
        """
        ids = self.ids_in(thought)
        if len(ids) > 1:
            return True
        named: set[str] | None = ids or None
        for owners in self._owners_named_in(thought, with_pairs=not ids):
            if len(owners) > _MOST_OWNERS:
                continue
            named = owners if named is None else named & owners
            if not named:
                return True
        return False

    def _owners_named_in(self, thought: Thought, *, with_pairs: bool) -> Iterator[set[str]]:
        """Owners of each name. Two words of a title are too little beside an id: they may describe that product."""
        yield from self._priced(thought)
        self._index_texts()
        yield from self._brands.in_thought(thought, self._known)
        for names, owners in self._titles.in_thought(thought, self._known):
            if names or with_pairs:
                yield owners

    @cached_property
    def _known(self) -> set[str]:
        # only asked for when a thought comes after a result, so nothing is excluded later
        return {*_COMMON, *(word for text in self._own_words for word in _WORD.findall(text))}

    @cached_property
    def _asked_prices(self) -> set[float]:
        return {value for token, _, _ in self._request.numbers for value in _readings(token)}

    def _priced(self, thought: Thought) -> Iterator[set[str]]:
        for token, start, end in thought.numbers:
            for value in _readings(token):
                if value in self._prices and value not in self._asked_prices:
                    digits = sum(char.isdigit() for char in token)
                    if digits >= _MIN_PRICE_DIGITS or _MONEY.search(thought.text[max(0, start - 4) : end + 6]):
                        yield self._prices[value]
                        break

    def _walk(self, value: Any, depth: int) -> None:
        if depth > _MAX_DEPTH:
            return
        if isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    product = item.get("product_id")
                    if isinstance(product, str) and depth < _MAX_DEPTH:
                        self._product(product, item)
                    else:
                        self._walk(item, depth + 1)
                elif isinstance(item, list):
                    self._walk(item, depth + 1)
        elif isinstance(value, dict):
            product = value.get("product_id")
            if isinstance(product, str | int) and not isinstance(product, bool):
                self._product(str(product), value)
                return
            for inner in value.values():
                if isinstance(inner, dict | list):
                    self._walk(inner, depth + 1)

    def _product(self, product: str, row: Mapping[str, Any]) -> None:
        self._ids.add(product)
        shop, price = row.get("shop_id"), row.get("price")
        if isinstance(shop, str):
            self._shops.add(shop)
        if isinstance(price, int | float) and not isinstance(price, bool):
            self._price(float(price), product)
        self._waiting.append((product, row))

    def _price(self, price: float, product: str) -> None:
        rounded = not price < _ROUNDED_FROM and price < 1e15
        prices = self._prices
        for value in (price, float(round(price)), float(int(price))) if rounded else (price,):
            owners = prices.get(value)
            if owners is None:
                prices[value] = {product}
            elif len(owners) <= _MOST_OWNERS:
                owners.add(product)

    def _index_texts(self) -> None:
        for product, row in self._waiting:
            title, brand = row.get("title"), row.get("brand")
            if isinstance(title, str):
                self._titles.add(title, product)
            if isinstance(brand, str) and " ".join(_WORD.findall(folded(brand))) not in _NO_BRAND:
                self._values.add(brand, product)
                self._brands.add(brand, product)
            for value in _texts(row):
                self._values.add(value, product)
        self._waiting.clear()


class _Values:
    """Short texts and the products that own them, found in a thought by their first word."""

    def __init__(self) -> None:
        self._owners: dict[str, set[str]] = {}
        self._lengths: dict[str, set[int]] = {}  # first word -> lengths of values, in words

    def add(self, value: Any, product: str) -> None:
        if not isinstance(value, str) or len(value) < _MIN_VALUE_LENGTH:
            return
        words = _WORD.findall(folded(value[:_VALUE_CHARS]))[:_PHRASE_WORDS]
        if words and not all(word.isdigit() for word in words):
            self._lengths.setdefault(words[0], set()).add(len(words))
            _own(self._owners.setdefault(" ".join(words), set()), product)

    def in_thought(self, thought: Thought, known: set[str]) -> Iterator[set[str]]:
        """Owners of each value in a thought that holds a word not known before."""
        words = thought.words
        for place, word in enumerate(words):
            for length in self._lengths.get(word, ()):
                owners = self._owners.get(" ".join(words[place : place + length]))
                if owners is not None and _new(words[place : place + length], known):
                    yield owners


class _Titles:
    """Titles, found by runs of words that stand in a row in one of them."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], set[str]] = {}
        self._starts: set[tuple[str, str]] = set()

    def add(self, title: str, product: str) -> None:
        words = _WORD.findall(folded(title))
        for pair in pairwise(words):
            _own(self._owners.setdefault(pair, set()), product)
        if len(words) > 1:
            self._starts.add((words[0], words[1]))

    def in_thought(self, thought: Thought, known: set[str]) -> Iterator[tuple[bool, set[str]]]:
        """(enough to be a name, owners) of each longest run of title words that holds a word not known before.

        Three words are a name, and so are the first two of a title. An owner set above ``_MOST_OWNERS`` is cut, so it
        narrows nothing down.
        """
        words = thought.words
        place, last = 0, len(words) - 1
        while place < last:
            owners = self._owners.get((words[place], words[place + 1]))
            end = place + 1
            while owners is not None and end < last:
                more = self._owners.get((words[end], words[end + 1]))
                narrowed = more and (owners if len(more) > _MOST_OWNERS else more & owners)
                if more and len(owners) > _MOST_OWNERS:
                    narrowed = more
                if not narrowed:
                    break
                owners, end = narrowed, end + 1
            if owners is not None and _new(words[place : end + 1], known):
                yield end - place > 1 or (words[place], words[end]) in self._starts, owners
            place = end if owners is not None else place + 1


def _texts(row: Mapping[str, Any]) -> Iterator[Any]:
    """Attribute and SKU values of a product row."""
    attributes, skus = row.get("attributes"), row.get("sku_options")
    if isinstance(attributes, dict):
        for values in attributes.values():
            yield from values if isinstance(values, list) else (values,)
    if isinstance(skus, dict):
        for option in skus.values():
            if isinstance(option, dict):
                yield from option.values()


def folded(text: str) -> str:
    """Text as it is compared: compatibility forms and letter case are one."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _numbers(text: str) -> Iterator[tuple[str, int, int]]:
    """(token, start, end) of every number in a text."""
    for run in _DIGITS.finditer(text):
        token, start, end = run.group(), run.start(), run.end()
        if token.isdigit():
            yield token, start, end
        else:  # the slow pattern only where separators stand between digits
            yield from (
                (found.group(), start + found.start(), start + found.end()) for found in _NUMBER.finditer(token)
            )


def _new(words: list[str], known: set[str]) -> bool:
    """Whether a phrase holds a word of its own; a bare number is none ("step 3" planted in a title)."""
    return any(word not in known and not word.isdigit() for word in words)


def _own(owners: set[str], product: str) -> None:
    if len(owners) <= _MOST_OWNERS:
        owners.add(product)


def _readings(token: str) -> list[float]:
    """The numbers a token may stand for: commas and dots separate thousands or decimals."""
    dot, comma = token.rfind("."), token.rfind(",")
    if comma < 0:
        grouped = dot > 0 and len(token) - dot == 4 and dot <= 3
        return [float(token), float(token.replace(".", ""))] if grouped else [float(token)]
    if dot > comma or len(token) - comma == 4:
        return [float(token.replace(",", ""))]
    return [float(token.replace(".", "").replace(",", "."))]
