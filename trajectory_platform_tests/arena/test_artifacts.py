"""How steps and log entries are published: the odd bucketing, the truncation, the colliding call ids."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from trajectory_platform.arena.artifacts import bucket, era_of, shape_entry, tool_call_id


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
)
def test_bucketing_is_the_subnet_s(steps: list[Any], calls: list[int], places: list[int]) -> None:
    assert bucket(steps, calls) == places


def test_call_ids_are_the_published_ones_and_collide() -> None:
    assert tool_call_id("terminate", {"status": "success"}) == "NR0gqQng"
    assert tool_call_id("find_product", {"q": "gift box puzzle learning"}) == "fmgtG7mm"
    assert tool_call_id("find_product", {"q": "a"}) == tool_call_id("find_product", {"q": "a"})


def entry(rows: int) -> dict[str, Any]:
    response = [{"product_id": str(number), "title": "x" * 180} for number in range(rows)]
    return {"method": "GET", "path": "/search/find_product", "timestamp": 1, "response": response}


def test_long_responses_are_replaced_by_their_length_and_ids() -> None:
    short, long = entry(3), entry(10)
    era = era_of(date(2026, 5, 2))
    assert shape_entry(short, era) == {"kind": "summary", **short}
    shaped = shape_entry(long, era)
    assert "response" not in shaped and shaped["response_truncated"] is True and shaped["response_length"] > 2_000
    assert shaped["result_product_ids"] == [str(number) for number in range(10)]
    early = shape_entry(long, era_of(date(2026, 4, 20)))
    assert "kind" not in early and "result_product_ids" not in early and early["response_truncated"]


@pytest.mark.parametrize(
    ("day", "hour", "regime", "log", "whole_file"),
    [
        ("2026-04-11", 12, None, False, False),
        ("2026-04-12", 12, "continuous", False, False),
        ("2026-04-22", 12, "continuous_step0_only", True, False),
        ("2026-04-23", 12, "continuous", True, False),
        ("2026-04-28", 20, "continuous", True, True),
        ("2026-04-29", 11, "continuous", True, True),
        ("2026-04-29", 12, "continuous", True, False),
        ("2026-04-30", 0, "discrete", True, False),
    ],
)
def test_eras_change_on_their_day(day: str, hour: int, regime: str | None, log: bool, whole_file: bool) -> None:
    era = era_of(date.fromisoformat(day), hour)
    assert (era.regime, era.proxy_log, era.whole_file) == (regime, log, whole_file)
