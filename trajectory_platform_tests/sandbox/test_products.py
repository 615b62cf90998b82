"""A catalogue file in any packing gives the same documents; what is broken is counted, never guessed."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.sandbox.product_files import content_digest
from trajectory_platform.sandbox.products import attributes_of, load_products, options_of, price_of, search_text
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


def test_the_digest_names_the_content_and_not_the_packing() -> None:
    digests = {load_products(pack(LINES)).digest for pack in (bytes, gzip.compress, _zstd)}
    assert digests == {content_digest(LINES), content_digest(gzip.compress(LINES))} and len(digests) == 1
    assert load_products(LINES + b"\n").digest not in digests
    listed = [load_products(order).digest for order in ([product("1"), product("2")], [product("2"), product("1")])]
    assert listed[0] == listed[1]


@pytest.mark.parametrize("pack", [gzip.compress, _zstd], ids=["gzip", "zstd"])
def test_files_that_were_joined_are_read_to_the_end(pack) -> None:
    assert list(load_products(pack(LINES[: LINES.index(b"\n") + 1]) + pack(LINES))) == list(load_products(LINES))
    for cut in (5, 20):
        with pytest.raises(FailPartition, match="damaged"):
            load_products(pack(LINES)[:-cut])


def test_a_function_that_opens_the_file_is_a_source_too() -> None:
    assert list(load_products(lambda: io.BytesIO(gzip.compress(LINES)))) == list(load_products(LINES))


def test_lines_longer_than_a_piece_and_a_last_line_without_end() -> None:
    documents = [product(str(number), description="x" * 700_000) for number in range(5)]
    data = "\n".join(json.dumps(document) for document in documents).encode()
    assert list(load_products(data)) == documents
    long = json.dumps(product("9", description="x" * (1 << 20))).encode()
    assert load_products(data + b"\n" + long + b"\n" + LINES).skipped_by_reason() == {
        "duplicate_product_id": 5,
        "line_too_long": 1,
    }


def test_hostile_values_cost_their_line_or_their_value_never_the_file() -> None:
    deep = b'{"product_id": "1", "title": "t", "attributes": {"a": ' + b"[" * 400 + b"]" * 400 + b"}}"
    wide = b'{"product_id": "2", "title": "t", "attributes": {"a": [' + b"[]," * 400 + b"1]}}"
    lines = [
        deep,
        deep,
        wide,
        b'{"product_id": "3", "title": "", "price": 1' + b"0" * 400 + b"}",
        b'{"product_id": "4", "title": "odd \\udc00", "sold_count": 123456789012345678901234567890}',
        b'{"product_id": 123456789012345678901234567890, "title": "t"}',
        b'{"product_id": "5", "title": ["list"]}',
        b'{"product_id": "' + b"6" * 500 + b'"}',
        b'{"product_id": true, "title": "t"}',
        b"\xff\xfe{}",
        b'{"product_id": "7", "title": "t", "price": 5}' + b"\x00" * 9,
    ]
    catalogue = load_products(b"\n".join(lines))
    assert [document["product_id"] for document in catalogue] == ["2", "3", "4", "7"]
    assert catalogue.skipped_by_reason() == {
        "bad_encoding": 1,
        "product_id_missing": 2,
        "title_missing": 2,
        "too_deep": 2,
    }
    assert all(len(entry.detail) <= 120 for entry in catalogue.skipped)
    assert price_of(catalogue.get("3") or {}) is None
    assert catalogue.get("4") == {
        "product_id": "4",
        "title": "odd \ufffd",
        "sold_count": 123456789012345678901234567890.0,
    }


def test_a_price_of_hundreds_of_digits_is_no_number() -> None:
    assert price_of({"price": 10**400}) is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"title": "bag", "sku_options": {"1": {"k": "teal", "n": 4}}, "attributes": {"m": ["jute", 2]}},
            "bag teal 4 jute 2",
        ),
        ({"title": "bag", "sku_options": [1], "attributes": {"m": "flat", "n": None}}, "bag flat"),
        ({"title": "", "sku_options": {"1": None, "2": {}}, "attributes": "x"}, ""),
        ({"title": "odd \ud83d"}, "odd ?"),
    ],
)
def test_what_is_searched_is_title_options_and_attributes(fields: dict[str, object], text: str) -> None:
    assert search_text(fields) == text
