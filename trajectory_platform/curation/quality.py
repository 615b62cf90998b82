"""The sampling weight of an accepted trace: a pure function of stored features, in (0, 1].

Credit goes to what the recipe asks for (domain 5.2): refining a search after seeing results, and opening a product
before recommending it. One strategy that many traces share is down-weighted, so that copied code cannot fill the
corpus. Nothing here looks at the reasoning verdict; it decides uses, not weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

QUALITY_VERSION = "weight-1"
_BASE, _REFINED, _VERIFIED = 0.5, 0.2, 0.3
_REPEAT_FACTOR, _MAX_REPEATS = 0.9, 5
_DECIMALS = 6


class Features(NamedTuple):
    """What the weight is made of.

    Attributes:
        refined: a later search differs from an earlier one whose result was already seen.
        verified_share: recommended ids that were opened, in [0, 1]; 0 without a recommendation.
        repeats: calls that repeat an earlier one with equal arguments.
    """

    refined: bool
    verified_share: float
    repeats: int


def features(messages: list[dict[str, Any]], *, recommended: list[str], not_opened: int) -> Features:
    """Features of one canonical trajectory.

    Args:
        recommended: ids as the scorer reads them.
        not_opened: how many of them no detail page showed.
    """
    seen: set[tuple[str, str]] = set()
    searches: dict[str, int] = {}
    repeats, step = 0, 0
    for message in messages:
        if message.get("role") != "assistant":
            continue
        step += 1
        for call in message.get("tool_calls") or ():
            function = call["function"]
            key = (function["name"], function["arguments"])
            repeats += key in seen
            seen.add(key)
            if function["name"] == "find_product":
                searches.setdefault(function["arguments"], step)
    share = (len(recommended) - not_opened) / len(recommended) if recommended else 0.0
    return Features(len(set(searches.values())) > 1, share, repeats)


def weight(traits: Features, *, strategy_size: int, strategy_limit: float) -> float:
    """Sampling weight in (0, 1].

    Args:
        strategy_size: accepted traces of the same strategy cluster.
        strategy_limit: traces of one strategy that may count in full; beyond it the cluster's weights shrink so
            that together they stay within the limit.
    """
    own = _BASE + _REFINED * traits.refined + _VERIFIED * traits.verified_share
    own *= _REPEAT_FACTOR ** min(traits.repeats, _MAX_REPEATS)
    crowding = min(1.0, strategy_limit / strategy_size)
    return max(round(own * crowding, _DECIMALS), 10.0**-_DECIMALS)
