"""The whole of docker/compose.yaml as processes: healthy, and a day from the subnet's API to the lake through it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib import parse

import pytest

from trajectory_platform_tests.deploy import mlflow_program
from trajectory_platform_tests.deploy.stack import REPOSITORY, Stack, stores
from trajectory_platform_tests.deploy.unattended import asked, served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SERVICES = ("code", "webserver", "daemon")
DAYS = 2


@contextmanager
def served_arena(folder: Path, first_day: str) -> Iterator[str]:
    """The subnet's public API over simulated days, in a process of its own; its URL."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "trajectory_platform.cli", "arena"]
    simulate = [
        "simulate",
        "--out",
        str(folder),
        "--days",
        str(DAYS),
        "--traces-per-day",
        "20",
        "--first-day",
        first_day,
    ]
    subprocess.run([*command, *simulate], env=environment, check=True, capture_output=True, timeout=300)
    with served(folder, environment=environment) as url:
        yield url


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything up, with two days of yesterday and before behind the API."""
    first = (datetime.now(UTC) - timedelta(days=DAYS)).date().isoformat()
    with served_arena(tmp_path_factory.mktemp("arena") / "days", first) as api:
        extra = {"TRAJECTORY_PLATFORM_API_BASE": api, "TRAJECTORY_PLATFORM_API_ARTIFACT_HOSTS": '["127.0.0.1"]'}
        with stores(extra=extra, FIRST_DAY=first) as started:
            started.up(SERVICES)
            for service in SERVICES:
                started.wait(service)
            yield started


def test_a_day_goes_from_the_api_to_the_lake(stack: Stack) -> None:
    """By the command a user gives in the container: the daemon launches, the code server runs, S3 and Postgres keep."""
    done = stack.run(
        "code", "trajectory-platform", "backfill", "--server", stack.url("webserver"), "--json", timeout_s=1200
    )
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:] + stack.log("code")[-3000:]
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["incomplete"] == {} and len(facts["complete"]) + len(facts["current_before"]) == DAYS
    verified = stack.run("code", "trajectory-platform", "lake", "verify", "--json")
    assert (verified.returncode, json.loads(verified.stdout)) == (0, {"damaged": []}), verified.stderr
    doctor = stack.run("code", "trajectory-platform", "doctor", "--json")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    counted = stack.run("code", "trajectory-platform", "sql", "select count(*) as traces from axis_a_corpus", "--json")
    assert json.loads(counted.stdout), counted.stderr


def test_runs_and_ticks_are_in_postgres_and_the_output_of_runs_in_the_bucket(stack: Stack) -> None:
    assert stack.postgres_rows("runs") >= 1 and stack.postgres_rows("event_logs") > 50
    deadline = time.monotonic() + 300
    while stack.postgres_rows("job_ticks") == 0:
        assert time.monotonic() < deadline, stack.log("daemon")[-3000:]
        time.sleep(1)
    bucket = stack.environment("code")["DAGSTER_COMPUTE_LOGS_BUCKET"]
    listed = stack.s3().list_objects_v2(Bucket=bucket, Prefix="compute-logs/")
    assert any(item["Key"].endswith(".err") for item in listed.get("Contents", [])), listed


def test_a_dump_of_the_database_brings_the_runs_back(stack: Stack, tmp_path: Path) -> None:
    """Taken while the daemon writes; read by Dagster from another database."""
    runs = set(stack.sql("select run_id from runs where status = 'SUCCESS'"))
    dump = str(tmp_path / "dagster.dump")
    stack.postgres_tool("pg_dump", "-Fc", "-f", dump, "dagster")
    stack.postgres_tool("createdb", "restored")
    stack.postgres_tool("pg_restore", "--clean", "--if-exists", "-d", "restored", dump)
    assert runs and runs <= set(stack.sql("select run_id from runs where status = 'SUCCESS'", "restored"))
    script = (
        "import dagster as dg\n"
        "with dg.DagsterInstance.get() as instance:\n"
        "    print(len(instance.get_materialized_partitions(dg.AssetKey('axis_a_corpus'))), len(instance.get_runs()))\n"
    )
    read = stack.run("code", "python", "-W", "ignore", "-c", script, env={"DAGSTER_POSTGRES_DB": "restored"})
    assert read.returncode == 0, read.stderr[-2000:]
    days, count = map(int, read.stdout.split()[-2:])
    assert days == DAYS and count >= len(runs)


def test_services_write_only_into_their_volumes(stack: Stack) -> None:
    """What a read-only root would refuse: nothing beside data and checkpoints, nothing into the home folder."""
    platform = stack.folder / "platform"
    written = {path.relative_to(platform).parts[0] for path in set(platform.rglob("*")) - stack.placed}
    assert "data" in written and written <= {"data", "checkpoints"}
    assert list((stack.folder / "home").iterdir()) == []
    for service in SERVICES:
        for word in ("Read-only", "Permission denied", "PermissionError"):
            assert word not in stack.log(service), stack.log(service)[-3000:]


def test_a_restarted_code_server_is_found_again(stack: Stack) -> None:
    """``docker compose restart code``: webserver and daemon wait for it, the graph is there again."""
    stack.stop("code")
    assert stack.check("code").returncode != 0
    assert stack.check("webserver").returncode == 0
    stack.start("code")
    stack.wait("code")
    query = "{repositoriesOrError{... on RepositoryConnection{nodes{name}}}}"
    deadline = time.monotonic() + 120
    while not asked(f"{stack.url('webserver')}/graphql?query={parse.quote(query)}")["data"]["repositoriesOrError"][
        "nodes"
    ]:
        assert time.monotonic() < deadline, stack.log("webserver")[-3000:]
        time.sleep(1)
    assert stack.check("daemon").returncode == 0


def test_the_sandbox_serves_the_catalogue_of_the_volume(stack: Stack) -> None:
    command = stack.services["sandbox"]["command"]
    (argument,) = (word for word in command if word.startswith("--catalogue="))
    target = Path(stack.here(argument.split("=")[1]))
    target.parent.mkdir(parents=True, exist_ok=True)
    product = {"product_id": "p1", "title": "red mug", "price": 3.5, "shop_id": "s1"}
    target.write_text(json.dumps(product) + "\n", "utf-8")
    stack.start("sandbox")
    stack.wait("sandbox")
    assert asked(f"{stack.url('sandbox')}/health")
    stack.stop("sandbox")


def test_mlflow_keeps_its_runs_in_its_database(stack: Stack) -> None:
    environment = mlflow_program.environment(stack.folder)
    stack.start("mlflow", environment)
    stack.wait("mlflow", more={**environment, "PATH": stack.environment("mlflow")["PATH"]})
    script = (
        "import mlflow; mlflow.set_experiment('one')\n"
        "with mlflow.start_run(): mlflow.log_metric('loss', 0.5); mlflow.log_text('text', 'note.txt')\n"
    )
    done = stack.run("code", "python", "-c", script)
    assert done.returncode == 0, done.stderr[-2000:] + stack.log("mlflow")[-3000:]
    assert stack.sql("select key, value from metrics", "mlflow") == [("loss", 0.5)]
    stack.stop("mlflow")


def test_what_the_services_hold_fits_a_small_machine(stack: Stack) -> None:
    """Resident memory of the three that are always up, with nothing to do."""
    print({name: (state.resident_mb, round(state.seconds or 0)) for name, state in stack.started.items()})
    found = {service: stack.resident_mb(service) for service in SERVICES}
    assert sum(found.values()) < 2048, found
