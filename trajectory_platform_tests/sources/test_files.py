"""The raw-day layout from a local folder: what is listed is read, what leaves the root is refused."""

from __future__ import annotations

import os
import shutil
from datetime import date
from pathlib import Path

import pytest

from trajectory_platform.errors import Abort, RejectRow
from trajectory_platform.sources.files import FileSource, open_folder

DAY = date(2026, 5, 1)


def write(root: Path, name: str, content: str | bytes = "") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def small_day(root: Path) -> Path:
    day = root / "2026-05-01"
    write(day, "runs.jsonl", '{"eval_run_id": "r1"}\n')
    write(day, "problems.jsonl", '{"problem_id": "p1"}\nbroken\n')
    write(day, "agent_versions.jsonl")
    write(day, "suite.json", '{"suite": {"suite_id": 1}, "problems": []}')
    write(day, "artifacts/r1/p1.json.gz", b"[]")
    return day


def test_the_shared_days_list_completely(shared: Path) -> None:
    source = FileSource(str(shared / "days"))
    assert source.days() == [date(2026, 4, 20), date(2026, 4, 29), date(2026, 5, 2)]
    for day, runs, artifacts in zip(source.days(), (43, 45, 43), (162, 136, 173), strict=True):
        raw = source.open_day(day)
        assert (len(raw.runs), len(raw.problems), len(raw.artifacts), raw.faults) == (runs, 175, artifacts, [])
        assert raw.catalogue_uri == f"{day}/catalogue/products.jsonl"
        assert raw.artifacts == sorted(raw.artifacts, key=lambda ref: (ref.eval_run_id, ref.problem_id, ref.uri))
        assert all(len(source.read(ref.uri)) == ref.size for ref in raw.artifacts[:5])


def test_a_day_with_faults_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    day = small_day(tmp_path)
    write(day, "artifacts/loose.txt", "x")
    write(day, "artifacts/r1/deeper/p2.json", "x")
    write(day, "artifacts/r1/p3.part", "x")
    (day / "agent_versions.jsonl").unlink()
    raw = FileSource(str(tmp_path)).open_day(DAY)
    assert [run["eval_run_id"] for run in raw.runs] == ["r1"]
    assert [(ref.eval_run_id, ref.problem_id, ref.uri, ref.size) for ref in raw.artifacts] == [
        ("r1", "p1", "2026-05-01/artifacts/r1/p1.json.gz", 2)
    ]
    assert [(fault["file"], fault["line"], fault["reason"]) for fault in raw.faults] == [
        ("agent_versions.jsonl", None, "missing_file"),
        ("artifacts/loose.txt", None, "unexpected_file"),
        ("artifacts/r1/deeper/p2.json", None, "unexpected_file"),
        ("artifacts/r1/p3.part", None, "unexpected_file"),
        ("problems.jsonl", 2, "not_json"),
    ]


@pytest.mark.parametrize("content", ["5", '{"problems": {}}', "{"])
def test_a_suite_that_is_none_is_a_fault(tmp_path: Path, content: str) -> None:
    write(small_day(tmp_path), "suite.json", content)
    raw = FileSource(str(tmp_path)).open_day(DAY)
    assert raw.suite is None
    assert [fault["file"] for fault in raw.faults if fault["file"] == "suite.json"] == ["suite.json"]


def test_missing_days_and_roots_are_empty_not_errors(tmp_path: Path) -> None:
    assert FileSource(str(tmp_path / "none")).days() == []
    raw = FileSource(str(tmp_path / "none")).open_day(DAY)
    assert (raw.exists, raw.artifacts, raw.faults) == (False, [], [])
    for name in ("2026-5-1", "2026-02-30", "catalogue", "2026-05-01.bak"):
        (tmp_path / name).mkdir()
    write(tmp_path, "2026-05-02", "a file, no folder")
    (tmp_path / "2026-05-03").mkdir()
    assert FileSource(str(tmp_path)).days() == [date(2026, 5, 3)]
    assert FileSource(str(tmp_path)).open_day(date(2026, 5, 3)).exists


def test_the_shared_catalogue_is_used_where_the_day_has_none(tmp_path: Path) -> None:
    small_day(tmp_path)
    source = FileSource(str(tmp_path))
    assert source.open_day(DAY).catalogue_uri is None
    write(tmp_path, "catalogue/products.jsonl", "{}")
    assert source.open_day(DAY).catalogue_uri == "catalogue/products.jsonl"


@pytest.mark.parametrize(
    "uri", ["../secret", "2026-05-01/../../secret", "/etc/passwd", "", "s3://bucket/key", "a\x00b", "2026-05-01/none"]
)
def test_reading_never_leaves_the_root(tmp_path: Path, uri: str) -> None:
    write(tmp_path, "secret", "s")
    root = tmp_path / "root"
    small_day(root)
    with pytest.raises(RejectRow) as refused:
        FileSource(str(root)).read(uri)
    assert refused.value.reason == ("not_found" if uri.endswith("none") else "outside_root")


def test_links_that_leave_the_root_are_listed_and_refused(tmp_path: Path) -> None:
    secret = write(tmp_path, "secret.json", "[]")
    root = tmp_path / "root"
    day = small_day(root)
    os.symlink(secret, day / "artifacts" / "r1" / "p9.json")
    os.symlink(day / "artifacts" / "r1" / "p1.json.gz", day / "artifacts" / "r1" / "p2.json.gz")
    os.symlink(tmp_path, day / "artifacts" / "r2")
    (day / "runs.jsonl").unlink()
    os.symlink(secret, day / "runs.jsonl")
    source = FileSource(str(root))
    raw = source.open_day(DAY)
    assert [ref.problem_id for ref in raw.artifacts] == ["p1", "p2", "p9"]
    assert ("runs.jsonl", "outside_root") in [(fault["file"], fault["reason"]) for fault in raw.faults]
    assert ("artifacts/r2", "unexpected_file") in [(fault["file"], fault["reason"]) for fault in raw.faults]
    assert source.read(raw.artifacts[1].uri) == b"[]"
    with pytest.raises(RejectRow, match="outside_root"):
        source.read(raw.artifacts[2].uri)


def test_the_digest_is_of_content_not_of_place_or_time(tmp_path: Path) -> None:
    small_day(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two", copy_function=shutil.copyfile)
    one, two = FileSource(str(tmp_path / "one")), FileSource(str(tmp_path / "two"))
    before = one.digest(DAY)
    assert before == two.digest(DAY)
    os.utime(tmp_path / "one" / "2026-05-01" / "runs.jsonl", (0, 0))
    assert one.digest(DAY) == before
    write(tmp_path / "one" / "2026-05-01", "artifacts/r1/p1.json.gz", b"{}")
    changed = one.digest(DAY)
    os.rename(
        tmp_path / "two" / "2026-05-01" / "artifacts" / "r1", tmp_path / "two" / "2026-05-01" / "artifacts" / "r2"
    )
    assert len({before, changed, two.digest(DAY), one.digest(date(2026, 5, 9))}) == 4


def test_a_day_folder_can_be_named_directly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_day(tmp_path)
    source, day = open_folder(f"{tmp_path}/2026-05-01/")
    assert (day, len(source.open_day(day).artifacts)) == (DAY, 1)
    monkeypatch.chdir(tmp_path)
    assert open_folder("2026-05-01")[0].days() == [DAY]
    for wrong in (str(tmp_path), f"{tmp_path}/2026-05-02", "x"):
        with pytest.raises(Abort, match="day folder"):
            open_folder(wrong)


def test_a_link_that_leaves_its_root_is_no_day_folder(tmp_path: Path) -> None:
    """Nothing behind it would be read, so the answer would be an empty day instead of an error."""
    small_day(tmp_path / "real")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "2026-05-01").symlink_to(tmp_path / "real" / "2026-05-01")
    with pytest.raises(Abort, match="link"):
        open_folder(f"{tmp_path}/other/2026-05-01")
    (tmp_path / "real" / "2026-05-03").symlink_to("2026-05-01")
    assert len(open_folder(f"{tmp_path}/real/2026-05-03")[0].open_day(date(2026, 5, 3)).artifacts) == 1


@pytest.mark.parametrize("name", ["20260501", "2026-W18-5", "2026-5-1"])
def test_other_spellings_of_a_date_are_no_day_folders(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(Abort, match="YYYY-MM-DD"):
        open_folder(f"{tmp_path}/{name}")


def test_what_a_fetch_noted_is_surfaced_and_times_of_looks_do_not_change_the_digest(tmp_path: Path) -> None:
    day = small_day(tmp_path)
    source = FileSource(str(tmp_path))
    assert (source.open_day(DAY).fetch, source.open_day(DAY).unfetched) == (None, {})
    lines = (
        '{"eval_run_id": "r1", "problem_id": "p1", "state": "fetched", "probability": 0.5, "weight": 2.0}\n'
        '{"eval_run_id": "r1", "problem_id": "p2", "state": "not_sampled", "reason": "request_budget"}\n'
    )
    write(day, "fetch_pairs.jsonl", lines)
    write(day, "fetch.json", '{"state": "open", "looks": 1}')
    digest = source.digest(DAY)
    raw = source.open_day(DAY)
    assert raw.fetch == {"state": "open", "looks": 1}
    assert {key: line["reason"] for key, line in raw.unfetched.items()} == {("r1", "p2"): "request_budget"}
    write(day, "fetch.json", '{"state": "final", "looks": 2}')
    assert source.digest(DAY) == digest
    write(day, "fetch_pairs.jsonl", lines.replace("not_sampled", "later"))
    assert source.digest(DAY) != digest
