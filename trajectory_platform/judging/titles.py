"""When two titles are similar: the versioned title regimes of domain 2.2.

==============  =====================================================================================================
``normalised``  equal after NFKC, case folding and collapsing of white space; needs no encoder (``days/README.md``)
``sn15``        cosine >= 0.7, the subnet of 04-05/2026
``upstream``    cosine >= 0.5, ShoppingBench itself; a product that is found counts as a hit whatever its rule score
``sn15-guard``  cosine >= 0.72; from 0.50 on only if every other constraint is met and one of them is distinctive
==============  =====================================================================================================

Where the cosine's vectors come from is a setting of its own (``judging.embeddings``). With none, the title constraint
disappears, as in the reference: a product that meets the rest scores 1.0. With stored vectors, a title that has none
is neither a hit nor a miss; ``judging.outcome`` says what follows from that. A score names the regime, its version
and the encoder, because all three decide it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from trajectory_platform.errors import Abort
from trajectory_platform.judging.embeddings import TitleEncoder, cosine


class TitleRegime(NamedTuple):
    """One way to compare titles; ``version`` changes whenever an answer may change.

    Attributes:
        threshold: cosine from which on (inclusive) titles are similar; None where texts are compared.
        band: cosine from which on the guard band begins, or None without one.
        any_product_hits: shop and voucher positions count as filled by any product that exists (upstream), not only
            by one with a rule score above 0 (domain 2.3).
    """

    version: int
    threshold: float | None
    band: float | None = None
    any_product_hits: bool = False


TITLE_REGIMES: dict[str, TitleRegime] = {
    "normalised": TitleRegime(1, None),
    "sn15": TitleRegime(1, 0.7),
    "sn15-guard": TitleRegime(1, 0.72, band=0.5),
    "upstream": TitleRegime(1, 0.5, any_product_hits=True),
}


class TitleCounts(NamedTuple):
    """The titles of one reward by how they compare with the product's.

    Attributes:
        hits: similar.
        near: inside the guard band.
        total: constraints that were compared: hits, near ones and misses.
        unknown: titles that could not be compared, because one side has no stored vector.
    """

    hits: int
    near: int
    total: int
    unknown: int


class TitleRule:
    """A regime with its encoder.

    Attributes:
        name: ``normalised-1``, ``sn15-1/none``, ``sn15-guard-1/stored@1a2b3c4d``: what a score is stored with.
    """

    def __init__(self, regime_name: str, encoder: TitleEncoder | None) -> None:
        self.regime = title_regime(regime_name)
        self.encoder = encoder if self.regime.threshold is not None else None
        used = "" if self.regime.threshold is None else f"/{encoder.name if encoder else 'none'}"
        self.name = f"{regime_name}-{self.regime.version}{used}"

    def compare(self, product_title: Any, titles: Sequence[Any]) -> TitleCounts:
        """Compare a product's title with the titles of a reward.

        Raises:
            TypeError: a title that is no text.
        """
        regime = self.regime
        if regime.threshold is not None and self.encoder is None:
            return TitleCounts(0, 0, 0, 0)
        threshold = 1.0 if regime.threshold is None else regime.threshold
        hits = near = unknown = 0
        for title in titles:
            similar = self.similar(product_title, title, threshold)
            if similar:
                hits += 1
            elif similar is None:
                unknown += 1
            elif regime.band is not None and self.similar(product_title, title, regime.band):
                near += 1
        return TitleCounts(hits, near, len(titles) - unknown, unknown)

    def similar(self, left: Any, right: Any, threshold: float) -> bool | None:
        """Whether two titles are similar; None where that cannot be known (no encoder, no stored vector).

        The cosine is compared in float32, where 0.7 equals 0.7 (domain 2.2); ``threshold`` plays no part in a regime
        that compares texts. One text compared with itself is similar whatever the encoder: its cosine is 1.
        """
        if not isinstance(left, str) or not isinstance(right, str):
            raise TypeError("title is no text")
        if self.regime.threshold is None:
            return left == right or normalised_title(left) == normalised_title(right)
        if self.encoder is None:
            return None
        if left == right:
            return True
        first, second = self.encoder.vector(left), self.encoder.vector(right)
        if first is None or second is None or first.shape != second.shape:
            return None  # vectors of two lengths come from two encoders
        import numpy as np

        return bool(cosine(first, second) >= np.float32(threshold))


def title_regime(name: str) -> TitleRegime:
    """The regime of a name; Abort names the known ones."""
    if name not in TITLE_REGIMES:
        raise Abort(f"unknown title regime {name!r}: use one of {', '.join(sorted(TITLE_REGIMES))}")
    return TITLE_REGIMES[name]


@lru_cache(maxsize=1 << 14)
def normalised_title(title: str) -> str:
    """NFKC, case folding, white space collapsed (the convention of ``days/README.md``)."""
    return " ".join(unicodedata.normalize("NFKC", title).casefold().split())
