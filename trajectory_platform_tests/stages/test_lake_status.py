"""``status`` names every state a day can be in, and its next step leads somewhere."""

from __future__ import annotations

import os
import shutil
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trajectory_platform.lake import tables
from trajectory_platform.output import report_days
from trajectory_platform.stages import daily, status, triggers
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.plain import ingest_days
from trajectory_platform.stages.status import lake_status, render_status, under_way
from trajectory_platform.stages.training_stages import train_stage, training_of
from trajectory_platform.training.resume import PROGRESS
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


def test_the_next_step_is_the_day_that_the_check_of_the_source_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs of the last folder were judged on the day after it, which has no folder."""
    settings = settings_for(make_days(tmp_path / "days", days=3, traces=30), tmp_path / "lake", recipe="smoke")
    ingest(settings, DAYS[:3])
    ctx = StageContext(settings)
    listed = ctx.lake.read(tables.DAY_SUMMARIES, DAYS[2:3]).to_pylist()
    assert listed[0]["moved_out"] > 0
    monkeypatch.setattr(status, "_lacking", lambda *_: None)
    now = datetime(2026, 5, 6, 12, tzinfo=UTC)
    facts = lake_status(settings, clock=lambda: now)
    assert list(triggers.unreconciled(ctx, DAYS, None)) == DAYS[3:]
    assert facts["next"] == f"trajectory-platform ingest --from {DAYS[2]} --to {DAYS[3]}"
    assert DAYS[3] in facts["because"]
    during = lake_status(settings, clock=lambda: now.replace(day=5))
    assert during["next"] == "nothing: everything is ingested", "a day that is not over is no partition yet"
    ingest(settings, DAYS[2:])
    assert list(triggers.unreconciled(ctx, DAYS, None)) == []
    assert lake_status(settings, clock=lambda: now)["next"] == "nothing: everything is ingested"


def test_a_training_that_lives_is_under_way_and_a_killed_one_is_not(tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "days", tmp_path / "lake")
    assert under_way(settings) == []
    place = Path(settings.checkpoint_root, PROGRESS)
    place.mkdir(parents=True)
    own = f"process {os.getpid()} on {socket.gethostname()}"
    (place / "sft-a.lock").write_text(own)
    (place / "sft-b.lock").write_text(f"process 4194305 on {socket.gethostname()}")  # above the largest there can be
    (place / "sft-c.lock").write_text("process 1 on another-machine")
    (place / "sft-d.lock").write_text("")
    assert under_way(settings) == [
        {"checkpoint_id": "sft-a", "by": own},
        {"checkpoint_id": "sft-c", "by": "process 1 on another-machine"},
    ]
    assert f"under way  sft-a, by {own}" in render_status(lake_status(settings))


def test_days_without_a_product_catalogue_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path / "days", tmp_path / "lake")
    make_days(tmp_path / "days", days=2, traces=30)
    kept = (tmp_path / "days" / "catalogue").rename(tmp_path / "catalogue")
    place = f"{tmp_path}/days/catalogue/products.jsonl"
    for again in (False, True):  # and when nothing is to be done
        report_days(ingest_days(settings, None, DAYS[0], DAYS[1]), as_json=False)
        told = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
        assert [line.split()[0] for line in told] == DAYS[:2], again
        assert all("no_catalogue" in line and place in line for line in told)
    (warning,) = lake_status(settings)["warnings"]
    assert f"2 days from {DAYS[0]} to {DAYS[1]}" in warning and place in warning
    assert f"warning  {warning}" in render_status(lake_status(settings))
    kept.rename(tmp_path / "days" / "catalogue")
    report_days(ingest_days(settings, None, DAYS[0], DAYS[1]), as_json=False)
    assert "warning" not in capsys.readouterr().out and lake_status(settings)["warnings"] == []
