"""A checkpoint is trained on splits of the present clusters only, and is not current when its weights are gone."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.settings import HoldOut, Settings
from trajectory_platform.stages import splits
from trajectory_platform.stages.context import StageContext, StageResult
from trajectory_platform.stages.training_stages import train_stage, training_of
from trajectory_platform.training import launch
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, settings_for, split

DAY = DAYS[1]


def train_sft(ctx: StageContext) -> StageResult:
    return train_stage(ctx, DAY, row=training_of("sft"), run=None)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = settings_for(make_days(tmp_path / "days", days=2), tmp_path / "lake")
    ingest(settings, DAYS[:2])
    split(settings, DAY)
    return settings


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Training that writes an empty folder; the list of days it was asked for."""
    asked: list[str] = []

    def train(*, day: str, checkpoint_root: str, **_: Any) -> launch.CheckpointResult:
        asked.append(day)
        name = f"sft-{day}-{'a' * 12}"
        (Path(checkpoint_root) / name).mkdir(parents=True, exist_ok=True)
        row = {"checkpoint_id": name, "day": day, "stage": "sft", "parent": None, "path": name, "manifest": "{}"}
        row |= {"trace_list_digest": "d", "traces": 0}
        table = pa.Table.from_pylist([row], schema=tables.CHECKPOINTS.schema())
        none = tables.CHECKPOINT_TRACES.schema().empty_table()
        return launch.CheckpointResult(name, "trained", None, None, None, table, none, {})

    monkeypatch.setattr(launch, "train_checkpoint", train)
    return asked


def test_splits_of_older_clusters_are_refused(settings: Settings, trained: list[str]) -> None:
    """A hold-out added since, or a merge that renamed the cluster: the rows still say train."""
    rows = StageContext(settings).lake.read(tables.LEAK_GUARDED_SPLITS, [DAY]).to_pylist()
    key = next(row["problem_key"] for row in rows if row["pool"] == "train")
    held = settings.model_copy(update={"hold_outs": (HoldOut(since=date(2026, 5, 1), problem_key=key),)})
    ctx = StageContext(held)
    splits.leak_clusters(ctx, DAY)
    with pytest.raises(FailPartition, match="older than its leak clusters"):
        train_sft(ctx)
    assert trained == []
    splits.leak_guarded_splits(ctx, DAY)
    assert not train_sft(ctx).skipped


def test_a_deleted_guard_blocks_training(settings: Settings, trained: list[str]) -> None:
    ctx = StageContext(settings)
    ctx.lake.invalidate(tables.LEAK_GUARDED_SPLITS, DAY)
    with pytest.raises(FailPartition):
        train_sft(ctx)
    assert trained == []


def test_lost_weights_are_trained_again(settings: Settings, trained: list[str]) -> None:
    ctx = StageContext(settings)
    assert not train_sft(ctx).skipped
    assert train_sft(ctx).skipped
    shutil.rmtree(settings.checkpoint_root)
    assert not train_sft(ctx).skipped
    assert trained == [DAY, DAY]
