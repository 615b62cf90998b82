"""A shopping request as the example scripts read it: items with words, price and services, one shop or not.

Plain rules over the wording of the benchmark's queries (domain 4.1); what they cannot read stays a search word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from trajectory_platform.sandbox.queries import visible_text
from trajectory_platform.sandbox.vouchers import parse_voucher_text

_NUMBER = r"(\d+(?:\.\d+)?)"
_MONEY = r"(?:\s*(?:php|pesos?))?"
_PRICES = (
    (
        re.compile(rf"(?:priced?|costing|cost|costs)?\s*(?:between|from)\s+{_NUMBER}\s+(?:and|to)\s+{_NUMBER}{_MONEY}"),
        "{}-{}",
    ),
    (re.compile(rf"(?:(?:with )?a )?price range (?:of|from)\s+{_NUMBER}\s*-\s*{_NUMBER}{_MONEY}"), "{}-{}"),
    (re.compile(rf"(?:priced?|costing|cost|costs)?\s*(?:above|over|more than|at least)\s+{_NUMBER}{_MONEY}"), "{}-"),
    (
        re.compile(rf"(?:priced?|costing|cost|costs)?\s*(?:below|under|less than|at most|up to)\s+{_NUMBER}{_MONEY}"),
        "-{}",
    ),
)
_SERVICES = (
    ("official", re.compile(r"(?:the )?lazmall(?: guarantee| authenticity| service)?|official store")),
    ("freeShipping", re.compile(r"free (?:shipping|delivery)|shipped for free")),
    ("COD", re.compile(r"cash on delivery|cod payment|\bcod\b")),
    ("flashsale", re.compile(r"(?:an? |in the )?lazflash(?: deals?| sale)?|flash ?sale")),
)
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")
_NUMBERED = re.compile(r"\(\d+\)|\b(?:First|Second|Third|Fourth|Fifth|Lastly|Finally),")
_NEXT_ITEM = re.compile(r"(?:,\s*(?:and\s+)?|\s+and\s+)(?=an?\s)")
_SAME_SHOP = re.compile(r"\b(?:shops?|store)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\s,;.?!()\"`]+(?:\.\d[^\s,;?!()\"`]*)?")
_EMPTY_WORDS = re.compile(
    r"a|an|the|i|i'm|we|my|me|you|your|can|could|please|need|want|would|like|looking|find|show|help|search|buy|order|get"
    r"|for|of|with|without|from|by|in|into|to|on|at|and|or|that|this|these|those|is|are|be|has|have|having|it|its|which"
    r"|whose|who|made|brand|available|payment|priced?|costing|pesos?|php|products?|items?|shops?|stores?|sells?|selling"
    r"|offers?|offering|all|both|must|come|one|same|also"
)


class Item(NamedTuple):
    """One wanted product: search words in the order of the text, a price filter, service names."""

    words: tuple[str, ...]
    price: str | None
    services: tuple[str, ...]

    def brief(self) -> str:
        """The item in words, for a thought."""
        return ", ".join([" ".join(self.words), *([f"{self.price} PHP"] if self.price else []), *self.services])


class Request(NamedTuple):
    """What a query asks for; ``voucher`` as ``sandbox.vouchers.parse_voucher_text`` gives it."""

    items: tuple[Item, ...]
    same_shop: bool
    voucher: Mapping[str, Any] | None


def read_request(query: str) -> Request:
    """Take a query apart; an unreadable one gives the words it has, an empty one no items."""
    text = visible_text(query)
    voucher = parse_voucher_text(query)
    start = text.lower().find("my budget is only")
    wanted = text[:start] if voucher is not None and start >= 0 else text
    if _NUMBERED.search(wanted):
        parts = _NUMBERED.split(wanted)[1:]
        parts[-1] = _SENTENCE.split(parts[-1].strip())[0]
    else:
        parts = _NEXT_ITEM.split(_SENTENCE.split(wanted.strip())[0])
    items = tuple(item for item in (_item(part) for part in parts) if item.words)
    same_shop = bool(_SAME_SHOP.search(wanted)) or (voucher is not None and voucher["voucher_type"] == "shop")
    return Request(items, same_shop, voucher)


def _item(text: str) -> Item:
    text = text.lower()
    price = None
    for pattern, form in _PRICES:
        match = pattern.search(text)
        if match:
            price = form.format(*match.groups())
            text = text[: match.start()] + " " + text[match.end() :]
            break
    services = []
    for name, pattern in _SERVICES:
        text, found = pattern.subn(" ", text)
        if found:
            services.append(name)
    words = [word.strip("'*") for word in _WORD.findall(text)]
    return Item(
        tuple(dict.fromkeys(word for word in words if word and not _EMPTY_WORDS.fullmatch(word))),
        price,
        tuple(services),
    )
