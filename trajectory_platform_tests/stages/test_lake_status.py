"""``status`` names every state a day can be in, and its next step leads somewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

from trajectory_platform.lake import tables
from trajectory_platform.stages import daily
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.status import lake_status, render_status
from trajectory_platform.stages.training_stages import train_stage, training_of
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, settings_for, split


def test_states_and_next_steps(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("min_traces: 1000\n")
    settings = settings_for(tmp_path / "days", tmp_path / "lake", recipe=str(recipe))
    assert "no days yet" in lake_status(settings)["next"]
    make_days(tmp_path / "days", days=3, traces=30)
    assert [day["state"] for day in lake_status(settings)["days"]] == ["late"] * 3
    ctx = StageContext(settings)
    daily.raw_traces(ctx, DAYS[0])
    ingest(settings, DAYS[1:2])
    facts = lake_status(settings)
    assert [day["state"] for day in facts["days"]] == ["partial", "complete", "late"]
    assert facts["next"] == f"trajectory-platform ingest --from {DAYS[0]} --to {DAYS[2]}"
    ingest(settings, DAYS[:3])
    ctx.lake.invalidate(tables.VERDICTS, DAYS[0])
    ctx.lake.invalidate(tables.AXIS_A_CORPUS, DAYS[1])
    assert [day["state"] for day in lake_status(settings)["days"]] == ["complete", "incomplete", "complete"]
    ingest(settings, DAYS[:3])
    assert lake_status(settings)["next"] == f"trajectory-platform train sft --as-of {DAYS[2]}"
    other = lake_status(settings.model_copy(update={"reasoning_gate": 0.9}))
    assert {day["state"] for day in other["days"]} == {"stale"} and "ingest" in other["next"]
    split(settings, DAYS[2])
    train_stage(ctx, DAYS[2], row=training_of("sft"), run=None)
    assert "too_few_traces" in lake_status(settings)["next"], "not the step that was just taken"
    shutil.rmtree(tmp_path / "days" / DAYS[0])
    text = render_status(lake_status(settings))
    assert DAYS[0] in text and "no rows" not in text
