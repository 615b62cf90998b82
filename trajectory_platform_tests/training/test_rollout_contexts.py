"""What a model is trained on is what it is asked with: token for token, in traces of the arena and in rollouts.

Three ways lead to the tokens before an assistant turn: the training rows (``contexts_of``), the function for inference
(``prompt_ids``), and what the policy of the rollout loop reports that it was asked with (``keep_tokens``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from trajectory_platform.errors import RejectRow
from trajectory_platform.evaluation import policy_transformers
from trajectory_platform.evaluation.context import ContextPolicy, contexts_of, prompt_ids
from trajectory_platform.evaluation.environment import Call
from trajectory_platform.evaluation.generation import Generated, Wanted
from trajectory_platform.evaluation.policy_transformers import TransformersPolicy
from trajectory_platform.sandbox.tools import TOOLS
from trajectory_platform.traces.rendering import FOLDED_RESULT
from trajectory_platform.training.datasets import IGNORED, TraceRow, build_examples, preflight
from trajectory_platform_tests.evaluation.policy_requests import drive, request, task

WIDE = ContextPolicy(max_length=16_000, reply_tokens=600)


def tight(tokenizer: Any, room: int) -> ContextPolicy:
    """Results are cut, and ``room`` tokens of history fit beside the tools: long traces are folded and split."""
    block = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tools=TOOLS, return_dict=False)
    whole = len(block) + room
    return ContextPolicy(max_length=2 * whole, reply_tokens=whole, max_result_chars=300)


@pytest.fixture
def saying(monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> Callable[..., TransformersPolicy]:
    """A policy whose model says given texts, turn by turn; all the rest of it is as in a real rollout."""

    def policy(context: ContextPolicy, texts: list[str]) -> TransformersPolicy:
        waiting = iter(texts)

        def generate(model: Any, wanted: list[Wanted], **_: Any) -> list[Generated]:
            ids = [[*tokenizer(next(waiting))["input_ids"], tokenizer.eos_token_id] for _ in wanted]
            return [Generated(one, [0.0] * len(one), True) for one in ids]

        monkeypatch.setattr(policy_transformers, "generate", generate)
        return TransformersPolicy(None, tokenizer, context, name="checkpoint:test", keep_tokens=True)

    return policy


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every readable trace of a simulated day, whatever its axis."""
    from trajectory_platform.arena.simulate import simulate
    from trajectory_platform.settings import Settings
    from trajectory_platform.stages.folder import normalise_rows, open_folder

    root = tmp_path_factory.mktemp("arena")
    day = simulate(root, days=1, traces_per_day=60, seed=5).days[0].isoformat()
    rows = [row for row in normalise_rows(open_folder(Settings(), str(root / day))) if row["readable"]]
    assert len(rows) > 40 and {row["axis"]["label"] for row in rows} >= {"A", "B"}
    return rows


@pytest.mark.parametrize("room", [None, 500], ids=["wide", "tight"])
def test_every_turn_of_arena_traces_is_asked_as_it_is_trained(
    tokenizer: Any, arena: list[dict[str, Any]], saying: Callable[..., TransformersPolicy], room: int | None
) -> None:
    context = WIDE if room is None else tight(tokenizer, room)
    seen: Counter[str] = Counter()
    for row in arena[:14] if room is None else arena[14:]:
        messages = row["messages"]
        assert row["tools"] == TOOLS  # one tool schema in training rows and in rollouts
        try:
            found = contexts_of(tokenizer, messages, row["tools"], context)
        except RejectRow:
            seen["unrenderable"] += 1
            continue
        assistant = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
        policy = saying(context, [""] * len(assistant))
        for one in found.contexts:
            for turn in one.turns:
                history = messages[: assistant[turn.number]]
                trained = one.input_ids[: turn.start]
                assert prompt_ids(tokenizer, history, TOOLS, context) == trained
                reply = policy.reply_now(request(task(), turn=turn.number, messages=history))
                assert reply.extra["prompt_ids"] == trained
                seen["turns"] += 1
                seen["several_calls"] += len(messages[assistant[turn.number]].get("tool_calls") or []) > 1
                seen["thinking"] += bool(messages[assistant[turn.number]].get("reasoning_content"))
            seen["folded"] += one.folded
        seen["cut"] += found.cut_results
        seen["split"] += len(found.contexts) > 1
    assert seen["turns"] > 40 and seen["thinking"] and seen["several_calls"]
    if room is not None:
        assert seen["folded"] and seen["cut"] and seen["split"]


# canonical messages hold arguments in the order of their names, so that is how a trained model writes them
SEARCH: list[Call] = [("find_product", {"q": "mug"}), ("find_product", {"page": 1, "price": "-200", "q": "blue"})]
SCRIPT: list[tuple[str, list[Call]]] = [
    ("I look for mugs and for blue things.", SEARCH),
    ("Two are blue.\nI open both.", [("view_product_information", {"product_ids": "m1,m2"})]),
    ("", [("find_product", {"page": 2, "q": 'a "quoted" mug, 50 % off \u2013 \u20b1'})]),
    ("m2 is blue at 120.", [("recommend_product", {"product_ids": "m2"})]),
    ("Done.", [("terminate", {"status": "success"})]),
]


def written(tokenizer: Any, think: str, calls: list[Call]) -> str:
    """A reply as the template prints it: what a trained model writes."""
    made = [{"type": "function", "function": {"name": name, "arguments": given}} for name, given in calls]
    message = {"role": "assistant", "content": "", "reasoning_content": think, "tool_calls": made}
    history = [{"role": "user", "content": "x"}]
    before = tokenizer.apply_chat_template(history, tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template([*history, message], tokenize=False)
    return str(whole[len(before) :].removesuffix("<|im_end|>\n"))


@pytest.mark.parametrize("room", [None, 300], ids=["wide", "folded"])
def test_a_rollout_is_asked_and_answers_with_the_tokens_of_its_training_row(
    tokenizer: Any, saying: Callable[..., TransformersPolicy], room: int | None
) -> None:
    texts = [written(tokenizer, think, calls) for think, calls in SCRIPT]
    context = WIDE if room is None else tight(tokenizer, room)
    [rollout] = drive(saying(context, texts), [task()]).values()
    assert rollout.ending.reason == "terminate"
    row = TraceRow("run:rollout", "cluster", rollout.environment.messages, TOOLS)
    built = build_examples([row], tokenizer, context, max_lost_share=0)
    preflight(built, [row], tokenizer, context)
    examples = built.examples[row.trace_id]
    turns = [(example, turn) for example in examples for turn in example.context.turns]
    assert len(turns) == len(SCRIPT) == len(rollout.extras)
    for number, ((example, turn), extra) in enumerate(zip(turns, rollout.extras, strict=True)):
        assert turn.number == number
        assert example.input_ids[: turn.start] == extra["prompt_ids"]
        trained = example.labels[turn.start : turn.stop]
        assert IGNORED not in trained and tokenizer.decode(trained) == f"{texts[number]}<|im_end|>\n"
        assert trained[: len(extra["token_ids"])] == extra["token_ids"]
    if room is not None:
        assert any(example.context.folded for example in examples)
        assert FOLDED_RESULT in tokenizer.decode(turns[-1][0].input_ids)
