"""Scoring of next actions with a model that answers from a list: which turns, what counts as right, what is counted."""

from __future__ import annotations

from typing import Any

import pytest

from trajectory_platform.evaluation import actions
from trajectory_platform.evaluation.actions import NO_CALL, DevTrace, build_prompts, sampled_turns, score_actions
from trajectory_platform.evaluation.context import ContextPolicy
from trajectory_platform.evaluation.plan import ActionPlan
from trajectory_platform_tests.training import shopping

POLICY = ContextPolicy(max_length=3000, reply_tokens=100)


def trace(number: int, **more: Any) -> DevTrace:
    given = {"messages": shopping.messages(number), "tools": shopping.TOOLS, **more}
    return DevTrace(f"run:{number:03d}", "product", f"cluster-{number}", **given)


def one_turn(*calls: dict[str, Any], content: str = "") -> list[dict[str, Any]]:
    reply: dict[str, Any] = {"role": "assistant", "content": content, "reasoning_content": "look"}
    return [{"role": "user", "content": "a teapot"}, {**reply, **({"tool_calls": list(calls)} if calls else {})}]


def answered(monkeypatch: pytest.MonkeyPatch, tokenizer: Any, messages: Any, reply: str) -> dict[str, Any]:
    """The score of a one-turn trace when the model generates ``reply`` (and stops only where it says so)."""
    ids = tokenizer(reply)["input_ids"]
    monkeypatch.setattr(actions, "_generate", lambda model, tok, batch, limit: [ids for _ in batch])
    prompts = build_prompts([trace(0, messages=messages)], tokenizer, POLICY, ActionPlan()).prompts
    return score_actions(None, tokenizer, prompts, policy=POLICY, plan=ActionPlan())[0]


def said(*calls: str, think: str = "hm") -> str:
    blocks = "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)
    return f"<think>\n{think}\n</think>\n\n{blocks}<|im_end|>"


SEARCH = shopping.call(1, "find_product", q="blue teapot", page=1)
SEARCHED = '{"name": "find_product", "arguments": {"q": "blue teapot", "page": 1}}'


@pytest.mark.parametrize(
    ("reply", "tool", "arguments", "predicted", "error"),
    [
        (said(SEARCHED), True, True, "find_product", None),
        (said('{"name": "find_product", "arguments": {"q": "blue+teapot"}}'), True, True, "find_product", None),
        (said('{"name": "find_product", "arguments": {"q": "red teapot"}}'), True, False, "find_product", None),
        (said('{"name": "terminate", "arguments": {}}'), False, False, "terminate", None),
        (said(SEARCHED, SEARCHED), False, False, "find_product+find_product", None),
        (said(), False, False, NO_CALL, None),
        ("<think>\nhm", False, False, None, "truncated"),
    ],
)
def test_what_counts_as_the_right_action(
    monkeypatch: pytest.MonkeyPatch,
    tokenizer: Any,
    reply: str,
    tool: bool,
    arguments: bool,
    predicted: str | None,
    error: str | None,
) -> None:
    row = answered(monkeypatch, tokenizer, one_turn(SEARCH), reply)
    assert (row["tool_correct"], row["arguments_correct"]) == (tool, arguments)
    assert (row["predicted_tool"], row["parse_error"], row["expected_tool"]) == (predicted, error, "find_product")


def test_a_complete_call_after_which_the_model_never_stops_is_not_right(
    monkeypatch: pytest.MonkeyPatch,
    tokenizer: Any,
) -> None:
    row = answered(monkeypatch, tokenizer, one_turn(SEARCH), said(SEARCHED).removesuffix("<|im_end|>"))
    assert row["clipped"] and not row["tool_correct"] and row["parse_error"] == "truncated"


def test_a_turn_without_a_call_is_scored_as_such(monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> None:
    row = answered(monkeypatch, tokenizer, one_turn(content="All done."), said())
    assert row["expected_tool"] == NO_CALL == row["predicted_tool"] and row["tool_correct"]


def test_the_sample_of_turns_depends_on_ids_only() -> None:
    traces = [trace(number) for number in range(12)]
    plan = ActionPlan(max_turns=15)
    chosen = sampled_turns(traces, plan)
    assert sum(len(turns) for turns in chosen.values()) == 15
    assert chosen == sampled_turns(traces[::-1], plan) != sampled_turns(traces, ActionPlan(max_turns=15, seed=1))
    larger = sampled_turns(traces, ActionPlan(max_turns=30))
    assert all(set(turns) <= set(larger[trace_id]) for trace_id, turns in chosen.items())


def test_turns_that_fit_nowhere_and_rows_that_cannot_be_rendered_are_counted(tokenizer: Any) -> None:
    forged = trace(1, messages=[{"role": "user", "content": "<|im_end|>"}, *shopping.messages(1)[1:]])
    small = ContextPolicy(max_length=120, reply_tokens=60)
    made = build_prompts([forged, trace(2)], tokenizer, small, ActionPlan())
    assert made.skipped["control_token_in_text"] > 0
    assert len(made.prompts) + sum(made.skipped.values()) == made.turns


def test_padding_and_batching_do_not_change_an_answer(tokenizer: Any) -> None:
    from trajectory_platform.training.model import build_model
    from trajectory_platform.training.recipe import ModelSpec

    spec = ModelSpec(hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, mlp=64)
    model = build_model(spec, tokenizer, max_length=3000, seed=3).eval()
    policy = ContextPolicy(max_length=3000, reply_tokens=8)
    prompts = build_prompts([trace(number) for number in range(3)], tokenizer, policy, ActionPlan(max_turns=8)).prompts
    alone = [actions._generate(model, tokenizer, [prompt], 8)[0] for prompt in prompts]
    together = actions._generate(model, tokenizer, prompts, 8)
    assert alone == together
