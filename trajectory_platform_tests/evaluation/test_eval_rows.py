"""From attempts to strict scores: what counts as a success, and how each way of failing is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from trajectory_platform.evaluation.environment import TIMEOUT, Reply
from trajectory_platform.evaluation.eval_problems import EvalProblem, Selection
from trajectory_platform.evaluation.eval_rows import Measured, Rules, score_table
from trajectory_platform.evaluation.metrics import task_metrics
from trajectory_platform.evaluation.rollout_rows import rollout_row
from trajectory_platform.evaluation.turn_rewards import TURN_REWARD_VERSION, Reference
from trajectory_platform.lake.tables import ROLLOUTS
from trajectory_platform.sandbox.problems import Problem, parse_problem
from trajectory_platform_tests.evaluation import acting

Row = dict[str, Any]
MEASURED = Measured("sft-2026-05-02-aaaaaaaaaaaa", "2026-05-02", "sft")


def problem(number: int = 0, reward: str = "11", title: str = "blue mug") -> EvalProblem:
    item = {
        "problem_id": f"problem-{number}",
        "metadata": {
            "query": "a blue stoneware mug",
            "category": "Product",
            "reward": {"product_id": reward, "title": title, "price": [{"less than": [0, 150]}]},
        },
    }
    made = replace(parse_problem(item, suite_id="suite"), problem_key=f"key-{number}")
    return EvalProblem(made, f"lc-{number}", "dev")


def hidden(number: int) -> EvalProblem:
    known: Problem = problem(number).problem
    return EvalProblem(replace(known, reward=None, reward_raw=None, reward_state="hidden"), f"lc-{number}", "dev")


def scored(replies: Any, *, chosen: list[EvalProblem] | None = None, samples: int = 1, **more: Any) -> list[Row]:
    world = acting.market()
    row = rollout_row(acting.attempt(replies, world), **_names())
    table = pa.Table.from_pylist([row], schema=ROLLOUTS.schema())
    selection = Selection(chosen or [problem()], more.get("no_reward", []), 1)
    found: list[Row] = score_table(
        table,
        selection,
        world.catalogue,
        Rules(),
        samples=samples,
        measured=MEASURED,
        references=more.get("references"),
    ).to_pylist()
    return found


def _names() -> dict[str, str]:
    return {"checkpoint_id": MEASURED.checkpoint_id, "stage": "sft", "day": "2026-05-02", "plan": "p"}


def test_an_honest_attempt_is_a_success_with_its_conduct() -> None:
    (row,) = scored(acting.honest())
    assert (row["outcome"], row["success"], row["reason"], row["ending"]) == ("success", True, None, "terminate")
    assert row["recommended_ids"] == ["11"] and not row["hallucinated_ids"] and not row["unviewed_ids"]
    assert row["conduct_score"] > 0.8 and row["lenient_success"] and not row["truncated"]
    assert (row["pool"], row["cluster_id"], row["steps"], row["prompt_tokens"]) == ("dev", "lc-0", 4, 400)


def test_the_process_score_is_measured_against_the_reference_of_the_problem() -> None:
    taught = Reference("key-0", "run:teacher", acting.attempt(acting.honest(), acting.market()).environment.messages)
    (own,) = scored(acting.honest(), references={"key-0": taught})
    assert own["process_score"] == pytest.approx(1.0)
    assert (own["process_reference"], own["process_version"]) == ("run:teacher", TURN_REWARD_VERSION)
    (cut,) = scored(
        [*acting.honest()[:1], acting.spoken("I thi", finish_reason="length")], references={"key-0": taught}
    )
    assert cut["process_score"] < 0.1
    (silent,) = scored([Reply("", finish_reason="length")], references={"key-0": taught})
    assert silent["process_score"] == -1.0
    (unknown,) = scored(acting.honest(), references={"key-1": taught})
    assert (unknown["process_score"], unknown["process_reference"], unknown["process_version"]) == (None, None, None)


def test_an_attempt_that_left_nothing_names_the_reference_without_a_score() -> None:
    taught = Reference("key-7", "run:teacher", acting.attempt(acting.honest(), acting.market()).environment.messages)
    rows = scored(acting.honest(), chosen=[problem(), problem(7)], references={"key-7": taught})
    lost = next(row for row in rows if row["problem_key"] == "key-7")
    assert (lost["process_score"], lost["process_reference"]) == (None, "run:teacher")
    assert task_metrics(rows, seed=0, resamples=100)["overall"]["process_score"]["value"] == 0.0


def test_the_wrong_product_is_a_failure() -> None:
    (row,) = scored(acting.honest(), chosen=[problem(reward="13", title="tea box")])
    assert (row["outcome"], row["success"]) == ("failure", False)


def test_a_made_up_id_and_an_unopened_one_are_named_apart() -> None:
    replies = [
        acting.spoken("look", [("find_product", {"q": "blue mug"})]),
        acting.spoken("take", [("recommend_product", {"product_ids": "12,999"})]),
        acting.spoken("end", [("terminate", {"status": "success"})]),
    ]
    (row,) = scored(replies)
    assert (row["hallucinated_ids"], row["unviewed_ids"]) == (["999"], ["12"])


def test_a_crash_after_the_right_recommendation_is_still_a_crash() -> None:
    replies = [*acting.honest()[:3], Reply(error="out_of_memory: the server went away")]
    (row,) = scored(replies)
    assert (row["outcome"], row["success"], row["lenient_success"]) == ("crash", False, False)
    assert "out_of_memory" in row["reason"] and row["trace_id"]


def test_a_timeout_is_a_failure_and_cut_by_a_limit() -> None:
    (row,) = scored([*acting.honest()[:3], Reply(error=TIMEOUT)])
    assert (row["outcome"], row["success"], row["truncated"]) == ("timeout", False, True)


def test_a_truncated_reply_ends_as_a_failure_that_says_so() -> None:
    (row,) = scored([acting.spoken("I thi", finish_reason="length")])
    assert row["truncated"] and row["success"] is False and row["ending"] == "reply_truncated"


def test_an_attempt_that_left_no_row_is_a_crash_not_one_problem_fewer() -> None:
    rows = scored(acting.honest(), chosen=[problem(), problem(7)], samples=2)
    lost = [row for row in rows if row["trace_id"] is None]
    assert len(rows) == 4 and len(lost) == 3
    assert {row["outcome"] for row in lost} == {"crash"} and {row["reason"] for row in lost} == {"no_attempt_recorded"}
    assert task_metrics(rows, seed=0, resamples=100)["overall"]["success_rate"]["value"] == 0.25


def test_problems_without_a_reward_are_counted_and_never_failures() -> None:
    rows = scored(acting.honest(), no_reward=[hidden(3)])
    (apart,) = [row for row in rows if row["outcome"] == "no_reward"]
    assert (apart["success"], apart["reason"], apart["ending"]) == (None, "reward_hidden", "not_run")
    metrics = task_metrics(rows, seed=0, resamples=100)
    assert metrics["no_reward"]["problems"] == 1 and metrics["overall"]["success_rate"]["value"] == 1.0


def test_what_makes_the_reference_raise_is_a_failure_with_its_reason() -> None:
    shop = replace(problem().problem, category="shop")  # a shop problem whose reward is an object (domain 2.5)
    (row,) = scored(acting.honest(), chosen=[EvalProblem(shop, "lc-0", "dev")])
    assert (row["outcome"], row["success"]) == ("unscorable", False)
    assert row["reason"].startswith("scorer_raised:")
