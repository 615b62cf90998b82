"""Intervals for shares and means whose observations come in leak clusters.

Problems of one leak cluster resemble each other, and attempts at one problem even more so. The interval to report
therefore draws whole clusters with replacement (percentile bootstrap); everything inside a cluster stays together.
Where all clusters agree the bootstrap collapses to a point, which would claim certainty that nobody has: there the
interval comes from the chance of a cluster unlike all those seen, and says so in ``method``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Z95 = 1.959963984540054
BOOTSTRAP, UNSEEN = "cluster_bootstrap", "unseen_cluster_bound"
UNSEEN_NOTE = "all clusters agree, so the bootstrap has no width: bounded by the chance of a cluster unlike those seen"
_LEVELS = (0.025, 0.975)
_CELLS = 1 << 18  # drawn clusters held at once: 2 MB, within the processor's cache
_EQUAL = 1e-12


def wilson(successes: float, n: int, *, z: float = Z95) -> tuple[float, float] | None:
    """Wilson 95 % interval of a share; None for n = 0. It treats observations as independent: the narrow one.

    ``successes`` may be fractional where each observation is itself a share.
    """
    if n == 0:
        return None
    share = min(1.0, successes / n)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def unseen_share(clusters: int) -> float:
    """Upper end of the exact (Clopper-Pearson) 95 % interval of the share of clusters unlike all ``clusters`` seen.

    About 3.7 / n: the rule of three for a two-sided interval.
    """
    return 1.0 - float(_LEVELS[0] ** (1 / clusters))


def unseen_bound(value: float, clusters: int, bounds: tuple[float, float]) -> tuple[float, float]:
    """Interval of a mean when every cluster showed the same ``value`` and none can lie outside ``bounds``."""
    unlike = unseen_share(clusters)
    return (1 - unlike) * value + unlike * bounds[0], (1 - unlike) * value + unlike * bounds[1]


def cluster_totals(clusters: Sequence[str], columns: Floats) -> tuple[list[str], Floats]:
    """Column sums per cluster, clusters in sorted order.

    Args:
        clusters: cluster id per row, length n.
        columns: (n, m).

    Returns:
        The c different clusters and (c, m). The order of rows changes sums of fractions in the last bit at most;
        callers that must repeat exactly sort their rows first.
    """
    import numpy

    names = sorted(set(clusters))
    place = {name: number for number, name in enumerate(names)}
    index = numpy.fromiter((place[name] for name in clusters), dtype=numpy.int64, count=len(clusters))
    totals = [numpy.bincount(index, weights=column, minlength=len(names)) for column in columns.T]
    return names, numpy.array(totals, dtype=numpy.float64).reshape(columns.shape[1], len(names)).T


def seeded(seed: int) -> np.random.Generator:
    """The stream of a seed, whatever its sign: numpy takes no negative one, the rest of the platform does."""
    import numpy

    return numpy.random.default_rng(seed if seed >= 0 else [1, -seed])


def resampled_totals(totals: Floats, *, seed: int, resamples: int) -> Floats:
    """Column sums over clusters drawn with replacement: (c, m) totals per cluster to (resamples, m).

    How often each cluster is drawn is counted, and the counts are multiplied with the totals: all columns share the
    same draws. Draws come from one seeded stream, so the size of a chunk plays no part in the result. Equal columns
    are summed once, and without BLAS, whose threads cost more than these small products on a busy machine.
    """
    import numpy

    count = len(totals)
    places: dict[bytes, int] = {}
    place = [places.setdefault(column.tobytes(), len(places)) for column in totals.T]
    different = numpy.array([totals[:, place.index(number)] for number in range(len(places))]).reshape(-1, count)
    random = seeded(seed)
    result = numpy.empty((resamples, len(different)))
    rows = max(1, min(resamples, _CELLS // max(1, count)))
    shift = (numpy.arange(rows, dtype=numpy.int64) * count)[:, None]
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        drawn = random.integers(0, count, size=(size, count)) + shift[:size]
        times = numpy.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        result[start : start + size] = numpy.einsum("rc,mc->rm", times.astype(numpy.float64), different)
    return result[:, place]


def percentile_interval(
    tops: Floats, bottoms: Floats, drawn_tops: Floats, drawn_bottoms: Floats, bounds: tuple[float, float]
) -> dict[str, Any] | None:
    """95 % interval of ``sum(tops) / sum(bottoms)`` over clusters.

    Args:
        tops, bottoms: per cluster, length c; a cluster with bottom 0 says nothing.
        drawn_tops, drawn_bottoms: the same sums in each resample.
        bounds: smallest and largest possible value.

    Returns:
        ``{low, high, method, note}``, or None below two clusters that say something. It always contains the value.
    """
    told = bottoms > 0
    clusters = int(told.sum())
    if clusters < 2:
        return None
    value = float(tops[told].sum() / bottoms[told].sum())
    shares = tops[told] / bottoms[told]
    if float(shares.max() - shares.min()) < _EQUAL:
        low, high = unseen_bound(value, clusters, bounds)
        return _interval(low, high, value, bounds, UNSEEN, UNSEEN_NOTE)
    full = drawn_bottoms > 0
    return percentiles(drawn_tops[full] / drawn_bottoms[full], value, bounds)


def percentiles(drawn: Floats, value: float, bounds: tuple[float, float]) -> dict[str, Any]:
    """The 95 % percentile interval of a value from its resampled values, which must not be empty."""
    import numpy

    low, high = numpy.quantile(drawn, _LEVELS)
    return _interval(float(low), float(high), value, bounds, BOOTSTRAP, None)


def cluster_interval(values: Sequence[tuple[str, bool]], *, seed: int, resamples: int) -> dict[str, Any] | None:
    """``percentile_interval`` of a share, ``values`` being (cluster, hit). Independent of their order."""
    import numpy

    if not values:
        return None
    columns = numpy.array([(float(hit), 1.0) for _, hit in values])
    _, totals = cluster_totals([cluster for cluster, _ in values], columns)
    drawn = resampled_totals(totals, seed=seed, resamples=resamples)
    return percentile_interval(totals[:, 0], totals[:, 1], drawn[:, 0], drawn[:, 1], (0.0, 1.0))


def average_interval(intervals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A cautious interval of an average: the averages of the ends, as if all parts erred the same way."""
    low = sum(float(one["low"]) for one in intervals) / len(intervals)
    high = sum(float(one["high"]) for one in intervals) / len(intervals)
    return {"low": low, "high": high, "method": UNSEEN, "note": UNSEEN_NOTE}


def _interval(
    low: float, high: float, value: float, bounds: tuple[float, float], method: str, note: str | None
) -> dict[str, Any]:
    low, high = min(low, value), max(high, value)  # the last bit of a quantile must not exclude the value itself
    return {"low": max(bounds[0], low), "high": min(bounds[1], high), "method": method, "note": note}
