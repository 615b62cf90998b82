"""Whose fault a failed run is (case I01), scores of several export versions (case I10), times (case I07)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.identity import parse_utc
from trajectory_platform.sources.records import naive_time
from trajectory_platform.sources.run_labels import one_scale, run_label, run_labels, version_key


def test_case_i01(shared: Path) -> None:
    case = json.loads((shared / "cases" / "I01.json").read_text())
    assert [run_label(run) for run in case["input"]] == case["expect"]["labels"]
    assert run_labels(case["input"]) == {"excluded_infra": 2, "excluded_unknown": 1, "negative": 1}


@pytest.mark.parametrize(
    ("run", "label"),
    [
        ({"status": "SUCCESS", "is_included": True}, "usable"),
        ({"status": "SUCCESS", "is_included": True, "invalidated_at": "2026-01-01T00:00:00Z"}, "excluded"),
        ({"status": "SUCCESS", "is_included": False}, "excluded"),
        ({"status": "STALE"}, "excluded_infra"),
        ({"status": "RUNNING"}, "not_final"),
        ({"status": "SOMETHING_NEW"}, "excluded_unknown"),
        ({"status": None}, "excluded_unknown"),
        ({"status": "error", "error_code": True}, "excluded_unknown"),
    ],
)
def test_runs_without_a_number_are_told_by_status(run: dict[str, object], label: str) -> None:
    assert run_label(run) == label


def test_case_i10(shared: Path) -> None:
    case = json.loads((shared / "cases" / "I10.json").read_text())
    rows = case["input"]
    assert len({version_key(row) for row in rows}) == case["expect"]["keys"]
    assert case["expect"]["outcome"] == "error_without_mapping"
    with pytest.raises(FailPartition, match="not comparable"):
        one_scale(rows)
    with pytest.raises(FailPartition, match="mapping for 2"):
        one_scale(rows, {"1": float})
    same = one_scale(rows, {"1": float, "2": lambda score: score / 100})
    assert [row["score"] for row in same] == [0.8, 0.8]
    assert [row["score"] for row in rows] == [0.8, 80]
    assert one_scale(rows[:1]) == rows[:1]


def test_case_i07(shared: Path) -> None:
    case = json.loads((shared / "cases" / "I07.json").read_text())
    times = [parse_utc(value) for value in case["input"]]
    assert [moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in times if moment] == case["expect"]["utc"]
    assert ["naive" if naive_time(value) else None for value in case["input"]] == case["expect"]["flags"]
    assert [moment.day for moment in times if moment] == [13, 12, 13]
