"""What a day has of checkpoints: the present one of each stage, what it was fed, and its teacher-forced scores.

The slot of a day and stage is a ledger: a checkpoint of another recipe stays in it, with its traces and scores, so that
what fed it can always be answered. The manifest says which one is the present one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.lake.manifests import slot
from trajectory_platform.lineage import ledger
from trajectory_platform.stages.context import (
    Output,
    Produced,
    StageContext,
    StageResult,
    input_digests,
    run_stage,
)
from trajectory_platform.stages.splits import published_window
from trajectory_platform.training.stage_recipes import BASE, STAGES

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.evaluation.child import Runner
    from trajectory_platform.lake.tables import Table
    from trajectory_platform.training.recipe import Recipe

SFT = {"stage": "sft"}
NO_PARENT, NOT_IN_RECIPE = "no_parent", "not_in_recipe"  # why a slot is empty


def sft_action_scores(ctx: StageContext, day: str, *, run: Runner | None) -> StageResult:
    """Teacher-forced next-action scores of the day's SFT checkpoint on the dev pool."""
    from trajectory_platform.evaluation import actions, launch
    from trajectory_platform.training.recipe import load_recipe

    plan = load_recipe(ctx.settings.recipe).evaluation
    corpus_days = published_window(ctx, tables.AXIS_A_CORPUS, day)

    checkpoint = current_checkpoint(ctx, day)

    def body() -> Produced:
        if checkpoint is None:
            nothing = beside_others(ctx, tables.ACTION_SCORES, day, None, tables.ACTION_SCORES.schema().empty_table())
            return Produced([nothing], {"state": "no_checkpoint", "turns": 0})
        verify(ctx, checkpoint)
        result = launch.evaluate_actions(
            checkpoint=folder_of(ctx, checkpoint),
            day=day,
            stage="sft",
            splits=ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [day]),
            corpus=corpus_batches(ctx, corpus_days),
            trained=traced_rows(ctx, day, checkpoint["checkpoint_id"]),
            plan=plan,
            runner=run,
        )
        overall = result.metrics["categories"][0]
        summary = {
            "state": result.metrics["state"],
            "turns": overall["turns"],
            "clusters": overall["clusters"],
            **(
                {f"{name}_accuracy": overall[name]["share"] for name in ("tool", "arguments")}
                if overall["turns"]
                else {}
            ),
            **{key: value for key, value in result.counts.items() if isinstance(value, int)},
        }
        scores = beside_others(ctx, tables.ACTION_SCORES, day, checkpoint["checkpoint_id"], result.scores)
        return Produced([scores], summary)

    return run_stage(
        ctx,
        stage="sft_action_scores",
        day=day,
        code_version=actions.VERSION,
        tables=(tables.ACTION_SCORES,),
        inputs={
            **input_digests(ctx, {"leak_guarded_splits": [day], "axis_a_corpus": corpus_days}),
            "checkpoint": named(checkpoint),
        },
        body=body,
        part=SFT,
        extra_settings={"plan": plan.of_actions()},
    )


def forget_lost(ctx: StageContext, day: str, stage: str) -> None:
    """A slot whose checkpoint folder has gone is not current: the weights are what was published."""
    row = current_checkpoint(ctx, day, stage)
    if row is not None and not folder_of(ctx, row).is_dir():
        ctx.lake.invalidate(tables.CHECKPOINTS, day, {"stage": stage})


def folder_of(ctx: StageContext, checkpoint: Mapping[str, Any]) -> Path:
    """Where a checkpoint lies."""
    return Path(ctx.settings.checkpoint_root) / str(checkpoint["path"])


def verify(ctx: StageContext, checkpoint: Mapping[str, Any]) -> None:
    """A checkpoint is whole and unchanged; raises ``FailPartition`` that says what differs and what to do."""
    from trajectory_platform.training.checkpoints import verify_checkpoint

    try:
        verify_checkpoint(folder_of(ctx, checkpoint))
    except FailPartition as error:
        raise FailPartition(f"{error}; remove its folder and train again: it is made anew of the same rows") from error


def corpus_batches(
    ctx: StageContext, days: Sequence[str], table: Table = tables.AXIS_A_CORPUS
) -> Iterator[pa.RecordBatch]:
    """The texts of several days as they are read."""
    from trajectory_platform.evaluation.texts import COLUMNS

    for day in days:
        yield from ctx.lake.batches(table, day, columns=list(COLUMNS), batch_rows=ctx.settings.batch_rows)


def current_checkpoint(ctx: StageContext, day: str, stage: str = SFT["stage"]) -> dict[str, Any] | None:
    """The row of the checkpoint that the newest run of a stage made of a day; None when it made none."""
    manifest = ctx.lake.manifest(tables.CHECKPOINTS, day, {"stage": stage})
    name = manifest.summary.get("checkpoint_id") if manifest else None
    rows = ctx.lake.read(tables.CHECKPOINTS, [day]).to_pylist() if name else []
    return next((row for row in rows if row["checkpoint_id"] == name), None)


def first_checkpoint(ctx: StageContext, day: str) -> dict[str, Any] | None:
    """The day's present checkpoint of the earliest stage that has one: nearest to the untrained model."""
    found = (current_checkpoint(ctx, day, stage) for stage in STAGES)
    return next((row for row in found if row is not None), None)


def last_checkpoint(ctx: StageContext, day: str) -> dict[str, Any] | None:
    """The day's present checkpoint of the latest stage that has one: what a run ends with."""
    found = (current_checkpoint(ctx, day, stage) for stage in reversed(STAGES))
    return next((row for row in found if row is not None), None)


def parent_of(ctx: StageContext, day: str, recipe: Recipe, stage: str) -> tuple[dict[str, Any] | None, str | None]:
    """(row of the checkpoint to start from, None); (None, None) to start from the base model; (None, why) without one.

    A stage that the recipe gives no parent starts from the nearest earlier one that was trained: one that was left out
    (too few rows, nothing generated) is passed over, one that was never run is not.
    """
    own = recipe.stage(stage).parent
    if own == BASE:
        return None, None
    if own is not None:
        row = current_checkpoint(ctx, day, own)
        return row, None if row is not None else NO_PARENT
    names = recipe.names()
    earlier = names[: names.index(stage)]
    for name in reversed(earlier):
        if ctx.lake.manifest(tables.CHECKPOINTS, day, {"stage": name}) is None:
            return None, NO_PARENT
        row = current_checkpoint(ctx, day, name)
        if row is not None:
            return row, None
    return None, NO_PARENT if earlier else None


def example_trace(ctx: StageContext, day: str) -> str | None:
    """A trace that fed the day's present SFT checkpoint: the first by id, so that it is always the same one."""
    checkpoint = current_checkpoint(ctx, day)
    if checkpoint is None:
        return None
    return min(traced_rows(ctx, day, checkpoint["checkpoint_id"]).column("trace_id").to_pylist(), default=None)


def beside_others(
    ctx: StageContext, table: Table, day: str, name: str | None, rows: pa.Table, part: dict[str, str] = SFT
) -> Output:
    """The rows of one checkpoint beside those of the other checkpoints of the same day and stage."""
    import pyarrow as pa
    import pyarrow.compute as pc

    others = pc.field("stage") == part["stage"]
    if name is not None:
        others &= pc.field("checkpoint_id") != name
    onto = ctx.lake.state(slot(table, day, part))
    present = ctx.lake.read(table, [day], filter=others)
    return Output(table, pa.concat_tables([present, rows.cast(table.schema())]), part=part, onto=onto)


def traced_rows(ctx: StageContext, day: str, name: str) -> pa.Table:
    """The ``checkpoint_traces`` rows of a checkpoint itself."""
    import pyarrow.compute as pc

    return ctx.lake.read(tables.CHECKPOINT_TRACES, [day], filter=pc.field("checkpoint_id") == name)


def seen_rows(ctx: StageContext, name: str) -> list[dict[str, Any]]:
    """The ``checkpoint_traces`` rows of a checkpoint and of all its ancestors: it has seen what they saw."""
    return ledger.seen_rows(ctx.lake, [name])[name]


def named(checkpoint: Mapping[str, Any] | None) -> str:
    """What of a checkpoint enters the identity of what is made from it: its id, which digests everything in it."""
    return "none" if checkpoint is None else str(checkpoint["checkpoint_id"])


def described_inputs(ctx: StageContext, named: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Input partitions as a checkpoint's manifest records them: content digest, table version and rows.

    Raises:
        FailPartition: one of them is not published.
    """
    described: dict[str, dict[str, Any]] = {}
    for table, days in named.items():
        found = {one.day: one for one in ctx.lake.manifests(table, days)}
        for day in days:
            if day not in found:
                raise FailPartition(f"{table}/{day} is not published: run the stages before it first")
            described[f"{table}/{day}"] = {
                "content_digest": found[day].content_digest,
                "table_version": found[day].table_version,
                "rows": found[day].rows,
            }
    return described
