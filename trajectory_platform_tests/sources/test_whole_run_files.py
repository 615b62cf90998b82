"""A run's whole file under one pair (domain 1.3): the other pairs are not asked for, and not lost."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.sources.container import Limits
from trajectory_platform.sources.files import FileSource
from trajectory_platform.sources.whole_run_files import problems_inside
from trajectory_platform.traces.inventory import inventory_day
from trajectory_platform_tests.sources.oro_fake import FakeOro, serving
from trajectory_platform_tests.sources.test_oro_api import (
    DAY,
    LIMITS,
    P1,
    P2,
    P3,
    R1,
    V1,
    Setup,
    a_result,
    a_run,
    an_entry,
    small_world,
)

STEP = {"completion": {"message": {"response": "hi"}}, "extra_info": {"step": 1, "query": "q", "timestamp": 1}}


def envelope(problem: str, **more: Any) -> dict[str, Any]:
    return {"problem_id": problem, "status": "SUCCESS", "dialogue": [STEP], **more}


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def bare(problem: str) -> list[Any]:
    return [{**STEP, "extra_info": {"step": 1, "problem_id": problem}}]


WHOLE = lines(envelope(P1), envelope(P2), envelope(P3))
BOTH = {P1: True, P2: True, P3: True}
NAMES_OTHERS = envelope(P1, dialogue=[{**STEP, "extra_info": {"problem_id": P2, "shown": [P3]}}])


@pytest.mark.parametrize(
    ("data", "inside"),
    [
        (WHOLE, BOTH),
        (gzip.compress(WHOLE), BOTH),
        (b"".join(gzip.compress(lines(envelope(name))) for name in (P1, P2, P3)), BOTH),
        (b"\xef\xbb\xbf" + WHOLE.replace(b"\n", b"\r\n"), BOTH),
        (b'nse": 1}\n' + WHOLE, BOTH),
        (lines(bare(P1), bare(P2)), {P1: True, P2: True}),
        (json.dumps([envelope(P1), envelope(P2)]).encode(), {P1: True, P2: True}),
        (lines(envelope(P1), envelope(P2, dialogue=None)), {P1: True, P2: False}),
        (lines(envelope(P1), envelope(P2))[:-40], {P1: True, P2: False}),
        (gzip.compress(WHOLE)[:-4], {}),
        (lines(NAMES_OTHERS), {}),
        (lines(NAMES_OTHERS, envelope(P3)), {P1: True, P3: True}),
        (json.dumps({"problem_id": P1, "messages": [{"role": "user", "content": P2}]}).encode(), {}),
        (json.dumps({"a": P2, "b": {"problem_id": P3}}).encode(), {}),
        (json.dumps([{**STEP, "extra_info": {"problem_id": P2}}], indent=1).encode(), {}),
        (b"[]", {}),
        (b"", {}),
        (b"PK\x03\x04" + WHOLE, {}),
    ],
)
def test_what_lies_inside_is_what_ingestion_reads(data: bytes, inside: dict[str, bool]) -> None:
    assert problems_inside(data, Limits()) == inside


def test_a_file_may_be_larger_than_what_is_stored_of_it() -> None:
    stored = gzip.compress(WHOLE)
    assert len(stored) < len(WHOLE)
    assert problems_inside(stored, Limits(max_artifact_bytes=len(stored))) == BOTH
    assert problems_inside(gzip.compress(stored), Limits()) == {}, "a gzip file inside another is no file of lines"


@pytest.fixture
def fake() -> Iterator[FakeOro]:
    """One run with three problems; only the first has a file."""
    world = small_world()
    world.runs = {V1: [a_run(1)]}
    world.problems = {V1: [an_entry(name, a_result(R1)) for name in (P1, P2, P3)]}
    world.artifacts = {(R1, P1): gzip.compress(WHOLE)}
    world.history = {"series": [{"date": DAY.isoformat(), "distinct": 3, "cumulative": 3}], "total": 3}
    with serving(world) as server:
        yield server


@pytest.fixture
def setup(fake: FakeOro, tmp_path: Path) -> Setup:
    return Setup(fake, tmp_path, workers=1)


def own(problem: str) -> bytes:
    return gzip.compress(json.dumps([STEP]).encode())


def states(setup: Setup) -> dict[str, str]:
    rows = inventory_day(FileSource(setup.access.data_root), DAY, LIMITS).rows.to_pylist()
    return {row["problem_id"]: row["state"] for row in rows}


def test_what_lies_inside_is_not_asked_for(setup: Setup) -> None:
    report = setup.fetch()
    assert (report.state, report.fetched, report.gone) == ("final", 1, {"in_whole_file": 2})
    assert setup.fake.count("download-url") == 1
    assert states(setup) == dict.fromkeys((P1, P2, P3), "trace")


def test_what_lies_there_damaged_is_asked_for_and_told_by_its_line_where_it_has_no_file(setup: Setup) -> None:
    cut = lines(envelope(P1), envelope(P3), envelope(P2))[:-60]
    setup.fake.world.artifacts = {(R1, P1): gzip.compress(cut), (R1, P2): own(P2)}
    report = setup.fetch()
    assert (report.state, report.fetched, report.gone) == ("final", 2, {"in_whole_file": 1})
    del setup.fake.world.artifacts[(R1, P2)]
    other = Setup(setup.fake, Path(setup.access.state).parent / "other", workers=1)
    report = other.fetch()
    assert (report.state, report.fetched, report.gone) == ("final", 1, {"in_whole_file": 2})


def test_a_file_that_is_damaged_as_a_whole_holds_nothing(setup: Setup) -> None:
    setup.fake.world.artifacts = {(R1, P1): gzip.compress(WHOLE)[:-4], (R1, P2): own(P2), (R1, P3): own(P3)}
    report = setup.fetch()
    assert (report.state, report.fetched, report.damaged) == ("final", 3, 1)


@pytest.mark.parametrize("split", [True, False])
def test_when_the_file_has_vanished_what_lay_inside_is_asked_for(setup: Setup, split: bool) -> None:
    setup.fetch()
    (Path(setup.access.data_root) / f"{DAY}/artifacts/{R1}/{P1}.json.gz").unlink()
    setup.fake.world.artifacts = {(R1, name): own(name) for name in (P1, P2, P3)} if split else {}
    for _ in range(4):
        setup.clock.forward(hours=2)
        report = setup.fetch()
    if split:
        assert (report.state, report.fetched) == ("final", 3)
    else:
        assert (report.state, report.gone) == ("final_with_holes", {"artifact_not_found": 3})


def test_a_file_that_moved_out_of_reach_leaves_a_hole_that_is_said(setup: Setup) -> None:
    setup.fetch()
    later = DAY + timedelta(days=5)
    again = a_result(R1, f"{later}T09:00:00Z")
    world = setup.fake.world
    world.problems = {V1: [an_entry(P1, again), *(an_entry(name, a_result(R1)) for name in (P2, P3))]}
    world.history = {"series": [{"date": later.isoformat(), "distinct": 1, "cumulative": 3}], "total": 3}
    setup.clock.forward(days=6)
    setup.fetch(later)
    for _ in range(4):
        report = setup.fetch()
        setup.clock.forward(hours=2)
    assert (report.state, report.gone) == ("final_with_holes", {"artifact_not_found": 2})
