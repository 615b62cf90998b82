"""The budget of a day is kept: listing, links and repeated tries of one UTC day of looks together."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trajectory_platform.errors import RetryLater
from trajectory_platform.sources.oro_api import is_due, open_days
from trajectory_platform_tests.sources.oro_fake import FakeOro, Fault, error, serving
from trajectory_platform_tests.sources.test_oro_api import (
    DAY,
    R1,
    RACE,
    V1,
    Setup,
    a_result,
    a_run,
    an_entry,
    small_world,
)

PAIRS = 30
MIDNIGHT = datetime(2026, 5, 4, tzinfo=UTC)


@pytest.fixture
def fake() -> Iterator[FakeOro]:
    """One run of thirty problems."""
    world = small_world()
    problems = [f"cccccccc-0000-4000-8000-0000000000{number}" for number in range(10, 10 + PAIRS)]
    world.runs[V1] = [a_run(1)]
    world.problems[V1] = [an_entry(name, a_result(R1)) for name in problems]
    world.artifacts = {(R1, name): gzip.compress(name.encode()) for name in problems}
    world.history["series"][0]["distinct"] = PAIRS
    with serving(world) as server:
        yield server


def asked(fake: FakeOro) -> int:
    """Requests of the API (the artifacts come from a store)."""
    return len(fake.requests) - sum(path.startswith("GET /store/") for path in fake.requests)


def listing_of(fake: FakeOro, root: Path) -> int:
    """What the listing alone costs."""
    report = Setup(fake, root, requests_per_day=1).fetch()
    fake.requests.clear()
    return report.requests["listing"]


def test_with_links_that_are_asked_for_again_and_again_the_budget_is_kept(fake: FakeOro, tmp_path: Path) -> None:
    listing = listing_of(fake, tmp_path / "first")
    budget = listing + 20
    setup = Setup(fake, tmp_path, requests_per_day=budget)
    fake.faults.append(Fault("POST .*download-url", status=503, body=error("DOWN"), times=8))
    report = setup.fetch()
    assert asked(fake) == report.requests["listing"] + report.requests["links"] == budget
    assert (report.sampling or {})["places"] == 18
    assert (report.fetched, report.wanted, report.stopped) == (12, 6, "request_budget")
    assert (report.state, report.next_look) == ("open", MIDNIGHT)
    (day,) = open_days(setup.access, first=DAY, last=DAY, clock=setup.clock)
    assert not is_due(day, setup.clock()) and is_due(day, MIDNIGHT)


def test_what_the_budget_of_one_day_leaves_is_fetched_on_the_next(fake: FakeOro, tmp_path: Path) -> None:
    listing = listing_of(fake, tmp_path / "first")
    setup = Setup(fake, tmp_path, requests_per_day=listing + 20)
    fake.faults.append(Fault("POST .*download-url", status=503, body=error("DOWN"), times=8))
    setup.fetch()
    setup.clock.now = MIDNIGHT
    report = setup.fetch()
    assert (report.fetched, report.not_sampled, report.wanted, report.state) == (18, 12, 0, "final_with_holes")


def test_looks_of_the_same_day_share_one_budget(fake: FakeOro, tmp_path: Path) -> None:
    listing = listing_of(fake, tmp_path / "first")
    setup = Setup(fake, tmp_path, requests_per_day=listing + 30)
    first = setup.fetch(stop=lambda: len(fake.downloads()) >= 10)
    assert first.wanted > 10 and first.stopped == "asked_to_stop"
    setup.clock.forward(minutes=90)  # the listing is asked for anew
    second = setup.fetch()
    assert asked(fake) <= listing + 30
    assert second.stopped == "request_budget" and second.next_look == MIDNIGHT
    assert second.fetched + second.not_sampled + second.wanted == PAIRS
    assert second.warnings == []
    setup.clock.forward(minutes=90)  # once more by hand: what the listing costs now is beyond the budget
    assert any("listed again before the budget" in words for words in setup.fetch().warnings)


def test_a_look_that_failed_has_spent_what_it_asked(fake: FakeOro, tmp_path: Path) -> None:
    listing = listing_of(fake, tmp_path / "first")
    setup = Setup(fake, tmp_path, requests_per_day=listing + 20)
    fake.faults.append(Fault("suites/7", status=503, body=error("DOWN"), times=5))
    with pytest.raises(RetryLater):
        setup.fetch()
    before = asked(fake)
    assert before > listing
    report = setup.fetch()  # what was answered is remembered, what was not is asked for again
    assert report.requests == {"listing": 1, "links": listing + 20 - before - 1, "downloads": report.fetched}
    assert report.stopped == "request_budget"


def test_a_listing_that_had_to_be_tried_again_and_again_costs_a_day_and_no_artifacts(
    fake: FakeOro, tmp_path: Path
) -> None:
    listing = listing_of(fake, tmp_path / "first")
    setup = Setup(fake, tmp_path, requests_per_day=listing + 20)
    hard = ("races/history", "races/current", "suites/7", "/runs", "/problems", "leaderboard")
    fake.faults += [Fault(f"GET .*{path}", status=503, body=error("DOWN"), times=4) for path in hard]
    first = setup.fetch()
    assert first.requests["listing"] > listing + 20
    assert (first.fetched, first.wanted, first.stopped) == (0, 18, "request_budget")
    assert (first.state, first.next_look) == ("open", MIDNIGHT)
    assert any("had to be tried more than once" in words for words in first.warnings)
    setup.clock.now = MIDNIGHT
    assert setup.fetch().fetched == 18


def test_a_budget_that_the_listing_alone_exceeds_is_said_and_asks_for_no_link(fake: FakeOro, tmp_path: Path) -> None:
    report = Setup(fake, tmp_path, requests_per_day=3).fetch()
    assert report.requests.get("links", 0) == 0
    assert any("leaves none for artifacts" in words for words in report.warnings)
    fake.world.qualifiers[RACE] = []
    fake.world.versions = {}
    empty = Setup(fake, tmp_path / "empty", requests_per_day=3).fetch()
    assert empty.pairs == 0
    assert any("leaves none for artifacts" in words for words in empty.warnings), "also where nothing is to be fetched"


def test_a_budget_with_room_for_another_look_postpones_none(fake: FakeOro, tmp_path: Path) -> None:
    setup = Setup(fake, tmp_path)
    setup.clock.now = datetime(2026, 5, 2, 4, tzinfo=UTC)
    setup.fetch()
    setup.clock.forward(hours=2)
    report = setup.fetch()
    assert report.fetched == PAIRS
    setup.access = replace(setup.access, requests_per_day=10_000)
    assert setup.fetch().next_look == datetime(2026, 5, 3, tzinfo=UTC)
