"""Odd values in the API's lists and in ``fetch.json`` cost at most what they stand for, never a whole day."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("oro_sdk", reason="the client is oro-sdk's")

from trajectory_platform.sources.oro_api import open_days
from trajectory_platform_tests.sources.oro_fake import FakeOro
from trajectory_platform_tests.sources.test_oro_api import DAY, RACE, V1, Setup


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"], ids=["last", "first"])
@pytest.mark.parametrize("name", ["completed_at", "last_heartbeat_at", "claimed_at"])
def test_times_at_the_ends_of_the_calendar_stop_no_day(fake: FakeOro, tmp_path: Path, name: str, moment: str) -> None:
    fake.world.runs[V1][0] |= {name: moment}
    assert Setup(fake, tmp_path).fetch().fetched == 4


@pytest.mark.parametrize("name", ["race_completed_at", "race_started_at"])
def test_nor_do_those_of_races(fake: FakeOro, tmp_path: Path, name: str) -> None:
    strange = {"race_id": RACE[:-1] + "2", "suite_id": 7, "status": "RACE_COMPLETE", name: "9999-12-31T23:59:59Z"}
    fake.world.races.append(strange)
    assert Setup(fake, tmp_path).fetch().fetched == 4


@pytest.mark.parametrize("value", [{"a": 1}, [1], None, 1.5, True], ids=["object", "list", "null", "float", "true"])
def test_an_id_that_is_none_costs_its_own_pairs_only(fake: FakeOro, tmp_path: Path, value: Any) -> None:
    fake.world.problems[V1][0]["problem_id"] = value
    fake.world.runs[V1][1]["agent_version_id"] = value
    setup = Setup(fake, tmp_path)
    report = setup.fetch()
    assert report.fetched == 2 and report.not_asked == {"no_problem_id": 2}
    fake.world.hidden_versions = {V1}  # what the first look wrote is taken up
    setup.clock.forward(hours=2)
    assert setup.fetch().fetched == 2


@pytest.mark.parametrize(
    "change",
    [
        {"open_because": None},
        {"open_because": {"a": 1}},
        {"state": None},
        {"state": "of_tomorrow"},
        {"looks": "many"},
        {"requests_total": {"links": "some"}},
        {"later": [1]},
        {"day": (DAY + timedelta(days=1)).isoformat()},
    ],
    ids=str,
)
def test_a_report_that_is_none_is_as_good_as_none(fake: FakeOro, tmp_path: Path, change: dict[str, Any]) -> None:
    """It may come from elsewhere: it must neither stop the list of open days nor take its day for done."""
    setup = Setup(fake, tmp_path)
    assert setup.fetch().state == "final"
    file = tmp_path / "days" / DAY.isoformat() / "fetch.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    shutil.rmtree(setup.access.state)
    assert [(one.day, one.state) for one in open_days(setup.access, first=DAY, last=DAY, clock=setup.clock)] == [
        (DAY, "never_looked")
    ]
    again = setup.fetch()
    assert (again.state, again.looks, again.fetched, again.requests.get("links", 0)) == ("final", 1, 4, 0)
