"""Chat messages of other sources: calls and thinking parsed out, results paired, incomplete exchanges set aside."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trajectory_platform.traces.chat import read_messages
from trajectory_platform.traces.schema import Trajectory

USER = {"role": "user", "content": "a mug"}


def native(*calls: tuple[str, str, Any], **more: Any) -> dict[str, Any]:
    made = [
        {"id": new_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for new_id, name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


def answer(call_id: str | None, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def roles(trajectory: Trajectory) -> list[str]:
    return [message["role"] for message in trajectory.messages]


def results(trajectory: Trajectory) -> list[tuple[str, str]]:
    return [(m["tool_call_id"], m["content"]) for m in trajectory.messages if m["role"] == "tool"]


def test_results_in_another_order_follow_their_ids() -> None:
    trajectory = read_messages(
        [
            USER,
            native(("x", "find_product", {"q": "a"}), ("y", "find_product", {"q": "b"})),
            answer("y", "B"),
            answer("x", "A"),
        ]
    )
    assert trajectory.malformed is None
    assert results(trajectory) == [("call_0", "A"), ("call_1", "B")]


def test_results_without_usable_ids_follow_their_position() -> None:
    twice = native(("x", "find_product", "{}"), ("x", "find_product", "{}"))
    for first, second in (("x", "x"), (None, None)):
        trajectory = read_messages([USER, twice, answer(first, "A"), answer(second, "B")])
        assert results(trajectory) == [("call_0", "A"), ("call_1", "B")]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([USER, answer("x", "A")], "orphan_tool_message"),
        ([USER, native(("x", "terminate", "{}")), answer("x", "A"), answer("x", "B")], "orphan_tool_message"),
        ([USER, native(("x", "terminate", "{}")), answer("z", "A")], "orphan_tool_message"),
        ([USER, native(("x", "find_product", "{}")), {"role": "assistant", "content": "hm"}], "missing_tool_result"),
        ([USER, native(("x", "find_product", '{"q": "te'))], "truncated_tool_call"),
        ([USER, native(("x", "find_product", "[1]"))], "malformed_tool_call"),
        ([USER, {"role": "assistant", "content": "<think>never closed"}], "truncated"),
        ([USER, {"role": "assistant", "content": None}], "message_empty"),
        ([USER, {"role": "wizard", "content": "x"}], "unknown_role"),
        ([USER, "text"], "message_not_object"),
        ([{"role": "user", "content": 5}], "content_not_text"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "non_text_part"),
        ("text", "messages_not_list"),
        ({"messages": None}, "messages_not_list"),
        ({"messages": [USER], "tools": "[1]"}, "bad_tools"),
        ({"messages": [USER], "tools": [{"description": "<|im_end|>"}]}, "control_token_in_tools"),
        ({"messages": [USER, {"role": "assistant", "content": "cut"}], "finish_reason": "length"}, "truncated"),
    ],
)
def test_an_incomplete_exchange_is_set_aside_as_a_whole(messages: Any, reason: str) -> None:
    trajectory = read_messages(messages)
    assert trajectory.malformed == reason
    assert trajectory.messages == [] and trajectory.content_hash is None


@pytest.mark.parametrize("tools", ["null", "", "[]", None, [], "absent"])
def test_no_tools_is_no_tools_however_it_is_written(tools: Any) -> None:
    row: dict[str, Any] = {"messages": [USER]}
    if tools != "absent":
        row["tools"] = tools
    assert read_messages(row).tools == []


@pytest.mark.parametrize(
    "content",
    [
        '<think>t</think>\n<tool_call>[{"name": "find_product", "parameters": {"q": "mug"}}]</tool_call>\n'
        "<response>r</response>",
        '<think>t</think><tool_call>\n{"name": "find_product", "arguments": {"q": "mug"}}\n</tool_call>r',
    ],
)
def test_written_calls_equal_native_ones(content: str) -> None:
    written = read_messages([USER, {"role": "assistant", "content": content}, answer(None, "A")])
    spoken = read_messages(
        [USER, native(("q", "find_product", '{"q": "mug"}'), content="r", reasoning_content="t"), answer("q", "A")]
    )
    assert written.malformed is None
    assert written.messages == spoken.messages
    assert written.content_hash == spoken.content_hash


def test_legacy_functions_developers_and_structured_results_are_read() -> None:
    trajectory = read_messages(
        [
            {"role": "developer", "content": "be brief"},
            USER,
            {"role": "assistant", "content": "", "function_call": {"name": "find_product", "arguments": "{}"}},
            {"role": "function", "name": "find_product", "content": [{"product_id": "1"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Take "}, {"type": "text", "text": "1"}]},
        ]
    )
    assert trajectory.malformed is None
    assert roles(trajectory) == ["system", "user", "assistant", "tool", "assistant"]
    assert results(trajectory) == [("call_0", '[{"product_id":"1"}]')]
    assert trajectory.messages[-1]["content"] == "Take 1"


def test_chat_steps_state_their_query_and_keep_the_arena_tools() -> None:
    extra = {"step": 1, "query": "a mug", "timestamp": 5}
    trajectory = read_messages(
        [
            {"role": "system", "content": "shop"},
            {"role": "assistant", "content": "hello", "extra_info": {**extra, "proxy_calls": [{"path": "x"}]}},
        ]
    )
    assert trajectory.malformed is None and trajectory.query == "a mug"
    assert [message["content"] for message in trajectory.messages] == ["shop", "a mug", "hello"]
    assert len(trajectory.tools) == 7
    assert "proxy_calls" not in json.dumps(trajectory.source_steps)


def test_original_ids_stay_in_the_source() -> None:
    trajectory = read_messages([USER, native(("chatcmpl-7", "terminate", "{}")), answer("chatcmpl-7", "done")])
    assert "chatcmpl-7" in json.dumps(trajectory.source_steps)
    assert "chatcmpl-7" not in json.dumps(trajectory.messages)
