"""The base model of the miniature: its tokenizer keeps prompts as they are, and its folder is one a recipe can name."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.context import ContextPolicy, encode, prompt_ids
from trajectory_platform.miniature.base_model import (
    BaseSpec,
    build_base_tokenizer,
    make_base,
    protocol_messages,
    token_rows,
)
from trajectory_platform.miniature.drills import SPEECH, WORDS
from trajectory_platform.sandbox.tools import TOOLS
from trajectory_platform.training.pretraining import Pretraining
from trajectory_platform.training.recipe import ModelSpec, TokenizerSpec
from trajectory_platform.training.tokenizer import template_text, train_tokenizer

TINY = BaseSpec(
    model=ModelSpec(layers=1, hidden=16, heads=2, kv_heads=2, head_dim=8, mlp=16),
    training=Pretraining(steps=2, batch=2),
)


@pytest.fixture(scope="module")
def base_tokenizer() -> Any:
    return build_base_tokenizer("qwen3_training")


def dialogue() -> list[dict[str, Any]]:
    """A dialogue over the made-up products, in template form."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find a red cotton bag for 10 to 900 pesos."}]
    for message in protocol_messages():
        thought = {"content": "", "reasoning_content": "123456789 red want red same"}
        messages.append({**thought, **message} if message["role"] == "assistant" else message)
    return messages


def test_every_word_and_number_is_one_token_in_both_places_it_is_used(base_tokenizer: Any) -> None:
    for word in (*WORDS, *SPEECH):
        assert len(base_tokenizer(word)["input_ids"]) == len(base_tokenizer(f" {word}")["input_ids"]) == 1
    for number in ("7", "42", "007", "999"):
        assert len(base_tokenizer(number)["input_ids"]) == 1
    assert len(base_tokenizer("123456789")["input_ids"]) == 3


def test_prompts_are_the_templates_text_and_short(base_tokenizer: Any) -> None:
    ids, spans = encode(base_tokenizer, dialogue(), TOOLS)
    plain = train_tokenizer(["a"], [], TokenizerSpec(vocab=600), template_text("qwen3_training"))
    text = plain.apply_chat_template(dialogue(), tools=TOOLS, tokenize=False)
    assert base_tokenizer.decode(ids) == text
    assert len(ids) < 300 and len(spans) == 5
    written = [base_tokenizer.decode(ids[start:stop]) for start, stop in spans]
    assert all(one.startswith("<think>\n") and one.endswith("<|im_end|>\n") for one in written)


def test_the_prompt_of_a_turn_begins_like_the_whole_dialogue(base_tokenizer: Any) -> None:
    messages: list[dict[str, Any]] = []
    for number, message in enumerate(dialogue()):
        calls = [
            {"function": {"name": call["function"]["name"], "arguments": json.dumps(call["function"]["arguments"])}}
            for call in message.get("tool_calls") or []
        ]
        messages.append({**message, **({"tool_calls": calls} if calls else {"tool_call_id": f"call_{number}"})})
    whole, spans = encode(base_tokenizer, dialogue(), TOOLS)
    for (start, _), place in zip(spans, range(1, len(messages), 2), strict=True):
        policy = ContextPolicy(max_length=1024, reply_tokens=64)
        assert prompt_ids(base_tokenizer, messages[:place], TOOLS, policy) == whole[:start]


def test_drills_become_the_same_rows_again_with_labels_on_what_is_written(base_tokenizer: Any) -> None:
    spec = BaseSpec()
    rows = list(islice(token_rows(base_tokenizer, spec), 40))
    assert rows == list(islice(token_rows(base_tokenizer, spec), 40))
    for row in rows:
        assert len(row.input_ids) == len(row.labels)
        assert all(label in (-100, token) for token, label in zip(row.input_ids, row.labels, strict=True))
        assert any(label != -100 for label in row.labels)
    tokens = sum(len(row.input_ids) for row in rows) / len(rows)
    assert tokens < 200


@pytest.mark.slow
def test_the_folder_is_complete_or_absent_and_a_recipe_can_name_it(tmp_path: Path) -> None:
    from trajectory_platform.training.model import load_base

    told = make_base(tmp_path / "base", TINY)
    assert told["identity"] == TINY.identity() and told["steps"] == 2
    model, tokenizer = load_base(str(tmp_path / "base"), None)
    assert model.config.num_hidden_layers == 1 and model.get_input_embeddings().weight.shape[0] == len(tokenizer)
    assert make_base(tmp_path / "base", TINY, runner=_never) == told
    with pytest.raises(Abort, match="another spec"):
        make_base(tmp_path / "base", TINY.model_copy(update={"seed": 1}), runner=_never)
    with pytest.raises(FailPartition):
        make_base(tmp_path / "other", TINY, runner=_killed)
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_threads_do_not_name_a_model_and_everything_else_does() -> None:
    assert TINY.identity() == TINY.model_copy(update={"threads": 2}).identity()
    others = [TINY.model_copy(update={"seed": 5}), TINY.model_copy(update={"mix": {"pairs": 1.0}}), BaseSpec()]
    assert len({TINY.identity(), *(spec.identity() for spec in others)}) == 4


def _never(command: Any, env: Any) -> None:
    raise AssertionError("nothing is trained a second time")


def _killed(command: Any, env: Any) -> None:
    raise RuntimeError("killed")
