"""Documents on disk: found by exact id, never invented, told apart when they repeat, and damage has a name."""

from __future__ import annotations

from copy import deepcopy as copy_of
from pathlib import Path
from threading import Thread

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.sandbox.catalogue_index import open_world, world_of
from trajectory_platform.sandbox.products import load_products
from trajectory_platform.sandbox.store import DOCUMENTS, CatalogueStore, columns_of, service_bits, shop_key
from trajectory_platform_tests.sandbox.built import built_world, lines
from trajectory_platform_tests.sandbox.market import product

IDS = ["10", "9", "1", "11", "\u00e9", "e", "z", "\U0001f375", "\uffee", " 1", "a\nb", "x" * 5000, "-"]


@pytest.fixture
def store(tmp_path: Path) -> CatalogueStore:
    catalogue = built_world(tmp_path, *(product(product_id) for product_id in IDS)).catalogue
    assert isinstance(catalogue, CatalogueStore)
    return catalogue


def test_every_id_is_found_and_no_other(store: CatalogueStore) -> None:
    for product_id in IDS:
        assert store.get(product_id) == product(product_id) and product_id in store
    for other in ("", "0", "1 ", "100", "E", "xx", "\ud83d", "zz", "e\u0301"):
        assert store.get(other) is None and other not in store
    assert 1 not in store and None not in store
    assert len(store) == len(IDS)
    assert [document["product_id"] for document in store] == sorted(IDS)


def test_a_store_without_documents(tmp_path: Path) -> None:
    for data in (b"", b"\n\n", b"{}\n[1]\n"):
        world = world_of(data, tmp_path)
        assert len(world.catalogue) == 0 and list(world.catalogue) == [] and world.catalogue.get("1") is None
        assert world.index.find({"q": "mug", "page": 1, "price": "1-2", "shop_id": "s", "service": "COD"}) == []
        assert world.index.find({"q": "mug", "page": 1}) == []
    assert world.catalogue.skipped_by_reason() == {"not_object": 1, "product_id_missing": 1}


def test_repeated_ids_are_resolved_as_in_memory(tmp_path: Path) -> None:
    made = [product(str(n % 4), price=float(price), title=title) for n, price, title in zip(
        range(24), [5, 7, 5, 6, 5, 9] * 4, "abcabd" * 4, strict=True
    )]  # fmt: skip
    for turn, order in enumerate((made, made[::-1], made[7:] + made[:7])):
        memory = load_products(lines(*order))
        disk = built_world(tmp_path / str(turn), *order).catalogue
        assert isinstance(disk, CatalogueStore)
        assert list(disk) == sorted(memory, key=lambda document: str(document["product_id"]))
        assert disk.skipped == memory.skipped


def test_a_pickled_store_opens_its_folder_again(store: CatalogueStore) -> None:
    make, arguments = store.__reduce__()  # what pickle calls
    copy = make(*copy_of(arguments))
    assert list(copy) == list(store) and copy.digest == store.digest


def test_threads_share_a_store(store: CatalogueStore) -> None:
    wrong: list[str] = []

    def look() -> None:
        for _ in range(50):
            wrong.extend(product_id for product_id in IDS if (store.get(product_id) or {})["product_id"] != product_id)

    threads = [Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_document_that_was_overwritten_is_named_and_not_invented(tmp_path: Path) -> None:
    folder = open_world_folder(tmp_path)
    data = bytearray((folder / DOCUMENTS).read_bytes())
    data[0:1] = b"#"
    (folder / DOCUMENTS).write_bytes(data)
    store = CatalogueStore(folder, "digest", {})
    with pytest.raises(FailPartition, match="damaged"):
        store.get("1")


def open_world_folder(root: Path) -> Path:
    catalogue = built_world(root, product("1")).catalogue
    assert isinstance(catalogue, CatalogueStore)
    assert open_world(catalogue.folder).catalogue.get("1") == product("1")
    return catalogue.folder


def test_columns_say_what_filters_ask(tmp_path: Path) -> None:
    rows = [
        product("1", price=99.5, service=["COD", "official", "unknown"], shop_id="s1"),
        product("2", price="90", service="COD", shop_id=None),
        product("3", price=10**20, service=[], shop_id="s2"),
    ]
    disk = built_world(tmp_path, *rows).catalogue
    assert isinstance(disk, CatalogueStore)
    for columns in (disk.columns(), columns_of(rows)):
        assert columns.price.tolist()[::2] == [99.5, 1e20] and columns.price[1] != columns.price[1]
        assert columns.services.tolist() == [service_bits(["official", "COD"]), 0, 0]
        assert columns.shop.tolist() == [shop_key("s1"), 0, shop_key("s2")]
