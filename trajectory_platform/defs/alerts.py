"""One sensor that tells people: failed runs, failed checks of severity ERROR, a queue that stands still."""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

from trajectory_platform.defs.freshness import Stuck, stuck_queue
from trajectory_platform.defs.runs import days_of_run, read_cursor
from trajectory_platform.defs.schedules import Clock
from trajectory_platform.settings import Settings
from trajectory_platform.stages.alert_text import Alert, cause_of
from trajectory_platform.stages.alerts import Memory, Send, deliver, targets
from trajectory_platform.stages.run_causes import DAY, FAILURE

_POLL_S = 60
_BATCH = 100
_OVERLAP_S = 600.0
_LOOKED = "looked"  # beside the failures that were told: when the sensor looked last
_WILL_RETRY = "dagster/will_retry"
_OF_ASSETS = "__ASSET_JOB"  # the job of every backfill, and of what a person materialises by hand
_NAMED, _STEPS = 3, 10


def tell(
    settings: Settings,
    *,
    clock: Clock,
    hooks: Mapping[str, Send] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> dg.SensorDefinition:
    """The sensor; it runs where a hook is configured, and starts with what happens from then on.

    Args:
        hooks: in place of those that the settings name.
    """
    ways = targets(settings) if hooks is None else hooks
    running = dg.DefaultSensorStatus.RUNNING if ways else dg.DefaultSensorStatus.STOPPED

    @dg.sensor(
        name="tell",
        minimum_interval_seconds=_POLL_S,
        default_status=running,
        description="Sends failed runs, failed checks of severity ERROR and a queue that stands still to "
        f"{' and '.join(ways) or 'nobody: no webhook or mail is configured'}; equal ones once per cooldown.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now = clock()
        cursor = read_cursor(context.cursor)
        seen, alerts = _news(context, cursor.get("seen"), now)
        if not ways:
            text = "no webhook or mail is configured (settings alert_webhook_env, alert_smtp_host, alert_mail_to)"
            return dg.SensorResult(skip_reason=text, cursor=json.dumps({"seen": seen}))
        memory, words = deliver(
            alerts,
            Memory.read(cursor["memory"] if isinstance(cursor.get("memory"), dict) else {}),
            now,
            hooks=ways,
            cooldown=timedelta(minutes=settings.alert_cooldown_minutes),
            sleep=sleep,
        )
        text = "; ".join(words)[:1000] or "nothing to tell"
        return dg.SensorResult(skip_reason=text, cursor=json.dumps({"seen": seen, "memory": memory.to_dict()}))

    return sensor


def _news(context: dg.SensorEvaluationContext, seen: Any, now: datetime) -> tuple[dict[str, Any], list[Alert]]:
    """Where the next look goes on, and what happened since the last one; a first look takes what is there as told."""
    places = seen if isinstance(seen, dict) else {}
    last_run, runs = _failed_runs(context.instance, places.get("runs"))
    graph = context.repository_def.asset_graph if context.repository_def is not None else None
    keys = sorted(graph.asset_check_keys) if graph is not None else []
    told_checks, checks = _failed_checks(context.instance, keys, places.get("checks"), now)
    stuck = stuck_queue(context.instance, now)
    stalled = [] if stuck is None else [_stalled(stuck, now)]
    return {"runs": last_run, "checks": told_checks}, [*runs, *checks, *stalled]


def _stalled(stuck: Stuck, now: datetime) -> Alert:
    return Alert(
        "queue_stalled",
        "queue_stalled",
        "the run queue stands still",
        f"a run of {stuck.job} is queued since {stuck.since:%Y-%m-%d %H:%M} UTC and nothing runs: is a daemon alive, "
        "and is a slot of a concurrency pool held by a run that ended?",
        now.astimezone(UTC).isoformat(),
        {"run": stuck.run_id, "job": stuck.job},
    )


def _failed_runs(instance: dg.DagsterInstance, after: Any) -> tuple[int, list[Alert]]:
    """(storage id of the newest failure looked at, what is to be told of those after ``after``)."""
    if not isinstance(after, int):
        newest = instance.fetch_run_status_changes(dg.DagsterEventType.RUN_FAILURE, limit=1).records
        return newest[0].storage_id if newest else 0, []
    wanted = dg.RunStatusChangeRecordsFilter(dg.DagsterEventType.RUN_FAILURE, after_storage_id=after)
    records = instance.fetch_run_status_changes(wanted, limit=_BATCH, ascending=True).records
    alerts = [alert for record in records for alert in _failed_run(instance, record)]
    return records[-1].storage_id if records else after, alerts


def _failed_checks(
    instance: dg.DagsterInstance, keys: Sequence[dg.AssetCheckKey], told: Any, now: datetime
) -> tuple[dict[str, float], list[Alert]]:
    """(record -> time of the failures that were told, what is to be told now).

    A record is made when a check is planned and filled when it ended, so that no id can be the cursor; failures of the
    last ten minutes are compared with those that were told, a sensor that slept longer looks back to its last tick.
    """
    known = None
    if isinstance(told, dict):
        known = {str(name): float(at) for name, at in told.items() if isinstance(at, int | float)}
    since = (known or {}).get(_LOOKED, now.timestamp()) - _OVERLAP_S
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    failed: dict[str, float] = {_LOOKED: now.timestamp()}
    alerts: list[Alert] = []
    for key in sorted(latest):
        if max(latest[key].create_timestamp, _at(latest[key])) < since:
            continue
        history = instance.event_log_storage.get_asset_check_execution_history(
            key, limit=_BATCH, status={AssetCheckExecutionRecordStatus.FAILED}
        )
        for record in reversed([one for one in history if _at(one) >= since]):
            failed[str(record.id)] = _at(record)
            alert = _failed_check(record) if known is not None and str(record.id) not in known else None
            alerts += [] if alert is None else [alert]
    return failed, alerts


def _at(record: AssetCheckExecutionRecord) -> float:
    return record.event.timestamp if record.event is not None else record.create_timestamp


def _failed_run(instance: dg.DagsterInstance, record: dg.EventLogRecord) -> list[Alert]:
    """A failed run, unless it is tried again by itself: an alert for each day and step that failed."""
    entry = record.event_log_entry
    run = instance.get_run_by_id(entry.run_id)
    if run is None or run.tags.get(_WILL_RETRY) == "true":
        return []
    event = entry.dagster_event
    said = event.message if event is not None and event.message else ""
    failures = _failures(instance, entry.run_id) or [("", said, {})]
    title = f"run of {_made_by(run, [step for step, _, _ in failures])} failed"
    alerts: list[Alert] = []
    for step, why, reasons in failures:
        for day in sorted(reasons) or days_of_run(run.tags) or [""]:
            cause = reasons.get(day, why)
            alerts.append(
                Alert(
                    "run_failed",
                    f"run_failed:{step or run.job_name}:{day}:{cause_of(cause)}",
                    title + (f" for {day}" if day else ""),
                    f"{step}: {cause}" if step else cause,
                    datetime.fromtimestamp(entry.timestamp, UTC).isoformat(),
                    {"run": run.run_id, "job": run.job_name},
                    "run_failed",
                    day,
                )
            )
    return alerts


def _made_by(run: dg.DagsterRun, steps: Sequence[str]) -> str:
    """The job, or the assets where the job has no name that a person gave it."""
    if not run.job_name.startswith(_OF_ASSETS):
        return run.job_name
    names = sorted(key.to_user_string() for key in run.asset_selection or ()) or [step for step in steps if step]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "") or "assets"


def _failures(instance: dg.DagsterInstance, run_id: str) -> list[tuple[str, str, dict[str, str]]]:
    """(step, its innermost error, reason per day that failed in it) of the steps that failed."""
    found: list[tuple[str, str, dict[str, str]]] = []
    for record in instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_FAILURE, limit=_STEPS).records:
        entry = record.event_log_entry
        data = entry.dagster_event.step_failure_data if entry.dagster_event is not None else None
        error = data.error if data is not None else None
        while error is not None and error.cause is not None:
            error = error.cause
        told = data.user_failure_data.metadata if data is not None and data.user_failure_data is not None else {}
        reasons = {name: str(value.value) for name, value in told.items() if DAY.fullmatch(name)}
        why = error.message.strip().removeprefix(FAILURE) if error is not None else "failed"
        found.append((entry.step_key or "", why, reasons))
    return found


def _failed_check(record: AssetCheckExecutionRecord) -> Alert | None:
    event = record.event.dagster_event if record.event is not None else None
    check = event.asset_check_evaluation_data if event is not None else None
    if check is None or check.passed or check.severity is not dg.AssetCheckSeverity.ERROR:
        return None
    name = f"{check.asset_key.to_user_string()}:{check.check_name}"
    return Alert(
        "check_failed",
        f"check_failed:{name}:{cause_of(check.description or '')}",  # its description names the days
        f"check {check.check_name} of {check.asset_key.to_user_string()} failed",
        check.description or "",
        datetime.fromtimestamp(_at(record), UTC).isoformat(),
        {"run": record.run_id, "check": name},
        "check_failed",
    )
