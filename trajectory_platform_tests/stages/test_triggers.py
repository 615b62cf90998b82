"""Which days are open, by what the source says of them and by what the lake shows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.plain import daily_assets
from trajectory_platform.stages.triggers import CHAIN, AtSource, Look, behind, follows, freshness, open_days, published
from trajectory_platform_tests.defs.ticks import utc
from trajectory_platform_tests.stages.built_lake import context, publish, row

DAYS = [f"2026-05-{number:02}" for number in range(1, 21)]
NOW = utc("2026-05-21T12:00")


def _lake(root: Path, *days: str, incomplete: tuple[str, ...] = ()) -> StageContext:
    """Empty days whose tables agree with one another; raw_traces of some is incomplete."""
    ctx = context(root)
    for day in days:
        for name in CHAIN:
            publish(ctx, tables_of(name), day, [])
        if day in incomplete:
            rows = tables.RAW_TRACES.schema().empty_table()
            ctx.lake.publish(
                tables.RAW_TRACES, day, rows, identity="later", inputs={}, code_version="1", settings={}, complete=False
            )
    return ctx


def tables_of(name: str) -> tables.Table:
    return next(one for one in vars(tables).values() if isinstance(one, tables.Table) and one.name == name)


def test_what_the_source_says_decides_when_a_fetched_day_is_looked_at(tmp_path: Path) -> None:
    ctx = _lake(tmp_path, *DAYS[10:14], incomplete=(DAYS[10], DAYS[11]))
    looks, waiting = open_days(
        ctx,
        DAYS,
        NOW,
        [
            AtSource(DAYS[2], None, "never looked at", looked=False),  # older than api_final_after_days: a backfill
            AtSource(DAYS[3], None, "holes", looked=True),
            AtSource(DAYS[10], NOW + timedelta(hours=5), "3 under embargo", looked=True),
            AtSource(DAYS[11], NOW - timedelta(hours=5), "2 under embargo", looked=True),
            AtSource(DAYS[15], None, "never looked at", looked=False),
            AtSource(DAYS[19], None, "never looked at", looked=False),
            AtSource("2026-05-21", None, "never looked at", looked=False),
        ],
    )
    assert [look.day for look in looks] == [DAYS[3], DAYS[11], DAYS[15], DAYS[19]]
    assert waiting == {DAYS[10]: "3 under embargo, next look 2026-05-21 17:00"}
    assert all(look.at_source for look in looks)


def test_the_daily_ingestion_goes_first(tmp_path: Path) -> None:
    never = [AtSource(DAYS[19], None, "never looked at", looked=False)]
    for now, asked in (("2026-05-21T00:10", 0), ("2026-05-21T04:29", 0), ("2026-05-21T04:30", 1)):
        looks, waiting = open_days(_lake(tmp_path), DAYS, utc(now), never)
        assert len(looks) == asked and (asked or "goes first" in waiting[DAYS[19]])


def test_an_incomplete_day_is_open_in_the_lake_and_fresh_all_the_same(tmp_path: Path) -> None:
    ctx = _lake(tmp_path, *DAYS[10:20], incomplete=(DAYS[19],))
    [look], _ = open_days(ctx, DAYS, NOW)
    assert look == Look(DAYS[19], look.reason, at_source=False) and "part of it can be had later" in look.reason
    assert freshness(ctx, DAYS, NOW).severity == "ok"
    found = behind(ctx, DAYS[18], published(ctx))
    assert found is None and behind(ctx, DAYS[9], published(ctx)) is not None


@pytest.mark.parametrize(
    ("runs", "failed", "at_source", "hours"),
    [(0, 0, True, 1), (9, 0, True, 1), (3, 3, True, 8), (1, 0, False, 2), (3, 0, False, 8), (10, 10, True, 24)],
    ids=["first", "source_says_when", "failed_thrice", "lake_once", "lake_thrice", "at_most_a_day"],
)
def test_looks_become_rarer(runs: int, failed: int, at_source: bool, hours: int) -> None:
    look = Look(DAYS[0], "why", at_source)
    every = look.every_s(runs, failed)
    assert every == hours * 3600
    at = NOW.replace(hour=0)
    assert look.key(at, every) == look.key(at + timedelta(seconds=every - 1), every)
    assert look.key(at, every) != look.key(at + timedelta(seconds=every), every)


def test_a_followed_source_is_fetched_first_and_everything_runs() -> None:
    settings = Settings(source="oro_api")
    assert follows(settings) and daily_assets(settings)[0] == "fetched_day"
    repository = build_definitions(settings).get_repository_def()
    made = {key.to_user_string() for key in repository.get_job("ingest_and_curate").asset_layer.executable_asset_keys}
    assert made == set(daily_assets(settings))
    running = {one.name for one in repository.sensor_defs if one.default_status.value == "RUNNING"}
    assert running == {"new_raw_days", "repoll_open_days", "retrain_newest", "resume_good_days"}
    assert daily_assets(Settings()) == (*CHAIN, "rejected_traces")


def test_what_is_retracted_of_a_day_is_found_once_for_the_same_retractions_and_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = _lake(tmp_path, *DAYS[:5])
    asked: list[str] = []

    def found(_: StageContext, day: str) -> dict[str, str]:
        asked.append(day)
        return {"retracted": "x"} if day == DAYS[1] else {}

    monkeypatch.setattr("trajectory_platform.stages.triggers.day_inputs", found)
    assert open_days(ctx, DAYS, NOW)[0] == [] and asked == [], "nothing is retracted: no rows are read"
    publish(ctx, tables.RETRACTIONS, DAYS[19], [row(tables.RETRACTIONS, day=DAYS[19], at=NOW, retraction_id="r1")])
    for _ in range(3):
        [look] = open_days(ctx, DAYS, NOW)[0]
        assert look.day == DAYS[1] and "retracted since" in look.reason
    assert sorted(asked) == DAYS[:5], "once a day, not three times a day and tick"
    publish(ctx, tables.RETRACTIONS, DAYS[18], [row(tables.RETRACTIONS, day=DAYS[18], at=NOW, retraction_id="r2")])
    open_days(ctx, DAYS, NOW)
    assert sorted(asked) == sorted(DAYS[:5] * 2), "a further retraction may be of any day"
