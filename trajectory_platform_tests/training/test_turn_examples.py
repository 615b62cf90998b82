"""Turn examples: exact ids, strict labels, lineage, contradictions and copies; weights of the classes; the order."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import FailPartition, RejectRow
from trajectory_platform.evaluation.context import prompt_ids
from trajectory_platform.traces.rendering import chat_messages
from trajectory_platform.training.class_weights import class_weights
from trajectory_platform.training.datasets import TraceRow
from trajectory_platform.training.preference_order import plan_turns
from trajectory_platform.training.recipe import Recipe, parse_recipe
from trajectory_platform.training.stage_recipes import Amount
from trajectory_platform.training.turn_examples import (
    Source,
    TurnExample,
    build_turns,
    label_of,
    limited,
    preflight_turns,
)
from trajectory_platform_tests.training import judged_traces as made
from trajectory_platform_tests.training import shopping

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
GOOD = [made.search(), made.view(), made.recommend(), made.end()]


@pytest.fixture(scope="module")
def kto_recipe() -> Recipe:
    return parse_recipe(made.RECIPE).resolved(7)


@pytest.fixture(scope="module")
def words(kto_recipe: Recipe) -> Any:
    from trajectory_platform.training.tokenizer import build_tokenizer

    rows = [(chat_messages(shopping.messages(number)).messages, shopping.TOOLS) for number in range(30)]
    return build_tokenizer(rows, kto_recipe)


def example(number: int, label: bool, length: int = 10, weight: float = 1.0) -> TurnExample:
    source = Source(f"run:{number:03d}", f"cluster-{number:03d}", 0, weight)
    return TurnExample((source,), label, [1] * length, [2, number])


def many(desirable: int, undesirable: int) -> list[TurnExample]:
    return [example(number, number < desirable, 5 + number % 7) for number in range(desirable + undesirable)]


def test_the_prompt_is_what_inference_sends_and_the_completion_is_the_turn(words: Any, kto_recipe: Recipe) -> None:
    rows = made.mixed_rows(6)
    built = build_turns(rows, words, kto_recipe.context, blame="all")
    by_id = {row.trace_id: row for row in rows}
    assert len(built.examples) == sum(m["role"] == "assistant" for row in rows for m in row.messages)
    for one in built.examples:
        trace_id, turn = one.key
        messages = by_id[trace_id].messages
        places = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
        assert one.prompt_ids == prompt_ids(words, messages[: places[turn]], shopping.TOOLS, kto_recipe.context)
        text = words.decode(one.completion_ids)
        assert text.rstrip().endswith("<|im_end|>") and text.count("<|im_end|>") == 1
        assert messages[places[turn]]["reasoning_content"] in text and "<tool_response>" not in text


def test_long_traces_lose_old_results_before_a_turn_as_inference_does(words: Any, kto_recipe: Recipe) -> None:
    policy = kto_recipe.context.model_copy(update={"max_length": 700, "reply_tokens": 128})
    steps = [made.search(price=f"0-{page}00") for page in range(1, 7)]
    rows = [made.row([*steps, *GOOD[1:]], role="desirable")]
    built = build_turns(rows, words, policy)
    assert {one.key[1] for one in built.examples} == set(range(9))
    assert all(one.tokens <= 700 for one in built.examples)
    sizes = [len(one.prompt_ids) for one in built.examples]
    assert sizes != sorted(sizes)  # something was left out on the way
    for one in built.examples:
        place = [at for at, m in enumerate(rows[0].messages) if m["role"] == "assistant"][one.key[1]]
        assert one.prompt_ids == prompt_ids(words, rows[0].messages[:place], shopping.TOOLS, policy)


def test_a_turn_that_fits_nowhere_is_reported_never_cut(words: Any, kto_recipe: Recipe) -> None:
    long = made.recommend(thought="word " * 1500)
    built = build_turns([made.row([*GOOD[:2], long, made.end()], role="desirable")], words, kto_recipe.context)
    assert built.report["cut_rows"] == [
        {"trace_id": "run:000", "role": "desirable", "turns": [2, 3], "reasons": ["history_too_long", "reply_too_long"]}
    ]
    assert {one.key[1] for one in built.examples} == {0, 1}


def test_of_a_desirable_trace_only_faulty_turns_are_left_out(words: Any, kto_recipe: Recipe) -> None:
    steps = [made.search(price="cheap"), *GOOD[1:]]
    built = build_turns([made.row(steps, role="desirable")], words, kto_recipe.context)
    assert [one.key[1] for one in built.examples] == [1, 2, 3] and all(one.label for one in built.examples)
    assert built.report["faulty_turns_of_desirable"] == 1


def test_of_an_undesirable_trace_only_blamed_turns_are_taken(words: Any, kto_recipe: Recipe) -> None:
    rows = [made.row(GOOD, situation="failure", outcome_success=False)]
    built = build_turns(rows, words, kto_recipe.context)
    assert [(one.key[1], one.label, one.faults) for one in built.examples] == [
        (1, False, ("wrong_choice",)),
        (2, False, ("wrong_end",)),
    ]
    assert built.report["neutral_turns"] == 2
    assert built.report["blamed_for"] == {"wrong_choice": 1, "wrong_end": 1}
    whole = build_turns(rows, words, kto_recipe.context, blame="all")
    assert [one.key[1] for one in whole.examples] == [0, 1, 2, 3]


def test_the_same_turn_with_both_labels_is_dropped_and_counted(words: Any, kto_recipe: Recipe) -> None:
    rows = [
        made.row(GOOD, number=1, role="desirable"),
        made.row(GOOD, number=2, situation="failure", outcome_success=False),
    ]
    built = build_turns(rows, words, kto_recipe.context)
    assert [(one.key, one.label) for one in built.examples] == [(("run:001", 0), True), (("run:001", 3), True)]
    assert built.report["contradictory_turns"] == 4


def test_exact_copies_are_one_example_that_knows_all_its_sources(words: Any, kto_recipe: Recipe) -> None:
    rows = [made.row(GOOD, number=number, role="desirable") for number in (3, 1, 2)]
    built = build_turns(rows, words, kto_recipe.context)
    assert len(built.examples) == 4 and built.report["merged_copies"] == 8
    assert [source.trace_id for source in built.examples[0].sources] == ["run:001", "run:002", "run:003"]
    assert built.examples[0].weight == 3.0 and built.report["rows_used"] == 3
    assert built.examples == build_turns(rows[::-1], words, kto_recipe.context).examples


def test_labels_are_strict() -> None:
    labels = {True: True, False: False, "true": True, "false": False, "desirable": True, "undesirable": False}
    assert {value: label_of(value) for value in labels} == labels
    odd: tuple[object, ...] = (None, 1, 0, "", "False", "train", [])
    for wrong in odd:
        with pytest.raises(RejectRow, match="bad_label"):
            label_of(wrong)


def test_a_row_of_another_role_is_dropped_with_a_reason(words: Any, kto_recipe: Recipe) -> None:
    built = build_turns([made.row(GOOD, role="train")], words, kto_recipe.context)
    assert not built.examples and built.report["dropped_rows"][0]["reason"] == "bad_label"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not here")
@pytest.mark.parametrize("case", ["C01", "C03", "C11"])
def test_the_shared_cases(case: str, words: Any, kto_recipe: Recipe) -> None:
    given = json.loads((SHARED / "cases" / f"{case}.json").read_text())["input"]
    if case == "C11":  # a pair becomes two rows, each with the lineage of the pair
        pair = given[0]
        lineage = {"id": pair["trajectory_id"], "leak_cluster": pair["leak_cluster"], "prompt": pair["prompt"]}
        given = [{**lineage, "label": key == "chosen", "completion": pair[key]} for key in ("chosen", "rejected")]
    rows = [
        TraceRow(
            one["id"],
            one.get("leak_cluster", f"cluster-{one['id']}"),
            [*one["prompt"], {**one["completion"][0], "tool_calls": [shopping.call(0, "terminate", status="success")]}],
            [],
            role="desirable" if label_of(one["label"]) else "undesirable",
        )
        for one in given
    ]
    examples = build_turns(rows, words, kto_recipe.context).examples
    amount = Amount(batch=16, sampling="uniform")
    if case == "C01":
        assert len(examples) == 4
        with pytest.raises(FailPartition, match="one_class"):
            preflight_turns(examples, rows, words, kto_recipe.context)
    if case == "C03":
        plan = plan_turns(examples, amount, 3, micro_batch=16)
        assert plan.counts == (9, 1) and len(plan.batches) == 1
        weights = class_weights(*plan.counts, "auto", "auto")
        assert (weights.desirable, weights.undesirable, weights.ratio) == (1.0, 9.0, 1.0)
    if case == "C11":
        assert sorted(one.label for one in examples) == [False, True]
        assert {one.sources[0][:2] for one in examples} == {("traj-c11", "lc-4")}


def test_a_row_that_cannot_be_read_is_dropped_with_a_reason(words: Any, kto_recipe: Recipe) -> None:
    odd: list[list[dict[str, Any]]] = [
        [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "x"}],
        [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"name": "find_product"}]}],
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": "<think>"}],
        [{"role": "user", "content": 5}],
    ]
    rows = [TraceRow(f"r{number}", "c", messages, [], role="undesirable") for number, messages in enumerate(odd)]
    built = build_turns(rows, words, kto_recipe.context)
    assert [entry["reason"] for entry in built.report["dropped_rows"]] == [
        "control_token_in_text",
        "bad_messages",
        "tag_in_reply",
        "bad_messages",
    ]


def test_a_row_without_lineage_stops_everything(words: Any, kto_recipe: Recipe) -> None:
    row = made.row(GOOD, role="desirable")
    with pytest.raises(FailPartition, match="lineage"):
        build_turns([TraceRow(row.trace_id, "", row.messages, row.tools, role="desirable")], words, kto_recipe.context)


def test_preflight_names_what_is_missing(words: Any, kto_recipe: Recipe) -> None:
    rows = made.mixed_rows(6)
    examples = build_turns(rows, words, kto_recipe.context).examples
    told = preflight_turns(examples, rows, words, kto_recipe.context)
    assert told["trained_tokens"]["tool"] == 0 < told["trained_tokens"]["assistant"]
    for label in (True, False):
        with pytest.raises(FailPartition, match="one_class"):
            preflight_turns([one for one in examples if one.label is label], rows, words, kto_recipe.context)
    with pytest.raises(FailPartition, match="too_few_turns"):
        preflight_turns(examples, rows, words, kto_recipe.context, least=50)
    broken = [examples[0]._replace(prompt_ids=examples[0].prompt_ids[1:]), *examples[1:]]
    with pytest.raises(FailPartition, match="inference would send"):
        preflight_turns(broken, rows, words, kto_recipe.context, sample=len(broken))
    endless = [examples[0]._replace(completion_ids=examples[0].completion_ids[:3]), *examples[1:]]
    with pytest.raises(FailPartition, match="end of the turn"):
        preflight_turns(endless, rows, words, kto_recipe.context)


@pytest.mark.parametrize(
    ("counts", "given", "wanted"),
    [
        ((9, 1), ("auto", "auto"), (1.0, 9.0)),
        ((1, 9), ("auto", "auto"), (9.0, 1.0)),
        ((5, 5), ("auto", "auto"), (1.0, 1.0)),
        ((7, 3), ("auto", "auto"), (1.0, 2.33)),
        ((3, 7), ("auto", "auto"), (2.34, 1.0)),
        ((3, 7), ("auto", 2.0), (4.67, 2.0)),
        ((9, 3), (0.5, "auto"), (0.5, 1.5)),
        ((4, 3), (1.0, 1.0), (1.0, 1.0)),
    ],
)
def test_class_weights_stay_in_the_band_of_the_paper(
    counts: tuple[int, int], given: tuple[Any, Any], wanted: tuple[float, float]
) -> None:
    weights = class_weights(*counts, *given)
    assert (weights.desirable, weights.undesirable) == wanted
    assert 1 <= weights.desirable * counts[0] / (weights.undesirable * counts[1]) <= 4 / 3


@pytest.mark.parametrize("counts", [(9, 1), (3, 5), (0, 4)])
def test_weights_outside_the_band_are_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(FailPartition, match="class_weights_out_of_band|one_class"):
        class_weights(*counts, 1.0, 1.0)


@pytest.mark.parametrize(("desirable", "undesirable"), [(40, 40), (60, 20), (20, 60), (50, 3), (3, 50), (1, 1), (9, 1)])
@pytest.mark.parametrize("micro", [2, 4, 8])
def test_every_micro_batch_holds_both_classes(desirable: int, undesirable: int, micro: int) -> None:
    examples = many(desirable, undesirable)
    plan = plan_turns(examples, Amount(epochs=1, batch=8, sampling="uniform"), 3, micro_batch=micro)
    for batch in plan.batches:
        assert len({examples[at].label for at in batch}) == 2
        assert len(batch) == min(micro, len(examples))
    labels = Counter(examples[at].label for at in plan.order)
    assert (labels[True], labels[False]) == plan.counts
    assert max(Counter(plan.order).values()) == 1  # one epoch, equal weights: nobody twice


def test_the_order_depends_on_ids_and_seed_alone() -> None:
    examples = many(30, 20)
    amount = Amount(epochs=2, batch=8, sampling="uniform")
    plan = plan_turns(examples, amount, 3, micro_batch=4)
    assert plan == plan_turns(examples, amount, 3, micro_batch=4) != plan_turns(examples, amount, 4, micro_batch=4)
    keys = [examples[at].key for at in plan.order]
    turned = examples[::-1]
    again = [turned[at].key for at in plan_turns(turned, amount, 3, micro_batch=4).order]
    assert sorted(keys) == sorted(again) and max(Counter(keys).values()) == 2


def test_steps_and_tokens_are_bounded() -> None:
    examples = many(40, 40)
    assert len(plan_turns(examples, Amount(epochs=3, batch=8, max_steps=4), 3, micro_batch=4).order) == 32
    tokens = sum(one.tokens for one in examples)
    plan = plan_turns(examples, Amount(epochs=1, batch=8, token_budget=tokens // 2), 3, micro_batch=4)
    assert len(plan.order) == 40
    assert len(plan_turns(examples, Amount(epochs=1, batch=16), 3, micro_batch=4).order) % 16 == 0


def test_weights_decide_how_often_a_turn_is_drawn() -> None:
    heavy = [example(number, number < 20, weight=3.0 if number == 0 else 1.0) for number in range(40)]
    plan = plan_turns(heavy, Amount(epochs=4, batch=8, sampling="quality"), 3, micro_batch=4)
    counted = Counter(plan.order)
    assert counted[0] > 2 * max(counted[number] for number in range(1, 20)) - 2
    nothing = [one._replace(sources=(one.sources[0]._replace(weight=0.0),)) for one in heavy]
    with pytest.raises(FailPartition, match="not all zero"):
        plan_turns(nothing, Amount(epochs=1, batch=8, sampling="quality"), 3, micro_batch=4)


def test_what_cannot_be_laid_out_is_refused() -> None:
    with pytest.raises(FailPartition, match="one_class"):
        plan_turns(many(8, 0), Amount(batch=4), 3, micro_batch=4)
    with pytest.raises(FailPartition, match="micro_batch_too_small"):
        plan_turns(many(8, 8), Amount(batch=4), 3, micro_batch=1)


@pytest.mark.parametrize(
    ("given", "limit", "kept"), [((50, 10), 40, (30, 10)), ((10, 50), 40, (10, 30)), ((50, 50), 41, (20, 21))]
)
def test_a_limit_of_rows_cuts_the_rarer_class_last(given: tuple[int, int], limit: int, kept: tuple[int, int]) -> None:
    chosen = limited(many(*given), limit, 3)
    assert (sum(one.label for one in chosen), sum(not one.label for one in chosen)) == kept
    assert limited(many(*given), None, 3) == many(*given)
