"""One daily partitions definition for all assets, and the four ways in which a day depends on other days."""

from __future__ import annotations

from datetime import date

import dagster as dg

# Dagster has no "everything up to D" mapping; the subnet cannot be older than this many days.
_EVERYTHING = 3650


def subnet_days(first_day: date, last_day: date | None = None) -> dg.DailyPartitionsDefinition:
    """UTC days from ``first_day`` on; a day exists once it is over. ``last_day`` bounds a demo or a backfill."""
    end = None if last_day is None else date.fromordinal(last_day.toordinal() + 1).isoformat()
    return dg.DailyPartitionsDefinition(start_date=first_day.isoformat(), end_date=end, timezone="UTC")


def same_day() -> dg.PartitionMapping:
    return dg.TimeWindowPartitionMapping(start_offset=0, end_offset=0, allow_nonexistent_upstream_partitions=True)


def day_and_neighbours() -> dg.PartitionMapping:
    """The day before, the day and the day after: a run judged after midnight lies in another day's folder."""
    return dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=1, allow_nonexistent_upstream_partitions=True)


def everything_up_to() -> dg.PartitionMapping:
    """Every day up to and including this one: leak clusters know every problem ever seen."""
    return dg.TimeWindowPartitionMapping(
        start_offset=-_EVERYTHING, end_offset=0, allow_nonexistent_upstream_partitions=True
    )


def trailing_window(days: int) -> dg.PartitionMapping:
    """The last ``days`` days including this one: the rows a checkpoint may train on."""
    return dg.TimeWindowPartitionMapping(
        start_offset=-(days - 1), end_offset=0, allow_nonexistent_upstream_partitions=True
    )
