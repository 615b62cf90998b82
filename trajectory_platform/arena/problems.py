"""Shopping problems over the generated catalogue: rewards with constraints, vouchers, and their wording.

Each fresh problem takes products that no earlier problem asked for, so two problems share a product only where a
variant is made on purpose; the leak cluster of every problem is therefore known when it is made. Constraints are
added until the wanted product is the only one of its kind that meets them, as far as its properties allow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from trajectory_platform.arena.wants import Want, meets, noun_of, price_constraint, with_constraint, without_one
from trajectory_platform.arena.wording import respace, word_query
from trajectory_platform.errors import Abort
from trajectory_platform.sandbox.products import attributes_of, options_of, price_of, services_of

CATEGORIES = ("product", "shop", "voucher")
_USED_FIELDS = ("product_id", "shop_id", "title", "price", "service", "sku_options", "attributes")
_REMEMBERED = 2_000  # public problems that may still be reworded: the memory does not grow with the days


@dataclass(frozen=True)
class ArenaProblem:
    """One problem of a suite or of the hidden bank.

    Attributes:
        in_suite: False for problems of the hidden bank, whose reward is never published.
        variant_of: {"how", "problem_id"} of the problem it was made from, or None.
    """

    problem_id: str
    category: str
    wants: tuple[Want, ...]
    voucher: dict[str, Any] | None
    query: str
    difficulty: str
    leak_cluster: str
    in_suite: bool = True
    variant_of: dict[str, str] | None = None

    @property
    def target_ids(self) -> list[str]:
        return [want.product_id for want in self.wants]

    def suite_item(self, suite_id: int, title: str) -> dict[str, Any]:
        """The entry of ``suite.json``."""
        rewards = [want.reward() for want in self.wants]
        metadata: dict[str, Any] = {
            "category": self.category.title(),
            "difficulty": self.difficulty,
            "title": title,
            "query": self.query,
            "reward": rewards[0] if self.category == "product" else rewards,
        }
        if self.voucher is not None:
            metadata["voucher"] = self.voucher
        return {"problem_id": self.problem_id, "suite_id": suite_id, "metadata": metadata}


class ProblemMaker:
    """Makes problems suite by suite; remembers which products are taken and what may be reworded later.

    The state is the point: fresh problems never share a product, variants always do.
    """

    def __init__(self, documents: Iterable[Mapping[str, Any]], seed: int) -> None:
        self._by_noun: dict[str, list[Mapping[str, Any]]] = {}
        self._by_shop: dict[str, list[Mapping[str, Any]]] = {}
        for whole in documents:
            document = {name: whole[name] for name in _USED_FIELDS}
            self._by_noun.setdefault(noun_of(document), []).append(document)
            self._by_shop.setdefault(document["shop_id"], []).append(document)
        self._rng = Random(f"problems|{seed}")
        self._free = [document for documents in self._by_noun.values() for document in documents]
        self._rng.shuffle(self._free)
        self._taken: set[str] = set()
        self._made: deque[ArenaProblem] = deque(maxlen=_REMEMBERED)
        self._clusters = 0

    def public(self, count: int, variant_share: float = 0.1) -> list[ArenaProblem]:
        """``count`` problems of a public suite; some are variants of each other or of earlier suites' problems."""
        earlier = list(self._made)
        problems: list[ArenaProblem] = []
        for _ in range(count):
            pool = earlier if earlier and self._rng.random() < 0.7 else problems
            problems.append(self._one(pool, variant_share))
        self._made.extend(problems)
        return problems

    def hidden(self, count: int, public: Sequence[ArenaProblem], sealed_share: float = 0.9) -> list[ArenaProblem]:
        """``count`` problems of the hidden bank: all but ``sealed_share`` of them are rewordings of public ones."""
        leaked = math.floor(count * (1.0 - sealed_share) + self._rng.random()) if public else 0
        problems = [self._variant(self._rng.choice(public)) for _ in range(min(leaked, count))]
        problems += [self._one((), 0.0) for _ in range(count - len(problems))]
        self._rng.shuffle(problems)
        return [replace(problem, in_suite=False) for problem in problems]

    def _one(self, pool: Sequence[ArenaProblem], variant_share: float) -> ArenaProblem:
        if pool and self._rng.random() < variant_share:
            return self._variant(self._rng.choice(pool))
        return self._fresh(self._rng.choices(CATEGORIES, (45, 25, 30))[0])

    def _fresh(self, category: str) -> ArenaProblem:
        rng = self._rng
        voucher_type = rng.choice(("platform", "shop")) if category == "voucher" else None
        if category == "product":
            documents = [self._take()]
        elif voucher_type == "platform":
            documents = [self._take() for _ in range(rng.choice((1, 2, 2, 3)))]
        else:
            documents = self._take_from_one_shop(rng.choice((2, 2, 3)))
        wants = tuple(self._want(document, with_price=category != "voucher") for document in documents)
        self._clusters += 1
        voucher = None
        if voucher_type is not None:
            voucher = make_voucher(rng, sum(price_of(document) or 0.0 for document in documents), voucher_type)
        constraints = sum(len(want.pairs) + len(want.services) + bool(want.price) for want in wants) / len(wants)
        difficulty = "easy" if constraints <= 2 else "medium" if constraints <= 3.5 else "hard"
        query = word_query(rng, category, wants, voucher)
        cluster = f"lc-{self._clusters:05d}"
        return ArenaProblem(make_uuid(rng), category, wants, voucher, query, difficulty, cluster)

    def _variant(self, origin: ArenaProblem) -> ArenaProblem:
        """The same products under other words: what a leak guard has to find."""
        rng = self._rng
        hows = ["paraphrase", "paraphrase", "whitespace", "partial"]
        if len(origin.wants) > 1:
            hows += ["reorder", "member"]
        how = rng.choice(hows)
        wants, category, voucher = origin.wants, origin.category, origin.voucher
        if how == "reorder":
            wants = tuple(reversed(wants))
        elif how == "member":
            wants, category, voucher = (rng.choice(wants),), "product", None
        elif how == "partial":
            wants = tuple(without_one(rng, want) for want in wants)
        if how == "whitespace":
            query = respace(rng, origin.query)
        else:
            query = word_query(rng, category, wants, voucher, avoid=origin.query)
        link = {"how": how, "problem_id": origin.problem_id}
        return replace(
            origin,
            problem_id=make_uuid(rng),
            category=category,
            wants=wants,
            voucher=voucher,
            query=query,
            variant_of=link,
        )

    def _take(self) -> Mapping[str, Any]:
        while self._free:
            document = self._free.pop()
            if document["product_id"] not in self._taken and options_of(document):
                self._taken.add(document["product_id"])
                return document
        raise Abort("the catalogue has no product left for a fresh problem; simulate with more products")

    def _take_from_one_shop(self, count: int) -> list[Mapping[str, Any]]:
        """``count`` products of different kinds from one shop, none of them asked for before."""
        while True:
            first = self._take()
            others: dict[str, Mapping[str, Any]] = {}
            for document in self._by_shop[first["shop_id"]]:
                noun = noun_of(document)
                if document["product_id"] not in self._taken and noun != noun_of(first) and options_of(document):
                    others.setdefault(noun, document)
            if len(others) >= count - 1:
                chosen = self._rng.sample(sorted(others), count - 1)
                self._taken.update(others[noun]["product_id"] for noun in chosen)
                return [first, *(others[noun] for noun in chosen)]

    def _want(self, document: Mapping[str, Any], *, with_price: bool) -> Want:
        """Constraints in random order until the product is the only match among its kind, at most five."""
        rng = self._rng
        option = rng.choice(options_of(document))
        choices: list[tuple[str, Any]] = [("sku", pair) for pair in option.items()]
        choices += [("attribute", (key, values[0])) for key, values in attributes_of(document).items()]
        choices += [("service", name) for name in services_of(document)[:2]]
        if with_price:
            choices.append(("price", price_constraint(rng, price_of(document) or 0.0)))
        rng.shuffle(choices)
        want = Want(document["product_id"], document["title"], noun_of(document))
        rivals: Sequence[Mapping[str, Any]] = self._by_noun[want.noun]
        for kind, value in choices:
            narrower = with_constraint(want, kind, value)
            left = [rival for rival in rivals if meets(rival, narrower)]
            if len(left) < len(rivals) or not want.pairs:
                want, rivals = narrower, left
            constraints = len(want.pairs) + len(want.services) + bool(want.price)
            if (len(rivals) <= 1 and want.pairs) or constraints >= 5:
                break
        return want


def make_voucher(rng: Random, total: float, voucher_type: str) -> dict[str, Any]:
    """A voucher with which the wanted products just fit the budget, and without which they do not."""
    voucher: dict[str, Any] = {
        "voucher_type": voucher_type,
        "threshold": max(1, math.floor(total * rng.uniform(0.4, 0.95))),
    }
    if rng.random() < 0.5:
        face = max(2, math.floor(total * rng.uniform(0.1, 0.4)))
        after = total - face
        voucher |= {"discount_type": "fixed", "face_value": face, "discount": None, "cap": None}
    else:
        percent = rng.randint(10, 45)
        cap = max(2, math.ceil(total * rng.uniform(0.1, 0.5)))
        after = max(total * (1 - percent / 100), total - cap)
        voucher |= {"discount_type": "percentage", "face_value": None, "discount": percent / 100, "cap": cap}
    slack = rng.uniform(0.0, 0.5) * (total - after)
    budget = max(math.ceil(after), math.floor(after + slack))
    return voucher | {"price_after_voucher": round(after, 2), "budget": budget}


def make_uuid(rng: Random) -> str:
    """A version-4 style id from the seeded generator."""
    digits = f"{rng.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
