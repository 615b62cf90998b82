"""Everything Dagster sees, in one place.

``dagster dev -w workspace.yaml`` loads ``defs``; tests and the demo call :func:`build_definitions` with
settings of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import dagster as dg

from trajectory_platform.defs import checks, jobs, sensors
from trajectory_platform.defs.assets import corpus, training
from trajectory_platform.defs.assets.day_asset import build
from trajectory_platform.defs.partitions import subnet_days
from trajectory_platform.defs.resources import Platform
from trajectory_platform.settings import Settings


def build_definitions(
    settings: Settings, last_day: date | None = None, loggers: Mapping[str, dg.LoggerDefinition] | None = None
) -> dg.Definitions:
    """All assets, checks, jobs and sensors for one set of settings.

    Args:
        settings: where things are and what was chosen; ``first_day`` starts the partitions.
        last_day: last partition; None means yesterday in UTC, moving with the clock.
        loggers: loggers of the runs in place of Dagster's console logger (the demo shows progress only).
    """
    partitions = subnet_days(settings.first_day, last_day)
    ingest_job, train_job = jobs.ingest_and_curate(), jobs.train_as_of()
    return dg.Definitions(
        assets=[
            corpus.product_catalogue,
            *(build(row, partitions) for row in corpus.rows()),
            *(build(row, partitions) for row in training.rows(settings.window_days)),
        ],
        asset_checks=checks.build_checks(),
        jobs=[ingest_job, train_job],
        sensors=[sensors.resume_good_days(ingest_job), sensors.retrain_without_withdrawn(train_job)],
        resources={
            "platform": Platform(settings_json=settings.model_dump_json()),
            "pipes": dg.PipesSubprocessClient(),
        },
        loggers=loggers,
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    return build_definitions(Settings())
