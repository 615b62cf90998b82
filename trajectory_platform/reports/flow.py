"""Where the pairs of a day went: every pair of run and problem ends accepted or rejected, and is counted once.

The funnel says what is left after each step; this says where the rest is. Uses overlap, so the accepted end by the
*set* of their uses: the parts of a flow add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trajectory_platform.curation.filter_stages import DAY_STAGE_TABLE, ROW_STAGE_TABLE

STAGE_WORDS = {
    "ingest": "no usable trace",
    "read": "unreadable",
    "duplicate": "repeated line",
    "injection": "injected text",
    "protocol": "no acting agent",
    "format": "fits no template",
    "axis": "not axis A",
    "outcome": "outcome in doubt",
    "judge": "unjudged",
    "copies": "exact copy",
    "strategy": "copied strategy",
    "caps": "over a cap",
}
USE_WORDS = {"sft": "SFT", "kto_desirable": "KTO desirable", "kto_undesirable": "KTO undesirable"}
_ORDER = {name: place for place, name in enumerate(STAGE_WORDS)}
MEANINGS: dict[tuple[str, str], str] = {
    **{(stage.name, reason): meaning for stage in ROW_STAGE_TABLE for reason, meaning in stage.reasons},
    **{(name, reason): meaning for name, _, _, reasons in DAY_STAGE_TABLE for reason, meaning in reasons},
}


@dataclass(frozen=True)
class Flow:
    """Counts of pairs.

    Attributes:
        pairs: judged on the days told of.
        rejected: (stage, reason, count), stages in the order of the filter, largest reason first.
        uses: (set of uses in the order of ``USE_WORDS``, count), largest first.
        found, moved_in, moved_out: pairs in the day's own folder, come from and gone to a neighbouring day.
    """

    pairs: int
    rejected: tuple[tuple[str, str, int], ...]
    uses: tuple[tuple[tuple[str, ...], int], ...]
    found: int | None = None
    moved_in: int = 0
    moved_out: int = 0

    @property
    def accepted(self) -> int:
        return sum(count for _, count in self.uses)

    @property
    def lost(self) -> int:
        return sum(count for _, _, count in self.rejected)

    @property
    def difference(self) -> int:
        """Pairs that are neither accepted nor rejected: 0, or rows were lost."""
        return self.pairs - self.accepted - self.lost

    def stages(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """Stage by stage: its reasons with their counts."""
        found: dict[str, list[tuple[str, int]]] = {}
        for stage, reason, count in self.rejected:
            found.setdefault(stage, []).append((reason, count))
        return list(found.items())


def flow_of(
    pairs: int,
    rejected: Iterable[tuple[str, str]] | Mapping[tuple[str, str], int],
    uses: Iterable[Sequence[str]] | Mapping[tuple[str, ...], int],
    *,
    found: int | None = None,
    moved_in: int = 0,
    moved_out: int = 0,
) -> Flow:
    """The flow of rows.

    Args:
        rejected: (stage, reason) of every rejected row, or their counts.
        uses: the uses of every accepted row, or their counts.
    """
    counted = uses if isinstance(uses, Mapping) else Counter(map(tuple, uses))
    ends: Counter[tuple[str, ...]] = Counter()
    for row, count in counted.items():
        ends[tuple(sorted(set(row), key=_use_place))] += count
    return _ordered(pairs, Counter(rejected), ends, found, moved_in, moved_out)


def added(flows: Sequence[Flow]) -> Flow:
    """Several days together; what moved between two of them is in both counts."""
    reasons: Counter[tuple[str, str]] = Counter()
    ends: Counter[tuple[str, ...]] = Counter()
    for flow in flows:
        for stage, reason, count in flow.rejected:
            reasons[stage, reason] += count
        for uses, count in flow.uses:
            ends[uses] += count
    known = [flow.found for flow in flows if flow.found is not None]
    return _ordered(
        sum(flow.pairs for flow in flows),
        reasons,
        ends,
        sum(known) if len(known) == len(flows) and flows else None,
        sum(flow.moved_in for flow in flows),
        sum(flow.moved_out for flow in flows),
    )


def _ordered(
    pairs: int,
    reasons: Counter[tuple[str, str]],
    ends: Counter[tuple[str, ...]],
    found: int | None,
    moved_in: int,
    moved_out: int,
) -> Flow:
    rejected = sorted(
        ((stage, reason, count) for (stage, reason), count in reasons.items()),
        key=lambda row: (_ORDER.get(row[0], len(_ORDER)), row[0], -row[2], row[1]),
    )
    uses = sorted(ends.items(), key=lambda row: (-row[1], row[0]))
    return Flow(pairs, tuple(rejected), tuple(uses), found, moved_in, moved_out)


def _use_place(use: str) -> tuple[int, str]:
    names = list(USE_WORDS)
    return (names.index(use) if use in names else len(names), use)


def stage_words(stage: str) -> str:
    """What a rejection at this stage is, in words; an unknown stage speaks for itself."""
    return STAGE_WORDS.get(stage, stage)


def use_words(uses: Sequence[str]) -> str:
    """A set of uses in words."""
    return " + ".join(USE_WORDS.get(use, use) for use in uses) or "no use"
