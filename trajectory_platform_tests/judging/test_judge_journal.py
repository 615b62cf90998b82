"""The journal keeps every row it was given, whatever happens to the process or the file's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajectory_platform.errors import RetryLater
from trajectory_platform.judging.judge_journal import Journal, call_key, spent_usd

DAY = "2026-05-01"


def row(number: int) -> dict[str, object]:
    return {"sequence": number, "status": "ok", "cost_usd": 0.25, "raw_reply": "line\nend\u2028\ud800", "batch": "b"}


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    with Journal(tmp_path, DAY) as journal:
        for number in range(5):
            journal.append(row(number))
        assert [one["sequence"] for one in journal.stream()] == list(range(5))
    with Journal(tmp_path, DAY) as journal:
        assert len(journal.rows) == 5 and spent_usd(journal.rows) == 1.25
        assert journal.rows[0]["raw_reply"] == "line\nend\u2028\ufffd"
        journal.clear()
        assert journal.rows == []
        journal.append(row(9))
        assert [one["sequence"] for one in journal.rows] == [9]


def test_a_torn_end_loses_the_torn_row_only(tmp_path: Path) -> None:
    with Journal(tmp_path, DAY) as journal:
        for number in range(3):
            journal.append(row(number))
        path = journal.path
    whole = path.read_bytes()
    third = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    for cut in (third, third + 1, (third + len(whole)) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with Journal(tmp_path, DAY) as journal:
            assert [one["sequence"] for one in journal.rows] == [0, 1]
            journal.append(row(7))
            assert [one["sequence"] for one in journal.rows] == [0, 1, 7]


def test_a_long_torn_line_is_cut_off_too(tmp_path: Path) -> None:
    with Journal(tmp_path, DAY) as journal:
        journal.append(row(0))
    with journal.path.open("ab") as file:
        file.write(b"x" * 300_000)
    with Journal(tmp_path, DAY) as journal:
        journal.append(row(1))
        assert [one["sequence"] for one in journal.rows] == [0, 1]


def test_a_damaged_line_hides_no_other(tmp_path: Path) -> None:
    with Journal(tmp_path, DAY) as journal:
        journal.append(row(0))
    with journal.path.open("ab") as file:
        file.write(b'{"sequence": \x00\n[1]\n{"no": "sequence"}\n')
    with Journal(tmp_path, DAY) as journal:
        journal.append(row(1))
        assert [one["sequence"] for one in journal.rows] == [0, 1]


def test_two_processes_do_not_judge_one_day(tmp_path: Path) -> None:
    with Journal(tmp_path, DAY), pytest.raises(RetryLater, match="another process judges 2026-05-01"):
        Journal(tmp_path, DAY)
    with Journal(tmp_path, DAY), Journal(tmp_path, "2026-05-02"):
        pass


def test_e11_every_part_of_a_question_is_part_of_its_key() -> None:
    """As in the case: rubric, response format and messages make other keys; the order of names does not."""
    plain = {"model": "judge-1", "structured_output": "none"}
    keys = [
        call_key("grade", "v1", "judge-1", plain),
        call_key("grade", "v2", "judge-1", plain),
        call_key("grade", "v1", "judge-1", {**plain, "structured_output": "json_object"}),
        call_key("grade+tool", "v1", "judge-1", plain),
        call_key("grade", "v1", "judge-1", dict(reversed(plain.items()))),
        call_key("grade", "v1", "judge-2", plain),
    ]
    assert keys[0] == keys[4] and len(set(keys)) == 5
