"""Which problems a policy is measured on: a pool, one problem of each leak cluster first, never a trained one.

Everything here is a pure function of the published clusters and problems and of a seed: two policies that are measured
as of one day get the same problems, and a larger plan contains the smaller one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.evaluation.guard import assert_no_overlap
from trajectory_platform.identity import digest_lines, sha256_hex

if TYPE_CHECKING:
    from trajectory_platform.sandbox.problems import Problem


class EvalProblem(NamedTuple):
    """A problem with its place in the splits.

    Attributes:
        problem: with query and reward; for ``no_reward`` ones at least one of them is missing.
        pool: train, dev or sealed; ``cluster_id``: its leak cluster, over which intervals are drawn.
    """

    problem: Problem
    cluster_id: str
    pool: str


class Selection(NamedTuple):
    """What is attempted and what cannot be.

    Attributes:
        chosen: in the order of the draw.
        no_reward: problems of the pool without a usable reward or query, by key: counted, never failures (design 3).
        available: problems of the pool that could have been drawn.
        contaminated: problems of the pool that were left out, because the policy has seen them or a variant.
    """

    chosen: list[EvalProblem]
    no_reward: list[EvalProblem]
    available: int
    contaminated: int = 0


def lake_problems(
    clusters: Iterable[Mapping[str, Any]], suites: Iterable[Mapping[str, Any]], *, pool: str
) -> list[EvalProblem]:
    """The problems of a pool as of a day, sorted by key.

    Args:
        clusters: ``leak_clusters`` rows of the day (problem_key, problem_ids, suite_ids, category, cluster_id, pool).
        suites: ``problem_suites`` rows of the days up to it. Of several rows of one key a public one counts, then the
            newest, then the first by suite and id.
    """
    from dataclasses import replace

    from trajectory_platform.sandbox.problems import from_row, hidden_problem

    best: dict[str, Mapping[str, Any]] = {}
    for row in sorted(suites, key=lambda row: (row["suite_id"] or "", row["problem_id"])):
        held = best.get(row["problem_key"])
        if held is None or _weight(row) > _weight(held):
            best[row["problem_key"]] = row
    found = []
    for cluster in sorted(clusters, key=lambda row: str(row["problem_key"])):
        if cluster["pool"] != pool:
            continue
        key = cluster["problem_key"]
        if key in best:
            problem = from_row(best[key])
        else:  # known from traces only
            suite = min(cluster["suite_ids"], default=None)
            name = min(cluster["problem_ids"], default=f"key-{key[:40]}")
            problem = replace(hidden_problem(name, suite_id=suite, category=cluster["category"]), problem_key=key)
        found.append(EvalProblem(problem, cluster["cluster_id"], pool))
    return _named_apart(found)


def _named_apart(problems: list[EvalProblem]) -> list[EvalProblem]:
    """Different problems under one id (of two suites) get ``#n`` after it: a trace is named by the problem's id."""
    from dataclasses import replace

    seen: dict[str, int] = {}
    apart = []
    for one in problems:
        number = seen[one.problem.problem_id] = seen.get(one.problem.problem_id, 0) + 1
        if number > 1:
            one = one._replace(problem=replace(one.problem, problem_id=f"{one.problem.problem_id}#{number}"))
        apart.append(one)
    return apart


def _weight(row: Mapping[str, Any]) -> tuple[bool, str]:
    return row["reward_state"] == "public" and bool(row["query"]), str(row["day"])


def select(problems: Sequence[EvalProblem], *, limit: int | None, seed: int) -> Selection:
    """Up to ``limit`` problems with query and reward: one of every cluster, then a second one, and so on.

    The order is that of a hash keyed by the seed, so it depends on nothing but the problems themselves.
    """
    able = [one for one in problems if one.problem.reward is not None and one.problem.query]
    lacking = [one for one in problems if one.problem.reward is None or not one.problem.query]
    members: dict[str, list[EvalProblem]] = {}
    for one in sorted(able, key=lambda one: _draw(seed, one.problem.problem_key)):
        members.setdefault(one.cluster_id, []).append(one)
    rounds = [
        (place, _draw(seed, cluster), one) for cluster, group in members.items() for place, one in enumerate(group)
    ]
    rounds.sort(key=lambda entry: entry[:2])
    lacking.sort(key=lambda one: one.problem.problem_key)
    return Selection([one for _, _, one in rounds][:limit], lacking, len(able))


def assert_unseen(
    chosen: Sequence[EvalProblem],
    trained: Iterable[Mapping[str, Any]],
    clusters: Iterable[Mapping[str, Any]] = (),
) -> None:
    """No problem to be attempted, and no variant of one, is among what the checkpoint was trained on.

    Args:
        trained: ``checkpoint_traces`` rows (trace_id, problem_key, cluster_id).
        clusters: present ``leak_clusters`` rows; a trained problem may have joined a held-out cluster since.

    Raises:
        FailPartition: names a row of either side and what they share (case C14).
    """
    present = {row["problem_key"]: row["cluster_id"] for row in clusters}
    rows = list(trained)
    now = [{**row, "cluster_id": present.get(row["problem_key"], row["cluster_id"])} for row in rows]
    held_out = [
        {
            "trace_id": f"problem {one.problem.problem_id}",
            "problem_key": one.problem.problem_key,
            "cluster_id": one.cluster_id,
        }
        for one in chosen
    ]
    assert_no_overlap(rows, held_out)
    assert_no_overlap(now, held_out)


def selection_digest(chosen: Sequence[EvalProblem]) -> str:
    """Digest of what the policy is shown and scored by: keys, queries, rewards and vouchers, in key order."""
    from trajectory_platform.jsontext import canonical

    return digest_lines(
        canonical([one.problem.problem_key, one.problem.query, one.problem.reward_raw, one.problem.voucher])
        for one in sorted(chosen, key=lambda one: one.problem.problem_key)
    )


def _draw(seed: int, name: str) -> str:
    return sha256_hex(f"rollout:{seed}:{name}".encode())
