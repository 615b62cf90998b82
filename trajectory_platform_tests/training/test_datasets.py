"""Rows for training: masks, cuts, leaks, and the faults of cases/ B and C14."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.context import ContextPolicy, Turn, prompt_ids
from trajectory_platform.evaluation.guard import assert_no_overlap
from trajectory_platform.evaluation.launch import evaluate_actions
from trajectory_platform.evaluation.plan import ActionPlan
from trajectory_platform.training.datasets import (
    IGNORED,
    Built,
    TraceRow,
    build_examples,
    duplicates_of,
    preflight,
    renderable,
    roles_of,
    rows_of,
)
from trajectory_platform.training.tokenizer import template_text
from trajectory_platform_tests.training import shopping

POLICY = ContextPolicy(max_length=2000, reply_tokens=100)


def case(shared: Path, name: str) -> Any:
    return json.loads((shared / "cases" / f"{name}.json").read_text())


def row(messages: Any, tools: Any = (), trace_id: str = "run:problem") -> TraceRow:
    return TraceRow(trace_id, "cluster", list(messages), list(tools))


def shop_rows(count: int) -> list[TraceRow]:
    return [row(shopping.messages(number), shopping.TOOLS, f"run:{number:03d}") for number in range(count)]


def trained_text(tokenizer: Any, built: Built, trace_id: str) -> list[str]:
    return [
        tokenizer.decode(example.input_ids[turn.start : turn.stop])
        for example in built.examples[trace_id]
        for turn in example.context.turns
    ]


def test_the_loss_falls_on_every_assistant_turn_and_on_nothing_else(tokenizer: Any) -> None:
    rows = shop_rows(6)
    built = build_examples(rows, tokenizer, POLICY, max_lost_share=0)
    report = preflight(built, rows, tokenizer, POLICY)
    assert report["trained_tokens"]["assistant"] == built.report["tokens_with_loss"] > 0
    assert {report["trained_tokens"][role] for role in ("tool", "user", "system")} == {0}
    for trace in rows:
        texts = trained_text(tokenizer, built, trace.trace_id)
        replies = [message for message in trace.messages if message["role"] == "assistant"]
        assert len(texts) == len(replies)
        for text, reply in zip(texts, replies, strict=True):
            assert text.startswith(f"<think>\n{reply['reasoning_content']}\n</think>")
            assert reply["tool_calls"][0]["function"]["name"] in text and text.endswith("<|im_end|>\n")


def test_every_example_keeps_trace_and_cluster(tokenizer: Any) -> None:
    rows = [replace(entry, leak_cluster=f"c-{entry.trace_id}") for entry in shop_rows(4)]
    built = build_examples(rows, tokenizer, ContextPolicy(max_length=500, reply_tokens=90), max_lost_share=1)
    examples = [example for group in built.examples.values() for example in group]
    assert len(examples) > len(rows)
    assert all(example.leak_cluster == f"c-{example.trace_id}" for example in examples)


def test_preflight_stops_when_a_label_lies_on_a_tool_result(tokenizer: Any) -> None:
    rows = shop_rows(1)
    built = build_examples(rows, tokenizer, POLICY, max_lost_share=0)
    example = built.examples["run:000"][0]
    tool = roles_of(tokenizer, example.input_ids).index("tool")
    example.labels[tool + 1] = example.input_ids[tool + 1]
    with pytest.raises(FailPartition, match="tool"):
        preflight(built, rows, tokenizer, POLICY)


def test_preflight_stops_when_the_trained_text_is_not_the_turn(tokenizer: Any) -> None:
    rows = shop_rows(1)
    built = build_examples(rows, tokenizer, POLICY, max_lost_share=0)
    example = built.examples["run:000"][0]
    first = example.context.turns[0]
    example.context.turns[0] = Turn(first.number, first.start + 1, first.stop)
    with pytest.raises(FailPartition, match="run:000, turn 0"):
        preflight(built, rows, tokenizer, POLICY)


def test_b01_every_turn_is_trained_with_its_own_thinking(tokenizer: Any, shared: Path) -> None:
    rows = [row(case(shared, "B01")["input"])]
    built = build_examples(rows, tokenizer, POLICY, max_lost_share=0)
    texts = trained_text(tokenizer, built, "run:problem")
    assert "plan A" in texts[0] and "plan B" in texts[1]
    stock = tokenizer.apply_chat_template(rows[0].messages, chat_template=template_text("qwen3"), tokenize=False)
    assert "plan B" in stock and "plan A" not in stock  # why the stock template is not used


def test_b03_a_template_without_markers_fails_before_training(tokenizer: Any, shared: Path) -> None:
    given = case(shared, "B03")["input"]
    marked = tokenizer.chat_template
    try:
        tokenizer.chat_template = given["chat_template"]
        with pytest.raises(FailPartition, match="row-b03.*template"):
            build_examples([row(given["rows"][0]["messages"], (), "row-b03")], tokenizer, POLICY, max_lost_share=1)
    finally:
        tokenizer.chat_template = marked


def test_b04_a_row_without_trained_tokens_is_dropped_counted_and_limited(tokenizer: Any, shared: Path) -> None:
    given = case(shared, "B04")
    rows = [row(entry["messages"], (), entry["id"]) for entry in given["input"]["rows"]]
    policy = ContextPolicy(max_length=given["input"]["max_length"], reply_tokens=16)
    built = build_examples(rows, tokenizer, policy, max_lost_share=0.5)
    assert [(entry["trace_id"], entry["reason"]) for entry in built.report["dropped_rows"]] == [
        ("row-b04", given["expect"]["reason"])
    ]
    assert list(built.examples) == ["row-b04-ok"]
    with pytest.raises(FailPartition, match="row-b04"):
        build_examples(rows, tokenizer, policy, max_lost_share=0.4)


def test_b06_padding_follows_the_lengths_not_the_token(shared: Path) -> None:
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    given = case(shared, "B06")
    lengths = [sum(mask) for mask in given["input"]["attention_mask"]]
    rows = [ids[:length] for ids, length in zip(given["input"]["input_ids"], lengths, strict=True)]
    collator = DataCollatorForLanguageModeling(pad_token_id=given["input"]["pad_id"])
    batch = collator([{"input_ids": ids, "labels": list(ids)} for ids in rows])
    assert batch["labels"].tolist() == given["expect"]["labels"]


@pytest.mark.parametrize("name", ["B07", "B09"])
def test_b07_b09_arguments_of_other_rows_never_leak_in(tokenizer: Any, shared: Path, tmp_path: Path, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    records = []
    for number, entry in enumerate(case(shared, name)["input"]):
        arguments = json.dumps(entry["arguments"], separators=(",", ":"))
        messages = [{"role": "user", "content": "go"}, shopping_call(arguments)]
        tools = json.dumps(entry.get("tools", []))
        records.append(
            {"trace_id": f"r{number}", "leak_cluster": "c", "messages": json.dumps(messages), "tools": tools}
        )
    parquet.write_table(pa.Table.from_pylist(records), tmp_path / "rows.parquet")
    rows, dropped = rows_of(parquet.read_table(tmp_path / "rows.parquet"))
    assert not dropped
    built = build_examples(rows, tokenizer, POLICY, max_lost_share=0)
    for number, entry in enumerate(case(shared, name)["input"]):
        text = tokenizer.decode(built.examples[f"r{number}"][0].input_ids)
        assert f'"arguments": {json.dumps(entry["arguments"])}}}' in text
        assert [json.loads(records[number]["tools"]), json.loads(records[number]["messages"])] == [
            rows[number].tools,
            rows[number].messages,
        ]


def shopping_call(arguments: str) -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": "find_product", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def test_b11_a_row_with_a_long_result_is_kept_and_the_result_not_trained(tokenizer: Any, shared: Path) -> None:
    given = case(shared, "B11")["input"]
    rows = [row(given["messages"], shopping.TOOLS, given["trajectory_id"])]
    built = build_examples(rows, tokenizer, POLICY, max_lost_share=0)
    trained = preflight(built, rows, tokenizer, POLICY)["trained_tokens"]
    assert trained["assistant"] > 0 and {trained[role] for role in ("tool", "user", "system")} == {0}


def test_b12_four_spellings_of_no_tools_are_one_row(tokenizer: Any, shared: Path) -> None:
    import pyarrow as pa

    records = [
        {
            "trace_id": entry["id"],
            "leak_cluster": "c",
            "messages": json.dumps(entry["messages"]),
            "tools": entry.get("tools"),
        }
        for entry in [{"tools": "null", **case(shared, "B12")["input"][0]}, *case(shared, "B12")["input"][1:]]
    ]
    rows, _ = rows_of(pa.Table.from_pylist(records))
    built = build_examples(rows, tokenizer, POLICY, max_lost_share=0)
    assert len({tuple(group[0].input_ids) for group in built.examples.values()}) == 1
    assert [entry["duplicate_of"] for entry in duplicates_of(rows)] == ["r1", "r1", "r1"]


def test_c14_a_missing_evaluation_set_is_an_error(window: Any, shared: Path) -> None:
    with pytest.raises(FailPartition, match=case(shared, "C14")["expect"]["reason"]):
        evaluate_actions(
            checkpoint="nowhere",
            day="2026-05-02",
            stage="sft",
            splits=None,
            corpus=window.corpus,
            trained=window.corpus,
            plan=ActionPlan(),
        )


@pytest.mark.parametrize("shared_key", ["trace_id", "cluster_id", "problem_key", "content_hash"])
def test_the_guard_names_both_rows(shared_key: str) -> None:
    train = shopping.split_row(1, "train")
    dev = {**shopping.split_row(2, "dev"), shared_key: train[shared_key]}
    with pytest.raises(FailPartition) as caught:
        assert_no_overlap([train], [dev])
    assert train["trace_id"] in str(caught.value) and dev["trace_id"] in str(caught.value)
    assert_no_overlap([train], [shopping.split_row(2, "dev")])


def test_rows_that_cannot_be_rendered_are_reported_with_the_reason() -> None:
    forged = row([{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "x"}])
    good, dropped = renderable([forged, *shop_rows(2)], POLICY)
    assert len(good) == 2 and dropped[0]["reason"] == "control_token_in_text"


def test_rows_that_cannot_be_read_are_reported_with_the_reason() -> None:
    import pyarrow as pa

    records = [{**shopping.record(1), "messages": "{cut"}, shopping.record(2)]
    rows, dropped = rows_of(pa.Table.from_pylist(records))
    assert len(rows) == 1 and [entry["reason"] for entry in dropped] == ["bad_messages"]


def test_labels_are_the_ids_inside_turns_and_ignored_outside(tokenizer: Any) -> None:
    built = build_examples(shop_rows(1), tokenizer, POLICY, max_lost_share=0)
    example = built.examples["run:000"][0]
    inside = {at for turn in example.context.turns for at in range(turn.start, turn.stop)}
    for at, (token, label) in enumerate(zip(example.input_ids, example.labels, strict=True)):
        assert label == (token if at in inside else IGNORED)


@pytest.fixture(scope="module")
def qwen_like(recipe: Any) -> Any:
    """A tokenizer that, as Qwen's, composes accents and has tokens of several line ends."""
    from tokenizers import normalizers

    from trajectory_platform.training.tokenizer import train_tokenizer

    texts = ["one\n\ntwo \n\n", "assistant\n\n", *map(json.dumps, shopping.TOOLS)] * 20
    made = train_tokenizer(texts, [], recipe.tokenizer, template_text("qwen3_training"))
    made.backend_tokenizer.normalizer = normalizers.NFC()
    return made


@pytest.mark.parametrize("template", ["qwen3_training", "qwen3_instruct_2507_training"])
@pytest.mark.parametrize("text", ["cafe\u0301", "\n\nwell", " \n \nwell", "\r\nwell", "\u212b", "\n", " well"])
def test_odd_text_of_one_row_neither_stops_the_run_nor_moves_the_begin_of_a_turn(
    qwen_like: Any, template: str, text: str
) -> None:
    qwen_like.chat_template = template_text(template)
    call = {"id": "call_0", "type": "function", "function": {"name": "terminate", "arguments": json.dumps({"q": text})}}
    answer = {"role": "tool", "tool_call_id": "call_0", "content": text}
    spoken = {"role": "assistant", "content": text, "reasoning_content": text}
    odd = row([{"role": "user", "content": text}, {**spoken, "tool_calls": [call]}, answer, spoken], shopping.TOOLS)
    built = build_examples([odd], qwen_like, POLICY, max_lost_share=0.0)
    preflight(built, [odd], qwen_like, POLICY)
    (example,) = built.examples[odd.trace_id]
    for turn, place in zip(example.context.turns, (1, 3), strict=True):
        asked = prompt_ids(qwen_like, odd.messages[:place], odd.tools, POLICY)
        assert asked == example.input_ids[: turn.start]
