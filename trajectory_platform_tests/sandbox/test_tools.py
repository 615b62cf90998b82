"""What the seven tools answer, and that no argument makes them raise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.sandbox.products import load_products
from trajectory_platform.sandbox.search import SearchIndex
from trajectory_platform.sandbox.tools import TOOLS, World, call_tool
from trajectory_platform.sources.container import Limits, open_artifact
from trajectory_platform_tests.sandbox.market import product, world_of

NAMES = [tool["function"]["name"] for tool in TOOLS]


@pytest.fixture(scope="module")
def world() -> World:
    return world_of(
        product(
            "1",
            title="blue mug",
            sku_options={"1": {"color": "blue"}},
            attributes={"material": ["Clay"]},
            short_description="For tea;",
        ),
        product("2", title="blue mug with a long wooden handle", shop_id="s2", price=80.5, description="hand made"),
        product("3", title="tea box", shop_id="s2", price=20.25, service=["COD"]),
        product("4", title="tea box", shop_id="s3"),
    )


def test_the_schemas_name_the_seven_tools_in_a_stable_order() -> None:
    assert NAMES == [
        "find_product",
        "view_product_information",
        "check_product_match",
        "find_products_in_same_shop",
        "calculate_voucher",
        "recommend_product",
        "terminate",
    ]
    for tool in TOOLS:
        function = tool["function"]
        assert tool["type"] == "function" and set(function) == {"name", "description", "parameters"}
        assert set(function["parameters"]["required"]) <= set(function["parameters"]["properties"])
    assert json.loads(json.dumps(TOOLS)) == TOOLS


def test_default_is_a_word_of_the_tool_and_never_sent(world: World) -> None:
    sent: list[dict[str, Any]] = []
    arguments = {"q": "tea box", "sort": "default", "service": "default", "page": None}
    call_tool(world, "find_product", arguments, lambda path, params, rows: sent.append(params))
    arguments = {"q": "tea box", "sort": "priceasc", "service": "default,COD"}
    rows = call_tool(world, "find_product", arguments, lambda path, params, rows: sent.append(params))
    assert sent == [
        {"q": "tea box", "page": 1},
        {"q": "tea box", "page": 1, "sort": "priceasc", "service": "COD"},
    ]
    assert [row["product_id"] for row in rows] == ["3"]


def test_find_product_fills_in_page_one(world: World) -> None:
    rows = call_tool(world, "find_product", {"q": "mug"})
    assert rows == call_tool(world, "find_product", {"q": "mug", "page": 1})
    assert [list(row) for row in rows] == [["product_id", "shop_id", "title", "price", "service", "sold_count"]] * 2


def test_recommend_and_terminate_answer_with_a_confirmation(world: World) -> None:
    answer = call_tool(world, "recommend_product", {"product_ids": " 12 ,,34,12"})
    assert answer == "Having recommended the products to the user:  12 ,,34,12."
    answer = call_tool(world, "terminate", {"status": "failure"})
    assert answer == "The interaction has been completed with status: failure"
    assert call_tool(world, "terminate", {}) == "The interaction has been completed with status: success"


@pytest.mark.parametrize(
    ("requirements", "matches", "mismatches"),
    [
        ({"color": "blue"}, ["color"], []),  # in a SKU option
        ({"material": "clay"}, ["material"], []),  # case is ignored
        ({"material": "lay"}, ["material"], []),  # substring
        ({"color": "red", "material": "clay"}, ["material"], ["color"]),
        ({"any": ["blue", "clay"]}, ["any"], []),
        ({"any": []}, [], ["any"]),
        ({"any": [["blue"]]}, [], ["any"]),
        ({"note": "for tea"}, ["note"], []),  # in the short description
        ({"n": 5}, [], ["n"]),
    ],
)
@pytest.mark.parametrize("form", [json.dumps, dict], ids=["text", "object"])
def test_check_product_match(world: World, requirements: Any, matches: Any, mismatches: Any, form: Any) -> None:
    answer = call_tool(world, "check_product_match", {"product_id": "1", "requirements": form(requirements)})
    assert answer == {
        "matched": not mismatches,
        "matches": matches,
        "mismatches": mismatches,
        "product_summary": {"product_id": "1", "attributes": {"material": ["Clay"]}},
    }


def test_a_value_may_span_the_values_of_its_own_attribute() -> None:
    world = world_of(product("1", attributes={"Features": ["bpa", "free"]}))
    answer = call_tool(world, "check_product_match", {"product_id": "1", "requirements": {"features": "bpa free"}})
    assert answer["matched"]
    answer = call_tool(world, "check_product_match", {"product_id": "1", "requirements": {"other": "bpa free"}})
    assert not answer["matched"]


def test_the_summary_of_a_check_has_ten_attributes_at_most() -> None:
    world = world_of(product("1", attributes={f"k{n:02}": ["v"] for n in range(15)}))
    answer = call_tool(world, "check_product_match", {"product_id": "1", "requirements": {"a": "v"}})
    assert list(answer["product_summary"]["attributes"]) == [f"k{n:02}" for n in range(10)]


@pytest.mark.parametrize(
    ("arguments", "mismatches"),
    [
        ({"product_id": "99", "requirements": "{}"}, []),
        ({"product_id": "99", "requirements": '{"a": "b"}'}, ["a"]),
        ({"product_id": "1", "requirements": "not json"}, []),
        ({"product_id": "1", "requirements": "[]"}, []),
        ({"requirements": '{"a": "b"}'}, []),
        ({}, []),
    ],
)
def test_a_check_that_cannot_be_made_says_so_in_its_own_shape(
    world: World, arguments: Any, mismatches: list[str]
) -> None:
    answer = call_tool(world, "check_product_match", arguments)
    assert answer.pop("error")
    assert answer == {"matched": False, "matches": [], "mismatches": mismatches, "product_summary": {}}


def test_the_first_shop_with_a_hit_for_every_query_is_found(world: World) -> None:
    queries = json.dumps([{"q": "mug"}, {"q": "tea box", "service": "COD"}])
    answer = call_tool(world, "find_products_in_same_shop", {"product_queries": queries})
    assert answer == {
        "found": True,
        "shop_id": "s2",
        "products": [
            {"product_id": "2", "title": "blue mug with a long wooden handle", "price": 80.5, "shop_id": "s2"},
            {"product_id": "3", "title": "tea box", "price": 20.25, "shop_id": "s2"},
        ],
        "shops_tried": 2,
    }
    answer = call_tool(world, "find_products_in_same_shop", {"product_queries": '[{"q": "mug"}, {"q": "drum"}]'})
    assert answer == {
        "found": False,
        "shop_id": None,
        "products": [],
        "shops_tried": 2,
        "error": "Could not find all 2 products in any single shop",
    }
    answer = call_tool(world, "find_products_in_same_shop", {"product_queries": '[{"q": "drum"}]'})
    assert (answer["error"], answer["shops_tried"]) == ("No results for first product: drum", 0)


def test_inside_a_shop_a_query_is_tried_in_four_forms() -> None:
    """The requests that published logs show for this tool; the first product is not searched again."""
    world = world_of(
        product("1", title="yoga mat"),
        product("2", title="yoga mat", shop_id="s2"),
        product("3", title="string lamp", shop_id="s2"),
    )
    sent: list[dict[str, Any]] = []
    queries = [{"q": "yoga mat", "price": ""}, {"q": "solar lights remote string", "price": "1-200", "service": "COD"}]
    call_tool(
        world,
        "find_products_in_same_shop",
        {"product_queries": queries},
        lambda path, params, rows: sent.append(params),
    )
    inside = {"price": "1-200", "shop_id": "s1", "page": 1}
    assert sent[:5] == [
        {"q": "yoga mat", "page": 1},
        {"q": "solar lights remote string", **inside, "service": "COD"},
        {"q": "solar lights remote string", **inside},
        {"q": "solar lights", **inside},
        {"q": "solar", **inside},
    ]
    assert [request["shop_id"] for request in sent[5:]] == ["s2", "s2"], "found without the service"


@pytest.mark.parametrize(
    "queries", ["", "{}", "[]", "[1]", '[{"q": "a", "price": 5}]', '[{"price": "1-2"}]', '[{"q": 3}]', None, 7]
)
def test_queries_that_cannot_be_used_are_an_error(world: World, queries: Any) -> None:
    answer = call_tool(world, "find_products_in_same_shop", {"product_queries": queries})
    assert answer["found"] is False and answer["error"]


def test_at_most_ten_shops_are_tried() -> None:
    shops = [product(f"{n:02d}", title="mug", shop_id=f"s{n:02d}") for n in range(10)]
    more = [product(f"{n:02d}", title="mug mug mug very long name here", shop_id=f"s{n:02d}") for n in range(10, 15)]
    world = world_of(*shops, *more)
    answer = call_tool(world, "find_products_in_same_shop", {"product_queries": '[{"q": "mug"}, {"q": "drum"}]'})
    assert answer["shops_tried"] == 10


@pytest.mark.parametrize(
    ("arguments", "discount", "after", "within", "applied"),
    [
        (("91.0,624.0", "percentage", 20, 324, 574, 285), 143.0, 572.0, True, True),
        (("309.0,699.53", "fixed", 221, 887, 790, None), 221, 787.53, True, True),
        (("100,200", "percentage", 50, 100, 200, 60), 60, 240.0, False, True),  # capped
        (("100,200", "percentage", 50, 100, 200, 0), 150.0, 150.0, True, True),  # 0 is no cap
        (("100,200", "fixed", 50, 400, 299, None), 0.0, 300.0, False, False),  # below the threshold
        (("100,200", "fixed", 50, 300, 299, None), 0.0, 300.0, False, False),  # the tool wants more than the threshold
        (("100", "fixed", 150, 50, 10, None), 150, 0.0, True, True),  # never below nothing
        (("33.33,33.33", "percentage", 15, 10, 56.66, 0), 10.0, 56.66, True, True),
    ],
)
def test_voucher_arithmetic(
    world: World, arguments: Any, discount: Any, after: Any, within: bool, applied: bool
) -> None:
    prices, kind, value, threshold, budget, cap = arguments
    given = {
        "product_prices": prices,
        "voucher_type": kind,
        "discount_value": value,
        "threshold": threshold,
        "budget": budget,
    } | ({} if cap is None else {"cap": cap})
    numbers = [float(price) for price in prices.split(",")]
    assert call_tool(world, "calculate_voucher", given) == {
        "prices": numbers,
        "total_before": round(sum(numbers), 2),
        "discount_amount": discount,
        "total_after": after,
        "within_budget": within,
        "voucher_applied": applied,
        "budget": budget,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"product_prices": "11,x"},
        {"product_prices": ""},
        {"product_prices": "nan"},
        {"product_prices": [1.0]},
        {"voucher_type": "platform"},
        {"discount_value": None},
        {"threshold": True},
        {"budget": float("nan")},
        {"budget": "much"},
        {"cap": -1},
        {"budget": 10**400},
        {"product_prices": "1e300,1e300"},
    ],
)
def test_a_voucher_that_cannot_be_calculated_is_an_error(world: World, change: Any) -> None:
    good = {"product_prices": "1,2", "voucher_type": "fixed", "discount_value": 1, "threshold": 1, "budget": 5}
    assert list(call_tool(world, "calculate_voucher", good | change)) == ["error"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("web_search", {"q": "mug"}),
        (None, {}),
        ("find_product", None),
        ("find_product", "q=mug"),
        ("find_product", {"q": ["mug"]}),
        ("find_product", {"q": "mug", "page": "\u00b2"}),
        ("view_product_information", {}),
        ("view_product_information", {"product_ids": ["1"]}),
        ("recommend_product", {"product_ids": ["1"]}),
        ("recommend_product", {"product_id": "1"}),
        ("terminate", {"status": {}}),
        ("find_product", {"q": "mug", "page": 10**5000}),
        ("view_product_information", {"product_ids": 10**5000}),
    ],
)
def test_wrong_use_is_an_error_result(world: World, name: Any, arguments: Any) -> None:
    assert list(call_tool(world, name, arguments)) == ["error"]


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)  # beyond any float
    | st.floats()
    | st.text(st.characters(), max_size=8)  # lone surrogates too
    | st.sampled_from(["{}", "[]", '[{"q": "mug"}]', '{"a": ["b", 1]}', "1,2", "NaN", "[" * 2000]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_KEYS = sorted({key for tool in TOOLS for key in tool["function"]["parameters"]["properties"]})


@given(st.sampled_from(NAMES) | _JSON, _JSON | st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=6))
def test_no_argument_makes_a_tool_raise(world: World, name: Any, arguments: Any) -> None:
    json.dumps(call_tool(world, name, arguments), allow_nan=False)  # a JSON value


def test_nesting_beyond_the_interpreter_makes_no_tool_raise(world: World) -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    for name in NAMES:
        for key in _KEYS:
            call_tool(world, name, {"product_id": "1", "requirements": {"a": deep}, "q": "mug", key: deep})


def test_every_request_to_the_server_is_reported(world: World) -> None:
    seen: list[tuple[str, Any]] = []

    def report(path: str, params: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        seen.append((path, params))

    call_tool(world, "find_product", {"q": "mug", "sort": None}, report)
    call_tool(world, "check_product_match", {"product_id": "1", "requirements": '{"a": "b"}'}, report)
    call_tool(world, "find_products_in_same_shop", {"product_queries": '[{"q": "mug"}]'}, report)
    call_tool(world, "terminate", {"status": "success"}, report)
    assert seen == [
        ("find_product", {"q": "mug", "page": 1}),
        ("view_product_information", {"product_ids": "1"}),
        ("find_product", {"q": "mug", "page": 1}),
    ]


def test_the_shared_days_agree_with_our_tools(shared: Path) -> None:
    """Real results of the subnet's own tools: equal, but for ranking details and the check's known fault."""
    catalogue = load_products(shared / "days" / "2026-05-02" / "catalogue" / "products.jsonl")
    world = World(catalogue, SearchIndex(catalogue))
    exact = {
        "view_product_information",
        "calculate_voucher",
        "find_products_in_same_shop",
        "terminate",
        "recommend_product",
    }
    compared: dict[str, int] = {}
    overlap: list[float] = []
    rows = [json.loads(line) for line in (shared / "days" / "truth.jsonl").open()]
    for row in rows:
        if row["artifact_form"] != "json_array_gzip" or row["malformed"] or row["flags"]:
            continue
        record = open_artifact((shared / "days" / row["artifact"]).read_bytes(), Limits()).records[0]
        for step in record.steps or []:
            for call in step["completion"]["message"].get("tool_call", []):
                answer = call_tool(world, call["name"], call["parameters"])
                if call["name"] in exact:
                    compared[call["name"]] = compared.get(call["name"], 0) + 1
                    assert answer == call["result"], (row["eval_run_id"], call["parameters"])
                elif call["name"] == "find_product":
                    ours, theirs = ({item["product_id"] for item in rows} for rows in (answer, call["result"]))
                    overlap.append(len(ours & theirs) / max(1, len(ours | theirs)))
    assert set(compared) == exact and min(compared.values()) >= 8
    assert sum(overlap) / len(overlap) > 0.9
