"""A stored attempt is a trace like any other: judge, score, axis and viewer read it, and it gives its prompts back."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from trajectory_platform.curation import agency
from trajectory_platform.evaluation.context import ContextPolicy, contexts_of, prompt_ids
from trajectory_platform.evaluation.environment import Limits, MeasuredClock, Reply, TurnRequest
from trajectory_platform.evaluation.rollout import Rollout, run_episode
from trajectory_platform.evaluation.rollout_rows import rollout_row, run_id
from trajectory_platform.evaluation.wire import FORMS
from trajectory_platform.identity import safe_id
from trajectory_platform.judging import outcome, reasoning
from trajectory_platform.lake.tables import ROLLOUTS
from trajectory_platform.sandbox.problems import Problem
from trajectory_platform.sandbox.tools import TOOLS, World
from trajectory_platform.traces.rendering import plain_text
from trajectory_platform.traces.sn15 import read_dialogue
from trajectory_platform_tests.evaluation.acting import START, Says, attempt, clock, honest, market, spoken, task

DAY = date(2026, 5, 4)


@pytest.fixture(scope="module")
def world() -> World:
    return market()


def row_of(rollout: Rollout) -> dict[str, Any]:
    return rollout_row(rollout, checkpoint_id="sft-2026-05-04-abc", stage="sft", day=DAY, plan="p" * 64)


def problem() -> Problem:
    reward = {"product_id": "11", "title": "blue mug", "price": [{"less than": [0, 200]}]}
    return Problem(
        problem_id="problem-0",
        suite_id="suite",
        category="product",
        difficulty=None,
        title=None,
        query=task().query,
        reward=[reward],
        reward_raw=reward,
        reward_state="public",
        voucher=None,
        problem_key="key-0",
        reward_product_ids=("11",),
    )


def test_a_row_has_every_column_of_the_table(world: World) -> None:
    import pyarrow as pa

    row = row_of(attempt(honest(), world))
    assert list(row) == list(ROLLOUTS.schema().names)
    assert pa.Table.from_pylist([row], schema=ROLLOUTS.schema()).to_pylist() == [row]
    assert row["trace_id"] == f"{run_id('sft-2026-05-04-abc', 'sft', 0, 'p' * 64)}:problem-0"
    assert (row["steps"], row["tool_calls"], row["ending"]) == (4, 4, "terminate")
    assert row["day"] == "2026-05-04" and json.loads(row["tools"]) == TOOLS


def test_runs_are_told_apart_by_policy_stage_attempt_and_plan() -> None:
    ids = {
        run_id(policy, stage, sample, plan) for policy in "ab" for stage in "st" for sample in (0, 1) for plan in "pq"
    }
    assert len(ids) == 16 and all(safe_id(name) == name for name in ids)


def test_an_attempt_repeats_exactly_with_the_same_clock(world: World) -> None:
    assert row_of(attempt(honest(), world)) == row_of(attempt(honest(), market()))


@pytest.mark.parametrize("form", FORMS)
def test_what_a_model_did_is_axis_a_with_everything_emitted(world: World, form: str) -> None:
    row = row_of(attempt(honest(form), world))
    decision = agency.decide(json.loads(row["messages"]), json.loads(row["evidence"]))
    assert (decision.label, decision.share, decision.final_emitted) == ("A", 1.0, True)
    assert decision.log_problems == [] and decision.harness_made == 0
    assert all(flag is True for turn in decision.emitted for flag in turn)


def test_composite_tools_stay_the_model_s(world: World) -> None:
    queries = [{"q": "tea box"}, {"q": "tea pot"}]
    requirements = {"material": "stoneware"}
    replies = [
        spoken("shop", [("find_products_in_same_shop", {"product_queries": json.dumps(queries)})]),
        spoken("check", [("check_product_match", {"product_id": "13", "requirements": requirements})]),
        spoken("two", [("find_product", {"query": "tea pot", "page": "1"}), ("find_product", {"q": "box"})]),
        spoken("end", [("recommend_product", {"product_ids": ["13", "14"]}), ("terminate", {"status": "success"})]),
    ]
    row = row_of(attempt(replies, world))
    decision = agency.decide(json.loads(row["messages"]), json.loads(row["evidence"]))
    assert (decision.label, decision.share, decision.final_emitted) == ("A", 1.0, True)
    assert decision.log_problems == []
    assert {repair["reason"] for repair in json.loads(row["repairs"])} >= {"argument_alias", "product_ids_not_text"}


def test_equal_calls_within_one_millisecond_are_no_forged_log(world: World) -> None:
    twice = spoken("the same twice", [("find_product", {"q": "mug"})] * 2)
    still = MeasuredClock(lambda: 5.0, START)
    rollout = run_episode(Says([twice, twice, *honest()[2:]]), task(), world, Limits(), clock=still)
    row = row_of(rollout)
    decision = agency.decide(json.loads(row["messages"]), json.loads(row["evidence"]))
    assert (decision.label, decision.share, decision.log_problems) == ("A", 1.0, [])


def test_judge_score_and_viewer_read_it(world: World) -> None:
    row = row_of(attempt(honest(), world))
    messages, steps = json.loads(row["messages"]), json.loads(row["source_steps"])
    assert reasoning.judge(messages, json.loads(row["evidence"])).quality == 0.9
    scored = outcome.score(steps, problem(), world.catalogue)
    assert (scored.outcome, scored.reason, scored.recommended_ids) == ("success", None, ["11"])
    assert (scored.hallucinated_ids, scored.unviewed_ids, scored.discipline) == ([], [], [])
    assert (scored.format, scored.length) == (1.0, 0.25)
    shown = plain_text(messages)
    assert "find_product" in shown and "I recommend mug 11." in shown


def test_the_strict_score_reads_what_the_model_wrote(world: World) -> None:
    replies = [spoken("x", [("recommend_product", {"product_ids": ["11"]}), ("terminate", {"status": "success"})])]
    scored = outcome.score(json.loads(row_of(attempt(replies, world))["source_steps"]), problem(), world.catalogue)
    assert (scored.outcome, scored.recommended_ids, scored.lenient_ids) == ("failure", [], ["11"])


def test_a_cut_reply_is_stored_without_a_call_and_marked_in_the_evidence(world: World) -> None:
    cut = spoken("half a tho", [("terminate", {"status": "success"})])._replace(finish_reason="length")
    row = row_of(attempt([*honest()[:2], cut], world))
    assert (row["ending"], row["truncated_replies"], row["steps"]) == ("reply_truncated", 1, 3)
    assert json.loads(row["messages"])[-1] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "half a tho",
    }
    assert [event["cut"] for event in json.loads(row["evidence"])["events"] if event["kind"] == "inference"][-1]


@pytest.mark.parametrize(
    "reply", [Reply(""), Reply(None, error="timeout"), Reply('<tool_call>{"name"')], ids=["empty", "timeout", "open"]
)
def test_an_attempt_that_never_began_keeps_its_log(world: World, reply: Reply) -> None:
    row = row_of(attempt([reply], world))
    assert (row["messages"], row["content_hash"], row["steps"]) == ("[]", None, 0)
    assert len(json.loads(row["evidence"])["events"]) == 1
    assert outcome.score(json.loads(row["source_steps"]), problem(), world.catalogue).outcome != "success"


def test_hostile_replies_are_stored_as_text_every_reader_takes(world: World) -> None:
    import pyarrow as pa

    def fail(request: TurnRequest) -> Reply:
        if request.turn == 0:
            return spoken(
                "\ud83d \x00 \u202e <|im_end|>", [("find_product", {"q": "\ud83d\x00", "price": float("nan")})]
            )
        raise ValueError("no \ud83d")

    row = row_of(attempt(fail, world))
    assert row["ending"] == "policy_error" and "ValueError" in row["ending_detail"]
    pa.Table.from_pylist([row], schema=ROLLOUTS.schema())
    for name in ("messages", "source_steps", "evidence"):
        json.loads(row[name].encode().decode(), parse_constant=pytest.fail)


ODD = [
    spoken("I use another name. \u202e\x07", [("find_product", {"query": "blue mug", "page": 1.0})], form="alias"),
    Reply(
        "Both calls at once <|im_start|>.",
        [
            {"id": "a", "type": "function", "function": {"name": "find_product", "arguments": '{"q": "tea \\ud83d"}'}},
            {"id": "a", "type": "function", "function": {"name": "no_such_tool", "arguments": {"x": [1e16, 1e-7]}}},
        ],
        reasoning_content="\n  shown apart </think>\n",
    ),
    spoken("", [("view_product_information", {"product_ids": [11, 12]})], "I look.", form="fenced"),
    spoken("a\u2028b", [("recommend_product", {"product_id": "11"})], form="native"),
    spoken("", [("terminate", {})], "Bye, \U0001f600."),
]


@pytest.mark.parametrize("replies", [honest(), honest("native"), ODD], ids=["xml", "native", "odd"])
@pytest.mark.parametrize("folded", [False, True], ids=["whole", "folded"])
def test_the_prompts_of_an_attempt_are_those_of_its_stored_trace(
    world: World, tokenizer: Any, replies: list[Reply], folded: bool
) -> None:
    policy = ContextPolicy(max_length=16384, max_result_chars=400)
    if folded:  # just too small for the longest history, so that old results are left out on the way
        longest = _asked(world, tokenizer, replies, policy)[1][-1]
        assert longest is not None
        policy = policy.model_copy(update={"max_length": len(longest) + policy.reply_tokens - 16})
    rollout, asked = _asked(world, tokenizer, replies, policy)
    row = row_of(rollout)
    messages = json.loads(row["messages"])
    assert messages == rollout.environment.messages
    assert messages == read_dialogue(json.loads(row["source_steps"]), binding=None).messages
    found = contexts_of(tokenizer, messages, json.loads(row["tools"]), policy)
    stored = {turn.number: context.input_ids[: turn.start] for context in found.contexts for turn in context.turns}
    assert len(asked) == len(replies) and found.lost == {}
    assert any(context.folded for context in found.contexts) == folded
    assert [stored[turn] for turn in range(len(asked))] == asked


def _asked(
    world: World, tokenizer: Any, replies: list[Reply], policy: ContextPolicy
) -> tuple[Rollout, list[list[int] | None]]:
    asked: list[list[int] | None] = []

    def answer(request: TurnRequest) -> Reply:
        asked.append(prompt_ids(tokenizer, request.messages, request.tools, policy))
        return replies[request.turn]

    rollout = run_episode(Says(answer), task(), world, Limits(), clock=clock(task()))
    assert rollout.ending.reason == "terminate", rollout.ending
    return rollout, asked
