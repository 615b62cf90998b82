"""One recommended product against one reward: the constraint rule of domain 2.2 and the title regimes.

A title regime says when two titles are similar. The subnet compares embeddings, which no published file holds;
``normalised`` is the regime of the days in ``shared/days``. The regime's name and version are stored with each score.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from trajectory_platform.errors import Abort
from trajectory_platform.sandbox.problems import product_id_text

FIELDS = ("title", "price", "service", "sku & attrs")


class TitleRegime(NamedTuple):
    """When two titles count as similar; ``version`` changes whenever an answer may change."""

    version: int
    similar: Callable[[str, str], bool]


class RuleMatch(NamedTuple):
    """Rule score in [0, 1] and the hit share per field (0 where the reward does not constrain it)."""

    rule: float
    ground_truth: int
    shares: tuple[float, ...]  # in the order of FIELDS


@lru_cache(maxsize=1 << 14)
def normalised_title(title: str) -> str:
    """NFKC, case folding, white space collapsed (the convention of ``days/README.md``)."""
    return " ".join(unicodedata.normalize("NFKC", title).casefold().split())


def _equal_normalised(left: str, right: str) -> bool:
    return left == right or normalised_title(left) == normalised_title(right)


TITLE_REGIMES: dict[str, TitleRegime] = {"normalised": TitleRegime(1, _equal_normalised)}


def title_regime(name: str) -> TitleRegime:
    """The regime of a name; Abort names the known ones."""
    if name not in TITLE_REGIMES:
        raise Abort(f"unknown title regime {name!r}: use one of {', '.join(sorted(TITLE_REGIMES))}")
    return TITLE_REGIMES[name]


def match_product(product: Mapping[str, Any], reward: Mapping[str, Any], regime: TitleRegime) -> RuleMatch:
    """Score one catalogue document against one reward (domain 2.2).

    The same id is exactly 1 whatever the fields say; otherwise hits / constraints, 0 without any constraint.

    Raises:
        TypeError, KeyError, AttributeError: a value the arithmetic cannot use, e.g. a price stored as text. It is
            never guessed; the caller reports the trace as unscorable.
    """
    counts = (
        _titles(product, reward, regime),
        _prices(product, reward),
        _services(product, reward),
        _options(product, reward),
    )
    shares = tuple(hit / total if total else 0.0 for hit, total in counts)
    if product["product_id"] == product_id_text(reward["product_id"]):
        return RuleMatch(1.0, 1, shares)
    hits, total = sum(hit for hit, _ in counts), sum(total for _, total in counts)
    return RuleMatch(hits / total if total else 0.0, 0, shares)


def number(value: Any, what: str) -> float:
    """A JSON number; text, null and ``bool`` raise TypeError (domain 6: 19, 24)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is no number")
    return value


def _listed(value: Any, what: str) -> list[Any]:
    """A JSON list. Text raises TypeError: taken letter by letter it would be a verdict about nothing."""
    if not isinstance(value, list):
        raise TypeError(f"{what} is no list")
    return value


def _values(values: Any) -> list[Any]:
    """Attribute values of a document: nothing for null, a single value as a list (domain 6: 22)."""
    return [] if values is None else values if isinstance(values, list) else [values]


def _titles(product: Mapping[str, Any], reward: Mapping[str, Any], regime: TitleRegime) -> tuple[int, int]:
    titles = reward.get("title") or []
    if isinstance(titles, str):
        titles = [titles]
    return sum(regime.similar(product["title"], title) for title in titles), len(titles)


def _prices(product: Mapping[str, Any], reward: Mapping[str, Any]) -> tuple[int, int]:
    hits = total = 0
    for constraint in reward.get("price") or []:
        for mode, (low, high) in constraint.items():
            price = number(product["price"], "price")
            total += 1
            if mode == "less than":
                hits += price <= number(high, "upper bound")
            elif mode == "greater than":
                hits += price >= number(low, "lower bound")
            elif mode == "between":
                hits += number(low, "lower bound") <= price <= number(high, "upper bound")
    return hits, total


def _services(product: Mapping[str, Any], reward: Mapping[str, Any]) -> tuple[int, int]:
    wanted = _listed(reward.get("service") or [], "service")
    offered = _listed(product["service"], "service") if wanted else ()
    return sum(service in offered for service in wanted), len(wanted)


def _options(product: Mapping[str, Any], reward: Mapping[str, Any]) -> tuple[int, int]:
    """The best SKU (or none) together with the attributes, exact (key, value) equality (version 1 of the rule)."""
    wanted = [pair for option in reward.get("sku_options") or [] for pair in option.items()]
    wanted += [
        (key, value)
        for entry in reward.get("attributes") or []
        for key, values in entry.items()
        for value in _listed(values, "attribute values")
    ]
    if not wanted:
        return 0, 0
    attributes = product.get("attributes")
    fixed = (
        {(key, value) for key, values in attributes.items() for value in _values(values)}
        if isinstance(attributes, Mapping)
        else set()
    )
    skus = product.get("sku_options")
    options = [set(option.items()) for option in skus.values() if option] if isinstance(skus, Mapping) else []
    return max(sum(pair in fixed or pair in sku for pair in wanted) for sku in [set(), *options]), len(wanted)
