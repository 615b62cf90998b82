"""The content digest sees every value and no batch boundary."""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.identity import digest_json
from trajectory_platform.lake.digests import ContentDigest, table_digest
from trajectory_platform.lake.tables import Table

TABLE = Table("t", {"k": "text", "i": "int?", "f": "float?", "b": "bool?", "l": "texts?", "t": "text?"}, ("k",), "test")

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=5)
ROW = st.tuples(
    TEXT,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(),
    st.none() | st.booleans(),
    st.none() | st.lists(st.none() | TEXT, max_size=3),
    st.none() | TEXT,
)


def rows_of(values: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*values, strict=True)) if values else [()] * 6
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(columns, TABLE.schema(), strict=True)],
        schema=TABLE.schema(),
    )


def plain(values: list[tuple[Any, ...]]) -> str:
    return repr([tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in row) for row in values])


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(ROW, max_size=8), st.lists(st.integers(0, 8), max_size=4))
def test_cuts_do_not_show(values: list[tuple[Any, ...]], cuts: list[int]) -> None:
    rows = rows_of(values).combine_chunks()
    digest = ContentDigest(TABLE)
    edges = sorted({0, len(values), *(min(cut, len(values)) for cut in cuts)})
    for first, last in zip(edges, edges[1:], strict=False):
        for batch in rows.slice(first, last - first).to_batches():
            digest.update(batch)
    assert digest.hexdigest() == table_digest(TABLE, rows)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(ROW, max_size=4), st.lists(ROW, max_size=4))
def test_other_rows_have_another_digest(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> None:
    equal = table_digest(TABLE, rows_of(one)) == table_digest(TABLE, rows_of(other))
    assert equal == (plain(one) == plain(other))


def test_values_do_not_run_into_one_another() -> None:
    pairs = [
        ([("k", None, None, None, ["ab", "c"], None)], [("k", None, None, None, ["a", "bc"], None)]),
        ([("k", None, None, None, [], None)], [("k", None, None, None, None, None)]),
        ([("k", None, None, None, [None], None)], [("k", None, None, None, [""], None)]),
        ([("k", 0, None, None, None, "")], [("k", None, None, None, None, None)]),
        ([("k", None, 0.0, None, None, None)], [("k", None, -0.0, None, None, None)]),
    ]
    for one, other in pairs:
        assert table_digest(TABLE, rows_of(one)) != table_digest(TABLE, rows_of(other))


def test_the_digest_is_the_documented_one() -> None:
    """The encoding written out value by value, as the module's docstring states it."""
    values = [("a", 1, 0.5, True, ["x", None], "é"), ("b", None, math.nan, None, None, None)]

    def sha(pieces: list[bytes]) -> str:
        return hashlib.sha256(b"".join(pieces)).hexdigest()

    def valid(column: list[Any]) -> str:
        return sha([bytes([value is not None]) for value in column])

    def number(column: list[Any], code: str) -> str:
        return sha([struct.pack(code, 0 if value is None else value) for value in column])

    def text(column: list[Any]) -> list[str]:
        encoded = [b"" if value is None else value.encode() for value in column]
        return [number([len(piece) for piece in encoded], "<q"), sha(encoded)]

    nothing = sha([])
    keys, integers, floats, bools, lists, texts = (list(column) for column in zip(*values, strict=True))
    items = [item for one in lists if one is not None for item in one]
    columns = [
        ["k", "text", [valid(keys), *text(keys), nothing, nothing]],
        ["i", "int?", [valid(integers), number(integers, "<q"), nothing, nothing, nothing]],
        ["f", "float?", [valid(floats), number(floats, "<d"), nothing, nothing, nothing]],
        ["b", "bool?", [valid(bools), number(bools, "<?"), nothing, nothing, nothing]],
        ["l", "texts?", [valid(lists), number([2, 0], "<q"), valid(items), *text(items)]],
        ["t", "text?", [valid(texts), *text(texts), nothing, nothing]],
    ]
    documented = digest_json({"encoding": 1, "rows": 2, "columns": columns})
    assert table_digest(TABLE, rows_of(values)) == documented
