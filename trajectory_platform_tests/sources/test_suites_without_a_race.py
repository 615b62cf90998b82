"""Agent versions of a suite that never had a race are found on a day that has one, and cost next to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("oro_sdk", reason="the local server answers with oro-sdk's models")

from trajectory_platform.arena.oro_server import LocalServer
from trajectory_platform.arena.oro_server_clock import ServerClock
from trajectory_platform.arena.oro_server_history import History
from trajectory_platform.arena.simulate import simulate
from trajectory_platform.sources.fetch_report import FetchReport
from trajectory_platform.sources.oro_api import ApiAccess, fetch_day, open_client
from trajectory_platform_tests.sources.oro_fake import FakeOro, serving
from trajectory_platform_tests.sources.test_oro_api import (
    DAY,
    P1,
    R1,
    RACE,
    V1,
    V2,
    Setup,
    a_result,
    a_run,
    an_entry,
    small_world,
)

FIRST = date(2026, 5, 2)
DAYS = [FIRST + timedelta(days=number) for number in range(3)]
NOW = datetime(2026, 5, 28, 3, 30, tzinfo=UTC)
NEVER_RACED = 99


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("history")
    simulate(root, days=3, traces_per_day=20, first_day=FIRST, seed=12)
    return root


def take_out_of_races(history: History) -> set[str]:
    """Versions that no race ever had are of a suite of their own from now on."""
    raced = {run.version_id for run in history.runs.values() if run.race_id}
    raced |= {str(one["agent_version_id"]) for race in history.races.values() for one in race.qualifiers}
    moved = {version for version in history.versions if version not in raced}
    for version in moved:
        history.versions[version] = {**history.versions[version], "suite_id": NEVER_RACED}
        for run in history.runs_of.get(version, []):
            run.row["suite_id"] = NEVER_RACED
    _, head, problems = next(iter(history.suites.values()))
    names = {"suite_id": NEVER_RACED, "suite_version": NEVER_RACED}
    history.suites[NEVER_RACED] = (FIRST, {**head, **names}, problems)
    return moved


def looks(server: LocalServer, root: Path) -> list[FetchReport]:
    access = ApiAccess(
        server.url,
        str(root / "days"),
        str(root / "state"),
        requests_per_minute=1_000_000,
        artifact_hosts=("127.0.0.1",),
    )
    with open_client(access, sleep=lambda seconds: None) as client:
        return [
            fetch_day(day, access=access, client=client, clock=lambda: NOW, sleep=lambda seconds: None) for day in DAYS
        ]


def listing(reports: list[FetchReport]) -> int:
    return sum(report.requests.get("listing", 0) for report in reports)


def test_versions_of_a_suite_that_was_never_raced_are_found_at_the_cost_of_three_requests(
    history: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"clock": ServerClock(NOW), "requests_per_minute": 1_000_000}
    with LocalServer(history, **options) as server:
        raced = looks(server, tmp_path / "raced")
    with LocalServer(history, **options) as server:
        assert take_out_of_races(server.history)
        reports = looks(server, tmp_path / "not_raced")
    assert [report.reconciliation for report in reports] == ["match"] * 3
    assert [report.pairs for report in reports] == [report.pairs for report in raced]
    # The list of all suites, the board of that suite, its problems: once for the three days.
    assert listing(reports) <= listing(raced) + 3


@pytest.fixture
def fake() -> Iterator[FakeOro]:
    """A race in suite 7, and suite 9, which never had one."""
    world = small_world()
    world.suites[9] = {"suite": {"suite_id": 9}, "problems": []}
    world.versions[V2] = {**world.versions[V1], "agent_version_id": V2, "suite_id": 9}
    world.runs[V2] = [a_run(3, V2, suite_id=9)]
    world.problems[V2] = [an_entry(P1, a_result(world.runs[V2][0]["eval_run_id"]))]
    world.artifacts[(world.runs[V2][0]["eval_run_id"], P1)] = world.artifacts[(R1, P1)]
    with serving(world) as server:
        yield server


def an_eligible(at: str | None) -> dict[str, Any]:
    known = {"rank": 1, "agent_name": "a", "miner_hotkey": "5m", "version_number": 1, "final_score": 0.5}
    return {**known, "agent_version_id": V2, "eligible_at": at}


@pytest.mark.parametrize(
    ("eligible_at", "asked"),
    [
        ("2026-05-01T12:00:00Z", True),
        ("2026-05-04T12:00:00Z", True),
        ("2026-04-30T22:00:00Z", True),
        (None, True),
        ("2026-04-01T12:00:00Z", False),
        ("2026-05-20T12:00:00Z", False),
    ],
    ids=["on_the_day", "days_later", "the_evening_before", "unknown", "weeks_before", "weeks_after"],
)
def test_a_version_that_became_eligible_about_the_day_is_asked_for(
    fake: FakeOro, tmp_path: Path, eligible_at: str | None, asked: bool
) -> None:
    fake.world.boards[9] = [an_eligible(eligible_at)]
    report = Setup(fake, tmp_path).fetch()
    assert fake.count(f"agent-versions/{V2}/runs") == asked
    assert report.pairs == (5 if asked else 4)


def test_a_board_that_was_read_when_nobody_of_the_day_could_come_any_more_is_not_read_again(
    fake: FakeOro, tmp_path: Path
) -> None:
    fake.world.boards[9] = [an_eligible("2026-05-01T12:00:00Z")]
    setup = Setup(fake, tmp_path)
    setup.clock.forward(days=9)
    assert setup.fetch().pairs == 5
    setup.clock.forward(days=3)
    assert setup.fetch().pairs == 5
    assert fake.count("leaderboard.*suite_id=9") == 1
    assert fake.count("leaderboard.*suite_id=7") == 4, "of the suite of the day's race both boards are read anew"


def test_a_suite_whose_first_race_began_after_the_day_had_none_on_it(fake: FakeOro, tmp_path: Path) -> None:
    later = {**fake.world.races[0], "race_id": RACE[:-1] + "2", "suite_id": 9}
    times = ("created_at", "race_started_at", "race_completed_at")
    fake.world.races.insert(0, {**later, **{name: str(later[name]).replace("05-01", "05-09") for name in times}})
    fake.world.boards[9] = [an_eligible("2026-05-01T12:00:00Z")]
    setup = Setup(fake, tmp_path)
    setup.clock.forward(days=9)
    assert setup.fetch(DAY).pairs == 5
