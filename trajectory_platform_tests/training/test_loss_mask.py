"""The picture of a training row says of every token whether it is trained, and what it is part of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.traces.rendering import chat_messages
from trajectory_platform.training.datasets import IGNORED, Example, build_examples
from trajectory_platform.training.loss_mask import (
    LOSS_MASK,
    SHOWN,
    kto_mask,
    pieces_of,
    read_loss_mask,
    sft_mask,
)
from trajectory_platform.training.recipe import Recipe, parse_recipe
from trajectory_platform.training.turn_examples import build_turns
from trajectory_platform_tests.training import judged_traces as made
from trajectory_platform_tests.training import shopping


@pytest.fixture(scope="module")
def mask_recipe() -> Recipe:
    return parse_recipe(made.RECIPE)


@pytest.fixture(scope="module")
def words(mask_recipe: Recipe) -> Any:
    from trajectory_platform.training.tokenizer import build_tokenizer

    rows = [(chat_messages(shopping.messages(number)).messages, shopping.TOOLS) for number in range(30)]
    return build_tokenizer(rows, mask_recipe)


def examples_of(words: Any, recipe: Recipe, count: int = 5) -> list[Example]:
    rows = [made.row(shopping.messages(number), number=number, role="train") for number in range(count)]
    built = build_examples(rows, words, recipe.context, max_lost_share=0)
    return [example for group in built.examples.values() for example in group]


def text_of(mask: dict[str, Any], *, trained: bool) -> str:
    shown = [stretch for stretch in mask["stretches"] if stretch["trained"] is trained]
    return "".join(piece for stretch in shown for piece in [*stretch["pieces"], *stretch["end"]])


def test_every_token_of_the_row_is_in_it_once(words: Any, mask_recipe: Recipe) -> None:
    examples = examples_of(words, mask_recipe)
    mask = sft_mask(examples, words)
    assert mask is not None
    chosen = next(one for one in examples if one.trace_id == mask["trace_id"])
    assert mask["tokens"] == len(chosen.input_ids) == sum(stretch["tokens"] for stretch in mask["stretches"])
    assert mask["trained_tokens"] == sum(label != IGNORED for label in chosen.labels)
    assert text_of(mask, trained=True) == words.decode(
        [label for label in chosen.labels if label != IGNORED], skip_special_tokens=False
    )


def test_what_is_trained_is_the_models_own_text_turn_by_turn(words: Any, mask_recipe: Recipe) -> None:
    mask = sft_mask(examples_of(words, mask_recipe), words)
    assert mask is not None
    trained = [stretch for stretch in mask["stretches"] if stretch["trained"]]
    assert [stretch["turn"] for stretch in trained] == list(range(len(trained)))
    assert {stretch["role"] for stretch in trained} == {"assistant"}
    assert "<tool_response>" not in text_of(mask, trained=True) and "<tool_response>" in text_of(mask, trained=False)
    roles = {stretch["role"] for stretch in mask["stretches"]}
    assert roles == {"system", "user", "assistant", "tool"}


def test_of_a_preference_row_only_the_turn_is_trained_and_the_label_is_told(words: Any, mask_recipe: Recipe) -> None:
    built = build_turns(made.mixed_rows(), words, mask_recipe.context)
    mask = kto_mask(built.examples, words)
    assert mask is not None and mask["label"] is False and mask["role"] == "undesirable" and mask["faults"]
    trained = [stretch for stretch in mask["stretches"] if stretch["trained"]]
    assert len(trained) == 1 and trained[0] is mask["stretches"][-1]
    desirable = kto_mask([one for one in built.examples if one.label], words)
    assert desirable is not None and desirable["label"] is True and desirable["faults"] == []


def test_the_same_rows_give_the_same_picture_in_any_order(words: Any, mask_recipe: Recipe) -> None:
    examples = examples_of(words, mask_recipe)
    assert sft_mask(examples, words) == sft_mask(examples[::-1], words)
    assert sft_mask([], words) is None and kto_mask([], words) is None


def test_a_character_of_several_tokens_is_one_piece(words: Any) -> None:
    text = "blue \U0001f642 \u4e2d\u6587 lamp \u00e9"
    pieces = pieces_of(words, words(text, add_special_tokens=False)["input_ids"])
    assert "".join(pieces) == text and not any("\ufffd" in piece for piece in pieces)
    cut = pieces_of(words, words("\U0001f642", add_special_tokens=False)["input_ids"][:-1])
    assert len(cut) == 1  # half a character is shown as what it is


def test_long_stretches_are_shortened_and_say_so(words: Any, mask_recipe: Recipe) -> None:
    steps = [made.search(), made.view(), made.recommend(thought="3001 is blue and fits, " * 300), made.end()]
    policy = mask_recipe.context.model_copy(update={"max_length": 8000, "reply_tokens": 4000})
    rows = [made.row(steps, role="train")]
    built = build_examples(rows, words, policy, max_lost_share=0)
    mask = sft_mask(built.examples["run:000"], words)
    assert mask is not None
    long = [stretch for stretch in mask["stretches"] if stretch["tokens"] > SHOWN]
    assert long and all(stretch["left_out"] == stretch["tokens"] - SHOWN for stretch in long)
    assert all(stretch["left_out"] == 0 for stretch in mask["stretches"] if stretch["tokens"] <= SHOWN)
    assert len(json.dumps(mask)) < 60_000


def test_a_picture_is_read_back_and_a_damaged_one_is_none(words: Any, mask_recipe: Recipe, tmp_path: Path) -> None:
    assert read_loss_mask(tmp_path) is None
    mask = sft_mask(examples_of(words, mask_recipe), words)
    (tmp_path / LOSS_MASK).write_text(json.dumps(mask))
    assert read_loss_mask(tmp_path) == mask
    for text in ("{cut", "[]", '{"version": 99}'):
        (tmp_path / LOSS_MASK).write_text(text)
        assert read_loss_mask(tmp_path) is None
