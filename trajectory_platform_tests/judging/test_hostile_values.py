"""Values the scorer and the judges were never meant to see: a verdict with a reason, in linear time, or none."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from trajectory_platform.judging import dialogue as reading
from trajectory_platform.judging import outcome
from trajectory_platform.judging.day import validator_success
from trajectory_platform_tests.judging.dialogues import (
    KETTLE,
    POT_REWARD,
    PRODUCTS,
    REWARD,
    VOUCHER,
    call,
    dialogue,
    problem,
    step,
)


@pytest.mark.parametrize(
    "voucher",
    [
        {**VOUCHER, "budget": 1, "threshold": 0, "face_value": 10**400},
        {**VOUCHER, "budget": 1, "threshold": 0, "discount_type": "percentage", "discount": 0.5, "cap": 10**400},
        {**VOUCHER, "budget": 1, "threshold": 0, "discount_type": "percentage", "discount": 10**400, "cap": 1},
    ],
)
def test_numbers_beyond_a_float_end_the_score_and_not_the_batch(voucher: dict[str, Any]) -> None:
    task = problem("Voucher", [REWARD, POT_REWARD], voucher)
    scored = outcome.score(dialogue("5100000001,5100000002"), task, PRODUCTS)
    assert (scored.outcome, scored.reason) == ("unscorable", "scorer_raised:OverflowError")


@pytest.mark.parametrize("change", [{"service": "COD"}, {"attributes": [{"material": "steel"}]}])
def test_text_in_the_place_of_a_list_is_not_compared_letter_by_letter(change: dict[str, Any]) -> None:
    scored = outcome.score(dialogue("5100000003"), problem("Product", {**REWARD, **change}), PRODUCTS)
    assert (scored.outcome, scored.reason) == ("unscorable", "scorer_raised:TypeError")


@pytest.mark.parametrize("attributes", [{"material": "steel"}, {"material": ["steel"], "note": None}])
def test_attributes_of_a_document_may_be_single_or_null(attributes: dict[str, Any]) -> None:
    products = {**PRODUCTS, "9": {**KETTLE, "product_id": "9", "attributes": attributes}}
    assert outcome.score(dialogue("9"), problem("Product", REWARD), products).success


@pytest.mark.parametrize("result", ["lorem ipsum " * 100_000, [{"product_id": str(n)} for n in range(0, 60_000, 2)]])
def test_thousands_of_recommended_ids_take_no_walk_each(result: Any) -> None:
    ids = ",".join(str(number) for number in range(60_000))
    steps = [
        step(1, "t", call("find_product", {"q": "x"}, result)),
        step(2, "t", call("recommend_product", {"product_ids": ids})),
    ]
    started = time.process_time()
    scored = outcome.score(steps, problem("Product", REWARD), PRODUCTS)
    assert time.process_time() - started < 5
    assert len(scored.recommended_ids) == 60_000
    assert len(scored.hallucinated_ids) == (60_000 if isinstance(result, str) else 30_000)


@pytest.mark.parametrize(
    ("text", "name", "shown"),
    [
        ("found 12, 34", "12", True),
        ("found 123", "12", False),
        ("id=a-1.", "a-1", True),
        ("a 1", "a-1", False),
        ("ba-1", "a-1", False),
        ("x_12_", "12", True),
        ("", "12", False),
    ],
)
def test_an_id_is_shown_by_a_text_where_it_stands_as_a_word(text: str, name: str, shown: bool) -> None:
    calls = [reading.Call(0, "find_product", {}, text)]
    assert reading.seen_ids(calls, []).shows(name) is shown


@pytest.mark.parametrize("depth", [300, 1000])
def test_deep_text_arguments_and_results_can_be_scanned(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    steps = json.loads(json.dumps([step(1, "t", call("find_product", deep, deep))]))
    reading.loose_messages(steps)
    assert reading.seen_ids(reading.read_calls(steps), steps).listed == set()
    assert outcome.score(steps, problem("Product", REWARD), PRODUCTS).outcome == "failure"


@pytest.mark.parametrize("status", ["SUCCESS", "success", " Failed "])
def test_the_case_of_a_status_word_makes_no_verdict_disappear(status: str) -> None:
    assert validator_success({"problem_status": status, "validator_score": 1.0}) is True
    assert validator_success({"problem_status": "timed_out", "validator_score": 0.0}) is None
