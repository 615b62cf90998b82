"""The sensor that asks for a training without what was withdrawn: once, with an explanation, for the newest day."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.defs.resources import Platform
from trajectory_platform.defs.sensors import RETRAINS_FOR
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.retraction import retract
from trajectory_platform_tests.stages.made_checkpoints import made
from trajectory_platform_tests.stages.test_retraction import ONE, TWO, as_of, lake_of_two_days

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


class Ticks:
    """The sensor of the definitions as the daemon evaluates it: its cursor is what it returned last."""

    def __init__(self, ctx: StageContext) -> None:
        settings = ctx.settings.model_copy(update={"first_day": date(2026, 5, 1)})
        self._defs = build_definitions(settings, last_day=date(2026, 5, 2))
        self._settings = settings.model_dump_json()
        self._instance = dg.DagsterInstance.ephemeral()
        self.cursor: str | None = None

    def tick(self) -> Any:
        repository = self._defs.get_repository_def()
        sensor = repository.get_sensor_def("retrain_without_withdrawn")
        with dg.build_sensor_context(
            instance=self._instance,
            cursor=self.cursor,
            repository_def=repository,
            resources={"platform": Platform(settings_json=self._settings)},
        ) as context:
            data = sensor.evaluate_tick(context)
        self.cursor = data.cursor or self.cursor
        return data


def test_one_request_per_withdrawal_with_its_reason(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    ticks = Ticks(ctx)
    first = ticks.tick()
    assert not first.run_requests and "nothing that was withdrawn" in first.skip_message
    assert "new since the last look" in ticks.tick().skip_message
    retract(ctx, "r1:a", reason="asked for", at=NOW)
    asked = ticks.tick()
    [request] = asked.run_requests
    assert request.partition_key == TWO and request.job_name in (None, "train_as_of")
    assert (
        "1 retracted: r1:a" in request.tags[RETRAINS_FOR]
        and "older checkpoints are flagged" in request.tags[RETRAINS_FOR]
    )
    assert json.loads(ticks.cursor or "")["requested"] == request.run_key
    assert not ticks.tick().run_requests, "an unchanged lake is not asked about again"

    ctx.lake.publish(  # something else changes: the same request is not made twice
        tables.RAW_TRACES, "2026-05-03", tables.RAW_TRACES.schema().empty_table(), identity="x", inputs={},
        code_version="1", settings={},
    )  # fmt: skip
    again = ticks.tick()
    assert not again.run_requests and "requested already" in again.skip_message

    as_of(ctx, TWO)
    made(ctx, TWO, "kto", made(ctx, TWO))
    assert "nothing that was withdrawn" in ticks.tick().skip_message
    retract(ctx, "r3", reason="asked for", at=NOW)
    [other] = ticks.tick().run_requests
    assert other.run_key != request.run_key and "1 retracted: r3:b" in other.tags[RETRAINS_FOR]


def test_a_lake_that_cannot_be_read_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = lake_of_two_days(tmp_path)
    retract(ctx, "r1:a", reason="asked for", at=NOW)
    ticks = Ticks(ctx)
    [log] = sorted((tmp_path / "lake" / "checkpoints" / "_delta_log").glob("*0.json"))[:1]
    text = log.read_text()
    log.write_text("{")
    assert "cannot be read" in ticks.tick().skip_message and ticks.cursor is None
    log.write_text(text)
    assert ticks.tick().run_requests


def test_older_checkpoints_alone_ask_for_nothing(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    ctx = StageContext(ctx.settings.model_copy(update={"window_days": 1}))
    as_of(ctx, TWO)
    made(ctx, TWO, "kto", made(ctx, TWO))
    retract(ctx, "r2", reason="asked for", at=NOW)
    assert not Ticks(ctx).tick().run_requests
    assert ONE < TWO
