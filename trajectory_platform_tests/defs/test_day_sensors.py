"""Day folders that come and change, and days that are not final: one request each, whatever happens to the cursor."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus

from trajectory_platform.defs import day_sensors
from trajectory_platform.defs.assets import day_asset
from trajectory_platform.defs.day_sensors import RAW_VERSION, REPOLLS
from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.defs.runs import PARTITION, RANGE_END, RANGE_START, REASON, in_hand
from trajectory_platform.settings import Settings
from trajectory_platform.sources.listed import listed
from trajectory_platform.stages.plain import DAILY_ASSETS
from trajectory_platform.stages.triggers import INCOMPLETE, Behind
from trajectory_platform_tests.defs.ticks import Ticks, job_backfill, utc
from trajectory_platform_tests.stages.arena_days import DAYS, FIRST, ingest, make_days, place

STATUS = dg.DagsterRunStatus
JOB = "ingest_and_curate"
NOW = utc("2026-05-10T12:00")


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_days(tmp_path_factory.mktemp("watched"), traces=12)


@pytest.fixture(scope="module")
def ingested(days: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ingested")
    ingest(place(days, root))
    return root


def _old(root: Path) -> None:
    """Files that were written long before the tick, as a download of the past days leaves them."""
    at = utc("2026-05-01T00:00").timestamp()
    for path in root.rglob("*"):
        os.utime(path, (at, at))


def _watch(settings: Settings, now: datetime = NOW, last_day: date | None = None, home: Path | None = None) -> Ticks:
    return Ticks(settings, "new_raw_days", now=now, last_day=last_day, home=home)


def _days(data: object) -> list[str | None]:
    return [request.partition_key for request in data.run_requests]  # type: ignore[attr-defined]


def test_new_folders_are_requested_once_whatever_happens_to_the_cursor(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    _old(tmp_path / "days")
    ticks = _watch(settings)
    first = ticks.tick()
    assert _days(first) == [*DAYS, "2026-05-06"], "a day has rows of its own folder and of those beside it"
    assert all("is not published" in request.tags[REASON] for request in first.run_requests)
    kept, ticks.cursor = ticks.cursor, None  # the tick died before its cursor was kept: nothing was launched yet
    again = ticks.tick()
    assert [one.run_key for one in again.run_requests] == [one.run_key for one in first.run_requests]
    runs = [ticks.runs(request, JOB, STATUS.STARTING) for request in first.run_requests]
    for cursor in (kept, None, "{", '{"folders": 1}', "[]"):
        ticks.cursor = cursor
        waiting = ticks.tick()
        assert not waiting.run_requests and "waits for run" in waiting.skip_message
    ingest(settings)
    ingest(settings, ["2026-05-06"])
    for run in runs:
        ticks.ends(run, STATUS.SUCCESS)
    for cursor in (kept, None):
        ticks.cursor = cursor
        assert not ticks.tick().run_requests
    assert "none new or changed" in ticks.tick().skip_message


def test_a_replaced_file_is_a_new_request_and_the_same_bytes_are_none(ingested: Path, tmp_path: Path) -> None:
    """Case F06: the same object with other content is asked for; a lost cursor asks for nothing that is there."""
    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    _old(tmp_path / "days")
    settings = Settings(
        data_root=str(tmp_path / "days"), lake_uri=str(tmp_path / "lake"), checkpoint_root=str(tmp_path / "c"),
        index_root=str(tmp_path / "i"), first_day=FIRST,
    )  # fmt: skip
    ticks = _watch(settings, utc("2026-05-06T12:00"))  # the last folder's next day is not over
    assert not ticks.tick().run_requests, "ingested by hand: nothing is asked for"
    artifact = sorted((tmp_path / "days" / DAYS[1] / "artifacts").rglob("*.gz"))[0]
    content = artifact.read_bytes()
    artifact.write_bytes(content)
    os.utime(artifact, (1_778_000_000, 1_778_000_000))
    assert not ticks.tick().run_requests, "touched, not changed"
    artifact.write_bytes(content[:-1] + b"!")
    os.utime(artifact, (1_778_000_100, 1_778_000_100))
    changed = ticks.tick()
    assert _days(changed) == DAYS[:3]
    assert all(f"the folder {DAYS[1]} changed" in one.tags[REASON] for one in changed.run_requests)
    for request in changed.run_requests:
        ticks.runs(request, JOB, STATUS.STARTED)
    ticks.cursor = None
    assert not ticks.tick().run_requests


def test_a_folder_that_is_being_written_or_not_over_is_left_alone(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    _old(tmp_path / "days")
    ticks = _watch(settings, utc("2026-05-05T12:00"))
    found = ticks.tick()
    assert _days(found) == DAYS[:3], "the last folder's day is not over, its neighbour is run without it"
    for request in found.run_requests:
        ticks.runs(request, JOB, STATUS.SUCCESS)
    writing = tmp_path / "days" / DAYS[3] / "runs.jsonl"
    ticks.now = utc("2026-05-06T00:00")
    os.utime(writing, (ticks.now.timestamp() - 30,) * 2)
    waiting = ticks.tick()
    assert not waiting.run_requests and f"{DAYS[3]} is still being written" in waiting.skip_message
    ticks.now += timedelta(minutes=3)
    assert _days(ticks.tick()) == DAYS[2:]


@pytest.mark.parametrize("age_s", [9, -9], ids=["before the tick", "while it looked"])
def test_days_that_read_a_folder_being_written_wait_for_it(days: Path, tmp_path: Path, age_s: int) -> None:
    """Days are copied one after another: the settled one before must not ask for the one that is being written."""
    settings = place(days, tmp_path)
    _old(tmp_path / "days")
    os.utime(tmp_path / "days" / DAYS[2] / "runs.jsonl", (NOW.timestamp() - age_s,) * 2)
    ticks = _watch(settings)
    found = ticks.tick()
    assert _days(found) == [DAYS[0], "2026-05-06"], "days that do not read the folder go on"
    for request in found.run_requests:
        ticks.ends(ticks.runs(request, JOB, STATUS.STARTED), STATUS.SUCCESS)
    told = ticks.tick().skip_message
    assert f"{DAYS[2]} is still being written" in told
    assert all(f"{day} waits: it reads {DAYS[2]} too, still being written" in told for day in (DAYS[1], DAYS[3]))
    ticks.now += timedelta(minutes=3)
    assert _days(ticks.tick()) == DAYS[1:]


def test_a_folder_that_a_slow_tick_did_not_come_to_is_listed_before_its_day_is_asked_for(
    days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = place(days, tmp_path)
    _old(tmp_path / "days")
    monkeypatch.setattr(day_sensors, "MAX_REQUESTS", 0)
    ticks = _watch(settings)
    assert not ticks.tick().run_requests, "all days are open now"
    monkeypatch.setattr(day_sensors, "MAX_REQUESTS", 10)
    monkeypatch.setattr(day_sensors, "LOOK_S", -1.0)  # only the newest folder is come to
    os.utime(tmp_path / "days" / DAYS[1] / "runs.jsonl", (NOW.timestamp() - 9,) * 2)
    waiting = ticks.tick()
    assert not waiting.run_requests and f"{DAYS[0]} waits: it reads {DAYS[1]}" in waiting.skip_message


def test_a_day_that_fails_is_tried_three_times_with_pauses_and_then_told(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    for day in DAYS[1:]:
        shutil.rmtree(tmp_path / "days" / day)
    _old(tmp_path / "days")
    ticks = _watch(settings, utc("2026-05-03T12:00"), last_day=FIRST)
    keys = set()
    for pause in (timedelta(minutes=31), timedelta(minutes=61), timedelta(minutes=121)):
        [request] = ticks.tick().run_requests
        keys.add(request.run_key)
        run = ticks.runs(request, JOB, STATUS.STARTED)
        assert not ticks.tick().run_requests
        ticks.ends(run, STATUS.FAILURE)
        ticks.now = datetime.now(UTC)  # runs end by the clock of the machine
        assert "tried again later" in ticks.tick().skip_message or len(keys) == 3
        ticks.now += pause
    assert len(keys) == 3, "each try has a key of its own: a remembered one would vanish"
    ticks.cursor = None
    told = ticks.tick()
    assert not told.run_requests and "failed 3 times; correct the folder" in told.skip_message
    assert not ticks.tick().run_requests


def test_many_days_come_in_ticks_of_bounded_size(days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = place(days, tmp_path)
    _old(tmp_path / "days")
    monkeypatch.setattr(day_sensors, "MAX_REQUESTS", 2)
    ticks = _watch(settings)
    seen: list[str | None] = []
    for _ in range(3):
        data = ticks.tick()
        seen += _days(data)
        for request in data.run_requests:
            ticks.runs(request, JOB, STATUS.SUCCESS)
    assert sorted(str(day) for day in seen) == [*DAYS, "2026-05-06"]
    monkeypatch.setattr(day_sensors, "LOOK_S", -1.0)  # a listing that takes all of a tick: one folder each
    slow = _watch(settings)
    slow.tick()
    assert sorted(json.loads(slow.cursor or "")["folders"]) == DAYS[:2], "and the one beside it, which its day reads"
    for _ in range(3):
        slow.tick()
    assert len(json.loads(slow.cursor or "")["folders"]) == 4


def test_a_lake_or_root_that_cannot_be_read_keeps_the_cursor(ingested: Path, tmp_path: Path) -> None:
    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    settings = Settings(data_root=str(tmp_path / "days"), lake_uri=str(tmp_path / "lake"), first_day=FIRST)
    [log] = sorted((tmp_path / "lake" / "raw_traces" / "_delta_log").glob("*0.json"))[:1]
    log.write_text("{")
    ticks = _watch(settings)
    ticks.cursor = "{}"
    assert "not looked at" in ticks.tick().skip_message and ticks.cursor == "{}"


def test_folders_in_an_object_store_that_a_run_has_read_are_not_read_again(
    days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There contents are too many to compare in a tick: runs keep which version they read, whoever asked for them."""
    for module in (day_sensors, day_asset):
        monkeypatch.setattr(module, "local_digest", lambda ctx: None)
    settings = place(days, tmp_path)
    _old(tmp_path / "days")
    ticks = _watch(settings, last_day=date(2026, 5, 6))
    job = build_definitions(settings, date(2026, 5, 6)).resolve_job_def(JOB)
    every = [*DAYS, "2026-05-06"]
    ingest(settings)
    ingest(settings, every[-1:])
    assert _days(ticks.tick()) == every, "nobody keeps what was read for them: a run looks"
    for day in every:
        assert job.execute_in_process(instance=ticks.instance, partition_key=day).success
    incomplete = Behind("raw_traces", INCOMPLETE, "part of it can be had later")
    monkeypatch.setattr(day_sensors, "behind", lambda ctx, day, *_: incomplete if day == DAYS[1] else None)
    for cursor in (ticks.cursor, None):
        ticks.cursor = cursor
        assert not ticks.tick().run_requests
    (tmp_path / "days" / DAYS[0] / "fresh.txt").write_text("x")
    ticks.now = datetime.now(UTC) + timedelta(hours=1)
    assert _days(ticks.tick()) == DAYS[:2], "the day of a folder that changed, and the one beside it"


def test_days_that_a_backfill_has_yet_to_make_are_not_asked_for_beside_it(days: Path, tmp_path: Path) -> None:
    """A backfill makes its days asset by asset: between two of its runs nothing of a day is queued."""
    settings = place(days, tmp_path)
    _old(tmp_path / "days")
    ticks = _watch(settings, home=tmp_path)
    begun = ticks.has_backfill(DAILY_ASSETS, *DAYS[::2], made=[DAYS[0]], failed=[DAYS[1]])
    found = ticks.tick()
    assert _days(found) == [*DAYS[:2], DAYS[3], "2026-05-06"], "what it made or gave up is looked at as ever"
    for request in found.run_requests:
        ticks.ends(ticks.runs(request, JOB, STATUS.STARTED), STATUS.SUCCESS)
    assert f"{DAYS[2]} waits for backfill {begun.backfill_id}" in ticks.tick().skip_message
    ticks.instance.update_backfill(begun.with_status(BulkActionStatus.CANCELED))
    assert _days(ticks.tick()) == [DAYS[2]], "nothing of it is lost with its backfill"


def test_days_of_a_backfill_of_the_job_that_are_not_submitted_yet_are_in_hand(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        job_backfill(instance, JOB, DAYS, submitted=DAYS[1])
        assert in_hand(instance, JOB, DAILY_ASSETS, {}) == dict.fromkeys(DAYS[2:], "backfill of_the_job")
        assert in_hand(instance, "train_as_of", DAILY_ASSETS, {}) == {}


def test_open_days_of_a_backfill_wait_for_it_and_take_no_room(
    days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = place(days, tmp_path)
    ingest(settings, DAYS)
    shutil.rmtree(tmp_path / "lake" / "_manifests" / "axis_a_corpus")
    ticks = _repoll(settings, home=tmp_path)
    monkeypatch.setattr(day_sensors, "MAX_REPOLLS", 2)
    begun = ticks.has_backfill(["judged_traces", "axis_a_corpus"], *DAYS[:2])
    assert _days(ticks.tick()) == DAYS[2:]
    assert f"{DAYS[0]}: backfill {begun.backfill_id} is on it" in (ticks.cursor or "")


def _repoll(settings: Settings, now: datetime = NOW, home: Path | None = None) -> Ticks:
    return Ticks(settings, "repoll_open_days", now=now, home=home)


def test_a_day_that_ended_half_way_is_run_again_ever_more_rarely(
    days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_sensors, "MAX_REPOLLS", 2)
    settings = place(days, tmp_path)
    ingest(settings, DAYS[:3])
    shutil.rmtree(tmp_path / "lake" / "_manifests" / "axis_a_corpus")
    ticks = _repoll(settings)
    first = ticks.tick()
    assert _days(first) == DAYS[:2], "at most two at once"
    assert "axis_a_corpus of 2026-05-02 is not published" in first.run_requests[0].tags[REASON]
    assert [one.run_key for one in ticks.tick().run_requests] == [one.run_key for one in first.run_requests]
    runs = [ticks.runs(request, JOB, STATUS.STARTED) for request in first.run_requests]
    waiting = ticks.tick()
    assert not waiting.run_requests and f"{DAYS[0]}: run {runs[0]} is on it" in waiting.skip_message
    for run in runs:
        ticks.ends(run, STATUS.SUCCESS)
    ticks.now = datetime.now(UTC) + timedelta(minutes=90)
    later = ticks.tick()
    assert _days(later) == [DAYS[2]], "two hours after the first look, not one"
    assert "next after 2 h" in (ticks.cursor or "")
    assert later.run_requests[0].tags[REPOLLS] == DAYS[2]


def test_days_beside_one_that_was_replaced_and_retracted_days_are_run_again(ingested: Path, tmp_path: Path) -> None:
    from trajectory_platform.stages.context import StageContext
    from trajectory_platform.stages.retraction import retract

    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    settings = Settings(data_root=str(tmp_path / "days"), lake_uri=str(tmp_path / "lake"), first_day=FIRST)
    ticks = _repoll(settings)
    assert "final or were never begun" in ticks.tick().skip_message
    ctx = StageContext(settings)
    trace = ctx.lake.read("axis_a_corpus", [DAYS[1]], columns=["trace_id"]).column("trace_id").to_pylist()[0]
    retract(ctx, trace, reason="asked for", at=NOW)
    [request] = ticks.tick().run_requests
    assert request.partition_key == DAYS[1] and "retracted since" in request.tags[REASON]


def test_runs_of_a_range_and_of_a_backfill_count_as_busy(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    _old(tmp_path / "days")
    ticks = _watch(settings)
    ticks.has_run(JOB, STATUS.STARTING, {RANGE_START: DAYS[0], RANGE_END: DAYS[2]})
    ticks.has_run("__ASSET_JOB", STATUS.STARTED, {PARTITION: DAYS[3], "dagster/backfill": "abc"})
    assert _days(ticks.tick()) == ["2026-05-06"]


def test_the_version_of_a_folder_says_what_changed(tmp_path: Path) -> None:
    day = tmp_path / "2026-05-02"
    (day / "artifacts" / "r1").mkdir(parents=True)
    (day / "artifacts" / "r1" / "p.json.gz").write_bytes(b"x")
    first = listed(str(tmp_path), FIRST)
    assert first.files == 1 and first == listed(str(tmp_path), FIRST)
    os.utime(day / "artifacts" / "r1" / "p.json.gz", ns=(1, 1))
    touched = listed(str(tmp_path), FIRST)
    assert touched.version != first.version and touched.newest_ns == 1
    (day / "artifacts" / "r1" / "q.json.gz").symlink_to("/etc/passwd")
    assert listed(str(tmp_path), FIRST).files == 2
    looked = listed(str(tmp_path), FIRST)
    (day / "fetch.json").write_text("{}")
    assert listed(str(tmp_path), FIRST) == looked, "a look at the source that brought nothing changes nothing"
    shutil.rmtree(day)
    assert listed(str(tmp_path), FIRST).files == 0


def test_tags_name_what_is_asked_for(days: Path, tmp_path: Path) -> None:
    settings = place(days, tmp_path)
    _old(tmp_path / "days")
    for request in _watch(settings).tick().run_requests:
        day, _, version = request.tags[RAW_VERSION].partition("@")
        assert day == request.partition_key and request.run_key == f"raw:{day}:{version}:1"
