"""Copies: equal dialogues, and agents that do the same on one problem (domain 6: 43).

``near_copies`` knows nothing of a day: in a day a group is a problem, across the window it is a leak cluster and the
signatures come from the stored corpus rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from trajectory_platform.curation.corpus import Candidate
from trajectory_platform.curation.filter_stages import Rejection
from trajectory_platform.curation.minhash import band_keys, bands_for
from trajectory_platform.curation.signatures import SIGNATURE_VERSION, shingles, similarity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COPIES_VERSION = f"copies-2,{SIGNATURE_VERSION}"
_BANDS_FROM = 512  # distinct traces of a group; below it comparing with every kept one is faster than the bands
_SLACK = 1e-9


class Signed(NamedTuple):
    """A trace as the comparison sees it.

    Attributes:
        group: problem key or leak cluster; None where it is not known: such a trace is never compared.
        agent: agent version; None is nobody's copy, for it may be any agent.
        quality: higher survives; then the smaller name.
        signature: ``signatures.signature_of``.
    """

    name: str
    group: str | None
    agent: str | None
    quality: float
    signature: str


class Copy(NamedTuple):
    """``of`` is the kept trace, ``similarity`` the exact Jaccard similarity to it."""

    of: str
    similarity: float


def exact_copies(candidates: Mapping[str, Candidate]) -> dict[str, Rejection]:
    """Traces whose messages equal those of an earlier judged one.

    The survivor is the first by (judged_at, trace_id). Two validators' runs of one agent are two rollouts and stay,
    unless they are equal byte for byte (domain 6: 31).
    """
    survivors: dict[str, str] = {}
    copies: dict[str, Rejection] = {}
    for name in sorted(candidates, key=lambda name: candidates[name].order):
        survivor = survivors.setdefault(candidates[name].content_hash, name)
        if survivor != name:
            copies[name] = Rejection("copies", "exact_copy", "the canonical messages are equal", survivor)
    return copies


def strategy_copies(candidates: Mapping[str, Candidate], *, similarity: float) -> dict[str, Rejection]:
    """Traces whose calls are near-equal to those of another agent on the same problem."""
    signed = (
        Signed(name, one.problem_key, one.agent_version_id, one.own_quality, one.signature)
        for name, one in candidates.items()
    )
    return {
        name: Rejection("strategy", "strategy_copy", f"the calls are alike to {copy.similarity:.3f}", copy.of)
        for name, copy in near_copies(signed, similarity=similarity).items()
    }


def near_copies(rows: Iterable[Signed], *, similarity: float) -> dict[str, Copy]:
    """Copies by name, sorted.

    Within a group the traces are taken by quality, then by name. One whose calls are at least ``similarity`` alike to a
    trace of another agent that was kept before is a copy of it, of the first such one; else it is kept. So a copy is
    compared with what stays and never along a chain (case D06), and the order of the rows does not matter.

    Args:
        similarity: in (0, 1], Jaccard similarity of the shingles.
    """
    groups: dict[str, list[Signed]] = {}
    for row in rows:
        if row.group is not None and row.agent is not None and row.signature:
            groups.setdefault(row.group, []).append(row)
    found: dict[str, Copy] = {}
    for members in groups.values():
        if len({row.agent for row in members}) > 1:
            found.update(_copies_of_group(members, similarity))
    return dict(sorted(found.items()))


def _copies_of_group(members: list[Signed], threshold: float) -> dict[str, Copy]:
    ranked = sorted(members, key=lambda row: (-row.quality, row.name))
    # Equal calls of one agent get one answer: what an earlier one was compared with is all that a later one can meet.
    places: dict[tuple[str, str | None], int] = {}
    distinct: list[Signed] = []
    for row in ranked:
        if (row.signature, row.agent) not in places:
            places[row.signature, row.agent] = len(distinct)
            distinct.append(row)
    kept = _Kept(distinct, threshold)
    answers = [kept.take(place) for place in range(len(distinct))]
    found = {}
    for row in ranked:
        answer = answers[places[row.signature, row.agent]]
        if answer is not None:
            found[row.name] = answer
    return found


class _Kept:
    """The rows of one group in rank order, and which of them were kept so far."""

    def __init__(self, rows: Sequence[Signed], threshold: float) -> None:
        import numpy as np

        self.rows, self.threshold = rows, threshold
        self.sets = [shingles(row.signature) for row in rows]
        codes: dict[str | None, int] = {}
        self.agents = np.fromiter((codes.setdefault(row.agent, len(codes)) for row in rows), np.int64, len(rows))
        # What is looked at first, in the order of the rows: sizes and difference maps.
        self.sizes = np.fromiter((len(one) for one in self.sets), np.int64, len(rows))
        self.coarse = _difference_maps(self.sets, 1)[:, 0]
        self.fine = _difference_maps(self.sets, 16)
        self.kept = np.empty(len(rows), np.int64)
        self.kept_sizes, self.kept_coarse = np.empty_like(self.sizes), np.empty_like(self.coarse)
        self.count = 0
        layout = bands_for(threshold) if len(rows) > _BANDS_FROM else None
        self.keys: list[list[int]] | None = None if layout is None else band_keys(self.sets, layout).tolist()
        self.buckets: list[dict[int, list[int]]] = [] if layout is None else [{} for _ in range(layout.bands)]

    def take(self, place: int) -> Copy | None:
        """The first kept row that this one is a copy of; else None, and the row is kept."""
        for other in self._possible(place):
            alike = similarity(self.sets[place], self.sets[other])
            if alike >= self.threshold - _SLACK:
                return Copy(self.rows[other].name, alike)
        end = self.count
        self.kept[end], self.kept_sizes[end], self.kept_coarse[end] = place, self.sizes[place], self.coarse[place]
        self.count += 1
        if self.keys is not None:
            for key, bucket in zip(self.keys[place], self.buckets, strict=True):
                bucket.setdefault(key, []).append(place)
        return None

    def _possible(self, place: int) -> list[int]:
        """Kept rows in rank order without those that cannot be alike enough.

        The difference of two sets has at least as many members as the XOR of their maps has bits, and for a Jaccard
        similarity of t at most (1 - t) / (1 + t) of the sum of their sizes.
        """
        import numpy as np

        others = self._candidates(place)
        if others is None:
            bits = np.bitwise_count(self.kept_coarse[: self.count] ^ self.coarse[place])
            others = self.kept[: self.count][bits <= self._most(self.kept_sizes[: self.count], place)]
        others = others[self.agents[others] != self.agents[place]]
        bits = np.bitwise_count(self.fine[others] ^ self.fine[place]).sum(axis=1, dtype=np.int64)
        possible: list[int] = others[bits <= self._most(self.sizes[others], place)].tolist()
        return possible

    def _most(self, sizes: NDArray[np.int64], place: int) -> NDArray[np.float64]:
        factor = (1.0 - self.threshold) / (1.0 + self.threshold) + _SLACK
        most: NDArray[np.float64] = (sizes + self.sizes[place]) * factor
        return most

    def _candidates(self, place: int) -> NDArray[np.int64] | None:
        """Kept rows that share a band; None where all of them have to be looked at."""
        import numpy as np

        if self.keys is None:
            return None
        found = [
            members
            for key, bucket in zip(self.keys[place], self.buckets, strict=True)
            if (members := bucket.get(key)) is not None
        ]
        # Where everything resembles everything, walking through the buckets costs more than looking at all kept rows.
        if sum(map(len, found)) > self.count // 8:
            return None
        return np.fromiter(sorted(set().union(*found)), np.int64)


def _difference_maps(sets: Sequence[frozenset[int]], words: int) -> NDArray[np.uint64]:
    """One map a set, shape (sets, words): every member flips one of its bits."""
    import numpy as np

    width = 64 * words
    data = bytearray()
    for one in sets:
        flipped = 0
        for value in one:
            flipped ^= 1 << (value % width)
        data += flipped.to_bytes(width // 8, "little")
    return np.frombuffer(bytes(data), np.uint64).reshape(len(sets), words)
