"""Strict and lenient side by side: only the reading of the dialogue is lenient, and the strict score never moves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trajectory_platform.judging import outcome
from trajectory_platform_tests.judging.dialogues import POT_REWARD, PRODUCTS, REWARD, VOUCHER, call, dialogue, problem

K, P = "5100000001", "5100000002"
PRODUCT = problem("Product", REWARD)
SHOP = problem("Shop", [REWARD, POT_REWARD])


def recommending(parameters: Any) -> list[dict[str, Any]]:
    steps = dialogue()
    steps[2]["completion"]["message"]["tool_call"] = [call("recommend_product", parameters)]
    return steps


@pytest.mark.parametrize(
    "parameters",
    [
        {"product_ids": [K]},
        {"product_ids": int(K)},
        {"product_ids": float(K)},
        {"product_ids": [int(K)]},
        {"product_ids": json.dumps([K])},
        {"product_id": K},
        {"product_id": int(K)},
        {"product_ids": None, "product_id": K},
        {"product_ids": f'"{K}"'},
        {"product_ids": f"\u200b{K}\ufeff"},
        json.dumps({"product_ids": K}),
    ],
    ids=repr,
)
def test_other_spellings_of_an_id_are_a_lenient_success_only(parameters: Any) -> None:
    scored = outcome.score(recommending(parameters), PRODUCT, PRODUCTS)
    assert not scored.success and scored.score.get("rule", 0.0) == 0.0
    assert scored.lenient_ids == [K] and scored.lenient_success and scored.lenient_outcome == "success"
    assert scored.lenient_score["rule"] == 1.0 and "format" not in scored.lenient_score


@pytest.mark.parametrize("value", [True, 1.5, {"id": K}, None, [], [[K]], [None, True], 1e300])
def test_what_is_no_id_stays_none(value: Any) -> None:
    scored = outcome.score(recommending({"product_ids": value}), PRODUCT, PRODUCTS)
    assert scored.lenient_ids == [] and scored.lenient_success is False and scored.outcome == "failure"


@pytest.mark.parametrize(
    ("ids", "success"), [([K, P], True), ([P, K], False), (f"[{K}, {P}]", True), ([K, "", P], True), ([K], False)]
)
def test_order_and_number_are_never_repaired(ids: Any, success: bool) -> None:
    assert outcome.score(recommending({"product_ids": ids}), SHOP, PRODUCTS).lenient_success is success


def test_the_last_recommendation_still_wins() -> None:
    steps = [*dialogue(), *recommending({"product_ids": [P]})[2:3]]
    scored = outcome.score(steps, PRODUCT, PRODUCTS)
    assert scored.recommended_ids == [] and scored.lenient_ids == [P] and scored.lenient_success is False


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (0, {"think": None}),
        (1, {"tool_call": {"name": "view_product_information", "parameters": {}}}),
        (2, {"tool_call": call("recommend_product", {"product_ids": K})}),  # one object instead of a list
        (2, {"tool_call": json.dumps([call("recommend_product", {"product_ids": K})])}),
        (3, {"tool_call": [{"parameters": {}}]}),
    ],
)
def test_a_defect_outside_the_products_is_no_lenient_failure(position: int, message: dict[str, Any]) -> None:
    steps = dialogue()
    steps[position]["completion"]["message"].update(message)
    scored = outcome.score(steps, PRODUCT, PRODUCTS)
    assert (scored.outcome, scored.success) == ("unscorable", False) and scored.score == {}
    assert scored.lenient_success and scored.lenient_score["gt"] == 1


def test_where_no_reading_helps_the_lenient_result_is_open_too() -> None:
    steps = recommending({"product_ids": [K]})
    assert outcome.score(steps, problem("Product", None), PRODUCTS).lenient_success is None
    assert outcome.score(steps, PRODUCT, None).lenient_success is None
    assert outcome.score([], PRODUCT, PRODUCTS).lenient_success is None
    text_price = {**PRODUCTS, K: {**PRODUCTS[K], "price": "500"}}
    assert outcome.score(steps, PRODUCT, text_price).lenient_outcome == "unscorable"
    null_voucher = problem("Voucher", [REWARD, POT_REWARD], None)
    assert outcome.score(recommending({"product_ids": [K, P]}), null_voucher, PRODUCTS).lenient_success is None
    voucher = problem("Voucher", [REWARD, POT_REWARD], {**VOUCHER, "budget": 750})
    assert outcome.score(recommending({"product_ids": [K, P]}), voucher, PRODUCTS).lenient_success


def test_a_strict_success_is_a_lenient_one_with_the_same_fields() -> None:
    steps = dialogue()  # strictly, the step ends at its broken call; leniently, a later one would replace it
    steps[2]["completion"]["message"]["tool_call"] += [{"no": "name"}, call("recommend_product", {"product_ids": P})]
    scored = outcome.score(steps, PRODUCT, PRODUCTS)
    assert scored.recommended_ids == [K] and scored.lenient_ids == [P]
    assert scored.success and scored.lenient_success
    assert scored.lenient_score == {k: v for k, v in scored.score.items() if k not in ("length", "format")}
