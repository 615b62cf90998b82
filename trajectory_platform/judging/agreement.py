"""Agreement of two raters from the table of how often each pair of values occurred.

Every statistic is a function of the table alone, so that an interval by resampling clusters costs one weighted count
per resample, whatever the number of traces. Rows are the values of the first rater, columns those of the second, both
ascending. ``None`` means undefined: a rater who always says the same shows no agreement beyond chance, whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Table = np.ndarray[Any, np.dtype[np.float64]]

LEVEL = 0.95
MIN_CLUSTERS = 5
_MOST_UNDEFINED = 0.1  # share of resamples without a value above which there is no interval


class Estimate(NamedTuple):
    """A statistic with its interval.

    Attributes:
        value: None where undefined; ``undefined`` then says why.
        low, high: percentile interval at ``LEVEL``, None where there is none; ``no_interval`` then says why.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    undefined: str | None = None
    no_interval: str | None = None


def weighted_kappa(table: Table, power: int) -> float | None:
    """Cohen's weighted kappa; weights are |i - j| ** power over the positions of one common, ordered scale.

    Args:
        table: counts, square; both raters use the same scale.
        power: 1 linear, 2 quadratic.
    """
    import numpy as np

    total = table.sum()
    if total < 2 or constant_rater(table):
        return None
    places = np.arange(len(table))
    weights = np.abs(places[:, None] - places[None, :]) ** power
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / total
    chance = float((weights * expected).sum())
    return 1.0 - float((weights * table).sum()) / chance if chance > 0 else None


def spearman(table: Table) -> float | None:
    """Rank correlation with mean ranks for ties; None for fewer than two pairs or a constant rater."""
    import numpy as np

    total = table.sum()
    if total < 2 or constant_rater(table):
        return None
    ranks = []
    for counts in (table.sum(axis=1), table.sum(axis=0)):
        middle = np.cumsum(counts) - counts / 2
        ranks.append((middle - total / 2, counts))
    (left, left_counts), (right, right_counts) = ranks
    spread = float((left_counts * left**2).sum() * (right_counts * right**2).sum())
    return float(left @ table @ right) / spread**0.5 if spread > 0 else None


def kendall_tau_b(table: Table) -> float | None:
    """Kendall's tau-b (with ties); None for fewer than two pairs or a constant rater."""
    import numpy as np

    total = float(table.sum())
    if total < 2 or constant_rater(table):
        return None
    before = np.zeros((table.shape[0] + 1, table.shape[1] + 1))
    before[1:, 1:] = table.cumsum(axis=0).cumsum(axis=1)
    lower_left = before[:-1, :-1]  # pairs with both values smaller
    lower_right = before[:-1, -1:] - before[:-1, 1:]  # first value smaller, second greater
    difference = float((table * (lower_left - lower_right)).sum())
    pairs = total * (total - 1) / 2
    ties = [float((side * (side - 1) / 2).sum()) for side in (table.sum(axis=1), table.sum(axis=0))]
    scale = (pairs - ties[0]) * (pairs - ties[1])
    return difference / scale**0.5 if scale > 0 else None


def mean_difference(table: Table, first: Table, second: Table) -> float | None:
    """Mean of second minus first.

    Args:
        first, second: the values that rows and columns stand for.
    """
    total = float(table.sum())
    if total < 1:
        return None
    return float(table.sum(axis=0) @ second - table.sum(axis=1) @ first) / total


def constant_rater(table: Table) -> str | None:
    """``first_constant`` or ``second_constant`` where a rater gave one value only, else None."""
    if (table.sum(axis=1) > 0).sum() < 2:
        return "first_constant"
    return "second_constant" if (table.sum(axis=0) > 0).sum() < 2 else None


def estimate(
    statistic: Callable[[Table], float | None],
    table: Table,
    resampled: Table | None,
    undefined: str,
) -> Estimate:
    """A statistic of a table with a percentile interval.

    Args:
        resampled: tables of resamples, shape (resamples, rows, columns); None where there are too few clusters.
        undefined: why the statistic is undefined, should it be.
    """
    import numpy as np

    value = statistic(table)
    if value is None:
        return Estimate(None, undefined=undefined, no_interval="undefined")
    if resampled is None:
        return Estimate(value, no_interval=f"fewer than {MIN_CLUSTERS} clusters")
    drawn = [found for found in map(statistic, resampled) if found is not None]
    if len(drawn) < (1 - _MOST_UNDEFINED) * len(resampled):
        return Estimate(value, no_interval="undefined in many resamples")
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high))
