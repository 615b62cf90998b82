"""One limiter per address for all processes of a machine (case I05): never more than N requests in any window."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.errors import RetryLater
from trajectory_platform.sources.request_limiter import MAX_HOLD_S, RequestLimiter


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def limiter(folder: Path, at: Time, count: int, *, window_s: float = 60.0, max_wait_s: float = 300.0) -> RequestLimiter:
    return RequestLimiter(
        folder,
        per_window=count,
        window_s=window_s,
        margin_s=0.0,
        clock=at.clock,
        sleep=at.sleep,
        max_wait_s=max_wait_s,
    )


def most_in_a_window(grants: list[float], window_s: float) -> int:
    grants = sorted(grants)
    return max((sum(start <= at < start + window_s for at in grants) for start in grants), default=0)


@settings(max_examples=40)
@given(
    count=st.integers(1, 5),
    steps=st.lists(st.tuples(st.integers(0, 2), st.floats(0, 45)), min_size=1, max_size=40),
)
def test_no_window_holds_more_than_allowed(count: int, steps: list[tuple[int, float]]) -> None:
    at = Time()
    with tempfile.TemporaryDirectory() as folder:
        processes = [limiter(Path(folder), at, count) for _ in range(3)]
        grants = []
        for number, pause in steps:
            at.now += pause
            processes[number].acquire()
            grants.append(at.now)
        for one in processes:
            one.close()
    assert most_in_a_window(grants, 60.0) <= count


def test_the_limit_is_used_and_not_more_is_waited_than_needed(tmp_path: Path) -> None:
    at = Time()
    one = limiter(tmp_path, at, 90)
    assert sum(one.acquire() for _ in range(90)) == 0
    assert one.acquire() == pytest.approx(60.0)


def test_a_retry_after_of_one_process_holds_all(tmp_path: Path) -> None:
    at = Time()
    told, other = limiter(tmp_path, at, 10), limiter(tmp_path, at, 10)
    told.hold(30)
    told.hold(5)
    assert other.acquire() == pytest.approx(30.0)
    assert other.acquire() == 0


def test_a_long_hold_is_said_and_not_slept(tmp_path: Path) -> None:
    at = Time()
    one = limiter(tmp_path, at, 10, max_wait_s=120)
    one.hold(1e9)
    with pytest.raises(RetryLater) as refused:
        one.acquire()
    assert refused.value.reason == "rate_limited"
    assert refused.value.after_s == pytest.approx(MAX_HOLD_S)
    at.now += MAX_HOLD_S
    assert one.acquire() == 0


def test_a_clock_that_is_set_back_does_not_stop_requests_for_ever(tmp_path: Path) -> None:
    at = Time()
    one = limiter(tmp_path, at, 2)
    one.acquire()
    one.acquire()
    at.now -= 86_400
    assert one.acquire() <= 60.0


def test_addresses_do_not_disturb_each_other(tmp_path: Path) -> None:
    at = Time()
    for address in ("a", "b"):
        one = RequestLimiter(tmp_path, per_window=1, address=address, clock=at.clock, sleep=at.sleep)
        assert one.acquire() == 0


_PROCESS = """
import sys, time
from trajectory_platform.sources.request_limiter import RequestLimiter
one = RequestLimiter(sys.argv[1], per_window=20, window_s=0.5, margin_s=0.05)
end = time.time() + float(sys.argv[2])
with open(sys.argv[3], "a", buffering=1) as out:
    while time.time() < end:
        one.acquire()
        out.write(f"{time.time()!r}\\n")
        time.sleep(0.02)  # the request
"""


def test_several_processes_share_one_budget_also_when_one_is_killed(tmp_path: Path) -> None:
    def start(name: str, seconds: float) -> subprocess.Popen[bytes]:
        arguments = [sys.executable, "-c", _PROCESS, str(tmp_path / "state"), str(seconds), str(tmp_path / name)]
        return subprocess.Popen(arguments)

    processes = [start(f"sent-{number}", 2.0) for number in range(3)]
    while not (tmp_path / "sent-0").exists():
        time.sleep(0.01)
    time.sleep(0.6)
    os.kill(processes[0].pid, signal.SIGKILL)
    processes.append(start("sent-3", 1.0))
    for process in processes:
        process.wait(timeout=60)
    sent = {path.name: [float(line) for line in path.read_text().splitlines()] for path in tmp_path.glob("sent-*")}
    assert most_in_a_window([at for times in sent.values() for at in times], 0.5) <= 20
    assert min(len(times) for name, times in sent.items() if name != "sent-0") >= 5  # nobody is starved
