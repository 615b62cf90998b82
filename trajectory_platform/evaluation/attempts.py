"""Rows of ``eval_scores`` as attempts per problem: checked, sorted, and complete against what was planned.

A score is only as honest as its denominator. One policy per evaluation, each attempt once, an outcome that agrees with
its verdict; and an attempt that was planned and left no row is a failure that is named (``missing``), not one problem
fewer. Problems without a known reward are set apart (design 3, "Pools"): they are neither successes nor failures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.tables import EVAL_SCORES

MISSING, NO_REWARD = "missing", "no_reward"
OUTCOMES = EVAL_SCORES.values["outcome"]
_KINDS = {name: kind for name, kind in EVAL_SCORES.columns.items() if name != "score"}  # an object in files
_LARGEST = 1e15  # of a number in a row: sums of many stay exact enough, and finite
_RANGES = {"format": (0, 1), "length": (0, 1), "conduct_score": (0, 1), "process_score": (-1, 1)}

Row = Mapping[str, Any]


class Planned(NamedTuple):
    """What was to be attempted at one problem: samples 0 to ``samples - 1``."""

    samples: int
    category: str
    cluster_id: str


class Attempted(NamedTuple):
    """One problem with all its attempts.

    Attributes:
        rows: recorded attempts by sample.
        missing: samples that were planned and left no row.
        n, c: attempts (missing ones included) and successes among them.
    """

    problem_key: str
    category: str
    cluster_id: str
    rows: tuple[Row, ...]
    missing: tuple[int, ...]
    n: int
    c: int

    @property
    def share(self) -> float:
        """Successful attempts over all attempts: the problem's pass@1."""
        return self.c / self.n


class Evaluation(NamedTuple):
    """Everything one policy did.

    Attributes:
        checkpoint_id: None where there is no row at all.
        problems: problems with a known reward, by key.
        no_reward: the others.
        pools: recorded rows per pool.
    """

    checkpoint_id: str | None
    problems: list[Attempted]
    no_reward: list[Attempted]
    pools: dict[str, int]


def gather(rows: Iterable[Row] | None, planned: Mapping[str, Planned] | None = None) -> Evaluation:
    """Check the rows of one evaluation and group them by problem.

    Args:
        rows: columns of ``eval_scores``, any order. None is an error: an evaluation set is never made up (case C14).
        planned: ``problem_key`` -> what was to be attempted; without it only recorded attempts count.

    Raises:
        FailPartition: several checkpoints; an attempt twice; an attempt that was not planned; an outcome that
            contradicts ``success``; a problem in two categories or clusters, or with and without a reward; a value of
            another type than its column's, or a number out of range.
    """
    if rows is None:
        raise FailPartition("eval_set_missing: pass the scores of an evaluation; none is ever made up")
    listed = list(rows)
    for row in listed:
        _check(row)
    ordered = sorted(listed, key=lambda row: (row["problem_key"], row["sample"]))
    names = sorted({row["checkpoint_id"] for row in ordered})
    if len(names) > 1:
        raise FailPartition(f"several_checkpoints: one evaluation holds rows of {', '.join(names[:3])}")
    grouped: dict[str, list[Row]] = {}
    for row in ordered:
        grouped.setdefault(row["problem_key"], []).append(row)
    if planned is not None:
        for key in sorted(grouped.keys() - planned.keys()):
            raise FailPartition(f"attempt_not_planned: problem {key} was attempted and is not in the plan")
    problems, apart = [], []
    for key in sorted(grouped.keys() | (planned or {}).keys()):
        found = _attempted(key, grouped.get(key, []), None if planned is None else planned[key])
        if found.rows and found.rows[0]["outcome"] == NO_REWARD:
            apart.append(found._replace(missing=(), n=len(found.rows)))
        elif found.n:
            problems.append(found)
    pools = Counter(str(row["pool"]) for row in ordered)
    return Evaluation(names[0] if names else None, problems, apart, dict(sorted(pools.items())))


def outcome_counts(problems: Iterable[Attempted]) -> dict[str, int]:
    """Attempts per outcome, ``missing`` among them, sorted by name."""
    counts: Counter[str] = Counter()
    for problem in problems:
        counts.update(row["outcome"] for row in problem.rows)
        if problem.missing:
            counts[MISSING] += len(problem.missing)
    return dict(sorted(counts.items()))


def _attempted(key: str, rows: list[Row], planned: Planned | None) -> Attempted:
    previous = None
    for row in rows:
        if previous is not None and row["sample"] == previous["sample"]:
            raise FailPartition(f"attempt_twice: sample {row['sample']} of problem {key} has several rows")
        if previous is not None and (row["outcome"] == NO_REWARD) != (previous["outcome"] == NO_REWARD):
            raise FailPartition(f"reward_contradiction: problem {key} has attempts with and without a known reward")
        previous = row
    places = {(str(row["category"]), str(row["cluster_id"])) for row in rows}
    if planned is not None:
        places.add((planned.category, planned.cluster_id))
    if len(places) != 1:
        raise FailPartition(f"problem_in_two_places: {key} has (category, cluster) {sorted(places)[:3]}")
    missing: tuple[int, ...] = ()
    if planned is not None:
        done = {row["sample"] for row in rows}
        beyond = sorted(done - set(range(planned.samples)))
        if beyond:
            raise FailPartition(f"attempt_not_planned: sample {beyond[0]} of problem {key}, {planned.samples} planned")
        missing = tuple(sample for sample in range(planned.samples) if sample not in done)
    category, cluster = next(iter(places))
    successes = sum(row["success"] is True for row in rows)
    return Attempted(key, category, cluster, tuple(rows), missing, len(rows) + len(missing), successes)


def _check(row: Row) -> None:
    where = f"problem {row['problem_key']} sample {row['sample']}"
    outcome, success = row["outcome"], row["success"]
    if outcome not in OUTCOMES:
        raise FailPartition(f"unknown_outcome: {outcome!r} of {where}")
    expected = None if outcome == NO_REWARD else outcome == "success"
    if success is not expected:
        raise FailPartition(f"outcome_contradiction: {where} has outcome {outcome} and success {success}")
    for name, kind in _KINDS.items():
        value = row[name]
        if not _is_of(kind, value):
            raise FailPartition(f"wrong_type: {name} of {where} is no {kind.rstrip('?')}")
        least, largest = _RANGES.get(name, (0, _LARGEST))
        if isinstance(value, int | float) and not least <= value <= largest:  # NaN is refused too
            raise FailPartition(f"number_out_of_range: {name} of {where} is not from {least} to {largest:g}")
    if row["process_score"] is not None and row["process_reference"] is None:
        raise FailPartition(f"process_score_without_reference: {where} does not say what it was measured against")


def _is_of(kind: str, value: Any) -> bool:
    """Whether a value fits a column: JSON files come from anywhere. A bool is no number (domain 6, item 24)."""
    if value is None:
        return kind.endswith("?") or kind == "texts"
    match kind.rstrip("?"):
        case "text":
            return isinstance(value, str)
        case "texts":
            return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        case "bool":
            return isinstance(value, bool)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)
