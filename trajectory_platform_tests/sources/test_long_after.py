"""What happens to a day after it was final, or was looked at by a wrong clock; answers that nobody would write."""

from __future__ import annotations

import gzip
import json
import shutil
from datetime import UTC, date, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import pytest

from trajectory_platform.errors import Abort, RetryLater
from trajectory_platform.sources.api_state import ApiState
from trajectory_platform.sources.fetch_report import FetchReport
from trajectory_platform.sources.oro_answers import http_date, read_json
from trajectory_platform.sources.oro_api import ApiAccess, is_due, open_days
from trajectory_platform.sources.raw_day_writer import RawDayWriter
from trajectory_platform.sources.request_limiter import RequestLimiter
from trajectory_platform_tests.sources.oro_fake import FakeOro, Fault, World, a_qualifier, a_race
from trajectory_platform_tests.sources.test_oro_api import (
    DAY,
    P1,
    P2,
    R1,
    R2,
    V1,
    Setup,
    a_result,
    a_run,
    an_entry,
)

NEXT = DAY + timedelta(days=1)
R3 = R1[:-1] + "3"
INVALIDATED = {"invalidated_at": "2026-05-06T12:00:00Z", "is_included": False}


def due(setup: Setup, last: date = DAY) -> list[date]:
    days = open_days(setup.access, first=DAY, last=last, clock=setup.clock)
    return [one.day for one in days if is_due(one, setup.clock.now)]


def settle(setup: Setup, last: date = DAY, days: float = 20) -> int:
    """Look whenever a look is due, as the sensors do; the number of looks."""
    looks, end = 0, setup.clock.now + timedelta(days=days)
    while setup.clock.now < end:
        for day in due(setup, last):
            setup.fetch(day)
            looks += 1
        setup.clock.forward(hours=1)
    return looks


def counted(*distinct: int) -> dict[str, object]:
    dated = [(DAY + timedelta(days=number), count) for number, count in enumerate(distinct)]
    return {"series": [{"date": str(day), "distinct": count, "cumulative": 9} for day, count in dated], "total": 9}


# ------------------------------------------------------------------------------------------ runs that change afterwards


@pytest.mark.parametrize("lost_state", [False, True])
def test_a_final_day_is_checked_again_until_it_is_old(setup: Setup, lost_state: bool) -> None:
    assert setup.fetch().state == "final"
    assert due(setup) == []
    setup.fake.world.runs = {V1: [a_run(1, **INVALIDATED), a_run(2)]}
    if lost_state:
        shutil.rmtree(setup.access.state)
    looks = settle(setup)
    assert [run["invalidated_at"] for run in setup.lines("runs.jsonl")] == [INVALIDATED["invalidated_at"], None]
    assert looks == 3, "three, seven and fourteen days after its end"
    assert setup.fetch().state == "final"


def test_a_look_at_another_day_that_reads_a_changed_run_has_its_days_looked_at_again(setup: Setup) -> None:
    world = setup.fake.world
    world.races.insert(0, a_race("aaaaaaaa-0000-4000-8000-000000000009", NEXT.isoformat(), 7))
    world.qualifiers[world.races[0]["race_id"]] = [a_qualifier(world.versions[V1])]
    setup.fetch()
    setup.clock.forward(hours=24)
    setup.fetch(NEXT)
    assert due(setup) == []
    world.runs = {V1: [a_run(1, **INVALIDATED), a_run(2)]}
    setup.clock.forward(hours=30)
    setup.fetch(NEXT)
    reopened = open_days(setup.access, first=DAY, last=DAY, clock=setup.clock)
    assert [(one.day, one.state, one.reason) for one in reopened] == [(DAY, "open", "run_changed")]
    setup.fetch()
    assert setup.lines("runs.jsonl")[0]["is_included"] is False
    assert due(setup) == []


@pytest.mark.parametrize("early", [{"status": "STALE", "completed_at": None}, {"is_included": False}])
def test_a_run_that_is_used_after_all_is_asked_for(setup: Setup, early: dict[str, object]) -> None:
    world = setup.fake.world
    held = {name: world.artifacts.pop((R2, name)) for name in (P1, P2)}
    world.runs = {V1: [a_run(1), a_run(2, **early)]}
    setup.fetch()
    world.runs = {V1: [a_run(1), a_run(2)]}
    world.artifacts |= {(R2, name): data for name, data in held.items()}
    setup.clock.forward(hours=30)
    assert setup.fetch().fetched == 4


# ------------------------------------------------------------------------------------------ pairs that move


def test_a_pair_that_moved_stands_on_one_day_also_when_its_version_is_hidden_for_good(setup: Setup) -> None:
    world = setup.fake.world
    setup.fetch()
    again = a_result(R1, f"{NEXT}T09:00:00Z")
    world.problems[V1] = [an_entry(P1, again, a_result(R2)), an_entry(P2, a_result(R1), a_result(R2))]
    world.history = counted(2, 1)
    setup.clock.forward(hours=24)
    setup.fetch(NEXT)
    world.hidden_versions = {V1}
    setup.clock.forward(hours=25)
    settle(setup, NEXT)
    named = [
        (result["eval_run_id"], entry["problem_id"])
        for day in (DAY, NEXT)
        for entry in setup.lines("problems.jsonl", day)
        for result in entry["validator_results"]
    ]
    assert sorted(named) == sorted({(run, name) for run in (R1, R2) for name in (P1, P2)})


def test_a_look_that_was_killed_before_the_file_moved_costs_no_artifact(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = setup.fake.world
    setup.fetch()
    world.problems[V1] = [an_entry(P1, a_result(R1, f"{NEXT}T09:00:00Z"), a_result(R2)), an_entry(P2, a_result(R2))]
    world.history = counted(2, 1)
    setup.clock.forward(hours=24)
    with monkeypatch.context() as patch:
        patch.setattr("trajectory_platform.sources.day_fetch.DayFetch._move", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            setup.fetch(NEXT)
    del world.artifacts[(R1, P1)]
    for _ in range(3):
        setup.fetch(NEXT)
        setup.clock.forward(hours=1)
    settle(setup, NEXT, days=2)
    assert (R1, f"{P1}.json.gz") in setup.artifacts(NEXT)
    assert setup.fetch(NEXT).gone == {}


# ------------------------------------------------------------------------------------------ clocks


def test_a_look_by_a_clock_that_was_ahead_hides_nothing_of_later_days(setup: Setup) -> None:
    world = setup.fake.world
    world.races, world.qualifiers = [], {}
    world.boards = {7: [{"agent_version_id": V1, "miner_hotkey": "5m", "agent_name": "a", "version_number": 1}]}
    right = setup.clock.now + timedelta(days=1)
    setup.clock.forward(days=20)
    setup.fetch()
    setup.clock.now = right
    late = {"claimed_at": f"{NEXT}T10:00:00Z", "completed_at": f"{NEXT}T10:30:00Z"}
    world.runs[V1] = [a_run(1), a_run(2), a_run(3, **late)]
    results = a_result(R1), a_result(R2), a_result(R3, f"{NEXT}T10:20:00Z")
    world.problems[V1] = [an_entry(name, *results) for name in (P1, P2)]
    world.artifacts |= {(R3, name): gzip.compress(b"[]") for name in (P1, P2)}
    world.history = counted(2, 2)
    report = setup.fetch(NEXT)
    assert (report.pairs, report.fetched, report.expected, report.reconciliation) == (2, 2, 2, "match")


def test_what_was_put_off_by_a_clock_that_was_ahead_is_due(setup: Setup) -> None:
    setup.fake.world.refusals = {(R1, P1): (404, "ARTIFACT_NOT_RELEASED"), (R1, P2): (404, "ARTIFACT_NOT_FOUND")}
    right = setup.clock.now
    setup.clock.now = datetime(2027, 5, 3, 4, tzinfo=UTC)
    setup.fetch()
    setup.clock.now = right
    setup.fake.world.refusals = {}
    assert due(setup) == [DAY]
    assert (setup.fetch().state, setup.fetch().fetched) == ("final", 4)


# ------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize("between", [(404, "ARTIFACT_NOT_RELEASED"), (500, "X")])
def test_refusals_that_alternate_come_to_an_end(setup: Setup, between: tuple[int, str]) -> None:
    report: FetchReport | None = None
    for number in range(40):
        setup.fake.world.refusals = {(R1, P1): between if number % 2 else (404, "ARTIFACT_NOT_FOUND")}
        found = open_days(setup.access, first=DAY, last=DAY, clock=setup.clock)
        if not found:
            break
        setup.clock.now = max(setup.clock.now, found[0].due or setup.clock.now)
        report = setup.fetch()
    assert report is not None
    assert (report.state, report.gone) == ("final_with_holes", {"artifact_not_found": 1})


LINKS = [
    "{url}/store/x\u0000",
    "{url}/store/\x7f",
    "{url}/" + "a" * 70_000,
    "https://a..amazonaws.com/x",
    "https://\u00fc\u00df" + "x" * 300 + ".amazonaws.com/x",
    "https://x.amazonaws.com:99999999/x",
    "http://[::1",
    "",
]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("how", ["link", "redirect"])
def test_no_link_costs_the_other_artifacts_or_the_report(fake: FakeOro, tmp_path: Path, link: str, how: str) -> None:
    setup = Setup(fake, tmp_path, workers=1)
    setup.access = ApiAccess(**{**vars(setup.access), "artifact_hosts": ("127.0.0.1", ".amazonaws.com")})
    url = link.replace("{url}", fake.url)
    if how == "redirect":
        where = url.encode("utf-8", "surrogatepass").decode("latin-1").replace("\u0000", "")
        fake.faults = [Fault(f"GET /store/{R1}/{P1}", 302, b"", {"Location": where}, times=1000)]
    else:
        body = json.dumps({"download_url": url, "expires_at": None}).encode()
        fake.faults = [Fault("download-url", 200, body, {"Content-Type": "application/json"})]
    report = setup.fetch()
    assert report.fetched == 3, "one pair has a link that leads nowhere"
    assert sum(report.later.values()) + report.wanted == 1


@pytest.mark.parametrize("body", [b'[{"a":1,"a":2}] {', b'{"a":1,"a":2', b'{"a":1,"a":2}\x00{'])
def test_an_answer_that_is_doubly_broken_may_be_whole_the_next_time(body: bytes) -> None:
    with pytest.raises(RetryLater, match="unreadable_answer"):
        read_json(body)


def test_a_time_beyond_the_calendar_is_none() -> None:
    assert http_date("Fri, 31 Dec 9999 23:59:59 -0100") is None


# ------------------------------------------------------------------------------------------ the state folder


def _open(folder: str, times: int) -> str:
    try:
        for _ in range(times):
            RequestLimiter(folder, per_window=100).close()
            ApiState(folder, owner="x").close()
    except (Abort, RetryLater) as error:
        return str(error)
    return ""


def test_processes_that_start_at_once_on_a_new_folder_all_start(tmp_path: Path) -> None:
    with get_context("spawn").Pool(3) as pool:
        for number in range(8):
            assert pool.starmap(_open, [(str(tmp_path / str(number)), 2)] * 3, chunksize=1) == [""] * 3


def test_a_file_that_goes_while_the_staging_folder_is_cleaned_is_nobodys_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RawDayWriter(str(tmp_path))
    writer.write("2026-05-01/a", b"x")
    (tmp_path / ".staging" / "part-1").touch()
    monkeypatch.setattr("trajectory_platform.sources.raw_day_writer.os.unlink", _gone)
    writer.clean(older_than_s=-1)


def _gone(path: str) -> None:
    raise FileNotFoundError(path)


@pytest.mark.parametrize("memory", ["{", "[]", '{"looks": null}'])
def test_a_memory_that_cannot_be_read_is_none(setup: Setup, memory: str) -> None:
    setup.fetch()
    with ApiState(setup.access.state, owner=setup.access.owner) as state:
        state.write("UPDATE days SET memory = ?", [(memory,)])
        state.write("UPDATE answers SET body = ?", [(b"no zlib",)])
    assert setup.fetch().state == "final"


def test_adopted_files_keep_what_is_odd_about_them(setup: Setup) -> None:
    world: World = setup.fake.world
    world.artifacts[(R1, P1)] = world.artifacts[(R1, P1)][:-5]
    first = setup.fetch(), setup.files()["fetch_pairs.jsonl"]
    shutil.rmtree(setup.access.state)
    again = setup.fetch(), setup.files()["fetch_pairs.jsonl"]
    assert (again[0].adopted, again[0].damaged, again[1]) == (4, first[0].damaged, first[1])


def test_a_queue_of_the_layout_before_is_upgraded(tmp_path: Path) -> None:
    with ApiState(tmp_path) as state:
        state.write("ALTER TABLE wanted DROP COLUMN not_found", [()])
        state.write("DROP TABLE inside", [()])
        row = ("r", "p", "2026-05-01", "v", "", 0, "fetched")
        rest = (("r", "q", "2026-05-01", "v", "", 0, "gone"), ("s", "p", "2026-05-01", "v", "", 0, "fetched"))
        state.write(
            "INSERT INTO wanted (eval_run_id, problem_id, day, agent_version_id, miner, rank, state)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [row, *rest],
        )
        state.write("UPDATE wanted SET reason = 'in_whole_file' WHERE state = 'gone'", [()])
        state.rows("PRAGMA user_version = 1")
    with ApiState(tmp_path) as state:
        found = state.rows("SELECT eval_run_id, problem_id, state, not_found FROM wanted ORDER BY 1, 2")
    assert found == [("r", "p", "wanted", 0), ("r", "q", "gone", 0), ("s", "p", "fetched", 0)]
