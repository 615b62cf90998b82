"""The miniature's table: what every stage is worth on held-out problems, beside a policy that only guesses a row.

Greedy attempts and attempts at temperature 1 are evaluations of their own and are never mixed. Everything here is a
plain function of ``eval_scores`` rows; whole leak clusters are drawn for intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from trajectory_platform.evaluation.comparison import compare
from trajectory_platform.evaluation.metrics import Column, Resampling, draw, score, task_metrics
from trajectory_platform.miniature.miners import PLAIN, SCAN
from trajectory_platform.miniature.rates import PASS_K, RowShares, guessing_rates

VERSION = "miniature-results-1"  # raise it when the same rows would give another table
GREEDY, SAMPLED = "greedy", "temperature 1"
ENDS = 5  # steps of Dr. GRPO at either end that are averaged
WORDS = {"better": "helps", "worse": "hurts", "undecided": "no difference shown"}
BASE = "base"

Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]


class How(NamedTuple):
    """How intervals are drawn."""

    seed: int
    resamples: int = 1000


class StageScores(NamedTuple):
    """The attempts of one stage.

    Attributes:
        state: ``ok``, or why nothing was attempted.
        greedy, sampled: ``eval_scores`` rows; ``sampled`` holds several attempts at each of fewer problems.
        styles: trace id of an attempt -> ``scan`` or ``plain``.
    """

    stage: str
    checkpoint_id: str
    state: str
    greedy: Rows
    sampled: Rows
    styles: Mapping[str, str]


class Guesses(NamedTuple):
    """The policy that makes a perfect call and recommends a random row.

    Attributes:
        shares: problem key -> what the strict scorer says of every row of the perfect call.
        script: ``eval_scores`` rows of attempts of that policy, for what cannot be worked out (the process score).
        good: the same of the good miner, which compares the rows.
    """

    shares: Mapping[str, RowShares]
    script: Rows
    good: Rows


def scored(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of problems with a known reward."""
    return [row for row in rows if row["outcome"] != "no_reward"]


def stage_results(stages: Sequence[StageScores], guesses: Guesses, how: How) -> list[Row]:
    """One entry per stage in their order: its own figures, those over guessing, and those over the stage before.

    Each holds ``stage, checkpoint_id, state``; where something was attempted also ``greedy`` and ``sampled`` (see
    ``measured``), ``over_random`` (paired with the exact rate of every problem), ``styles`` (per decoding and style the
    attempts and their success) and ``against`` (None for the first): the stage before, with the paired difference per
    decoding, its verdict and the smallest difference that could be seen.
    """
    found: list[Row] = []
    before: StageScores | None = None
    for one in stages:
        row: Row = {"stage": one.stage, "checkpoint_id": one.checkpoint_id, "state": one.state}
        if one.greedy:
            row |= {
                "greedy": measured(one.greedy, how, ks=(1,)),
                "sampled": measured(one.sampled, how, ks=(1, PASS_K)) if one.sampled else None,
                "over_random": over_random(one.greedy, guesses.shares, how),
                "styles": {GREEDY: told_apart(one.greedy, one.styles), SAMPLED: told_apart(one.sampled, one.styles)},
                "against": None if before is None else _against(before, one, how),
            }
            before = one
        found.append(row)
    return found


def measured(rows: Rows, how: How, *, ks: Sequence[int]) -> Row:
    """Success, pass@k, process score and hallucinated ids of one evaluation, each {value, low, high}."""
    overall = task_metrics(rows, ks=tuple(ks), seed=how.seed, resamples=how.resamples)["overall"]
    return {
        "success": interval_of(overall["success_rate"]),
        "pass_at": {str(k): interval_of(overall["pass_at_k"][str(k)]) for k in ks},
        "process": interval_of(overall["process_score"]),
        "hallucinated": interval_of(overall["hallucinated"]),
        "truncated": overall["truncated"]["value"],
        **{name: overall[name] for name in ("problems", "attempts", "clusters")},
    }


def over_random(rows: Rows, shares: Mapping[str, RowShares], how: How) -> Row:
    """Success minus the expected success of a random row, problem by problem."""
    kept = [row for row in scored(rows) if row["problem_key"] in shares]
    gains = [float(bool(row["success"])) - shares[row["problem_key"]].random for row in kept]
    column = Column(gains, [1.0] * len(gains), shares=False)
    if not gains:
        return {"value": None, "low": None, "high": None}
    draws = draw([column], Resampling(how.seed, how.resamples), [row["cluster_id"] for row in kept])
    return interval_of(score(draws, 0, column, (-1.0, 1.0)))


def told_apart(rows: Rows, styles: Mapping[str, str]) -> Row:
    """Attempts and success per style of thought; an attempt that left no trace has none."""
    apart: Row = {}
    for style in (SCAN, PLAIN):
        own = [row for row in scored(rows) if row["trace_id"] and styles.get(row["trace_id"]) == style]
        hits = sum(bool(row["success"]) for row in own)
        apart[style] = {"attempts": len(own), "success": hits / len(own) if own else None}
    return apart


def _against(before: StageScores, after: StageScores, how: How) -> Row:
    pairs = ((GREEDY, before.greedy, after.greedy), (SAMPLED, before.sampled, after.sampled))
    return {"stage": before.stage, **{name: paired(a, b, how) for name, a, b in pairs if a and b}}


def paired(before: Rows, after: Rows, how: How) -> Row:
    """The paired difference in success and pass@k with its verdict in the words of the table."""
    overall = compare(scored(before), scored(after), ks=(1, PASS_K), seed=how.seed, resamples=how.resamples)["overall"]
    return {
        "difference": interval_of(overall["difference"]),
        f"pass@{PASS_K}": interval_of(overall["pass_at_k"][str(PASS_K)]),
        "shown": WORDS[overall["verdict"]],
        "p_value": overall["tests"]["mean_over_clusters"]["p_value"],
        "detectable": overall["smallest_detectable"]["value"],
        "problems": overall["problems"],
        "clusters": overall["clusters"],
    }


def guess_figures(guesses: Guesses, greedy: Rows, sampled: Rows, how: How, *, group: int | None) -> Row:
    """What guessing a row is worth on the problems of either decoding.

    Args:
        group: attempts at one problem that Dr. GRPO compares; None without that stage.

    Returns:
        ``greedy`` and ``sampled`` success and ``pass_at`` (exact, over the problems of the rows), ``first_row``,
        ``process`` and the good miner's, ``same_outcome`` (expected share of groups whose attempts all end alike).
    """
    on_greedy, on_sampled = ([guesses.shares[key] for key in _keys(rows, guesses)] for rows in (greedy, sampled))
    one, many = (
        guessing_rates(shares, seed=how.seed, resamples=how.resamples) if shares else {}
        for shares in (on_greedy, on_sampled)
    )
    return {
        "greedy": _rate(one, "random_row"),
        "first_row": _rate(one, "first_row"),
        "sampled": _rate(many, "random_row"),
        "pass_at": {"1": _rate(many, "random_row"), str(PASS_K): _rate(many, f"random_row_pass@{PASS_K}")},
        "process": measured(guesses.script, how, ks=(1,))["process"] if guesses.script else None,
        "good_process": measured(guesses.good, how, ks=(1,))["process"] if guesses.good else None,
        "good_success": measured(guesses.good, how, ks=(1,))["success"] if guesses.good else None,
        "hallucinated": 0.0,
        "same_outcome": None if group is None or not on_greedy else _same_outcome(on_greedy, group),
    }


def _keys(rows: Rows, guesses: Guesses) -> list[str]:
    return sorted({row["problem_key"] for row in scored(rows)} & guesses.shares.keys())


def _same_outcome(shares: Sequence[RowShares], group: int) -> float:
    alike = [one.random**group + (1 - one.random) ** group for one in shares]
    return sum(alike) / len(alike)


def groups_of(history: Sequence[Mapping[str, Any]]) -> Row | None:
    """What the groups of Dr. GRPO did in its first and last ``ENDS`` steps; None without a step.

    ``zero_variance``: share of groups whose attempts all got the same advantage, so that nothing is learned from them;
    ``same_outcome``: all succeeded or all failed.
    """
    steps = [entry for entry in history if entry.get("zero_variance") is not None]
    if not steps:
        return None
    names = ("zero_variance", "same_outcome", "success", "hallucinated", "process", "sampled_entropy")

    def mean(part: Sequence[Mapping[str, Any]]) -> Row:
        known = {name: [float(entry[name]) for entry in part if entry.get(name) is not None] for name in names}
        return {name: sum(values) / len(values) if values else None for name, values in known.items()}

    return {"steps": int(steps[-1]["step"]), "first": mean(steps[:ENDS]), "last": mean(steps[-ENDS:])}


def _rate(rates: Mapping[str, Any], name: str) -> Row | None:
    if name not in rates:
        return None
    rate = rates[name]
    interval = rate.interval or {}
    return {"value": rate.value, "low": interval.get("low"), "high": interval.get("high")}


def interval_of(found: Mapping[str, Any]) -> Row:
    """{value, low, high} of a score of the metrics."""
    interval = found.get("interval") or {}
    return {"value": found["value"], "low": interval.get("low"), "high": interval.get("high")}
