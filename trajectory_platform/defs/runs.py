"""What the instance knows of runs: which days one covers, what is in progress, what came before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import dagster as dg

from trajectory_platform.identity import days_between

if TYPE_CHECKING:
    from dagster._core.execution.backfill import PartitionBackfill

PARTITION = "dagster/partition"
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
REASON = "trajectory_platform/reason"
MAX_TAG = 400


def read_tag(day: str) -> str:
    """The tag in which a run keeps the version of the folders (``triggers.version_of``) that it read for a day."""
    return f"trajectory_platform/raw_{day}"


IN_PROGRESS = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def days_of_run(tags: Mapping[str, str]) -> list[str]:
    """The days of a run, from the tags by which Dagster names its partition or range of partitions."""
    if PARTITION in tags:
        return [tags[PARTITION]]
    if RANGE_START not in tags:
        return []
    first, last = date.fromisoformat(tags[RANGE_START]), date.fromisoformat(tags[RANGE_END])
    return [day.isoformat() for day in days_between(first, last)]


def in_progress(instance: dg.DagsterInstance, job: str) -> dict[str, str]:
    """Day -> id of a run of a job, or of a backfill of its assets, that is queued or runs."""
    found: dict[str, str] = {}
    for run in instance.get_runs(dg.RunsFilter(statuses=IN_PROGRESS)):
        if run.job_name == job or run.tags.get("dagster/backfill"):
            found |= dict.fromkeys(days_of_run(run.tags), run.run_id)
    return found


def in_hand(instance: dg.DagsterInstance, job: str, assets: Iterable[str], runs: Mapping[str, str]) -> dict[str, str]:
    """Day -> what is on it already, in words: one of ``runs``, or a backfill that has yet to come to it.

    A backfill, whoever launched it, makes its days asset by asset: between two of its runs nothing of a day is queued.

    Args:
        assets: a backfill counts for a day while one of these is still to be made of it; not for what failed in it.
        runs: what ``in_progress`` found of the job.
    """
    from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus  # half a second

    wanted = {dg.AssetKey(name) for name in assets}
    found: dict[str, str] = {}
    for backfill in instance.get_backfills(filters=BulkActionsFilter(statuses=[BulkActionStatus.REQUESTED])):
        if backfill.asset_backfill_data is None:  # of a job: all its days are submitted, in batches
            days = set(_not_submitted(backfill)) if backfill.job_name == job else set()
        else:
            left = backfill.asset_backfill_data.get_targeted_partitions_without_materialization_status()
            days = {str(one.partition_key) for one in left.iterate_asset_partitions() if one.asset_key in wanted}
        found |= dict.fromkeys(days, f"backfill {backfill.backfill_id}")
    return found | {day: f"run {run}" for day, run in runs.items()}


def _not_submitted(backfill: PartitionBackfill) -> Sequence[str]:
    names = list(backfill.partition_names or [])
    last = backfill.last_submitted_partition_name
    return names[names.index(last) + 1 :] if last in names else names


class Earlier(NamedTuple):
    """The runs that were asked for under one tag, newest first.

    Attributes:
        runs: how many (at most ten are looked at).
        failed: how many of the newest failed or were cancelled, one after another.
        waits: one is queued or runs.
        ended: when the newest ended, None while it waits.
    """

    runs: int
    failed: int
    waits: bool
    ended: datetime | None


def earlier(instance: dg.DagsterInstance, tag: str, value: str) -> Earlier:
    """The runs with a tag: the memory of a sensor that outlives its cursor."""
    records = list(instance.get_run_records(dg.RunsFilter(tags={tag: value}), limit=10))
    waits = any(record.dagster_run.status in IN_PROGRESS for record in records)
    failed = 0
    for record in records:
        if record.dagster_run.status not in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED):
            break
        failed += 1
    end = records[0].end_time or records[0].update_timestamp.timestamp() if records and not waits else None
    return Earlier(len(records), failed, waits, None if end is None else datetime.fromtimestamp(end, UTC))


def since(moment: datetime, now: datetime) -> timedelta:
    """How long ago something happened. What is more than an hour in the future was noted by a clock that was wrong: it
    counts as long ago, or a sensor would wait until the clock has caught up."""
    passed = now - moment
    return passed if passed > -timedelta(hours=1) else timedelta.max


def read_cursor(text: str | None) -> dict[str, Any]:
    """A JSON object as cursor; anything else (an older release, a person's edit) is none."""
    try:
        kept = json.loads(text or "{}")
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}
