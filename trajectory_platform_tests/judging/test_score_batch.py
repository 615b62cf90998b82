"""Many dialogues at once: the same scores as one by one, whatever form they come in, and no input raises."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.judging import outcome
from trajectory_platform.judging.matching import find_rules
from trajectory_platform_tests.judging.dialogues import POT_REWARD, PRODUCTS, REWARD, VOUCHER, dialogue, problem

PROBLEMS = [
    problem("Product", REWARD),
    problem("Shop", [REWARD, POT_REWARD]),
    problem("Voucher", [REWARD, POT_REWARD], VOUCHER),
    problem("Product", None),
    None,
]
IDS = ["5100000001", "5100000001,5100000002", "5100000003,5100000002", "999", ["5100000001"], ""]


def test_a_batch_scores_as_one_by_one_in_its_order() -> None:
    cases = [(dialogue(ids), task) for task in PROBLEMS for ids in IDS]
    alone = [outcome.score(steps, task, PRODUCTS) for steps, task in cases]
    for repeat in (cases, cases[::-1]):
        found = outcome.score_batch([steps for steps, _ in repeat], [task for _, task in repeat], PRODUCTS)
        assert found == (alone if repeat is cases else alone[::-1])


def test_text_bytes_and_arrow_columns_are_read_and_damage_is_named() -> None:
    steps = dialogue()
    text = json.dumps(steps)
    whole = outcome.score(steps, PROBLEMS[0], PRODUCTS)
    values = [text, None, "[", '{"a": 1}', text]
    found = outcome.score_batch(pa.array(values, pa.large_string()), [PROBLEMS[0]] * 5, PRODUCTS)
    assert [row.reason for row in found] == [None, "empty_dialogue", "truncated_json", "not_an_array", None]
    assert found[0] == found[4] == whole
    assert {row.rules for row in found} == {"normalised-1/exact-1"}
    assert outcome.score_batch([text.encode(), steps], [PROBLEMS[0]] * 2, PRODUCTS) == [whole, whole]


def test_a_batch_has_one_problem_per_dialogue() -> None:
    with pytest.raises(ValueError, match="shorter"):
        outcome.score_batch([[], []], [None], PRODUCTS)


def test_one_product_is_compared_with_one_reward_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    honest = outcome.match_product
    monkeypatch.setattr(outcome, "match_product", lambda *a: counted.append(a) or honest(*a))
    scorer = outcome.Scorer(PRODUCTS, find_rules())
    assert scorer.score_batch([dialogue()] * 50, [PROBLEMS[0]] * 50) == [scorer.score(dialogue(), PROBLEMS[0])] * 50
    assert len(counted) == 1


def test_two_problems_with_one_key_are_not_mixed_up() -> None:
    """The key names query, ids and category only; what is asked of the product may still differ."""
    dear = problem("Product", {**REWARD, "product_id": "1", "price": [{"greater than": [10_000, None]}]})
    fair = problem("Product", {**REWARD, "product_id": "1"})
    assert dear.problem_key == fair.problem_key
    found = outcome.score_batch([dialogue()] * 2, [dear, fair], PRODUCTS)
    assert [row.success for row in found] == [False, True]


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=6)
_ANY = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
_PRICES = st.lists(
    st.dictionaries(st.sampled_from(["less than", "between", "x"]), st.lists(_SCALARS, max_size=3) | _ANY, max_size=2)
)
_FIELDS = {
    "title": st.lists(st.text(max_size=4) | _ANY, max_size=2) | _ANY,
    "price": _PRICES | _ANY,
    "service": st.lists(_ANY, max_size=2) | _ANY,
    "sku_options": st.lists(st.dictionaries(st.text(max_size=3), _ANY, max_size=2), max_size=2) | _ANY,
    "attributes": st.lists(st.dictionaries(st.text(max_size=3), _ANY, max_size=2), max_size=2) | _ANY,
}
_REWARDS = st.fixed_dictionaries({"product_id": st.sampled_from(["1", 1, "2"])}, optional=_FIELDS)
_DOCUMENTS = st.fixed_dictionaries(
    {"product_id": st.just("1"), "title": st.text(max_size=4)},
    optional={
        "shop_id": _ANY,
        "price": _ANY,
        "service": _ANY,
        "description": _ANY,
        "attributes": st.dictionaries(st.text(max_size=3), _ANY, max_size=2) | _ANY,
        "sku_options": st.dictionaries(st.text(max_size=2), st.dictionaries(st.text(max_size=3), _ANY)) | _ANY,
    },
)
_VOUCHERS = st.none() | st.dictionaries(
    st.sampled_from(["budget", "voucher_type", "threshold", "discount_type", "face_value", "discount", "cap"]),
    _SCALARS | st.sampled_from(["platform", "shop", "fixed", "percentage"]),
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    rewards=st.lists(_REWARDS, min_size=1, max_size=2),
    document=_DOCUMENTS,
    voucher=_VOUCHERS,
    category=st.sampled_from(["product", "shop", "voucher", "web", "odd"]),
    rules=st.tuples(
        st.sampled_from(["normalised", "sn15", "upstream", "sn15-guard"]),
        st.sampled_from(["none", "stored"]),
        st.sampled_from(["exact", "folded"]),
    ),
)
def test_no_reward_document_or_voucher_makes_the_scorer_raise(
    rewards: list[Any], document: dict[str, Any], voucher: Any, category: str, rules: tuple[str, str, str]
) -> None:
    reward = rewards if category in ("shop", "voucher") else rewards[0]
    scorer = outcome.Scorer({"1": document}, find_rules(*rules))
    scored = scorer.score(dialogue("1,2"), problem(category, reward, voucher))
    assert scored.outcome in ("success", "failure", "unscorable")
    assert (scored.reason is None) == (scored.outcome != "unscorable")
    assert all(math.isfinite(value) for value in (*scored.score.values(), *scored.lenient_score.values()))
    assert scored.lenient_success or not scored.success
