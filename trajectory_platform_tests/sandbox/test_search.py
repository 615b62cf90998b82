"""The search server's semantics, row by row of the table in domain 3."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.sandbox.ranking import write_ranking
from trajectory_platform.sandbox.search import SearchIndex, ServerError, parse_page, parse_price
from trajectory_platform_tests.sandbox.built import built_world
from trajectory_platform_tests.sandbox.market import product, world_of

PRICES = (50.0, 100.0, 150.0, 200.0, 375.0, 505.0)


@pytest.fixture(scope="module", params=["memory", "disk"])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SearchIndex:
    """Every test of the table runs on both forms of the index."""
    services = ([], ["COD"], ["COD", "official"], ["freeShipping"], ["flashsale"], [])
    rows = [
        product(str(number), title="mug", price=price, service=service, sold_count=number % 3, shop_id=f"s{number % 2}")
        for number, (price, service) in enumerate(zip(PRICES, services, strict=True))
    ]
    rows.append(product("tea", title="green tea"))
    if request.param == "disk":
        return built_world(tmp_path_factory.mktemp("index"), *rows).index
    return world_of(*rows).index


def prices(index: SearchIndex, **params: Any) -> list[float]:
    return [row["price"] for row in index.find({"q": "mug", "page": 1} | params)]


@pytest.mark.parametrize("page", [None, "0", 0, "6", 6, "1.0", 1.0, " 1", "1 ", "-1", "", True, "x"])
def test_pages_that_have_no_rows(index: SearchIndex, page: Any) -> None:
    params = {"q": "mug"} if page is None else {"q": "mug", "page": page}
    assert index.find(params) == []


@pytest.mark.parametrize("page", ["1", 1, "01", "001", "\uff11", "\uff10\uff11", "\u0661"])  # full-width, Arabic
def test_pages_that_are_page_one(index: SearchIndex, page: Any) -> None:
    assert len(index.find({"q": "mug", "page": page})) == len(PRICES)


@pytest.mark.parametrize("page", ["\u00b2", "\u00b9", "1\u00b2", "\u2460"])  # superscripts, a circled one
def test_a_superscript_page_is_a_server_error(index: SearchIndex, page: str) -> None:
    with pytest.raises(ServerError):
        index.find({"q": "mug", "page": page})


@pytest.mark.parametrize(
    ("price", "kept"),
    [
        ("375-", [p for p in PRICES if p >= 375]),
        ("-50", [50.0]),
        ("0-50", [50.0]),
        ("100 - 200", [100.0, 150.0, 200.0]),
        ("PHP 100-200", [p for p in PRICES if p <= 200]),
        ("180-505 PHP", [p for p in PRICES if p >= 180]),
        ("100-50", []),
        ("100-inf", [p for p in PRICES if p >= 100]),
        ("nan-100", [50.0, 100.0]),
        ("1e2-1.5e2", [100.0, 150.0]),
        ("\uff11\uff10\uff10-150", [100.0, 150.0]),  # full-width digits are a float too
    ],
)
def test_price_bounds(index: SearchIndex, price: str, kept: list[float]) -> None:
    assert prices(index, price=price) == kept


@pytest.mark.parametrize(
    "price", ["11,206", "above:10", "104", 104, "1,000-2,000", "100\u2013200", "nan-nan", "", "-", "1-2-3"]
)
def test_prices_that_are_silently_no_filter(index: SearchIndex, price: Any) -> None:
    assert prices(index, price=price) == list(PRICES)


@pytest.mark.parametrize("service", ["LazMall", "lazmall", "FreeShipping", " COD", "cod", "", "free shipping"])
def test_services_that_are_silently_ignored(index: SearchIndex, service: str) -> None:
    assert prices(index, service=service) == list(PRICES)


@pytest.mark.parametrize(
    ("service", "kept"),
    [("COD", [100.0, 150.0]), ("COD,official", [150.0]), ("COD,LazMall", [100.0, 150.0]), ("freeShipping,COD", [])],
)
def test_known_services_must_all_be_offered(index: SearchIndex, service: str, kept: list[float]) -> None:
    assert prices(index, service=service) == kept


@pytest.mark.parametrize("q", [None, "", " ", '+-!(){}[]^"~*?:\\/', "%%%", "_"])
def test_queries_without_a_word_find_nothing(index: SearchIndex, q: Any) -> None:
    assert index.find({"q": q, "page": 1}) == []


@pytest.mark.parametrize(
    "q", ["mug", "MUG", "+mug", "mug+", "(mug", 'title:"mug', "mug^2", "mug AND", "NOT mug", "a:mug"]
)
def test_special_characters_become_spaces_and_no_operator_works(index: SearchIndex, q: str) -> None:
    assert [row["product_id"] for row in index.find({"q": q, "page": 1})] == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("word", ["\u0130stanbul", "\u039f\u0394\u039f\u03a3", "\u00c9clair", "\u2163", "stra\u00dfe"])
def test_a_word_of_a_title_finds_it_whatever_its_letters_become_in_lower_case(word: str) -> None:
    """Python writes the capital dotted i as two characters, and another sigma at the end of a word."""
    index = world_of(product("1", title=f"{word} lamp"), product("2", title="lamp")).index
    assert [row["product_id"] for row in index.find({"q": f"{word}!", "page": "1"})] == ["1"]


def test_no_letter_is_an_error() -> None:
    index = world_of(product("1")).index
    for code in (*range(0xD800), *range(0xE000, 0x20000)):
        index.find({"q": f"{chr(code)}x", "page": "1"})


def test_a_plus_joined_query_is_its_words(index: SearchIndex) -> None:
    assert [row["product_id"] for row in index.find({"q": "green+tea", "page": 1})] == ["tea"]


@pytest.mark.parametrize(("shop", "kept"), [("s1", 3), (" s1", 0), ("S1", 0), ("s", 0), ("", 6)])
def test_shops_are_compared_exactly(index: SearchIndex, shop: str, kept: int) -> None:
    assert len(index.find({"q": "mug", "page": 1, "shop_id": shop})) == kept


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("priceasc", sorted(PRICES)),
        ("pricedesc", sorted(PRICES, reverse=True)),
        ("order", [150.0, 505.0, 100.0, 375.0, 50.0, 200.0]),  # by sales, equal sales in rank order
        ("default", list(PRICES)),
        ("cheapest", list(PRICES)),
        (None, list(PRICES)),
    ],
)
def test_sorting(index: SearchIndex, sort: Any, order: list[float]) -> None:
    assert prices(index, sort=sort) == order


@pytest.mark.parametrize(
    ("ids", "found"), [("1,0", ["1", "0"]), ("0, 1", ["0"]), ("0,nope,1", ["0", "1"]), ("", []), ("1,1", ["1", "1"])]
)
def test_view_ids_are_split_but_not_stripped(index: SearchIndex, ids: str, found: list[str]) -> None:
    rows = index.view({"product_ids": ids})
    assert [row["product_id"] for row in rows] == found
    assert all(
        list(row) == ["product_id", "short_description", "description", "sku_options", "attributes"] for row in rows
    )


def test_view_without_ids_is_a_server_error(index: SearchIndex) -> None:
    with pytest.raises(ServerError):
        index.view({})


def test_filters_run_in_rank_order_and_stop_after_fifty_survivors() -> None:
    # 60 mugs named twice rank above 60 cheaper mugs named once: "cheapest" is the cheapest of the 50 best-ranked
    top = [product(f"a{number:02d}", title="mug mug", price=200.0 + number) for number in range(60)]
    low = [product(f"b{number:02d}", title="mug with a long name", price=1.0 + number) for number in range(60)]
    index = world_of(*top, *low).index
    pages = [index.find({"q": "mug", "page": page, "sort": "priceasc"}) for page in range(1, 7)]
    assert [len(rows) for rows in pages] == [10, 10, 10, 10, 10, 0]
    assert pages[0][0]["price"] == 200.0
    assert max(row["price"] for rows in pages for row in rows) == 249.0
    # a filter that only the lower ranks pass is still reached, because it is applied on the way down
    cheap = index.find({"q": "mug", "page": 1, "price": "-50"})
    assert [row["product_id"] for row in cheap] == [f"b{number:02d}" for number in range(10)]


@pytest.mark.parametrize("form", ["memory", "disk"])
def test_the_walk_ends_after_ten_thousand_hits(form: str, tmp_path: Path) -> None:
    # equal titles rank by id, so the dear mugs are hit 10,000 and hit 10,001
    rows = [product(f"{number:05d}", title="mug", price=5000.0 if number > 9_998 else 10.0) for number in range(10_020)]
    index = (built_world(tmp_path, *rows) if form == "disk" else world_of(*rows)).index
    dear = index.find({"q": "mug", "page": 1, "price": "4000-"})
    assert [row["product_id"] for row in dear] == ["09999"]


def test_filters_of_every_kind_meet_in_rank_order(index: SearchIndex) -> None:
    both = {"q": "mug", "page": 1, "price": "100-", "service": "COD", "shop_id": "s0", "sort": "pricedesc"}
    assert [row["product_id"] for row in index.find(both)] == ["2"]
    assert index.find(both | {"shop_id": "s1"})[0]["product_id"] == "1"


def test_a_long_query_orders_ties_by_id_and_shorter_answers_begin_longer_ones() -> None:
    draw = random.Random(4)
    words = [f"w{number}" for number in range(30)]
    titles = [" ".join(draw.choices(words, k=draw.randint(3, 9))) for _ in range(40)]
    ranking = write_ranking([draw.choice(titles) for _ in range(6000)])
    for _ in range(20):
        query = " ".join(draw.sample(words, 7))
        whole = ranking.best(query, 10_000).tolist()
        for limit in (1, 50, 700):
            assert ranking.best(query, limit).tolist() == whole[:limit]


@pytest.mark.parametrize("count", [90_000, pytest.param(150_000, marks=pytest.mark.slow)])  # merged into one; several
def test_a_ranking_that_outgrew_its_memory_ranks_the_same(count: int) -> None:
    texts = [f"mug {'blue ' * (number % 3)}{number} code{number * 7919 % 90_001}" for number in range(count)]
    one, several = write_ranking(texts), write_ranking(texts, heap_bytes=15_000_000)
    assert one.segments == 1 and (several.segments > 1) == (count > 100_000)
    for query, limit in (("mug", 50), ("mug blue", 10_000), ("blue 77 code5", 300), ("12345", 10), ("nothing", 10)):
        assert several.best(query, limit).tolist() == one.best(query, limit).tolist()


def test_shops_that_share_a_key_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajectory_platform.sandbox.store.shop_key", lambda shop_id: 7)
    monkeypatch.setattr("trajectory_platform.sandbox.search.shop_key", lambda shop_id: 7)
    index = world_of(*(product(str(number), title="mug", shop_id=f"s{number % 2}") for number in range(4))).index
    assert [row["product_id"] for row in index.find({"q": "mug", "page": 1, "shop_id": "s1"})] == ["1", "3"]


@pytest.mark.parametrize("remembered", [0, 1, 20_000])
def test_what_is_remembered_changes_no_answer(remembered: int) -> None:
    catalogue = world_of(*(product(str(n), title="mug", price=float(n), shop_id=f"s{n % 7}") for n in range(300)))
    index = SearchIndex(catalogue.catalogue, remembered=remembered)
    asked = [{"q": "mug", "page": 1, "shop_id": f"s{n % 7}", "price": f"{n}-"} for n in range(20)]
    first = [index.find(params) for params in asked]
    assert first == [index.find(params) for params in asked]
    assert [rows[0]["product_id"] for rows in first[:3]] == ["0", "1", "100"]


def test_equal_scores_come_in_product_id_order_behind_any_cut() -> None:
    rows = [product(f"{number:04d}", title="mug") for number in range(700, -1, -1)]
    index = world_of(*rows).index
    assert [row["product_id"] for row in index.find({"q": "mug", "page": 1})] == [f"{n:04d}" for n in range(10)]
    assert [row["product_id"] for row in index.find({"q": "mug", "page": 5})] == [f"{n:04d}" for n in range(40, 50)]


def test_words_are_found_in_title_options_and_attributes_but_not_in_descriptions() -> None:
    index = world_of(
        product(
            "1",
            title="bag",
            sku_options={"1": {"color": "teal"}},
            attributes={"material": ["jute"]},
            description="hidden",
        ),
        product("2", title="bag", sku_options=None, attributes={}),
    ).index
    for word in ("teal", "jute"):
        assert [row["product_id"] for row in index.find({"q": word, "page": 1})] == ["1"]
    assert index.find({"q": "hidden", "page": 1}) == []
    assert index.find({"q": "material", "page": 1}) == []  # keys are not indexed


def test_results_cannot_be_changed_through_an_answer(index: SearchIndex) -> None:
    index.find({"q": "mug", "page": 1})[1]["service"].append("forged")
    assert index.find({"q": "mug", "page": 1})[1]["service"] == ["COD"]


def test_an_empty_catalogue_answers_with_empty_lists() -> None:
    for params in ({}, {"price": "1-2"}, {"shop_id": "s1"}, {"service": "COD"}):
        assert world_of().index.find({"q": "mug", "page": 1} | params) == []
    assert world_of().index.view({"product_ids": "1"}) == []


@given(st.text(max_size=12), st.text(max_size=8), st.text(max_size=8), st.text(max_size=6))
def test_any_text_gives_rows_or_a_server_error(index: SearchIndex, q: str, price: str, service: str, page: str) -> None:
    try:
        rows = index.find({"q": q, "price": price, "service": service, "page": page})
    except ServerError:
        with pytest.raises(ServerError):
            parse_page(page)
        return
    assert len(rows) <= 10


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_range_written_by_a_program_is_read_back(low: float, high: float) -> None:
    assert parse_price(f"{low:.2f}-{high:.2f}") == (round(low, 2), round(high, 2))
