"""Which problems are attempted: one of each cluster first, the same ones whatever the order, never a trained one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.eval_problems import assert_unseen, lake_problems, select, selection_digest
from trajectory_platform.evaluation.plan import RolloutPlan
from trajectory_platform.evaluation.rollout_launch import tasks
from trajectory_platform.training.recipe import load_recipe, parse_recipe

Row = dict[str, Any]


def suite_row(key: str, *, state: str = "public", day: str = "2026-05-02", query: str | None = "a mug") -> Row:
    return {
        "problem_id": f"p-{key}",
        "day": day,
        "suite_id": "s1",
        "problem_key": key,
        "category": "product",
        "difficulty": None,
        "title": None,
        "query": query,
        "reward": '{"product_id": "1"}' if state == "public" else None,
        "reward_state": state,
        "reward_product_ids": ["1"] if state == "public" else [],
        "voucher": None,
        "source": "suite",
    }


def cluster_row(key: str, cluster: str, pool: str = "dev") -> Row:
    return {
        "problem_key": key,
        "problem_ids": [f"p-{key}"],
        "suite_ids": ["s1"],
        "category": "product",
        "cluster_id": cluster,
        "pool": pool,
    }


CLUSTERS = [cluster_row(f"k{cluster}{member}", f"lc-{cluster}") for cluster in "abcd" for member in range(3)]
SUITES = [suite_row(row["problem_key"]) for row in CLUSTERS]


def chosen_keys(
    limit: int | None, seed: int = 0, clusters: list[Row] = CLUSTERS, suites: list[Row] = SUITES
) -> list[str]:
    selection = select(lake_problems(clusters, suites, pool="dev"), limit=limit, seed=seed)
    return [one.problem.problem_key for one in selection.chosen]


def test_every_cluster_gives_one_problem_before_any_gives_two() -> None:
    assert {key[1] for key in chosen_keys(4)} == set("abcd")
    assert sorted(key[1] for key in chosen_keys(8)) == list("aabbccdd")
    assert len(chosen_keys(None)) == 12


def test_the_choice_depends_on_nothing_but_problems_and_seed() -> None:
    clusters, suites = list(CLUSTERS), list(SUITES)
    random.Random(1).shuffle(clusters)
    random.Random(2).shuffle(suites)
    assert chosen_keys(5, clusters=clusters, suites=suites) == chosen_keys(5)
    assert chosen_keys(5) == chosen_keys(9)[:5]
    assert chosen_keys(5, seed=1) != chosen_keys(5)


def test_other_pools_are_left_alone_and_problems_without_reward_or_query_are_counted_apart() -> None:
    clusters = [
        cluster_row("public", "lc-1"),
        cluster_row("hidden", "lc-2"),
        cluster_row("trace-only", "lc-3"),
        cluster_row("no-query", "lc-4"),
        cluster_row("trained", "lc-5", "train"),
        cluster_row("kept", "lc-6", "sealed"),
    ]
    suites = [suite_row("public"), suite_row("hidden", state="hidden"), suite_row("no-query", query=None)]
    suites += [suite_row("trained"), suite_row("kept")]
    selection = select(lake_problems(clusters, suites, pool="dev"), limit=None, seed=0)
    assert [one.problem.problem_key for one in selection.chosen] == ["public"]
    assert [one.problem.problem_key for one in selection.no_reward] == ["hidden", "no-query", "trace-only"]
    assert selection.available == 1


def test_a_reward_published_later_counts() -> None:
    suites = [suite_row("k", day="2026-05-01"), suite_row("k", state="hidden", day="2026-05-03")]
    (one,) = lake_problems([cluster_row("k", "lc-1")], suites, pool="dev")
    assert one.problem.reward_state == "public"


@pytest.mark.parametrize(
    ("trained", "shared"),
    [
        ({"problem_key": "ka0", "cluster_id": "lc-old"}, "problem_key"),
        ({"problem_key": "other", "cluster_id": "lc-a"}, "cluster_id"),
        ({"problem_key": "kb1", "cluster_id": "lc-before-the-merge"}, "cluster_id"),
    ],
)
def test_a_trained_problem_or_a_variant_of_one_stops_the_evaluation(trained: Row, shared: str) -> None:
    """The last case: the cluster of a trained problem has merged with a held-out one since training."""
    selection = select(lake_problems(CLUSTERS, SUITES, pool="dev"), limit=None, seed=0)
    chosen = [one for one in selection.chosen if one.problem.problem_key != "kb1"]
    with pytest.raises(FailPartition, match=f"leak: .* share {shared}"):
        assert_unseen(chosen, [{"trace_id": "run:x", **trained}], CLUSTERS)
    assert_unseen(chosen, [{"trace_id": "run:x", "problem_key": "elsewhere", "cluster_id": "lc-z"}], CLUSTERS)


def test_an_attempt_has_a_seed_of_its_own_and_is_told_no_reward() -> None:
    plan = RolloutPlan(samples=2, temperature=0.7)
    selection = select(lake_problems(CLUSTERS, SUITES, pool="dev"), limit=3, seed=0)
    listed = tasks(selection.chosen, plan, 0)
    assert len({task["seed"] for task in listed}) == len(listed) == 6
    assert [task["sample"] for task in listed] == [0, 0, 0, 1, 1, 1]
    assert all(0 <= task["seed"] < 2**31 and "reward" not in str(task) for task in listed)
    alone = tasks(selection.chosen[1:2], plan, 0)
    assert alone[0] == listed[1] and alone[1] == listed[4]


def test_another_reward_is_another_selection() -> None:
    first, again = (select(lake_problems(CLUSTERS, SUITES, pool="dev"), limit=3, seed=0).chosen for _ in range(2))
    other = [suite_row(row["problem_key"]) | {"reward": '{"product_id": "2"}'} for row in CLUSTERS]
    changed = select(lake_problems(CLUSTERS, other, pool="dev"), limit=3, seed=0).chosen
    assert selection_digest(first) == selection_digest(again[::-1]) != selection_digest(changed)


def test_several_greedy_attempts_are_refused_as_they_would_be_one() -> None:
    with pytest.raises(Abort, match=r"samples above 1 need a temperature above 0"):
        parse_recipe("evaluation: {rollouts: {samples: 4}}")
    with pytest.raises(Abort, match="sealed_reason"):
        parse_recipe("evaluation: {rollouts: {pool: sealed}}")
    assert parse_recipe("evaluation: {rollouts: {samples: 4, temperature: 0.7}}").evaluation.rollouts.samples == 4


def test_a_recipe_without_rollouts_stays_valid_and_concurrency_is_no_part_of_the_identity() -> None:
    old = parse_recipe("evaluation: {max_turns: 60}").evaluation
    assert old.rollouts == RolloutPlan() and "rollouts" not in old.of_actions()
    wide = RolloutPlan(concurrency=64)
    assert wide.identity() == RolloutPlan().identity()
    assert load_recipe("smoke").evaluation.rollouts.problems == 24


def test_the_plan_states_the_limits_of_the_environment() -> None:
    from trajectory_platform.evaluation.environment import Limits

    assert Limits(**RolloutPlan().limits.model_dump()) == Limits()
