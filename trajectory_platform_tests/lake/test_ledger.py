"""The ledger of looks at sealed problems: nothing is lost, changed unseen or written over."""

from __future__ import annotations

import errno
import json
import os
import pwd
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.identity import digest_lines
from trajectory_platform.lake import ledger
from trajectory_platform.lake.ledger import HEAD, LEDGER, read_ledger, record
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.verification import verify
from trajectory_platform_tests.lake.children import finish, start

AT = datetime(2026, 3, 3, 12, tzinfo=UTC)
OLD = b'{"at": "2026-02-01T00:00:00+00:00", "query_sha256": "aa", "reason": "before the chain"}\n'


def look(lake: Lake, *keys: str, **more: Any) -> None:
    record(lake, **{"what": "sql", "reason": "audit", "at": AT, "keys": keys, "who": "ann", **more})


def filled(root: Path, old: bool = False) -> Lake:
    lake = Lake(str(root))
    lake.root.mkdir(parents=True, exist_ok=True)
    if old:
        (lake.root / LEDGER).write_bytes(OLD * 2)
    look(lake, "k2", "k1")
    look(lake, "k3", what="evaluation", checkpoint_id="c1", detail="sft_eval 2026-03-01")
    look(lake, "k1", "k2", reason="again\nforged line", query="select 1")
    return lake


def lines_of(lake: Lake) -> list[bytes]:
    return (lake.root / LEDGER).read_bytes().splitlines()


def faults(lake: Lake) -> list[str]:
    return [fault.reason for fault in read_ledger(lake).faults]


def test_a_look_says_who_what_which_why_and_when(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    first, second, third = read_ledger(lake).looks
    assert (first.who, first.what, first.reason, first.keys) == ("ann", "sql", "audit", ("k1", "k2"))
    assert first.at == "2026-03-03T12:00:00+00:00" and first.checkpoint_id is None
    assert (second.checkpoint_id, second.keys, second.detail) == ("c1", ("k3",), "sft_eval 2026-03-01")
    assert third.reason == "again\nforged line" and third.query_sha256 is not None
    stored = json.loads(lines_of(lake)[0])
    assert stored["problems"] == 2 and stored["keys_sha256"] == digest_lines(["k1", "k2"])
    assert faults(lake) == []


def test_a_list_of_problems_is_written_once_and_known_every_time(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    assert "keys" not in json.loads(lines_of(lake)[2]) and read_ledger(lake).looks[2].keys == ("k1", "k2")


def test_who_is_the_login_name_or_the_name_of_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(str(tmp_path))
    monkeypatch.setenv("USER", "somebody-else")
    monkeypatch.delenv(ledger.USER_VARIABLE, raising=False)
    look(lake, who=None)
    monkeypatch.setenv(ledger.USER_VARIABLE, "nightly job")
    look(lake, who=None)
    assert [one.who for one in read_ledger(lake).looks] == [pwd.getpwuid(os.geteuid()).pw_name, "nightly job"]


@pytest.mark.parametrize(("reason", "at"), [("  ", AT), (None, AT), ("x", None), ("x", AT.replace(tzinfo=None))])
def test_no_look_without_a_reason_and_a_time(tmp_path: Path, reason: Any, at: Any) -> None:
    with pytest.raises(Abort, match="sealed rows needs"):
        look(Lake(str(tmp_path)), reason=reason, at=at)
    assert not (tmp_path / LEDGER).exists()


def test_lines_of_the_first_format_stay_readable_before_the_chain(tmp_path: Path) -> None:
    lake = filled(tmp_path, old=True)
    found = read_ledger(lake)
    assert [one.reason for one in found.looks[:3]] == ["before the chain", "before the chain", "audit"]
    assert found.looks[0].keys is None and found.looks[0].who is None and not found.faults
    with (tmp_path / LEDGER).open("ab") as stream:
        stream.write(OLD)
    assert "not_chained" in faults(lake), "after the chain has begun a line without it is no look of the platform"


def change(lake: Lake, lines: list[bytes]) -> None:
    (lake.root / LEDGER).write_bytes(b"".join(line + b"\n" for line in lines))


TAMPERING = {
    "reason": lambda rows: [rows[0].replace(b"audit", b"AUDIT"), *rows[1:]],
    "old-line": lambda rows: [rows[0].replace(b"before", b"BEFORE"), *rows[1:]],
    "last-line": lambda rows: [*rows[:-1], rows[-1].replace(b"again", b"never")],
    "first-removed": lambda rows: rows[1:],
    "middle-removed": lambda rows: [*rows[:-2], rows[-1]],
    "last-removed": lambda rows: rows[:-1],
    "all-removed": lambda rows: [],
    "swapped": lambda rows: [*rows[:-2], rows[-1], rows[-2]],
    "doubled": lambda rows: [rows[0], *rows],
    "put-in": lambda rows: [*rows[:-1], b'{"at": "x", "previous": "y", "reason": "z"}', rows[-1]],
}


@pytest.mark.parametrize("old", [False, True], ids=["chained", "with-first-format"])
@pytest.mark.parametrize("how", TAMPERING)
def test_no_line_is_changed_removed_moved_or_added_unseen(tmp_path: Path, how: str, old: bool) -> None:
    lake = filled(tmp_path, old)
    before = lines_of(lake)
    after = TAMPERING[how](before)
    change(lake, after)
    assert bool(faults(lake)) == (after != before)
    if after != before:
        damage = verify(lake)
        assert {one.table for one in damage} == {LEDGER}, "lake verify names it"


@given(data=st.data())
@settings(derandomize=True, deadline=None, max_examples=60)
def test_any_changed_byte_shows(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    lake = filled(tmp_path_factory.mktemp("ledger"), old=True)
    content = bytearray((lake.root / LEDGER).read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    (lake.root / LEDGER).write_bytes(content)
    assert faults(lake)


def test_lines_written_by_hand_with_a_right_chain_still_show(tmp_path: Path) -> None:
    """The head knows how many lines the platform wrote; one more may be a writer that was killed, two are not."""
    lake = filled(tmp_path)
    head = (tmp_path / HEAD).read_bytes()
    look(lake, "k9")
    (tmp_path / HEAD).write_bytes(head)
    assert faults(lake) == [], "killed between line and head"
    look(lake, "k9")
    assert faults(lake) == [], "the next look makes up for it"
    look(lake, "k9")
    (tmp_path / HEAD).write_bytes(head)
    assert faults(lake) == ["head_behind"]
    (tmp_path / HEAD).unlink()
    assert faults(lake) == ["head_missing"]
    (tmp_path / HEAD).write_bytes(b"[]")
    assert faults(lake) == ["head_damaged"]


@pytest.mark.parametrize("cut", [1, 2, 3], ids=["last", "all-but-the-first", "all"])
@pytest.mark.parametrize("head", ["kept", "removed", "damaged"])
def test_a_later_look_covers_nothing_up(tmp_path: Path, cut: int, head: str) -> None:
    """Lines cut off at the end stay missing for good: the next look says that it found them missing."""
    lake = filled(tmp_path)
    rows = lines_of(lake)[:-cut]
    change(lake, rows)
    if head == "removed":
        (tmp_path / HEAD).unlink()
    if head == "damaged":
        (tmp_path / HEAD).write_bytes(b'{"lines": 0}')
    seen = faults(lake)
    look(lake, "k7", what="evaluation", checkpoint_id="c2")
    look(lake, "k8")
    after = read_ledger(lake)
    assert [fault.reason for fault in after.faults] == seen
    assert all("found when line" in fault.detail and fault.line == len(rows) + 1 for fault in after.faults)
    assert seen or (head == "removed" and len(rows) <= 1), "a ledger of one line and no head is one that just began"
    assert after.looks[-1].keys == ("k8",), "it goes on all the same"


def test_a_head_that_cannot_be_written_leaves_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = filled(tmp_path)
    before = (tmp_path / LEDGER).read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ledger, "_write_head", full)
    for _ in range(2):
        with pytest.raises(FailPartition, match="cannot be recorded"):
            look(lake, "k9")
    monkeypatch.undo()
    look(lake, "k9")
    assert (tmp_path / LEDGER).read_bytes().startswith(before) and faults(lake) == [] and len(lines_of(lake)) == 4


def test_a_cut_line_is_reported_and_never_glued_to_the_next(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    content = (tmp_path / LEDGER).read_bytes()
    look(lake, "k7")
    (tmp_path / LEDGER).write_bytes((tmp_path / LEDGER).read_bytes()[:-40])
    assert "cut" in faults(lake)
    look(lake, "k8", reason="after the cut")
    found = read_ledger(lake)
    assert (tmp_path / LEDGER).read_bytes().startswith(content)
    assert [one.reason for one in found.faults] == ["unreadable"] and found.faults[0].line == 4
    assert (found.looks[-1].reason, found.looks[-1].line) == ("after the cut", 5)


def test_a_list_that_is_not_the_one_of_its_digest_tells_no_problems(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    change(lake, [line.replace(b'"k1"', b'"kx"') for line in lines_of(lake)])
    found = read_ledger(lake)
    assert found.looks[0].keys is None and found.looks[2].keys is None
    assert [fault.line for fault in found.faults if fault.reason == "keys_damaged"] == [1, 3]


def test_a_full_disk_leaves_no_half_line_and_stops_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = filled(tmp_path)
    before = (tmp_path / LEDGER).read_bytes()
    real = os.write

    def short(descriptor: int, data: bytes) -> int:
        if len(data) <= 50 or not data.startswith(b'{"at"'):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[:50])

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(FailPartition, match="cannot be recorded .*No space left"):
        look(lake, "k9")
    monkeypatch.undo()
    assert (tmp_path / LEDGER).read_bytes() == before and faults(lake) == []


def look_often(root: str, name: str, count: int) -> None:
    lake = Lake(root)
    for number in range(count):
        look(lake, *(f"{name}-{key}" for key in range(200)), who=name, reason=f"look {number}")


def test_writers_at_the_same_time_keep_every_line(lake: Lake) -> None:
    names = [f"writer-{number}" for number in range(4)]
    children = [start(look_often, lake.uri, name, 15) for name in names]
    seen = 0
    while any(child.is_alive() for child in children):
        found = read_ledger(lake)
        assert not found.faults and len(found.looks) >= seen, "a reader beside them sees whole lines only"
        seen = len(found.looks)
    assert [finish(child) for child in children] == [0] * 4
    found = read_ledger(lake)
    assert not found.faults and len(found.looks) == 60
    for name in names:
        assert [one.reason for one in found.looks if one.who == name] == [f"look {number}" for number in range(15)]


def test_an_absent_ledger_is_sound_and_empty(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    assert read_ledger(lake) == ((), ()) and verify(lake) == []
    assert not lake.root.exists(), "reading creates nothing"
