"""What happens after a run with a bad day in it: the good days go on without it."""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from trajectory_platform.defs.day_runs import contiguous

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
RESUMES = "trajectory_platform/resumes_run"


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
