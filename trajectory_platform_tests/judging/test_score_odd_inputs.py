"""The odd parts of domain 2.1 to 2.5, one row each: input, what the reference makes of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trajectory_platform.judging import outcome
from trajectory_platform.judging.protocol import format_score, length_score
from trajectory_platform_tests.judging.dialogues import (
    KETTLE,
    POT,
    POT_REWARD,
    PRODUCTS,
    REWARD,
    VOUCHER,
    call,
    dialogue,
    problem,
    step,
)

K, P = "5100000001", "5100000002"
PRODUCT = problem("Product", REWARD)
SHOP = problem("Shop", [REWARD, POT_REWARD])


def recommends(*parameters: Any, end: bool = True) -> list[dict[str, Any]]:
    """One step per recommendation, then terminate."""
    steps = [step(n, "t", call("recommend_product", value)) for n, value in enumerate(parameters, 1)]
    return [*steps, step(len(steps) + 1, "t", call("terminate", {"status": "success"}))] if end else steps


def ids(value: Any) -> dict[str, Any]:
    return {"product_ids": value}


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        pytest.param(recommends(ids(K), ids(P)), [P], id="last-wins"),
        pytest.param([*recommends(ids(P)), *recommends(ids(K), end=False)], [K], id="last-wins-after-terminate"),
        pytest.param(recommends(ids(K), ids([P])), [], id="list-erases"),
        pytest.param(recommends(ids(K), ids(5)), [], id="number-erases"),
        pytest.param(recommends(ids(K), {}), [], id="absent-erases"),
        pytest.param(recommends(ids(K), ids(None)), [], id="null-erases"),
        pytest.param(recommends(ids(K), ids("")), [], id="empty-erases"),
        pytest.param(recommends(ids(K), {"product_id": P}), [], id="singular-erases"),
        pytest.param(recommends(ids(K), "5"), [K], id="parameters-text-skipped"),
        pytest.param(recommends(ids(K), [P]), [K], id="parameters-list-skipped"),
        pytest.param(recommends(ids(K), None), [K], id="parameters-null-skipped"),
        pytest.param(recommends(ids(f",, {K} ,\u00a0{P}\u00a0,{K}")), [K, P], id="stripped-blank-repeat"),
        pytest.param(recommends(ids(f"{K};{P}")), [f"{K};{P}"], id="only-commas-split"),
        pytest.param([], [], id="empty-dialogue"),
    ],
)  # fmt: skip
def test_which_ids_are_scored(steps: list[Any], found: list[str]) -> None:
    assert outcome.score(steps, PRODUCT, PRODUCTS).recommended_ids == found


@pytest.mark.parametrize(
    ("task", "text", "success"),
    [
        (PRODUCT, f"{P},{K}", False),  # only the first id counts
        (PRODUCT, f" ,{K},{P}", True),  # a blank shifts the rest forward
        (SHOP, f"{K},{P}", True),
        (SHOP, f"{P},{K}", False),  # right set, wrong order
        (SHOP, f"{K},,{P}", True),  # a blank moves the second id to the second place
        (SHOP, f"{K},{K},{P}", True),  # so does a repeat
        (SHOP, f"{K},{P},999", True),  # surplus ids are ignored
        (SHOP, f"{K},999,{P}", False),  # an unknown id keeps its place and is skipped
        (SHOP, K, False),
        (problem("Gift", REWARD), K, True),  # unknown category: product logic
        (problem(" PRODUCT ", REWARD), K, True),  # lower-cased
    ],
)
def test_positions(task: Any, text: str, success: bool) -> None:
    assert outcome.score(dialogue(text), task, PRODUCTS).success is success


def twin(**changes: Any) -> dict[str, Any]:
    """The catalogue with another product that equals the rewarded kettle but for its id and the changes."""
    return {**PRODUCTS, "9": {**KETTLE, "product_id": "9", **changes}}


@pytest.mark.parametrize(
    ("changes", "reward", "rule"),
    [
        ({}, REWARD, 1.0),
        ({"title": "Other"}, REWARD, 5 / 6),
        ({"price": 600}, REWARD, 1.0),  # equality at the bound
        ({"price": 600.01}, REWARD, 5 / 6),
        ({"service": ["cod"]}, REWARD, 5 / 6),  # case-sensitive
        ({"attributes": {}}, REWARD, 5 / 6),
        ({"attributes": {"colour": ["blue"], "size": ["1l"], "material": ["steel"]}, "sku_options": {}}, REWARD, 1.0),
        ({"sku_options": {"1": {"colour": "blue"}, "2": {"size": "1l"}}}, REWARD, 5 / 6),  # one SKU, not their union
        ({"sku_options": {"1": {"material": "steel", "colour": "blue", "size": "1l"}}}, REWARD, 1.0),
        ({}, {"product_id": K}, 0.0),  # nothing asked for gives no free credit
        ({}, {"product_id": K, "title": []}, 0.0),
        ({"title": "x"}, {"product_id": "9", "title": ["y"], "price": [{"less than": [None, 1]}]}, 1.0),  # same id
        ({}, {"product_id": 9, "title": ["y"]}, 1.0),  # a numeric id is the same id
        ({}, {"product_id": K, "price": [{"around": [500, 500]}]}, 0.0),  # unknown mode misses
        ({"price": "500"}, {"product_id": K, "price": [{"around": [1, 2]}], "title": ["steel kettle 1L"]}, 0.5),
    ],
)
def test_rule_of_one_product(changes: dict[str, Any], reward: dict[str, Any], rule: float) -> None:
    scored = outcome.score(dialogue("9"), problem("Product", reward), twin(**changes))
    assert scored.score["rule"] == pytest.approx(rule) and scored.success is (rule == 1)


def test_the_rewarded_product_has_the_rewarded_title_by_definition() -> None:
    renamed = {**PRODUCTS, K: {**KETTLE, "title": "Renamed since"}}
    assert outcome.score(dialogue(K), PRODUCT, renamed).score["title"] == 1.0


PERCENT = {**VOUCHER, "discount_type": "percentage", "discount": 0.2, "cap": 100}


@pytest.mark.parametrize(
    ("voucher", "text", "budget"),
    [
        ({**VOUCHER, "budget": 750}, f"{K},{P}", 1),  # total == budget, voucher unused
        ({**VOUCHER, "budget": 749, "threshold": 750}, f"{K},{P}", 1),  # total == threshold
        ({**VOUCHER, "budget": 749, "threshold": 750.01}, f"{K},{P}", 0),
        ({**VOUCHER, "budget": 749, "voucher_type": "lazada"}, f"{K},{P}", 0),  # unknown type never applies
        ({**PERCENT, "budget": 650}, f"{K},{P}", 1),  # 600 by the share, 650 by the cap: the cap decides
        ({**PERCENT, "budget": 649.99}, f"{K},{P}", 0),
        ({**VOUCHER, "budget": 10_000}, K, 0),  # a missing position
        ({**VOUCHER, "budget": 750, "cap": None, "discount_type": "lottery"}, f"{K},{P}", 1),  # not looked at
    ],
)
def test_budget(voucher: dict[str, Any], text: str, budget: int) -> None:
    task = problem("Voucher", [REWARD, POT_REWARD], voucher)
    assert outcome.score(dialogue(text), task, PRODUCTS).score["budget"] == budget


TIGHT = {**VOUCHER, "budget": 1}
TWO = [REWARD, POT_REWARD]
TEXT_PRICE = {**PRODUCTS, P: {**POT, "price": "250"}}


def without(voucher: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in voucher.items() if key != name}


@pytest.mark.parametrize(
    ("task", "text", "products", "kind"),
    [
        (problem("Voucher", TWO, None), f"{K},{P}", PRODUCTS, "TypeError"),
        (problem("Voucher", TWO, {}), f"{K},{P}", PRODUCTS, "TypeError"),
        (problem("Voucher", TWO, {**PERCENT, "budget": 1, "cap": None}), f"{K},{P}", PRODUCTS, "TypeError"),
        (problem("Voucher", TWO, {**TIGHT, "face_value": None}), f"{K},{P}", PRODUCTS, "TypeError"),
        (problem("Voucher", TWO, without(TIGHT, "threshold")), f"{K},{P}", PRODUCTS, "KeyError"),
        (problem("Voucher", TWO, {**TIGHT, "discount_type": "lottery"}), f"{K},{P}", PRODUCTS, "Exception"),
        (problem("Voucher", TWO, VOUCHER), f"{K},{P}", TEXT_PRICE, "TypeError"),
        (problem("Voucher", TWO, VOUCHER), f"999,{P}", TEXT_PRICE, "TypeError"),  # added up although one is missing
        (problem("Product", REWARD), K, {K: {**KETTLE, "price": "500"}}, "TypeError"),
        (problem("Product", REWARD), K, {K: {**KETTLE, "price": None}}, "TypeError"),
        (problem("Product", REWARD), K, {K: without(KETTLE, "service")}, "KeyError"),
        (problem("Product", TWO), K, PRODUCTS, "TypeError"),  # a list where an object belongs
        (problem("Shop", REWARD), K, PRODUCTS, "TypeError"),  # and the other way round
    ],
)
def test_products_and_vouchers_on_which_the_reference_raises(task: Any, text: str, products: Any, kind: str) -> None:
    scored = outcome.score(dialogue(text), task, products)
    assert (scored.outcome, scored.success, scored.reason) == ("unscorable", False, f"scorer_raised:{kind}")
    assert scored.score == {} and scored.lenient_success is None and scored.lenient_score == {}


@pytest.mark.parametrize(
    ("task", "text", "products"),
    [
        (problem("Voucher", TWO, None), K, PRODUCTS),  # incomplete: the voucher is not looked at
        (problem("Shop", REWARD), "999", PRODUCTS),  # nothing found: the reward is not looked at
        (problem("Product", TWO), "999", PRODUCTS),
        (problem("Shop", TWO), f"{K},{P}", {**PRODUCTS, P: {**POT, "price": "250"}}),  # no price is needed
    ],
)
def test_and_where_it_does_not_look_it_does_not_raise(task: Any, text: str, products: Any) -> None:
    assert outcome.score(dialogue(text), task, products).outcome in ("success", "failure")


ONE = step(1, "t", call("find_product", {"q": "x"}))


def message(**changes: Any) -> dict[str, Any]:
    one = step(1, "t", call("find_product", {"q": "x"}))
    one["completion"]["message"].update(changes)
    return one


@pytest.mark.parametrize(
    ("one", "value"),
    [
        pytest.param(ONE, 1.0, id="plain"),
        pytest.param({**ONE, "completion": None}, 0.0, id="completion-null"),
        pytest.param({**ONE, "completion": {"message": None}}, 0.0, id="message-null"),
        pytest.param({**ONE, "extra_info": None}, 0.0, id="extra-info-null"),
        pytest.param("text", 0.0, id="no-object"),
        pytest.param({**ONE, "extra_info": {}}, 0.5, id="no-timestamp"),
        pytest.param({**ONE, "extra_info": {"timestamp": True}}, 1.0, id="timestamp-true"),
        pytest.param({**ONE, "extra_info": {"timestamp": False}}, 0.5, id="timestamp-false"),
        pytest.param({**ONE, "extra_info": {"timestamp": math.nan}}, 1.0, id="timestamp-nan"),
        pytest.param({**ONE, "extra_info": {"timestamp": "1777000000000"}}, 0.5, id="timestamp-text"),
        pytest.param(message(think=""), 0.0, id="no-think"),
        pytest.param(message(tool_call=[]), 0.0, id="nothing-but-think"),
        pytest.param(message(think="a <tool_call> b"), 0.0, id="tag-in-think"),
        pytest.param(message(tool_call=[call("f", {"q": "<response>"})]), 0.0, id="opening-tag-in-argument"),
        pytest.param(message(tool_call=[call("f", {"q": "</tool_call>"})]), 1.0, id="closing-tag-is-escaped"),
        pytest.param(message(tool_call=[call("f", {}, "</think>")]), 1.0, id="closing-tag-in-result-is-escaped"),
        pytest.param(message(tool_call=[call("f", {}, "<think>")]), 0.0, id="opening-tag-in-result"),
    ],
)
def test_format_of_a_step(one: Any, value: float) -> None:
    assert format_score([ONE, one]) == (1.0 + value) / 2


@pytest.mark.parametrize(
    ("last", "value"),
    [
        (call("terminate", {"status": "failure"}), 0.5),
        (call("terminate", None), 0.5),
        (call("find_product", {}), 0.0),
    ],
)
def test_length_needs_terminate_in_the_last_step(last: Any, value: float) -> None:
    assert length_score([ONE, step(2, "t", last)]) == value
    assert length_score([step(1, "t", last), ONE]) == 0.0
