"""Checks of age, volume, reconciliation and the queue, as a user reads them."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.triggers import due_at, freshness, unreconciled, volume
from trajectory_platform_tests.defs.ticks import utc
from trajectory_platform_tests.stages.arena_days import DAYS, FIRST, ingest, make_days, place
from trajectory_platform_tests.stages.built_lake import context, publish, row

ALL_DAYS = [f"2026-05-{number:02}" for number in range(2, 12)]


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fresh")
    days = make_days(root / "made", traces=12)
    ingest(place(days, root))
    return root


def _settings(root: Path, **changes: Any) -> Settings:
    places = {"checkpoint_root": str(root / "c"), "index_root": str(root / "i")}
    return Settings(data_root=str(root / "days"), lake_uri=str(root / "lake"), first_day=FIRST, **places, **changes)


@pytest.mark.parametrize(
    ("now", "severity", "lag"),
    [
        ("2026-05-06T09:29", "ok", 0),
        ("2026-05-07T09:29", "ok", 0),  # the day is due at 03:30, six hours of grace
        ("2026-05-07T09:30", "warn", 1),
        ("2026-05-09T09:29", "warn", 2),
        ("2026-05-09T09:30", "error", 3),
    ],
    ids=["on_time", "in_grace", "a_day_behind", "two_days", "three_days"],
)
def test_the_newest_day_ages_by_the_day_it_is_due(ingested: Path, now: str, severity: str, lag: int) -> None:
    complete = [day for day in ALL_DAYS if day < now[:10]]
    found = freshness(StageContext(_settings(ingested)), complete, utc(now))
    assert (found.severity, found.lag, found.newest) == (severity, lag, DAYS[3])


def test_an_empty_lake_is_an_error_only_once_a_day_is_due(tmp_path: Path) -> None:
    ctx = StageContext(_settings(tmp_path))
    assert freshness(ctx, [], utc("2026-05-02T12:00")).severity == "ok"
    assert freshness(ctx, ALL_DAYS[:1], utc("2026-05-03T09:00")).severity == "ok"
    assert freshness(ctx, ALL_DAYS[:1], utc("2026-05-03T10:00")).severity == "error"
    assert due_at(ctx.settings, "2026-12-31") == utc("2027-01-01T03:30")


def test_a_day_is_measured_by_the_median_of_the_week_before(tmp_path: Path) -> None:
    ctx = context(tmp_path, volume_min_share=0.5)

    def day(name: str, traces: int) -> None:
        publish(ctx, tables.DAY_SUMMARIES, name, [row(tables.DAY_SUMMARIES, day=name, raw_rows=traces)])

    for number, traces in enumerate([9000, 100, 120, 80, 100, 49, 50, 0], start=1):
        day(f"2026-05-{number:02}", traces)
    assert volume(ctx, "2026-05-03")["severity"] == "ok", "two days do not say what is usual"
    assert volume(ctx, "2026-05-06") == {"traces": 49, "median": 100.0, "share": 0.49, "severity": "warn", "days": 5}
    assert volume(ctx, "2026-05-07")["severity"] == "ok"
    assert volume(ctx, "2026-05-08")["severity"] == "error"
    assert volume(ctx, "2026-05-20")["median"] is None


def test_listed_days_that_the_lake_does_not_hold_are_named(ingested: Path, tmp_path: Path) -> None:
    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    ctx = StageContext(_settings(tmp_path))
    digest = lambda day: ctx.source.digest(datetime.fromisoformat(day).date())  # noqa: E731
    assert unreconciled(ctx, DAYS, digest) == {}
    assert list(unreconciled(ctx, [*DAYS, "2026-05-06"], digest)) == ["2026-05-06"], "a neighbour holds rows of it"
    with (tmp_path / "days" / DAYS[2] / "runs.jsonl").open("a") as stream:
        stream.write("\n")
    changed = unreconciled(ctx, DAYS, digest)
    assert list(changed) == DAYS[1:] and f"the folder {DAYS[2]} changed" in changed[DAYS[1]]
    assert unreconciled(ctx, DAYS, None) == {}, "folders are not read where that takes too long"


def _health(
    root: Path, now: datetime, instance: dg.DagsterInstance, **changes: Any
) -> dict[str, dg.AssetCheckEvaluation]:
    definitions = build_definitions(_settings(root, **changes), clock=lambda: now)
    run = definitions.resolve_job_def("health").execute_in_process(instance=instance)
    assert run.success, "a failed check is a finding, not a failed run"
    return {one.check_name: one for one in run.get_asset_check_evaluations()}


def test_the_health_job_says_what_is_missing(ingested: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        good = _health(ingested, utc("2026-05-06T09:29"), instance)
        assert {name: one.passed for name, one in good.items()} == {
            "newest_day_is_there": True,
            "source_is_reconciled": True,
            "queue_moves": True,
        }
        bad = _health(ingested, utc("2026-05-20T12:00"), instance, unattended=True)
        assert not bad["newest_day_is_there"].passed
        assert bad["newest_day_is_there"].severity is dg.AssetCheckSeverity.ERROR
        assert bad["newest_day_is_there"].metadata["days behind"].value == 14
        assert "2026-05-06" in str(bad["source_is_reconciled"].description)
        assert bad["source_is_reconciled"].severity is dg.AssetCheckSeverity.WARN


def test_days_of_files_that_nobody_follows_may_have_any_age(ingested: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        found = _health(ingested, utc("2026-11-30T12:00"), instance)["newest_day_is_there"]
    assert found.passed and "not followed" in str(found.description)
    assert found.metadata["days behind"].value == 208 and found.metadata["newest"].value == DAYS[3]


def test_the_volume_is_part_of_every_ingestion(ingested: Path) -> None:
    definitions = build_definitions(_settings(ingested), clock=lambda: datetime.now(UTC) + timedelta(days=1))
    with dg.DagsterInstance.ephemeral() as instance:
        run = definitions.resolve_job_def("ingest_and_curate").execute_in_process(
            instance=instance, partition_key=DAYS[0]
        )
    found = {one.check_name: one for one in run.get_asset_check_evaluations()}
    assert found["volume"].passed and "newest_day_is_there" not in found
    assert found["volume"].metadata[DAYS[0]].value["median"] is None
