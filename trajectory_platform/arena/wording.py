"""Queries in words: several templates per category, every constraint stated once, the fixed voucher tail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from trajectory_platform.arena.wants import Want

_SERVICE_WORDS = {
    "official": ("from LazMall", "with LazMall service"),
    "freeShipping": ("with free shipping", "shipped for free"),
    "COD": ("with cash on delivery", "with COD payment"),
    "flashsale": ("with a LazFlash deal", "in the LazFlash sale"),
}
_ONE = (
    "Find {}.",
    "I'm looking for {}.",
    "Show me {}.",
    "Can you help me find {}?",
    "I want to buy {}.",
    "Please look for {}.",
)
_SHOP = (
    "Find a shop that sells {}. Both must come from this shop.",
    "I'm looking for one shop with all of these: {}.",
    "Looking for a shop offering these items: {}. Please show shops that have all these products.",
    "Which store has {}? Everything should come from the same store.",
)
_MANY = ("I need {}.", "Find {}. Can you help me find these products?", "Looking for {}.", "I'd like to order {}.")


def voucher_text(voucher: Mapping[str, Any]) -> str:
    """The fixed tail of a voucher query (domain 4.1)."""
    scope = (
        "applies to all products"
        if voucher["voucher_type"] == "platform"
        else ("only applies to the products from the same shop")
    )
    if voucher["discount_type"] == "fixed":
        discount = f"fixed discount of `{voucher['face_value']}`"
    else:
        discount = f"percentage discount of `{round(voucher['discount'] * 100)}%` with a cap of `{voucher['cap']}`"
    return (
        f"\n\nMy budget is only `{voucher['budget']}`, but I have a voucher with the following rules:\n"
        f"1. The voucher {scope}.\n"
        f"2. It is valid only when the total price of the products exceeds `{voucher['threshold']}`.\n"
        f"3. It provides a {discount}."
    )


def word_query(
    rng: Random, category: str, wants: Sequence[Want], voucher: Mapping[str, Any] | None, avoid: str | None = None
) -> str:
    """The query in one of several wordings; ``avoid`` is a wording that must not come out again."""
    for _ in range(20):
        items = [describe(rng, want) for want in wants]
        if category == "shop":
            template = rng.choice(_SHOP)
            text = template.format(_listed(rng, items))
            text = text if len(items) == 2 else text.replace("Both must", "All must")
        else:
            template = rng.choice(_ONE if len(items) == 1 else _MANY)
            text = template.format(_listed(rng, items))
        query = text + (voucher_text(voucher) if voucher else "")
        if query != avoid:
            break
    return query


def describe(rng: Random, want: Want) -> str:
    """One wanted product in words: every constraint is stated once."""
    before: list[str] = []
    after: list[str] = []
    pairs = list(want.pairs)
    rng.shuffle(pairs)
    for key, value in pairs:
        plain = key.replace("_", " ")
        if plain.startswith("color"):
            before.append(value)
        elif key == "brand":
            after.append(rng.choice((f"from the brand {value}", f"by {value}")))
        elif key == "material":
            after.append(rng.choice((f"made of {value}", f"in {value} material")))
        elif key in ("size", "capacity", "length", "volume", "weight"):
            after.append(rng.choice((f"in {plain} {value}", f"with {plain} {value}")))
        else:
            after.append(rng.choice((f"with {plain} {value}", f"whose {plain} is {value}")))
    if want.price:
        after.append(_price_words(rng, want.price))
    after += [rng.choice(_SERVICE_WORDS[service]) for service in want.services]
    name = " ".join([*before, want.noun])
    article = "" if want.noun.endswith("s") else "an" if name[0] in "aeiou" else "a"
    return " ".join([article, name, ", ".join(after)]).strip()


def respace(rng: Random, query: str) -> str:
    """The same text with other white space, case or quotes: one problem for people, another for a naive comparison."""
    how = rng.randrange(3)
    if how == 0:
        return query.replace("\n", " ") if "\n" in query else query.replace(" ", "  ")
    if how == 1:
        return query.replace(" ", "\u00a0")
    return query[0].swapcase() + query[1:].replace("`", "") + " "


def _price_words(rng: Random, price: tuple[str, int, int | None]) -> str:
    mode, low, high = price
    if mode == "less than":
        return rng.choice((f"priced below {high} PHP", f"costing at most {high} pesos"))
    if mode == "greater than":
        return rng.choice((f"priced above {low} PHP", f"costing more than {low} pesos"))
    return rng.choice((f"costing between {low} and {high} PHP", f"priced from {low} to {high} pesos"))


def _listed(rng: Random, items: Sequence[str]) -> str:
    if len(items) == 1:
        return items[0]
    if rng.random() < 0.4:
        return "; ".join(f"({number}) {item}" for number, item in enumerate(items, 1))
    return "; ".join(items[:-1]) + f"; and {items[-1]}"
