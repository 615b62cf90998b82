"""Listing files: one broken line costs itself, and which of two records counts never depends on their order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.sources.records import newest, parse_lines, parse_object


def test_broken_lines_become_faults_with_their_place() -> None:
    data = b'\xef\xbb\xbf{"a": 1}\r\n\n{"a": \nnull\n[1]\n'
    data += b'{"a": 2, "new_field": "NEW_STATUS"}\x00\x00\n{"a": 1, "a": 2}\n{"b": 3}'
    records, faults = parse_lines(data, "runs.jsonl")
    assert records == [{"a": 1}, {"a": 2, "new_field": "NEW_STATUS"}, {"b": 3}]
    assert [(fault["line"], fault["reason"]) for fault in faults] == [
        (3, "truncated_json"),
        (4, "not_an_object"),
        (5, "not_an_object"),
        (7, "duplicate_key"),
    ]
    assert {fault["file"] for fault in faults} == {"runs.jsonl"}


def test_a_line_separator_inside_a_text_is_no_line_end() -> None:
    records, faults = parse_lines('{"a": "one\u2028two\u0085three"}\n'.encode(), "f")
    assert records == [{"a": "one\u2028two\u0085three"}]
    assert faults == []


def test_a_score_that_is_no_number_keeps_its_text() -> None:
    """A NaN verdict is not the same as "not judged" (domain 2.6)."""
    data = b"""{"validator_results": [
        {"reasoning_score": NaN}, {"reasoning_score": 1e999}, {"reasoning_score": null}, {"x": NaN}
    ]}""".replace(b"\n", b"")
    (record,), faults = parse_lines(data, "problems.jsonl")
    assert record["validator_results"] == [
        {"reasoning_score": None, "reasoning_score_text": "NaN"},
        {"reasoning_score": None, "reasoning_score_text": "1e999"},
        {"reasoning_score": None},
        {"x": None},
    ]
    assert [(fault["line"], fault["reason"], fault["detail"]) for fault in faults] == [
        (1, "non_finite_number", "3 repaired")
    ]


def test_one_document_or_a_fault() -> None:
    assert parse_object(b'{"suite": {}}', "suite.json") == ({"suite": {}}, [])
    assert parse_object(b"", "suite.json")[1][0]["reason"] == "empty_file"
    assert parse_object(b"{", "suite.json")[1][0]["reason"] == "truncated_json"


def test_the_latest_record_counts_and_the_conflict_is_reported() -> None:
    old = {"id": "r1", "completed_at": "2026-05-01T01:00:00Z", "invalidated_at": None}
    new = {"id": "r1", "completed_at": "2026-05-01T01:00:00Z", "invalidated_at": "2026-05-03T00:00:00+02:00"}
    for order in ([old, new], [new, old], [old, new, dict(old)]):
        records, faults = newest(order, key="id", times=("completed_at", "invalidated_at"), file="runs.jsonl")
        assert records == [new]
        assert [fault["reason"] for fault in faults] == ["duplicate_record"]
    same, silent = newest([old, dict(old)], key="id", times=("completed_at",), file="runs.jsonl")
    assert (same, silent) == ([old], [])
    numbered, faults = newest([{"id": 5}, {"id": "5"}, {}, {"id": True}], key="id", times=(), file="f")
    assert numbered == [{"id": "5"}]  # a number and its text are one id
    assert [fault["reason"] for fault in faults] == ["missing_id", "missing_id"]


_RECORD = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["a", "b"]),
        "at": st.sampled_from([None, "2026-05-01", "2026-05-02", 5]),
        "v": st.integers(0, 3),
    }
)


@given(st.lists(_RECORD, max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=80)
def test_line_order_never_decides(records: list[dict[str, Any]], random: Any) -> None:
    shuffled = list(records)
    random.shuffle(shuffled)
    assert (
        newest(records, key="id", times=("at",), file="f")[0] == newest(shuffled, key="id", times=("at",), file="f")[0]
    )
