"""One daily partitions definition for all assets, and the four ways in which a day depends on other days."""

from __future__ import annotations

import warnings
from datetime import date, datetime

import dagster as dg

# Dagster has no "everything up to D" mapping; the subnet cannot be older than this many days.
_EVERYTHING = 3650


def subnet_days(first_day: date, last_day: date | None = None) -> dg.DailyPartitionsDefinition:
    """UTC days from ``first_day`` on; a day exists once it is over. ``last_day`` bounds a demo or a backfill."""
    end = None if last_day is None else date.fromordinal(last_day.toordinal() + 1).isoformat()
    return dg.DailyPartitionsDefinition(start_date=first_day.isoformat(), end_date=end, timezone="UTC")


def complete_days(partitions: dg.PartitionsDefinition[str], now: datetime) -> list[str]:
    """The days that are over at ``now``, oldest first, by the definition's own windows (cases F03, F04).

    Args:
        now: an aware time in any zone.
    """
    if now.tzinfo is None:
        raise ValueError("a time without a zone names no day")
    return list(partitions.get_partition_keys(current_time=now))


def same_day() -> dg.PartitionMapping:
    return _window(0, 0)


def day_and_neighbours() -> dg.PartitionMapping:
    """The day before, the day and the day after: a run judged after midnight lies in another day's folder."""
    return _window(-1, 1)


def everything_up_to() -> dg.PartitionMapping:
    """Every day up to and including this one: leak clusters know every problem ever seen."""
    return _window(-_EVERYTHING, 0)


def trailing_window(days: int) -> dg.PartitionMapping:
    """The last ``days`` days including this one: the rows a checkpoint may train on."""
    return _window(-(days - 1), 0)


def _window(first: int, last: int) -> dg.PartitionMapping:
    """The days from ``first`` to ``last`` around a day, as far as they are partitions.

    The parameter is marked as beta in the pinned version; every process that loads the definitions would say so.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.TimeWindowPartitionMapping(
            start_offset=first, end_offset=last, allow_nonexistent_upstream_partitions=True
        )
