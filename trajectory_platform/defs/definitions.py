"""Everything Dagster sees, in one place.

``dagster dev -w workspace.yaml`` loads ``defs``; tests and the demo call :func:`build_definitions` with
settings of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import dagster as dg

from trajectory_platform.defs import (
    alerts,
    checks,
    day_sensors,
    freshness,
    jobs,
    kubernetes,
    schedules,
    sensors,
)
from trajectory_platform.defs.assets import corpus, training
from trajectory_platform.defs.assets.day_asset import DayAsset, build
from trajectory_platform.defs.partitions import same_day, subnet_days
from trajectory_platform.defs.resources import Platform
from trajectory_platform.defs.schedules import Clock, utc_now
from trajectory_platform.settings import Settings
from trajectory_platform.stages import fetching
from trajectory_platform.stages.plain import DAILY_ASSETS
from trajectory_platform.stages.triggers import follows

_READS_FOLDERS = {"raw_traces", "problem_suites"}


def build_definitions(
    settings: Settings,
    last_day: date | None = None,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
    clock: Clock = utc_now,
) -> dg.Definitions:
    """All assets, checks, jobs, schedules and sensors for one set of settings.

    Args:
        settings: where things are and what was chosen; ``first_day`` starts the partitions.
        last_day: last partition; None means yesterday in UTC, moving with the clock.
        loggers: loggers of the runs in place of Dagster's console logger (the demo shows progress only).
        clock: the time by which sensors and checks decide.
    """
    partitions = subnet_days(settings.first_day, last_day)
    ingest_job, train_job, health_job = jobs.ingest_and_curate(settings), jobs.train_as_of(settings), jobs.health()
    running = follows(settings)
    without_fetching = DAILY_ASSETS if settings.source == "oro_api" else None
    return dg.Definitions(
        assets=[corpus.product_catalogue(), *_day_assets(settings, partitions)],
        asset_checks=_checks(settings, partitions, clock),
        jobs=[ingest_job, train_job, health_job],
        schedules=[
            schedules.daily_ingestion(ingest_job, partitions, settings, running=running),
            schedules.health_checks(health_job, running=running),
        ],
        sensors=[
            sensors.resume_good_days(ingest_job),
            sensors.retrain_newest(train_job, settings, clock=clock),
            day_sensors.new_raw_days(ingest_job, partitions, assets=without_fetching, clock=clock, running=running),
            day_sensors.repoll_open_days(ingest_job, partitions, clock=clock, running=running),
            alerts.tell(settings, clock=clock),
        ],
        resources={
            "platform": Platform(settings_json=settings.model_dump_json()),
            "pipes": dg.PipesSubprocessClient(),
        },
        loggers=loggers,
        executor=dg.in_process_executor,
    )


def _day_assets(settings: Settings, partitions: dg.DailyPartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    followed = settings.source == "oro_api"
    rows = [_after_fetching(row) if followed else row for row in corpus.rows()]
    rows += training.rows(settings.window_days)
    built = [build(row, partitions, _pod(row, settings)) for row in rows]
    if followed:
        from trajectory_platform.defs.assets import fetched

        built = [fetched.fetched_day(partitions, kubernetes.DAILY), *built]
    return [asset.map_asset_specs(_watched) for asset in built] if follows(settings) else built


def _checks(
    settings: Settings, partitions: dg.DailyPartitionsDefinition, clock: Clock
) -> Sequence[dg.AssetChecksDefinition]:
    found = [*checks.build_checks(), *freshness.build(partitions, clock)]
    if settings.source == "oro_api":
        from trajectory_platform.defs.assets import fetched

        found.append(fetched.day_reconciled)
    return found


def _after_fetching(row: DayAsset) -> DayAsset:
    """What reads the folder of a day comes after its fetching; the folders beside it are read as they are then."""
    if not _READS_FOLDERS & set(row.outputs):
        return row
    return replace(row, upstream={**row.upstream, fetching.STAGE: same_day()})


def _pod(row: DayAsset, settings: Settings) -> Mapping[str, Any]:
    if row.pool == training.TRAINING_POOL:
        return kubernetes.training(settings)
    return kubernetes.CLUSTERS if row.group == "splits" else kubernetes.DAILY


def _watched(spec: dg.AssetSpec) -> dg.AssetSpec:
    """The corpus of a platform that follows its source has an age that Dagster shows."""
    if spec.key != dg.AssetKey("axis_a_corpus"):
        return spec
    return spec.replace_attributes(freshness_policy=freshness.FRESHNESS_POLICY)


@dg.definitions
def defs() -> dg.Definitions:
    return build_definitions(Settings())
