"""Two policies on the same problems: the difference, how sure it is, and what this evaluation could have seen.

Problems are paired by key, so that what makes a problem hard cancels out; whole leak clusters are drawn for the
interval, as in ``metrics``. All differences are *b minus a*. Every statement for users comes with the smallest
difference the evaluation can detect: "no difference seen" on few problems says little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.attempts import Attempted, Evaluation, Planned, Row, gather
from trajectory_platform.evaluation.intervals import Z95, seeded, unseen_share
from trajectory_platform.evaluation.metrics import (
    KS,
    THIN_BELOW,
    Column,
    Resampling,
    draw,
    mean_column,
    pass_column,
    process_column,
    score,
    success_column,
)

if TYPE_CHECKING:
    from trajectory_platform.evaluation.intervals import Floats

VERSION = "comparison-2"
POWER, Z_POWER = 0.80, 0.8416212335729143  # the standard normal's 80 % point
_DIFFERENCES = (-1.0, 1.0)
_WIDER = {"process_score": (-2.0, 2.0)}  # a score from -1 to 1
_ALL_SIGNS = 14  # 16,384 combinations
_LEVEL = 0.05


class Pair(NamedTuple):
    """One problem attempted by both; ``cluster`` joins the clusters that either side puts it in."""

    a: Attempted
    b: Attempted
    cluster: str

    @property
    def gain(self) -> float:
        """Success share of b minus that of a."""
        return self.b.share - self.a.share


def compare(
    rows_a: Iterable[Row],
    rows_b: Iterable[Row],
    *,
    ks: Sequence[int] = KS,
    seed: int,
    resamples: int,
    planned_a: Mapping[str, Planned] | None = None,
    planned_b: Mapping[str, Planned] | None = None,
    thin_below: int = THIN_BELOW,
) -> dict[str, Any]:
    """Compare two evaluations on the problems they share.

    Args:
        rows_a, rows_b: columns of ``eval_scores``, each of one checkpoint.
        planned_a, planned_b: as in ``metrics.task_metrics``.

    Returns:
        ``{version, a, b, settings, dropped, overall, categories}``. ``dropped`` names per reason (``only_in_a``,
        ``only_in_b``, ``no_reward``) the problems that were left out. ``overall`` and each category hold ``problems``,
        ``clusters``, ``state``, the success rates ``a`` and ``b``, ``difference`` with its interval, ``pass_at_k``,
        ``process_score`` and ``conduct_score`` (differences), ``tests``, ``smallest_detectable``, ``verdict`` and
        ``words``.

    Raises:
        Abort: no problem is shared.
        FailPartition: rows of one side that contradict one another, or a problem in two categories.
    """
    a, b = gather(rows_a, planned_a), gather(rows_b, planned_b)
    pairs, dropped = _paired(a, b)
    if not pairs:
        raise Abort(
            f"nothing_shared: {a.checkpoint_id} has {len(a.problems)} scored problems, {b.checkpoint_id} has "
            f"{len(b.problems)}, none in both; evaluate them on the same problems"
        )
    how = Resampling(seed, resamples, thin_below)
    names = sorted({pair.a.category for pair in pairs})
    return {
        "version": VERSION,
        "a": a.checkpoint_id,
        "b": b.checkpoint_id,
        "settings": {"ks": list(ks), **how._asdict()},
        "dropped": dropped,
        "overall": _entry(pairs, ks, how),
        "categories": {name: _entry([pair for pair in pairs if pair.a.category == name], ks, how) for name in names},
    }


def sign_test(gains: Iterable[float]) -> dict[str, Any]:
    """Exact two-sided sign test: are gains and losses equally likely? Units without a difference say nothing.

    With one attempt per problem this is McNemar's exact test on the discordant pairs.
    """
    values = list(gains)
    better, worse = sum(value > 0 for value in values), sum(value < 0 for value in values)
    n, term, tail = better + worse, 1, 1
    for count in range(min(better, worse)):
        term = term * (n - count) // (count + 1)  # C(n, count + 1), in whole numbers
        tail += term
    p_value = min(1.0, 2 * tail / 2**n)
    return {"better": better, "worse": worse, "equal": len(values) - n, "p_value": p_value}


def randomisation_test(gains: Sequence[float], *, seed: int, resamples: int) -> dict[str, Any]:
    """Two-sided test of the summed gain: how often is it as large when each cluster's sign is tossed?

    It asks for the mean, as the interval does, where the sign test asks for the more frequent direction. All signs up
    to 14 clusters that differ, beyond that ``resamples`` seeded tosses (the observed one counted in).
    """
    import numpy

    values = numpy.array([gain for gain in gains if gain], dtype=numpy.float64)
    exact = len(values) <= _ALL_SIGNS
    if exact:
        bits = numpy.arange(1 << len(values))[:, None] >> numpy.arange(len(values)) & 1
        tossed = (2.0 * bits - 1.0) @ values
    else:
        random = seeded(seed)
        tossed = numpy.empty(resamples)
        rows = max(1, (1 << 20) // len(values))
        for start in range(0, resamples, rows):
            size = min(rows, resamples - start)
            signs = random.integers(0, 2, size=(size, len(values)), dtype=numpy.int8)
            tossed[start : start + size] = numpy.einsum("rc,c->r", 2.0 * signs - 1.0, values)
    reached = int((numpy.abs(tossed) >= abs(values.sum()) - 1e-9).sum())
    p_value = reached / len(tossed) if exact else (reached + 1) / (resamples + 1)
    return {"test": "randomisation", "exact": exact, "p_value": p_value}


def smallest_detectable(gains: Sequence[float], problems: Sequence[float]) -> dict[str, Any]:
    """The smallest true difference that this evaluation finds with 80 % chance at the 5 % level.

    ``(1.96 + 0.84) * standard error``, the error from the paired differences of whole clusters.

    Args:
        gains, problems: per cluster the summed difference and the number of problems.

    Returns:
        ``{value, power, upper_bound}``; value None below two clusters. Where all clusters show the same difference
        there is no variance to go by: then the value is an upper bound, from the chance of a cluster unlike those seen.
    """
    clusters, total = len(gains), math.fsum(problems)
    if clusters < 2:
        return {"value": None, "power": POWER, "upper_bound": False}
    mean = math.fsum(gains) / total
    residuals = [gain - mean * size for gain, size in zip(gains, problems, strict=True)]
    variance = clusters / (clusters - 1) * math.fsum(residual * residual for residual in residuals) / total**2
    degenerate = variance < 1e-18
    if degenerate:
        variance = unseen_share(clusters) * (1 + abs(mean)) ** 2 / clusters
    value = min(1.0, (Z95 + Z_POWER) * math.sqrt(variance))
    return {"value": value, "power": POWER, "upper_bound": degenerate}


def _paired(a: Evaluation, b: Evaluation) -> tuple[list[Pair], dict[str, list[str]]]:
    left, right = ({one.problem_key: one for one in side.problems} for side in (a, b))
    apart = {one.problem_key for side in (a, b) for one in side.no_reward}
    shared = sorted((left.keys() & right.keys()) - apart)
    for key in shared:
        if left[key].category != right[key].category:
            raise FailPartition(
                f"problem_in_two_places: {key} is {left[key].category!r} in a and {right[key].category!r} in b"
            )
    joined = _joined([(left[key].cluster_id, right[key].cluster_id) for key in shared])
    dropped = {
        "only_in_a": sorted(left.keys() - right.keys() - apart),
        "only_in_b": sorted(right.keys() - left.keys() - apart),
        "no_reward": sorted(apart),
    }
    return [Pair(left[key], right[key], joined[left[key].cluster_id]) for key in shared], dropped


def _joined(edges: list[tuple[str, str]]) -> dict[str, str]:
    """Cluster of side a -> joint cluster: clusters only merge from day to day, so the coarsest reading is the safe one.

    Two evaluations of different days may name one cluster differently; whatever shares a label on either side is one.
    """
    parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(node: tuple[str, str]) -> tuple[str, str]:
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for left, right in edges:
        one, other = sorted((root(("a", left)), root(("b", right))))
        parent[other] = one
    return {left: root(("a", left))[1] for left, _ in edges}


def _entry(pairs: list[Pair], ks: Sequence[int], how: Resampling) -> dict[str, Any]:
    ours, theirs = [pair.a for pair in pairs], [pair.b for pair in pairs]
    clusters = [pair.cluster for pair in pairs]
    columns = {
        "success": _minus(success_column(theirs), success_column(ours)),
        "process_score": _minus(process_column(theirs), process_column(ours)),
        "conduct_score": _minus(mean_column(theirs, "conduct_score"), mean_column(ours, "conduct_score")),
        **{f"pass@{k}": _minus(pass_column(theirs, k), pass_column(ours, k)) for k in ks},
    }
    draws = draw(columns.values(), how, clusters)
    found = {
        name: score(draws, place, column, _WIDER.get(name, _DIFFERENCES))
        for place, (name, column) in enumerate(columns.items())
    }
    gains, sizes = _per_cluster(draws.totals, len(columns))
    once = all(pair.a.n == 1 and pair.b.n == 1 for pair in pairs)
    by_problem = {"test": "exact McNemar" if once else "sign test", **sign_test(pair.gain for pair in pairs)}
    entry = {
        "problems": len(pairs),
        "clusters": len(gains),
        "state": "thin" if len(gains) < how.thin_below else "ok",
        "a": math.fsum(one.share for one in ours) / len(pairs),
        "b": math.fsum(one.share for one in theirs) / len(pairs),
        "attempts_a": sum(one.n for one in ours),
        "attempts_b": sum(one.n for one in theirs),
        "difference": found["success"],
        "process_score": found["process_score"],
        "conduct_score": found["conduct_score"],
        "pass_at_k": {str(k): found[f"pass@{k}"] for k in ks},
        "tests": {
            "problems": by_problem,
            "clusters": {"test": "sign test", **sign_test(gains)},
            "mean_over_clusters": randomisation_test(gains, seed=how.seed, resamples=how.resamples),
        },
        "smallest_detectable": smallest_detectable(gains, sizes),
    }
    entry["verdict"] = _verdict(entry)
    return {**entry, "words": words(entry)}


def _minus(theirs: Column, ours: Column) -> Column:
    """The paired difference, where both say something."""
    both = [float(one > 0 and other > 0) for one, other in zip(theirs.bottoms, ours.bottoms, strict=True)]
    tops = [(one - other) * told for one, other, told in zip(theirs.tops, ours.tops, both, strict=True)]
    return Column(tops, both, shares=False)


def _per_cluster(totals: Floats, columns: int) -> tuple[list[float], list[float]]:
    """Summed difference of success (the first column) and number of problems per cluster.

    Sums that cancel out are 0, not the last bit of a fraction: the sign test asks for their sign.
    """
    sizes = [float(size) for size in totals[:, columns]]
    return [0.0 if abs(gain) < 1e-12 else float(gain) for gain in totals[:, 0]], sizes


def _verdict(entry: Mapping[str, Any]) -> str:
    """``better``, ``worse`` (b than a) or ``undecided``: only where interval and test over clusters agree."""
    interval, p_value = entry["difference"]["interval"], entry["tests"]["mean_over_clusters"]["p_value"]
    if interval is None or p_value >= _LEVEL or interval["low"] <= 0 <= interval["high"]:
        return "undecided"
    return "better" if interval["low"] > 0 else "worse"


def words(entry: Mapping[str, Any], *, a: str = "a", b: str = "b", marked: bool = True) -> list[str]:
    """What the numbers of an entry of ``compare`` say, for people; differences in percentage points.

    Args:
        a, b: what the sides are called.
        marked: an asterisk stands at the interval of the difference, so it is explained.
    """
    difference, limit = entry["difference"], entry["smallest_detectable"]
    p_value = entry["tests"]["mean_over_clusters"]["p_value"]
    said = [
        f"{b} minus {a}: {100 * difference['value']:+.1f} points on {entry['problems']} problems in "
        f"{entry['clusters']} clusters"
    ]
    interval = difference["interval"]
    if interval is None:
        return [*said, "fewer than two clusters: nothing can be said about other problems"]
    if entry["verdict"] == "undecided":
        said.append(f"undecided: no difference is shown (p = {p_value:.3g} over clusters)")
    else:
        said.append(f"{b} is {entry['verdict']}: the interval excludes no difference, p = {p_value:.3g} over clusters")
    sees = "sees" if limit["upper_bound"] else "can only see"
    said.append(
        f"this evaluation {sees} differences above {100 * limit['value']:.1f} points "
        f"({limit['power']:.0%} power at the 5 % level)"
    )
    if marked and interval["note"]:
        said.append(f"* {interval['note']}")
    if entry["state"] == "thin":
        said.append(f"thin: only {entry['clusters']} clusters, too few for a firm interval")
    return said
