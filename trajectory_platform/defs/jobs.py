"""The jobs: one per day and backfillable, one as of a day, one that only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from trajectory_platform.defs import kubernetes
from trajectory_platform.defs.freshness import HEALTH_CHECKS
from trajectory_platform.settings import Settings
from trajectory_platform.stages.plain import daily_assets, training_flow
from trajectory_platform.training.stage_recipes import STAGES

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

MAX_RUNTIME = "dagster/max_runtime"  # seconds; a run that takes longer is ended and tried again once (cases F16)
_HOUR = 3600
INGEST_HOURS, TRAIN_HOURS, HEALTH_HOURS = 6, 72, 1

TRAIN_ASSETS = tuple(name for name, _ in training_flow(STAGES[-1]))
"""In the order of the flow; the recipe of the settings says which stages are trained."""


def ingest_and_curate(settings: Settings) -> UnresolvedAssetJobDefinition:
    """Raw day to axis-A corpus; several days per run in a backfill. What only ``health`` asks is left out."""
    asked = [dg.AssetCheckKey(dg.AssetKey(asset), name) for name, asset in HEALTH_CHECKS.items()]
    return dg.define_asset_job(
        "ingest_and_curate",
        selection=dg.AssetSelection.assets(*daily_assets(settings)) - dg.AssetSelection.checks(*asked),
        description="One subnet day: raw artifacts -> canonical messages -> verdicts -> axis-A corpus.",
        tags={**kubernetes.DAILY, MAX_RUNTIME: str(INGEST_HOURS * _HOUR)},
    )


def train_as_of(settings: Settings) -> UnresolvedAssetJobDefinition:
    """Clusters, splits, the checkpoints of all stages with their evaluations, and lineage as of one day."""
    return dg.define_asset_job(
        "train_as_of",
        selection=list(TRAIN_ASSETS),
        description="As of one day: leak clusters -> guarded splits -> SFT, re-SFT, teacher SFT, KTO, Dr. GRPO, each "
        "with its evaluation -> lineage.",
        tags={**kubernetes.training(settings), MAX_RUNTIME: str(TRAIN_HOURS * _HOUR)},
    )


def health() -> UnresolvedAssetJobDefinition:
    """The checks of age, reconciliation and queue, without running anything else."""
    asked = [dg.AssetCheckKey(dg.AssetKey(asset), name) for name, asset in HEALTH_CHECKS.items()]
    return dg.define_asset_job(
        "health",
        selection=dg.AssetSelection.checks(*asked),
        description="Is the newest day there, does the lake hold what the source lists, does the queue move?",
        tags={**kubernetes.DAILY, MAX_RUNTIME: str(HEALTH_HOURS * _HOUR)},
    )
