"""The daily ingestion and the hourly health checks, in UTC."""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import dagster as dg

from trajectory_platform.defs.partitions import complete_days
from trajectory_platform.defs.resources import Platform
from trajectory_platform.defs.runs import MAX_TAG, REASON, in_hand, in_progress
from trajectory_platform.errors import PlatformError
from trajectory_platform.settings import Settings
from trajectory_platform.sources.listed import listed
from trajectory_platform.stages.context import StageContext, neighbours
from trajectory_platform.stages.plain import daily_assets
from trajectory_platform.stages.triggers import behind, local_digest, published, version_of

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

HEALTH_CRON = "15 * * * *"
PRIORITY = "dagster/priority"  # of a queued run: the newest day goes before days that are asked for again


def status_of(running: bool) -> dg.DefaultScheduleStatus:
    return dg.DefaultScheduleStatus.RUNNING if running else dg.DefaultScheduleStatus.STOPPED


def daily_ingestion(
    job: "UnresolvedAssetJobDefinition",
    partitions: dg.DailyPartitionsDefinition,
    settings: Settings,
    *,
    running: bool,
) -> dg.ScheduleDefinition:
    """Request ``ingest_and_curate`` for the newest day that is over when the tick is due.

    The day follows from the partitions and the tick's own time, never from the clock of the machine, so that a tick
    that is evaluated late means the same day. A day that the source does not hold yet is not replaced by another one.
    """
    hour, minute = settings.ingest_at_utc.split(":")

    @dg.schedule(
        name="daily_ingestion",
        job=job,
        cron_schedule=f"{int(minute)} {int(hour)} * * *",
        execution_timezone="UTC",
        default_status=status_of(running),
        description=f"At {settings.ingest_at_utc} UTC: the newest subnet day that is over. Its race starts at 19:00 "
        "and ends after midnight; what is under embargo then is asked for again by `repoll_open_days`.",
    )
    def schedule(context: dg.ScheduleEvaluationContext, platform: Platform) -> dg.RunRequest | dg.SkipReason:
        days = complete_days(partitions, context.scheduled_execution_time)
        if not days:
            return dg.SkipReason(f"no subnet day is over yet: the first is {settings.first_day}")
        return _daily(platform.context, context.instance, days[-1], context.scheduled_execution_time)

    return schedule


def _daily(ctx: StageContext, instance: dg.DagsterInstance, day: str, at: datetime) -> dg.RunRequest | dg.SkipReason:
    job = "ingest_and_curate"
    busy = in_hand(instance, job, daily_assets(ctx.settings), in_progress(instance, job))
    if day in busy:
        return dg.SkipReason(f"{day} is being ingested by {busy[day]}")
    try:
        found = {near: listed(ctx.settings.data_root, date.fromisoformat(near)) for near in neighbours(day)}
        fetched = ctx.settings.source == "oro_api"
        if not fetched and not any(one.files for one in found.values()):
            where = f"no folder of {day}, nor beside it, in {ctx.settings.data_root}"
            return dg.SkipReason(f"{where}: new_raw_days takes it when it comes")
        why = behind(ctx, day, published(ctx), None if fetched else local_digest(ctx))
    except PlatformError as error:
        return dg.SkipReason(f"{day}: {error}; asked again by the sensors"[:MAX_TAG])
    if why is None and not fetched and not ctx.settings.data_root.startswith("s3://"):
        return dg.SkipReason(f"{day} is ingested as its folder is now")
    version = version_of(day, {near: one.version for near, one in found.items()})
    reason = f"daily ingestion of {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC: " + (why.text if why else "a new look at it")
    tags = {REASON: reason[:MAX_TAG], PRIORITY: "1"}
    return dg.RunRequest(run_key=f"daily:{day}:{version}", partition_key=day, tags=tags)


def health_checks(job: "UnresolvedAssetJobDefinition", *, running: bool) -> dg.ScheduleDefinition:
    """Request the checks that nothing else would run when nothing runs: freshness, reconciliation, queue."""
    return dg.ScheduleDefinition(
        name="health_checks",
        job=job,
        cron_schedule=HEALTH_CRON,
        execution_timezone="UTC",
        default_status=status_of(running),
        description="Every hour: is the newest day there, is the source reconciled, does the queue move?",
    )


Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The clock of the sensors; tests give their own."""
    return datetime.now(UTC)
