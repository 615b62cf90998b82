"""The sensor that trains the newest day again: once per reason, with an explanation, never beside a training."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from trajectory_platform.defs.sensors import AUTOMATIC, RETRAINS_FOR
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.retraction import retract
from trajectory_platform.stages.retrain_triggers import new_clusters, new_suites, wanted_training
from trajectory_platform_tests.defs.ticks import Ticks
from trajectory_platform_tests.splits.rows import public
from trajectory_platform_tests.stages.built_lake import context, publish_day
from trajectory_platform_tests.stages.made_checkpoints import made
from trajectory_platform_tests.stages.test_retraction import ONE, TWO, as_of, lake_of_two_days

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
THREE = "2026-05-03"
STATUS = dg.DagsterRunStatus


def _ticks(ctx: StageContext, now: datetime = NOW, **changes: Any) -> Ticks:
    settings = ctx.settings.model_copy(update={"first_day": date(2026, 5, 1), "unattended": True, **changes})
    return Ticks(settings, "retrain_newest", now=now, last_day=date(2026, 5, 3))


def _third_day(ctx: StageContext, *, count: int, suite: str = "1", products: str = "") -> None:
    """A day of new problems, each with one accepted trace."""
    problems = [public(f"n{i}", f"fresh wish number {i}", [products or f"n{i}"], suite=suite) for i in range(count)]
    traces = [
        {
            "trace_id": f"t{i}:n{i}", "problem_id": f"n{i}", "problem_key": one.problem_key, "query": one.query,
            "agent": f"t{i}", "suite_id": suite,
        }
        for i, one in enumerate(problems)
    ]  # fmt: skip
    publish_day(ctx, THREE, problems, traces)


def test_one_request_per_withdrawal_with_its_reason(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    ticks = _ticks(ctx)
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
        tables.RAW_TRACES, THREE, tables.RAW_TRACES.schema().empty_table(), identity="x", inputs={},
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


def test_a_lake_that_cannot_be_read_is_looked_at_again(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    retract(ctx, "r1:a", reason="asked for", at=NOW)
    ticks = _ticks(ctx)
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
    assert not _ticks(ctx).tick().run_requests
    assert ONE < TWO


def test_enough_new_clusters_train_the_newest_day(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    ticks = _ticks(ctx, retrain_min_new_clusters=3)
    assert not ticks.tick().run_requests
    _third_day(ctx, count=2)
    few = ticks.tick()
    assert not few.run_requests and "2 new axis-A clusters of 3, 0 new suites" in few.skip_message
    _third_day(ctx, count=3)
    [request] = ticks.tick().run_requests
    assert request.partition_key == THREE and request.tags[AUTOMATIC] == "training"
    assert "3 new axis-A clusters since the checkpoints as of 2026-05-02 (at least 3)" in request.tags[RETRAINS_FOR]
    _third_day(ctx, count=4)  # more of the same day: the same request
    again = ticks.tick()
    assert not again.run_requests and "requested already" in again.skip_message
    ticks.cursor = None
    [same] = ticks.tick().run_requests
    assert same.run_key == request.run_key, "a lost cursor repeats the key, which Dagster knows"
    as_of(ctx, THREE)
    made(ctx, THREE)
    assert "0 new" not in (text := ticks.tick().skip_message) and "as of 2026-05-03" in text


def test_a_rotated_suite_trains_and_its_name_is_made_safe(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    _third_day(ctx, count=1, suite="9\n<b>")
    [request] = _ticks(ctx).tick().run_requests
    assert "the suite rotated since 2026-05-02: sha256-" in request.tags[RETRAINS_FOR]
    assert "<b>" not in request.tags[RETRAINS_FOR]


def test_new_data_and_withdrawn_traces_are_one_request(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    retract(ctx, "r1:a", reason="asked for", at=NOW)
    _third_day(ctx, count=2)
    [request] = _ticks(ctx, retrain_min_new_clusters=2).tick().run_requests
    assert request.partition_key == THREE
    assert "1 retracted" in request.tags[RETRAINS_FOR] and "2 new axis-A clusters" in request.tags[RETRAINS_FOR]


def test_nothing_is_asked_for_beside_a_training_and_within_the_cooldown(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    _third_day(ctx, count=2)
    ticks = _ticks(ctx, datetime.now(UTC), retrain_min_new_clusters=2, retrain_cooldown_days=2)
    by_hand = ticks.has_run("train_as_of", STATUS.STARTED, {"dagster/partition": TWO})
    waiting = ticks.tick()
    assert not waiting.run_requests and f"waits for run {by_hand}" in waiting.skip_message
    ticks.ends(by_hand, STATUS.SUCCESS)
    [request] = ticks.tick().run_requests  # what waited is looked at again though the lake is the same
    run = ticks.runs(request, "train_as_of", STATUS.STARTED)
    for cursor in (ticks.cursor, None):  # a second daemon, or a tick that died before its cursor was kept
        ticks.cursor = cursor
        assert not ticks.tick().run_requests
    ticks.ends(run, STATUS.FAILURE)
    retract(ctx, "r3", reason="asked for", at=NOW)
    held = ticks.tick()
    assert not held.run_requests and "cooldown until" in held.skip_message and "1 retracted" in held.skip_message
    ticks.now += timedelta(days=1, hours=23)
    assert not ticks.tick().run_requests
    ticks.now += timedelta(hours=2)
    assert len(ticks.tick().run_requests) == 1


def test_a_training_that_was_asked_for_by_a_clock_far_ahead_holds_up_no_other(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    _third_day(ctx, count=2)
    ticks = _ticks(ctx, datetime.now(UTC), retrain_min_new_clusters=2, retrain_cooldown_days=2)
    [request] = ticks.tick().run_requests
    ticks.ends(ticks.runs(request, "train_as_of", STATUS.STARTED), STATUS.SUCCESS)
    retract(ctx, "r3", reason="asked for", at=NOW)
    assert not ticks.tick().run_requests
    ticks.now -= timedelta(days=300)  # the clock is set right
    assert len(ticks.tick().run_requests) == 1


def test_the_first_training_is_a_persons(tmp_path: Path) -> None:
    ctx = context(tmp_path, pool_train=100, pool_dev=0, pool_sealed=0)
    _third_day(ctx, count=3)
    ticks = _ticks(ctx, retrain_min_new_clusters=1)
    first = ticks.tick()
    assert not first.run_requests and "started by a person" in first.skip_message


def test_new_clusters_are_counted_over_what_the_splits_had(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    assert (new_clusters(ctx, ONE, TWO), new_clusters(ctx, TWO, TWO)) == (1, 0)
    _third_day(ctx, count=3, products="shared")
    assert new_clusters(ctx, TWO, THREE) == 1, "one product joins them"
    _third_day(ctx, count=3, products="2")
    assert new_clusters(ctx, TWO, THREE) == 0, "the product of a problem that the splits had"
    _third_day(ctx, count=5)
    assert new_clusters(ctx, TWO, THREE) == 5
    assert new_suites(ctx, TWO, THREE) == []
    judged = wanted_training(StageContext(ctx.settings.model_copy(update={"unattended": True})))
    assert judged.wanted is None and "5 new axis-A clusters of 200" in judged.text


def test_whoever_materialises_days_by_hand_trains_by_hand(tmp_path: Path) -> None:
    """New days count only where the platform follows its source; what was withdrawn counts everywhere."""
    ctx = lake_of_two_days(tmp_path)
    ticks = _ticks(ctx, unattended=None, retrain_min_new_clusters=1)
    _third_day(ctx, count=5, suite="2")
    found = ticks.tick()
    assert not found.run_requests and "new days start no training here" in found.skip_message
    retract(ctx, "r1:a", reason="asked for", at=NOW)
    [request] = ticks.tick().run_requests
    assert request.partition_key == TWO


def test_an_unfinished_day_is_not_trained_on(tmp_path: Path) -> None:
    ctx = lake_of_two_days(tmp_path)
    _third_day(ctx, count=3)
    ctx.lake.invalidate(tables.AXIS_A_CORPUS, THREE)
    judged = wanted_training(StageContext(ctx.settings.model_copy(update={"retrain_min_new_clusters": 1})))
    assert judged.wanted is None and f"corpus up to {TWO}" in judged.text
