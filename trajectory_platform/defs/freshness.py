"""Is what should be there, there? Checks of age, volume, reconciliation and the queue, with a severity each.

``volume`` is part of every ingestion. The others belong to the job ``health``, which a schedule starts: they must also
be asked when nothing is ingested.
"""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import dagster as dg

from trajectory_platform.defs.day_runs import capped
from trajectory_platform.defs.partitions import complete_days
from trajectory_platform.defs.resources import Platform
from trajectory_platform.defs.runs import IN_PROGRESS, days_of_run
from trajectory_platform.defs.schedules import Clock
from trajectory_platform.stages import triggers

STUCK_AFTER = timedelta(minutes=30)
HEALTH_CHECKS = {
    "newest_day_is_there": "axis_a_corpus",
    "source_is_reconciled": "raw_traces",
    "queue_moves": "raw_traces",
}
"""Check -> asset of what only the job ``health`` asks."""
_SEVERITY = {"warn": dg.AssetCheckSeverity.WARN, "error": dg.AssetCheckSeverity.ERROR, "ok": dg.AssetCheckSeverity.WARN}
_SHOWN = 40

FRESHNESS_POLICY = dg.FreshnessPolicy.time_window(
    warn_window=timedelta(hours=30), fail_window=timedelta(hours=24 * triggers.ERROR_LAG)
)
"""What Dagster shows on the node: how long ago the corpus was made. ``newest_day_is_there`` knows of which day."""


class Stuck(NamedTuple):
    """The oldest queued run that nothing runs ahead of."""

    run_id: str
    job: str
    since: datetime


def stuck_queue(
    instance: dg.DagsterInstance, now: datetime, *, but: str | None = None, after: timedelta = STUCK_AFTER
) -> Stuck | None:
    """The oldest run that is queued for longer than ``after`` while no run is starting or running (case F11).

    Args:
        but: a run that does not count as running: the one that asks.
    """
    running = dg.RunsFilter(statuses=[one for one in IN_PROGRESS if one is not dg.DagsterRunStatus.QUEUED])
    queued = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])
    records = instance.get_run_records(queued, limit=1, ascending=True)
    if not records or now - records[0].create_timestamp < after:
        return None
    if any(run.run_id != but for run in instance.get_runs(running, limit=2)):
        return None
    run = records[0].dagster_run
    return Stuck(run.run_id, run.job_name, records[0].create_timestamp)


def build(partitions: dg.DailyPartitionsDefinition, clock: Clock) -> Sequence[dg.AssetChecksDefinition]:
    """All four checks."""
    return [_volume(), _newest(partitions, clock), _reconciled(partitions, clock), _queue(clock)]


def _result(passed: bool, severity: str, text: str, metadata: dict[str, Any]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=passed, severity=_SEVERITY[severity], description=text, metadata=capped(metadata))


def _volume() -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset="raw_traces",
        name="volume",
        description="no day has far fewer traces than the median of the week before it",
    )
    def volume(context: dg.AssetCheckExecutionContext, platform: Platform) -> dg.AssetCheckResult:
        days = days_of_run(context.run.tags) or platform.context.lake.days("raw_traces")[-1:]
        found = {day: triggers.volume(platform.context, day) for day in days}
        low = [day for day, facts in found.items() if facts["severity"] != "ok"]
        worst = "error" if any(facts["severity"] == "error" for facts in found.values()) else "warn"
        usual = platform.context.settings.volume_min_share
        text = f"below {usual:.0%} of the week before: {', '.join(low)}" if low else f"{len(days)} day(s) as usual"
        return _result(not low, worst, text, {day: dg.MetadataValue.json(facts) for day, facts in found.items()})

    return volume


def _newest(partitions: dg.DailyPartitionsDefinition, clock: Clock) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset="axis_a_corpus",
        name="newest_day_is_there",
        description=f"the newest day that is due is complete; {triggers.WARN_LAG} day behind warns, "
        f"{triggers.ERROR_LAG} are an error, where the source is followed",
    )
    def newest(platform: Platform) -> dg.AssetCheckResult:
        now = clock()
        found = triggers.freshness(platform.context, complete_days(partitions, now), now)
        facts = {"newest": found.newest or "none", "due": found.expected or "none"}
        lag = {} if found.lag is None else {"days behind": found.lag}
        if not triggers.follows(platform.context.settings):  # days of files are as old as their owner likes
            told = f"the source is not followed, so its newest day may have any age ({found.text})"
            return _result(True, "ok", told, {**facts, **lag})
        return _result(found.severity == "ok", found.severity, found.text, {**facts, **lag})

    return newest


def _reconciled(partitions: dg.DailyPartitionsDefinition, clock: Clock) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset="raw_traces",
        name="source_is_reconciled",
        description="every day that the source lists is in the lake as it is listed",
    )
    def reconciled(platform: Platform) -> dg.AssetCheckResult:
        ctx = platform.context
        found = triggers.unreconciled(ctx, complete_days(partitions, clock()), triggers.local_digest(ctx))
        days = sorted(found)
        text = (
            f"{len(days)} day(s) are not as listed: {', '.join(days[:_SHOWN])}" if days else "all listed days are there"
        )
        return _result(not days, "warn", text, {day: found[day] for day in days[:_SHOWN]})

    return reconciled


def _queue(clock: Clock) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset="raw_traces",
        name="queue_moves",
        description="no run is queued for half an hour while nothing runs: a slot of a concurrency pool was lost",
    )
    def queue(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        stuck = stuck_queue(context.instance, clock(), but=context.run.run_id)
        if stuck is None:
            return _result(True, "ok", "the queue moves", {})
        text = f"run {stuck.run_id} of {stuck.job} waits since {stuck.since:%Y-%m-%d %H:%M} UTC while nothing runs"
        return _result(False, "error", text, {"run": stuck.run_id, "job": stuck.job})

    return queue
