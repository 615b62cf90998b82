"""Production-strict task metrics over ``eval_scores``: what the sandbox attempts of one policy are worth.

Strict: the denominator is every evaluable problem. A crash, a timeout, an attempt that cannot be scored and a planned
attempt that left no row are failures; only problems without a known reward are set apart, and counted. Beside every
score stand its interval over leak clusters, the clusters it rests on and the share of attempts a limit cut.

Which average is which (``AVERAGES`` in the result): ``success_rate`` is the mean over *problems*, each counting once
with the share of its attempts that succeeded. That is pass@1, the subnet's ``success_rate`` over total problems
(domain 2.4) and the ASR of the papers (domain 5). ``macro`` is the mean over *categories*; the two are equal where
all categories hold equally many problems.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.evaluation.attempts import Attempted, Planned, Row, gather, outcome_counts
from trajectory_platform.evaluation.intervals import (
    UNSEEN,
    average_interval,
    cluster_totals,
    percentile_interval,
    percentiles,
    resampled_totals,
    wilson,
)
from trajectory_platform.evaluation.pass_at_k import pass_at_k
from trajectory_platform.evaluation.usage import usage

if TYPE_CHECKING:
    from trajectory_platform.evaluation.intervals import Floats

VERSION = "task-metrics-2"
KS = (1, 2, 4, 8)
THIN_BELOW = 20
NO_PROBLEMS = "no_evaluable_problems"
AVERAGES = {
    "success_rate": "mean over problems of the share of successful attempts (the papers' ASR; equals pass@1)",
    "macro": "mean over categories of their success_rate",
}
_MEANS = ("format", "length", "conduct_score")
_UNIT = (0.0, 1.0)
_BOUNDS = {"process_score": (-1.0, 1.0)}  # of the columns that are no shares
_MAX_CATEGORIES = 64  # there are four; a broken source must not ask for a column each


class Resampling(NamedTuple):
    """How intervals are drawn: seed and number of resamples; below ``thin_below`` clusters a score is ``thin``."""

    seed: int
    resamples: int
    thin_below: int = THIN_BELOW


class Column(NamedTuple):
    """One score as sums per problem: its value is ``sum(tops) / sum(bottoms)``.

    ``shares`` says that tops count hits among bottoms, so that Wilson's interval has a meaning.
    """

    tops: Sequence[float]
    bottoms: Sequence[float]
    shares: bool = True


class Draws(NamedTuple):
    """Columns summed per cluster (c, 2 m) and per resample (r, 2 m): tops first, then bottoms."""

    totals: Floats
    drawn: Floats


def task_metrics(
    rows: Iterable[Row] | None,
    *,
    ks: Sequence[int] = KS,
    seed: int,
    resamples: int,
    planned: Mapping[str, Planned] | None = None,
    thin_below: int = THIN_BELOW,
) -> dict[str, Any]:
    """Metrics of one evaluation, overall and per category; independent of the order of rows.

    Args:
        rows: columns of ``eval_scores``, all of one checkpoint; see ``attempts.gather`` for what is refused.
        planned: problem_key -> what was to be attempted; absent attempts count as failures, and are named.

    Returns:
        ``{version, state, checkpoint_id, averages, settings, pools, no_reward, missing, overall, categories, macro}``.
        ``state`` is that of ``overall``: ``ok``, ``thin``, or ``no_evaluable_problems`` (then without scores).
        ``categories`` maps a category to what ``overall`` holds for all. Only JSON types.

    Raises:
        FailPartition: rows that contradict one another (``attempts.gather``).
    """
    found = gather(rows, planned)
    resampling = Resampling(seed, resamples, thin_below)
    by_category: dict[str, list[Attempted]] = {}
    for problem in found.problems:
        by_category.setdefault(problem.category, []).append(problem)
    categories = {name: _entry(by_category[name], ks, resampling)[0] for name in sorted(by_category)}
    overall, draws = _entry(found.problems, ks, resampling, _category_columns(found.problems, categories))
    missing = [{"problem_key": one.problem_key, "samples": list(one.missing)} for one in found.problems if one.missing]
    return {
        "version": VERSION,
        "state": overall["state"],
        "checkpoint_id": found.checkpoint_id,
        "averages": AVERAGES,
        "settings": {"ks": list(ks), **resampling._asdict()},
        "pools": found.pools,
        "no_reward": {"problems": len(found.no_reward), "attempts": sum(one.n for one in found.no_reward)},
        "missing": {"attempts": sum(len(one.missing) for one in found.problems), "named": missing},
        "overall": overall,
        "categories": categories,
        "macro": {**_macro(categories, draws), "clusters": overall["clusters"]},
    }


def draw(columns: Iterable[Column], how: Resampling, clusters: Sequence[str]) -> Draws:
    """Sum columns over clusters and over clusters drawn with replacement.

    Args:
        clusters: cluster of each problem.
    """
    import numpy

    listed = list(columns)
    values = [column.tops for column in listed] + [column.bottoms for column in listed]
    matrix = numpy.array(values, dtype=numpy.float64).reshape(len(values), len(clusters)).T
    _, totals = cluster_totals(clusters, matrix)
    return Draws(totals, resampled_totals(totals, seed=how.seed, resamples=how.resamples))


def score(draws: Draws, position: int, column: Column, bounds: tuple[float, float] = _UNIT) -> dict[str, Any]:
    """``{value, interval, wilson, n, clusters}`` of one column; n counts problems or attempts."""
    columns = draws.totals.shape[1] // 2
    tops, bottoms = draws.totals[:, position], draws.totals[:, columns + position]
    n = math.fsum(column.bottoms)
    if not n:
        return {"value": None, "interval": None, "wilson": None, "n": 0, "clusters": 0}
    return {
        "value": math.fsum(column.tops) / n,
        "interval": percentile_interval(
            tops, bottoms, draws.drawn[:, position], draws.drawn[:, columns + position], bounds
        ),
        "wilson": wilson(math.fsum(column.tops), round(n)) if column.shares else None,
        "n": round(n),
        "clusters": int((bottoms > 0).sum()),
    }


def pass_column(problems: Sequence[Attempted], k: int) -> Column:
    """pass@k per problem; problems with fewer than k attempts say nothing."""
    values = [pass_at_k(problem.n, problem.c, k) for problem in problems]
    return Column([value or 0.0 for value in values], [float(value is not None) for value in values], shares=False)


def mean_column(problems: Sequence[Attempted], name: str) -> Column:
    """Mean of a score over the attempts of each problem, an attempt without a value counting as 0 (domain 2.4)."""
    sums = [math.fsum(row[name] or 0.0 for row in problem.rows) / problem.n for problem in problems]
    return Column(sums, [1.0] * len(problems), shares=False)


def process_column(problems: Sequence[Attempted]) -> Column:
    """Mean process score per problem, an attempt without a trace counting as 0; problems without a reference say
    nothing (``evaluation.turn_rewards``)."""
    known = [any(row["process_reference"] is not None for row in problem.rows) for problem in problems]
    sums = [math.fsum(row["process_score"] or 0.0 for row in problem.rows) / problem.n for problem in problems]
    return Column([value * told for value, told in zip(sums, known, strict=True)], [float(x) for x in known], False)


def success_column(problems: Sequence[Attempted]) -> Column:
    """Share of successful attempts per problem."""
    return Column([problem.share for problem in problems], [1.0] * len(problems))


def _entry(
    problems: list[Attempted], ks: Sequence[int], how: Resampling, more: Sequence[Column] = ()
) -> tuple[dict[str, Any], Draws | None]:
    """All scores of some problems, and the draws of the columns in ``more``, which share the resamples."""
    counts = {
        "problems": len(problems),
        "attempts": sum(problem.n for problem in problems),
        "recorded": sum(len(problem.rows) for problem in problems),
        "clusters": len({problem.cluster_id for problem in problems}),
    }
    if not problems:
        return {"state": NO_PROBLEMS, **counts}, None
    columns = _columns(problems, ks)
    draws = draw([*columns.values(), *more], how, [problem.cluster_id for problem in problems])
    scores = {
        name: score(draws, place, column, _BOUNDS.get(name, _UNIT))
        for place, (name, column) in enumerate(columns.items())
    }
    rows = [row for problem in problems for row in problem.rows]
    entry = {
        "state": "thin" if counts["clusters"] < how.thin_below else "ok",
        **counts,
        "success_rate": scores["success_rate"],
        "truncated": scores["truncated"],
        "lenient_success_rate": {**scores["lenient_success_rate"], "unknown": _lenient_unknown(rows)},
        "pass_at_k": {
            str(k): {**scores[f"pass@{k}"], "short_problems": len(problems) - scores[f"pass@{k}"]["n"]} for k in ks
        },
        "solved_problems": sum(problem.c > 0 for problem in problems),
        "successful_attempts": sum(problem.c for problem in problems),
        "outcomes": outcome_counts(problems),
        "endings": dict(sorted(Counter(str(row["ending"]) for row in rows).items())),
        "reasons": dict(sorted(Counter(str(row["reason"]) for row in rows if row["reason"] is not None).items())),
        "hallucinated": {**scores["hallucinated"], **_id_counts(rows, "hallucinated_ids")},
        "unviewed": {**scores["unviewed"], **_id_counts(rows, "unviewed_ids")},
        "discipline": {"clean": scores["clean"], "violations": _violations(rows)},
        **{name: {**scores[name], "scored_attempts": _known(rows, name)} for name in (*_MEANS, "process_score")},
        "usage": usage(problems),
    }
    return entry, draws


def _columns(problems: list[Attempted], ks: Sequence[int]) -> dict[str, Column]:
    """Every score that gets an interval, by name. Shares of attempts look at those that left a trace."""
    traced = [[row for row in problem.rows if row["trace_id"] is not None] for problem in problems]

    def of_traced(name: str, wanted: bool) -> Column:
        hits = [float(sum(bool(row[name]) is wanted for row in rows)) for rows in traced]
        return Column(hits, [float(len(rows)) for rows in traced])

    lenient = [sum(row["lenient_success"] is True for row in problem.rows) / problem.n for problem in problems]
    cut = [float(sum(bool(row["truncated"]) for row in problem.rows)) for problem in problems]
    return {
        "success_rate": success_column(problems),
        "lenient_success_rate": Column(lenient, [1.0] * len(problems)),
        "truncated": Column(cut, [float(len(problem.rows)) for problem in problems]),
        **{f"pass@{k}": pass_column(problems, k) for k in ks},
        "hallucinated": of_traced("hallucinated_ids", True),
        "unviewed": of_traced("unviewed_ids", True),
        "clean": of_traced("discipline", False),
        **{name: mean_column(problems, name) for name in _MEANS},
        "process_score": process_column(problems),
    }


def _lenient_unknown(rows: list[Row]) -> int:
    """Decided attempts without a lenient verdict; the lenient rate counts them as failures."""
    return sum(row["lenient_success"] is None and row["outcome"] in ("success", "failure") for row in rows)


def _id_counts(rows: list[Row], column: str) -> dict[str, Any]:
    """How many attempts recommended such ids, and how many ids they were together."""
    attempts = sum(bool(row[column]) for row in rows)
    return {"attempts": attempts, "ids": sum(len(row[column] or ()) for row in rows)}


def _violations(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """Attempts per protocol violation and their share of the attempts that left a trace."""
    traced = [row for row in rows if row["trace_id"] is not None]
    counts = Counter(str(name) for row in traced for name in set(row["discipline"] or ()))
    return {name: {"attempts": counts[name], "share": counts[name] / len(traced)} for name in sorted(counts)}


def _known(rows: list[Row], column: str) -> int:
    return sum(row[column] is not None for row in rows)


def _category_columns(problems: list[Attempted], categories: Mapping[str, Mapping[str, Any]]) -> list[Column]:
    """Success per category over all problems, as clusters span categories; none where the macro mean has no interval.

    That is where a category has one cluster only, which says nothing about others like it.
    """
    if len(categories) > _MAX_CATEGORIES or any(entry["clusters"] < 2 for entry in categories.values()):
        return []
    columns = []
    for name in categories:
        inside = [float(problem.category == name) for problem in problems]
        columns.append(Column([mark * problem.share for mark, problem in zip(inside, problems, strict=True)], inside))
    return columns


def _macro(categories: Mapping[str, Mapping[str, Any]], draws: Draws | None) -> dict[str, Any]:
    """Mean of the categories' success rates, from the last columns of the overall draws (``_category_columns``)."""
    rates = [entry["success_rate"] for entry in categories.values()]
    if not rates or draws is None:
        return {"value": None, "interval": None, "categories": 0}
    value = math.fsum(rate["value"] for rate in rates) / len(rates)
    result = {"value": value, "interval": None, "categories": len(rates)}
    intervals = [rate["interval"] for rate in rates]
    if len(rates) > _MAX_CATEGORIES or any(interval is None for interval in intervals):
        return result
    if all(interval["method"] == UNSEEN for interval in intervals):
        return {**result, "interval": average_interval(intervals)}
    size = draws.drawn.shape[1] // 2
    tops, bottoms = draws.drawn[:, size - len(rates) : size], draws.drawn[:, -len(rates) :]
    full: Any = (bottoms > 0).all(axis=1)  # every category occurs
    if int(full.sum()) * 2 < full.size:
        return result
    return {**result, "interval": percentiles((tops[full] / bottoms[full]).mean(axis=1), value, _UNIT)}
