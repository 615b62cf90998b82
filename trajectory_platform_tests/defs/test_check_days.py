"""A check looks at the days of its run, however Dagster names them."""

from __future__ import annotations

from trajectory_platform.defs.runs import PARTITION, RANGE_END, RANGE_START, days_of_run


def test_days_come_from_the_partition_or_the_range() -> None:
    assert days_of_run({PARTITION: "2026-05-02"}) == ["2026-05-02"]
    assert days_of_run({RANGE_START: "2026-05-02", RANGE_END: "2026-05-04"}) == [
        "2026-05-02",
        "2026-05-03",
        "2026-05-04",
    ]
    assert days_of_run({}) == []
