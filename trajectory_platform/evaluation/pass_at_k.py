"""pass@k: the chance that at least one of k attempts at a problem succeeds, estimated without bias.

``1 - C(n - c, k) / C(n, k)`` for n attempts of which c succeeded (Chen et al. 2021, arXiv 2107.03374). With fewer
than k attempts nothing can be said: the value is missing, never 1 (case C12). An attempt that crashed, timed out or
is absent is one of the n.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache


@lru_cache(maxsize=1 << 16)
def pass_at_k(n: int, c: int, k: int) -> float | None:
    """The estimate of one problem, or None where n < k (n = 0 included).

    Computed in whole numbers and rounded once.

    Raises:
        ValueError: k below 1, or not 0 <= c <= n.
    """
    if k < 1:
        raise ValueError(f"pass@k needs k >= 1, got {k}")
    if not 0 <= c <= n:
        raise ValueError(f"{c} successes in {n} attempts")
    if n < k:
        return None
    every = math.comb(n, k)
    return (every - math.comb(n - c, k)) / every


def mean_pass_at_k(counts: Iterable[tuple[int, int]], k: int) -> tuple[float | None, int, int]:
    """Mean over problems given as (attempts, successes).

    Returns:
        (mean or None, problems it is defined for, problems with fewer than k attempts).
    """
    values = [pass_at_k(n, c, k) for n, c in counts]
    defined = [value for value in values if value is not None]
    mean = math.fsum(defined) / len(defined) if defined else None
    return mean, len(defined), len(values) - len(defined)
