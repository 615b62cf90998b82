"""The as-of assets: leak clusters, guarded splits, the SFT checkpoint, its evaluation and its lineage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from trajectory_platform.defs.assets.day_asset import DayAsset
from trajectory_platform.defs.partitions import everything_up_to, same_day, trailing_window
from trajectory_platform.stages import checkpoints, contamination, evaluations, splits


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
                "problem_suites": everything_up_to(),
            },
            days_per_run=None,
        ),
    )


def _checkpoints(window_days: int) -> Sequence[DayAsset]:
    return (
        DayAsset(
            stage=checkpoints.sft_checkpoint,
            outputs={"sft_checkpoint": "checkpoints"},
            group="training",
            kinds=frozenset({"python", "huggingface", "pytorch"}),
            descriptions={
                "sft_checkpoint": "Qwen3 fine-tuned on the train pool of the window, loss on what the model wrote "
                "only. Runs in its own process (Dagster Pipes). Refuses to start when a dev or sealed cluster is "
                "among its rows."
            },
            upstream={"leak_guarded_splits": same_day(), "axis_a_corpus": trailing_window(window_days)},
            days_per_run=None,
            pool="training",
            own_process=True,
        ),
        DayAsset(
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
            pool="training",
            own_process=True,
        ),
        *(_evaluation(row) for row in evaluations.EVALUATIONS),
    )


def _answers() -> Sequence[DayAsset]:
    """What is asked about checkpoints afterwards: what fed them, and what they have seen."""
    return (
        DayAsset(
            stage=checkpoints.checkpoint_lineage,
            outputs={"checkpoint_lineage": "checkpoint_lineage"},
            group="lineage",
            kinds=frozenset({"python", "deltalake"}),
            descriptions={
                "checkpoint_lineage": "Which days, miners, categories, strategies and verdict sources a checkpoint "
                "was made of; the trace list itself is `checkpoint_traces`, re-hashed here."
            },
            upstream={"sft_checkpoint": same_day()},
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
                "sft_checkpoint": everything_up_to(),
                "sft_eval": same_day(),
                "raw_traces": everything_up_to(),
                "axis_a_corpus": everything_up_to(),
            },
            days_per_run=None,
        ),
    )


def _evaluation(row: evaluations.Evaluation) -> DayAsset:
    """One evaluation by rollouts; every stage of training has one, all publish to ``eval_scores``."""
    return DayAsset(
        stage=partial(evaluations.evaluate_stage, row=row),
        outputs={row.asset: "eval_scores"},
        group="evaluation",
        kinds=frozenset({"python", "huggingface", "pytorch"}),
        descriptions={row.asset: row.description},
        upstream={
            row.checkpoint_asset: same_day(),
            "leak_clusters": same_day(),
            "problem_suites": everything_up_to(),
            "product_catalogue": None,
        },
        days_per_run=None,
        pool="training",
        own_process=True,
    )
