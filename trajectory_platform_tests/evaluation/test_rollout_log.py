"""An evaluation that is killed at any byte goes on where it was, and trusts nothing that is not whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.environment import Limits
from trajectory_platform.evaluation.rollout import run_episode
from trajectory_platform.evaluation.rollout_log import RolloutLog
from trajectory_platform.evaluation.rollout_rows import rollout_row
from trajectory_platform_tests.evaluation.acting import Says, clock, honest, market, task

TASKS = [task(number % 3, sample=number // 3) for number in range(6)]


def opened(path: Path, policy: str = "p", plan: str = "d") -> RolloutLog:
    return RolloutLog(path, policy=policy, plan=plan)


def filled(path: Path, count: int) -> bytes:
    with opened(path) as log:
        for one in TASKS[:count]:
            log.append(one, {"number": one.seed, "text": "line\u2028end \ud83d", "sample": one.sample})
    return path.read_bytes()


def test_what_was_finished_is_not_left_to_do(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log.jsonl"
    filled(path, 4)
    with opened(path) as log:
        assert log.remaining(TASKS) == TASKS[4:]
        assert [(row["number"], row["sample"]) for row in log.rows()] == [(0, 0), (1, 0), (2, 0), (0, 1)]
        assert next(log.rows())["text"] == "line\u2028end \ufffd"
        log.append(TASKS[4], {"number": 9})
        assert [row["number"] for row in log.rows()] == [0, 1, 2, 0, 9]
        with pytest.raises(FailPartition, match="already"):
            log.append(TASKS[4], {})


def test_a_file_cut_at_any_byte_keeps_exactly_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    data = filled(path, 3)
    ends = [position + 1 for position, byte in enumerate(data) if byte == 10]
    assert len(ends) == 4
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        with opened(path) as log:
            whole = max(sum(end <= size for end in ends) - 1, 0)
            assert len(log.done) == whole and len(list(log.rows())) == whole
            log.append(TASKS[5], {"number": 5})
        with opened(path) as log:
            assert len(log.done) == whole + 1 and log.dropped_bytes == 0


@pytest.mark.parametrize("place", [0.3, 0.6, 0.95])
def test_nothing_behind_damage_is_trusted(tmp_path: Path, place: float) -> None:
    path = tmp_path / "log.jsonl"
    data = bytearray(filled(path, 4))
    first = data.index(b"\n") + 1
    spot = first + int((len(data) - first) * place)
    data[spot] ^= 1
    path.write_bytes(data)
    with opened(path) as log:
        assert len(log.done) == data[first:spot].count(b"\n") and log.dropped_bytes > 0
        assert len(list(log.rows())) == len(log.done)
    path.write_bytes(bytes(data[:-1]) + b"\x00" * 600)  # what a power cut leaves
    with opened(path) as log:
        assert len(log.done) <= 3


@pytest.mark.parametrize(
    "content",
    [b"something else\n", b'{"a": 1}\n{"b": 2}\n', b"PAR1\x00\x01", b"\n", b"\x00"],
    ids=["text", "jsonl", "binary", "blank", "nul"],
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    with pytest.raises(Abort, match="no rollout log"):
        opened(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("other", [{"policy": "q"}, {"plan": "e"}], ids=str)
def test_the_log_of_another_evaluation_is_refused_and_left_alone(tmp_path: Path, other: dict[str, str]) -> None:
    path = tmp_path / "log.jsonl"
    data = filled(path, 2)
    with pytest.raises(Abort, match="another evaluation"):
        opened(path, **other)
    assert path.read_bytes() == data


def test_two_writers_are_one_too_many(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with opened(path), pytest.raises(Abort, match="another process"):
        opened(path)
    opened(path).close()


def test_a_line_that_the_disk_refuses_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    data = filled(path, 1)
    write = os.write

    def full(handle: int, view: Any) -> int:
        if len(view) > 10:
            return write(handle, view[:10])
        raise OSError(28, "no space left on device")

    with opened(path) as log:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="no space"):
            log.append(TASKS[1], {"text": "x" * 995})
        monkeypatch.undo()
        assert path.read_bytes() == data and len(log.done) == 1
        log.append(TASKS[1], {"text": "y"})
    with opened(path) as log:
        assert len(log.done) == 2


CHILD = """
import sys, time
from pathlib import Path
from trajectory_platform_tests.evaluation.test_rollout_log import roll
roll(Path(sys.argv[1]), Path(sys.argv[2]), wait=0.03)
"""


def roll(path: Path, asked: Path, wait: float = 0.0) -> None:
    """Attempt what the log lacks; every request leaves a line in ``asked``."""
    world = market()

    def answer(request: Any) -> Any:
        with asked.open("a", encoding="utf-8") as file:
            file.write(f"{request.task.problem_key} {request.task.sample} {request.turn}\n")
        time.sleep(wait)
        return honest()[request.turn]

    with opened(path) as log:
        for one in log.remaining(TASKS):
            rollout = run_episode(Says(answer), one, world, Limits(), clock=clock(one))
            log.append(one, rollout_row(rollout, checkpoint_id="p", stage="base", day="2026-05-04", plan="d"))


def test_a_killed_evaluation_resumes_and_asks_for_nothing_twice(tmp_path: Path) -> None:
    path, asked = tmp_path / "log.jsonl", tmp_path / "asked.txt"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(asked)])
    try:
        patience = time.monotonic() + 60
        while not path.exists() or path.read_bytes().count(b"\n") < 3:  # the first line and two attempts
            assert child.poll() is None and time.monotonic() < patience
            time.sleep(0.005)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    with path.open("ab") as file:
        file.write(b'0123456789abcdef {"key": ["key-2", 0], "row": {"ending": "termi')  # killed in mid line
    with opened(path) as log:
        finished = set(log.done)
        assert 2 <= len(finished) < 6 and log.dropped_bytes > 0
    asked.write_text("", encoding="utf-8")
    roll(path, asked)
    again = {(line.split()[0], int(line.split()[1])) for line in asked.read_text(encoding="utf-8").splitlines()}
    assert again == {(one.problem_key, one.sample) for one in TASKS} - finished
    whole = tmp_path / "whole.jsonl"
    roll(whole, tmp_path / "other.txt")
    with opened(path) as log, opened(whole) as fresh:
        assert list(log.rows()) == list(fresh.rows())
