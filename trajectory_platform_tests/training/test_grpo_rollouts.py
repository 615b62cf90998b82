"""Attempts of GRPO: the episodes of evaluation, with exactly the tokens the model drew where it drew them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation import policy_transformers
from trajectory_platform.evaluation.context import ContextPolicy, prompt_ids
from trajectory_platform.evaluation.environment import Limits, Reply
from trajectory_platform.evaluation.eval_problems import EvalProblem
from trajectory_platform.evaluation.eval_rows import Measured, Rules, score_rows
from trajectory_platform.evaluation.policy_transformers import TransformersPolicy
from trajectory_platform.evaluation.rollout import Rollout
from trajectory_platform.evaluation.rollout_rows import rollout_row
from trajectory_platform.judging.matching import find_rules
from trajectory_platform.judging.outcome import Scorer
from trajectory_platform.sandbox.catalogue_index import open_world
from trajectory_platform.sandbox.tools import TOOLS
from trajectory_platform.training.grpo_rollouts import (
    Asked,
    Attempt,
    Segment,
    TurnTokens,
    asked_of,
    attempt_all,
    fault_of,
    judged,
    rows_of_attempts,
    segments_of,
    task_of,
    tokens_of,
)
from trajectory_platform_tests.training import grpo_market
from trajectory_platform_tests.training.grpo_market import Script, as_miners, as_trained, straight

CONTEXT = ContextPolicy(max_length=1024, reply_tokens=48, max_result_chars=300)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grpo_market.world_folder(tmp_path_factory.mktemp("market"))


@pytest.fixture(scope="session")
def market_tokenizer(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(grpo_market.base_folder(tmp_path_factory.mktemp("base"), place))


def asked(number: int, place: Path) -> Asked:
    row = next(
        row for row in grpo_market.rows(number + 1, place).rows if row.extra and f"number {number}" in str(row.extra)
    )
    return asked_of(row.extra, row.problem_key, row.leak_cluster)


def attempts(
    tokenizer: Any,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    says: Callable[[int, int, int], str | None],
    *,
    numbers: tuple[int, ...] = (0, 1),
    context: ContextPolicy = CONTEXT,
) -> list[Attempt]:
    monkeypatch.setattr(policy_transformers, "generate", Script(tokenizer, says))
    policy = TransformersPolicy(None, tokenizer, context, name="test", keep_tokens=True)
    chosen = [asked(number, place) for number in numbers]
    tasks = [task_of(one, seed=7, slot=at, sample=0) for at, one in enumerate(chosen)]
    world = open_world(place)
    rollouts = attempt_all(policy.reply_all, tasks, world, Limits(max_steps=6, reply_tokens=48))
    scorer = Scorer(world.catalogue, find_rules(*Rules()))
    return [judged(one, rollout, scorer) for one, rollout in zip(chosen, rollouts, strict=True)]


def path(form: Callable[[Any], str]) -> Callable[[int, int, int], str]:
    return lambda number, turn, seed: form(straight(number)[turn])


def test_an_attempt_in_the_words_of_the_template_is_one_sequence(
    market_tokenizer: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attempt in attempts(market_tokenizer, place, monkeypatch, path(as_trained)):
        assert attempt.success and not attempt.clipped and attempt.dropped is None and attempt.hallucinated == 0
        assert [one.total for one in attempt.rewards or []] == pytest.approx([1.0] * 4)
        (segment,) = attempt.segments
        assert segment.prompt_ids == attempt.replies[0].prompt_ids
        drawn = [token for token, mask in zip(segment.completion_ids, segment.env_mask, strict=True) if mask]
        assert drawn == [token for reply in attempt.replies for token in reply.token_ids]
        assert set(segment.turns) == {-1, 0, 1, 2, 3} and segment.env_mask[0] == segment.env_mask[-1] == 1


@pytest.mark.parametrize("form", [as_trained, as_miners])
def test_every_turn_was_asked_with_the_prompt_of_evaluation(
    form: Callable[[Any], str], market_tokenizer: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (attempt,) = attempts(market_tokenizer, place, monkeypatch, path(form), numbers=(2,))
    messages = attempt.rollout.environment.messages
    starts = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    assert len(starts) == len(attempt.replies) == 4 and attempt.dropped is None
    for at, reply in zip(starts, attempt.replies, strict=True):
        assert reply.prompt_ids == prompt_ids(market_tokenizer, messages[:at], TOOLS, CONTEXT)
    seen: list[int] = []
    for segment in attempt.segments:
        for position, turn in enumerate(segment.turns):
            if turn >= 0 and turn not in seen:
                seen.append(turn)
                before = segment.prompt_ids + segment.completion_ids[:position]
                assert before == attempt.replies[turn].prompt_ids
    assert seen == [0, 1, 2, 3]


def test_a_reply_that_is_not_written_that_way_again_splits_the_attempt(
    market_tokenizer: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def says(number: int, turn: int, seed: int) -> str:
        return (as_miners if turn == 1 else as_trained)(straight(number)[turn])

    (attempt,) = attempts(market_tokenizer, place, monkeypatch, says, numbers=(0,))
    assert attempt.success and attempt.dropped is None
    first, second = attempt.segments
    assert sorted(set(first.turns)) == [-1, 0, 1] and sorted(set(second.turns)) == [-1, 2, 3]
    assert second.prompt_ids == attempt.replies[2].prompt_ids


def test_results_left_out_to_win_room_split_the_attempt(
    market_tokenizer: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len(attempts(market_tokenizer, place, monkeypatch, path(as_trained))[0].replies[3].prompt_ids)
    tight = ContextPolicy(max_length=whole + 40, reply_tokens=48, max_result_chars=300)
    (attempt,) = attempts(market_tokenizer, place, monkeypatch, path(as_trained), numbers=(0,), context=tight)
    assert attempt.success and len(attempt.segments) == 2 and attempt.dropped is None
    assert "left out" in market_tokenizer.decode(attempt.segments[1].prompt_ids)
    assert max(len(one.prompt_ids) + len(one.completion_ids) for one in attempt.segments) <= tight.max_length


def test_a_reply_that_never_ends_is_a_turn_that_costs(
    market_tokenizer: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def says(number: int, turn: int, seed: int) -> str | None:
        return None if turn else as_trained(straight(number)[0])

    (attempt,) = attempts(market_tokenizer, place, monkeypatch, says, numbers=(0,))
    assert attempt.clipped and not attempt.success and len(attempt.replies) == 2
    assert [one.total for one in attempt.rewards or []] == pytest.approx([1.0, -1.0])


def test_a_full_context_ends_the_attempt_and_leaves_what_was_drawn(
    market_tokenizer: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = ContextPolicy(max_length=140, reply_tokens=48, max_result_chars=300)
    (attempt,) = attempts(market_tokenizer, place, monkeypatch, path(as_trained), numbers=(0,), context=tiny)
    assert attempt.rollout.ending.reason == "token_limit" and attempt.clipped
    assert attempt.dropped is None and len(attempt.replies) == len(attempt.rewards or []) >= 1


def test_the_outcome_is_that_of_evaluation(market_tokenizer: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [("take", [("recommend_product", {"product_ids": "14"})]), ("end", [("terminate", {})])]

    def says(number: int, turn: int, seed: int) -> str | None:
        plans = {0: straight(0), 1: wrong, 2: [("hm", [])]}
        return as_trained(plans[number][turn])

    found = attempts(market_tokenizer, place, monkeypatch, says, numbers=(0, 1, 2))
    names = {"checkpoint_id": "c", "stage": "sft", "day": "2026-05-02", "plan": "p"}
    scored = score_rows(
        [rollout_row(one.rollout, **names) for one in found],
        [EvalProblem(one.asked.problem, "lc", "dev") for one in found],
        open_world(place).catalogue,
        Rules(),
        samples=1,
        measured=Measured("c", "2026-05-02", "sft"),
        references={one.asked.key: one.asked.reference for one in found if one.asked.reference},
    )
    by_key = {row["problem_key"]: row for row in scored}
    for one in found:
        row = by_key[one.asked.key]
        assert (one.success, one.clipped, one.hallucinated) == (
            row["success"],
            row["truncated"],
            len(row["hallucinated_ids"]),
        )
        totals = [reward.total for reward in one.rewards or []]
        assert row["process_score"] == pytest.approx(sum(totals) / len(totals))


def test_c_b13_lengths_that_differ_drop_the_attempt(shared: Path) -> None:
    told = json.loads((shared / "cases" / "B13.json").read_text("utf-8"))
    ids, mask = told["input"]["completion_ids"], told["input"]["tool_mask"]
    broken = Segment([1], ids, mask, [0.0] * len(ids), [0] * len(ids))
    replies = [TurnTokens([1], ids, [0.0] * len(ids))]
    assert fault_of([broken], replies) == told["expect"]["reason"]
    assert fault_of(segments_of(replies), replies) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s._replace(logprobs=s.logprobs[:-1]),
        lambda s: s._replace(prompt_ids=[9, *s.prompt_ids]),
        lambda s: s._replace(completion_ids=[*s.completion_ids[:-1], 99]),
        lambda s: s._replace(env_mask=[1 - one for one in s.env_mask]),
        lambda s: s._replace(turns=[-1 if one == 1 else one for one in s.turns], env_mask=[0] * len(s.env_mask)),
    ],
)
def test_a_sequence_that_is_not_what_was_drawn_is_never_trained(change: Callable[[Segment], Segment]) -> None:
    replies = [TurnTokens([1, 2], [3, 4], [-0.1, -0.2]), TurnTokens([1, 2, 3, 4, 5], [6, 7], [-0.3, -0.4])]
    (good,) = segments_of(replies)
    assert fault_of([good], replies) is None
    assert fault_of([change(good)], replies) is not None


def test_tokens_of_a_prompt_that_changed_begin_a_new_sequence() -> None:
    replies = [
        TurnTokens([1, 2], [3], [-0.1]),
        TurnTokens([1, 2, 3, 8], [4, 5], [-0.2, -0.3]),
        TurnTokens([1, 9], [6], [-0.4]),
    ]
    first, second = segments_of(replies)
    assert first == Segment([1, 2], [3, 8, 4, 5], [1, 0, 1, 1], [-0.1, 0.0, -0.2, -0.3], [0, -1, 1, 1])
    assert second == Segment([1, 9], [6], [1], [-0.4], [2])
    assert segments_of([]) == []


def test_further_segments_become_rows_as_far_as_there_is_room() -> None:
    def segment(turn: int, tokens: int) -> Segment:
        return Segment([1], [5] * tokens, [1] * tokens, [0.0] * tokens, [turn] * tokens)

    def attempt(*segments: Segment) -> Attempt:
        return Attempt(None, None, [], list(segments), None, False, None, 0, False, None)  # type: ignore[arg-type]

    made = [
        attempt(segment(0, 2), segment(1, 3), segment(2, 9)),
        attempt(segment(0, 7), segment(1, 7)),
        attempt(segment(0, 1), segment(1, 4)),
    ]
    rows, left = rows_of_attempts(made, [True, False, True], 4)
    assert [row.attempt for row in rows] == [0, 2, 0, 2] and left == 1 and rows[2].segment == segment(2, 9)
    rows, left = rows_of_attempts(made, [True, False, True], 7)
    assert [row.attempt for row in rows] == [0, 2, 0, 0, 2, None, None] and left == 0
    rows, left = rows_of_attempts(made, [False] * 3, 2)
    assert [row.attempt for row in rows] == [None, None] and left == 0


def test_draws_depend_on_seed_place_problem_and_number_alone(place: Path) -> None:
    from trajectory_platform.evaluation.policy_sampling import turn_seed

    one, other = asked(0, place), asked(1, place)
    drawn = {
        turn_seed(task_of(problem, seed=seed, slot=slot, sample=sample), turn, seed)
        for problem in (one, other)
        for seed in (1, 2)
        for slot in (0, 1)
        for sample in (0, 1)
        for turn in (0, 1)
    }
    assert len(drawn) == 32
    assert task_of(one, seed=1, slot=0, sample=0) == task_of(one, seed=1, slot=0, sample=0)


def test_a_failure_of_generation_is_no_attempt_of_the_model(place: Path) -> None:
    def answer(requests: Any) -> list[Reply]:
        return [Reply(error="generation_failed: out of memory") for _ in requests]

    with pytest.raises(FailPartition, match="out of memory"):
        attempt_all(answer, [task_of(asked(0, place), seed=1, slot=0, sample=0)], open_world(place), Limits())


def test_a_process_without_live_attempts_takes_part_until_none_is_left_anywhere(place: Path) -> None:
    rounds = iter([1, 1, 1, 0])
    calls: list[int] = []

    def answer(requests: Any) -> list[Reply]:
        calls.append(len(requests))
        return [Reply("the end") for _ in requests]

    done = attempt_all(
        answer,
        [task_of(asked(0, place), seed=1, slot=0, sample=0)],
        open_world(place),
        Limits(),
        most=lambda live: next(rounds),
    )
    assert calls == [1, 0, 0] and isinstance(done[0], Rollout) and tokens_of(done[0]) == []


def test_a_prompt_row_must_bring_its_own_problem_with_a_reward(place: Path) -> None:
    row = next(row for row in grpo_market.rows(1, place).rows if row.role == "prompt")
    assert asked_of(row.extra, row.problem_key, "lc").reference is not None
    assert asked_of({**row.extra, "reference": None}, row.problem_key, "lc").reference is None
    for extra, key in (
        ({}, row.problem_key),
        (row.extra, "another"),
        ({"problem": {**row.extra["problem"], "reward": None, "reward_state": "hidden"}}, row.problem_key),
    ):
        with pytest.raises(FailPartition):
            asked_of(extra, key, "lc")
