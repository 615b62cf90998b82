"""The shipped dagster.yaml files against the installed Dagster: every key is read, and says what the cases ask for."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.test_utils import freeze_time
from dagster._daemon.monitoring.concurrency import execute_concurrency_slots_iteration

from trajectory_platform.settings import Settings
from trajectory_platform_tests.defs.daemons import REPOSITORY
from trajectory_platform_tests.defs.ticks import Ticks

FILES = ("dagster.yaml", "docker/dagster.yaml")


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((REPOSITORY / name).read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", FILES, ids=["local", "docker"])
def test_every_key_is_known_to_the_installed_version(name: str, tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text((REPOSITORY / name).read_text("utf-8"))
    config, _ = dagster_instance_config(str(tmp_path))
    assert set(_read(name)) <= set(config)


@pytest.mark.parametrize("name", FILES, ids=["local", "docker"])
def test_dead_runs_end_free_their_slots_and_are_tried_once(name: str) -> None:
    """Cases F11 and F16."""
    config = _read(name)
    monitoring = config["run_monitoring"]
    assert monitoring["enabled"] and monitoring["free_slots_after_run_end_seconds"] > 0
    assert monitoring["max_runtime_seconds"] > 0
    assert config["run_retries"] == {"enabled": True, "max_retries": 1, "retry_on_asset_or_op_failure": False}
    assert config["telemetry"] == {"enabled": False}


def test_both_files_differ_only_in_where_things_are_kept() -> None:
    local, docker = _read(FILES[0]), _read(FILES[1])
    assert {key: docker[key] for key in docker if key not in ("storage", "compute_logs")} == local


def test_no_credential_is_written_down() -> None:
    config = _read(FILES[1])
    database = config["storage"]["postgres"]["postgres_db"]
    assert database.pop("scheme") == "postgresql+psycopg2"
    assert all(set(value) == {"env"} for value in database.values())
    assert set(config["compute_logs"]["config"]["bucket"]) == {"env"}


def test_a_slot_of_a_dead_run_is_free_again(tmp_path: Path) -> None:
    """Case F11: a pool of one, its holder killed; the daemon's own function frees the slot after the time set."""
    (tmp_path / "dagster.yaml").write_text((REPOSITORY / FILES[0]).read_text("utf-8"))
    ticks = Ticks(Settings(), "tell", now=datetime.now(UTC))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        ticks.instance = instance
        slots = instance.event_log_storage
        slots.initialize_concurrency_limit_to_default("training")
        run = ticks.has_run("train_as_of", dg.DagsterRunStatus.STARTED, {})
        assert slots.claim_concurrency_slot("training", run, "sft_checkpoint").is_claimed
        stored = instance.get_run_by_id(run)
        assert stored is not None
        instance.report_run_failed(stored, "the run worker ended with code -9")
        other = ticks.has_run("train_as_of", dg.DagsterRunStatus.STARTED, {})
        assert not slots.claim_concurrency_slot("training", other, "sft_checkpoint").is_claimed
        workspace: Any = SimpleNamespace(instance=instance)
        with freeze_time(datetime.now(UTC) + timedelta(minutes=6)):
            list(execute_concurrency_slots_iteration(workspace, logging.getLogger("slots")))
        assert slots.claim_concurrency_slot("training", other, "sft_checkpoint").is_claimed


def test_a_run_whose_code_server_died_is_noticed(tmp_path: Path) -> None:
    """Case F16. A run of this process itself has no server, and is left to its longest time."""
    (tmp_path / "dagster.yaml").write_text((REPOSITORY / FILES[0]).read_text("utf-8"))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        launcher = instance.run_launcher
        assert launcher.supports_check_run_worker_health

        def looks(place: dict[str, Any] | None, count: int = 1) -> list[str]:
            tags = {} if place is None else {GRPC_INFO_TAG: json.dumps({"host": "localhost", **place})}
            run = dg.DagsterRun(job_name="ingest_and_curate", tags=tags)
            return [launcher.check_run_worker_health(run).status.value for _ in range(count)]

        assert looks(None) == ["RUNNING"]
        assert looks({"socket": str(tmp_path / "gone")}) == ["NOT_FOUND"]
        assert looks({"port": 1}, 4) == ["RUNNING", "RUNNING", "NOT_FOUND", "RUNNING"], "at three looks in a row"
