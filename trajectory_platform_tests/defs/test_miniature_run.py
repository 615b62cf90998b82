"""The miniature in tiny amounts: the whole flow, a second start that does nothing again, and the control beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trajectory_platform.commands.miniature import app
from trajectory_platform.lake.ledger import read_ledger
from trajectory_platform.miniature.plan import plan_of, settings_of
from trajectory_platform.stages.context import StageContext


def start(out: Path, *options: str) -> str:
    result = CliRunner().invoke(app, ["--small", "--out", str(out), *options])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
@pytest.mark.timeout(1800)  # about 150 processor seconds, most of them imports of some twenty processes
def test_days_to_table_once_and_again_and_the_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    out = tmp_path / "miniature"
    text = start(out)
    assert "## Aims" in text and (out / "report.html").is_file() and (out / "results.md").read_text("utf-8") in text
    facts = json.loads((out / "results.json").read_text("utf-8"))
    stages = {row["stage"]: row for row in facts["stages"]}
    assert list(stages) == ["base", "sft", "resft", "teacher_sft", "kto", "dr_grpo"]
    for name in ("base", "sft", "kto", "dr_grpo"):  # what so small a model cannot generate is left out, and said
        assert stages[name]["greedy"]["problems"] == 8 and stages[name]["sampled"]["attempts"] == 16
    assert {"simulate", "base model", "sft_checkpoint", "dr_grpo_eval", "whole run"} <= facts["budget"].keys()
    assert set(facts["sealed"]) == {"sft", "dr_grpo"} and all(one["problems"] for one in facts["sealed"].values())

    ctx = StageContext(settings_of(plan_of(seed=11, small=True), out, recipe=str(out / "recipe.yaml")))
    looked = len(read_ledger(ctx.lake).looks)
    again = start(out)
    assert "simulating" not in again and "step 1/2" not in again and "already current" in again
    assert len(read_ledger(ctx.lake).looks) == looked  # nobody looks a second time

    text = start(out, "--control")
    told = json.loads((out / "control" / "results.json").read_text("utf-8"))
    assert [row["stage"] for row in told["stages"]] == ["base", "sft, unfiltered", "sft"]
    assert set(told["differences"]) == {"greedy", "temperature 1"} and "unfiltered" in text
    assert told["recipe"]["stages"]["sft"]["select"]["source"] == "unfiltered"


def test_control_and_plain_are_two_commands(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--control", "--plain", "--out", str(tmp_path / "x")])
    assert result.exit_code != 0 and not (tmp_path / "x").exists()
