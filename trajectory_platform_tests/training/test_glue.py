"""The constant text between values: found by counting, and nothing of the text is lost."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.traces.rendering import chat_messages
from trajectory_platform.training.glue import between_values, call_text, glue_texts
from trajectory_platform_tests.training import shopping

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(JSON, max_size=3) | st.dictionaries(st.text(max_size=4), JSON, max_size=3), st.sampled_from([0, 1]))
@settings(max_examples=200, derandomize=True, deadline=None)
def test_the_stretches_lie_in_the_text_in_their_order(value: object, spaced: int) -> None:
    text = json.dumps(value, separators=((",", ":"), (", ", ": "))[spaced], ensure_ascii=False)
    place = 0
    for piece in between_values(text):
        found = text.find(piece, place)
        assert found >= 0
        place = found + len(piece)


def test_values_are_left_out_and_keys_are_not() -> None:
    text = '{"id":"12","n":-3.5,"tags":["a","b"],"none":null,"empty":"","quote":"say \\"x\\": y"}'
    assert between_values(text) == [
        '{"id":"',
        '","n":',
        ',"tags":["',
        '","',
        '"],"none":null,"empty":"","quote":"',
        '"}',
    ]
    assert between_values("Recommended 12 and 7.") == ["Recommended ", " and ", "."]


def test_the_glue_of_calls_and_results_is_found_and_leaves_the_values() -> None:
    chats = [chat_messages(shopping.messages(number)).messages for number in range(30)]
    glue = glue_texts(chats, 40, least=10)
    assert '},{"product_id":"' in glue or '},{"price":' in "".join(glue)
    rendered = [
        call_text(call["function"]["name"], call["function"]["arguments"])
        for chat in chats
        for message in chat
        for call in message.get("tool_calls") or []
    ]
    whole = re.compile("|".join(re.escape(text) for text in sorted(glue, key=len, reverse=True)))
    left = [whole.sub("|", text) for text in rendered]
    assert all("arguments" not in text and "<tool_call>" not in text for text in left)
    assert any(re.search(r"\d{9,}", text) for text in left)
    assert not any(re.search(r"\d", text) for text in glue)


def test_the_choice_depends_on_counts_and_text_only() -> None:
    chats = [chat_messages(shopping.messages(number)).messages for number in range(12)]
    assert glue_texts(chats, 10) == glue_texts(chats[::-1], 10)
    assert glue_texts(chats, 10, least=10**6) == []
