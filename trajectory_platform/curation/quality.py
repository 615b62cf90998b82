"""The sampling weight of an accepted trace: a pure function of stored features, in (0, 1].

Credit goes to what the recipe asks for (domain 5.2): refining a search after seeing results, and opening a product
before recommending it. One strategy that many traces share is down-weighted, so that copied code cannot fill the
corpus. Nothing here looks at the reasoning verdict; it decides uses, not weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from trajectory_platform.traces.arguments import normalise_arguments

QUALITY_VERSION = "weight-3"
_BASE, _REFINED, _VERIFIED = 0.5, 0.2, 0.3
_REPEAT_FACTOR, _MAX_REPEATS = 0.9, 5
_INEFFECTIVE_FACTOR = 0.8
_DECIMALS = 6
_COMMIT = "recommend_product"
_OPENING = {"view_product_information": "product_ids", "check_product_match": "product_id"}


class Features(NamedTuple):
    """What the weight is made of.

    Attributes:
        refined: a later search differs from an earlier one whose result was already seen.
        verified_share: recommended ids that were opened, in [0, 1]; 0 without a recommendation.
        repeats: calls that repeat an earlier one with equal arguments.
        ineffective: kinds of search filters the server ignored in silence.
    """

    refined: bool
    verified_share: float
    repeats: int
    ineffective: int = 0


def features(
    messages: list[dict[str, Any]], *, recommended: list[str], not_opened: int, ineffective: int = 0
) -> Features:
    """Features of one canonical trajectory.

    Args:
        recommended: ids as the scorer reads them.
        not_opened: how many of them no detail page showed before the recommendation.
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
    return Features(len(set(searches.values())) > 1, share, repeats, ineffective)


def opened_late(messages: Sequence[Mapping[str, Any]], recommended: Sequence[str]) -> int:
    """How many recommended products were first opened when they had been recommended: that verifies nothing.

    Steps count, not calls: what is opened in the step of the last recommendation is answered after it.
    """
    opened: dict[str, int] = {}
    committed, step = -1, 0
    for message in messages:
        if message.get("role") != "assistant":
            continue
        step += 1
        for call in message.get("tool_calls") or ():
            name = call["function"]["name"]
            if name == _COMMIT:
                committed = step
            elif name in _OPENING:
                for one in _opened_ids(name, call["function"]["arguments"]):
                    opened.setdefault(one, step)
    return sum(opened.get(one, -1) >= committed for one in recommended) if committed > 0 else 0


def _opened_ids(name: str, arguments: str) -> list[str]:
    try:
        value = orjson.loads(arguments)
    except ValueError:
        return []
    form = orjson.loads(normalise_arguments(name, value)) if isinstance(value, dict) else {}
    return str(form.get(_OPENING[name], "")).split(",")


def own_weight(traits: Features) -> float:
    """The weight of a trace by its own merit, in (0, 1]: before anything is known about its neighbours."""
    own = _BASE + _REFINED * traits.refined + _VERIFIED * traits.verified_share
    own *= _REPEAT_FACTOR ** min(traits.repeats, _MAX_REPEATS)
    return own * _INEFFECTIVE_FACTOR if traits.ineffective else own


def weight(own: float, *, strategy_size: int, strategy_limit: float) -> float:
    """Sampling weight in (0, 1].

    Args:
        own: ``own_weight`` of the trace.
        strategy_size: accepted traces of the same strategy cluster.
        strategy_limit: traces of one strategy that may count in full; beyond it the cluster's weights shrink so
            that together they stay within the limit.
    """
    crowding = min(1.0, strategy_limit / strategy_size)
    return max(round(own * crowding, _DECIMALS), 10.0**-_DECIMALS)
