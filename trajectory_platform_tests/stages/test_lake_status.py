"""``status`` names every state a day can be in, and its next step leads somewhere."""

from __future__ import annotations

import os
import shutil
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.lake import tables
from trajectory_platform.output import report_days
from trajectory_platform.settings import Settings
from trajectory_platform.sources.files import FileSource
from trajectory_platform.stages import daily, status, triggers
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.plain import ingest_days
from trajectory_platform.stages.retraction import retract
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


def test_a_day_that_has_only_pairs_of_its_neighbours_is_named_and_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs of the last folder were judged on the day after it, which has no folder: so ends a fresh demo."""
    settings = settings_for(make_days(tmp_path / "days", days=3, traces=30), tmp_path / "lake", recipe="smoke")
    ingest(settings, DAYS[:3])
    ctx = StageContext(settings)
    listed = ctx.lake.read(tables.DAY_SUMMARIES, DAYS[2:3]).to_pylist()
    assert listed[0]["moved_out"] > 0
    monkeypatch.setattr(status, "_lacking", lambda *_: None)
    now = datetime(2026, 5, 6, 12, tzinfo=UTC)
    facts = lake_status(settings, clock=lambda: now)
    assert list(triggers.unreconciled(ctx, DAYS, None)) == DAYS[3:]
    assert facts["next"] == "nothing: everything is ingested"
    assert f"{DAYS[3]} has no folder" in facts["because"]
    during = lake_status(settings, clock=lambda: now.replace(day=5))
    assert during["next"] == "nothing: everything is ingested"
    assert DAYS[3] not in during["because"], "a day that is not over is no partition yet"
    ingest(settings, DAYS[2:])
    assert list(triggers.unreconciled(ctx, DAYS, None)) == []
    assert lake_status(settings, clock=lambda: now)["next"] == "nothing: everything is ingested"


def states(settings: Settings, **how: Any) -> list[tuple[str, str, str | None]]:
    return [(day["day"], day["state"], day["why"]) for day in lake_status(settings, **how)["days"]]


def test_a_published_day_that_is_not_as_its_folder_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of older days, and without reading folders that nobody wrote to."""
    settings = settings_for(make_days(tmp_path / "days", traces=20), tmp_path / "lake", recipe="smoke")
    ingest(settings)
    assert {state for _, state, _ in states(settings)} == {"complete"}
    asked: list[str] = []
    real = FileSource.digest
    monkeypatch.setattr(FileSource, "digest", lambda self, day: asked.append(day.isoformat()) or real(self, day))
    listing = tmp_path / "days" / DAYS[0] / "runs.jsonl"
    later = listing.stat().st_mtime + 3600
    os.utime(listing, (later, later))
    assert {state for _, state, _ in states(settings)} == {"complete"}, "another time is no other folder"
    assert asked == DAYS[:1]
    listing.write_text("".join(listing.read_text().splitlines(keepends=True)[:-1]))
    os.utime(listing, (later, later))
    said = f"the folder {DAYS[0]} changed since raw_traces of {{}} was made"
    assert [why for _, _, why in states(settings)] == [*(said.format(day) for day in DAYS[:2]), None, None]
    facts = lake_status(settings)
    assert facts["next"] == f"trajectory-platform ingest --from {DAYS[0]} --to {DAYS[1]}"
    assert f"{DAYS[0]}  behind" in render_status(facts) and said.format(DAYS[0]) in render_status(facts)
    ingest(settings)
    assert {state for _, state, _ in states(settings)} == {"complete"}


def test_a_folder_that_came_later_is_seen_and_one_that_went_is_asked_for(tmp_path: Path) -> None:
    settings = settings_for(make_days(tmp_path / "days", traces=20), tmp_path / "lake", recipe="smoke")
    kept = (tmp_path / "days" / DAYS[3]).rename(tmp_path / "kept")
    ingest(settings)
    kept.rename(tmp_path / "days" / DAYS[3])
    assert [state for _, state, _ in states(settings)] == ["complete", "complete", "behind", "behind"]
    ingest(settings)
    shutil.rmtree(tmp_path / "days" / DAYS[3])
    facts = lake_status(settings)
    gone = f"the folder {DAYS[3]} is gone"
    assert states(settings)[2:] == [(DAYS[2], "behind", gone), (DAYS[3], "behind", gone)]
    assert facts["next"] == f"bring the raw folders back below {settings.data_root}" and gone in facts["because"]


def test_a_day_with_withdrawn_traces_is_behind(tmp_path: Path) -> None:
    settings = settings_for(make_days(tmp_path / "days", days=2, traces=20), tmp_path / "lake", recipe="smoke")
    ingest(settings, DAYS[:2])
    ctx = StageContext(settings)
    trace = ctx.lake.read(tables.TRAJECTORIES, DAYS[:1], columns=["trace_id"]).column(0)[0].as_py()
    retract(ctx, trace, reason="asked for", at=datetime(2026, 5, 6, tzinfo=UTC))
    assert [(day, state) for day, state, _ in states(settings)] == [(DAYS[0], "behind"), (DAYS[1], "complete")]
    assert lake_status(settings)["next"] == f"trajectory-platform ingest --from {DAYS[0]} --to {DAYS[0]}"


def test_a_root_that_is_no_folder_is_said(tmp_path: Path) -> None:
    settings = settings_for(make_days(tmp_path / "days", days=1, traces=20), tmp_path / "lake", recipe="smoke")
    ingest(settings, DAYS[:1])
    facts = lake_status(settings.model_copy(update={"data_root": "/nope"}))
    assert [day["state"] for day in facts["days"]] == ["behind"]
    assert facts["next"] == "set TRAJECTORY_PLATFORM_DATA_ROOT: /nope is no folder"
    assert facts["warnings"] == ["TRAJECTORY_PLATFORM_DATA_ROOT: /nope is no folder"]


def test_a_folder_of_a_day_that_runs_is_not_over_and_no_next_step(tmp_path: Path) -> None:
    settings = settings_for(make_days(tmp_path / "days", days=2, traces=20), tmp_path / "lake", recipe="smoke")
    noon = datetime(2026, 5, 3, 12, tzinfo=UTC)
    list(ingest_days(settings, None, None, None, clock=lambda: noon))
    assert [state for _, state, _ in states(settings, clock=lambda: noon)] == ["complete", "not over"]
    assert lake_status(settings, clock=lambda: noon)["next"].endswith(f"--as-of {DAYS[0]}")


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
