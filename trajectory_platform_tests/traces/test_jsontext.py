"""JSON text: strict reading with counted repairs, writing that a strict reader accepts."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow


def refused(data: bytes, **limits: int) -> str:
    with pytest.raises(RejectRow) as caught:
        jsontext.parse(data, **limits)
    return caught.value.reason


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"NaN", None),
        (b'{"score": NaN, "price": -Infinity, "big": 1e999}', {"score": None, "price": None, "big": None}),
        (b"[-1e999, 1.5]", [None, 1.5]),
    ],
)
def test_non_finite_numbers_are_null_and_counted(data: bytes, value: Any) -> None:
    parsed = jsontext.parse(data)
    assert parsed.value == value
    assert parsed.repairs == {"non_finite_number": json.dumps(value).count("null")}


def test_lone_surrogates_are_replaced_and_pairs_untouched() -> None:
    parsed = jsontext.parse(rb'{"a\udc00": "price \ud83d ok \ud83d\ude00"}')
    assert parsed.value == {"a\ufffd": "price \ufffd ok \U0001f600"}
    assert parsed.repairs == {"lone_surrogate": 2}


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":2}',
        b'{"a" : 1, "a" : 2, "b" :3}',
        b'{"a":1,"a":"\\u003a"}',
        b'{"a":1,"\\u0061":2}',
        b'[{"x":{"k":[1],"k":[true]}}]',
        b'{"a":{},"a":{"b":"\\":\\":"}}',
    ],
)
def test_a_key_with_two_values_is_refused(data: bytes) -> None:
    assert refused(data) == "duplicate_key"


def test_a_key_repeated_with_an_equal_value_is_read_once() -> None:
    parsed = jsontext.parse(b'{"a":{"x":1,"y":2},"a":{"y":2,"x":1}}')
    assert parsed.value == {"a": {"x": 1, "y": 2}}
    assert parsed.repairs == {"repeated_key": 1}


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**40])
def test_integers_keep_every_digit_both_ways(number: int) -> None:
    value = jsontext.parse(b'{"k":%d,"f":1.5}' % number).value
    assert value == {"k": number, "f": 1.5}
    assert str(number) in jsontext.dumps(value)
    assert str(number) in jsontext.canonical(value)


def test_nesting_is_counted_exactly_at_the_limit() -> None:
    for depth in (1, 99, 100):
        assert jsontext.parse(b"[" * depth + b"1" + b"]" * depth).repairs == {}
    for depth in (101, 300, 5000, 200_000):
        assert refused(b"[" * depth + b"1" + b"]" * depth) == "too_deep"
        assert refused(b'{"a":' * depth + b"1" + b"}" * depth) == "too_deep"
    assert refused(b'["]",["]",["[[["]]]', max_depth=2) == "too_deep"
    large = b"[" * 101 + b"1," * 200_000 + b"1" + b"]" * 101
    assert refused(large) == "too_deep"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not_json"),
        (b"hello", "not_json"),
        (b"[1] x", "not_json"),
        (b'"a\nb"', "not_json"),
        (b'{"a":"b', "truncated_json"),
        (b'{"a":', "truncated_json"),
        (b"[1,", "truncated_json"),
        (b'"\xff"', "bad_encoding"),
        (b"\x00\x00[]", "nul_bytes"),
        (b"[1\x00]", "nul_bytes"),
        (b"1" * 5000, "number_too_long"),
    ],
)
def test_damage_is_named(data: bytes, reason: str) -> None:
    assert refused(data) == reason


def test_writing_is_always_strict_json() -> None:
    odd = {"nan": math.nan, "inf": [math.inf], "half": "\ud800", "big": 10**30, "one": 1, "float": 1.0, "text": "1"}
    for text in (jsontext.dumps(odd), jsontext.canonical(odd)):
        text.encode("utf-8")
        back = json.loads(text, parse_constant=lambda token: pytest.fail(token))
        assert back == {**odd, "nan": None, "inf": [None], "half": "\ufffd"}
        assert (type(back["one"]), type(back["float"]), type(back["text"])) == (int, float, str)


def test_canonical_text_has_sorted_keys_and_no_spaces() -> None:
    assert (
        jsontext.canonical({"b": [1, 1.5, "1"], "a": {"d": None, "c": True}})
        == '{"a":{"c":true,"d":null},"b":[1,1.5,"1"]}'
    )
    assert jsontext.dumps({"b": 1, "a": "\u00e9"}) == '{"b":1,"a":"\u00e9"}'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=300)
@given(JSON, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_any_json_value_is_read_as_the_reference_reads_it(value: Any, ascii_only: bool, indent: Any) -> None:
    """The fast checks for repeated keys, depth and digits never disturb an honest text."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    data = text.encode("utf-8", "surrogatepass")
    parsed = jsontext.parse(data)
    if not parsed.repairs:
        assert parsed.value == value
        assert jsontext.parse(jsontext.canonical(value).encode()).value == value
    else:
        assert set(parsed.repairs) == {"lone_surrogate"}


@settings(max_examples=200)
@given(st.dictionaries(st.text('ab:\\" ', max_size=3), st.integers(0, 3), min_size=1, max_size=4), st.data())
def test_no_repeated_key_escapes(members: dict[str, int], data: Any) -> None:
    """However the text is spelt, an object with one key and two values is refused."""
    key = data.draw(st.sampled_from(sorted(members)))
    blank = data.draw(st.sampled_from(["", " ", "\n\t"]))
    items = [*members.items(), (key, members[key] + 1)]
    spelt = [
        (json.dumps(name) if data.draw(st.booleans()) else '"' + "".join(f"\\u{ord(c):04x}" for c in name) + '"')
        + f"{blank}:{blank}{value}"
        for name, value in items
    ]
    text = data.draw(st.sampled_from(["{%s}", '[{"z":"\\":"},{%s}]'])) % ",".join(spelt)
    assert refused(text.encode()) == "duplicate_key"


def test_a_json_line_is_one_line_for_every_reader() -> None:
    text = "a\x85b\u2028c\u2029d\ne"
    line = jsontext.dumps_line({"t": text})
    assert line.splitlines() == [line]
    assert jsontext.parse(line.encode()).value == {"t": text}
