"""Attempts of scripted policies at problems of a small market, as rows of ``rollouts``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from trajectory_platform.evaluation.environment import Limits, Reply, Task, TurnRequest
from trajectory_platform.evaluation.eval_problems import EvalProblem
from trajectory_platform.evaluation.eval_rows import Rules
from trajectory_platform.evaluation.rollout import run_episode
from trajectory_platform.evaluation.rollout_rows import rollout_row
from trajectory_platform.lake.tables import ROLLOUTS
from trajectory_platform.sandbox.problems import parse_problem
from trajectory_platform.training.generated_rows import Generated, Origin, generated
from trajectory_platform.training.stage_recipes import Acceptance
from trajectory_platform_tests.evaluation import acting

DAY = "2026-05-02"
ORIGIN = Origin(DAY, "resft", "sft-2026-05-02-aaaaaaaaaaaa")
QUERY = "a blue stoneware mug below 150 pesos"

Says = list[Reply] | Callable[[TurnRequest], Reply]


def problem(number: int = 0, *, reward: str = "11", title: str = "blue mug", pool: str = "train") -> EvalProblem:
    """A product problem of the market; each number is a problem and a cluster of its own."""
    item = {
        "problem_id": f"problem-{number}",
        "metadata": {
            "query": QUERY,
            "category": "Product",
            "reward": {"product_id": reward, "title": title, "price": [{"less than": [0, 150]}]},
        },
    }
    made = replace(parse_problem(item, suite_id="suite"), problem_key=f"key-{number}")
    return EvalProblem(made, f"lc-{number}", pool)


def clusters(chosen: Sequence[EvalProblem], *more: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of ``leak_clusters`` that hold the chosen problems and some others."""
    rows = [
        {
            "problem_key": one.problem.problem_key,
            "cluster_id": one.cluster_id,
            "pool": one.pool,
            "held_out": one.pool != "train",
        }
        for one in chosen
    ]
    return [*rows, *more]


def row_of(one: EvalProblem, says: Says, sample: int = 0, limits: Limits | None = None) -> dict[str, Any]:
    """The ``rollouts`` row of one attempt."""
    made = one.problem
    task = Task(made.problem_id, made.suite_id, made.problem_key, made.category, QUERY, sample, seed=sample)
    rollout = run_episode(acting.Says(says), task, acting.market(), limits or Limits(), clock=acting.clock(task))
    return rollout_row(rollout, checkpoint_id=ORIGIN.source, stage=ORIGIN.stage, day=DAY, plan="p")


def made(tries: Sequence[tuple[EvalProblem, int, Says]], accept: Acceptance | None = None, **options: Any) -> Generated:
    """What ``generated`` makes of these attempts."""
    rows = [row_of(one, says, sample, options.get("limits")) for one, sample, says in tries]
    options.pop("limits", None)
    chosen = options.pop("chosen", None) or list({one.problem.problem_key: one for one, _, _ in tries}.values())
    samples = options.pop("samples", 1 + max((sample for _, sample, _ in tries), default=0))
    return generated(
        pa.Table.from_pylist(options.pop("order", list)(rows), schema=ROLLOUTS.schema()),
        chosen,
        acting.market().catalogue,
        Rules(),
        accept or Acceptance(),
        origin=options.pop("origin", ORIGIN),
        samples=samples,
        clusters=options.pop("clusters", clusters(chosen)),
        **options,
    )


def shopping(
    *, search: str = "blue mug", opened: str = "11,12", take: str = "11", think: str = acting.THINK
) -> list[Reply]:
    """Search, open, recommend, terminate."""
    return [
        acting.spoken("I search first.", [("find_product", {"q": search, "price": "-200"})]),
        acting.spoken("11 and 12 fit the words; I open them.", [("view_product_information", {"product_ids": opened})]),
        acting.spoken(think, [("recommend_product", {"product_ids": take})]),
        acting.spoken("That is all.", [("terminate", {"status": "success"})], f"I recommend {take}."),
    ]
