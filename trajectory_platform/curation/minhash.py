"""MinHash in bands: pairs of sets that may be alike, found without comparing all of them.

The bands are chosen for recall, not for a mixed error (case D02): a missed pair is a copy in the corpus, a false
candidate only costs one exact comparison. Nothing here decides; every candidate is verified by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PERMUTATIONS = 128
RECALL = 0.99


class Bands(NamedTuple):
    """``bands`` bands of ``rows`` permutations each."""

    bands: int
    rows: int

    def recall(self, similarity: float) -> float:
        """Share of the pairs of this Jaccard similarity that agree in at least one band: 1 - (1 - s^r)^b."""
        return 1.0 - (1.0 - similarity**self.rows) ** self.bands


def bands_for(threshold: float, *, recall: float = RECALL, permutations: int = PERMUTATIONS) -> Bands | None:
    """The most selective bands whose recall at the threshold is still sufficient.

    0.9 gives 12 bands of 10 (recall 0.9942), 0.8 gives 21 of 6 (0.9983). None where the threshold is so low that not
    even bands of one permutation suffice; then every pair has to be compared.
    """
    for rows in range(permutations, 0, -1):
        layout = Bands(permutations // rows, rows)
        if layout.recall(threshold) >= recall:
            return layout
    return None


def band_keys(sets: Sequence[frozenset[int]], layout: Bands) -> NDArray[np.uint64]:
    """Keys of shape (sets, bands): two sets are candidates where they agree in one column.

    Args:
        sets: non-empty sets of 32-bit numbers, which are digests: no further mixing is needed.
    """
    import numpy as np

    sizes = np.fromiter((len(one) for one in sets), np.int64, len(sets))
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    values = np.fromiter((value for one in sets for value in one), np.uint64, int(sizes.sum()))
    keys = np.empty((len(sets), layout.bands), np.uint64)
    number = 0
    for band in range(layout.bands):
        key = np.zeros(len(sets), np.uint64)
        for _ in range(layout.rows):
            factor, shift, mix = _constants(number)
            number += 1
            lowest = np.minimum.reduceat((values * np.uint64(factor) + np.uint64(shift)) >> np.uint64(32), starts)
            key = (key + lowest) * np.uint64(mix)  # wraps; two unequal bands with one key only cost a comparison
            key ^= key >> np.uint64(29)
        keys[:, band] = key
    return keys


def _constants(number: int) -> tuple[int, int, int]:
    """Odd factor, shift and odd mixing factor of a permutation: fixed, whatever the process or the numpy version."""
    digest = sha256(b"trajectory-platform minhash %d" % number).digest()
    first, second, third = (int.from_bytes(digest[at : at + 8], "big") for at in (0, 8, 16))
    return first | 1, second, third | 1
