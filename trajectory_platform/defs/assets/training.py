"""The as-of assets: leak clusters, guarded splits, the SFT checkpoint, its evaluation and its lineage."""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

from collections.abc import Iterator, Sequence

import dagster as dg

from trajectory_platform.defs.assets.day_asset import OWNERS, DayAsset
from trajectory_platform.defs.day_runs import materialise_days
from trajectory_platform.defs.partitions import everything_up_to, same_day, trailing_window
from trajectory_platform.defs.pipes import pipes_runner
from trajectory_platform.defs.resources import Platform
from trajectory_platform.stages import checkpoints, splits
from trajectory_platform.stages.context import StageContext, StageResult

_PROCESS_ASSETS = {
    "sft_checkpoint": (
        checkpoints.sft_checkpoint,
        "checkpoints",
        "training",
        frozenset({"python", "huggingface", "pytorch"}),
        "Qwen3 fine-tuned on the train pool of the window, loss on what the model wrote only. Runs in its own "
        "process (Dagster Pipes). Refuses to start when a dev or sealed cluster is among its rows.",
        ("leak_guarded_splits", "axis_a_corpus"),
    ),
    "sft_eval": (
        checkpoints.sft_eval,
        "action_scores",
        "evaluation",
        frozenset({"python", "huggingface", "pytorch"}),
        "Teacher-forced next action on dev traces: tool name and arguments, per category, with intervals over "
        "leak clusters. Thin and empty days are named as such.",
        ("sft_checkpoint", "leak_guarded_splits", "axis_a_corpus"),
    ),
}


def rows(window_days: int) -> Sequence[DayAsset]:
    """The assets that run in the code server's own process."""
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
            upstream={"leak_clusters": same_day(), "axis_a_corpus": trailing_window(window_days)},
            days_per_run=None,
        ),
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
    )


def process_asset(name: str, partitions: dg.DailyPartitionsDefinition, window_days: int) -> dg.AssetsDefinition:
    """An asset whose heavy part runs in a separate process through Dagster Pipes."""
    stage, table, group, kinds, description, upstream = _PROCESS_ASSETS[name]
    deps = [
        dg.AssetDep(other, partition_mapping=trailing_window(window_days) if other == "axis_a_corpus" else same_day())
        for other in upstream
    ]

    @dg.multi_asset(
        name=name,
        specs=[
            dg.AssetSpec(
                name,
                description=description,
                group_name=group,
                kinds=set(kinds),
                owners=OWNERS,
                deps=deps,
                partitions_def=partitions,
            )
        ],
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=1),
        pool="training",
    )
    def run(
        context: dg.AssetExecutionContext, platform: Platform, pipes: dg.PipesSubprocessClient
    ) -> Iterator[dg.MaterializeResult[None]]:
        def with_pipes(ctx: StageContext, day: str) -> StageResult:
            return stage(ctx, day, run=pipes_runner(context, pipes))

        yield from materialise_days(context, platform, with_pipes, {name: table})

    return run
