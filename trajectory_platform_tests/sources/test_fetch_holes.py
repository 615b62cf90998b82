"""What was judged and cannot be fetched is a hole of the day, however it came to be so; a final day hides none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trajectory_platform.sources.oro_api import ApiAccess, is_due, open_days
from trajectory_platform_tests.sources.oro_fake import FakeOro
from trajectory_platform_tests.sources.test_oro_api import (
    DAY,
    P1,
    R1,
    R2,
    RACE,
    V1,
    Setup,
    a_result,
    an_entry,
)


@pytest.mark.parametrize("problem", ["a/b", "..", "a.b", "\u00e9", "x" * 500, None])
def test_a_pair_whose_id_cannot_be_used_is_a_hole(fake: FakeOro, tmp_path: Path, problem: str | None) -> None:
    entries = fake.world.problems[V1]
    fake.world.problems[V1] = [*entries, {**an_entry(P1, a_result(R1)), "problem_id": problem}]
    fake.world.history["series"][0]["distinct"] = 3
    report = Setup(fake, tmp_path).fetch()
    assert (report.pairs, report.fetched, report.state) == (5, 4, "final_with_holes")
    assert report.holes() == {"no_problem_id" if problem is None else "unsafe_id": 1}


@pytest.mark.parametrize("version", ["a/b", "../../x", "x" * 500])
def test_an_agent_version_whose_id_cannot_be_used_is_a_hole(fake: FakeOro, tmp_path: Path, version: str) -> None:
    fake.world.qualifiers[RACE].append({**fake.world.qualifiers[RACE][0], "agent_version_id": version})
    report = Setup(fake, tmp_path).fetch()
    assert report.state == "final_with_holes"
    assert report.holes() == {"hidden:unsafe_id": 1}


def test_a_budget_below_the_cost_of_the_listing_is_said(fake: FakeOro, tmp_path: Path) -> None:
    report = Setup(fake, tmp_path, requests_per_day=5).fetch()
    assert (report.pairs, report.not_sampled, report.requests.get("links", 0)) == (4, 4, 0)
    assert report.state == "final_with_holes"
    assert any("leaves none for artifacts" in words for words in report.warnings)


def test_ids_that_differ_in_case_are_two_runs(fake: FakeOro, tmp_path: Path) -> None:
    loud = R1.upper()
    fake.world.runs[V1].append({**fake.world.runs[V1][0], "eval_run_id": loud})
    fake.world.problems[V1].append(an_entry(P1, a_result(loud)))
    fake.world.artifacts[(loud, P1)] = b"[1]"
    setup = Setup(fake, tmp_path)
    assert (setup.fetch().fetched, len(setup.artifacts(DAY))) == (5, 5)
    assert {loud, R1, R2} == {run["eval_run_id"] for run in setup.lines("runs.jsonl")}


def test_links_that_were_not_allowed_are_tried_when_a_person_asks_and_when_the_hosts_change(
    fake: FakeOro, tmp_path: Path
) -> None:
    setup = Setup(fake, tmp_path, final_after_days=0)
    named, setup.access = setup.access, replace(setup.access, artifact_hosts=("elsewhere.example",))
    for links, anew in ((4, False), (4, False), (8, True), (12, True)):
        setup.clock.forward(hours=5)
        report = setup.fetch(anew=anew)
        assert (report.fetched, fake.count("download-url")) == (0, links)
    assert report.gone == {"given_up:host_not_allowed": 4}, "tried three times, and long after its day"
    setup.access = named
    assert setup.fetch().fetched == 4, "nobody had to wait, or to ask for the day by name"


def test_a_day_whose_links_were_not_allowed_is_due_when_the_hosts_change(fake: FakeOro, tmp_path: Path) -> None:
    setup = Setup(fake, tmp_path)
    named, setup.access = setup.access, replace(setup.access, artifact_hosts=("elsewhere.example",))

    def due(access: ApiAccess) -> bool:
        (day,) = open_days(access, first=DAY, last=DAY, clock=setup.clock)
        return is_due(day, setup.clock())

    assert setup.fetch().later == {"host_not_allowed": 4}
    assert not due(setup.access) and due(named)


def test_runs_of_generated_environments_are_counted_on_their_day_and_said(fake: FakeOro, tmp_path: Path) -> None:
    def a_generated(number: int, completed_at: str | None) -> dict[str, object]:
        known = {"eval_run_id": f"eeeeeeee-0000-4000-8000-00000000000{number}", "completed_at": completed_at}
        return {"identity": {**known, "execution_kind": "envpack"}, "items": {"items": []}}

    times = ("2026-05-01T09:00:00Z", "2026-05-01T23:59:59Z", "2026-05-02T00:00:00Z", None)
    fake.world.generated[V1] = [a_generated(number, at) for number, at in enumerate(times)]
    report = Setup(fake, tmp_path).fetch()
    assert report.oddities["envpack_results_not_read"] == 2
    assert [words for words in report.warnings if words.startswith("2 runs of generated environments")]
    assert (report.pairs, report.fetched) == (4, 4)
