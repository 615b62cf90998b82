"""Tool discipline: violations that withhold uses, filters that do nothing (domain 3; domain 6: 8, 20, 21, 41)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.curation.discipline import ineffective_filters, violations
from trajectory_platform_tests.judging.dialogues import call, messages_of, step


def _flags(*calls: dict[str, Any]) -> list[str]:
    return ineffective_filters(messages_of([step(1, "t", *calls)]))


def _find(**parameters: Any) -> list[str]:
    return _flags(call("find_product", {"q": "pot", **parameters}, []))


# Domain 3, the table of bad values: what is ignored in silence, and pages without rows.
@pytest.mark.parametrize("page", ["0", 0, "6", 6, "1.0", 1.5, " 1", "\u00b2", "-1", "next"], ids=ascii)
def test_a_page_without_rows_is_flagged(page: Any) -> None:
    assert _find(page=page) == ["ineffective_page"]


@pytest.mark.parametrize(
    "price",
    ["11,206", "above:10", "104", 104, "1,000-2,000", "100\u2013200", "nan-nan", "-", "PHP 100-200", "180-505 PHP"],
    ids=ascii,
)
def test_a_price_that_bounds_nothing_or_only_half_of_what_it_says_is_flagged(price: Any) -> None:
    assert _find(price=price) == ["ineffective_price"]


@pytest.mark.parametrize("service", ["LazMall", "lazmall", "FreeShipping", " COD", "COD,LazMall", ["COD"]], ids=ascii)
def test_a_service_the_server_does_not_know_is_flagged(service: Any) -> None:
    assert _find(service=service) == ["ineffective_service"]


@pytest.mark.parametrize("sort", ["cheapest", "price_asc", "PriceAsc", 1], ids=ascii)
def test_an_unknown_sort_is_flagged(sort: Any) -> None:
    assert _find(sort=sort) == ["ineffective_sort"]


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"page": 1, "price": "375-", "sort": "priceasc", "service": "COD"},
        {"page": "5", "price": "-50", "sort": "pricedesc", "service": "official,freeShipping,flashsale"},
        {"page": "01", "price": "0-50", "sort": "order"},
        {"price": "100 - 200", "sort": "default", "service": "default"},
        {"price": "100-50"},  # an empty result, which the agent sees
        {"price": "", "service": "", "sort": "", "page": "", "shop_id": "no such shop"},
        {"price": None, "service": None, "sort": None, "page": None},
    ],
    ids=["none", "from", "to", "range", "blanks_and_defaults", "reversed", "empty", "null"],
)
def test_what_takes_effect_or_says_nothing_is_not_flagged(parameters: dict[str, Any]) -> None:
    assert _find(**parameters) == []


def test_flags_are_of_searches_only_once_each_and_sorted() -> None:
    bad = {"q": "pot", "sort": "up", "price": "10"}
    assert _flags(call("find_product", bad, []), call("find_product", bad, [])) == [
        "ineffective_price",
        "ineffective_sort",
    ]
    assert _flags(call("view_product_information", {"product_ids": "1", "price": "10"}, [])) == []
    for queries in ([{"q": "pot", "service": "LazMall"}, 7], orjson.dumps([{"q": "pot", "price": "x"}]).decode()):
        assert len(_flags(call("find_products_in_same_shop", {"product_queries": queries}, {}))) == 1
    assert _flags(call("find_products_in_same_shop", {"product_queries": "no json"}, {})) == []


def test_arguments_that_are_no_object_are_no_filters() -> None:
    for text in ("[1]", "no json", '"x"', ""):
        message = {"role": "assistant", "tool_calls": [{"function": {"name": "find_product", "arguments": text}}]}
        assert ineffective_filters([message]) == []


JUDGED = {
    "discipline": [],
    "recommended_ids": ["1"],
    "lenient_ids": ["1"],
    "unviewed_ids": [],
    "format": 1.0,
}


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        ({}, {}, []),
        ({"discipline": ["no_terminate"]}, {}, ["no_terminate"]),
        ({"lenient_ids": ["2", "1"]}, {}, ["ids_not_plain"]),
        ({"unviewed_ids": ["1"]}, {}, ["unviewed_id"]),
        ({"unviewed_ids": ["1"]}, {"viewed_required": False}, []),
        ({"format": 0.5}, {}, []),
        ({"format": 0.5}, {"min_format": 0.6}, ["format_below_gate"]),
        ({"format": 0.6}, {"min_format": 0.1 + 0.5}, []),
        ({"format": None}, {"min_format": 1.0}, []),
    ],
    ids=["clean", "protocol", "odd_ids", "unviewed", "unviewed_off", "no_gate", "format", "format_equal", "no_format"],
)
def test_violations(values: dict[str, Any], options: dict[str, Any], expected: list[str]) -> None:
    assert violations({**JUDGED, **values}, FilterConfig(**options)) == expected
