"""Schedules and sensors evaluated as the daemon does it, with a clock that a test sets; runs are made by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph_subset import AssetGraphSubset
from dagster._core.definitions.selector import (
    PartitionRangeSelector,
    PartitionsByAssetSelector,
    PartitionsSelector,
)
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemotePartitionSetOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.defs.resources import Platform
from trajectory_platform.settings import Settings


class Ticks:
    """One sensor or schedule of the definitions: its cursor is what it returned last."""

    def __init__(
        self, settings: Settings, name: str, *, now: datetime, last_day: date | None = None, home: Path | None = None
    ) -> None:
        self.now = now
        self._defs = build_definitions(settings, last_day, clock=lambda: self.now)
        self._settings = settings.model_dump_json()
        self._name = name
        self.instance = dg.DagsterInstance.local_temp(str(home)) if home else dg.DagsterInstance.ephemeral()
        self.cursor: str | None = None

    def tick(self) -> Any:
        """Evaluate the sensor; the cursor is kept."""
        repository = self._defs.get_repository_def()
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            repository_def=repository,
            resources={"platform": Platform(settings_json=self._settings)},
        ) as context:
            data = repository.get_sensor_def(self._name).evaluate_tick(context)
        self.cursor = data.cursor or self.cursor
        return data

    def scheduled(self, at: datetime) -> Any:
        """Evaluate the schedule for a tick that was due at ``at``."""
        repository = self._defs.get_repository_def()
        with dg.build_schedule_context(
            instance=self.instance,
            scheduled_execution_time=at,
            repository_def=repository,
            resources={"platform": Platform(settings_json=self._settings)},
        ) as context:
            return repository.get_schedule_def(self._name).evaluate_tick(context)

    def runs(self, request: dg.RunRequest, job: str, status: dg.DagsterRunStatus) -> str:
        """What the daemon makes of a request, as if it had come so far; the id of the run."""
        tags: dict[str, str] = {**request.tags, "dagster/run_key": request.run_key or ""}
        return self.has_run(job, status, tags)

    def has_run(self, job: str, status: dg.DagsterRunStatus, tags: Mapping[str, str]) -> str:
        """A run in the storage, without executing anything."""
        run = dg.DagsterRun(job_name=job, run_id=str(uuid4()), status=status, tags=tags, remote_job_origin=_origin(job))
        self.instance.add_run(run)
        return run.run_id

    def has_backfill(
        self, assets: Sequence[str], first: str, last: str, *, made: Collection[str] = (), failed: Collection[str] = ()
    ) -> PartitionBackfill:
        """A backfill in progress in the storage, that made some of its days and gave up others."""
        graph = self._defs.resolve_asset_graph()
        days = PartitionsSelector(ranges=[PartitionRangeSelector(start=first, end=last)])
        chosen = [PartitionsByAssetSelector(asset_key=dg.AssetKey(name), partitions=days) for name in assets]
        launched = PartitionBackfill.from_partitions_by_assets(
            backfill_id=f"backfill{len(self.instance.get_backfills())}",
            asset_graph=graph,
            backfill_timestamp=self.now.timestamp(),
            tags={},
            dynamic_partitions_store=self.instance,
            partitions_by_assets=chosen,
            title=None,
            description=None,
            run_config=None,
        )
        begun = launched.get_asset_backfill_data(graph)
        parts = list(begun.target_subset.iterate_asset_partitions())

        def of(days: Collection[str]) -> AssetGraphSubset:
            return AssetGraphSubset.from_asset_partition_set({one for one in parts if one.partition_key in days}, graph)

        data = begun._replace(materialized_subset=of(made), failed_and_downstream_subset=of(failed))
        backfill = launched._replace(asset_backfill_data=data)
        self.instance.add_backfill(backfill)
        return backfill

    def ends(self, run_id: str, status: dg.DagsterRunStatus) -> None:
        """Let a run end."""
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        self.instance.delete_run(run_id)
        self.instance.add_run(run._replace(status=status))


def utc(text: str) -> datetime:
    """An aware UTC time from ``YYYY-MM-DDTHH:MM``."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def job_backfill(instance: dg.DagsterInstance, job: str, days: Sequence[str], submitted: str) -> None:
    """A backfill in progress of a job's partitions, whose runs are submitted in batches."""
    origin = RemotePartitionSetOrigin(repository_origin=_repository(), partition_set_name=f"{job}_partition_set")
    backfill = PartitionBackfill(
        "of_the_job", BulkActionStatus.REQUESTED, False, {}, 0.0, partition_set_origin=origin, partition_names=days,
        last_submitted_partition_name=submitted,
    )  # fmt: skip
    instance.add_backfill(backfill)


def _origin(job: str) -> RemoteJobOrigin:
    """A queued run names the code location it comes from."""
    return _repository().get_job_origin(job)


def _repository() -> RemoteRepositoryOrigin:
    location = ManagedGrpcPythonEnvCodeLocationOrigin(
        loadable_target_origin=LoadableTargetOrigin(module_name="nowhere"), location_name="nowhere"
    )
    return RemoteRepositoryOrigin(location, "__repository__")
