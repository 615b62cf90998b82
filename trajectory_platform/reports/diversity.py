"""How many ways of solving a task a corpus holds, and how long the tail of rare ones is.

Counts of strategies (``curation.strategy``) describe the corpus itself, all of it: they are no sample, hence without
an interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Tail(NamedTuple):
    """The strategies of some traces.

    Attributes:
        traces, strategies: how many.
        effective: exponential of the entropy of the shares: so many strategies of equal size would be as diverse.
        top_1, top_10: share of the traces that the largest and the ten largest strategies hold.
        singletons: strategies with one trace; ``singleton_traces``: their share of the traces.
        sizes: traces per strategy, largest first.
    """

    traces: int
    strategies: int
    effective: float
    top_1: float
    top_10: float
    singletons: int
    singleton_traces: float
    sizes: tuple[int, ...]


def tail_of(counts: Mapping[str, int]) -> Tail:
    """The tail of strategy -> traces; all zeros for none. Strategies with 0 traces do not count."""
    sizes = tuple(sorted((count for count in counts.values() if count > 0), reverse=True))
    traces = sum(sizes)
    if not traces:
        return Tail(0, 0, 0.0, 0.0, 0.0, 0, 0.0, ())
    entropy = -math.fsum(size / traces * math.log(size / traces) for size in sizes)
    single = sum(size == 1 for size in sizes)
    return Tail(
        traces,
        len(sizes),
        math.exp(entropy),
        sizes[0] / traces,
        sum(sizes[:10]) / traces,
        single,
        single / traces,
        sizes,
    )


def tails_by(rows: Iterable[Mapping[str, Any]], key: str) -> dict[str, Tail]:
    """The tail of each value of a column, most traces first.

    Rows have ``key``, ``strategy_cluster`` and, where a row stands for several, ``traces``.
    """
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(str(row[key] or ""), Counter())[row["strategy_cluster"]] += row.get("traces", 1)
    found = {name: tail_of(counted) for name, counted in counts.items()}
    return dict(sorted(found.items(), key=lambda item: (-item[1].traces, item[0])))
