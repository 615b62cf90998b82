"""The context of a turn is the same in training and at inference, byte for byte, however long the trace."""

from __future__ import annotations

from typing import Any

import pytest

from trajectory_platform.evaluation.context import ContextPolicy, contexts_of, prompt_ids
from trajectory_platform.traces.rendering import FOLDED_RESULT, chat_messages
from trajectory_platform_tests.training import shopping


def long_trace(searches: int) -> list[dict[str, Any]]:
    """Many searches with long results, then the usual end."""
    parts = [shopping.messages(number)[1:3] for number in range(searches)]
    return [shopping.messages(0)[0], *(message for part in parts for message in part), *shopping.messages(0)[-4:]]


@pytest.mark.parametrize("max_length", [256, 400, 700, 4000])
@pytest.mark.parametrize("cap", [None, 150])
def test_context_at_inference_equals_context_in_training(tokenizer: Any, max_length: int, cap: int | None) -> None:
    policy = ContextPolicy(max_length=max_length, reply_tokens=100, max_result_chars=cap)
    for messages in (shopping.messages(3), long_trace(9)):
        found = contexts_of(tokenizer, messages, shopping.TOOLS, policy)
        assistant = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
        seen = []
        for context in found.contexts:
            for turn in context.turns:
                history = messages[: assistant[turn.number]]
                assert prompt_ids(tokenizer, history, shopping.TOOLS, policy) == context.input_ids[: turn.start]
                assert len(context.input_ids) <= max_length
                seen.append(turn.number)
        assert sorted([*seen, *found.lost]) == list(range(len(assistant)))


def test_rendered_text_at_inference_equals_the_template_with_a_generation_prompt(tokenizer: Any) -> None:
    policy = ContextPolicy(max_length=4000, reply_tokens=100, max_result_chars=300)
    messages = shopping.messages(5)
    for at in [at for at, message in enumerate(messages) if message["role"] == "assistant"]:
        ids = prompt_ids(tokenizer, messages[:at], shopping.TOOLS, policy)
        history = chat_messages(messages[:at], max_result_chars=300).messages
        text = tokenizer.apply_chat_template(history, tools=shopping.TOOLS, tokenize=False, add_generation_prompt=True)
        assert tokenizer.decode(ids) == text


def test_a_long_trace_loses_results_before_it_loses_turns(tokenizer: Any) -> None:
    messages = long_trace(9)
    found = contexts_of(tokenizer, messages, shopping.TOOLS, ContextPolicy(max_length=900, reply_tokens=100))
    assert found.lost == {} and len(found.contexts) > 1
    assert [context.folded for context in found.contexts] == sorted(context.folded for context in found.contexts)
    last = tokenizer.decode(found.contexts[-1].input_ids)
    assert FOLDED_RESULT in last and messages[-3]["content"] in last  # the newest result is there


def test_a_turn_belongs_to_one_context_only(tokenizer: Any) -> None:
    found = contexts_of(tokenizer, long_trace(9), shopping.TOOLS, ContextPolicy(max_length=900, reply_tokens=100))
    numbers = [turn.number for context in found.contexts for turn in context.turns]
    assert numbers == sorted(set(numbers))


def test_what_fits_nowhere_is_named(tokenizer: Any) -> None:
    long_reply = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "teapot " * 200}]
    found = contexts_of(tokenizer, long_reply, [], ContextPolicy(max_length=128, reply_tokens=16))
    assert found.contexts == [] and found.lost == {0: "reply_too_long"}
    long_history = [{"role": "user", "content": "teapot " * 200}, {"role": "assistant", "content": "ok"}]
    found = contexts_of(tokenizer, long_history, [], ContextPolicy(max_length=128, reply_tokens=16))
    assert found.contexts == [] and found.lost == {0: "history_too_long"}


def test_a_policy_without_room_for_history_is_refused() -> None:
    with pytest.raises(ValueError, match="half"):
        ContextPolicy(max_length=100, reply_tokens=90)
