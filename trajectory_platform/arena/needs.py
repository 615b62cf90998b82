"""What a model understands of a problem, and how it judges a candidate by what the results show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
