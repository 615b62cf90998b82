"""Replies and dialogues built to break the readers: no fault of the batch, no call lost, no walk that never ends."""

from __future__ import annotations

import io
import json
import tarfile
import time
from typing import Any

import pytest

from trajectory_platform.sources.container import Limits, open_artifact
from trajectory_platform.traces.call_flags import call_flags
from trajectory_platform.traces.chat import read_messages
from trajectory_platform.traces.normalise import normalise_batch
from trajectory_platform.traces.sn15 import arena_tools, read_dialogue
from trajectory_platform.traces.toolcalls import parse_reply
from trajectory_platform_tests.traces.steps import call, dialogue, raw_rows, step

CALL = '{"name": "find_product", "arguments": {"q": "mug"}}'
FENCED = f"```json\n{CALL}\n```"
RESPONSE = "<response>Take 11.</response>"


@pytest.mark.parametrize("written", [CALL, f"[{CALL}]", FENCED])
@pytest.mark.parametrize(
    "form",
    [
        "{call}",
        "{call}\n{response}",
        "{response}\n{call}",
        "<think>why</think>\n{call}\n{response}",
        "<think>why</think>\n{response}\n{call}",
    ],
)
def test_untagged_calls_beside_a_response_are_calls(written: str, form: str) -> None:
    reply = parse_reply(form.format(call=written, response=RESPONSE))
    assert [(one.name, one.arguments) for one in reply.calls] == [("find_product", {"q": "mug"})]
    assert reply.error is None and reply.rest == ""
    assert reply.response == ("Take 11." if "response" in form else "")


def test_calls_one_after_the_other_are_all_read() -> None:
    assert len(parse_reply("\n".join([CALL, FENCED, CALL])).calls) == 3


def test_the_name_of_the_tag_in_prose_hides_no_fenced_call() -> None:
    assert len(parse_reply(f"I do not write <tool_call> tags.\n{FENCED}").calls) == 1


def test_what_a_response_shows_the_user_is_no_call() -> None:
    for shown in (CALL, FENCED):
        assert parse_reply(f"<response>{shown}</response>").calls == []


@pytest.mark.parametrize(
    "text",
    [
        '["é",' * 3000,
        '{"a":' * 600 + '"é"' + "}" * 600,
        "[{" * 50_000,
        "```json\n[1]\n```" * 20_000,
        '{"name":"x","arguments":{}}\n' * 20_000,
        "<response>" * 50_000,
        "<tool_call>[" * 20_000,
    ],
)
def test_a_hostile_reply_is_read_in_time(text: str) -> None:
    started = time.process_time()
    parse_reply(text)
    assert time.process_time() - started < 5


def test_thousands_of_parallel_calls_answered_backwards_are_paired() -> None:
    size = 20_000
    calls = [{"id": f"c{n}", "function": {"name": "f", "arguments": f'{{"n":{n}}}'}} for n in range(size)]
    answers = [{"role": "tool", "tool_call_id": f"c{n}", "content": str(n)} for n in reversed(range(size))]
    started = time.process_time()
    read = read_messages([{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": calls}, *answers])
    assert read.malformed is None
    assert [message["content"] for message in read.messages[2:]] == [str(n) for n in range(size)]
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "parameters",
    [
        '{"\\ud800": 1, "\\ud800": 2}',
        '{"a":' + "[" * 900 + "]" * 900 + "}",
        "[" * 300 + "]" * 300,
        {"q": 10**400},
        {"\ud800": "\udfff"},
    ],
)
def test_any_arguments_give_a_row_that_can_be_stored(parameters: Any) -> None:
    body = json.dumps([step(1, call("find_product", parameters))]).encode()
    batch = normalise_batch(
        raw_rows({"trace_id": "r1:p1", "artifact_uri": "d/artifacts/r1/p1.json"}), lambda _uri: body, Limits()
    )
    assert batch.num_rows == 1
    assert batch.column("malformed").to_pylist()[0] != "reader_error"


def test_lines_inside_an_archive_are_no_records() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        body = b'{"problem_id": "p", "dialogue": []}\n' * 3
        member = tarfile.TarInfo("run.jsonl")
        member.size = len(body)
        archive.addfile(member, io.BytesIO(body))
    (record,) = open_artifact(packed.getvalue(), Limits()).records
    assert record.reject is not None and record.reject.reason == "nested_archive"


PUBLISHED = frozenset(str(tool["function"]["name"]) for tool in arena_tools())


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ({"q": "mug", "price": "100-200", "service": "COD,official"}, []),
        ({"q": "mug", "price": "375-"}, []),
        ({"q": "mug", "price": "", "service": ""}, []),
        ({"q": "mug", "price": None, "service": "default"}, []),
        ({"q": "mug", "price": "above:10"}, ["ineffective_filter"]),
        ({"q": "mug", "price": "11,206"}, ["ineffective_filter"]),
        ({"q": "mug", "price": 104}, ["ineffective_filter"]),
        ({"q": "mug", "service": "LazMall"}, ["unknown_service"]),
        ({"q": "mug", "service": ["COD", " freeShipping"]}, ["unknown_service"]),
    ],
)
def test_a_filter_that_the_server_ignores_in_silence_is_flagged(arguments: dict[str, Any], flags: list[str]) -> None:
    """Domain 6, items 20 and 21; what works and what does not is the table of domain 3."""
    assert call_flags("find_product", arguments, PUBLISHED) == flags


def test_flags_leave_the_call_as_it_was_written() -> None:
    steps = [step(1, call("find_product", {"q": "mug", "service": "LazMall"}, [])), *dialogue()[1:]]
    steps[1]["completion"]["message"]["tool_call"].append(call("teleport", {}))
    read = read_dialogue(steps, binding=None)
    assert {"unknown_service", "unknown_tool"} <= set(read.flags)
    assert '"service":"LazMall"' in json.dumps(read.messages).replace('\\"', '"')
    assert "unknown_tool" not in read_dialogue(dialogue(), binding=None).flags
