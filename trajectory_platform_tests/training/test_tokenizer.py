"""The tokenizer: any text comes back, the template's text stays the template's, the result depends on texts only."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.evaluation.context import encode
from trajectory_platform.identity import digest_json
from trajectory_platform.traces.rendering import chat_messages
from trajectory_platform.training.recipe import TokenizerSpec
from trajectory_platform.training.tokenizer import constant_texts, message_texts, template_text, train_tokenizer
from trajectory_platform_tests.training import shopping


@given(st.text(max_size=80))
@settings(max_examples=200)
def test_any_text_round_trips(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_constant_tokens_shorten_the_prompt_and_keep_its_text(tokenizer: Any) -> None:
    chat = chat_messages(shopping.messages(1)).messages
    text = tokenizer.apply_chat_template(chat, tools=shopping.TOOLS, tokenize=False)
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    plain = train_tokenizer(["find a teapot"], [], TokenizerSpec(vocab=600), tokenizer.chat_template)
    assert plain.apply_chat_template(chat, tools=shopping.TOOLS, tokenize=False) == text
    system = text[: text.index("<|im_start|>user")]
    assert len(tokenizer(system)["input_ids"]) < 30 < 100 < len(plain(system)["input_ids"])


def test_the_commonest_schemas_get_a_token_and_no_tools_get_none() -> None:
    rare = {"type": "function", "function": {"name": "rare"}}
    texts = constant_texts([shopping.TOOLS] * 3 + [[rare]])
    assert len(texts) == len(shopping.TOOLS) + 1 + 2 + 1
    assert all(json.dumps(tool) in texts[-1] for tool in shopping.TOOLS)  # the block with the commonest list of tools
    assert constant_texts([[], []]) == []


def test_the_glue_of_calls_and_results_shortens_a_trace_and_keeps_text_and_turns(tokenizer: Any) -> None:
    chat = chat_messages(shopping.messages(3)).messages
    text = tokenizer.apply_chat_template(chat, tools=shopping.TOOLS, tokenize=False)
    ids, spans = encode(tokenizer, chat, shopping.TOOLS)
    assert tokenizer.decode(ids) == text
    texts = [part for message in chat for part in message_texts([message])]
    plain = train_tokenizer(texts, constant_texts([shopping.TOOLS]), TokenizerSpec(vocab=1200), tokenizer.chat_template)
    others, other_spans = encode(plain, chat, shopping.TOOLS)
    assert len(ids) < 0.9 * len(others)
    # a constant token reaches over no border of a turn: the same text is trained with and without them
    for (start, stop), (first, last) in zip(spans, other_spans, strict=True):
        assert tokenizer.decode(ids[start:stop]) == plain.decode(others[first:last])
        assert tokenizer.decode(ids[start:stop]).endswith("<|im_end|>\n")


@pytest.mark.parametrize(
    "text",
    ["<think>\nI look.", '","title":"', "user\n<tool_response>\n[{", "</think>", '"}}\n</tool_call>tail', "\n\n"],
)
def test_text_that_holds_a_constant_or_a_part_of_one_round_trips(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.decode(tokenizer(f"a {text} b")["input_ids"]) == f"a {text} b"


def test_no_entry_of_the_vocabulary_is_spent_on_constant_text() -> None:
    constant = "an unusually long constant"
    texts = [f"red {constant} blue", f"blue {constant} red"] * 20
    vocabulary = train_tokenizer(texts, [constant], TokenizerSpec(vocab=600), "x").get_vocab()
    assert constant in vocabulary and "\u0120red" in vocabulary  # U+0120: how byte-level BPE writes a space
    assert not any("unus" in entry for entry in vocabulary if entry != constant)


def test_the_end_of_turn_is_not_the_padding(tokenizer: Any) -> None:
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.pad_token_id != tokenizer.eos_token_id


BUILD = """
from trajectory_platform.identity import digest_json
from trajectory_platform.training.recipe import TokenizerSpec
from trajectory_platform.training.tokenizer import train_tokenizer
from trajectory_platform_tests.training import shopping
texts = [m["content"] for n in range(19, -1, -1) for m in shopping.messages(n)]
print(digest_json(train_tokenizer(texts, [], TokenizerSpec(vocab=900), "x").get_vocab()))
"""


def test_the_same_texts_give_the_same_vocabulary_in_any_process_and_order() -> None:
    texts = [message["content"] for number in range(20) for message in shopping.messages(number)]
    here = digest_json(train_tokenizer(texts, [], TokenizerSpec(vocab=900), "x").get_vocab())
    environment = {"PYTHONHASHSEED": "2", "PATH": "", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", BUILD]
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert here == there


def test_the_template_is_a_training_variant() -> None:
    assert "{%- generation %}" in template_text("qwen3_training")
