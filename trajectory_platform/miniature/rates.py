"""What guessing is worth on the very problems of an evaluation: the figure beside every score of the miniature.

A policy that makes the perfect call and recommends a random row succeeds, per problem, with the share of the rows that
the strict scorer accepts. That share is worked out from every row, not drawn; its interval is drawn over leak clusters
like that of every score (``evaluation.intervals``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any, NamedTuple

from trajectory_platform.evaluation.environment import Limits, SimulatedClock, Task
from trajectory_platform.evaluation.eval_problems import EvalProblem
from trajectory_platform.evaluation.eval_rows import Measured, Rules, score_rows
from trajectory_platform.evaluation.policy_scripted import Script, ScriptedPolicy
from trajectory_platform.evaluation.rollout import run_episode
from trajectory_platform.evaluation.rollout_rows import rollout_row
from trajectory_platform.evaluation.turn_rewards import Reference
from trajectory_platform.identity import digest_json
from trajectory_platform.judging.outcome import Scorer
from trajectory_platform.miniature import miners
from trajectory_platform.miniature.world import perfect_call, read_query
from trajectory_platform.sandbox.problems import Problem
from trajectory_platform.sandbox.tools import World, call_tool

VERSION = "miniature-rates-1"  # raise it when the same problems would give other rates
RESAMPLES = 1000
PASS_K = 8


class Rate(NamedTuple):
    """A rate over problems with its 95 % interval over leak clusters; ``interval`` is None below two clusters."""

    value: float
    interval: dict[str, Any] | None
    problems: int
    clusters: int


class RowShares(NamedTuple):
    """What the strict scorer says of every row the perfect call of a problem shows, in the order of the rows."""

    cluster_id: str
    right: tuple[bool, ...]

    @property
    def random(self) -> float:
        """Expected success of a random row; 0 where there is no row."""
        return sum(self.right) / len(self.right) if self.right else 0.0

    def pass_at(self, k: int) -> float:
        """Chance that one of ``k`` independent random rows is right."""
        return 1.0 - (1.0 - self.random) ** k


def row_shares(problems: Sequence[EvalProblem], world: World, scorer: Scorer) -> list[RowShares]:
    """Every row of every problem's perfect call, recommended in turn and scored strictly.

    A problem whose query names no object or no price range, or whose call shows nothing, has no rows.
    """
    return [RowShares(one.cluster_id, tuple(_scored(one.problem, world, scorer))) for one in problems]


def _scored(problem: Problem, world: World, scorer: Scorer) -> list[bool]:
    request = read_query(problem.query or "")
    if request is None:
        return []
    name, arguments = perfect_call(request)
    rows = miners.rows_of([call_tool(world, name, arguments)])
    return [_succeeds(str(row["product_id"]), problem, scorer) for row in rows]


def _succeeds(product_id: str, problem: Problem, scorer: Scorer) -> bool:
    calls = [{"name": "recommend_product", "parameters": {"product_ids": product_id}, "result": ""}]
    message = {"think": "-", "tool_call": calls}
    step = {"completion": {"message": message}, "extra_info": {"timestamp": 1, "query": problem.query}}
    return bool(scorer.score([step], problem).success)


def guessing_rates(shares: Sequence[RowShares], *, seed: int, resamples: int = RESAMPLES) -> dict[str, Rate]:
    """Rates of the policies that make the perfect call and guess: ``random_row`` with its pass@k, ``first_row``,
    ``last_row``."""
    values = {
        "random_row": [one.random for one in shares],
        f"random_row_pass@{PASS_K}": [one.pass_at(PASS_K) for one in shares],
        "first_row": [float(one.right[:1] == (True,)) for one in shares],
        "last_row": [float(one.right[-1:] == (True,)) for one in shares],
    }
    clusters = [one.cluster_id for one in shares]
    return {name: _rate(clusters, column, seed=seed, resamples=resamples) for name, column in values.items()}


def script_scores(
    script: Script,
    problems: Sequence[EvalProblem],
    world: World,
    *,
    measured: Measured,
    samples: int = 1,
    rules: Rules = Rules(),  # noqa: B008  (an immutable tuple)
    references: Mapping[str, Reference] | None = None,
) -> list[dict[str, Any]]:
    """``eval_scores`` rows of a script on the problems of an evaluation: the real loop, published form, readers and
    strict scorer. ``metrics.task_metrics`` makes of them what it makes of a checkpoint's.

    Args:
        measured: first columns of every row; ``checkpoint_id`` names the script.
        samples: attempts per problem; a script that draws draws anew for each.
        references: the teacher's trace of each problem_key, for the process score.
    """
    rollouts = script_rollouts(script, problems, world, measured=measured, samples=samples)
    return score_rows(
        rollouts, problems, world.catalogue, rules, samples=samples, measured=measured, references=references or {}
    )


def script_rollouts(
    script: Script, problems: Sequence[EvalProblem], world: World, *, measured: Measured, samples: int = 1
) -> Iterator[dict[str, Any]]:
    """``rollouts`` rows of a script; arguments as in ``script_scores``."""
    name = measured.checkpoint_id
    policy = ScriptedPolicy(script, name=name, form="native")
    plan = digest_json(["miniature script", name, samples])
    for one, sample in product(problems, range(samples)):
        problem = one.problem
        task = Task(
            problem.problem_id,
            problem.suite_id,
            problem.problem_key,
            problem.category,
            problem.query or "",
            sample=sample,
        )
        clock = SimulatedClock(0, Random(f"{problem.problem_key}:{sample}"))
        rollout = run_episode(policy, task, world, Limits(), clock=clock)
        yield rollout_row(rollout, checkpoint_id=name, stage=measured.stage, day=measured.day, plan=plan)


def _rate(clusters: Sequence[str], values: Sequence[float], *, seed: int, resamples: int) -> Rate:
    import numpy

    from trajectory_platform.evaluation.intervals import cluster_totals, percentile_interval, resampled_totals

    if not values:
        return Rate(0.0, None, 0, 0)
    columns = numpy.array([(value, 1.0) for value in values])
    names, totals = cluster_totals(clusters, columns)
    drawn = resampled_totals(totals, seed=seed, resamples=resamples)
    interval = percentile_interval(totals[:, 0], totals[:, 1], drawn[:, 0], drawn[:, 1], (0.0, 1.0))
    return Rate(float(columns[:, 0].mean()), interval, len(values), len(names))
