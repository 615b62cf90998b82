"""One wanted product of a problem: the answer, and what the query says about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from trajectory_platform.arena.catalogue import nouns
from trajectory_platform.errors import Abort
from trajectory_platform.sandbox.products import attributes_of, options_of, price_of, services_of

_NOUN_NAMES = frozenset(noun.name for noun in nouns())


@dataclass(frozen=True)
class Want:
    """One wanted product: the answer (``product_id``, ``title``) and what the query says about it.

    Attributes:
        sku: key -> value, all from one SKU option.
        attributes: (key, value) pairs.
        price: (mode, low, high) with mode ``less than`` | ``greater than`` | ``between``, or None.
    """

    product_id: str
    title: str
    noun: str
    sku: tuple[tuple[str, str], ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    price: tuple[str, int, int | None] | None = None
    services: tuple[str, ...] = ()

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return self.sku + self.attributes

    def reward(self) -> dict[str, Any]:
        """The reward object in the published shape (domain 4.1)."""
        reward: dict[str, Any] = {"product_id": self.product_id, "title": [self.title]}
        if self.sku:
            reward["sku_options"] = [{key: value} for key, value in self.sku]
        if self.attributes:
            reward["attributes"] = [{key: [value]} for key, value in self.attributes]
        if self.services:
            reward["service"] = list(self.services)
        if self.price:
            mode, low, high = self.price
            reward["price"] = [{mode: [low, high]}]
        return reward


def noun_of(document: Mapping[str, Any]) -> str:
    """The kind of a generated product; the catalogue of the arena names it in the title, before the model code."""
    words = str(document["title"]).lower().split()
    for length in (1, 2):
        name = " ".join(words[-1 - length : -1])
        if name in _NOUN_NAMES:
            return name
    raise Abort(f"not a product of the arena's own catalogue: {document['product_id']}")


def meets(document: Mapping[str, Any], want: Want) -> bool:
    """Whether a product meets everything the query says (the rule score without the title, domain 2.2)."""
    price = price_of(document)
    if want.price is not None:
        _, low, high = want.price
        if price is None or price < low or (high is not None and price > high):
            return False
    if not set(want.services) <= set(services_of(document)):
        return False
    attributes = {(key, value) for key, values in attributes_of(document).items() for value in values}
    if not set(want.attributes) <= attributes:
        return False
    if not want.sku:
        return True
    return any(set(want.sku) <= (set(option.items()) | attributes) for option in options_of(document) or [{}])


def price_constraint(rng: Random, price: float) -> tuple[str, int, int | None]:
    """Bounds in whole PHP that hold for the price."""
    mode = rng.choice(("less than", "greater than", "greater than", "between"))
    low = max(1, math.floor(price * rng.uniform(0.6, 0.95)))
    high = math.ceil(price * rng.uniform(1.08, 1.5))
    if mode == "less than":
        return (mode, 0, high)
    return (mode, low, None) if mode == "greater than" else (mode, low, high)


def with_constraint(want: Want, kind: str, value: Any) -> Want:
    """The want with one more constraint; ``kind`` is sku, attribute, service or price."""
    if kind == "sku":
        return replace(want, sku=(*want.sku, value))
    if kind == "attribute":
        return replace(want, attributes=(*want.attributes, value))
    if kind == "service":
        return replace(want, services=(*want.services, value))
    return replace(want, price=value)


def without_one(rng: Random, want: Want) -> Want:
    """The same product with one constraint less, where more than one is stated."""
    kinds = [kind for kind in ("sku", "attributes", "services") if getattr(want, kind)]
    if want.price:
        kinds.append("price")
    if len(kinds) < 2:
        return want
    kind = rng.choice(kinds)
    if kind == "price":
        return replace(want, price=None)
    if kind == "sku":
        return replace(want, sku=want.sku[1:])
    return (
        replace(want, attributes=want.attributes[1:])
        if kind == "attributes"
        else replace(want, services=want.services[1:])
    )
