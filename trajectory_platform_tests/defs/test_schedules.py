"""The daily ingestion: which day a tick means, what it is keyed by, and what it says when it does nothing."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.defs.partitions import complete_days, subnet_days
from trajectory_platform.defs.runs import PARTITION, REASON
from trajectory_platform.settings import Settings
from trajectory_platform_tests.defs.ticks import Ticks, utc
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, place

STOPPED, RUNNING = dg.DefaultScheduleStatus.STOPPED, dg.DefaultScheduleStatus.RUNNING


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_days(tmp_path_factory.mktemp("scheduled"), traces=12)


@pytest.mark.parametrize(
    ("now", "newest"),
    [
        (datetime(2023, 12, 5, 8, tzinfo=timezone(timedelta(hours=10))), "2023-12-03"),  # case F04
        (datetime(2026, 2, 17, 18, 10, tzinfo=ZoneInfo("Asia/Kolkata")), "2026-02-16"),  # case F03
        (datetime(2025, 10, 26, 0, 30, tzinfo=ZoneInfo("Europe/Berlin")), "2025-10-24"),  # case F01
        (datetime(2025, 10, 27, 0, 59, tzinfo=ZoneInfo("Europe/Berlin")), "2025-10-25"),
        (datetime(2025, 10, 27, 1, 0, tzinfo=ZoneInfo("Europe/Berlin")), "2025-10-26"),
        (datetime(2026, 1, 1, 0, 0, tzinfo=UTC), "2025-12-31"),
    ],
    ids=["ten_hours_ahead", "half_hour_zone", "before_summer_time_ends", "a_minute_early", "on_time", "new_year"],
)
def test_the_newest_complete_day_follows_from_the_windows_of_utc(now: datetime, newest: str) -> None:
    assert complete_days(subnet_days(date(2023, 11, 1)), now)[-1] == newest


def test_a_time_without_a_zone_names_no_day() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        complete_days(subnet_days(date(2026, 5, 1)), datetime(2026, 5, 3))  # noqa: DTZ001


def test_a_tick_means_the_day_before_it_whenever_it_is_evaluated(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path, ingest_at_utc="04:05")
    ticks = Ticks(
        settings, "daily_ingestion", home=tmp_path, now=utc("2026-07-01T12:00")
    )  # the machine's clock plays no part
    for zone in (UTC, ZoneInfo("Asia/Kolkata"), ZoneInfo("America/St_Johns")):
        [request] = ticks.scheduled(utc("2026-05-04T04:05").astimezone(zone)).run_requests
        assert request.partition_key == "2026-05-03" and request.tags[PARTITION] == "2026-05-03"
        assert "daily ingestion of 2026-05-04 04:05 UTC" in request.tags[REASON]
        assert "is not published" in request.tags[REASON]
    schedule = build_definitions(settings).get_repository_def().get_schedule_def("daily_ingestion")
    assert schedule.cron_schedule == "5 4 * * *" and schedule.execution_timezone == "UTC"


def test_the_run_key_holds_the_content_of_the_folders_the_day_reads(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    ticks = Ticks(settings, "daily_ingestion", home=tmp_path, now=utc("2026-05-05T04:00"))
    at = utc("2026-05-04T03:30")

    def key() -> str | None:
        [request] = ticks.scheduled(at).run_requests
        return request.run_key

    first = key()
    assert key() == first
    (tmp_path / "days" / "2026-05-05" / "runs.jsonl").write_text("")  # two days away: the day does not read it
    assert key() == first
    with (tmp_path / "days" / "2026-05-04" / "runs.jsonl").open("a") as stream:
        stream.write("\n")
    assert key() != first


def test_nothing_to_do_is_said_with_its_reason(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    shutil.rmtree(tmp_path / "days" / DAYS[3])
    ticks = Ticks(settings, "daily_ingestion", home=tmp_path, now=utc("2026-05-07T03:30"))
    assert "the first is 2026-05-02" in ticks.scheduled(utc("2026-05-02T03:30")).skip_message
    missing = ticks.scheduled(utc("2026-05-08T03:30"))
    assert not missing.run_requests and "no folder of 2026-05-07" in missing.skip_message, "no other day is picked"
    ingest(settings, DAYS[:2])
    assert "is ingested as its folder is now" in ticks.scheduled(utc("2026-05-03T03:30")).skip_message
    ticks.has_run("ingest_and_curate", dg.DagsterRunStatus.STARTED, {PARTITION: "2026-05-04"})
    assert "being ingested by run" in ticks.scheduled(utc("2026-05-05T03:30")).skip_message
    ticks.has_backfill(["raw_traces"], "2026-05-03", "2026-05-05")
    assert "being ingested by backfill" in ticks.scheduled(utc("2026-05-06T03:30")).skip_message


def test_switched_on_where_the_source_is_followed_or_the_settings_say_so(tmp_path: Path) -> None:
    def states(settings: Settings) -> set[dg.DefaultScheduleStatus]:
        repository = build_definitions(settings).get_repository_def()
        return {schedule.default_status for schedule in repository.schedule_defs}

    assert states(Settings()) == {STOPPED}
    assert states(Settings(unattended=True)) == {RUNNING}
    assert states(Settings(unattended=False)) == {STOPPED}


def test_the_corpus_has_an_age_only_where_it_is_followed() -> None:
    def policy(settings: Settings) -> dg.FreshnessPolicy | None:
        graph = build_definitions(settings).resolve_asset_graph()
        return graph.get(dg.AssetKey("axis_a_corpus")).freshness_policy

    assert policy(Settings()) is None
    assert policy(Settings(unattended=True)) is not None


def test_runs_have_a_longest_time_and_the_health_job_runs_nothing() -> None:
    repository = build_definitions(Settings()).get_repository_def()
    for name in ("ingest_and_curate", "train_as_of", "health"):
        assert int(repository.get_job(name).run_tags["dagster/max_runtime"]) > 0
    assert {node.name.split("_and_")[0] for node in repository.get_job("health").nodes} == {
        "axis_a_corpus_newest_day_is_there",
        "raw_traces_source_is_reconciled",
        "raw_traces_queue_moves",
    }
