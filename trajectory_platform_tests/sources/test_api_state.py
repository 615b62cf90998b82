"""The state folder when it is not what it was: another API or data root, damaged, newer, killed in a move."""

from __future__ import annotations

import gzip
import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from trajectory_platform.errors import Abort, RetryLater
from trajectory_platform.sources.api_state import ApiState
from trajectory_platform.sources.day_fetch import DayFetch
from trajectory_platform.sources.oro_api import open_days
from trajectory_platform.sources.request_limiter import RequestLimiter
from trajectory_platform_tests.sources.oro_fake import serving
from trajectory_platform_tests.sources.test_oro_api import (
    ALL,
    DAY,
    P1,
    P2,
    R1,
    R2,
    V1,
    Setup,
    a_result,
    an_entry,
    names,
    small_world,
)


def test_a_day_that_is_final_in_one_data_root_is_not_for_another(setup: Setup, tmp_path: Path) -> None:
    assert setup.fetch().state == "final"
    first = setup.access
    setup.access = replace(first, data_root=str(tmp_path / "elsewhere"))
    [day] = open_days(setup.access, first=DAY, last=DAY, clock=setup.clock)
    assert day.state == "never_looked"
    assert setup.fetch().state == "final" and setup.artifacts() == ALL
    for access in (first, setup.access, replace(first, data_root=f"{first.data_root}/../days/")):
        assert open_days(access, first=DAY, last=DAY, clock=setup.clock) == []


def test_what_one_api_answered_is_not_taken_for_the_answer_of_another(setup: Setup, tmp_path: Path) -> None:
    setup.fetch()
    world = small_world()
    world.versions[V1]["agent_name"] = "of the other API"
    with serving(world) as other:
        setup.access = replace(setup.access, base_url=other.url, data_root=str(tmp_path / "other"))
        assert setup.fetch().fetched_now == 4
        assert len(other.requests) > 4
    [version] = setup.lines("agent_versions.jsonl")
    assert version["agent_name"] == "of the other API"


def test_a_queue_of_a_newer_version_is_refused_and_left_alone(setup: Setup) -> None:
    setup.fetch()
    path = Path(setup.access.state) / "queue.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(Abort, match="newer version"):
        setup.fetch()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM wanted").fetchone() == (4,)


def test_a_damaged_queue_says_that_removing_it_costs_no_data_and_so_it_is(setup: Setup) -> None:
    setup.fetch()
    for path in Path(setup.access.state).glob("queue*"):
        path.unlink()
    (Path(setup.access.state) / "queue.sqlite").write_bytes(b"no database, and longer than a header" * 300)
    with pytest.raises(Abort, match="remove its queue"):
        setup.fetch()
    (Path(setup.access.state) / "queue.sqlite").unlink()
    report = setup.fetch()
    assert (report.state, report.adopted, report.fetched_now) == ("final", 4, 0)


def test_a_queue_that_is_damaged_in_the_middle_is_no_traceback(tmp_path: Path) -> None:
    with ApiState(tmp_path) as state:
        for number in range(2000):
            state.note_judged(f"{number:036d}", [DAY])
        state.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    path = tmp_path / "queue.sqlite"
    data = bytearray(path.read_bytes())
    data[4096 * 3 :] = b"\xff" * (len(data) - 4096 * 3)
    path.write_bytes(data)
    with ApiState(tmp_path) as state, pytest.raises(Abort, match="remove its queue"):
        state.rows("SELECT * FROM judged ORDER BY day")


def test_a_limiter_that_cannot_count_sends_nothing_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Abort, match="api_state"):
        RequestLimiter(tmp_path / "file", per_window=1)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "limiter.sqlite").write_bytes(b"no database, and longer than a header" * 300)
    with pytest.raises(Abort, match="remove its limiter"):
        RequestLimiter(tmp_path / "damaged", per_window=1)
    limiter = RequestLimiter(tmp_path / "full", per_window=10_000)
    limiter.acquire()
    with sqlite3.connect(tmp_path / "full" / "limiter.sqlite") as db:
        db.execute("DROP TABLE sent")
    with pytest.raises(RetryLater) as refused:
        limiter.acquire()
    assert refused.value.reason == "state_unavailable"
    limiter.close()


def test_a_look_that_is_killed_before_it_moves_a_file_leaves_the_pair_on_one_day(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = DAY + timedelta(days=1)
    setup.fetch()
    setup.fetch(later)
    again = a_result(R1, "2026-05-02T09:00:00Z")
    setup.fake.world.problems[V1] = [an_entry(P1, again, a_result(R2)), an_entry(P2, a_result(R1), a_result(R2))]
    setup.clock.forward(hours=30)
    setup.fetch()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DayFetch, "_move", killed)
        with pytest.raises(KeyboardInterrupt):
            setup.fetch(later)
    assert DAY in [one.day for one in open_days(setup.access, first=DAY, last=DAY, clock=setup.clock)]
    setup.fetch()
    setup.fetch(later)
    assert setup.artifacts(later) == names((R1, P1))
    assert setup.artifacts() == ALL - names((R1, P1))
    assert len(setup.fake.downloads()) == 4, "nothing is fetched twice"


def test_a_file_is_not_taken_for_a_whole_run_because_it_quotes_a_part_of_an_id(setup: Setup) -> None:
    world = setup.fake.world
    world.problems[V1] = [an_entry(name, a_result(R1)) for name in ("1", "2")]
    world.artifacts = {
        (R1, "1"): gzip.compress(b'{"price": 12, "text": "page 2", "ids": ["2"]}'),
        (R1, "2"): gzip.compress(b'{"price": 1}'),
    }
    report = setup.fetch()
    assert (report.fetched, report.gone) == (2, {})
