"""A catalogue file in any packing gives the same documents; what is broken is counted, never guessed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.sandbox.products import attributes_of, load_products, options_of, price_of
from trajectory_platform_tests.sandbox.market import product

LINES = "".join(json.dumps(product(str(number))) + "\n" for number in range(5)).encode()


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, _zstd], ids=["plain", "gzip", "zstd"])
def test_packing_is_read_from_the_bytes(pack, tmp_path: Path) -> None:
    path = tmp_path / "products.jsonl"
    path.write_bytes(pack(LINES))
    catalogue = load_products(path)
    assert [document["product_id"] for document in catalogue] == ["0", "1", "2", "3", "4"]
    assert catalogue.skipped == ()


def test_broken_lines_are_skipped_and_counted_with_their_reason() -> None:
    lines = [
        b"{broken",
        b"[1]",
        b'{"title": "no id"}',
        b'{"product_id": "7"}',
        b'{"product_id": 8, "shop_id": 9, "title": "numbers become text"}',
        b'{"product_id": "8", "title": "again"}',
        b"",
        b'{"product_id": "10", "title": "odd \\ud83d price", "price": NaN}',
    ]
    catalogue = load_products(b"\n".join(lines))
    assert [document["product_id"] for document in catalogue] == ["8", "10"]
    assert catalogue.get("8") == {"product_id": "8", "shop_id": "9", "title": "numbers become text"}
    assert price_of(catalogue.get("10") or {}) is None
    assert catalogue.skipped_by_reason() == {
        "duplicate_product_id": 1,
        "not_json": 1,
        "not_object": 1,
        "product_id_missing": 1,
        "title_missing": 1,
    }
    assert [entry.line for entry in catalogue.skipped] == [0, 1, 2, 3, 5]


def test_a_damaged_or_missing_file_stops_with_a_clear_error(tmp_path: Path) -> None:
    whole = gzip.compress(LINES, mtime=0)
    for damaged in (whole[:-12], whole[:-8] + bytes(8), whole[:20] + b"\xff" * 20 + whole[40:]):
        with pytest.raises(FailPartition, match="damaged"):
            load_products(damaged)
    with pytest.raises(Abort, match="cannot read"):
        load_products(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize("empty", [None, {}, [], ".", 3])
def test_empty_options_and_attributes_in_any_shape_are_empty(empty: object) -> None:
    assert options_of({"sku_options": empty}) == []
    assert attributes_of({"attributes": empty}) == {}


@pytest.mark.parametrize("price", ["11,206", "90", None, True, float("nan"), float("inf")])
def test_a_price_that_is_no_number_is_never_guessed(price: object) -> None:
    assert price_of({"price": price}) is None


def test_a_lookup_strips_nothing() -> None:
    catalogue = load_products([product("12")])
    assert "12" in catalogue and " 12" not in catalogue and catalogue.get("12 ") is None


def test_a_byte_order_mark_and_windows_line_ends_cost_no_document() -> None:
    plain = load_products(LINES)
    marked = load_products(b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n"))
    assert list(marked) == list(plain) and marked.skipped == ()


def test_of_different_documents_with_one_id_the_order_of_the_lines_decides_nothing() -> None:
    documents = [product("1", price=float(price), title=title) for price in (5, 7) for title in ("a", "b")]
    kept = [load_products(order) for order in (documents, documents[::-1], documents[2:] + documents[:2])]
    assert all(len(catalogue) == 1 and len(catalogue.skipped) == 3 for catalogue in kept)
    assert kept[0].get("1") == kept[1].get("1") == kept[2].get("1")


def test_a_decompression_bomb_costs_its_line() -> None:
    bomb = gzip.compress(b"[" * (40 << 20) + b"\n" + LINES, mtime=0)
    catalogue = load_products(bomb)
    assert [document["product_id"] for document in catalogue] == ["0", "1", "2", "3", "4"]
    assert catalogue.skipped_by_reason() == {"line_too_long": 1}
