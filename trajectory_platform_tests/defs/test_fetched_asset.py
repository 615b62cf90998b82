"""The asset that fetches a day, and the check that compares it with what the subnet counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

pytest.importorskip("oro_sdk", reason="the local server answers with oro-sdk's models")

from trajectory_platform.arena.oro_server import LocalServer, ServerClock
from trajectory_platform.arena.oro_server_faults import Script, script_of
from trajectory_platform.arena.simulate import simulate
from trajectory_platform.defs.assets import fetched
from trajectory_platform.defs.partitions import subnet_days
from trajectory_platform.defs.resources import Platform
from trajectory_platform.settings import Settings
from trajectory_platform.sources.files import FileSource

FIRST = date(2026, 5, 2)
DAY, NEXT = "2026-05-02", "2026-05-03"


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("asset_history")
    simulate(root, days=2, traces_per_day=40, first_day=FIRST, seed=6)
    return root


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as one:
        yield one


def serving(days: Path, script: Script | None = None) -> LocalServer:
    return LocalServer(
        days, clock=ServerClock(datetime(2026, 5, 20, tzinfo=UTC)), script=script, requests_per_minute=6000
    )


def materialise(server: LocalServer, root: Path, instance: dg.DagsterInstance, **run: Any) -> dg.ExecuteInProcessResult:
    settings = Settings(
        source="oro_api",
        api_base=server.url,
        api_state=str(root / "state"),
        api_artifact_hosts=("127.0.0.1",),
        api_requests_per_minute=6000,
        data_root=str(root / "raw"),
        lake_uri=str(root / "lake"),
        first_day=FIRST,
    )
    defs = dg.Definitions(
        assets=[fetched.fetched_day(subnet_days(FIRST, date(2026, 5, 4)))],
        asset_checks=[fetched.day_reconciled],
        resources={"platform": Platform(settings_json=settings.model_dump_json())},
        executor=dg.in_process_executor,
    )
    return defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance, raise_on_error=False, **run
    )


def test_a_day_is_fetched_and_reconciled(days: Path, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    with serving(days) as server:
        result = materialise(server, tmp_path, instance, partition_key=DAY)
    assert result.success
    (event,) = instance.fetch_materializations(dg.AssetKey("fetched_day"), limit=5).records
    metadata = event.asset_materialization.metadata
    assert event.partition_key == DAY
    assert metadata["state"].value.startswith("final") and metadata["reconciliation"].value == "match"
    assert metadata["fetched"].value == len(
        FileSource(str(tmp_path / "raw")).open_day(date.fromisoformat(DAY)).artifacts
    )
    (check,) = result.get_asset_check_evaluations()
    assert check.passed and check.metadata[DAY].value["expected"] > 0


def test_several_days_in_one_run(days: Path, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    tags = {"dagster/asset_partition_range_start": DAY, "dagster/asset_partition_range_end": NEXT}
    with serving(days) as server:
        result = materialise(server, tmp_path, instance, tags=tags)
    assert result.success
    assert instance.get_materialized_partitions(dg.AssetKey("fetched_day")) == {DAY, NEXT}
    (check,) = result.get_asset_check_evaluations()
    assert check.passed and set(check.metadata) == {DAY, NEXT}


def test_a_cold_cache_is_a_warning(days: Path, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    with serving(days, script_of({"rules": [{"fault": "cold_history", "times": None}]})) as server:
        result = materialise(server, tmp_path, instance, partition_key=DAY)
    assert result.success
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed and check.severity is dg.AssetCheckSeverity.WARN
    assert "not known yet" in (check.description or "")


def test_a_day_that_cannot_be_listed_fails_and_the_good_one_is_recorded(
    days: Path, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trajectory_platform.errors import RetryLater
    from trajectory_platform.stages import fetching

    whole = fetching.fetch

    def half(ctx: Any, day: str, **options: Any) -> Any:
        if day == NEXT:
            raise RetryLater("api_unavailable", "no answer")
        return whole(ctx, day, **options)

    monkeypatch.setattr(fetching, "fetch", half)
    tags = {"dagster/asset_partition_range_start": DAY, "dagster/asset_partition_range_end": NEXT}
    with serving(days) as server:
        result = materialise(server, tmp_path, instance, tags=tags)
    assert not result.success
    assert instance.get_materialized_partitions(dg.AssetKey("fetched_day")) == {DAY}
