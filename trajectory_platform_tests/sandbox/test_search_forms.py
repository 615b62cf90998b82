"""A market answers the same from memory and from disk, whatever its documents look like and whatever is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.sandbox.catalogue_index import world_of
from trajectory_platform.sandbox.products import load_products
from trajectory_platform.sandbox.search import SearchIndex, ServerError
from trajectory_platform.sandbox.tools import World

WORDS = (
    "mug",
    "blue",
    "tea",
    "caf\u00e9",
    "na\u00efve",
    "\u8336",
    "4l",
    "running",
    "runs",
    "the",
    "AND",
    "\u00e2\x9c\x85",
)
titles = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
ids = st.one_of(
    st.integers(-3, 30),
    st.integers(0, 30).map(str),
    st.sampled_from(["a,b", " 1", "1 ", "\u00e9", "\U0001f375", "\uffff", "\ue000", "../x", "0" * 300]),
)
odd = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(-(10**30), 10**30), st.text(max_size=5), st.just([]), st.just({})
)
documents = st.fixed_dictionaries(
    {"product_id": ids, "title": titles},
    optional={
        "shop_id": st.one_of(st.sampled_from(["s1", "s2", 7, ""]), odd),
        "price": st.one_of(st.floats(-1, 300), st.sampled_from([100, 100.0, 150.5, "90", 10**25]), odd),
        "service": st.one_of(st.lists(st.sampled_from(["COD", "official", "freeShipping", "cod", 3]), max_size=3), odd),
        "sold_count": st.one_of(st.integers(0, 5), odd),
        "sku_options": st.one_of(
            st.dictionaries(st.sampled_from("12"), st.one_of(st.dictionaries(titles, odd), odd)), odd
        ),
        "attributes": st.one_of(st.dictionaries(titles, st.one_of(st.lists(titles, max_size=2), titles, odd)), odd),
        "description": st.text(max_size=8),
    },
)
requests = st.fixed_dictionaries(
    {
        "q": st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join),
        "page": st.sampled_from([1, "1", "2", 3, "0", None, "01"]),
    },
    optional={
        "shop_id": st.sampled_from(["s1", "s2", "7", "", "s"]),
        "price": st.sampled_from(["100-", "-150", "0-100", "100-50", "nan-nan", "x"]),
        "service": st.sampled_from(["COD", "official,COD", "LazMall", "freeShipping"]),
        "sort": st.sampled_from(["priceasc", "pricedesc", "order", "default"]),
    },
)


def answer(world: World, params: dict[str, Any]) -> Any:
    try:
        return json.dumps(world.index.find(params))
    except ServerError as error:
        return str(error)


@given(st.lists(documents, max_size=40), st.lists(requests, min_size=1, max_size=8))
@settings(max_examples=25)
def test_memory_and_disk_answer_alike(
    tmp_path_factory: pytest.TempPathFactory, made: list[dict[str, Any]], asked: list[dict[str, Any]]
) -> None:
    data = "".join(json.dumps(document) + "\n" for document in made).encode()  # NaN, surrogates and huge numbers too
    memory = load_products(data)
    one = World(memory, SearchIndex(memory))
    two = world_of(data, tmp_path_factory.mktemp("index"))
    assert [answer(one, params) for params in asked] == [answer(two, params) for params in asked]
    in_order = sorted(memory, key=lambda document: document["product_id"])
    assert json.dumps(list(two.catalogue)) == json.dumps(in_order)
    assert two.catalogue.skipped_by_reason() == memory.skipped_by_reason()
    assert two.catalogue.digest == memory.digest and len(two.catalogue) == len(memory)
    everything = {"product_ids": ",".join(document["product_id"] for document in in_order)}
    assert json.dumps(one.index.view(everything)) == json.dumps(two.index.view(everything))


def test_the_samples_answer_alike(shared: Path, tmp_path: Path) -> None:
    file = shared / "days" / "2026-05-02" / "catalogue" / "products.jsonl"
    if not file.is_file():
        pytest.skip(f"no {file}")
    memory = load_products(file)
    one, two = World(memory, SearchIndex(memory)), world_of(file, tmp_path)
    for document in memory:
        params = {"q": document["title"], "page": 1}
        assert one.index.find(params) == two.index.find(params)
        assert two.catalogue.get(document["product_id"]) == document
    assert two.catalogue.get("no such id") is None
