"""A day fetched from the API into an object store: the same raw day, resumable, and errors that say what to do."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.sources.files import FileSource
from trajectory_platform.sources.listed import listed
from trajectory_platform.sources.oro_api import open_days, read_report
from trajectory_platform.sources.raw_day_writer import RawDayWriter
from trajectory_platform_tests import s3_server
from trajectory_platform_tests.sources.oro_fake import FakeOro, serving
from trajectory_platform_tests.sources.test_oro_api import (
    DAY,
    P1,
    P2,
    R1,
    R2,
    V1,
    Setup,
    a_result,
    an_entry,
    small_world,
)

BUCKET = "raw"


@pytest.fixture(scope="module")
def server() -> Iterator[s3_server.Server]:
    for module in ("boto3", "moto.server"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    with s3_server.running() as running:
        running.bucket(BUCKET)
        yield running


@pytest.fixture
def s3(server: s3_server.Server, monkeypatch: pytest.MonkeyPatch) -> s3_server.Server:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def fake() -> Iterator[FakeOro]:
    with serving(small_world()) as api:
        yield api


@pytest.fixture
def setup(fake: FakeOro, tmp_path: Path, s3: s3_server.Server) -> Setup:
    """Fetches to a prefix of its own."""
    made = Setup(fake, tmp_path)
    made.access = replace(made.access, data_root=f"s3://{BUCKET}/{tmp_path.name}/days")
    return made


def test_a_day_in_an_object_store_is_the_same_raw_day_as_in_a_folder(
    setup: Setup, fake: FakeOro, tmp_path: Path
) -> None:
    remote = setup.access.data_root
    report = setup.fetch()
    local = Setup(fake, tmp_path / "local")
    local.fetch()
    assert (report.state, report.fetched) == ("final", 4)
    assert FileSource(remote).digest(DAY) == FileSource(local.access.data_root).digest(DAY)
    assert read_report(setup.access, DAY) == report
    assert listed(remote, DAY).version == listed(f"{remote}/", DAY).version
    again = setup.fetch()
    assert (again.fetched_now, again.requests) == (0, {"downloads": 0})


def test_a_lost_state_folder_a_vanished_object_and_a_moved_pair(setup: Setup, fake: FakeOro, tmp_path: Path) -> None:
    setup.fetch()
    later = DAY + timedelta(days=1)
    setup.access = replace(setup.access, state=str(tmp_path / "new-state"))
    report = setup.fetch()
    assert (report.adopted, report.fetched_now) == (4, 0)
    setup.fetch(later)
    again = a_result(R1, "2026-05-02T09:00:00Z")
    fake.world.problems[V1] = [an_entry(P1, again, a_result(R2)), an_entry(P2, a_result(R1), a_result(R2))]
    setup.clock.forward(hours=30)
    setup.fetch()
    assert setup.fetch(later).fetched == 1
    assert setup.fetch().fetched == 3
    assert set(fake.downloads().values()) == {1}
    assert open_days(setup.access, first=DAY, last=later, clock=setup.clock) == []


def test_which_days_are_open_costs_one_listing_however_many_were_never_looked_at(
    setup: Setup, s3: s3_server.Server, tmp_path: Path
) -> None:
    first, last = DAY - timedelta(days=60), DAY + timedelta(days=2)
    setup.fetch()
    setup.fetch(DAY - timedelta(days=1))
    RawDayWriter(setup.access.data_root).write("2026-04-20/runs.jsonl", b"")  # its first look was killed
    setup.access = replace(setup.access, state=str(tmp_path / "new-state"))
    known = open_days(replace(setup.access, data_root=f"{setup.access.data_root}-none"), first=first, last=last)
    s3.requests()
    found = open_days(setup.access, first=first, last=last, clock=setup.clock)
    assert [one.state for one in found] == ["never_looked"] * 61 == [one.state for one in known][:61]
    asked = s3.requests()
    assert sum(path.endswith("fetch.json") for path in asked) <= 2 * 3, "one read a folder (pyarrow asks twice)"
    assert len(asked) <= 2 * 3 + 2
    setup.clock.forward(minutes=5)
    assert open_days(setup.access, first=first, last=last, clock=setup.clock) == found
    assert len(s3.requests()) <= 2, "the next tick of the sensor lists the folders, and reads nothing"
    setup.clock.forward(hours=1)
    open_days(setup.access, first=first, last=last, clock=setup.clock)
    folder = f"{setup.access.data_root.removeprefix('s3:/')}/2026-04-20"
    reports = [path for path in s3.requests() if path.endswith("fetch.json")]
    assert {path.partition(" ")[2] for path in reports} == {f"{folder}/fetch.json"}, "an hour later once more"


def test_a_day_that_waits_is_known_to_a_new_state_folder(setup: Setup, fake: FakeOro, tmp_path: Path) -> None:
    fake.world.refusals = {(R1, P1): (404, "ARTIFACT_NOT_RELEASED")}
    report = setup.fetch()
    setup.access = replace(setup.access, state=str(tmp_path / "new-state"))
    for _ in range(2):
        (day,) = open_days(setup.access, first=DAY, last=DAY, clock=setup.clock)
        assert (day.state, day.due, day.reason) == ("open", report.next_look, report.open_because)
    assert setup.fetch().looks == 2


def test_two_prefixes_of_which_one_begins_like_the_other_do_not_see_each_other(setup: Setup, tmp_path: Path) -> None:
    setup.fetch()
    first = setup.access
    setup.access = replace(first, data_root=f"{first.data_root}-2/")
    assert setup.fetch().fetched_now == 4
    for root in (first.data_root, setup.access.data_root):
        assert FileSource(root).days() == [DAY]


def test_a_bucket_that_does_not_exist_is_said(setup: Setup) -> None:
    setup.access = replace(setup.access, data_root="s3://no-such-bucket/days")
    with pytest.raises(Abort, match="no-such-bucket.*create it"):
        setup.fetch()


def test_refused_credentials_end_the_look_and_the_next_one_goes_on(
    setup: Setup, fake: FakeOro, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trajectory_platform.sources import raw_day_writer

    sound, puts = raw_day_writer.RawDayWriter._put, [0]

    def expires(self: raw_day_writer.RawDayWriter, uri: str, data: bytes) -> None:
        puts[0] += 1
        if puts[0] > 5:
            raise OSError("AWS Error ACCESS_DENIED during PutObject operation: ExpiredToken (HTTP status 403)")
        sound(self, uri, data)

    with monkeypatch.context() as patched:
        patched.setattr(raw_day_writer.RawDayWriter, "_put", expires)
        with pytest.raises(Abort, match="AWS_"):
            setup.fetch()
    report = setup.fetch()
    assert (report.state, report.fetched) == ("final", 4)
