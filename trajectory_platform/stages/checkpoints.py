"""The training stages: an SFT checkpoint as of a day, its teacher-forced scores, and what it was made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import (
    Output,
    Produced,
    StageContext,
    StageResult,
    input_digests,
    run_stage,
)
from trajectory_platform.stages.splits import check_trainable, published_window

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.evaluation.child import Runner
    from trajectory_platform.lake.tables import Table

SFT = {"stage": "sft"}


def sft_checkpoint(ctx: StageContext, day: str, *, run: Runner | None) -> StageResult:
    """Qwen3 on the train pool of the window. A window with too few traces publishes an empty slot that says so.

    Raises:
        FailPartition: a leak between the pools, a damaged row, or a training process that died.
    """
    from trajectory_platform.training import launch
    from trajectory_platform.training.recipe import load_recipe

    recipe = load_recipe(ctx.settings.recipe).resolved(ctx.settings.seed)
    corpus_days = published_window(ctx, tables.AXIS_A_CORPUS, day)
    named = {"leak_guarded_splits": [day], "leak_clusters": [day], "axis_a_corpus": corpus_days}

    _forget_lost(ctx, day)

    def body() -> Produced:
        check_trainable(ctx, day)
        held_out = ctx.lake.read(tables.LEAK_CLUSTERS, [day], columns=["cluster_id", "pool"]).to_pylist()
        result = launch.train_checkpoint(
            day=day,
            splits=ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [day]),
            corpus=_corpus(ctx, corpus_days),
            recipe=recipe,
            seed=ctx.settings.seed,
            inputs=_described_inputs(ctx, named),
            checkpoint_root=ctx.settings.checkpoint_root,
            held_out_clusters=[row["cluster_id"] for row in held_out if row["pool"] != "train"],
            runner=run,
        )
        summary = {
            "checkpoint_id": result.checkpoint_id or "",
            "status": result.status,
            "reason": result.reason or "",
            "traces": result.traces.num_rows,
            **{key: value for key, value in result.metrics.items() if isinstance(value, int | float | str)},
        }
        return Produced(
            [
                beside_others(ctx, tables.CHECKPOINT_TRACES, day, result.checkpoint_id, result.traces),
                beside_others(ctx, tables.CHECKPOINTS, day, result.checkpoint_id, result.checkpoints),
            ],
            summary,
        )

    return run_stage(
        ctx,
        stage="sft_checkpoint",
        day=day,
        code_version=launch.CODE_VERSION,
        tables=(tables.CHECKPOINT_TRACES, tables.CHECKPOINTS),
        inputs=input_digests(ctx, named),
        body=body,
        part=SFT,
        extra_settings={"recipe": recipe.identity()},
    )


def sft_action_scores(ctx: StageContext, day: str, *, run: Runner | None) -> StageResult:
    """Teacher-forced next-action scores of the day's SFT checkpoint on the dev pool."""
    from trajectory_platform.evaluation import actions, launch
    from trajectory_platform.training.checkpoints import verify_checkpoint
    from trajectory_platform.training.recipe import load_recipe

    plan = load_recipe(ctx.settings.recipe).evaluation
    corpus_days = published_window(ctx, tables.AXIS_A_CORPUS, day)

    checkpoint = current_checkpoint(ctx, day)

    def body() -> Produced:
        if checkpoint is None:
            nothing = beside_others(ctx, tables.ACTION_SCORES, day, None, tables.ACTION_SCORES.schema().empty_table())
            return Produced([nothing], {"state": "no_checkpoint", "turns": 0})
        verify_checkpoint(Path(ctx.settings.checkpoint_root) / checkpoint["path"])
        result = launch.evaluate_actions(
            checkpoint=Path(ctx.settings.checkpoint_root) / checkpoint["path"],
            day=day,
            stage="sft",
            splits=ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [day]),
            corpus=_corpus(ctx, corpus_days),
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


def checkpoint_lineage(ctx: StageContext, day: str) -> StageResult:
    """What the day's checkpoint was made of, counted; its trace list is re-hashed against the manifest first.

    Raises:
        FailPartition: when the published trace list is not the one the checkpoint was trained on.
    """
    from trajectory_platform.training.checkpoints import trace_list_digest

    corpus_days = published_window(ctx, tables.AXIS_A_CORPUS, day)

    checkpoint = current_checkpoint(ctx, day)

    def body() -> Produced:
        traced = traced_rows(ctx, day, checkpoint["checkpoint_id"]).to_pylist() if checkpoint else []
        if checkpoint and trace_list_digest([row["trace_id"] for row in traced]) != checkpoint["trace_list_digest"]:
            raise FailPartition(f"{checkpoint['checkpoint_id']}: checkpoint_traces is not the list it was trained on")
        rows = _counted(ctx, corpus_days, traced, day)
        name = checkpoint["checkpoint_id"] if checkpoint else None
        summary = {
            "checkpoint_id": name or "",
            "traces": len(traced),
            "miners": len({row["miner_hotkey"] for row in rows}),
            "strategies": len({row["strategy_cluster"] for row in rows}),
            "trace_days": len({row["trace_day"] for row in rows}),
        }
        return Produced([beside_others(ctx, tables.CHECKPOINT_LINEAGE, day, name, _table(rows))], summary)

    return run_stage(
        ctx,
        stage="checkpoint_lineage",
        day=day,
        code_version="1",
        tables=(tables.CHECKPOINT_LINEAGE,),
        inputs={
            **input_digests(ctx, {"checkpoint_traces": [day]}, SFT),
            **input_digests(ctx, {"axis_a_corpus": corpus_days}),
            "checkpoint": named(checkpoint),
        },
        body=body,
        part=SFT,
    )


def _forget_lost(ctx: StageContext, day: str) -> None:
    """A slot whose checkpoint folder has gone is not current: the weights are what was published."""
    row = current_checkpoint(ctx, day)
    if row is not None and not (Path(ctx.settings.checkpoint_root) / row["path"]).is_dir():
        ctx.lake.invalidate(tables.CHECKPOINTS, day, SFT)


def _corpus(ctx: StageContext, days: list[str]) -> Iterator[pa.RecordBatch]:
    from trajectory_platform.evaluation.texts import COLUMNS

    for day in days:
        yield from ctx.lake.batches(
            tables.AXIS_A_CORPUS, day, columns=list(COLUMNS), batch_rows=ctx.settings.batch_rows
        )


def current_checkpoint(ctx: StageContext, day: str, stage: str = SFT["stage"]) -> dict[str, Any] | None:
    """The row of the checkpoint that the present settings made of a day; None when there is none.

    The slot of a day and stage is a ledger: a checkpoint of another recipe stays in it, with its traces and scores,
    so that what fed it can always be answered. The manifest says which one is the newest.
    """
    manifest = ctx.lake.manifest(tables.CHECKPOINTS, day, {"stage": stage})
    name = manifest.summary.get("checkpoint_id") if manifest else None
    rows = ctx.lake.read(tables.CHECKPOINTS, [day]).to_pylist() if name else []
    return next((row for row in rows if row["checkpoint_id"] == name), None)


def example_trace(ctx: StageContext, day: str) -> str | None:
    """A trace that fed the day's present checkpoint: the first by id, so that it is always the same one."""
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
    present = ctx.lake.read(table, [day], filter=others)
    return Output(table, pa.concat_tables([present, rows.cast(table.schema())]), part=part)


def traced_rows(ctx: StageContext, day: str, name: str) -> pa.Table:
    """The ``checkpoint_traces`` rows of a checkpoint."""
    import pyarrow.compute as pc

    return ctx.lake.read(tables.CHECKPOINT_TRACES, [day], filter=pc.field("checkpoint_id") == name)


def named(checkpoint: dict[str, Any] | None) -> str:
    """What of a checkpoint enters the identity of what is made from it: its id, which digests everything in it."""
    return "none" if checkpoint is None else checkpoint["checkpoint_id"]


def _described_inputs(ctx: StageContext, named: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Input partitions as the checkpoint manifest records them: content digest and table version."""
    described: dict[str, dict[str, Any]] = {}
    for table, days in named.items():
        for day in days:
            manifest = ctx.lake.manifest(table, day)
            if manifest is None:
                raise FailPartition(f"{table}/{day} is not published: run the stages before it first")
            described[f"{table}/{day}"] = {
                "content_digest": manifest.content_digest,
                "table_version": manifest.table_version,
                "rows": manifest.rows,
            }
    return described


def _counted(ctx: StageContext, corpus_days: list[str], traced: list[dict[str, Any]], day: str) -> list[dict[str, Any]]:
    columns = ["trace_id", "day", "miner_hotkey", "category", "strategy_cluster", "judge_kind"]
    corpus = {
        (row["day"], row["trace_id"]): row
        for row in ctx.lake.read(tables.AXIS_A_CORPUS, corpus_days, columns=columns).to_pylist()
    }
    traces: Counter[tuple[str, ...]] = Counter()
    weights: Counter[tuple[str, ...]] = Counter()
    for row in traced:
        source = corpus.get((row["trace_day"], row["trace_id"]))
        if source is None:
            raise FailPartition(f"{row['trace_id']}: trained on, but no longer in the corpus of {row['trace_day']}")
        group = (
            row["checkpoint_id"],
            row["role"],
            row["trace_day"],
            source["miner_hotkey"] or "",
            source["category"] or "",
            source["strategy_cluster"],
            source["judge_kind"] or "",
        )
        traces[group] += 1
        weights[group] += row["weight"]
    names = ("checkpoint_id", "role", "trace_day", "miner_hotkey", "category", "strategy_cluster", "verdict_source")
    return [
        {
            **dict(zip(names, group, strict=True)),
            "day": day,
            "stage": "sft",
            "traces": count,
            "weight": float(weights[group]),
        }
        for group, count in sorted(traces.items())
    ]


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=tables.CHECKPOINT_LINEAGE.schema())
