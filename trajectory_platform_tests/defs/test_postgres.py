"""docker/dagster.yaml against a real Postgres and a local S3: runs, ticks and logs are kept, also over a restart."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.defs.daemons import REPOSITORY, Home, end, home_of, wait_until
from trajectory_platform_tests.defs.postgres_server import Postgres, postgres_server
from trajectory_platform_tests.stages.arena_days import DAYS, make_days, settings_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
BUCKET = "dagster-logs"
DONE = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres_server() as started:
        yield started


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A local S3 with the bucket; its client."""
    boto3 = pytest.importorskip("boto3")
    moto = pytest.importorskip("moto.server")
    started = moto.ThreadedMotoServer(port=0)
    started.start()
    host, port = started.get_host_and_port()
    client = boto3.client(
        "s3", endpoint_url=f"http://{host}:{port}", aws_access_key_id="x", aws_secret_access_key="x",
        region_name="us-east-1",
    )  # fmt: skip
    client.create_bucket(Bucket=BUCKET)
    yield client
    started.stop()


@pytest.fixture
def home(tmp_path: Path, server: Postgres, store: Any, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Two folders of days that were downloaded long ago, a source that is followed, a daily tick in four minutes."""
    days = make_days(tmp_path / "days", days=2, traces=6)
    for path in days.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    soon = datetime.now(UTC) + timedelta(minutes=4)
    settings = settings_for(
        days, tmp_path / "lake", unattended=True, ingest_at_utc=f"{soon:%H:%M}", alert_webhook_env="HOOK"
    )
    variables = {
        **server.env,
        "DAGSTER_COMPUTE_LOGS_BUCKET": BUCKET,
        "DAGSTER_COMPUTE_LOGS_ENDPOINT": store.meta.endpoint_url,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = (REPOSITORY / "docker" / "dagster.yaml").read_text("utf-8")
    return home_of(tmp_path / "home", settings, config, **variables)


def _statuses(instance: dg.DagsterInstance) -> dict[str, str]:
    return {run.tags.get("dagster/run_key", run.run_id): run.status.value for run in instance.get_runs()}


def test_a_daemon_over_postgres_ingests_and_a_restart_of_the_database_loses_nothing(
    home: Home, server: Postgres, store: Any
) -> None:
    with home.instance() as instance:
        assert "Postgres" in type(instance.run_storage).__name__ and instance.get_runs() == []
        daemon = home.daemon()
        try:
            wait_until(lambda: len(instance.get_runs()) >= 3, within_s=400, what="three requests of new_raw_days")
            wait_until(
                lambda: dg.DagsterRunStatus.STARTED in {run.status for run in instance.get_runs()},
                within_s=400, what="a run that runs",
            )  # fmt: skip
            server.ctl("restart", "-m", "fast")
            wait_until(
                lambda: all(run.status in DONE for run in instance.get_runs()), within_s=900, what="all runs ended"
            )
            wait_until(lambda: _ticked(instance) >= _EXPECTED, within_s=300, what=lambda: _ticked(instance))
        finally:
            end(daemon)
        runs = instance.get_runs()
        assert {run.status for run in runs} <= {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE}
        retried = {run.parent_run_id for run in runs if run.parent_run_id}
        failed = {run.run_id for run in runs if run.status is dg.DagsterRunStatus.FAILURE}
        assert failed <= retried, "a run that the restart broke was run again"
        lake = StageContext(_settings(home)).lake
        assert lake.days("axis_a_corpus") == [DAYS[0], DAYS[1], DAYS[2]]
        events = server.count("event_logs")
    listed = store.list_objects_v2(Bucket=BUCKET, Prefix="compute-logs/").get("Contents", [])
    assert any(item["Key"].endswith((".err", ".out")) for item in listed) and events > 100


_EXPECTED = {"daily_ingestion", "new_raw_days", "repoll_open_days", "retrain_newest", "resume_good_days", "tell"}


def _ticked(instance: dg.DagsterInstance) -> set[str]:
    """Schedules and sensors with a tick that ended."""
    return {
        state.instigator_name
        for state in instance.all_instigator_state()
        for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=5)
        if tick.status.value in ("SUCCESS", "SKIPPED")
    }


def _settings(home: Home) -> Any:
    from trajectory_platform.settings import Settings

    names = ("data_root", "lake_uri", "checkpoint_root", "index_root", "first_day")
    return Settings(**{name: home.env[f"TRAJECTORY_PLATFORM_{name.upper()}"] for name in names})  # type: ignore[arg-type]


@pytest.mark.parametrize("days", [DAYS[:2], [DAYS[0], DAYS[0]]], ids=["different_days", "the_same_day"])
def test_two_processes_run_at_once(home: Home, days: list[str]) -> None:
    """Case F07 for the same day: both end well, and its rows stand once."""
    script = (
        "import sys, dagster as dg; from trajectory_platform.defs.definitions import defs;"
        "job = defs().resolve_job_def('ingest_and_curate');"
        "done = job.execute_in_process(instance=dg.DagsterInstance.get(), partition_key=sys.argv[1]);"
        "print('ended', done.run_id)"
    )
    with (
        home.started("-W", "ignore", "-c", script, days[0]) as one,
        home.started("-W", "ignore", "-c", script, days[1]) as two,
    ):
        codes = [process.wait(900) for process in (one, two)]
    assert codes == [0, 0], home.log()[-3000:]
    ids = [line.split()[1] for line in home.log().splitlines() if line.startswith("ended ")]
    with home.instance() as instance:
        runs = [instance.get_run_by_id(name) for name in ids]
        assert len(runs) == 2
        for run in runs:
            assert run is not None and run.status is dg.DagsterRunStatus.SUCCESS
            assert int(run.tags["trajectory_platform/peak_memory_mb"]) > 50
    lake = StageContext(_settings(home)).lake
    assert lake.days("axis_a_corpus") == sorted(set(days))
    traces = lake.read("raw_traces", columns=["trace_id", "day"]).to_pylist()
    assert len(traces) == len({(row["trace_id"], row["day"]) for row in traces}) > 0


def test_an_unreachable_database_is_said_within_seconds(home: Home, server: Postgres) -> None:
    server.ctl("stop", "-m", "fast")
    try:
        begun = time.monotonic()
        code, printed = home.run("-W", "ignore", "-c", "import dagster as dg; dg.DagsterInstance.get().get_runs()")
        assert code != 0 and "Connection refused" in printed and time.monotonic() - begun < 60
    finally:
        server.ctl("start")
