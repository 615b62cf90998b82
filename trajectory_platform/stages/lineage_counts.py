"""``checkpoint_lineage``: what each of the day's checkpoints was made of, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.lineage import ledger
from trajectory_platform.lineage.retractions import is_in
from trajectory_platform.stages.checkpoints import beside_others, current_checkpoint, named, traced_rows
from trajectory_platform.stages.context import Produced, StageContext, StageResult, input_digests, run_stage
from trajectory_platform.stages.retraction import retracted_among
from trajectory_platform.stages.splits import published_window
from trajectory_platform.training.stage_recipes import STAGES

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
_GROUP = ("checkpoint_id", "role", "trace_day", "miner_hotkey", "category", "strategy_cluster", "verdict_source")
_GENERATED = ("generated", "teacher", "reference")  # roles whose rows may be generated ones
_NOTHING: Row = {"miner_hotkey": "", "category": "", "strategy_cluster": "", "verdict_source": ""}


def checkpoint_lineage(ctx: StageContext, day: str) -> StageResult:
    """What the day's checkpoints were made of; their trace lists are re-hashed against the manifests first.

    Of a generated row the place of the miner is taken by who generated it: a checkpoint or a teacher.

    Raises:
        FailPartition: when a published trace list is not the one the checkpoint was trained on.
    """
    results = {stage: _lineage_of(ctx, day, stage) for stage in STAGES}
    told = {stage: result for stage, result in results.items() if result.summary["checkpoint_id"]}
    last = results[list(told or results)[-1]]
    summary: dict[str, Any] = {**last.summary, "checkpoints": len(told)}
    summary |= {f"traces_{stage}": result.summary["traces"] for stage, result in told.items()}
    skipped = all(result.skipped for result in results.values())
    return StageResult("checkpoint_lineage", day, skipped, last.manifests, summary)


def _lineage_of(ctx: StageContext, day: str, stage: str) -> StageResult:
    from trajectory_platform.training.checkpoints import trace_list_digest

    part = {"stage": stage}
    corpus_days = published_window(ctx, tables.AXIS_A_CORPUS, day)
    checkpoint = current_checkpoint(ctx, day, stage)

    def body() -> Produced:
        traced = traced_rows(ctx, day, checkpoint["checkpoint_id"]).to_pylist() if checkpoint else []
        if checkpoint and trace_list_digest(traced) != checkpoint["trace_list_digest"]:
            raise FailPartition(f"{checkpoint['checkpoint_id']}: checkpoint_traces is not the list it was trained on")
        control = checkpoint is not None and ledger.is_control(checkpoint)
        rows = _counted(traced, _facts(ctx, corpus_days, traced, control), day, stage)
        name = checkpoint["checkpoint_id"] if checkpoint else None
        summary = {
            "checkpoint_id": name or "",
            "traces": len(traced),
            "miners": len({row["miner_hotkey"] for row in rows}),
            "strategies": len({row["strategy_cluster"] for row in rows}),
            "trace_days": len({row["trace_day"] for row in rows}),
        }
        return Produced([beside_others(ctx, tables.CHECKPOINT_LINEAGE, day, name, _table(rows), part)], summary)

    return run_stage(
        ctx,
        stage="checkpoint_lineage",
        day=day,
        code_version="2",
        tables=(tables.CHECKPOINT_LINEAGE,),
        inputs={
            **input_digests(ctx, {"checkpoint_traces": [day]}, part),
            **input_digests(ctx, {"axis_a_corpus": corpus_days}),
            "checkpoint": named(checkpoint),
        },
        body=body,
        part=part,
    )


def _counted(traced: list[Row], facts: Mapping[tuple[str, str], Row], day: str, stage: str) -> list[Row]:
    traces: Counter[tuple[str, ...]] = Counter()
    weights: Counter[tuple[str, ...]] = Counter()
    for row in traced:
        told = row | facts[row["trace_day"], row["trace_id"]]
        group = tuple(told[name] for name in _GROUP)
        traces[group] += 1
        weights[group] += row["weight"]
    return [
        {
            **dict(zip(_GROUP, group, strict=True)),
            "day": day,
            "stage": stage,
            "traces": count,
            "weight": float(weights[group]),
        }
        for group, count in sorted(traces.items())
    ]


def _facts(
    ctx: StageContext, corpus_days: list[str], traced: list[Row], control: bool
) -> Mapping[tuple[str, str], Row]:
    """(day, trace id) -> who acted, category, strategy and verdict source of what was trained on.

    Args:
        control: trajectories that were never accepted may be among them.

    Raises:
        FailPartition: a row of the corpus or of the generated traces that is no longer there and was not retracted.
    """
    columns = ["trace_id", "day", "miner_hotkey", "category", "strategy_cluster", "judge_kind"]
    found = {
        (row["day"], row["trace_id"]): _fact(row, row["miner_hotkey"], row["strategy_cluster"])
        for row in ctx.lake.read(tables.AXIS_A_CORPUS, corpus_days, columns=columns).to_pylist()
    }
    generated = {row["trace_id"] for row in traced if row["role"] in _GENERATED}
    if generated:
        columns = ["trace_id", "day", "source", "category", "strategy_signature", "judge_kind"]
        days = sorted({row["trace_day"] for row in traced if row["role"] in _GENERATED})
        for row in ctx.lake.read(tables.GENERATED_TRACES, days, columns=columns).to_pylist():
            if row["trace_id"] in generated:
                found[row["day"], row["trace_id"]] = _fact(row, row["source"], row["strategy_signature"])
    attempted = partial(_category_of, ctx, {})
    missing = [row for row in traced if (row["trace_day"], row["trace_id"]) not in found]
    streamed = _streamed(ctx, missing) if control else {}
    retracted = retracted_among(ctx, {row["trace_id"] for row in missing if row["role"] != "prompt"})
    listed = _listed(ctx, [row for row in missing if row["trace_id"] in retracted])
    for row in missing:
        key = row["trace_day"], row["trace_id"]
        if row["role"] == "prompt":
            found[key] = _NOTHING | {"category": attempted(row["trace_day"], row["problem_key"])}
        elif key in streamed:
            found[key] = streamed[key]
        elif row["trace_id"] in retracted:
            found[key] = listed.get(key, _NOTHING)
        else:
            raise FailPartition(f"{row['trace_id']}: trained on, but no longer in the corpus of {row['trace_day']}")
    return found


def _fact(row: Row, actor: str | None, strategy: str | None) -> Row:
    return {
        "miner_hotkey": actor or "",
        "category": row["category"] or "",
        "strategy_cluster": strategy or "",
        "verdict_source": row["judge_kind"] or "",
    }


def _listed(ctx: StageContext, rows: list[Row]) -> dict[tuple[str, str], Row]:
    """What the listings still say of traces that were retracted and are gone: who acted, on what."""
    if not rows:
        return {}
    columns = ["trace_id", "day", "miner_hotkey", "category"]
    found = ctx.lake.read(
        tables.RAW_TRACES,
        sorted({row["trace_day"] for row in rows}),
        columns=columns,
        filter=is_in("trace_id", {row["trace_id"] for row in rows}),
    )
    return {
        (row["day"], row["trace_id"]): _fact({**row, "judge_kind": ""}, row["miner_hotkey"], "")
        for row in found.to_pylist()
    }


def _category_of(ctx: StageContext, known: dict[str, dict[str, str]], day: str, key: str) -> str:
    if day not in known:
        rows = ctx.lake.read(tables.LEAK_CLUSTERS, [day], columns=["problem_key", "category"]).to_pylist()
        known[day] = {row["problem_key"]: row["category"] for row in rows}
    return known[day].get(key, "")


def _streamed(ctx: StageContext, rows: list[Row]) -> dict[tuple[str, str], Row]:
    """Facts of trajectories that were trained on without being accepted: the control's."""
    wanted = {(row["trace_day"], row["trace_id"]) for row in rows if row["role"] != "prompt"}
    if not wanted:
        return {}
    columns = ["trace_id", "day", "miner_hotkey", "category"]
    listed = ctx.lake.read(tables.TRAJECTORIES, sorted({day for day, _ in wanted}), columns=columns).to_pylist()
    return {
        (row["day"], row["trace_id"]): _fact({**row, "judge_kind": ""}, row["miner_hotkey"], "")
        for row in listed
        if (row["day"], row["trace_id"]) in wanted
    }


def _table(rows: list[Row]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=tables.CHECKPOINT_LINEAGE.schema())
