"""The two jobs: one per day and backfillable, one as of a day."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from trajectory_platform.stages.plain import training_flow
from trajectory_platform.training.stage_recipes import STAGES

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

DAILY_ASSETS = (
    "raw_traces",
    "problem_suites",
    "trajectories",
    "judged_traces",
    "axis_a_corpus",
    "rejected_traces",
)
TRAIN_ASSETS = tuple(name for name, _ in training_flow(STAGES[-1]))
"""In the order of the flow; the recipe of the settings says which stages are trained."""


def ingest_and_curate() -> UnresolvedAssetJobDefinition:
    """Raw day to axis-A corpus; several days per run in a backfill."""
    return dg.define_asset_job(
        "ingest_and_curate",
        selection=list(DAILY_ASSETS),
        description="One subnet day: raw artifacts -> canonical messages -> verdicts -> axis-A corpus.",
    )


def train_as_of() -> UnresolvedAssetJobDefinition:
    """Clusters, splits, the checkpoints of all stages with their evaluations, and lineage as of one day."""
    return dg.define_asset_job(
        "train_as_of",
        selection=list(TRAIN_ASSETS),
        description="As of one day: leak clusters -> guarded splits -> SFT, re-SFT, teacher SFT, KTO, Dr. GRPO, each "
        "with its evaluation -> lineage.",
    )
