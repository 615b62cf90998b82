"""What a model understands of a problem, and how it judges a candidate by what the results show.

A miner gets a ``Brief``: what the query states. The wanted ids, titles and prices stay in the problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trajectory_platform.arena.problems import ArenaProblem
from trajectory_platform.arena.wants import Want
from trajectory_platform.sandbox.products import attributes_of, options_of


@dataclass(frozen=True)
class Need:
    """What a model reads out of the query about one item."""

    noun: str
    names: tuple[str, ...]  # what each value is: colour, material, size ...
    values: tuple[str, ...]
    price: tuple[str, int, int | None] | None
    services: tuple[str, ...]

    def brief(self) -> str:
        parts = list(self.values)
        if self.price:
            parts.append(f"{price_text(self.price)} PHP")
        parts += self.services
        return f"{self.noun} ({', '.join(parts)})" if parts else self.noun


@dataclass(frozen=True)
class Voucher:
    """The voucher as the query words it: ``value`` is PHP for a fixed discount, else percent; ``cap`` 0 is none."""

    kind: str  # fixed | percentage
    value: float
    threshold: float
    budget: float
    cap: float

    def after(self, prices: Sequence[float]) -> float:
        """What the prices come to with the voucher, in PHP."""
        total = sum(prices)
        if total <= self.threshold:
            return round(total, 2)
        if self.kind == "fixed":
            return round(max(total - self.value, 0.0), 2)
        saved = total * self.value / 100
        return round(total - (min(saved, self.cap) if self.cap else saved), 2)

    def arguments(self, prices: Sequence[float]) -> dict[str, Any]:
        """Arguments of ``calculate_voucher``."""
        asked: dict[str, Any] = {
            "product_prices": ",".join(str(price) for price in prices),
            "voucher_type": self.kind,
            "discount_value": self.value,
            "threshold": self.threshold,
            "budget": self.budget,
        }
        return asked if self.kind == "fixed" else asked | {"cap": self.cap}


@dataclass(frozen=True)
class Brief:
    """What the query of a problem says, and nothing else.

    Attributes:
        same_shop: all items have to come from one shop.
    """

    needs: tuple[Need, ...]
    voucher: Voucher | None
    same_shop: bool


@dataclass
class Candidate:
    """A row of a result list, later with its details."""

    row: Mapping[str, Any]
    detail: Mapping[str, Any] | None = None

    @property
    def product_id(self) -> str:
        return str(self.row["product_id"])


def understand(want: Want) -> Need:
    """What the query says, without the answer."""
    names = tuple(key.replace("_", " ") for key, _ in want.pairs)
    return Need(want.noun, names, tuple(value for _, value in want.pairs), want.price, want.services)


def read_brief(problem: ArenaProblem) -> Brief:
    """What a model reads out of the query of a problem."""
    stated = problem.voucher
    voucher = None
    if stated is not None:
        fixed = stated["discount_type"] == "fixed"
        voucher = Voucher(
            kind=stated["discount_type"],
            value=stated["face_value"] if fixed else round(stated["discount"] * 100),
            threshold=stated["threshold"],
            budget=stated["budget"],
            cap=0 if fixed else stated["cap"],
        )
    several = len(problem.wants) > 1
    one_shop = problem.category == "shop" or (stated is not None and stated["voucher_type"] == "shop" and several)
    return Brief(tuple(understand(want) for want in problem.wants), voucher, one_shop)


def search_words(need: Need, values: int) -> str:
    """A query: the kind of product with the first stated values."""
    return " ".join([*need.values[:values], need.noun])


def price_text(price: tuple[str, int, int | None]) -> str:
    mode, low, high = price
    return f"-{high}" if mode == "less than" else f"{low}-{'' if high is None else high}"


def listing_fits(row: Mapping[str, Any], need: Need) -> bool:
    """Whether price and services of a result row meet the need."""
    if need.price is not None:
        _, low, high = need.price
        if row["price"] < low or (high is not None and row["price"] > high):
            return False
    return set(need.services) <= set(row["service"])


def missing(need: Need, candidate: Candidate) -> list[str]:
    """The stated values that no single option together with the attributes shows."""
    detail = candidate.detail or {}
    fixed = {value for values in attributes_of(detail).values() for value in values}
    options = [set(option.values()) | fixed for option in options_of(detail)] or [fixed]
    best = max(options, key=lambda known: sum(value in known for value in need.values))
    return [value for value in need.values if value not in best]


def fact(need: Need, candidate: Candidate) -> str:
    """Something stated in the request that the candidate shows."""
    lacking = missing(need, candidate)
    met = [value for value in need.values if value not in lacking]
    if met:
        return " and ".join(met[:2])
    return need.services[0] if need.services else need.noun


def fault(need: Need, candidate: Candidate) -> str:
    """What speaks against a candidate."""
    lacking = missing(need, candidate)
    return f"no {lacking[0]}" if lacking else fact(need, candidate)
