"""A pair that is judged again on a later day moves there: listed once, fetched once, and both days end correct."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("oro_sdk", reason="the local server answers with oro-sdk's models")

from trajectory_platform.arena.oro_server import LocalServer
from trajectory_platform.arena.oro_server_clock import ServerClock
from trajectory_platform.arena.oro_server_history import text_of
from trajectory_platform.arena.simulate import simulate
from trajectory_platform.errors import RetryLater
from trajectory_platform.sources.fetch_report import FetchReport
from trajectory_platform.sources.oro_api import ApiAccess, fetch_day, is_due, open_client, open_days
from trajectory_platform_tests.sources.oro_fake import FakeOro, Fault, a_qualifier, error
from trajectory_platform_tests.sources.test_oro_api import (
    ALL,
    DAY,
    P1,
    P2,
    R1,
    R2,
    RACE,
    V1,
    Setup,
    a_result,
    a_run,
    an_entry,
    names,
)

ONE, TWO, THREE = (date(2026, 5, day) for day in (2, 3, 4))
LATER = DAY + timedelta(days=1)


class Looks:
    """Looks at the days of a local server, whose clock and ours are one."""

    def __init__(self, server: LocalServer, clock: ServerClock, root: Path) -> None:
        self.server, self.clock, self.root = server, clock, root
        self.access = ApiAccess(
            server.url,
            str(root / "days"),
            str(root / "state"),
            requests_per_minute=1_000_000,
            artifact_hosts=("127.0.0.1",),
        )

    def at(self, day: date, now: datetime) -> FetchReport:
        self.clock.set(now)
        with open_client(self.access, sleep=lambda seconds: None) as client:
            return fetch_day(day, access=self.access, client=client, clock=lambda: now, sleep=lambda seconds: None)

    def due(self, now: datetime) -> list[date]:
        found = open_days(self.access, first=ONE, last=THREE, clock=lambda: now)
        return [one.day for one in found if is_due(one, now)]

    def places(self, run: str, problem: str) -> tuple[list[str], list[str]]:
        """Days that list a pair, and days in whose folder its artifact lies."""
        days = self.root / "days"
        listed = [
            file.parent.name
            for file in sorted(days.glob("2*/problems.jsonl"))
            for line in file.read_text().splitlines()
            for result in json.loads(line)["validator_results"]
            if (result["eval_run_id"], json.loads(line)["problem_id"]) == (run, problem)
        ]
        return listed, sorted(path.parts[-4] for path in days.glob(f"2*/artifacts/{run}/{problem}.json.gz"))

    def judge_again(self, day: date, moment: datetime) -> tuple[str, str]:
        """One qualifying pair of a day gets its verdict once more; its run stays as it is."""
        for results in self.server.history.results_of.values():
            for place, one in enumerate(results):
                pair = (str(one.row["eval_run_id"]), str(one.entry["problem_id"]))
                good = one.row["status"] == "SUCCESS" and one.judged_at is not None and one.judged_at.date() == day
                if good and pair in self.server.history.artifacts and not one.entry.get("race_id"):
                    row = {**one.row, "updated_at": text_of(moment)}
                    results[place] = one._replace(row=row, judged_at=moment)
                    return pair
        raise AssertionError("no such pair")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("history")
    simulate(root, days=3, traces_per_day=20, first_day=ONE, seed=12)
    return root


@pytest.fixture
def looks(history: Path, tmp_path: Path) -> Iterator[Looks]:
    clock = ServerClock(datetime(2026, 5, 3, 4, tzinfo=UTC))
    with LocalServer(history, clock=clock, requests_per_minute=1_000_000) as server:
        yield Looks(server, clock, tmp_path)


def test_a_pair_of_a_day_that_is_final_is_found_where_it_was_judged_again(looks: Looks) -> None:
    first = looks.at(ONE, datetime(2026, 5, 4, 4, tzinfo=UTC))
    looks.at(ONE, datetime(2026, 5, 4, 6, tzinfo=UTC))
    first = looks.at(ONE, datetime(2026, 5, 4, 8, tzinfo=UTC))
    assert first.state != "open"
    pair = looks.judge_again(ONE, datetime(2026, 5, 4, 23, 30, tzinfo=UTC))
    late = looks.at(THREE, datetime(2026, 5, 5, 4, tzinfo=UTC))
    assert late.reconciliation == "match"
    assert looks.places(*pair)[1] == ["2026-05-04"], "moved, not fetched once more"
    assert ONE in looks.due(datetime(2026, 5, 5, 5, tzinfo=UTC))
    again = looks.at(ONE, datetime(2026, 5, 5, 6, tzinfo=UTC))
    assert looks.places(*pair) == (["2026-05-04"], ["2026-05-04"])
    assert (again.pairs, again.fetched, again.reconciliation) == (first.pairs - 1, first.fetched - 1, "match")
    stored = Counter(row.path for row in looks.server.log.rows() if row.path.startswith("/storage/"))
    assert stored[f"/storage/artifacts/{pair[0]}/{pair[1]}.json.gz"] == 1


@pytest.mark.parametrize("order", [(ONE, TWO, ONE), (TWO, ONE, TWO, ONE)], ids=["first_day_first", "second_day_first"])
def test_both_days_end_correct_in_whatever_order_they_are_looked_at(looks: Looks, order: tuple[date, ...]) -> None:
    looks.at(ONE, datetime(2026, 5, 3, 4, tzinfo=UTC))
    pair = looks.judge_again(ONE, datetime(2026, 5, 3, 23, 30, tzinfo=UTC))
    now = datetime(2026, 5, 4, 4, tzinfo=UTC)
    reports: dict[date, FetchReport] = {}
    for day in order:
        now += timedelta(hours=2)
        reports[day] = looks.at(day, now)
    assert looks.places(*pair) == (["2026-05-03"], ["2026-05-03"])
    assert {report.reconciliation for report in reports.values()} == {"match"}


# ---------------------------------------------------------------------------------------------- by hand


def judged_again(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    """The entries of ``small_world``, with these pairs judged on the day after."""
    return [
        an_entry(
            problem,
            *(a_result(run, "2026-05-02T09:00:00Z") if (run, problem) in pairs else a_result(run) for run in (R1, R2)),
        )
        for problem in (P1, P2)
    ]


def count(fake: FakeOro, *distinct: int) -> None:
    """What the subnet counts for ``DAY`` and the days after it."""
    days = ((DAY + timedelta(days=number)).isoformat() for number in range(len(distinct)))
    series = [{"date": day, "distinct": one, "cumulative": 9} for day, one in zip(days, distinct, strict=True)]
    fake.world.history = {"series": series, "total": 9}


def test_a_pair_that_was_given_up_is_asked_for_again_where_it_was_judged_again(fake: FakeOro, tmp_path: Path) -> None:
    setup = Setup(fake, tmp_path)
    setup.clock.forward(days=-1)
    stored = fake.world.artifacts.pop((R1, P1))
    for _ in range(3):
        report = setup.fetch()
        setup.clock.forward(hours=2)
    assert report.gone == {"artifact_not_found": 1}
    fake.world.artifacts[(R1, P1)] = stored
    fake.world.problems[V1] = judged_again((R1, P1))
    count(fake, 2, 1)
    setup.clock.forward(days=1)
    moved = setup.fetch(LATER)
    assert (moved.pairs, moved.fetched) == (1, 1)
    assert setup.artifacts(LATER) == names((R1, P1))


def test_what_a_short_day_asks_versions_of_other_days_it_asks_once(fake: FakeOro, tmp_path: Path) -> None:
    setup = Setup(fake, tmp_path)
    count(fake, 2, 5)  # the subnet counts what no list shows
    setup.fetch()
    asked = fake.count("/problems")
    setup.clock.forward(hours=2)
    assert setup.fetch(LATER).reconciliation == "short"
    assert fake.count("/problems") == asked + 1
    for _ in range(3):
        setup.clock.forward(days=1)
        setup.fetch(LATER)
    assert fake.count("/problems") == asked + 1, "what was judged on a day was judged before it ended"


def test_a_version_that_cannot_be_read_does_not_hold_a_day_open_on_which_it_most_likely_has_nothing(
    fake: FakeOro, tmp_path: Path
) -> None:
    setup = Setup(fake, tmp_path)
    count(fake, 2, 0, 5)
    setup.fetch()
    fake.world.hidden_versions = {V1}
    setup.clock.forward(days=2)
    report = setup.fetch(DAY + timedelta(days=2))
    assert report.hidden_versions == {}
    assert report.oddities["judged_late_unread:agent_version_not_found"] == 1


def test_a_day_whose_pair_another_process_moves_during_the_look_is_looked_at_again(
    fake: FakeOro, tmp_path: Path
) -> None:
    setup, other = Setup(fake, tmp_path), Setup(fake, tmp_path)
    count(fake, 2, 1)
    other.clock.forward(hours=2)

    def meanwhile(what: str, done: int, of: int | None) -> None:
        if (what, done) == ("artifacts", of):
            fake.world.problems[V1] = judged_again((R1, P1))
            other.fetch(LATER)

    setup.fetch(progress=meanwhile)
    assert [one.day for one in open_days(setup.access, first=DAY, last=DAY, clock=setup.clock)] == [DAY]
    setup.clock.forward(hours=2)
    setup.fetch()
    assert setup.artifacts() == ALL - names((R1, P1))
    assert setup.artifacts(LATER) == names((R1, P1))
    listed = [
        (result["eval_run_id"], entry["problem_id"])
        for day in (DAY, LATER)
        for entry in setup.lines("problems.jsonl", day)
        for result in entry["validator_results"]
    ]
    assert len(listed) == len(set(listed)) == 4


def test_without_its_state_a_pair_that_was_judged_again_leaves_the_day_it_was_on(fake: FakeOro, tmp_path: Path) -> None:
    setup = Setup(fake, tmp_path)
    count(fake, 2, 1)
    assert setup.fetch().state == "final"
    shutil.rmtree(setup.access.state)
    fake.world.problems[V1] = judged_again((R1, P1))
    setup.clock.forward(days=1)
    setup.fetch(LATER)  # named by hand: nobody has asked which days are open
    assert [one.day for one in open_days(setup.access, first=DAY, last=LATER, clock=setup.clock)] == [DAY]
    assert setup.fetch().pairs == 3
    assert (setup.artifacts(), setup.artifacts(LATER)) == (ALL - names((R1, P1)), names((R1, P1)))
    assert open_days(setup.access, first=DAY, last=LATER, clock=setup.clock) == []


def test_a_pair_whose_time_is_set_back_returns_to_the_day_that_knows_its_version(fake: FakeOro, tmp_path: Path) -> None:
    fake.world.problems[V1] = judged_again((R1, P1), (R2, P2))
    count(fake, 2, 2)
    setup = Setup(fake, tmp_path)
    setup.clock.forward(days=1)
    assert [setup.fetch(day).state for day in (DAY, LATER)] == ["final"] * 2
    fake.world.problems[V1] = judged_again((R2, P2))
    count(fake, 2, 1)
    setup.clock.forward(days=1)
    setup.fetch(LATER)
    assert [one.day for one in open_days(setup.access, first=DAY, last=LATER, clock=setup.clock)] == [DAY]
    setup.fetch()
    assert [setup.fetch(day).state for day in (LATER, DAY)] == ["final"] * 2
    assert (setup.artifacts(), setup.artifacts(LATER)) == (ALL - names((R2, P2)), names((R2, P2)))


def test_a_pair_with_results_of_two_days_is_of_the_later_one(fake: FakeOro, tmp_path: Path) -> None:
    twice = an_entry(P1, a_result(R1), a_result(R1, "2026-05-02T09:00:00Z"))
    fake.world.problems[V1] = [twice, an_entry(P2, a_result(R1), a_result(R2))]
    count(fake, 1, 1)
    setup = Setup(fake, tmp_path)
    setup.clock.forward(days=1)
    first, later = setup.fetch(), setup.fetch(LATER)
    assert first.oddities["older_result_of_a_pair"] == 1
    assert (setup.artifacts(), setup.artifacts(LATER)) == (names((R1, P2), (R2, P2)), names((R1, P1)))
    assert (first.pairs, later.pairs) == (2, 1)
    assert open_days(setup.access, first=DAY, last=LATER, clock=setup.clock) == [], "the days do not hand it to and fro"


def test_an_api_that_is_down_is_not_asked_for_every_version_of_the_days_before(fake: FakeOro, tmp_path: Path) -> None:
    for number in range(10, 30):
        version, run = f"bbbbbbbb-0000-4000-8000-0000000000{number}", f"dddddddd-0000-4000-8000-0000000000{number}"
        fake.world.versions[version] = {**fake.world.versions[V1], "agent_version_id": version}
        fake.world.runs[version] = [a_run(1, version, eval_run_id=run)]
        fake.world.problems[version] = [an_entry(P1, a_result(run))]
        fake.world.qualifiers[RACE].append(a_qualifier(fake.world.versions[version]))
    setup = Setup(fake, tmp_path)
    count(fake, 22, 5)
    setup.fetch()
    setup.clock.forward(hours=2)
    fake.faults.append(Fault("/problems", status=503, body=error("DOWN"), times=1000))
    asked = fake.count("/problems")
    with pytest.raises(RetryLater, match="server_error"):
        setup.fetch(LATER)
    assert fake.count("/problems") == asked + 3 * 5
