"""When the listing files of a folder are damaged as a whole, and when they only hold odd values."""

from __future__ import annotations

from datetime import date

import pytest

from trajectory_platform.sources.files import RawDay
from trajectory_platform.sources.records import fault
from trajectory_platform.stages.listings import damage


def _listing(file: str, reason: str, faults: int) -> RawDay:
    records = [{"eval_run_id": str(number)} for number in range(20)]
    return RawDay(
        date(2026, 5, 2),
        runs=records,
        problems=records,
        faults=[fault(file, number, reason) for number in range(faults)],
        exists=True,
    )


@pytest.mark.parametrize("reason", ["not_json", "truncated_json", "duplicate_key", "missing_id"])
def test_many_lost_lines_are_a_damaged_download(reason: str) -> None:
    assert damage(_listing("problems.jsonl", reason, 1)) is None
    assert "3 of 43 listing lines are unreadable" in (damage(_listing("problems.jsonl", reason, 3)) or "")


@pytest.mark.parametrize("reason", ["non_finite_number", "lone_surrogate", "repeated_key", "duplicate_record"])
def test_lines_that_were_read_with_a_repair_are_no_damage(reason: str) -> None:
    """A day on which the judge answered NaN throughout is a day of null verdicts (domain 8.6), not a half download."""
    assert damage(_listing("problems.jsonl", reason, 20)) is None


def test_strange_files_beside_the_artifacts_are_no_damage_of_the_listing() -> None:
    assert damage(_listing("artifacts/run/.DS_Store", "unexpected_file", 20)) is None
