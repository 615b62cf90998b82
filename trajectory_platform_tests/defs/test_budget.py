"""The time of a long run: parts add up over starts, failures count, checks are one part."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajectory_platform.defs.budget import CHECKS, Budget


def test_parts_add_up_over_starts(tmp_path: Path) -> None:
    path = tmp_path / "budget.json"
    Budget(path).add("base", wall=2.0, cpu=1.0)
    again = Budget(path)
    again.add("base", wall=1.0, cpu=0.5)
    again.add("sft", wall=4.0, cpu=8.0)
    assert Budget(path).parts == {"base": {"wall": 3.0, "cpu": 1.5}, "sft": {"wall": 4.0, "cpu": 8.0}}


def test_a_part_that_fails_is_counted(tmp_path: Path) -> None:
    budget = Budget(tmp_path / "budget.json")
    with pytest.raises(ValueError), budget.part("sft"):
        sum(range(200_000))
        raise ValueError
    assert budget.parts["sft"]["wall"] > 0 and budget.parts["sft"]["cpu"] >= 0


def test_steps_are_measured_and_checks_are_one_part(tmp_path: Path) -> None:
    budget = Budget(tmp_path / "budget.json")
    for name in ("sft_checkpoint", "sft_checkpoint_checkpoint_intact", "leak_guarded_splits_splits_digest"):
        budget.step(name, True)
        budget.step(name, False)
    budget.step("ended without a beginning", False)
    assert list(budget.parts) == ["sft_checkpoint", CHECKS]
