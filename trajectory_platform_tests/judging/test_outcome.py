"""The rule scorer: domain 2.1 to 2.3 and 2.5, section 6 items 2 to 9, 19, 22, 24, 41, 48."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.errors import Abort
from trajectory_platform.judging import outcome
from trajectory_platform.judging.matching import find_rules, match_product
from trajectory_platform_tests.judging.dialogues import (
    FOREIGN_KETTLE,
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

PRODUCT = problem("Product", REWARD)
SHOP = problem("Shop", [REWARD, POT_REWARD])
RULES = find_rules()


def test_the_right_product_is_a_success_with_the_fields_of_the_reference() -> None:
    scored = outcome.score(dialogue(), PRODUCT, PRODUCTS)
    assert (scored.outcome, scored.success, scored.reason) == ("success", True, None)
    assert list(scored.score) == [
        "length", "format", "product", "gt", "rule", "title", "price", "service", "sku & attrs",
    ]  # fmt: skip
    assert scored.length == 0.25 and scored.format == 1.0
    assert scored.discipline == []


def test_another_product_that_meets_every_constraint_is_a_success_too() -> None:
    scored = outcome.score(dialogue("5100000003", seen=("5100000003",)), PRODUCT, PRODUCTS)
    assert scored.success and scored.score["gt"] == 0 and scored.score["rule"] == 1


def test_an_unknown_product_has_no_fields_and_fails() -> None:
    scored = outcome.score(dialogue("777"), PRODUCT, PRODUCTS)
    assert scored.outcome == "failure" and set(scored.score) == {"length", "format"}
    assert scored.not_in_catalogue_ids == ["777"]


def test_constraints_are_counted_one_by_one() -> None:
    product = {**KETTLE, "product_id": "x", "service": [], "attributes": {"material": ["steel"]}, "sku_options": None}
    match = match_product(product, REWARD, RULES)
    assert match.rule == 3 / 6  # title, price and material hit; service, colour and size missed
    assert match.shares == (1.0, 1.0, 0.0, pytest.approx(1 / 3))


@pytest.mark.parametrize(
    ("constraint", "hit"),
    [
        ({"less than": [None, 550]}, True),
        ({"less than": [None, 549]}, False),
        ({"greater than": [550, None]}, True),
        ({"between": [550, 550]}, True),
        ({"between": [1, 2]}, False),
        ({"roughly": [550, 550]}, False),
    ],
)
def test_price_bounds_are_inclusive_and_an_unknown_mode_misses(constraint: dict[str, Any], hit: bool) -> None:
    assert match_product(FOREIGN_KETTLE, {"product_id": "0", "price": [constraint]}, RULES).rule == float(hit)


def test_a_reward_without_constraints_gives_no_free_credit() -> None:
    assert match_product(KETTLE, {"product_id": "0"}, RULES).rule == 0


def test_empty_options_count_as_empty_and_the_best_sku_counts() -> None:
    bare = {**KETTLE, "product_id": "0", "sku_options": {}, "attributes": "."}
    wanted = {"product_id": "1", "sku_options": [{"colour": "red", "size": "1l"}]}
    assert match_product(bare, wanted, RULES).rule == 0
    assert match_product(KETTLE, wanted, RULES).rule == 0.5  # no single SKU is red and 1l


@pytest.mark.parametrize("price", ["500", "11,206", None, True])
def test_a_price_that_is_no_number_is_never_guessed(price: Any) -> None:
    products = {**PRODUCTS, "5100000001": {**KETTLE, "price": price}}
    scored = outcome.score(dialogue(), PRODUCT, products)
    assert (scored.outcome, scored.reason) == ("unscorable", "scorer_raised:TypeError")
    assert scored.score == {}


def test_the_last_recommendation_wins_even_after_terminate_and_an_unreadable_one_erases() -> None:
    later = [*dialogue("5100000002"), step(5, "Rather this.", call("recommend_product", {"product_ids": "5100000001"}))]
    scored = outcome.score(later, PRODUCT, PRODUCTS)
    assert scored.recommended_ids == ["5100000001"]
    assert set(scored.discipline) >= {"several_recommends", "recommend_after_terminate"}
    for broken in (["5100000002"], 5100000002, None):
        erased = [*dialogue(), step(5, "Again.", call("recommend_product", {"product_ids": broken}))]
        assert outcome.score(erased, PRODUCT, PRODUCTS).recommended_ids == []
    kept = [*dialogue(), step(5, "Again.", call("recommend_product", "not an object"))]
    assert outcome.score(kept, PRODUCT, PRODUCTS).recommended_ids == ["5100000001"]


def test_ids_are_stripped_blanks_shift_positions_and_repeats_fall_away() -> None:
    scored = outcome.score(dialogue(" 5100000001 ,, 5100000001,\u00a05100000002"), SHOP, PRODUCTS)
    assert scored.recommended_ids == ["5100000001", "5100000002"]
    assert scored.success


@pytest.mark.parametrize("ids", [["5100000001"], 5100000001])
def test_lists_and_numbers_fail_strictly_and_are_kept_leniently(ids: Any) -> None:
    scored = outcome.score(dialogue(ids), PRODUCT, PRODUCTS)
    assert scored.outcome == "failure" and scored.recommended_ids == [] and scored.lenient_ids == ["5100000001"]


def test_a_shop_needs_every_position_and_one_single_shop() -> None:
    assert outcome.score(dialogue("5100000001,5100000002"), SHOP, PRODUCTS).score["shop"] == 1
    assert not outcome.score(dialogue("5100000002,5100000001"), SHOP, PRODUCTS).success  # order is not repaired
    foreign = outcome.score(dialogue("5100000003,5100000002"), SHOP, PRODUCTS)
    assert foreign.score["rule"] == 1 and foreign.score["shop"] == 0 and not foreign.success
    assert outcome.score(dialogue("5100000001"), SHOP, PRODUCTS).score["product"] == 0.5


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({"budget": 750}, True),  # exactly the budget, no voucher needed
        ({"budget": 690}, True),  # 750 - 60 = 690
        ({"budget": 689}, False),
        ({"threshold": 750, "budget": 690}, True),  # "exceeds" accepts equality
        ({"threshold": 751, "budget": 690}, False),
        ({"discount_type": "percentage", "discount": 0.5, "cap": 100, "budget": 650}, True),  # the cap decides
        ({"discount_type": "percentage", "discount": 0.1, "cap": 100, "budget": 674}, False),  # 675
    ],
)
def test_voucher_arithmetic(changes: dict[str, Any], fits: bool) -> None:
    task = problem("Voucher", [REWARD, POT_REWARD], {**VOUCHER, **changes})
    scored = outcome.score(dialogue("5100000001,5100000002"), task, PRODUCTS)
    assert scored.score["budget"] == int(fits) and scored.success is fits


def test_a_shop_voucher_does_not_apply_across_shops_but_a_platform_voucher_does() -> None:
    tight = {**VOUCHER, "budget": 750, "threshold": 700}
    ids = "5100000003,5100000002"  # 800 in two shops
    assert not outcome.score(dialogue(ids), problem("Voucher", [REWARD, POT_REWARD], tight), PRODUCTS).success
    tight["voucher_type"] = "platform"
    assert outcome.score(dialogue(ids), problem("Voucher", [REWARD, POT_REWARD], tight), PRODUCTS).success


@pytest.mark.parametrize(
    ("voucher", "kind"),
    [
        (None, "TypeError"),
        ({**VOUCHER, "budget": 1, "discount_type": "percentage", "discount": 0.1}, "TypeError"),
        ({**VOUCHER, "budget": 1, "discount_type": "lottery"}, "Exception"),
    ],
)
def test_vouchers_on_which_the_reference_raises_are_unscorable(voucher: Any, kind: str) -> None:
    task = problem("Voucher", [REWARD, POT_REWARD], voucher)
    scored = outcome.score(dialogue("5100000001,5100000002"), task, PRODUCTS)
    assert (scored.outcome, scored.success, scored.reason) == ("unscorable", False, f"scorer_raised:{kind}")


def test_a_shop_reward_given_as_object_is_unscorable() -> None:
    scored = outcome.score(dialogue(), problem("Shop", REWARD), PRODUCTS)
    assert scored.reason == "scorer_raised:TypeError"


def _with(position: int, **message: Any) -> list[dict[str, Any]]:
    steps = dialogue()
    steps[position]["completion"]["message"].update(message)
    return steps


def _last(value: Any) -> list[Any]:
    return [*dialogue()[:3], value]


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        (_with(1, tool_call=call("view_product_information", {})), "ValidationError"),
        (_with(1, tool_call="[]"), "ValidationError"),
        (_with(1, tool_call=["{}"]), "ValidationError"),
        (_with(1, think=None), "ValidationError"),
        (_with(1, think=3), "ValidationError"),
        (_with(3, tool_call=[{"parameters": {}}]), "KeyError"),
        (_with(3, tool_call="terminate"), "TypeError"),
        (_last({"completion": None, "extra_info": {}}), "TypeError"),
        (_last("no step"), "TypeError"),
        (_last({"role": "assistant", "content": "chat"}), "KeyError"),
    ],
)
def test_dialogues_on_which_the_reference_raises_are_unscorable_by_its_exception(steps: list[Any], kind: str) -> None:
    scored = outcome.score(steps, PRODUCT, PRODUCTS)
    assert (scored.outcome, scored.success, scored.reason) == ("unscorable", False, f"scorer_raised:{kind}")
    assert scored.format is None and scored.length is None


@pytest.mark.parametrize("odd", [None, "text", {"completion": None}, {"completion": {"message": None}}])
def test_odd_steps_before_the_last_cost_their_format_only(odd: Any) -> None:
    steps = dialogue()
    scored = outcome.score([*steps[:2], odd, *steps[2:]], PRODUCT, PRODUCTS)
    assert scored.success and scored.format == 4 / 5


def test_hidden_rewards_are_unscorable_but_keep_format_and_ids() -> None:
    for hidden in (None, problem("Product", None)):
        scored = outcome.score(dialogue(), hidden, PRODUCTS)
        assert (scored.outcome, scored.success, scored.reason) == ("unscorable", None, "reward_hidden")
        assert scored.format == 1.0 and scored.recommended_ids == ["5100000001"]
    assert outcome.score([], PRODUCT, PRODUCTS).reason == "empty_dialogue"
    assert outcome.score(dialogue(), PRODUCT, None).reason == "no_catalogue"


def test_hallucinated_and_unopened_ids_are_two_things() -> None:
    scored = outcome.score(dialogue("5100000001,5100000002,5100000003"), SHOP, PRODUCTS)
    assert scored.hallucinated_ids == ["5100000003"]  # in the catalogue, in no result
    assert scored.unviewed_ids == ["5100000002"]  # listed, never opened


def test_the_agents_own_confirmation_is_no_sighting() -> None:
    steps = [step(1, "Guess.", call("recommend_product", {"product_ids": "5100000001"}, "recommended 5100000001"))]
    assert outcome.score(steps, PRODUCT, PRODUCTS).hallucinated_ids == ["5100000001"]


def test_an_unknown_title_regime_aborts() -> None:
    with pytest.raises(Abort, match="normalised"):
        outcome.score(dialogue(), PRODUCT, PRODUCTS, title_regime="embeddings")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "completion",
                    "message",
                    "think",
                    "tool_call",
                    "name",
                    "parameters",
                    "product_ids",
                    "result",
                    "extra_info",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(steps=st.lists(_JSON, max_size=4))
def test_no_dialogue_makes_the_scorer_raise(steps: list[Any]) -> None:
    scored = outcome.score(steps, PRODUCT, PRODUCTS)
    assert scored.outcome in ("success", "failure", "unscorable")
    assert (scored.reason is None) == (scored.outcome != "unscorable")
    assert all(math.isfinite(value) for value in scored.score.values())
