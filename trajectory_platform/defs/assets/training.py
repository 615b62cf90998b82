"""The as-of assets: leak clusters, guarded splits, the checkpoints of all stages, their evaluations and lineage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import dagster as dg

from trajectory_platform.defs.assets.day_asset import DayAsset
from trajectory_platform.defs.partitions import everything_up_to, same_day, trailing_window
from trajectory_platform.stages import checkpoints, contamination, evaluations, generated, lineage_counts, splits
from trajectory_platform.stages.checkpoint_figures import mirrored
from trajectory_platform.stages.training_stages import TRAINING, Training, train_stage
from trajectory_platform.training.stage_recipes import STAGES

TRAINING_POOL = "training"  # one at a time per device: `dagster instance concurrency set training 1`


def rows(window_days: int) -> Sequence[DayAsset]:
    """The as-of assets, in the order of the flow."""
    return (*_splits(window_days), *_checkpoints(window_days), *_answers())


def _splits(window_days: int) -> Sequence[DayAsset]:
    return (
        DayAsset(
            stage=splits.leak_clusters,
            outputs={"leak_clusters": "leak_clusters"},
            group="splits",
            kinds=frozenset({"python", "deltalake"}),
            descriptions={
                "leak_clusters": "Every problem ever seen up to the day: which ones are variants of one another "
                "(shared reward product, same query, ...) and the pool their cluster draws."
            },
            upstream={"problem_suites": everything_up_to(), "judged_traces": everything_up_to()},
            days_per_run=None,
        ),
        DayAsset(
            stage=splits.leak_guarded_splits,
            outputs={"leak_guarded_splits": "leak_guarded_splits"},
            group="splits",
            kinds=frozenset({"python", "deltalake"}),
            descriptions={
                "leak_guarded_splits": f"The accepted traces of the last {window_days} days with cluster and pool. "
                "Not published when one cluster, problem or text stands in two pools."
            },
            upstream={
                "leak_clusters": same_day(),
                "axis_a_corpus": trailing_window(window_days),
                "raw_traces": trailing_window(window_days),
                "judged_traces": everything_up_to(),
                "problem_suites": everything_up_to(),
            },
            days_per_run=None,
        ),
    )


def _checkpoints(window_days: int) -> Sequence[DayAsset]:
    """All stages of training in their order: what each generates for itself, its checkpoint, its evaluations."""
    base, *others = evaluations.EVALUATIONS
    measured = {row.stage: row for row in others}
    rows: list[DayAsset] = []
    for row in TRAINING:
        rows += [_generated(row.stage, window_days)] if row.stage in GENERATED else []
        rows.append(_checkpoint(row, window_days))
        if row.stage == "sft":
            rows.append(_action_scores(window_days))
        rows.append(_evaluation(measured[row.stage], window_days))
    return [*rows, _evaluation(base, window_days)]  # of the run's first checkpoint, whichever that is


GENERATED = {"resft": "resft_rollouts", "teacher_sft": "teacher_traces"}
"""Stage -> asset of what is generated for it."""


def _checkpoint(row: Training, window_days: int) -> DayAsset:
    upstream: dict[str, dg.PartitionMapping | None] = {
        "leak_clusters": same_day(),
        "leak_guarded_splits": same_day(),
        "axis_a_corpus": trailing_window(window_days),
        "judged_traces": trailing_window(window_days),  # KTO's verdicts; with the trajectories the unfiltered control
        "trajectories": trailing_window(window_days),
    }
    upstream |= {_asset_of(stage): same_day() for stage in STAGES[: STAGES.index(row.stage)]}
    upstream |= {GENERATED[stage]: same_day() for stage in row.generated}
    if row.attempts:
        upstream |= {"problem_suites": everything_up_to(), "product_catalogue": None}
    return DayAsset(
        stage=mirrored(partial(train_stage, row=row)),
        outputs={row.asset: "checkpoints"},
        group="training",
        kinds=frozenset({"python", "huggingface", "pytorch"}),
        descriptions={row.asset: row.description},
        upstream=upstream,
        days_per_run=None,
        pool=TRAINING_POOL,
        own_process=True,
    )


def _asset_of(stage: str) -> str:
    return f"{stage}_checkpoint"


def _generated(stage: str, window_days: int) -> DayAsset:
    own = stage == "resft"
    upstream: dict[str, dg.PartitionMapping | None] = {
        "leak_clusters": same_day(),
        "problem_suites": everything_up_to(),
        "axis_a_corpus": trailing_window(window_days),
        "product_catalogue": None,
    }
    upstream |= {_asset_of(one): same_day() for one in STAGES[: STAGES.index(stage)]} if own else {}
    return DayAsset(
        stage=generated.resft_rollouts if own else generated.teacher_traces,
        outputs={GENERATED[stage]: "generated_traces"},
        group="training",
        kinds=frozenset({"python", "huggingface", "pytorch"} if own else {"python"}),
        descriptions={
            GENERATED[stage]: "The parent's own attempts at **train** problems in the sandbox: every attempt, and why "
            "it is a training row of re-SFT or not."
            if own
            else "A teacher's attempts at **train** problems in the sandbox: strict successes with grounded reasoning "
            "become training rows. A budget or an outage leaves the day incomplete; the rest is asked next time."
        },
        upstream=upstream,
        days_per_run=None,
        pool=TRAINING_POOL if own else None,
        own_process=own,
    )


def _action_scores(window_days: int) -> DayAsset:
    return DayAsset(
        stage=checkpoints.sft_action_scores,
        outputs={"sft_action_scores": "action_scores"},
        group="evaluation",
        kinds=frozenset({"python", "huggingface", "pytorch"}),
        descriptions={
            "sft_action_scores": "Teacher-forced next action on dev traces: tool name and arguments, per "
            "category, with intervals over leak clusters. Thin and empty days are named as such."
        },
        upstream={
            "sft_checkpoint": same_day(),
            "leak_guarded_splits": same_day(),
            "axis_a_corpus": trailing_window(window_days),
        },
        days_per_run=None,
        pool=TRAINING_POOL,
        own_process=True,
    )


def _answers() -> Sequence[DayAsset]:
    """What is asked about checkpoints afterwards: what fed them, and what they have seen."""
    return (
        DayAsset(
            stage=lineage_counts.checkpoint_lineage,
            outputs={"checkpoint_lineage": "checkpoint_lineage"},
            group="lineage",
            kinds=frozenset({"python", "deltalake"}),
            descriptions={
                "checkpoint_lineage": "Which days, miners, categories, strategies and verdict sources a checkpoint "
                "was made of; the trace list itself is `checkpoint_traces`, re-hashed here."
            },
            upstream={**{_asset_of(stage): same_day() for stage in STAGES}, "axis_a_corpus": everything_up_to()},
            days_per_run=None,
        ),
        DayAsset(
            stage=contamination.contamination,
            outputs={"contamination": "contamination"},
            group="lineage",
            kinds=frozenset({"python", "deltalake"}),
            descriptions={
                "contamination": "What every checkpoint so far has seen of the problems it is measured on, by the "
                "clusters as of the day: a merge, a late reward, a retracted run or a new benchmark flags old ones too."
            },
            upstream={
                "leak_clusters": same_day(),
                **{_asset_of(stage): everything_up_to() for stage in STAGES},
                **{row.asset: same_day() for row in evaluations.EVALUATIONS if not row.untrained},
                **{name: everything_up_to() for name in ("raw_traces", "axis_a_corpus", "judged_traces")},
                "problem_suites": everything_up_to(),
            },
            days_per_run=None,
        ),
    )


def _evaluation(row: evaluations.Evaluation, window_days: int) -> DayAsset:
    """One evaluation by rollouts; every stage of training has one, all publish to ``eval_scores``."""
    checkpoints_of = [_asset_of(stage) for stage in STAGES] if row.untrained else [row.checkpoint_asset]
    return DayAsset(
        stage=mirrored(partial(evaluations.evaluate_stage, row=row)),
        outputs={row.asset: "eval_scores"},
        group="evaluation",
        kinds=frozenset({"python", "huggingface", "pytorch"}),
        descriptions={row.asset: row.description},
        upstream={
            **{asset: same_day() for asset in checkpoints_of},
            "leak_clusters": same_day(),
            "leak_guarded_splits": same_day(),
            "axis_a_corpus": trailing_window(window_days),  # what the process score is measured against
            "problem_suites": everything_up_to(),
            "product_catalogue": None,
        },
        days_per_run=None,
        pool=TRAINING_POOL,
        own_process=True,
    )
