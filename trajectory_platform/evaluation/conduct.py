"""How an attempt was conducted, whatever its outcome: the conduct score, eight equal parts in [0, 1].

The parts are what the recipe credits (domain 5.2: search refinement, verification, discipline) and what goes wrong in
practice (domain 3: filters that do nothing; 6, items 8, 9, 20, 21, 41). A part that asks for the absence of a fault
is earned by acting without it: an attempt that does nothing scores 0. Reward, outcome and category play no part.

Readings that exist elsewhere are used, not repeated: ids, results and discipline of ``judging.dialogue``, refinement
and repeats of ``curation.quality``, "the thinking names a datum of a result" of the rules judge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from trajectory_platform.curation import quality
from trajectory_platform.judging import dialogue, reasoning
from trajectory_platform.traces.call_flags import call_flags

CONDUCT_VERSION = "conduct-2"
PARTS = {
    "searched": "a search came before the last recommendation",
    "refined": "a later search differs from one whose result was seen, or the first search showed all that was chosen",
    "verified": "share of recommended ids that a detail page or a product check showed before they were recommended",
    "grounded": "the thinking names a datum of a tool result: id, price, brand, attribute, shop",
    "disciplined": "recommended exactly once, something readable, and terminated with nothing after it",
    "known_ids": "share of recommended ids that a tool result showed before they were recommended",
    "no_repeats": "share of calls that are not an exact repeat of an earlier one",
    "effective_filters": "share of searches without a filter that the server ignores in silence",
}
_SEARCHES = frozenset({"find_product", "find_products_in_same_shop"})
# The rules judge's first gate is about tokens of the log, which is not asked here: the log is said to pass it.


class Conduct(NamedTuple):
    """The conduct score, mean of ``parts``; these have the names and the order of ``PARTS``, each in [0, 1]."""

    score: float
    parts: dict[str, float]


def conduct_score(messages: list[dict[str, Any]], *, recommended: Sequence[str] | None = None) -> float:
    """The conduct score of one attempt in [0, 1]; see ``assess``."""
    return assess(messages, recommended=recommended).score


def assess(messages: list[dict[str, Any]], *, recommended: Sequence[str] | None = None) -> Conduct:
    """Score how one attempt was conducted.

    Args:
        messages: canonical OpenAI messages with tool results.
        recommended: the recommended ids where another reading than the lenient one of the last recommendation is
            wanted (``OutcomeScore.recommended_ids`` is the strict one).

    Deterministic, no input of these types raises.
    """
    results = dialogue.tool_results(messages)
    calls, steps = calls_of(messages, results)
    ids = dialogue.lenient_ids(calls) if recommended is None else list(recommended)
    last = max((place for place, call in enumerate(calls) if call.name == dialogue.RECOMMEND), default=None)
    before = [call for call in calls[:last] if last is None or call.step < calls[last].step]
    seen = dialogue.seen_ids(before, [])
    searches = [call for call in calls if call.name in _SEARCHES]
    early = [call for call in before if call.name in _SEARCHES]
    opened = sum(name in seen.viewed for name in ids)
    traits = quality.features(messages, recommended=ids, not_opened=len(ids) - opened)
    parts = {
        "searched": float(last is not None and bool(early)),
        "refined": float(traits.refined or _sufficed(early, ids)),
        "verified": traits.verified_share,
        "grounded": float(reasoning.names_result_datum(messages, results)),
        "disciplined": float(not dialogue.discipline(calls, ids, steps)),
        "known_ids": sum(map(seen.shows, ids)) / len(ids) if ids else 0.0,
        "no_repeats": max(0.0, 1 - traits.repeats / len(calls)) if calls else 0.0,
        "effective_filters": sum(map(_effective, searches)) / len(searches) if searches else 0.0,
    }
    return Conduct(math.fsum(parts.values()) / len(parts), parts)


def calls_of(messages: list[dict[str, Any]], results: list[Any] | None = None) -> tuple[list[dialogue.Call], int]:
    """The calls of the assistant with their results, and the number of assistant messages.

    A result belongs to the open call with its id, else to the first open one (canonical traces have them in order).

    Args:
        results: ``dialogue.tool_results`` of the messages, where they are known already.
    """
    calls: list[dialogue.Call] = []
    open_calls: list[tuple[Any, int]] = []
    shown = iter(dialogue.tool_results(messages) if results is None else results)
    step = -1
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            step += 1
            open_calls = []
            for call in message.get("tool_calls") or ():
                function = call["function"]
                open_calls.append((call.get("id"), len(calls)))
                calls.append(dialogue.Call(step, function["name"], _arguments(function["arguments"]), None))
        elif role == "tool":
            result = next(shown)
            named = message.get("tool_call_id")
            found = next((place for place, (name, _) in enumerate(open_calls) if name == named), 0)
            if open_calls:
                _, place = open_calls.pop(found)
                calls[place] = calls[place]._replace(result=result)
    return calls, step + 1


def _arguments(text: Any) -> Any:
    """The arguments of a call; None where their text is no JSON."""
    try:
        return orjson.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


def _sufficed(searches: list[dialogue.Call], ids: list[str]) -> bool:
    """Whether the first search already showed everything that was recommended: nothing was left to refine."""
    return bool(searches and ids) and all(map(dialogue.seen_ids(searches[:1], []).shows, ids))


def _effective(call: dialogue.Call) -> bool:
    """Whether every filter of a search acts. A search whose arguments are no object filters nothing either way."""
    parameters = call.parameters if isinstance(call.parameters, Mapping) else {}
    return not call_flags(call.name, parameters, _SEARCHES)
