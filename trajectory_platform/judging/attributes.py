"""SKU options and attributes: when a product offers what a reward asks for (domain 2.2, two versions).

``exact``   (key, value) pairs must be equal, letter by letter (the subnet of 04-05/2026, ShoppingBench)
``folded``  keys and values are folded, a value may be longer than the one asked for (the subnet of mid-2026)

A document's options are alternatives: the best single SKU counts, together with the attributes, which always hold.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from trajectory_platform.errors import Abort

Pair = tuple[Any, Any]

_BRACKETS = re.compile(r"[\[\](){}<>\u3008-\u3011\u3014-\u301b]")
_KEY_FILL = re.compile(r"[\s_-]+")
_COLON = re.compile(r"\s*:\s*")
# A word, its decimals and thousands included: "5" is no part of "1.5l", nor "206" of "11,206".
_TOKEN = re.compile(r"[^\W_]+(?:(?<=\d)(?:\.(?=\d)|,(?=\d{3}(?!\d)))[^\W_]+)*")
_COMPATIBLE = re.compile(r"(?:compatible (?:with|for)|suitable for|fits|for) (?=.)")
_SIZE_WORDS = {"s": "small", "m": "medium", "l": "large", "xl": "xlarge"}
_SIZE_WORDS |= {"xxl": "2xlarge", "2xl": "2xlarge", "xxxl": "3xlarge", "3xl": "3xlarge", "4xl": "4xlarge"}
_SIZES = frozenset({*_SIZE_WORDS, *_SIZE_WORDS.values()})
_REGIONS = frozenset({"int", "us", "eu", "uk", "jp", "cn", "asia"})
# Keys that name one property in different categories. Only an equal value counts across them: the catalogue is too
# untidy for more (one and the same text stands under keys that have nothing to do with one another).
_ALIASES = (
    ("color", "colour"),
    ("color", "color family"),
    ("colour", "color family"),
    ("color classification", "color family"),
    ("color classification", "color"),
    ("material", "cookware material"),
    ("material", "leather material"),
    ("size", "plate size"),
    ("length", "cord length"),
    ("model", "compatibility by model"),
    ("compatibility", "compatibility by model"),
)
_COMMON = ("color", "colour", "warna", "material", "fabric")


class AttributeRule(NamedTuple):
    """One version of the rule.

    Attributes:
        name: ``exact-1``: name and version, part of what a score is stored with.
        best: how many of the wanted (key, value) pairs the best SKU of a document meets.
    """

    name: str
    best: Callable[[list[Pair], Mapping[str, Any]], int]


def wanted_pairs(reward: Mapping[str, Any]) -> list[Pair]:
    """Every (key, value) constraint of a reward, SKU options first.

    Raises:
        TypeError, AttributeError: options or attributes of another shape than the published one.
    """
    pairs: list[Pair] = [pair for option in reward.get("sku_options") or [] for pair in option.items()]
    for entry in reward.get("attributes") or []:
        for key, values in entry.items():
            if not isinstance(values, list):  # taken letter by letter, text would be a verdict about nothing
                raise TypeError("attribute values is no list")
            pairs += [(key, value) for value in values]
    return pairs


def is_distinctive(key: Any) -> bool:
    """Whether a constraint tells products apart: neither colour- nor material-like (guard band of domain 2.2)."""
    folded = fold_key(key)
    return not any(word in folded for word in _COMMON)


def _fixed_pairs(product: Mapping[str, Any]) -> list[Pair]:
    """The attributes of a document; null is nothing, a single value a list of one (domain 6: 22)."""
    attributes = product.get("attributes")
    if not isinstance(attributes, Mapping):
        return []
    return [
        (key, value)
        for key, values in attributes.items()
        if values is not None
        for value in (values if isinstance(values, list) else [values])
    ]


def _options(product: Mapping[str, Any]) -> list[list[Pair]]:
    """The SKU options of a document; null, ``{}`` and other shapes are none (domain 6: 22)."""
    options = product.get("sku_options")
    return [list(option.items()) for option in options.values() if option] if isinstance(options, Mapping) else []


def _best_exact(wanted: list[Pair], product: Mapping[str, Any]) -> int:
    fixed = set(_fixed_pairs(product))
    skus = [set(option) for option in _options(product)]
    return max(sum(pair in fixed or pair in sku for pair in wanted) for sku in [set(), *skus])


def _best_folded(wanted: list[Pair], product: Mapping[str, Any]) -> int:
    fixed = _Offer(_fixed_pairs(product))
    skus = [_Offer(option) for option in _options(product)]
    always = [fixed.meets(key, value) for key, value in wanted]
    open_pairs = [pair for pair, met in zip(wanted, always, strict=True) if not met]
    return sum(always) + max((sum(sku.meets(*pair) for pair in open_pairs) for sku in skus), default=0)


ATTRIBUTE_RULES: dict[str, AttributeRule] = {
    "exact": AttributeRule("exact-1", _best_exact),
    "folded": AttributeRule("folded-2", _best_folded),
}


def attribute_rule(name: str) -> AttributeRule:
    """The rule of a name; Abort names the known ones."""
    if name not in ATTRIBUTE_RULES:
        raise Abort(f"unknown attribute rule {name!r}: use one of {', '.join(sorted(ATTRIBUTE_RULES))}")
    return ATTRIBUTE_RULES[name]


class _Value(NamedTuple):
    text: str
    tokens: tuple[str, ...]


class _Offer:
    """What one SKU, or the attributes, of a document offer, by folded key."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._values: dict[str, list[_Value]] = {}
        for key, value in pairs:
            folded = fold_key(key)
            self._values.setdefault(folded, []).append(_folded_value(folded, value))

    def meets(self, key: Any, value: Any) -> bool:
        """Whether the offer meets one constraint.

        Under the same key the value is equal, or its words occur in the offered one in their order: "48mm" is met by
        "(1pcs) 2#- 48mm", never by "50mm". Under another name of the key (``_ALIASES``) only an equal value counts.
        """
        folded = fold_key(key)
        asked = _folded_value(folded, value)
        for offered in self._values.get(folded, ()):
            if asked.text == offered.text or _in_order(asked.tokens, offered.tokens):
                return True
        return any(
            asked.text == offered.text for alias in _ALIAS_OF.get(folded, ()) for offered in self._values.get(alias, ())
        )


@lru_cache(maxsize=1 << 12)
def _folded_key(text: str) -> str:
    plain = _BRACKETS.sub(" ", unicodedata.normalize("NFKC", text).casefold())
    folded = _KEY_FILL.sub("", plain)
    return folded[:-1] if len(folded) > 3 and folded.endswith("s") and not folded.endswith("ss") else folded


def fold_key(key: Any) -> str:
    """A key without case, brackets, spaces, underscores, hyphens and one plural s."""
    return _folded_key(str(key))


def fold_value(value: Any) -> str:
    """A value without case and brackets, white space collapsed and none around colons."""
    plain = _BRACKETS.sub(" ", unicodedata.normalize("NFKC", str(value)).casefold())
    return " ".join(_COLON.sub(":", plain).split())


def _folded_value(folded_key: str, value: Any) -> _Value:
    """Text and words of a value, as its key wants them read.

    Size letters are written out for the key ``size`` only, and only in a value that is nothing but a size ("xl",
    "eu: m"): letters mean other things in "ring size" or in "l x w x h".
    """
    text = fold_value(value)
    if folded_key.startswith("compatib"):
        text = _COMPATIBLE.sub("", text, count=1) if _COMPATIBLE.match(text) else text
    tokens = tuple(_TOKEN.findall(text))
    is_size = (len(tokens) == 1 or (len(tokens) == 2 and tokens[0] in _REGIONS)) and tokens[-1] in _SIZES
    if folded_key == "size" and is_size:
        tokens = (*tokens[:-1], _SIZE_WORDS.get(tokens[-1], tokens[-1]))
    return _Value(text, tokens)


def _in_order(asked: tuple[str, ...], offered: tuple[str, ...]) -> bool:
    """Whether the words asked for occur in the offered ones in their order.

    Between a number and the word before or after it no other number may be left out: "1 kg" is not in
    "1 x 10 kg", nor "20 x 30" in "20 x 40 x 30" (differing numbers and enumerations never match, domain 2.2).
    """
    rest = iter(offered)
    if not asked or not all(token in rest for token in asked):
        return False
    if len(asked) == 1 or not any(map(_has_digit, asked)):
        return True
    ends = [token == asked[0] for token in offered]  # where the words so far can end
    for before, token in pairwise(asked):
        numeric = _has_digit(before) or _has_digit(token)
        within, reached = False, []
        for end, word in zip(ends, offered, strict=True):
            reached.append(within and word == token)
            within = end or (within and not (numeric and _has_digit(word)))
        ends = reached
    return any(ends)


def _has_digit(token: str) -> bool:
    return any(map(str.isdigit, token))


def _alias_table() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for left, right in ((fold_key(one), fold_key(two)) for one, two in _ALIASES):
        table[left] = (*table.get(left, ()), right)
        table[right] = (*table.get(right, ()), left)
    return table


_ALIAS_OF = _alias_table()
