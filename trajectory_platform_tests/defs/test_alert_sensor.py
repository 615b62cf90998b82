"""What the sensor tells: failed runs, failed checks of severity ERROR, a queue that stands still; each once."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from trajectory_platform.defs.alerts import tell
from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.defs.freshness import stuck_queue
from trajectory_platform.settings import Settings
from trajectory_platform.stages.alert_text import Alert, payload
from trajectory_platform.stages.alerts import NotSent
from trajectory_platform_tests.defs.ticks import Ticks

STATUS = dg.DagsterRunStatus


class Told:
    """The sensor over an instance of its own; ``alerts`` is what was sent."""

    def __init__(self, home: Path | None = None, **changes: Any) -> None:
        self.now = datetime.now(UTC)
        self.alerts: list[Alert] = []
        self.broken = False
        self.ticks = Ticks(Settings(), "tell", now=self.now, home=home)
        self.instance = self.ticks.instance
        self.cursor: str | None = None
        self._sensor = tell(
            Settings(**changes), clock=lambda: self.now, hooks={"hook": self._send}, sleep=lambda _: None
        )

    def _send(self, alert: Alert) -> None:
        if self.broken:
            raise NotSent("down")
        self.alerts.append(alert)

    def tick(self) -> str:
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, repository_def=_graph().get_repository_def()
        ) as context:
            data = self._sensor.evaluate_tick(context)
        self.cursor = data.cursor
        return str(data.skip_message)


def _graph(*, fails: bool = False, passed: bool = True, severity: str = "ERROR") -> dg.Definitions:
    @dg.asset
    def corpus() -> None:
        if fails:
            raise ValueError("disk <full> \x1b[31m")

    @dg.asset_check(asset=corpus)
    def holds() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(
            passed=passed, severity=dg.AssetCheckSeverity[severity], description="failed on 2026-05-03"
        )

    return dg.Definitions(assets=[corpus], asset_checks=[holds])


def _materialise(told: Told, **options: Any) -> None:
    job = _graph(**options).resolve_implicit_global_asset_job_def()
    job.execute_in_process(instance=told.instance, raise_on_error=False)


def test_a_failed_run_is_told_with_its_innermost_error() -> None:
    told = Told()
    _materialise(told, fails=True)
    assert told.tick() == "nothing to tell" and told.alerts == [], "what happened before is history"
    _materialise(told, fails=True)
    assert told.tick().endswith("sent")
    [alert] = told.alerts
    assert alert.kind == "run_failed" and alert.text == "corpus: ValueError: disk <full> \x1b[31m"
    assert told.tick() == "nothing to tell"
    _materialise(told, fails=True)
    assert "not again within" in told.tick() and len(told.alerts) == 1
    told.now += timedelta(minutes=Settings().alert_cooldown_minutes)
    _materialise(told, fails=True)
    told.tick()
    assert told.alerts[1].details["equal ones held back"] == "1"


def test_a_run_that_is_tried_again_is_not_told() -> None:
    told = Told()
    told.tick()
    run = told.ticks.has_run("ingest_and_curate", STATUS.STARTED, {"dagster/will_retry": "true"})
    told.instance.report_run_failed(_run(told, run))
    assert told.tick() == "nothing to tell"
    last = told.ticks.has_run("ingest_and_curate", STATUS.STARTED, {"dagster/partition": "2026-05-03"})
    told.instance.report_run_failed(_run(told, last), "the run worker ended with code -9")
    told.tick()
    [alert] = told.alerts
    assert alert.title == "run of ingest_and_curate failed for 2026-05-03" and "code -9" in alert.text


def _day_fails(told: Told, day: str, why: str) -> None:
    """A backfill's run of one day that fails as ``day_runs`` lets it fail."""

    @dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-03-26"))
    def raw_traces() -> None:
        raise dg.Failure(f"1 of 1 days failed: {day}", metadata={day: why}, allow_retries=False)

    job = dg.Definitions(assets=[raw_traces]).resolve_implicit_global_asset_job_def()
    job.execute_in_process(
        instance=told.instance, raise_on_error=False, partition_key=day, asset_selection=[dg.AssetKey("raw_traces")]
    )


def test_an_alert_names_assets_days_and_the_reason_that_the_run_gives() -> None:
    told = Told()
    told.tick()
    why = "unreadable <b>: https://u:pw@store/x.gz?X-Amz-Signature=abc is damaged; api_key=sk-1 \x1b[31m"
    _day_fails(told, "2026-05-08", why)
    told.tick()
    [alert] = told.alerts
    assert alert.title == "run of raw_traces failed for 2026-05-08"
    assert alert.text.startswith("raw_traces: unreadable <b>")
    sent = payload(alert)["text"]
    assert "unreadable &lt;b&gt;: https://***@\u200bstore/x.gz?*** is damaged; api_key=*** \\x1b[31m" in sent
    assert not any(secret in sent for secret in ("u:pw", "abc", "sk-1"))


def test_other_days_and_other_causes_are_other_alerts_and_equal_ones_are_none() -> None:
    told = Told()
    told.tick()
    _day_fails(told, "2026-05-08", "the folder is gone: /tmp/3f9a8b7c6d/2026-05-08 at 12:30:01")
    told.tick()
    _day_fails(told, "2026-05-08", "the folder is gone: /tmp/77aa8b7c6e/2026-05-08 at 13:02:59")
    assert "1 equal, told" in told.tick() and len(told.alerts) == 1, "another id and another time are no other cause"
    _day_fails(told, "2026-05-09", "the folder is gone: /tmp/3f9a8b7c6d/2026-05-08 at 12:30:01")
    told.tick()
    _day_fails(told, "2026-05-08", "HTTP 403")
    told.tick()
    _day_fails(told, "2026-05-08", "HTTP 500")
    told.tick()
    assert [one.day for one in told.alerts] == ["2026-05-08", "2026-05-09", "2026-05-08", "2026-05-08"]


def test_a_storm_is_one_alert_that_names_every_day_and_each_counts_as_told() -> None:
    told = Told()
    told.tick()
    first = date(2026, 3, 26)
    days = [(first + timedelta(days=number)).isoformat() for number in range(12)]
    for day in days[:5] + days[7:]:
        _day_fails(told, day, f"no artifact of {day} is readable: {'x' * 500}")
    assert "10 failures): sent" in told.tick()
    [alert] = told.alerts
    assert alert.title == "run of raw_traces failed for 2026-03-26 to 2026-03-30, 2026-04-02 to 2026-04-06"
    assert "2026-03-26: raw_traces: no artifact of 2026-03-26" in alert.text and "and 4 more causes" in alert.text
    assert alert.details["failures"] == "10" and len(payload(alert)["text"]) < 3000
    for day in (days[1], days[5]):
        _day_fails(told, day, f"no artifact of {day} is readable: {'x' * 500}")
    told.tick()
    assert [one.day for one in told.alerts[1:]] == [days[5]], "the others were told"


def _run(told: Told, run_id: str) -> dg.DagsterRun:
    run = told.instance.get_run_by_id(run_id)
    assert run is not None
    return run


@pytest.mark.parametrize(
    ("passed", "severity", "count"), [(False, "ERROR", 1), (False, "WARN", 0), (True, "ERROR", 0)], ids=str
)
def test_only_failed_checks_of_severity_error_are_told(passed: bool, severity: str, count: int) -> None:
    told = Told()
    told.tick()
    _materialise(told, passed=passed, severity=severity)
    told.tick()
    assert len(told.alerts) == count
    assert all(one.key.startswith("check_failed:corpus:holds:") and "2026-05-03" in one.text for one in told.alerts)


def test_events_that_a_database_keeps_are_told_too(tmp_path: Path) -> None:
    told = Told(tmp_path)
    _materialise(told, passed=False)
    told.tick()
    _materialise(told, passed=False)
    _materialise(told, fails=True)
    told.tick()
    assert sorted(alert.kind for alert in told.alerts) == ["check_failed", "run_failed"]


def test_a_sensor_that_slept_tells_what_it_missed_and_nothing_older() -> None:
    told = Told()
    told.now -= timedelta(hours=3)  # it looked three hours ago, the check failed since
    told.tick()
    _materialise(told, passed=False)
    told.now += timedelta(hours=3)
    told.tick()
    assert [one.kind for one in told.alerts] == ["check_failed"]
    for hours in range(24):  # told failures are forgotten in the end, and not told again then
        told.now += timedelta(hours=hours)
        assert told.tick() == "nothing to tell"
    assert set(json.loads(told.cursor or "")["seen"]["checks"]) == {"looked"}


def test_a_queue_that_stands_still_is_told() -> None:
    told = Told()
    told.tick()
    waits = told.ticks.has_run("ingest_and_curate", STATUS.QUEUED, {})
    told.now += timedelta(minutes=29)
    assert told.tick() == "nothing to tell"
    told.now += timedelta(minutes=2)
    running = told.ticks.has_run("train_as_of", STATUS.STARTED, {})
    assert told.tick() == "nothing to tell", "something runs"
    assert stuck_queue(told.instance, told.now, but=running) is not None, "a run that asks does not count itself"
    told.ticks.ends(running, STATUS.SUCCESS)
    told.tick()
    [alert] = told.alerts
    assert alert.kind == "queue_stalled" and alert.details["run"] == waits


def test_what_could_not_be_sent_waits_in_the_cursor_and_nothing_is_raised() -> None:
    told = Told()
    told.tick()
    _materialise(told, fails=True)
    told.broken = True
    assert "not sent after 3 tries (down)" in told.tick()
    assert len(json.loads(told.cursor or "")["memory"]["waiting"]) == 1
    told.broken = False
    told.tick()
    assert len(told.alerts) == 1


def test_a_burst_is_read_in_pages_and_a_lost_cursor_starts_anew() -> None:
    told = Told()
    told.tick()
    for _ in range(3):
        _materialise(told, passed=False)
    told.cursor = "nonsense"
    assert told.tick() == "nothing to tell"
    _materialise(told, passed=False)
    told.tick()
    assert len(told.alerts) == 1


def test_without_a_hook_the_sensor_is_off_and_says_why() -> None:
    sensor = build_definitions(Settings()).get_repository_def().get_sensor_def("tell")
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    assert "no webhook or mail is configured" in Ticks(Settings(), "tell", now=datetime.now(UTC)).tick().skip_message
    configured = build_definitions(Settings(alert_webhook_env="HOOK")).get_repository_def().get_sensor_def("tell")
    assert configured.default_status is dg.DefaultSensorStatus.RUNNING
