"""Every published shape is recognised by its bytes; damage costs what it must and no more."""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
import tracemalloc
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import RejectRow
from trajectory_platform.sources.container import Limits, inflate, open_artifact, read_records
from trajectory_platform_tests.traces.steps import as_bytes, day_artifacts, dialogue, envelope, json_lines

LIMITS = Limits()
SMALL = Limits(max_artifact_bytes=1 << 20, max_inflated_bytes=1 << 20, max_record_bytes=20_000)
CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


def refused(data: bytes, limits: Limits = LIMITS) -> RejectRow:
    with pytest.raises(RejectRow) as caught:
        open_artifact(data, limits)
    return caught.value


SHAPES: list[tuple[bytes, str, list[Any]]] = [
    (as_bytes(dialogue()), "array", [(None, None, 3)]),
    (json.dumps(dialogue(), indent=2).encode(), "array", [(None, None, 3)]),
    (b"\n\n" + as_bytes(dialogue()) + b"\n", "array", [(None, None, 3)]),
    (b"[]", "array", [(None, None, 0)]),
    (as_bytes(CHAT), "chat", [(None, None, 2)]),
    (as_bytes({"messages": CHAT, "tools": []}), "chat", [(0, None, 2)]),
    (json.dumps({"messages": CHAT}, indent=1).encode(), "chat", [(0, None, 2)]),
    (json_lines({"messages": CHAT}, {"messages": CHAT}), "chat", [(0, None, 2), (1, None, 2)]),
    (json_lines(envelope("p1", dialogue())), "jsonl_envelopes", [(0, "p1", 3)]),
    (
        json_lines(envelope("p1", dialogue()), b"", envelope(None, dialogue()), envelope("p2", None, "TIMED_OUT")),
        "whole_file",
        [(0, "p1", 3), (2, None, 3), (3, "p2", None)],
    ),
    (json_lines(dialogue(), [], dialogue()), "jsonl_steps", [(0, "p1", 3), (1, None, 0), (2, "p1", 3)]),
    (json_lines(envelope("p1", dialogue()), dialogue()), "whole_file", [(0, "p1", 3), (1, "p1", 3)]),
    (b"", "empty", []),
    (b" \n\t\r\n", "empty", []),
    (b"\x00\x00\x00", "empty", []),
]


@pytest.mark.parametrize("pack", ["plain", "gzip", "members"])
@pytest.mark.parametrize(("content", "form", "records"), SHAPES)
def test_every_published_shape_is_recognised(content: bytes, form: str, records: list[Any], pack: str) -> None:
    cut = len(content) // 2
    data = {
        "plain": content,
        "gzip": gzip.compress(content, mtime=0),
        "members": gzip.compress(content[:cut], mtime=0)
        + gzip.compress(b"")
        + gzip.compress(content[cut:])
        + b"\x00" * 512,
    }[pack]
    found = open_artifact(data, LIMITS)
    assert (found.form, found.gzip) == (form, pack != "plain")
    assert [
        (record.line, record.problem_id, None if record.steps is None else len(record.steps))
        for record in found.records
    ] == records
    assert all(record.reject is None for record in found.records)


def test_wanted_lines_are_read_alone() -> None:
    content = json_lines(*(envelope(f"p{number}", dialogue()) for number in range(5)))
    records = list(read_records(content, LIMITS, {1, 3, 9}))
    assert [(record.line, record.problem_id) for record in records] == [(1, "p1"), (3, "p3")]


def test_envelope_fields_are_kept_and_odd_dialogues_named() -> None:
    text = envelope("p1", "sorry")
    found = open_artifact(json_lines(text, envelope("p2", None), {"problem_id": 7, "status": "SUCCESS"}), LIMITS)
    first, second, third = found.records
    assert first.reject is not None and first.reject.reason == "non_list_result"
    assert first.envelope == {key: value for key, value in text.items() if key != "dialogue"}
    assert second.reject is None and second.steps is None
    assert third.reject is not None and third.reject.reason == "no_dialogue"
    assert third.problem_id == "7"


def test_a_damaged_line_costs_itself_and_keeps_its_problem_id() -> None:
    whole = as_bytes(envelope("p2", dialogue()))
    content = json_lines(
        envelope("p1", dialogue()),
        whole[: len(whole) // 2],
        b"\x00" * 7 + whole,
        whole + b"\x00" * 64,
        b'{"oops": 1, "problem_id": "p9", "oops": 2, "dialogue": []}',
        b"\x00" * 40,
        b"{{{{",
        envelope("p\udc00", dialogue()),
    )
    found = open_artifact(content, LIMITS)
    assert [
        (record.line, record.problem_id, record.reject and record.reject.reason, record.recovered_problem_id)
        for record in found.records
    ] == [
        (0, "p1", None, False),
        (1, "p2", "cut_line", True),
        (2, "p2", "nul_bytes", True),
        (3, "p2", None, False),
        (4, "p9", "duplicate_key", True),
        (6, None, "not_json", False),
        (7, "p\ufffd", None, False),
    ]
    assert found.records[3].repairs == {"trailing_nul_bytes": 1}
    assert found.records[6].repairs == {"lone_surrogate": 1}


def test_a_first_line_that_is_cut_does_not_hide_the_others() -> None:
    whole = as_bytes(envelope("p1", dialogue()))
    for first in (whole[:200], b"\x00\x00" + whole, as_bytes(dialogue())[:99]):
        found = open_artifact(json_lines(first, envelope("p2", dialogue()), envelope("p3", [])), LIMITS)
        assert [record.reject is None for record in found.records] == [False, True, True]
        assert [record.problem_id for record in found.records[1:]] == ["p2", "p3"]


def test_text_inside_strings_is_no_problem_id() -> None:
    line = as_bytes({"note": '"problem_id": "forged"', "problem_id": "real", "dialogue": []})[:-3]
    (record,) = open_artifact(line, LIMITS).records
    assert record.problem_id == "real" and record.recovered_problem_id


def test_a_damaged_array_is_one_record_with_a_reason() -> None:
    data = as_bytes(dialogue())
    (record,) = open_artifact(data[:-40], LIMITS).records
    assert record.reject is not None and record.reject.reason == "truncated_json"
    assert record.raw == data[:-40]
    pretty = json.dumps(dialogue(), indent=2).encode()[:-40]
    assert len(open_artifact(pretty, LIMITS).records) == 1


@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.99])
def test_a_cut_gzip_file_is_rejected_as_a_whole(share: float) -> None:
    data = gzip.compress(json_lines(*(envelope(f"p{number}", dialogue()) for number in range(40))))
    assert refused(data[: max(2, int(len(data) * share))]).reason == "truncated_gzip"
    assert refused(gzip.compress(b"[]", mtime=0) + data[:-3]).reason == "truncated_gzip"


def test_a_corrupt_gzip_file_is_rejected_as_a_whole() -> None:
    data = gzip.compress(as_bytes(dialogue()))
    for broken in (data[:-8] + b"\x01" * 8, data[:12] + b"\xff" * 9 + data[21:], data + b"tail"):
        assert refused(broken).reason == "corrupt_gzip"
    assert refused(gzip.compress(b"", mtime=0) * 10_001).reason == "corrupt_gzip"


def test_a_gzip_bomb_is_stopped_at_the_cap() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b"\x00" * (1 << 20)) for _ in range(300)) + packer.flush()
    tracemalloc.start()
    error = refused(bomb, SMALL)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.reason == "too_large"
    assert peak < 8 << 20
    assert refused(b"x" * ((1 << 20) + 1), SMALL).reason == "too_large"


def test_an_oversized_record_costs_itself() -> None:
    content = json_lines(envelope("p1", []), envelope("big", [{"blob": "x" * 50_000}]), envelope("p2", []))
    found = open_artifact(gzip.compress(content, mtime=0), SMALL)
    first, big, last = found.records
    assert (first.problem_id, last.problem_id) == ("p1", "p2")
    assert big.reject is not None and big.reject.reason == "record_too_large"
    assert str(len(json_lines(envelope("big", [{"blob": "x" * 50_000}]))) - 1)[:3] in big.reject.detail
    assert big.problem_id == "big" and big.recovered_problem_id and len(big.raw) <= 4096
    (whole,) = open_artifact(as_bytes([{"blob": "x" * 50_000}]), SMALL).records
    assert whole.reject is not None and whole.reject.reason == "record_too_large"


def test_deep_nesting_costs_the_record() -> None:
    deep = b'{"problem_id":"p1","dialogue":' + b"[" * 500 + b"]" * 500 + b"}"
    found = open_artifact(json_lines(deep, envelope("p2", dialogue())), LIMITS)
    assert [record.reject and record.reject.reason for record in found.records] == ["too_deep", None]
    assert found.records[0].problem_id == "p1"


def _tar() -> bytes:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("a.json")
        info.size = 2
        archive.addfile(info, BytesIO(b"[]"))
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PK\x03\x04" + b"\x01" * 40, "nested_archive"),
        (gzip.compress(gzip.compress(b"[]"), mtime=0), "nested_archive"),
        (gzip.compress(_tar(), mtime=0), "nested_archive"),
        (b"<html>not here</html>", "unknown_container"),
        ("[]".encode("utf-16"), "unknown_container"),
        (b"just words", "unknown_container"),
    ],
)
def test_an_unknown_container_is_set_aside_with_its_first_bytes(data: bytes, reason: str) -> None:
    found = open_artifact(data, LIMITS)
    (record,) = found.records
    content = inflate(data, LIMITS)[0]
    assert found.form == "unknown"
    assert record.reject is not None and record.reject.reason == reason
    assert content[:16].hex() in record.reject.detail


def test_a_byte_order_mark_is_stripped_and_counted() -> None:
    found = open_artifact(b"\xef\xbb\xbf" + as_bytes(dialogue()), LIMITS)
    assert found.form == "array" and found.records[0].repairs == {"byte_order_mark": 1}


def test_case_a22_stores_no_row_of_a_cut_file(shared: Path) -> None:
    case = json.loads((shared / "cases/A22.json").read_text())
    error = refused(base64.b64decode(case["input_base64"]))
    assert error.reason == case["expect"]["reason"]


def test_case_a24_is_recognised_by_its_bytes(shared: Path) -> None:
    case = json.loads((shared / "cases/A24.json").read_text())
    found = open_artifact(base64.b64decode(case["input_base64"]), LIMITS)
    assert found.gzip and found.form == case["expect"]["layout"]
    assert len(found.records) == case["expect"]["records"]


def test_case_g13_reads_the_rows_around_a_huge_one(shared: Path) -> None:
    case = json.loads((shared / "cases/G13.json").read_text())
    lines = [
        {**part["row"], **({part["pad_field"]: "x" * part["pad_bytes"]} if "pad_field" in part else {}), "dialogue": []}
        for part in case["generate"]
    ]
    found = open_artifact(json_lines(*lines), LIMITS)
    reasons = [record.reject and record.reject.reason for record in found.records]
    assert reasons == [None, case["expect"]["reason"], None]


def test_every_artifact_of_the_shared_days_is_understood(shared: Path) -> None:
    forms: dict[str, int] = {}
    for data in day_artifacts(shared):
        form = open_artifact(data, LIMITS).form
        forms[form] = forms.get(form, 0) + 1
    assert set(forms) <= {"array", "chat", "whole_file", "empty"}
    assert forms["whole_file"] == 9 and forms["chat"] == 1 and forms["empty"] == 1
