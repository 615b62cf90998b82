"""What happens by itself after runs: the good days of a bad one go on, and the newest as-of day is trained again."""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from trajectory_platform.defs.day_runs import contiguous
from trajectory_platform.defs.resources import Platform
from trajectory_platform.defs.runs import MAX_TAG, RANGE_END, RANGE_START, in_progress, read_cursor, since
from trajectory_platform.defs.schedules import Clock
from trajectory_platform.errors import PlatformError
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.retrain_triggers import wanted_training, what_is_seen

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

RESUMES = "trajectory_platform/resumes_run"
RETRAINS_FOR = "trajectory_platform/retrains_for"
AUTOMATIC = "trajectory_platform/automatic"
TRAINING_JOB = "train_as_of"
_RETRAINING_POLL_S = 60


def good_days_of_failed_run(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    """Days of a failed run whose failed step recorded a materialisation, i.e. that may go on.

    Empty when the run failed in another way (no step recorded a good day) or had one day only.
    """
    failed_steps = {
        record.event_log_entry.step_key
        for record in instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_FAILURE).records
    }
    days: set[str] = set()
    for record in instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION).records:
        entry = record.event_log_entry
        event = entry.dagster_event
        if entry.step_key in failed_steps and event is not None and event.partition is not None:
            days.add(event.partition)
    return sorted(days)


def resume_good_days(job: "UnresolvedAssetJobDefinition") -> dg.SensorDefinition:
    """Request the rest of ``ingest_and_curate`` for the good days of a run that failed on a bad one.

    A follow-up covers strictly fewer days than the run it follows, so this ends; what is already current is
    skipped by identity and costs a digest only.
    """

    @dg.run_failure_sensor(
        name="resume_good_days",
        monitored_jobs=[job],
        request_job=job,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="After a backfill run with a bad day: runs what lies downstream of the good days.",
    )
    def sensor(context: dg.RunFailureSensorContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        run = context.dagster_run
        days = good_days_of_failed_run(context.instance, run.run_id)
        if not days:
            yield dg.SkipReason(f"run {run.run_id} recorded no good day beside the bad one")
            return
        for first, last in contiguous(days):
            yield dg.RunRequest(
                run_key=f"{run.run_id}:{first}:{last}",
                tags={RANGE_START: first, RANGE_END: last, RESUMES: run.run_id},
            )

    return sensor


def retrain_newest(
    job: "UnresolvedAssetJobDefinition", settings: Settings, *, clock: Clock, running: bool = True
) -> dg.SensorDefinition:
    """Request ``train_as_of`` for the newest as-of day when there is a reason to.

    One sensor for all reasons (withdrawn traces, enough new clusters, a rotated suite), so that two cannot ask for the
    same day. A request is one per as-of day and evidence (its run key), none is made while a training is queued or
    runs, and after one the next waits for ``retrain_cooldown_days``; the runs of the instance are the memory, the
    cursor only saves looking again at a lake that did not change.
    """

    @dg.sensor(
        name="retrain_newest",
        job=job,
        minimum_interval_seconds=_RETRAINING_POLL_S,
        default_status=dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED,
        description=f"Trains the newest as-of day again after a retraction or an invalidated run, once "
        f"{settings.retrain_min_new_clusters} new axis-A clusters have come, or when a suite rotates. The first "
        "checkpoint is made by a person. Older checkpoints are flagged only.",
    )
    def sensor(context: dg.SensorEvaluationContext, platform: Platform) -> dg.SensorResult:
        return _retraining_tick(platform.context, context.instance, context.cursor, clock())

    return sensor


def _retraining_tick(
    ctx: StageContext, instance: dg.DagsterInstance, text: str | None, now: datetime
) -> dg.SensorResult:
    """What one evaluation answers; a lake that cannot be read now is looked at again by the next."""
    cursor = read_cursor(text)
    try:
        seen = what_is_seen(ctx)
        if seen == cursor.get("seen") and not cursor.get("waits"):
            return _skipped(cursor, "no retraction, listing, corpus or checkpoint is new since the last look")
        judged = wanted_training(ctx)
    except PlatformError as error:
        return dg.SensorResult(skip_reason=f"the lake cannot be read: {error}"[:MAX_TAG])
    wanted = judged.wanted
    if wanted is None:
        return _skipped({**cursor, "seen": seen, "waits": False}, judged.text)
    if wanted.key == cursor.get("requested"):
        return _skipped({**cursor, "seen": seen, "waits": False}, f"requested already: {judged.text}")
    if running := sorted(in_progress(instance, TRAINING_JOB).values()):
        return _skipped({**cursor, "seen": seen, "waits": True}, f"waits for run {running[0]}: {judged.text}")
    last = last_automatic(instance)
    cooldown = timedelta(days=ctx.settings.retrain_cooldown_days)
    if last is not None and since(last, now) < cooldown:
        why = f"cooldown until {last + cooldown:%Y-%m-%d %H:%M} UTC: {judged.text}"
        return _skipped({**cursor, "seen": seen, "waits": True}, why)
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(
                run_key=wanted.key,
                partition_key=wanted.day,
                tags={AUTOMATIC: "training", RETRAINS_FOR: wanted.text()[:MAX_TAG]},
            )
        ],
        cursor=json.dumps({"seen": seen, "requested": wanted.key, "because": wanted.text()[:MAX_TAG]}),
    )


def _skipped(cursor: dict[str, Any], why: str) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=why[:1000], cursor=json.dumps(cursor))


def last_automatic(instance: dg.DagsterInstance) -> datetime | None:
    """When the newest training that started by itself was asked for."""
    records = instance.get_run_records(dg.RunsFilter(job_name=TRAINING_JOB, tags={AUTOMATIC: "training"}), limit=1)
    return records[0].create_timestamp.astimezone(UTC) if records else None
