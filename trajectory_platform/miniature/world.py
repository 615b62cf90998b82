"""The small world of the miniature: a catalogue whose rows fit a short context, and problems over it.

Every product is titled ``{object} {colour} {material}`` and has a price and one or two services. A problem names an
object, one or two of its properties, a price range and, every other time, a service. Its *perfect call* is a search
for the object with price range and service as filters; the answer is then chosen by reading the rows, for nothing else
gives it away:

* the order of the rows: every product names all colours and materials once, its own in the title and the others in an
  attribute (the search reads both, domain 3), so all products of an object tie for whatever words are searched; ties
  are broken by id, and ids are random;
* the price of a row: the range is drawn before the answer.

The reward has the published form (domain 4.1): title, price and service. The strict scorer decides like everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from trajectory_platform.arena.problems import ArenaProblem, make_uuid
from trajectory_platform.arena.wants import Want
from trajectory_platform.errors import Abort
from trajectory_platform.sandbox.products import SERVICES

VERSION = "miniature-world-1"  # raise it when the same seed would give another world

# Each word has one meaning, is written in lower case and begins with a consonant (its article is always "a").
COLOURS = ("black", "blue", "brown", "gold", "green", "pink", "purple", "red", "white", "yellow")
MATERIALS = ("bamboo", "canvas", "ceramic", "cotton", "leather", "metal", "plastic", "wool")
_OBJECT_WORDS = """
    bag ball basket bed bell belt bench blanket board boot bottle bowl box bracelet brush bucket button cage candle cap
    carpet case chain chair clip clock coat collar comb cup curtain cushion desk dish doll door drum fan fence flag
    fork frame glove grill hammer hanger hat helmet holder hook jacket jar jug kettle key kite knife ladder lamp lid
    lock mask mat mirror mop mug net pan pen pillow pipe plate pot puppet rack ring robe rope rug saddle scarf shelf
    shirt shoe shovel sofa sock spoon stool stove strap table tent tie tool towel tray vase vest wallet watch wheel
"""
OBJECTS = tuple(_OBJECT_WORDS.split())
PROPERTIES = ("color", "material")

PRODUCTS_PER_OBJECT = 80
LOWEST, HIGHEST = 10, 999  # PHP
ROWS = (4, 8)  # how many products the perfect call of a problem shows
_SERVICE_SHARE = 0.5  # of the problems name a service
_SLACK = 25  # PHP between a bound of the range and the nearest product inside it, at most
_TRIES = 200

_WORDINGS = (
    "Find {goods} for {low} to {high} pesos{service}.",
    "I want {goods} priced between {low} and {high} pesos{service}.",
    "Please look for {goods}{service} from {low} to {high} pesos.",
    "Show me {goods}{service} that costs between {low} and {high} pesos.",
    "I need {goods} and can pay {low} to {high} pesos{service}.",
    "Can you find {goods}{service} between {low} and {high} pesos?",
)
_WORD = re.compile(r"[A-Za-z]+")
_NUMBER = re.compile(r"\d+")
_THINGS = frozenset(OBJECTS)
_WORDS_OF = {"color": frozenset(COLOURS), "material": frozenset(MATERIALS)}
_GOODS = ("a {words} {thing}", "a {thing} in {words}")


class Request(NamedTuple):
    """What a reader of the query understands.

    Attributes:
        wanted: stated properties, name -> word, in the order of ``PROPERTIES``.
        service: a service name, or None.
    """

    thing: str
    wanted: Mapping[str, str]
    low: int
    high: int
    service: str | None


def make_products(seed: int, *, per_object: int = PRODUCTS_PER_OBJECT) -> list[dict[str, Any]]:
    """The documents of the catalogue (domain 3), by object. Deterministic per seed.

    Raises:
        Abort: more products of an object than there are prices.
    """
    if not 1 <= per_object <= HIGHEST - LOWEST + 1:
        raise Abort(f"products of an object have different prices: 1 to {HIGHEST - LOWEST + 1}, not {per_object}")
    rng = Random(f"miniature products|{seed}")
    ids = rng.sample(range(100_000_000, 1_000_000_000), per_object * len(OBJECTS))
    documents = []
    for thing in OBJECTS:
        prices = rng.sample(range(LOWEST, HIGHEST + 1), per_object)
        for price in prices:
            documents.append(_document(rng, str(ids.pop()), thing, price))
    return documents


def _document(rng: Random, product_id: str, thing: str, price: int) -> dict[str, Any]:
    colour, material = rng.choice(COLOURS), rng.choice(MATERIALS)
    title = f"{thing} {colour} {material}"
    offered = rng.sample(SERVICES, rng.choice((1, 2)))
    return {
        "product_id": product_id,
        "shop_id": str(rng.randrange(100, 1000)),
        "brand": "",
        "category": "Miniature",
        "title": title,
        "short_description": title,
        "description": "",
        "specification": "",
        "price": price,
        "sold_count": rng.randrange(1000),
        "sku_options": {},
        "attributes": {"also": [" ".join(word for word in (*COLOURS, *MATERIALS) if word not in (colour, material))]},
        "main_image_url": "",
        "product_url": "",
        "service": [name for name in SERVICES if name in offered],
    }


class ProblemMaker:
    """Makes problems day by day. Each fresh problem asks for a product that none before asked for, so two problems
    share a product only where one is made as a variant of the other: that keeps their leak clusters apart.

    Args:
        variant_share: share of the problems that reword an earlier one or shift its price range.
    """

    def __init__(self, products: Sequence[Mapping[str, Any]], seed: int, *, variant_share: float = 0.06) -> None:
        self._rng = Random(f"miniature problems|{seed}")
        self._by_object: dict[str, list[Mapping[str, Any]]] = {}
        for product in sorted(products, key=lambda one: (one["price"], one["product_id"])):
            self._by_object.setdefault(product["title"].split()[0], []).append(product)
        self._variant_share = variant_share
        self._taken: set[str] = set()
        self._made: list[ArenaProblem] = []
        self._clusters = 0

    def problems(self, count: int) -> list[ArenaProblem]:
        """The next ``count`` problems.

        Raises:
            Abort: too few products are left that nobody asked for.
        """
        made = []
        for _ in range(count):
            if self._made and self._rng.random() < self._variant_share:
                made.append(self._variant(self._rng.choice(self._made)))
            else:
                fresh = self._fresh()
                self._made.append(fresh)
                made.append(fresh)
        return made

    def _fresh(self) -> ArenaProblem:
        rng = self._rng
        for _ in range(_TRIES):
            found = self._shelf(rng.choice(sorted(self._by_object)))
            if found is None:
                continue
            rows, low, high, service = found
            answer = rng.choice(rows)  # the range is drawn first, then the answer: its price says nothing
            twins = sum(row["title"] == answer["title"] for row in rows)
            if answer["product_id"] in self._taken or twins > 1:
                continue
            self._taken.add(answer["product_id"])
            self._clusters += 1
            request = Request(answer["title"].split()[0], self._stated(answer, rows), low, high, service)
            return _problem(rng, answer, request, f"lc-{self._clusters:05d}")
        raise Abort("too few products that nobody asked for are left; make more products or fewer problems")

    def _shelf(self, thing: str) -> tuple[list[Mapping[str, Any]], int, int, str | None] | None:
        """Products of an object that a price range and a service leave: (products by price, low, high, service)."""
        rng = self._rng
        service = rng.choice(SERVICES) if rng.random() < _SERVICE_SHARE else None
        passing = [one for one in self._by_object[thing] if service is None or service in one["service"]]
        count = rng.randint(*ROWS)
        if len(passing) < count:
            return None
        start = rng.randrange(len(passing) - count + 1)
        rows = passing[start : start + count]
        before = passing[start - 1]["price"] + 1 if start else LOWEST
        after = passing[start + count]["price"] - 1 if start + count < len(passing) else HIGHEST
        low = rng.randint(max(before, rows[0]["price"] - _SLACK), rows[0]["price"])
        high = rng.randint(rows[-1]["price"], min(after, rows[-1]["price"] + _SLACK))
        return rows, low, high, service

    def _stated(self, answer: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Properties that only the answer has among the rows: half the time one where one is enough, else both (with
        the object they are its title, which no other row has)."""
        shown = words_of(answer)
        names = [*PROPERTIES]
        self._rng.shuffle(names)
        for name in names if self._rng.random() < 0.5 else ():
            if sum(words_of(row)[name] == shown[name] for row in rows) == 1:
                return {name: shown[name]}
        return shown

    def _variant(self, origin: ArenaProblem) -> ArenaProblem:
        """The same product under other words, or with the price range a little wider where that adds no row."""
        rng, want = self._rng, origin.wants[0]
        request = read_query(origin.query)
        assert request is not None
        how = "paraphrase"
        if rng.random() < 0.5:
            how, request = "range", self._other_range(request)
        for _ in range(_TRIES):
            query = wording(rng, request)
            if query != origin.query:
                break
        want = replace(want, price=("between", request.low, request.high))
        link = {"how": how, "problem_id": origin.problem_id}
        return replace(origin, problem_id=make_uuid(rng), wants=(want,), query=query, variant_of=link)

    def _other_range(self, request: Request) -> Request:
        """Bounds between the same products, drawn anew."""
        passing = [
            one
            for one in self._by_object[request.thing]
            if request.service is None or request.service in one["service"]
        ]
        inside = [one["price"] for one in passing if request.low <= one["price"] <= request.high]
        before = max((one["price"] + 1 for one in passing if one["price"] < request.low), default=LOWEST)
        after = min((one["price"] - 1 for one in passing if one["price"] > request.high), default=HIGHEST)
        low = self._rng.randint(max(before, inside[0] - _SLACK), inside[0])
        high = self._rng.randint(inside[-1], min(after, inside[-1] + _SLACK))
        return request._replace(low=low, high=high)


def _problem(rng: Random, answer: Mapping[str, Any], request: Request, cluster: str) -> ArenaProblem:
    want = Want(
        answer["product_id"],
        answer["title"],
        request.thing,
        price=("between", request.low, request.high),
        services=() if request.service is None else (request.service,),
    )
    constraints = len(request.wanted) + len(want.services) + 1
    difficulty = "easy" if constraints <= 2 else "medium" if constraints <= 3 else "hard"
    return ArenaProblem(make_uuid(rng), "product", (want,), None, wording(rng, request), difficulty, cluster)


def wording(rng: Random, request: Request) -> str:
    """A query in one of several wordings; services are named as the tools name them."""
    goods = rng.choice(_GOODS).format(words=" ".join(request.wanted.values()), thing=request.thing)
    service = f" with {request.service}" if request.service else ""
    return rng.choice(_WORDINGS).format(goods=goods, low=request.low, high=request.high, service=service)


def read_query(query: str) -> Request | None:
    """What a query asks for; None where it names no object or no price range."""
    words = _WORD.findall(query)
    prices = [int(number) for number in _NUMBER.findall(query)]
    thing = next((word for word in words if word in _THINGS), None)
    if thing is None or len(prices) != 2:
        return None
    named = {name: next((word for word in words if word in _WORDS_OF[name]), None) for name in PROPERTIES}
    wanted = {name: word for name, word in named.items() if word is not None}
    service = next((word for word in words if word in SERVICES), None)
    return Request(thing, wanted, min(prices), max(prices), service)


def words_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Colour and material of a row, read from its title; ``none`` where it names none."""
    words = str(row.get("title") or "").split()
    return {name: next((word for word in words if word in _WORDS_OF[name]), "none") for name in PROPERTIES}


def perfect_call(request: Request) -> tuple[str, dict[str, Any]]:
    """The search whose rows are exactly the products that object, range and service leave."""
    arguments: dict[str, Any] = {"q": request.thing, "price": f"{request.low}-{request.high}"}
    if request.service is not None:
        arguments["service"] = request.service
    return ("find_product", arguments)
