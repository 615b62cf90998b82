"""Which artifacts of a day are asked for when the day has more than the request budget allows.

Strata are (miner, kind of pair). A miner's share of the places follows the axis share of his earlier traces (axis A is
what the platform is after), miners without a history are explored, and every stratum keeps a few places, so that a
changed agent is noticed. Inside a stratum a keyed hash orders the pairs; the first ``k`` are taken. So the choice
depends on the pairs, the budget and the key alone, a larger budget only adds to it, and the probability of every pair
is known: ``k / n`` of its stratum, whose inverse is its weight.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from trajectory_platform.sources.wanted import Row

VERSION = "stratified-1"
LINK_SHARE = 0.9  # of what the listing leaves of the budget; the rest is for links asked for again
MIN_PLACES = 3  # per stratum of usable pairs, where there are as many
KINDS = {0: "usable", 1: "copy", 2: "unused"}
_KIND_WEIGHT = {0: 1.0, 1: 0.25, 2: 0.05}
_UNKNOWN_MINER = 0.5


class Choice(NamedTuple):
    """``pairs``: (run, problem) -> (chosen, stratum, probability); ``summary`` for the day's report."""

    pairs: dict[tuple[str, str], tuple[bool, str, float]]
    summary: dict[str, Any]


def places(budget: int, listing_requests: int) -> int:
    """Artifacts that may be asked for with a budget of requests for the whole day."""
    return max(math.floor((budget - listing_requests) * LINK_SHARE), 0)


def choose(rows: Iterable[Row], *, count: int, key: str, axis_history: Mapping[str, float] | None = None) -> Choice:
    """Choose ``count`` pairs. Pairs that were fetched already stay chosen and take a place.

    Args:
        rows: every pair of the day that can be asked for, whatever became of it.
        count: places in all.
        key: of the hash that orders the pairs of a stratum.
        axis_history: miner -> share of axis A among that miner's earlier traces, 0 to 1.
    """
    strata: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        strata[f"{row.miner or '-'}:{KINDS[min(row.rank, 2)]}"].append(row)
    weights = {name: _weight(members[0], axis_history or {}) for name, members in strata.items()}
    sizes = {name: len(members) for name, members in strata.items()}
    least = {
        name: min(MIN_PLACES, sizes[name]) if members[0].rank < 1 else 0 for name, members in sorted(strata.items())
    }
    taken = allocate(sizes, weights, least, count)
    pairs: dict[tuple[str, str], tuple[bool, str, float]] = {}
    for name, members in strata.items():
        ordered = sorted(members, key=lambda row: (row.state != "fetched", _order(key, row)))
        probability = round(taken[name] / len(members), 6)
        for place, row in enumerate(ordered):
            kept = place < taken[name] or row.state == "fetched"
            pairs[(row.eval_run_id, row.problem_id)] = (kept, name, probability)
    summary = {
        "version": VERSION,
        "places": count,
        "found": sum(sizes.values()),
        "strata": {
            name: {"found": sizes[name], "chosen": taken[name], "weight": round(weights[name], 4)}
            for name in sorted(strata)
        },
    }
    return Choice(pairs, summary)


def allocate(
    sizes: Mapping[str, int], weights: Mapping[str, float], least: Mapping[str, int], count: int
) -> dict[str, int]:
    """Places per stratum: first ``least`` each, then in proportion to size times weight, never more than there are.

    Strata that are full hand what is left to the others. Sums to ``min(count, all)``; rounding goes to the largest
    remainders, ties by name.
    """
    taken = dict.fromkeys(sorted(sizes), 0)
    left = min(count, sum(sizes.values()))
    for name in sorted(taken, key=lambda name: (-weights[name], name)):
        taken[name] = min(least.get(name, 0), sizes[name], left)
        left -= taken[name]
    while left > 0:
        room = {name: sizes[name] - taken[name] for name in taken if sizes[name] > taken[name]}
        total = sum(sizes[name] * weights[name] for name in room)
        exact = {name: left * sizes[name] * weights[name] / total for name in room}
        given = {name: min(math.floor(exact[name]), room[name]) for name in room}
        if not any(given.values()):
            for name in sorted(room, key=lambda name: (-exact[name], name))[:left]:
                given[name] = 1
        for name, places_given in given.items():
            taken[name] += places_given
            left -= places_given
    return taken


def _weight(row: Row, axis_history: Mapping[str, float]) -> float:
    share = axis_history.get(row.miner)
    usable = isinstance(share, int | float) and not isinstance(share, bool) and math.isfinite(share)
    by_axis = 0.1 + 0.9 * min(max(share, 0.0), 1.0) if usable and share is not None else _UNKNOWN_MINER
    return by_axis * _KIND_WEIGHT[min(row.rank, 2)]


def _order(key: str, row: Row) -> str:
    text = f"{row.eval_run_id}:{row.problem_id}".encode()
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()
