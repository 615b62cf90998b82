"""Two trainings of one day and stage end at once: the ledger of that slot loses neither."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.checkpoints import beside_others
from trajectory_platform.stages.context import Output, Produced, StageContext, run_stage
from trajectory_platform_tests.stages.built_lake import row

DAY, PART = "2026-05-02", {"stage": "sft"}


def counted(name: str) -> pa.Table:
    """One row of a checkpoint in ``checkpoint_lineage``."""
    told = row(tables.CHECKPOINT_LINEAGE, checkpoint_id=name, day=DAY, stage="sft", role="train", traces=1, weight=1.0)
    return pa.Table.from_pylist([told], schema=tables.CHECKPOINT_LINEAGE.schema())


def publish(ctx: StageContext, name: str, output: Output) -> None:
    run_stage(
        ctx,
        stage="checkpoint_lineage",
        day=DAY,
        code_version=name,
        tables=[tables.CHECKPOINT_LINEAGE],
        inputs={},
        body=lambda: Produced([output], {}),
        part=PART,
    )


def test_what_another_process_added_meanwhile_is_never_overwritten(tmp_path: Path) -> None:
    ctx = StageContext(Settings(lake_uri=str(tmp_path / "lake"), data_root=str(tmp_path / "days")))
    first = beside_others(ctx, tables.CHECKPOINT_LINEAGE, DAY, "sft-a", counted("sft-a"), PART)
    second = beside_others(ctx, tables.CHECKPOINT_LINEAGE, DAY, "sft-b", counted("sft-b"), PART)
    publish(ctx, "sft-a", first)
    with pytest.raises(FailPartition, match="meanwhile"):
        publish(ctx, "sft-b", second)

    again = beside_others(ctx, tables.CHECKPOINT_LINEAGE, DAY, "sft-b", counted("sft-b"), PART)
    publish(ctx, "sft-b", again)
    held = ctx.lake.read(tables.CHECKPOINT_LINEAGE, [DAY]).column("checkpoint_id").to_pylist()
    assert held == ["sft-a", "sft-b"]
