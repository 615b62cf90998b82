"""Replies in every form, and attempts as published steps that the reader of miners' traces reads back."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from trajectory_platform.evaluation.environment import Environment, SimulatedClock
from trajectory_platform.evaluation.wire import (
    FORMS,
    LogForm,
    assistant_message,
    bucket,
    dialogue,
    shape_entry,
    tool_call_id,
)
from trajectory_platform.traces.arguments import normalise_arguments
from trajectory_platform.traces.sn15 import read_dialogue
from trajectory_platform.traces.toolcalls import parse_reply
from trajectory_platform_tests.evaluation.acting import START, market

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("find_product", {"q": 'a "5-inch" pan </tool_call>', "page": 2}),
    ("terminate", {"status": "success"}),
]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_reply_is_read_by_the_one_parser(form: str) -> None:
    message = assistant_message(form, "first think", CALLS, "and say")
    reply = parse_reply(message["content"], message["tool_calls"])
    assert reply.error is None
    assert [(call.name, normalise_arguments(call.name, call.arguments)) for call in reply.calls] == [
        (name, normalise_arguments(name, arguments)) for name, arguments in CALLS
    ]
    said = "\n".join(part for part in (reply.think, reply.rest, reply.response) if part)
    assert said == "first think\nand say"


def test_a_cut_reply_holds_no_call_and_an_unknown_form_is_refused() -> None:
    cut = parse_reply(assistant_message("xml_array", "thin", CALLS, cut=True)["content"])
    assert (cut.calls, cut.error) == ([], "truncated")
    with pytest.raises(ValueError, match="semaphore"):
        assistant_message("semaphore", "", [])


@pytest.mark.parametrize(
    ("steps", "calls", "places"),
    [
        ([100, 200, 300], [90, 100, 150, 200, 299, 300, 400], [0, 0, 0, 1, 1, 2, 2]),
        ([1, 2, 3], [5000, 6000], [2, 2]),  # second-resolution clocks: everything on the last step
        ([100, 300, 200], [250], [0]),  # the scan stops at the first later timestamp
        ([100, float("nan"), 120], [150], [0]),
        ([0, 0, 0], [5], [2]),
        ([], [], []),
    ],
    ids=["usual", "seconds", "not_monotonic", "nan", "zero", "empty"],
)
def test_bucketing_is_the_subnet_s(steps: list[Any], calls: list[int], places: list[int]) -> None:
    assert bucket(steps, calls) == places


def test_call_ids_are_the_published_ones_and_collide() -> None:
    assert tool_call_id("terminate", {"status": "success"}) == "NR0gqQng"
    assert tool_call_id("find_product", {"q": "gift box puzzle learning"}) == "fmgtG7mm"


def entry(rows: int) -> dict[str, Any]:
    response = [{"product_id": str(number), "title": "x" * 180} for number in range(rows)]
    return {"method": "GET", "path": "/search/find_product", "timestamp": 1, "response": response}


def test_log_entries_take_the_shape_of_their_era() -> None:
    short, long = entry(3), entry(10)
    ids = [str(number) for number in range(10)]
    assert shape_entry(long, LogForm()) == {"kind": "summary", **long, "result_product_ids": ids}
    era = LogForm(truncate_at=2_000)
    assert shape_entry(short, era) == {"kind": "summary", **short}
    cut = shape_entry(long, era)
    assert "response" not in cut and cut["response_truncated"] is True
    assert cut["response_length"] == len(json.dumps(long["response"]))
    assert cut["result_product_ids"] == ids
    early = shape_entry(long, LogForm(truncate_at=2_000, kind=False, result_ids=False))
    assert "kind" not in early and "result_product_ids" not in early and early["response_truncated"]


def acted() -> Environment:
    environment = Environment(market(), query="a mug", clock=SimulatedClock(START, Random(1)), model="m")
    calls = [("find_product", {"q": "mug"}), ("find_product", {"q": "tea"})]
    environment.act("both", calls, message=assistant_message("native", "both", calls))
    environment.act("done", CALLS[1:], "bye", message=assistant_message("native", "done", CALLS[1:], "bye"))
    return environment


def test_a_dialogue_is_what_the_reader_of_traces_expects() -> None:
    environment = acted()
    steps = dialogue(environment, "p1", seconds=4.5)
    assert steps == json.loads(json.dumps(steps))
    first, last = steps
    assert first["extra_info"]["execution_time"] == 4.5 and "execution_time" not in last["extra_info"]
    assert last["completion"]["content"] == (
        '<think>done</think>\n<tool_call>[{"name": "terminate", "parameters": {"status": "success"}}]</tool_call>\n'
        "<response>bye</response>"
    )
    read = read_dialogue(steps, binding=None)
    assert (read.malformed, read.flags, read.repairs) == (None, [], [])
    roles = [message["role"] for message in read.messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    assert read.evidence["log_problems"] == [] and read.evidence["notes"] == []
    assert [event["kind"] for event in read.evidence["events"]] == ["inference", "dispatch", "dispatch", "inference"]


def test_the_log_is_filed_as_the_era_did() -> None:
    environment = acted()
    filed = dialogue(environment, "p1", form=LogForm(first_step_only=True))
    assert [len(step["extra_info"].get("proxy_calls", [])) for step in filed] == [4, 0]
    assert all(
        "proxy_calls" not in step["extra_info"] for step in dialogue(environment, "p", form=LogForm(proxy_log=False))
    )
    seconds = dialogue(environment, "p1", stamps=[step.timestamp // 1000 for step in environment.steps])
    assert [len(step["extra_info"].get("proxy_calls", [])) for step in seconds] == [0, 4]


def test_a_log_without_steps_is_not_lost() -> None:
    environment = Environment(market(), query="a mug", clock=SimulatedClock(START, Random(1)))
    assert dialogue(environment, "p1") == []
    environment.infer(None, status=None)
    read = read_dialogue(dialogue(environment, "p1"), binding=None)
    assert read.malformed == "message_empty"
    assert [event["state"] for event in read.evidence["events"]] == ["failed"]
