"""Every form in which a model writes calls is read; damage is named, never completed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.errors import RejectRow
from trajectory_platform.traces.toolcalls import normalise_arguments, parse_arguments, parse_reply

_json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_tag_text = st.sampled_from(
    ["</tool_call>", "<tool_call>", "</think>", "<think>", "<response>", "</response>", "```", "\\", '"', "'", "{", "]"]
)
_nasty_text = st.lists(_tag_text | st.text(max_size=6), max_size=8).map("".join)
_arguments = st.dictionaries(st.text(min_size=1), _json_values | _nasty_text, max_size=4)
_clean = st.text(st.characters(exclude_categories=("Cs",)))


def _is_storable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("content", "native"),
    [
        ('<tool_call>[{"name": "find_product", "parameters": {"q": "tea"}}]</tool_call>', None),
        ('<tool_call>\n{"name": "find_product", "arguments": {"q": "tea"}}\n</tool_call>', None),
        ('<tool_call>{"tool": "find_product", "arguments": {"q": "tea"}}</tool_call>', None),
        ('<tool_call>{"function": "find_product", "arguments": "{\\"q\\": \\"tea\\"}"}</tool_call>', None),
        ('[{"name": "find_product", "parameters": {"q": "tea"}}]', None),
        ('I look.\n```json\n{"name": "find_product", "arguments": {"q": "tea"}}\n```\n', None),
        (
            '<think>it was never closed <tool_call>[{"name": "find_product", "parameters": {"q": "tea"}}]</tool_call>',
            None,
        ),
        ('<think>t</think>\n[{"name": "find_product", "parameters": {"q": "tea"}}]\n<response>done</response>', None),
        ('```\n{"name": "find_product", "parameters": {"q": "tea"}}\n```<response>done</response>', None),
        ("<tool_call>{'name': 'find_product', 'arguments': {'q': 'tea'}}</tool_call>", None),
        ("prose", [{"id": "c1", "type": "function", "function": {"name": "find_product", "arguments": '{"q":"tea"}'}}]),
        (None, [{"id": "c1", "type": "function", "function": {"name": "find_product", "arguments": {"q": "tea"}}}]),
        (None, {"name": "find_product", "arguments": '{"q": "tea"}'}),
    ],
)
def test_every_form_of_domain_1_7_gives_the_same_call(content: str | None, native: Any) -> None:
    reply = parse_reply(content, native)
    assert [(call.name, call.arguments, call.arguments_text) for call in reply.calls] == [
        ("find_product", {"q": "tea"}, '{"q":"tea"}')
    ]
    assert reply.error is None
    assert "tool_call" not in reply.rest


def test_several_blocks_and_parallel_calls_keep_their_order() -> None:
    content = (
        '<think>two things</think>\n<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>\n'
        '<tool_call>[{"name": "b", "parameters": {}}, {"name": "c", "parameters": {}}]</tool_call>'
        "\n<response>ok</response>"
    )
    reply = parse_reply(content)
    assert [call.name for call in reply.calls] == ["a", "b", "c"]
    assert (reply.think, reply.response, reply.rest) == ("two things", "ok", "")


@given(_arguments.filter(_is_storable), st.sampled_from(["array", "object", "bare", "native_text", "native_object"]))
def test_arguments_with_any_text_come_back_unchanged(arguments: dict[str, Any], form: str) -> None:
    """A closing tag, a quote or a bracket inside an argument never ends the call (cases A13, A16)."""
    call: Any = {"name": "f", "arguments": arguments}
    if form == "array":
        reply = parse_reply(f"<think>x</think>\n<tool_call>{json.dumps([call], ensure_ascii=False)}</tool_call> after")
    elif form == "object":
        reply = parse_reply(f"<tool_call>\n{json.dumps(call)}\n</tool_call>\nafter")
    elif form == "bare":
        reply = parse_reply(f"{json.dumps([call], ensure_ascii=False)}\nafter")
    else:
        value = json.dumps(arguments) if form == "native_text" else arguments
        reply = parse_reply("after", [{"function": {"name": "f", "arguments": value}}])
    assert reply.error is None
    assert [parsed.arguments for parsed in reply.calls] == [arguments]
    assert json.loads(reply.calls[0].arguments_text) == arguments
    assert reply.rest == "after"


@given(st.lists(_nasty_text | st.just('{"name": "f", "arguments": {"q": '), max_size=6).map("".join) | st.text())
def test_no_text_makes_the_reader_raise(text: str) -> None:
    reply = parse_reply(text)
    assert reply.error in (None, "truncated", "truncated_tool_call", "malformed_tool_call")
    for call in reply.calls:
        assert call.name
        json.loads(call.arguments_text)
        call.arguments_text.encode()


@given(_json_values | st.lists(st.dictionaries(st.sampled_from(["name", "function", "arguments", "id"]), _json_values)))
def test_no_native_value_makes_the_reader_raise(native: Any) -> None:
    parse_reply("", native)


@given(st.text() | _json_values)
def test_arguments_raise_only_what_is_documented(value: Any) -> None:
    try:
        arguments, _ = parse_arguments(value)
    except RejectRow as error:
        assert error.reason in (
            "truncated_arguments",
            "malformed_arguments",
            "duplicate_key",
            "arguments_not_object",
        )
    else:
        assert isinstance(arguments, dict)


@given(st.integers(1, 60))
def test_a_call_cut_anywhere_is_never_completed(cut: int) -> None:
    whole = '{"name": "find_product", "arguments": {"q": "tea", "page": 12}}'
    reply = parse_reply("ok <tool_call>\n" + whole[: min(cut, len(whole) - 1)])
    assert (reply.calls, reply.error, reply.rest) == ([], "truncated_tool_call", "ok")


def test_calls_before_the_damage_are_kept() -> None:
    reply = parse_reply('<tool_call>{"name": "a", "arguments": {}}</tool_call><tool_call>{"name": "b", "argu')
    assert [call.name for call in reply.calls] == ["a"]
    assert reply.error == "truncated_tool_call"


@pytest.mark.parametrize(
    "content",
    [
        "Close the block with </think> and continue",
        "The <tool_call> tag opens a call.",
        '{"answer": 42}',
        "[1, 2, 3]",
        '```json\n{"category": "teapot"}\n```',
    ],
)
def test_ordinary_text_is_neither_call_nor_thought(content: str) -> None:
    reply = parse_reply(content)
    assert (reply.think, reply.calls, reply.rest, reply.error) == ("", [], content.strip(), None)


def test_a_call_quoted_in_a_response_or_thought_is_text() -> None:
    call = '<tool_call>[{"name": "f", "arguments": {}}]</tool_call>'
    assert parse_reply(f"<response>type {call}</response>").calls == []
    assert parse_reply(f"<think>type {call}</think>\n<response>done</response>").calls == []


def test_thinking_cut_by_the_token_limit_is_named() -> None:
    reply = parse_reply("<think>I wonder whether")
    assert (reply.think, reply.rest, reply.error) == ("I wonder whether", "", "truncated")


@pytest.mark.parametrize(
    ("value", "arguments", "repairs"),
    [
        ("", {}, ("empty_arguments",)),
        ("  \n", {}, ("empty_arguments",)),
        (None, {}, ("empty_arguments",)),
        ('{"q":"teapot"}', {"q": "teapot"}, ()),
        ({"q": "teapot"}, {"q": "teapot"}, ()),
        (json.dumps('{"q":"teapot"}'), {"q": "teapot"}, ("double_encoded_arguments",)),
        ('{"q":"women\'s kettle"}', {"q": "women's kettle"}, ()),
        (
            "{'q': 'kettle', 'cod': True, 'shop': None}",
            {"q": "kettle", "cod": True, "shop": None},
            ("python_literal_arguments",),
        ),
        ('{"a": NaN, "b": 1e999}', {"a": None, "b": None}, ("non_finite_number",)),
        ('{"q": "\\ud83d"}', {"q": "\ufffd"}, ("lone_surrogate",)),
        ('{"n": 12345678901234567890123}', {"n": 12345678901234567890123}, ()),
    ],
)
def test_argument_texts(value: Any, arguments: dict[str, Any], repairs: tuple[str, ...]) -> None:
    assert parse_arguments(value) == (arguments, repairs)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"q": "tea', "truncated_arguments"),
        ("{'a': {1, 2}}", "malformed_arguments"),
        ("{'a': b'x'}", "malformed_arguments"),
        ("{'a': 2j}", "malformed_arguments"),
        ("__import__('os')", "malformed_arguments"),
        ("[1]", "arguments_not_object"),
        (7, "arguments_not_object"),
        ('{"price":"0-100","price":"100-200"}', "duplicate_key"),
        (json.dumps(json.dumps(json.dumps(json.dumps({})))), "arguments_not_object"),
        ('{"a":' * 5000, "truncated_arguments"),
    ],
)
def test_arguments_that_cannot_be_read(value: Any, reason: str) -> None:
    with pytest.raises(RejectRow) as raised:
        parse_arguments(value)
    assert raised.value.reason == reason


@pytest.mark.parametrize(
    ("tool", "left", "right"),
    [
        ("find_product", {"q": "yoga mat"}, {"q": "yoga+mat", "page": 1}),
        ("find_product", {"query": "yoga mat", "shop_id": "", "service": None}, {"q": "yoga%20mat", "page": "1"}),
        ("find_product", {"q": "C++ book"}, {"q": "C%2B%2B+book", "sort": "default"}),
        ("find_product", {"q": "C++ book"}, {"q": "C+++book"}),
        ("find_product", {"q": "x", "service": "COD,official"}, {"q": "x", "service": ["official", "COD"]}),
        ("find_product", {"q": "x", "shop_id": 123}, {"q": "x", "shop_id": "123"}),
        ("view_product_information", {"product_ids": ["12", "34"]}, {"product_ids": " 12 ,34,,12"}),
        ("view_product_information", {"product_id": 12}, {"product_ids": "12"}),
        ("recommend_product", {"product_ids": "\u00a012,34"}, {"product_ids": "12,34"}),
        (
            "check_product_match",
            {"product_id": "1", "requirements": '{"a": 1}'},
            {"product_id": 1, "requirements": {"a": 1}},
        ),
        ("calculate_voucher", {"product_prices": "100.0,5", "cap": 0}, {"product_prices": [100, 5.0]}),
    ],
)
def test_one_call_in_two_spellings_compares_equal(tool: str, left: dict[str, Any], right: dict[str, Any]) -> None:
    assert normalise_arguments(tool, left) == normalise_arguments(tool, right)


@pytest.mark.parametrize(
    ("tool", "left", "right"),
    [
        ("find_product", {"q": "yoga mat"}, {"q": "yoga mats"}),
        ("find_product", {"q": "C++ book"}, {"q": "C book"}),
        ("find_product", {"q": "x"}, {"q": "x", "page": 2}),
        ("find_product", {"q": "x", "price": "0-50"}, {"q": "x"}),
        ("find_product", {"q": "x", "service": "LazMall"}, {"q": "x", "service": "official"}),
        ("recommend_product", {"product_ids": "1,2"}, {"product_ids": "2,1"}),
        ("recommend_product", {"product_ids": 1}, {"product_ids": "1,2"}),
    ],
)
def test_different_calls_stay_different(tool: str, left: dict[str, Any], right: dict[str, Any]) -> None:
    assert normalise_arguments(tool, left) != normalise_arguments(tool, right)


@given(st.text(), st.dictionaries(st.text(), _json_values, max_size=4))
def test_the_comparison_form_is_text_for_any_arguments(tool: str, arguments: dict[str, Any]) -> None:
    form = normalise_arguments(tool, arguments)
    assert normalise_arguments(tool, dict(reversed(arguments.items()))) == form
    form.encode()


@given(_clean.filter(lambda text: "%" not in text and "  " not in text))
def test_a_query_survives_the_clients_encoding(query: str) -> None:
    from urllib.parse import quote_plus

    sent = normalise_arguments("find_product", {"q": quote_plus(" ".join(query.split())), "page": 1})
    assert sent == normalise_arguments("find_product", {"q": query})
