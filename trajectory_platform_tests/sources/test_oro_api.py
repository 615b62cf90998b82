"""A day fetched from the API: complete, accounted for, resumable, and the same raw day as from files."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from trajectory_platform.errors import Abort, RetryLater
from trajectory_platform.sources.api_state import ApiState
from trajectory_platform.sources.container import Limits
from trajectory_platform.sources.fetch_report import FetchReport
from trajectory_platform.sources.files import FileSource
from trajectory_platform.sources.oro_api import ApiAccess, fetch_day, is_due, open_client, open_days, read_report
from trajectory_platform.traces.inventory import inventory_day
from trajectory_platform_tests.sources.oro_fake import (
    FakeOro,
    Fault,
    World,
    a_qualifier,
    a_race,
    error,
    serving,
    world_of_day,
)

DAY = date(2026, 5, 1)
AFTER = datetime(2026, 5, 3, 4, tzinfo=UTC)
LIMITS = Limits(64 << 20, 256 << 20, 16 << 20, 100)
RACE = "aaaaaaaa-0000-4000-8000-000000000001"
V1 = "bbbbbbbb-0000-4000-8000-000000000001"
V2 = "bbbbbbbb-0000-4000-8000-000000000002"
P1, P2, P3 = (f"cccccccc-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))


class Clock:
    def __init__(self, now: datetime = AFTER) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **more: float) -> None:
        self.now += timedelta(**more)


def a_run(number: int, version: str = V1, **more: Any) -> dict[str, Any]:
    return {
        "eval_run_id": f"dddddddd-0000-4000-8000-00000000000{number}",
        "agent_version_id": version,
        "suite_id": 7,
        "validator_hotkey": f"5v{number}",
        "status": "SUCCESS",
        "claimed_at": "2026-05-01T10:00:00Z",
        "lease_expires_at": "2026-05-01T11:00:00Z",
        "completed_at": "2026-05-01T10:30:00Z",
        "is_included": True,
        "invalidated_at": None,
        "phase": "QUALIFYING",
        "race_id": None,
        **more,
    }


R1, R2, R3 = (a_run(number)["eval_run_id"] for number in (1, 2, 3))


def a_result(run: str, at: str | None = "2026-05-01T10:20:00Z", **more: Any) -> dict[str, Any]:
    return {"eval_run_id": run, "validator_hotkey": "5v", "status": "SUCCESS", "score": 1.0, "updated_at": at, **more}


def an_entry(problem: str, *results: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"problem_id": problem, "category": "product", "phase": "QUALIFYING", "validator_results": results, **more}


def small_world() -> World:
    """Two runs of one agent version on two problems, all judged on ``DAY``."""
    version = {"agent_version_id": V1, "agent_name": "a", "miner_hotkey": "5m", "version_number": 1, "suite_id": 7}
    world = World(
        races=[a_race(RACE, "2026-05-01", 7)],
        qualifiers={RACE: [a_qualifier(version)]},
        versions={V1: version},
        runs={V1: [a_run(1), a_run(2)]},
        problems={V1: [an_entry(name, a_result(R1), a_result(R2)) for name in (P1, P2)]},
        suites={7: {"suite": {"suite_id": 7}, "problems": [{"problem_id": P1, "suite_id": 7, "metadata": {}}]}},
        history={"series": [{"date": "2026-05-01", "distinct": 2, "cumulative": 9}], "total": 9},
    )
    for run in (R1, R2):
        for problem in (P1, P2):
            world.artifacts[(run, problem)] = gzip.compress(f'[{{"run": "{run}", "problem": "{problem}"}}]'.encode())
    return world


class Setup:
    """One state folder and one data root against one server."""

    def __init__(self, fake: FakeOro, root: Path, **more: Any) -> None:
        self.fake, self.clock = fake, Clock()
        self.access = ApiAccess(
            fake.url,
            str(root / "days"),
            str(root / "state"),
            requests_per_minute=1_000_000,
            artifact_hosts=("127.0.0.1",),
            timeout_s=5,
            **more,
        )

    def fetch(self, day: date = DAY, **more: Any) -> FetchReport:
        with open_client(self.access, sleep=lambda seconds: None) as client:
            report = fetch_day(
                day, access=self.access, client=client, clock=self.clock, sleep=lambda seconds: None, **more
            )
        assert report.pairs == (
            report.fetched
            + report.wanted
            + sum(report.later.values())
            + sum(report.gone.values())
            + report.not_sampled
            + sum(report.not_asked.values())
        )
        return report

    def files(self, day: date = DAY) -> dict[str, bytes]:
        folder = Path(self.access.data_root) / day.isoformat()
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def artifacts(self, day: date = DAY) -> set[tuple[str, str]]:
        return {tuple(name.split("/")[1:]) for name in self.files(day) if name.startswith("artifacts/")}  # type: ignore[misc]

    def lines(self, name: str, day: date = DAY) -> list[Any]:
        return [json.loads(line) for line in self.files(day)[name].splitlines()]


def names(*pairs: tuple[str, str]) -> set[tuple[str, str]]:
    return {(run, f"{problem}.json.gz") for run, problem in pairs}


ALL = names((R1, P1), (R1, P2), (R2, P1), (R2, P2))


def test_a_day_is_fetched_once_and_is_final(setup: Setup) -> None:
    report = setup.fetch()
    assert (report.state, report.pairs, report.distinct, report.fetched, report.holes()) == ("final", 4, 2, 4, {})
    assert (report.expected, report.reconciliation) == (2, "match")
    assert report.next_look is None
    assert setup.artifacts() == ALL
    assert setup.files()[f"artifacts/{R1}/{P1}.json.gz"] == setup.fake.world.artifacts[(R1, P1)]
    before = len(setup.fake.requests)
    again = setup.fetch()
    assert again.requests == {"downloads": 0}
    assert len(setup.fake.requests) == before
    assert (again.looks, again.fetched, again.fetched_now) == (2, 4, 0)
    assert read_report(setup.access, DAY) == again
    assert open_days(setup.access, first=DAY, last=DAY, clock=setup.clock) == []


@pytest.mark.parametrize("day", ["2026-04-20", "2026-04-29", "2026-05-02"])
def test_a_fetched_day_is_the_same_raw_day_as_from_files(shared: Path, tmp_path: Path, day: str) -> None:
    with serving(world_of_day(shared / "days" / day)) as fake:
        setup = Setup(fake, tmp_path)
        setup.clock.now = datetime.fromisoformat(f"{day}T04:00:00+00:00") + timedelta(days=3)
        report = setup.fetch(date.fromisoformat(day))
    expected = inventory_day(FileSource(str(shared / "days")), date.fromisoformat(day), LIMITS)
    found = inventory_day(FileSource(setup.access.data_root), date.fromisoformat(day), LIMITS)
    # Why an artifact is not there is known better of a fetched day; everything else is equal.
    drop = ["state", "state_reason", "state_detail"]
    assert found.rows.drop_columns(drop).to_pylist() == expected.rows.drop_columns(drop).to_pylist()
    assert found.summary["moved_out"] == 0
    assert report.pairs <= expected.summary["raw_rows"]
    assert report.oddities.get("unknown_value:EvaluationRunPublic", 0) == 0


def test_case_i05(shared: Path, setup: Setup) -> None:
    """429 with Retry-After, then three objects, one behind a link that has expired."""
    case = json.loads((shared / "cases" / "I05.json").read_text())
    limited, _, expired = case["input"]["script"]
    setup.fake.world.runs[V1] = [a_run(1)]
    setup.fake.world.problems[V1] = [an_entry(name, a_result(R1)) for name in (P1, P2, P3)]
    setup.fake.world.artifacts[(R1, P3)] = gzip.compress(b"[]")
    setup.fake.faults = [
        Fault("/runs", limited["status"], error("RATE_LIMIT_EXCEEDED"), {"Retry-After": "0.01"}),
        Fault(f"/store/{R1}/{P2}", expired["status"], b"<Code>AccessDenied</Code>", times=expired["times"]),
    ]
    report = setup.fetch()
    assert len(setup.artifacts()) == report.fetched == case["expect"]["objects"]
    assert setup.fake.count("download-url") - 3 == case["expect"]["new_links"]
    assert setup.fake.count("/runs|download-url|/store/") <= case["expect"]["max_requests"]


def test_case_i08(shared: Path, tmp_path: Path) -> None:
    """What is hidden on the first visit is visited again; until then the day has holes, not everything."""
    case = json.loads((shared / "cases" / "I08.json").read_text())
    runs = {"r1": R1, "r2": R2}
    release = datetime.fromisoformat(case["input"]["release"]["r2"])
    day = release.date() - timedelta(days=2)
    world = small_world()
    at = f"{day}T10:00:00Z"
    world.races = [a_race(RACE, day.isoformat(), 7)]
    world.runs[V1] = [a_run(number, claimed_at=at, completed_at=at) for number in (1, 2)]
    world.problems[V1] = [an_entry(P1, a_result(R1, at), a_result(R2, at))]
    hidden = {name: status for name, status in case["input"]["day1"].items() if status != 200}
    world.refusals = {(runs[name], P1): (status, "ARTIFACT_NOT_RELEASED") for name, status in hidden.items()}
    with serving(world) as fake:
        setup = Setup(fake, tmp_path)
        setup.clock.now = datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=23)
        first = setup.fetch(day)
        assert setup.artifacts(day) == names(*((runs[name], P1) for name in case["expect"]["ingested"]["day1"]))
        assert (first.state, first.later) == ("open", {"not_released": 1})
        revisit = [line["eval_run_id"] for line in setup.lines("fetch_pairs.jsonl", day) if line["state"] == "later"]
        assert revisit == [runs[name] for name in case["expect"]["revisit_after_day1"]]
        setup.clock.now = release
        before = setup.artifacts(day)
        world.refusals.clear()
        setup.fetch(day)
    assert setup.artifacts(day) - before == names(*((runs[name], P1) for name in case["expect"]["ingested"]["day3"]))


# ---------------------------------------------------------------------------------------------- later, gone, given up


def test_not_found_is_tried_three_times_over_an_hour_then_gone(setup: Setup) -> None:
    del setup.fake.world.artifacts[(R1, P1)]
    report = setup.fetch()
    assert (report.state, report.later, report.open_because) == ("open", {"artifact_not_found": 1}, "later")
    asked = setup.fake.count("download-url")
    setup.clock.forward(minutes=5)
    setup.fetch()
    assert setup.fake.count("download-url") == asked  # not before its time
    for _ in range(2):
        setup.clock.forward(minutes=31)
        report = setup.fetch()
    assert report.gone == {"artifact_not_found": 1}
    assert report.state == "final_with_holes"
    assert setup.fake.count("download-url") == asked + 2


def test_an_artifact_that_comes_late_is_fetched(setup: Setup) -> None:
    late = setup.fake.world.artifacts.pop((R1, P1))
    setup.fetch()
    setup.fake.world.artifacts[(R1, P1)] = late
    setup.clock.forward(minutes=31)
    assert setup.fetch().state == "final"
    assert setup.artifacts() == ALL


def race_in_flight(world: World) -> None:
    """All four pairs are of one race, whose artifacts are refused."""
    world.runs[V1] = [a_run(1, phase="RACE", race_id=RACE), a_run(2, phase="RACE", race_id=RACE)]
    world.problems[V1] = [an_entry(name, a_result(R1), a_result(R2), phase="RACE", race_id=RACE) for name in (P1, P2)]
    world.refusals = dict.fromkeys(world.artifacts, (403, "RACE_IN_FLIGHT"))


def test_a_race_in_flight_is_asked_for_once_and_fetched_when_it_is_over(setup: Setup) -> None:
    world = setup.fake.world
    race_in_flight(world)
    report = Setup(setup.fake, Path(setup.access.data_root).parent, workers=1).fetch()
    assert report.later == {"race_in_flight": 4}
    assert setup.fake.count("download-url") == 1
    # A race that the API itself shows as running is not asked for at all.
    world.current, world.races = {**world.races[0], "race_completed_at": None, "status": "RACE_RUNNING"}, []
    setup.clock.forward(hours=30)
    assert setup.fetch().later == {"race_in_flight": 4}
    assert setup.fake.count("download-url") == 1
    world.refusals, world.current, world.races = {}, None, [a_race(RACE, "2026-05-01", 7)]
    setup.clock.forward(hours=30)
    assert setup.fetch().state == "final"
    assert setup.artifacts() == ALL


def test_what_stays_hidden_is_given_up_with_its_reason(setup: Setup) -> None:
    setup.fake.world.refusals = {(R1, P1): (404, "ARTIFACT_NOT_RELEASED")}
    assert setup.fetch().state == "open"
    setup.clock.now = datetime(2026, 5, 16, tzinfo=UTC)
    assert setup.fetch().state == "open", "old, but not asked for since it is"
    setup.clock.forward(hours=25)
    stopped = setup.fetch(stop=lambda: True)
    assert (stopped.state, stopped.gone) == ("open", {}), "what was due was not asked for"
    assert stopped.next_look is not None and stopped.next_look > setup.clock.now
    setup.clock.forward(hours=1)
    report = setup.fetch()
    assert (report.state, report.gone) == ("final_with_holes", {"given_up:not_released": 1})
    assert report.holes() == {"gone:given_up:not_released": 1}


@pytest.mark.parametrize("refusal", [(404, "ARTIFACT_NOT_RELEASED"), (403, "RACE_IN_FLIGHT")])
def test_a_backfill_that_comes_to_a_day_when_it_is_old_does_not_give_up_at_one_refusal(
    setup: Setup, refusal: tuple[int, str]
) -> None:
    setup.fake.world.refusals = {(R1, P1): refusal}
    setup.clock.now = datetime(2026, 6, 16, tzinfo=UTC)
    for _ in range(4):
        setup.clock.forward(minutes=40)
        report = setup.fetch()
        assert (report.state, report.gone, list(report.later.values())) == ("open", {}, [1])
    setup.fake.world.refusals = {}
    setup.clock.forward(hours=2)
    assert setup.fetch().state == "final"
    assert setup.artifacts() == ALL


def test_a_version_that_was_hidden_once_from_an_old_day_is_looked_at_again(setup: Setup) -> None:
    setup.fake.world.hidden_versions = {V1}
    setup.clock.now = datetime(2026, 6, 16, tzinfo=UTC)
    for _ in range(4):
        setup.clock.forward(hours=2)
        report = setup.fetch()
        assert (report.state, report.hidden_versions) == ("open", {"agent_version_not_found": 1})
    setup.fake.world.hidden_versions = set()
    setup.clock.forward(hours=7)
    assert setup.fetch().state == "final"
    assert setup.artifacts() == ALL


def test_a_race_that_all_workers_find_in_flight_at_once_is_one_try(setup: Setup) -> None:
    """All requests are out before the first answer: each is refused, and the look counts once."""
    race_in_flight(setup.fake.world)
    together = Barrier(4, timeout=20)
    setup.fake.before_refusal = together.wait
    setup.clock.now = datetime(2026, 6, 16, tzinfo=UTC)
    for look in range(3):
        report = setup.fetch()
        assert (report.state, report.later, setup.fake.count("download-url")) == (
            "open",
            {"race_in_flight": 4},
            4 * (look + 1),
        )
        setup.clock.forward(hours=3)
    setup.clock.forward(hours=6)
    assert setup.fetch().gone == {"given_up:race_in_flight": 4}


def test_a_hidden_agent_version_keeps_the_day_open_and_its_runs_are_asked_for_one_by_one(setup: Setup) -> None:
    world = setup.fake.world
    detail = {**a_run(1), "score": 0.5, "agent_name": "a", "version_number": 1}
    entries = {"agent_version_id": V1, "suite_id": 7, "problems": [an_entry(P1, a_result(R1))]}
    setup.fake.faults = [
        Fault(f"agent-versions/{V1}/problems", 200, entries, times=9),
        Fault(f"agent-versions/{V1}", 404, error("AGENT_VERSION_NOT_FOUND"), times=9),
        Fault("evaluation-runs/", 200, detail, times=9),
    ]
    report = setup.fetch()
    assert report.hidden_versions == {"agent_version_not_found": 1}
    assert report.state == "open"
    assert setup.artifacts() == names((R1, P1))
    assert setup.lines("runs.jsonl")[0]["validator_score"] == 0.5
    assert setup.lines("agent_versions.jsonl")[0] == {
        "agent_version_id": V1,
        "agent_name": "a",
        "miner_hotkey": "5m",
        "version_number": 1,
        "record_source": "listed",
    }
    setup.fake.faults = []
    setup.clock.forward(hours=25)
    assert setup.fetch().state == "final"
    assert setup.artifacts() == ALL
    assert setup.lines("agent_versions.jsonl") == [
        {**world.versions[V1], **dict.fromkeys(set(setup.lines("agent_versions.jsonl")[0]) - set(world.versions[V1]))}
    ]


def test_what_an_earlier_look_found_stays_when_a_version_cannot_be_read(setup: Setup) -> None:
    setup.fake.world.refusals = {(R1, P1): (404, "ARTIFACT_NOT_RELEASED")}
    setup.fetch()
    before = {name: data for name, data in setup.files().items() if name != "fetch.json"}
    setup.fake.faults = [Fault(f"agent-versions/{V1}", 500, times=99)]
    setup.clock.forward(hours=30)
    report = setup.fetch()
    assert report.hidden_versions == {"server_error": 1}
    assert {name: data for name, data in setup.files().items() if name != "fetch.json"} == before


def test_unfinished_runs_are_rows_and_their_pairs_are_asked_for_when_they_are_final(setup: Setup) -> None:
    world = setup.fake.world
    world.history["series"][0]["distinct"] = 1
    world.runs[V1] = [a_run(1), a_run(2, status="RUNNING", completed_at=None)]
    world.problems[V1] = [an_entry(P1, a_result(R1), a_result(R2, None, status="RUNNING"))]
    report = setup.fetch()
    assert report.not_asked == {"not_final": 1}
    assert report.open_because == "not_final"
    assert [run["status"] for run in setup.lines("runs.jsonl")] == ["SUCCESS", "RUNNING"]
    world.runs[V1] = [a_run(1), a_run(2)]
    world.problems[V1] = [an_entry(P1, a_result(R1), a_result(R2))]
    setup.clock.forward(hours=30)
    assert setup.fetch().state == "final"
    assert setup.artifacts() == names((R1, P1), (R2, P1))


def test_all_runs_are_rows_and_an_invalidation_is_picked_up(setup: Setup) -> None:
    world = setup.fake.world
    world.runs[V1] = [a_run(1), a_run(2, status="FAILED"), a_run(3, status="STALE")]
    world.refusals = {(R1, P1): (404, "ARTIFACT_NOT_RELEASED")}
    setup.fetch()
    assert [run["status"] for run in setup.lines("runs.jsonl")] == ["SUCCESS", "FAILED", "STALE"]
    world.runs[V1][0] = a_run(1, invalidated_at="2026-05-03T05:00:00Z", invalidation_reason="audit", is_included=False)
    setup.clock.forward(hours=30)
    digest = FileSource(setup.access.data_root).digest(DAY)
    report = setup.fetch()
    assert setup.lines("runs.jsonl")[0]["invalidation_reason"] == "audit"
    assert report.run_labels == {"excluded": 1, "excluded_infra": 1, "excluded_unknown": 1}
    assert FileSource(setup.access.data_root).digest(DAY) != digest


# ---------------------------------------------------------------------------------------------- days


def test_pairs_go_to_the_utc_day_they_were_judged_on(setup: Setup) -> None:
    world = setup.fake.world
    times = ["2026-05-01T23:59:59.999999Z", "2026-05-02T00:00:00Z", "2026-05-02T01:30:00+02:00", 1777680000]
    problems = [P1, P2, P3, "cccccccc-0000-4000-8000-000000000004"]
    world.races = [{**a_race(RACE, "2026-05-01", 7), "race_completed_at": "2026-05-02T02:00:00Z"}]
    world.runs[V1] = [a_run(1, completed_at="2026-05-02T00:40:00Z")]
    world.problems[V1] = [an_entry(name, a_result(R1, at)) for name, at in zip(problems, times, strict=True)]  # type: ignore[arg-type]
    world.artifacts = {(R1, name): gzip.compress(b"[]") for name in problems}
    first, second = setup.fetch(), setup.fetch(date(2026, 5, 2))
    assert setup.artifacts() == names((R1, P1), (R1, P3))
    assert setup.artifacts(date(2026, 5, 2)) == names((R1, P2), (R1, problems[3]))
    assert (first.pairs, second.pairs) == (2, 2)
    for day in (DAY, date(2026, 5, 2)):
        assert [run["eval_run_id"] for run in setup.lines("runs.jsonl", day)] == [R1]
    listed = [entry["problem_id"] for day in (DAY, date(2026, 5, 2)) for entry in setup.lines("problems.jsonl", day)]
    assert sorted(listed) == sorted(problems)


def test_a_time_without_zone_is_utc_and_counted(setup: Setup) -> None:
    setup.fake.world.problems[V1] = [an_entry(P1, a_result(R1, "2026-05-01T23:59:00"))]
    report = setup.fetch()
    assert report.pairs == 1
    assert report.oddities["time_without_zone"] == 1


def test_a_pair_that_is_judged_anew_moves_without_being_fetched_again(setup: Setup) -> None:
    setup.fetch()
    setup.fetch(date(2026, 5, 2))
    world = setup.fake.world
    world.problems[V1] = [an_entry(P1, a_result(R1, "2026-05-02T09:00:00Z"), a_result(R2)), *world.problems[V1][1:]]
    setup.clock.forward(hours=30)
    setup.fetch()
    assert open_days(setup.access, first=DAY, last=date(2026, 5, 2), clock=setup.clock)[0].reason == "judged_again"
    moved = setup.fetch(date(2026, 5, 2))
    assert (moved.pairs, moved.fetched, moved.fetched_now) == (1, 1, 0)
    assert setup.artifacts(date(2026, 5, 2)) == names((R1, P1))
    assert setup.artifacts() == ALL - names((R1, P1))
    assert set(setup.fake.downloads().values()) == {1}
    setup.fetch()
    assert open_days(setup.access, first=DAY, last=date(2026, 5, 2), clock=setup.clock) == []


def test_open_days_tell_what_is_to_be_looked_at_and_when(setup: Setup) -> None:
    setup.fake.world.refusals = {(R1, P1): (404, "ARTIFACT_NOT_RELEASED")}
    setup.fetch()
    days = open_days(setup.access, first=date(2026, 4, 30), clock=setup.clock)
    assert [(day.day.isoformat(), day.state) for day in days] == [
        ("2026-04-30", "never_looked"),
        ("2026-05-01", "open"),
        ("2026-05-02", "never_looked"),
        ("2026-05-03", "never_looked"),
    ]
    assert [is_due(day, setup.clock()) for day in days] == [True, False, True, True]
    assert is_due(days[1], setup.clock() + timedelta(hours=2))


def test_a_lost_state_folder_costs_requests_but_no_download(setup: Setup, tmp_path: Path) -> None:
    setup.fetch()
    downloads = setup.fake.downloads()
    again = Setup(setup.fake, tmp_path / "other")
    again.access = ApiAccess(**{**vars(again.access), "data_root": setup.access.data_root})
    assert open_days(again.access, first=DAY, last=DAY, clock=setup.clock) == []  # fetch.json says so
    report = again.fetch()
    assert (report.adopted, report.fetched, report.fetched_now, report.looks) == (4, 4, 0, 2)
    assert setup.fake.downloads() == downloads


def test_a_file_that_vanished_is_fetched_again(setup: Setup) -> None:
    setup.fetch()
    (Path(setup.access.data_root) / f"2026-05-01/artifacts/{R1}/{P1}.json.gz").unlink()
    assert setup.fetch().fetched_now == 1
    assert setup.artifacts() == ALL


# ---------------------------------------------------------------------------------------------- completeness


@pytest.mark.parametrize(
    ("history", "expected", "state", "reconciliation"),
    [
        ({"series": [], "total": None}, None, "cold_cache", "unknown"),
        ({"series": [{"date": "2026-05-01", "distinct": 0}], "total": None}, None, "cold_cache", "unknown"),
        ({"series": [{"date": "2026-04-30", "distinct": 5}], "total": 5}, None, "day_not_listed", "unknown"),
        ({"series": [{"date": "2026-05-01", "distinct": 3}], "total": 3}, 3, "counted", "short"),
        ({"series": [{"date": "2026-05-01", "distinct": 1}], "total": 1}, 1, "counted", "over"),
    ],
)
def test_a_cold_cache_is_not_zero(
    setup: Setup, history: Any, expected: int | None, state: str, reconciliation: str
) -> None:
    setup.fake.world.history = history
    report = setup.fetch()
    assert (report.expected, report.expected_state, report.reconciliation) == (expected, state, reconciliation)


def test_above_the_budget_a_sample_is_fetched_and_every_pair_is_accounted_for(fake: FakeOro, tmp_path: Path) -> None:
    setup = Setup(fake, tmp_path)
    listing = setup.fetch().requests["listing"]
    sampled = Setup(fake, tmp_path / "sampled", requests_per_day=listing + 3)
    report = sampled.fetch(axis_history={"5m": 0.9})
    assert (report.fetched, report.not_sampled, report.state) == (2, 2, "final_with_holes")
    assert report.sampling is not None
    assert report.sampling["places"] == 2
    lines = sampled.lines("fetch_pairs.jsonl")
    assert sorted(line["state"] for line in lines) == ["fetched", "fetched", "not_sampled", "not_sampled"]
    assert all(line["stratum"].startswith("5m:") and 0 < line["probability"] <= 1 for line in lines if "weight" in line)
    raw = FileSource(sampled.access.data_root).open_day(DAY)
    assert {line["reason"] for line in raw.unfetched.values()} == {"request_budget"}
    assert len(raw.problems) == 2  # found, and said to be not fetched; not absent
    again = sampled.fetch(axis_history={"5m": 0.9})
    assert (again.fetched_now, again.not_sampled) == (0, 2)
    sampled.access = ApiAccess(**{**vars(sampled.access), "requests_per_day": None})
    assert sampled.fetch().state == "final"
    assert sampled.artifacts() == ALL


def test_pairs_inside_a_whole_file_have_no_file_of_their_own(setup: Setup) -> None:
    whole = b"".join(json.dumps({"problem_id": name, "dialogue": []}).encode() + b"\n" for name in (P1, P2))
    setup.fake.world.artifacts = {(run, P1): whole for run in (R1, R2)}
    report = setup.fetch()
    assert (report.state, report.fetched, report.gone) == ("final", 2, {"in_whole_file": 2})


@pytest.mark.parametrize("first", ["the day of the file", "the day beside"])
def test_a_pair_inside_the_whole_file_of_the_day_beside_is_no_hole(setup: Setup, first: str) -> None:
    beside = DAY + timedelta(days=1)
    whole = b"".join(
        json.dumps({"problem_id": name, "dialogue": [{"role": "user"}]}).encode() + b"\n" for name in (P1, P2)
    )
    world = setup.fake.world
    world.problems[V1] = [an_entry(P1, a_result(R1)), an_entry(P2, a_result(R1, "2026-05-02T09:00:00Z"))]
    world.artifacts = {}
    setup.clock.forward(hours=30)
    if first == "the day beside":
        setup.fetch()
        for _ in range(3):
            lost = setup.fetch(beside)
            setup.clock.forward(hours=1)
        assert (lost.state, lost.gone) == ("final_with_holes", {"artifact_not_found": 1})
    world.artifacts = {(R1, P1): whole}
    setup.fetch()
    if first == "the day beside":
        assert beside in [one.day for one in open_days(setup.access, first=DAY, last=beside, clock=setup.clock)]
    report = setup.fetch(beside)
    assert (report.state, report.gone) == ("final", {"in_whole_file": 1})
    rows = inventory_day(FileSource(setup.access.data_root), beside, LIMITS).rows.to_pylist()
    assert [(row["problem_id"], row["state"]) for row in rows] == [(P2, "trace")]


def test_a_whole_file_that_lay_in_the_folder_already_is_looked_into(setup: Setup) -> None:
    whole = b"".join(json.dumps({"problem_id": name, "dialogue": []}).encode() + b"\n" for name in (P1, P2))
    setup.fake.world.artifacts = {(run, P1): whole for run in (R1, R2)}
    setup.fetch()
    shutil.rmtree(setup.access.state)
    report = setup.fetch()
    assert (report.adopted, report.state, report.gone) == (2, "final", {"in_whole_file": 2})


def test_no_name_of_a_server_becomes_a_path(setup: Setup, tmp_path: Path) -> None:
    evil = "../../../../evil"
    setup.fake.world.runs[V1] = [a_run(1), {**a_run(2), "eval_run_id": evil}]
    setup.fake.world.problems[V1] = [an_entry(P1, a_result(evil), a_result(R1)), an_entry(None, a_result(R1))]  # type: ignore[arg-type]
    setup.fake.world.qualifiers[RACE].append({**setup.fake.world.qualifiers[RACE][0], "agent_version_id": "../x"})
    report = setup.fetch()
    assert report.not_asked == {"no_problem_id": 1, "unsafe_id": 1}
    assert report.oddities["agent_version_without_id"] == 1
    assert setup.artifacts() == names((R1, P1))
    assert not any("evil" in str(path) for path in tmp_path.rglob("*"))
    assert len(setup.lines("runs.jsonl")) == 2


def test_a_link_to_another_host_is_not_followed_and_said(setup: Setup) -> None:
    link = {"download_url": "https://169.254.169.254/latest/meta-data", "expires_at": "2099-01-01T00:00:00Z"}
    setup.fake.faults = [Fault("download-url", 200, link, times=1)]
    report = setup.fetch()
    assert report.later == {"host_not_allowed": 1}
    assert any("api_artifact_hosts" in words for words in report.warnings)
    setup.clock.forward(days=2)
    assert setup.fetch().state == "final"


def test_a_damaged_file_is_kept_for_the_reader_to_reject(setup: Setup) -> None:
    setup.fake.world.artifacts[(R1, P1)] = setup.fake.world.artifacts[(R1, P1)][:-4]
    report = setup.fetch()
    assert (report.fetched, report.damaged) == (4, 1)
    assert setup.files()[f"artifacts/{R1}/{P1}.json.gz"] == setup.fake.world.artifacts[(R1, P1)]


# ---------------------------------------------------------------------------------------------- interruptions


def test_when_the_api_goes_down_the_look_ends_and_the_next_one_goes_on(setup: Setup) -> None:
    setup.fake.faults = [Fault("/store/", times=1), Fault("download-url", 500, times=999)]
    one = Setup(setup.fake, Path(setup.access.data_root).parent, workers=1)
    many = [f"cccccccc-0000-4000-8000-0000000001{number:02}" for number in range(20)]
    setup.fake.world.problems[V1] = [an_entry(name, a_result(R1)) for name in many]
    setup.fake.world.artifacts = {(R1, name): gzip.compress(b"[]") for name in many}
    report = one.fetch()
    assert report.stopped is not None
    assert report.stopped.startswith("server_error")
    assert report.state == "open"
    assert report.wanted >= 15
    assert setup.fake.count("download-url") <= 5 * one.access.tries
    setup.fake.faults = []
    one.clock.forward(minutes=11)
    assert one.fetch().state == "final"
    assert len(one.artifacts()) == 20


def test_when_the_listing_cannot_be_read_nothing_is_lost(setup: Setup) -> None:
    setup.fetch()
    before = setup.files()
    setup.fake.faults = [Fault("races/", 503, times=99)]
    setup.clock.forward(days=2)
    with pytest.raises(RetryLater) as refused:
        setup.fetch()
    assert refused.value.reason == "server_error"
    assert setup.files() == before


def test_a_look_can_be_stopped_and_goes_on(setup: Setup) -> None:
    one = Setup(setup.fake, Path(setup.access.data_root).parent, workers=1)
    report = one.fetch(stop=lambda: setup.fake.count("/store/") >= 1)
    assert report.stopped == "asked_to_stop"
    assert report.wanted > 0
    assert setup.fetch().state == "final"
    assert set(setup.fake.downloads().values()) == {1}


def test_one_day_is_fetched_by_one_process(setup: Setup) -> None:
    with ApiState(setup.access.state) as state, state.only_one(DAY), pytest.raises(RetryLater) as refused:
        setup.fetch()
    assert refused.value.reason == "fetch_in_progress"
    assert setup.fetch().state == "final"


def test_the_state_must_be_local(setup: Setup) -> None:
    setup.access = ApiAccess(**{**vars(setup.access), "state": "s3://bucket/state"})
    with pytest.raises(Abort, match="local folder"):
        fetch_day(DAY, access=setup.access, client=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_with_every_fourth_request_failing_the_day_still_becomes_final_and_complete(setup: Setup, seed: int) -> None:
    dice = random.Random(seed)
    kinds: list[dict[str, Any]] = [
        {"status": 500},
        {"status": 503, "headers": {"Retry-After": "0"}},
        {"status": 429, "body": error("RATE_LIMIT_EXCEEDED"), "headers": {"Retry-After": "0"}},
        {"status": 403, "body": b"<html>blocked</html>"},
        {"status": 404, "body": {"detail": "Not Found"}},
        {"status": 200, "body": b'{"races": [{"race_'},
        {"status": 200, "body": b"[]"},
        {"drop": True},
        {"cut": 3},
    ]

    def fail(path: str) -> None:
        if dice.random() < 0.25:
            setup.fake.faults.insert(0, Fault(".", **dice.choice(kinds)))

    setup.fake.before = fail
    for _ in range(30):
        try:
            report = setup.fetch()
        except RetryLater:
            report = None
        setup.clock.forward(hours=25)
        if report is not None and report.state != "open":
            break
    assert report is not None
    assert report.reconciliation == "match" or (report.expected_state, report.looks >= 3) == ("unreadable", True)
    stored = {name: data for name, data in setup.files().items() if name.startswith("artifacts/")}
    good = {f"artifacts/{run}/{problem}.json.gz": data for (run, problem), data in setup.fake.world.artifacts.items()}
    missing = set(good) - set(stored)
    # A store that answers 404 three times over an hour has nothing; what is stored is right or said to be damaged.
    assert len(missing) == sum(report.gone.values())
    assert sum(data != good[name] for name, data in stored.items()) <= report.damaged + _odd_answers(stored)
    assert report.state == ("final_with_holes" if missing else "final")


def _odd_answers(stored: dict[str, bytes]) -> int:
    """Answers of the store that were no artifact but came with status 200: whatever it stores is the reader's."""
    return sum(data[:2] != b"\x1f\x8b" for data in stored.values())


_PROCESS = """
import sys
from datetime import UTC, date, datetime
from trajectory_platform.sources.oro_api import ApiAccess, fetch_day, open_client
access = ApiAccess(sys.argv[1], sys.argv[2] + "/days", sys.argv[2] + "/state", requests_per_minute=1_000_000,
    artifact_hosts=("127.0.0.1",), workers=3)
with open_client(access) as client:
    report = fetch_day(date(2026, 4, 20), access=access, client=client, clock=lambda: datetime(2026, 4, 23, tzinfo=UTC))
print(report.state, report.fetched)
"""


@pytest.mark.parametrize("seed", [0, pytest.param(range(1, 20), marks=pytest.mark.slow, id="1-19")])
def test_a_fetch_that_is_killed_anywhere_goes_on_without_loss_or_repetition(
    shared: Path, tmp_path: Path, seed: int | range
) -> None:
    for number in [seed] if isinstance(seed, int) else seed:
        _kill_and_resume(shared, tmp_path / str(number), number)


def _kill_and_resume(shared: Path, root: Path, seed: int) -> None:
    root.mkdir()
    world = world_of_day(shared / "days" / "2026-04-20")
    dice = random.Random(seed)
    deaths = sorted(dice.sample(range(1, 470), 2))
    with serving(world) as fake:
        process: list[subprocess.Popen[bytes]] = []

        def die(path: str) -> None:
            if deaths and len(fake.requests) >= deaths[0] and process:
                deaths.pop(0)
                os.kill(process[-1].pid, signal.SIGKILL)

        fake.before = die
        for _ in range(5):
            arguments = [sys.executable, "-c", _PROCESS, fake.url, str(root)]
            process.append(subprocess.Popen(arguments, stdout=subprocess.PIPE))
            out, _ = process[-1].communicate(timeout=120)
            time.sleep(dice.random() * 0.01)
            if process[-1].returncode == 0:
                break
            assert process[-1].returncode == -signal.SIGKILL
    assert not deaths
    assert out.split()[0] == b"open"  # artifacts that do not exist are tried twice more
    assert out.split()[1] == b"160"
    stored = {
        (path.parent.name, path.name.removesuffix(".json.gz")): path.read_bytes()
        for path in root.glob("days/2026-04-20/artifacts/*/*")
    }
    assert len(stored) == 160
    assert all(world.artifacts[key] == data for key, data in stored.items())
    # At most what was in flight when the process died is asked for again.
    assert fake.downloads().total() <= 160 + 2 * 3
    assert not list(root.glob("days/2026-04-20/**/part-*"))
