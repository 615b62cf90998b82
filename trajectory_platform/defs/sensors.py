"""What happens by itself: the good days of a bad run go on, and what learnt from withdrawn traces is trained again."""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from trajectory_platform.defs.day_runs import contiguous
from trajectory_platform.defs.resources import Platform
from trajectory_platform.errors import PlatformError
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.retraining import Retraining, evidence_version, retraining

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
RESUMES = "trajectory_platform/resumes_run"
RETRAINS_FOR = "trajectory_platform/retrains_for"
_RETRAINING_POLL_S = 60
_MAX_TAG = 400


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


def retrain_without_withdrawn(job: "UnresolvedAssetJobDefinition") -> dg.SensorDefinition:
    """Request ``train_as_of`` for the newest as-of day when its checkpoints learnt from withdrawn traces.

    The cursor holds the digest of what was looked at (so an unchanged lake costs one look at its manifests) and the
    last request. A request is one per day, checkpoints and withdrawn traces: neither the cursor nor Dagster's run key
    lets it fire twice, also when the run fails or has not come to the training yet.
    """

    @dg.sensor(
        name="retrain_without_withdrawn",
        job=job,
        minimum_interval_seconds=_RETRAINING_POLL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="After a retraction or an invalidated run: trains the newest as-of day again without those traces. "
        "Older checkpoints are flagged only.",
    )
    def sensor(context: dg.SensorEvaluationContext, platform: Platform) -> dg.SensorResult:
        cursor: dict[str, Any] = json.loads(context.cursor) if context.cursor else {}
        return _retraining_tick(platform.context, cursor)

    return sensor


def _retraining_tick(ctx: StageContext, cursor: dict[str, Any]) -> dg.SensorResult:
    """What one evaluation answers; a lake that cannot be read now is looked at again by the next."""
    try:
        seen = evidence_version(ctx)
        if seen == cursor.get("seen"):
            return dg.SensorResult(skip_reason="no retraction, listing or checkpoint is new since the last look")
        wanted = retraining(ctx)
    except PlatformError as error:
        return dg.SensorResult(skip_reason=f"the lake cannot be read: {error}")
    if wanted is None:
        text = "the newest checkpoints learnt from nothing that was withdrawn"
        return dg.SensorResult(skip_reason=text, cursor=json.dumps({**cursor, "seen": seen}))
    if wanted.key == cursor.get("requested"):
        text = f"requested already: {wanted.text()}"
        return dg.SensorResult(skip_reason=text, cursor=json.dumps({**cursor, "seen": seen}))
    return dg.SensorResult(
        run_requests=[_retraining_request(wanted)],
        cursor=json.dumps({"seen": seen, "requested": wanted.key, "because": wanted.text()}),
    )


def _retraining_request(wanted: Retraining) -> dg.RunRequest:
    return dg.RunRequest(run_key=wanted.key, partition_key=wanted.day, tags={RETRAINS_FOR: wanted.text()[:_MAX_TAG]})
