"""Damaged artifacts never crash the readers, and every record is accounted for (bytes and JSON, 2,000 examples)."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.errors import RejectRow
from trajectory_platform.sources.container import Limits, Record, open_artifact
from trajectory_platform.traces.chat import read_messages
from trajectory_platform.traces.normalise import normalise_batch, read_record
from trajectory_platform.traces.rendering import chat_messages
from trajectory_platform.traces.schema import Trajectory
from trajectory_platform.traces.sn15 import read_dialogue
from trajectory_platform_tests.conftest import shared_folder
from trajectory_platform_tests.traces.steps import (
    Files,
    as_bytes,
    day_artifacts,
    dialogue,
    envelope,
    json_lines,
    raw_rows,
)

LIMITS = Limits(max_inflated_bytes=4 << 20, max_record_bytes=1 << 20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        [
            "",
            "{}",
            "[]",
            "null",
            "<|im_end|>",
            "</think>",
            "<tool_call>[",
            "\ud800",
            "\x00",
            "find_product",
            2**70,
            "{'a': 1}",
        ]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@cache
def artifacts() -> list[bytes]:
    """Inflated artifacts: some of each kind of the shared days, or small ones where these are missing."""
    made = [
        as_bytes(dialogue()),
        json_lines(envelope("p1", dialogue()), envelope(None, None, "FAILED"), dialogue(), envelope("p2", dialogue())),
        json_lines(dialogue(), dialogue()),
        as_bytes({"messages": [{"role": "user", "content": "hi"}], "tools": "null"}),
        b"[]",
    ]
    if not shared_folder().is_dir():
        return made
    days = [data for data in day_artifacts(shared_folder()) if len(data) < 30_000]
    return [*made, *days[:: max(1, len(days) // 40)]]


def check(trajectory: Trajectory) -> None:
    """What every trajectory promises, however odd its source."""
    ids = [call["id"] for message in trajectory.messages for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in trajectory.messages if message["role"] == "tool"]
    assert ids == [f"call_{number}" for number in range(len(ids))]
    assert answered == [new_id for new_id in ids if new_id in set(answered)], "results in order, each for one call"
    assert (trajectory.content_hash is None) == (trajectory.malformed is not None)
    for message in trajectory.messages:
        assert isinstance(message["content"], str)
        for text in (message["content"], message.get("reasoning_content", "")):
            text.encode("utf-8")
            assert "<|im_" not in text and "</think>" not in text and "<tool_call>" not in text
        for call in message.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    if trajectory.malformed is None and not any("tool_call>" in json.dumps(m) for m in trajectory.messages):
        try:
            chat_messages(trajectory.messages)
        except RejectRow as error:
            assert error.reason == "control_token_in_text", error


def read(data: bytes) -> tuple[int, int, int]:
    """(records, accepted, rejected) of an artifact; checks what every reading promises."""
    try:
        records = open_artifact(data, LIMITS).records
    except RejectRow as error:
        assert error.reason in ("truncated_gzip", "corrupt_gzip", "too_large")
        return 0, 0, 0
    accepted = sum(accept(record) for record in records)
    return len(records), accepted, len(records) - accepted


def accept(record: Record) -> bool:
    try:
        trajectory = read_record(record, None)
    except RejectRow as error:
        assert error.reason.replace("_", "").isalnum()
        return False
    check(trajectory)
    return trajectory.malformed is None


@settings(max_examples=900)
@given(st.data())
def test_any_damage_to_the_bytes_costs_records_and_nothing_else(data: Any) -> None:
    pool = artifacts()
    content = bytearray(pool[data.draw(st.integers(0, len(pool) - 1))])
    lines = bytes(content).count(b"\n")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content)))
        kind = data.draw(st.integers(0, 4))
        if kind == 0:
            content[place : place + 1] = bytes([data.draw(st.integers(0, 255))])
        elif kind == 1:
            del content[place : place + data.draw(st.integers(1, 2000))]
        elif kind == 2:
            content[place:place] = data.draw(
                st.sampled_from([b"\x00" * 9, b"\n", b"NaN", b'"', b"\\", b"[[[[", b"}", b"\xff"])
            )
        elif kind == 3:
            content[place:place] = content[place : place + data.draw(st.integers(1, 500))]
        else:
            content = content[:place]
    records, accepted, rejected = read(bytes(content))
    assert accepted + rejected == records <= lines + 6


@settings(max_examples=200)
@given(st.data())
def test_any_damage_to_the_packed_bytes_is_all_or_nothing(data: Any) -> None:
    pool = artifacts()
    packed = bytearray(gzip.compress(pool[data.draw(st.integers(0, len(pool) - 1))], mtime=0))
    place = data.draw(st.integers(0, len(packed) - 1))
    if data.draw(st.booleans()):
        packed[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del packed[place:]
    records, accepted, rejected = read(bytes(packed))
    assert accepted + rejected == records


def mutate(value: Any, data: Any) -> Any:
    """The value with one part replaced, removed or doubled, anywhere in it."""
    if isinstance(value, dict | list) and value and data.draw(st.integers(0, 9)):
        key = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        copy: Any = dict(value) if isinstance(value, dict) else list(value)
        action = data.draw(st.integers(0, 11))
        if action == 0:
            del copy[key]
        elif action == 1 and isinstance(copy, list):
            copy.insert(key, copy[key])
        elif action == 2 and isinstance(copy, dict):
            copy[
                data.draw(st.sampled_from(["role", "name", "tool", "obs", "user", "tool_calls", "content", "prompt"]))
            ] = copy[key]
        else:
            copy[key] = mutate(value[key], data)
        return copy
    return data.draw(VALUES)


@cache
def dialogues() -> list[Any]:
    found: list[Any] = []
    for data in artifacts():
        found += [record.steps for record in open_artifact(data, LIMITS).records if record.steps]
    return sorted(found, key=lambda steps: len(str(steps)))[:40]


@settings(max_examples=700)
@given(st.data())
def test_any_damage_to_the_values_is_named(data: Any) -> None:
    pool = dialogues()
    steps = pool[data.draw(st.integers(0, len(pool) - 1))]
    for _ in range(data.draw(st.integers(1, 3))):
        steps = mutate(steps, data)
    steps = steps if isinstance(steps, list) else [steps]
    for trajectory in (read_dialogue(steps, binding=None), read_messages(steps)):
        check(trajectory)
    content = json.dumps(steps).encode()
    records, accepted, rejected = read(content)
    assert accepted + rejected == records


@settings(max_examples=200)
@given(st.lists(VALUES, max_size=4), st.sampled_from(["array", "lines"]))
def test_arbitrary_json_gives_one_row_per_input_row(values: list[Any], form: str) -> None:
    content = json.dumps(values).encode() if form == "array" else json_lines(*values)
    rows = raw_rows(
        {"trace_id": "whole", "artifact_uri": "x"},
        *({"trace_id": f"line{number}", "artifact_uri": "x", "artifact_line": number} for number in range(3)),
    )
    read_back = normalise_batch(rows, Files({"x": content}).read, LIMITS).to_pylist()
    assert [row["trace_id"] for row in read_back] == ["whole", "line0", "line1", "line2"]
    assert all(row["malformed"] != "reader_error" for row in read_back), read_back
