"""The tier of a problem that states none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.sandbox.difficulty import constraint_count, difficulty_of
from trajectory_platform.sandbox.problems import from_row, parse_problem, to_table


def test_the_computed_tier_is_the_stated_one_in_all_published_suites(shared: Path) -> None:
    """90 of 90 problems of suites v1 to v3. (The problems of the shared days are synthetic and follow another rule.)"""
    compared = 0
    for path in sorted((shared / "samples" / "sn15_suites").glob("*.noemb.json")):
        for item in json.loads(path.read_text()):
            stated = item.pop("difficulty")
            assert parse_problem(item, suite_id=path.stem).difficulty == stated, item["query"]
            compared += 1
    assert compared == 90


@pytest.mark.parametrize(
    ("category", "products", "voucher", "tier"),
    [
        ("shop", 2, None, "easy"),
        ("shop", 3, None, "medium"),
        ("shop", 4, None, "hard"),
        ("voucher", 2, {"voucher_type": "platform", "discount_type": "fixed"}, "easy"),
        ("voucher", 2, {"voucher_type": "shop", "discount_type": "fixed"}, "medium"),
        ("voucher", 3, {"voucher_type": "shop", "discount_type": "percentage"}, "hard"),
        ("voucher", 3, None, None),
        ("web", 1, None, None),
        ("", 1, None, None),
        ("shop", 0, None, None),
    ],
)
def test_tiers_by_number_of_products(category: str, products: int, voucher: Any, tier: str | None) -> None:
    assert difficulty_of(category, [{"product_id": str(n)} for n in range(products)], voucher) == tier


@pytest.mark.parametrize(("attributes", "tier"), [(2, "easy"), (3, "medium"), (4, "medium"), (5, "hard")])
def test_tiers_by_number_of_constraints(attributes: int, tier: str) -> None:
    reward = {"product_id": "1", "title": ["a"], "attributes": [{"k": ["v"]}] * attributes}
    assert difficulty_of("product", [reward], None) == tier


def test_constraints_of_any_shape_are_counted() -> None:
    assert constraint_count({"product_id": "1", "service": "COD", "price": None, "attributes": "x"}) == 2
    assert constraint_count({"service": ["COD", "official"], "sku_options": [{"a": "b", "c": "d"}]}) == 3
    assert constraint_count({}) == 0


def test_a_stated_tier_is_kept_and_survives_the_table() -> None:
    item = {"query": "q", "category": "Product", "reward": {"product_id": "1"}}
    stated = parse_problem(item | {"difficulty": "hard"}, suite_id=None)
    computed = parse_problem(item | {"difficulty": " "}, suite_id=None)
    assert (stated.difficulty, computed.difficulty) == ("hard", "easy")
    assert [from_row(row).difficulty for row in to_table([computed], "2026-05-01").to_pylist()] == ["easy"]
    assert parse_problem({"query": "q", "category": "Product"}, suite_id=None).difficulty is None
