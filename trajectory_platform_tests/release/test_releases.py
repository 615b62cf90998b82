"""A release says what it holds, others can verify it, and its sealed problems stay sealed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.release import folders
from trajectory_platform.release.arena_rules import arena_rules
from trajectory_platform.release.releases import Material, Released, build_release, verify
from trajectory_platform.release.sealed_problems import (
    commitment,
    commitments,
    opening,
    read_key,
    release_key,
)
from trajectory_platform_tests.release.exported import ABOUT, Row, row, some_rows
from trajectory_platform_tests.release.test_round_trip import loaded

KEY = bytes(range(32))
SEALED = [hashlib.sha256(f"sealed {number}".encode()).hexdigest() for number in range(3)]


def release(out: Path, sft: list[Row] | None = None, kto: list[Row] | None = None, sealed: Any = SEALED) -> Released:
    rows = {
        "sft": some_rows() if sft is None else sft,
        "kto": [row(number, use="kto") for number in (5, 6)] if kto is None else kto,
    }
    material = Material("2026-03-02", {use: (some, lambda: ABOUT) for use, some in rows.items()}, sealed, KEY, {"a": 1})
    return build_release(out, material, licence="unknown")


def test_a_release_holds_data_card_splits_rules_and_checksums(tmp_path: Path) -> None:
    made = release(tmp_path / "out")
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md", "SHA256SUMS", "arena_rules.json", "filter.json", "kto", "release.json", "sft", "splits",
    ]  # fmt: skip
    assert verify(out) == [] and verify(out, KEY) == [] and verify(out / "sft") == []
    assert made.digest == hashlib.sha256((out / "SHA256SUMS").read_bytes()).hexdigest()
    listed = [json.loads(line) for line in (out / "splits" / "problems.jsonl").read_text().splitlines()]
    assert sorted(one["pool"] for one in listed) == ["dev", *["train"] * 5]
    assert made.facts["sealed"]["problems"] == 3 and "3 problems are sealed" in (out / "README.md").read_text()
    assert not release(out).new


def test_the_same_release_has_the_same_name_another_key_or_row_another(tmp_path: Path) -> None:
    digests = [release(tmp_path / name).digest for name in ("a", "b")]
    assert digests[0] == digests[1]
    assert release(tmp_path / "c", sft=some_rows()[:-1]).digest != digests[0]
    with pytest.raises(Abort):
        release(tmp_path / "a", sft=some_rows()[:-1])


def test_datasets_loads_each_use_of_a_release(tmp_path: Path) -> None:
    release(tmp_path / "out")
    found = loaded(tmp_path / "out", tmp_path / "cache", "kto")
    assert [one["label"] for one in found["train"]] == [False, False] and list(found) == ["train"]


def test_a_use_without_rows_is_left_out(tmp_path: Path) -> None:
    release(tmp_path / "out", kto=[])
    assert not (tmp_path / "out" / "kto").exists() and verify(tmp_path / "out") == []
    with pytest.raises(FailPartition, match="no row"):
        release(tmp_path / "none", sft=[], kto=[])


def test_nothing_of_a_sealed_problem_can_be_read_or_guessed(tmp_path: Path) -> None:
    """Whoever knows a sealed problem's key cannot tell that it is in the release."""
    release(tmp_path / "out")
    texts = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    for guess in SEALED:
        plain = [guess, *(hashlib.new(kind, guess.encode()).hexdigest() for kind in ("sha256", "sha1", "md5"))]
        plain += [hashlib.sha256(bytes.fromhex(guess)).hexdigest(), commitment("0" * 64, guess)]
        assert not any(one.encode() in texts for one in plain)
    lines = (tmp_path / "out" / "splits" / "sealed.txt").read_text().splitlines()
    assert set(lines).isdisjoint(commitments(bytes(32), SEALED)), "another key gives other lines"


def test_one_problem_can_be_opened_and_the_others_stay_closed(tmp_path: Path) -> None:
    release(tmp_path / "out")
    lines = (tmp_path / "out" / "splits" / "sealed.txt").read_text().splitlines()
    opened = opening(KEY, SEALED[1])
    assert hashlib.sha256(b"sealed problem 1" + bytes.fromhex(opened) + SEALED[1].encode()).hexdigest() in lines
    assert commitment(opened, SEALED[0]) not in lines and commitment(opened, SEALED[2]) not in lines


def test_a_sealed_problem_in_the_data_stops_the_release(tmp_path: Path) -> None:
    with pytest.raises(FailPartition, match="sealed"):
        release(tmp_path / "out", sealed=[*SEALED, row(0)["problem_key"]])
    assert list(tmp_path.iterdir()) == []


def test_one_problem_in_two_pools_of_two_uses_stops_the_release(tmp_path: Path) -> None:
    with pytest.raises(FailPartition, match="two clusters or pools"):
        release(tmp_path / "out", kto=[row(0, use="kto", pool="dev")])
    with pytest.raises(FailPartition, match="in two pools"):
        release(tmp_path / "out", kto=[row(9, use="kto", pool="dev", cluster_id="c0")])


def _edit(name: str, change: Callable[[str], str]) -> Callable[[Path], Any]:
    return lambda out: (out / name).write_text(change((out / name).read_text()))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_edit("splits/sealed.txt", lambda text: text[65:]), "sealed_differ"),
        (_edit("splits/sealed.txt", lambda text: text + "see https://example.org\n"), "sealed_differ"),
        (_edit("splits/problems.jsonl", lambda text: text.replace('"dev"', '"train"')), "problems_differ"),
        (_edit("release.json", lambda text: text.replace('"rows": 3', '"rows": 4')), "rows_differ"),
        (_edit("sft/export.json", lambda text: text.replace('"rows": 3', '"rows": 4')), "rows_differ"),
    ],
    ids=["sealed lost", "sealed odd", "pools", "counts", "export"],
)
def test_verify_sees_what_fitting_checksums_hide(tmp_path: Path, damage: Callable[[Path], Any], reason: str) -> None:
    out = tmp_path / "out"
    release(out)
    damage(out)
    assert [fault.reason for fault in verify(out)] == ["checksum_differs"]
    folders.write_sums(out)
    assert reason in [fault.reason for fault in verify(out)]


def test_verify_with_the_key_finds_a_released_problem_among_the_sealed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    release(out, sealed=SEALED)
    path = out / "splits" / "sealed.txt"
    from trajectory_platform.identity import digest_lines

    lines = sorted([*path.read_text().splitlines(), *commitments(KEY, [row(0)["problem_key"]])])
    path.write_text("".join(f"{line}\n" for line in lines))
    facts = json.loads((out / "release.json").read_text())
    facts["sealed"] |= {"problems": 4, "list_sha256": digest_lines(lines)}
    (out / "release.json").write_text(json.dumps(facts))
    folders.write_sums(out)
    assert verify(out) == []
    assert [fault.reason for fault in verify(out, KEY)] == ["sealed_problem_released"]


def test_a_folder_that_is_no_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Abort, match="no folder"):
        verify(tmp_path / "nowhere")
    with pytest.raises(FailPartition):
        verify(tmp_path)
        raise FailPartition("an empty folder has faults")


def test_the_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "release.key"
    key = release_key(path)
    assert len(key) == 32 and release_key(path) == key and path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["release.key"]
    path.chmod(0o644)
    with pytest.raises(Abort, match="others may read"):
        read_key(path)
    path.chmod(0o600)
    path.write_text("too short")
    with pytest.raises(Abort, match="64 hex digits"):
        release_key(path)
    with pytest.raises(Abort):
        read_key(tmp_path / "nowhere")


def test_the_rules_of_the_arena_are_those_of_the_code() -> None:
    from trajectory_platform.arena import rules

    told = arena_rules()
    assert told["constants"]["QUALIFYING_SHARE"]["value"] == rules.QUALIFYING_SHARE
    assert "domain 1.1" in told["constants"]["PROBLEMS_PER_RUN"]["meaning"]
    assert told["constants"]["LAUNCH"]["value"] == "2026-03-26" and "dethrones" in told["rules"]
    assert json.loads(json.dumps(told)) == told
