"""Row for row and byte for byte: what goes out in either format comes back, whatever the arguments were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.identity import sha256_hex
from trajectory_platform.release.exports import read_export, verify_export
from trajectory_platform.release.openai_jsonl import pair_of, row_of
from trajectory_platform.release.rows import check_row, schema
from trajectory_platform_tests.release.exported import Row, dialogue, export, row, some_rows

FORMATS = ("hf", "openai")
NUMBERS = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["1", "null", "\u2028", "\x85", "\\ud83d", "</tool_call>", '"', "\U0001f375", "NaN"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXT, VALUES, max_size=4)
TOOL_LISTS = st.sampled_from(
    ["[]", json.dumps([{"type": "function", "function": {"name": "f", "x": 1.50}}])]
) | st.lists(
    st.fixed_dictionaries(
        {"type": st.just("function"), "function": st.fixed_dictionaries({"name": TEXT, "d": VALUES})}
    ),
    max_size=2,
).map(jsontext.dumps)


def back(folder: Path) -> list[Row]:
    return [value for _, value in read_export(folder) if isinstance(value, dict)]


@given(st.lists(ARGUMENTS, min_size=1, max_size=3), TEXT, TOOL_LISTS)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_a_line_and_its_side_row_are_the_row(arguments: list[dict[str, Any]], said: str, tools: str) -> None:
    one = row(messages=dialogue(arguments, said), tools=tools)
    check_row(one, "train", "sft")
    pair = pair_of(one)
    side = json.loads(json.dumps(pair.side))  # as a stranger's program would write it again
    assert row_of(None if pair.line is None else pair.line.encode(), side) == one
    assert pair.line is None or "\n" not in pair.line


@given(st.lists(st.lists(ARGUMENTS, min_size=1, max_size=2), min_size=1, max_size=3))
@settings(derandomize=True, deadline=None, max_examples=25)
def test_both_formats_give_the_rows_back(tmp_path_factory: Any, many: list[list[dict[str, Any]]]) -> None:
    rows = [row(number, messages=dialogue(one)) for number, one in enumerate(many)]
    for form in FORMATS:
        out = tmp_path_factory.mktemp("out") / form
        export(out, rows, form)
        assert back(out) == rows


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("page", "text"), [(1, "1"), (1.5, "1.5"), ("1", '"1"'), (1.0, "1.0"), (None, "null"), (2**60 + 1, str(2**60 + 1))]
)
def test_a_number_stays_what_it_is(tmp_path: Path, form: str, page: Any, text: str) -> None:
    export(tmp_path / "out", [row(0, messages=dialogue([{"page": page}])), row(1)], form)
    arguments = json.loads(back(tmp_path / "out")[0]["messages"])[1]["tool_calls"][0]["function"]["arguments"]
    assert arguments == f'{{"page":{text}}}'


def test_a_row_without_tools_has_a_line_without_tools() -> None:
    one = row(tools="[]")
    line = pair_of(one).line
    assert line is not None and "tools" not in json.loads(line)
    assert row_of(line.encode(), pair_of(one).side)["tools"] == "[]"


def test_the_four_ways_to_say_no_tools_are_one(tmp_path: Path, shared: Path) -> None:
    """Case B12: no export holds another form than ``[]``, and those of other programs are read as it."""
    case = json.loads((shared / "cases" / "B12.json").read_text("utf-8"))["input"]
    given = [row(number, tools=one.get("tools", "[]")) for number, one in enumerate(case)]
    for form in FORMATS:
        export(tmp_path / form, given, form)
        assert [one["tools"] for one in back(tmp_path / form)] == ["[]"] * 4
    assert [one["tools"] for one in loaded(tmp_path / "hf", tmp_path / "cache")["train"]] == ["[]"] * 4
    shard = tmp_path / "hf" / "data" / "train-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_pylist(given, schema=schema()), shard)
    assert [one["tools"] for one in back(tmp_path / "hf")] == ["[]"] * 4


def test_tools_and_arguments_of_other_rows_never_appear(tmp_path: Path, shared: Path) -> None:
    """Cases B07 and B09: no foreign key, no null that nobody wrote, 1 and 1.5 and "1" as they were."""
    cases = [
        one for name in ("B07", "B09") for one in json.loads((shared / "cases" / f"{name}.json").read_text())["input"]
    ]
    rows = [
        row(number, messages=dialogue([one["arguments"]]), tools=jsontext.dumps(_functions(one.get("tools", []))))
        for number, one in enumerate(cases)
    ]
    for form in FORMATS:
        export(tmp_path / form, rows, form)
        assert back(tmp_path / form) == rows
    assert loaded(tmp_path / "hf", tmp_path / "cache")["train"] == rows
    for one, case in zip(rows, cases, strict=True):
        assert json.loads(json.loads(one["messages"])[1]["tool_calls"][0]["function"]["arguments"]) == case["arguments"]


def _functions(tools: list[Row]) -> list[Row]:
    return [{"type": "function", "function": tool} for tool in tools]


def test_a_training_file_is_what_openai_reads(tmp_path: Path) -> None:
    export(tmp_path / "out", [row(0, messages=dialogue([{"q": "tea"}, {"q": "pot"}], "both"))], "openai")
    (line,) = (tmp_path / "out" / "train.jsonl").read_text("utf-8").splitlines()
    told = json.loads(line)
    assert sorted(told) == ["messages", "parallel_tool_calls", "tools"]
    assert [one["role"] for one in told["messages"]] == ["user", "assistant", "tool", "tool", "assistant"]
    first = told["messages"][1]
    assert sorted(first) == ["content", "role", "tool_calls"]
    assert [one["function"]["arguments"] for one in first["tool_calls"]] == ['{"q":"tea"}', '{"q":"pot"}']
    assert sorted(told["messages"][2]) == ["content", "role", "tool_call_id"]
    assert "I search." not in line


def test_a_call_that_the_format_refuses_has_no_line(tmp_path: Path) -> None:
    odd = dialogue()
    odd[1]["tool_calls"][0]["function"]["name"] = "find product!"
    rows = [row(0, messages=odd), row(1)]
    export(tmp_path / "out", rows, "openai")
    assert len((tmp_path / "out" / "train.jsonl").read_text("utf-8").splitlines()) == 1
    assert back(tmp_path / "out") == rows


def test_half_a_surrogate_pair_was_replaced_before_and_stays_replaced(tmp_path: Path) -> None:
    one = row(0, messages=dialogue([{"q": "price \ud83d ok"}], "half \ud83d"))
    for form in FORMATS:
        export(tmp_path / form, [one], form)
        assert back(tmp_path / form) == [one]
        assert "half \ufffd" in one["messages"] and "\\ud83d" not in one["messages"]


@pytest.mark.parametrize("arguments", ['{"q":"\\ud83d"}', '{"q":NaN}', '{"q":1,"q":2}', "[]", "", '{"q":'])
def test_arguments_that_a_reader_would_read_otherwise_are_refused(arguments: str) -> None:
    told = dialogue()
    told[1]["tool_calls"][0]["function"]["arguments"] = arguments
    with pytest.raises(RejectRow):
        check_row(row(messages=told), "train", "sft")


@pytest.mark.parametrize("broken", ["\\ud83d", "NaN", "1e999"])
def test_what_strict_readers_refuse_is_refused_here(broken: str) -> None:
    content = f'"{broken}"' if broken.startswith("\\") else broken
    text = '[{"role":"user","content":"x"},{"role":"assistant","content":"y","seen":' + content + "}]"
    with pytest.raises(RejectRow) as caught:
        check_row(row(messages=None) | {"messages": text}, "train", "sft")
    assert caught.value.reason in ("lone_surrogate", "non_finite_number")


@pytest.mark.parametrize("form", FORMATS)
def test_same_rows_same_bytes(tmp_path: Path, form: str) -> None:
    for name in ("a", "b"):
        export(tmp_path / name, some_rows(), form)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert [(tmp_path / "a" / path).read_bytes() for path in files] == [
        (tmp_path / "b" / path).read_bytes() for path in files
    ]
    assert verify_export(tmp_path / "a") == []


def test_many_rows_go_into_shards_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajectory_platform.release.hf_layout.GROUP_ROWS", 2)
    monkeypatch.setattr("trajectory_platform.release.exports.Shards", lambda *args: _Small(*args))
    rows = [row(number) for number in range(11)]
    export(tmp_path / "out", rows)
    names = sorted(path.name for path in (tmp_path / "out" / "data").iterdir())
    assert names == [f"train-{number:05d}-of-00006.parquet" for number in range(6)]
    assert back(tmp_path / "out") == rows


def _Small(folder: Path, split: str) -> Any:
    from trajectory_platform.release.hf_layout import Shards

    return Shards(folder, split, shard_bytes=1)


LOAD = """
import json, sys
from datasets import load_dataset
loaded = load_dataset(sys.argv[1], *sys.argv[2:])
json.dump({split: [dict(one) for one in rows] for split, rows in loaded.items()}, sys.stdout)
"""


def loaded(folder: Path, cache: Path, *name: str) -> dict[str, list[Row]]:
    """The folder as ``datasets`` loads it in a process of its own, without a network."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(cache)}
    command = [sys.executable, "-c", LOAD, str(folder), *name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, list[Row]] = json.loads(done.stdout)
    return found


def test_datasets_loads_an_export_row_for_row_without_a_network(tmp_path: Path) -> None:
    rows = [
        *some_rows(),
        row(4, messages=dialogue([{"page": 1}, {"page": "1", "deep": {"a": [None, 1.5]}}]), tools="[]"),
    ]
    export(tmp_path / "out", rows)
    found = loaded(tmp_path / "out", tmp_path / "cache")
    assert found == {
        "train": [one for one in rows if one["pool"] == "train"],
        "validation": [one for one in rows if one["pool"] == "dev"],
    }


def test_hashes_of_the_messages_hold_after_the_trip(tmp_path: Path) -> None:
    export(tmp_path / "out", some_rows(), "openai")
    for one in back(tmp_path / "out"):
        assert sha256_hex(jsontext.canonical(json.loads(one["messages"])).encode()) == one["content_hash"]
