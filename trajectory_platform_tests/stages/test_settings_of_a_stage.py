"""Exactly the settings that a stage reads enter its identity: no stage reads one that could change behind its back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.settings import STAGE_SETTINGS, Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.plain import DAILY_STAGES, training_flow
from trajectory_platform.stages.training_stages import TRAINING
from trajectory_platform_tests.stages.arena_days import make_days, settings_for

DAY = "2026-05-02"
# Where things are, and what never changes a result (tests of its own hold that).
PLACES = {"data_root", "lake_uri", "lake_local", "checkpoint_root", "index_root", "batch_rows", "workers"}
# Read to find the input partitions, which enter the identity themselves; recipe and filter enter resolved.
BY_INPUTS = {"window_days", "recipe", "filter"}
STAGES = (*DAILY_STAGES, *training_flow(TRAINING[-1].stage))
EVERY_STAGE = "stages: {sft: {}, resft: {}, teacher_sft: {}, kto: {}, dr_grpo: {}}\n"
FILTER = {"filter", "judge", "reasoning_gate", "axis_a_min_share", "axis_b_max_share"}


class Recorded:
    """Settings that note which of their fields were read."""

    def __init__(self, settings: Settings) -> None:
        self.read: set[str] = set()
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        if name in Settings.model_fields:
            self.read.add(name)
        return getattr(self._settings, name)


def test_each_stage_reads_what_its_identity_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trajectory_platform.evaluation import child

    monkeypatch.setattr(child, "plain_runner", lambda *_: pytest.fail("too few traces: nothing is to be trained"))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("min_traces: 1000\n" + EVERY_STAGE)
    days = make_days(tmp_path / "days", days=1)
    settings = settings_for(days, tmp_path / "lake", recipe=str(recipe))
    for name, stage in STAGES:
        recorded = Recorded(settings)
        ctx = StageContext(recorded)  # type: ignore[arg-type]
        assert not stage(ctx, DAY).skipped
        # of the filter the splits use one resolved number, which is in their identity as such
        own = {"leak_guarded_splits": FILTER}.get(name, BY_INPUTS)
        found = recorded.read - PLACES - own
        assert found == set(STAGE_SETTINGS[name]), name
    assert set(STAGE_SETTINGS) == {name for name, _ in STAGES}


def test_home_is_expanded_in_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRAJECTORY_PLATFORM_LAKE_URI", "~/lake")
    assert Settings().lake_uri == str(tmp_path / "lake")
