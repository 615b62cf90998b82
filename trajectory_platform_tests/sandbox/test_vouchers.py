"""The voucher in the text of a query: read, checked against the object, and put in its place for hidden problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.sandbox.problems import from_row, parse_problem, suite_problems, to_table
from trajectory_platform.sandbox.vouchers import parse_voucher_text, voucher_faults

PERCENTAGE = (
    "A mug.\n\nMy budget is only `258`, but I have a voucher with the following rules:\n"
    "1. The voucher only applies to the products from the same shop.\n"
    "2. It is valid only when the total price of the products exceeds `133`.\n"
    "3. It provides a percentage discount of `42%` with a cap of `152`."
)
FIXED = (
    "A mug. My budget is only `425`, but I have a voucher with the following rules: "
    "1. The voucher applies to all products. "
    "2. It is valid only when the total price of the products exceeds `170`. "
    "3. It provides a fixed discount of `34`."
)
OF_ONE_SHOP = {
    "voucher_type": "shop",
    "discount_type": "percentage",
    "threshold": 133,
    "face_value": None,
    "discount": 0.42,
    "cap": 152,
    "budget": 258,
}
REWARD = [{"product_id": "1"}]


def voucher_problem(query: str, voucher: Any, **fields: Any) -> Any:
    item = {"problem_id": "p", "category": "Voucher", "query": query, "voucher": voucher, "reward": REWARD}
    return parse_problem(item | fields, suite_id="1")


def test_all_published_voucher_texts_agree_with_their_object(shared: Path) -> None:
    """Domain 4.1: 250 of 250 tails parse and agree; the same for the suites and the shared days."""
    path = shared / "samples" / "shoppingbench" / "synthesize_voucher_test.jsonl"
    problems = [parse_problem(json.loads(line), suite_id="bench") for line in path.read_bytes().splitlines()]
    assert len(problems) == 250 and all(problem.voucher is not None for problem in problems)
    assert all(parse_voucher_text(problem.query or "") is not None for problem in problems)
    for suite in sorted((shared / "days").glob("*/suite.json")):
        problems += suite_problems(json.loads(suite.read_text()))
    for suite in sorted((shared / "samples" / "sn15_suites").glob("*.noemb.json")):
        problems += suite_problems({"problems": json.loads(suite.read_text())})
    assert sum(problem.voucher is not None for problem in problems) > 300
    assert [voucher_faults(problem) for problem in problems] == [[]] * len(problems)


def test_other_queries_have_no_voucher_text(shared: Path) -> None:
    for name in ("product", "shop", "web_simpleqa"):
        path = shared / "samples" / "shoppingbench" / f"synthesize_{name}_test.jsonl"
        assert not any(parse_voucher_text(json.loads(line)["query"]) for line in path.read_bytes().splitlines())


def test_both_kinds_of_discount_are_read() -> None:
    assert parse_voucher_text(PERCENTAGE) == OF_ONE_SHOP
    assert parse_voucher_text(FIXED) == {
        "voucher_type": "platform",
        "discount_type": "fixed",
        "threshold": 170,
        "face_value": 34,
        "discount": None,
        "cap": None,
        "budget": 425,
    }
    assert parse_voucher_text("A mug. My budget is only `425`.") is None


@pytest.mark.parametrize(
    "disguise",
    [
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: text.replace("`", ""),
        lambda text: text.replace("\n", "  \n "),
        lambda text: text.upper(),
        lambda text: "\ufeff" + text.replace("voucher", "vou\u200bcher"),
        lambda text: text.replace("258", "\uff12\uff15\uff18"),
    ],
    ids=["nbsp", "no_backticks", "spaces", "upper", "invisible", "full_width"],
)
def test_the_form_of_the_text_does_not_matter(disguise: Any) -> None:
    assert parse_voucher_text(disguise(PERCENTAGE)) == OF_ONE_SHOP


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ({}, []),
        ({"price_after_voucher": 200.0}, []),
        ({"budget": 258.0, "threshold": 133.0}, []),
        ({"budget": 259}, ["voucher_differs_budget"]),
        ({"voucher_type": "platform"}, ["voucher_differs_voucher_type"]),
        ({"cap": True}, ["voucher_cap_not_a_number", "voucher_differs_cap"]),
        ({"cap": None}, ["voucher_cap_not_a_number", "voucher_differs_cap"]),
        ({"discount": "0.42"}, ["voucher_discount_not_a_number", "voucher_differs_discount"]),
        ({"discount": float("nan")}, ["voucher_discount_not_a_number", "voucher_differs_discount"]),
        ({"discount_type": "gift"}, ["voucher_discount_type_unknown", "voucher_differs_discount_type"]),
        ({"voucher_type": None}, ["voucher_type_unknown", "voucher_differs_voucher_type"]),
    ],
)
def test_an_object_that_contradicts_its_text_is_recorded(change: dict[str, Any], faults: list[str]) -> None:
    assert voucher_faults(voucher_problem(PERCENTAGE, OF_ONE_SHOP | change)) == faults


def test_text_or_object_alone_is_recorded() -> None:
    assert voucher_faults(voucher_problem("A mug.", OF_ONE_SHOP)) == ["voucher_text_missing"]
    assert voucher_faults(voucher_problem(PERCENTAGE, None)) == ["voucher_missing"]
    assert voucher_faults(voucher_problem("A mug.", None)) == ["voucher_missing"]
    assert voucher_faults(parse_problem({"query": PERCENTAGE, "reward": REWARD}, suite_id=None)) == ["voucher_missing"]
    assert voucher_faults(parse_problem({"query": "A mug."}, suite_id=None)) == []


def test_a_hidden_problem_has_the_voucher_of_its_query() -> None:
    hidden = parse_problem({"problem_id": "race", "query": PERCENTAGE}, suite_id="1")
    assert (hidden.reward_state, hidden.category, hidden.voucher) == ("hidden", "voucher", OF_ONE_SHOP)
    assert hidden.voucher_derived and voucher_faults(hidden) == []
    (row,) = to_table([hidden], "2026-05-01").to_pylist()
    assert row["voucher"] is None, "only what was published is stored"
    assert from_row(row) == hidden


def test_a_public_problem_is_given_no_voucher_and_a_published_one_is_kept() -> None:
    """Where the reward is public, a missing object makes the reference scorer raise (domain 2.5): it stays missing."""
    assert voucher_problem(PERCENTAGE, None).voucher is None
    kept = voucher_problem(PERCENTAGE, {"budget": 1}, reward=None)
    assert kept.voucher == {"budget": 1} and not kept.voucher_derived


@given(st.text(max_size=40), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 99))
def test_every_voucher_that_the_template_can_say_is_read_back(
    before: str, budget: int, threshold: int, off: int
) -> None:
    query = (
        f"{before} My budget is only `{budget}`, but I have a voucher with the following rules: "
        "1. The voucher applies to all products. "
        f"2. It is valid only when the total price of the products exceeds `{threshold}`. "
        f"3. It provides a percentage discount of `{off}%` with a cap of `{threshold}`."
    )
    told = parse_voucher_text(query)
    assert told is not None
    assert (told["budget"], told["threshold"], told["cap"]) == (budget, threshold, threshold)
    assert told["discount"] == pytest.approx(off / 100)
