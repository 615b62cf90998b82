"""Which parts of a trace an era publishes, and what happens to the bytes of damaged uploads."""

from __future__ import annotations

import gzip
import json
from datetime import date
from typing import Any

import pytest

from trajectory_platform.arena.artifacts import dialogue_bytes, era_of, possible
from trajectory_platform.evaluation.wire import shape_entry


def entry(rows: int) -> dict[str, Any]:
    response = [{"product_id": str(number), "title": "x" * 180} for number in range(rows)]
    return {"method": "GET", "path": "/search/find_product", "timestamp": 1, "response": response}


def test_long_responses_are_replaced_by_their_length_and_ids_until_the_logs_are_full() -> None:
    short, long = entry(3), entry(10)
    log = era_of(date(2026, 5, 2)).log
    assert shape_entry(short, log) == {"kind": "summary", **short}
    shaped = shape_entry(long, log)
    assert "response" not in shaped and shaped["response_truncated"] is True and shaped["response_length"] > 2_000
    assert shaped["result_product_ids"] == [str(number) for number in range(10)]
    early = shape_entry(long, era_of(date(2026, 4, 20)).log)
    assert "kind" not in early and "result_product_ids" not in early and early["response_truncated"]
    late = shape_entry(long, era_of(date(2026, 7, 5)).log)
    assert late["response"] == long["response"] and len(late["result_product_ids"]) == 10


@pytest.mark.parametrize(
    ("day", "hour", "regime", "log", "whole_file", "full"),
    [
        ("2026-04-11", 12, None, False, False, False),
        ("2026-04-12", 12, "continuous", False, False, False),
        ("2026-04-22", 12, "continuous_step0_only", True, False, False),
        ("2026-04-23", 12, "continuous", True, False, False),
        ("2026-04-28", 20, "continuous", True, True, False),
        ("2026-04-29", 11, "continuous", True, True, False),
        ("2026-04-29", 12, "continuous", True, False, False),
        ("2026-04-30", 0, "discrete", True, False, False),
        ("2026-06-30", 12, "discrete", True, False, False),
        ("2026-07-01", 12, "discrete", True, False, True),
    ],
    ids=str,
)
def test_eras_change_on_their_day(
    day: str, hour: int, regime: str | None, log: bool, whole_file: bool, full: bool
) -> None:
    era = era_of(date.fromisoformat(day), hour)
    assert (era.regime, era.proxy_log, era.whole_file) == (regime, log, whole_file)
    assert (era.full_log, era.nonces) == (full, full)


def test_a_quirk_that_the_era_cannot_show_does_not_happen() -> None:
    silent, whole, usual = (era_of(date.fromisoformat(day)) for day in ("2026-04-10", "2026-04-28", "2026-05-02"))
    assert possible("forged_all", silent) is None and possible("forged_all", usual) == "forged_all"
    assert possible("cut_line", whole) is None and possible("cut_line", usual) == "cut_line"
    assert possible("emoji", silent) == "emoji" and possible(None, usual) is None


def test_uploads_are_ascii_json_unless_damaged() -> None:
    steps = [{"completion": None, "text": "\ud83d \u00e9"}]
    assert json.loads(gzip.decompress(dialogue_bytes(steps, None)).decode("ascii")) == steps
    assert json.loads(dialogue_bytes(steps, "plain_array")) == steps
    with pytest.raises(EOFError):
        gzip.decompress(dialogue_bytes(steps, "truncated_gzip"))
    with pytest.raises(ValueError):
        json.loads(gzip.decompress(dialogue_bytes(steps, "cut_line")))
