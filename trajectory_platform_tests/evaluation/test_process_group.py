"""Nothing a stage started is left running: when it ends, when it is cancelled, when its starter is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trajectory_platform.evaluation.process_group import is_alive, run_group, this_process

# A worker in a session of its own, as torchrun starts its ranks; it watches over its starter like every child of ours.
WORKER = """
import sys, time
from pathlib import Path
from trajectory_platform.evaluation.process_group import end_with_owner, this_process
end_with_owner()
Path(sys.argv[1]).write_text(this_process())
time.sleep(120)
"""
LAUNCHER = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {WORKER!r}, sys.argv[1]], start_new_session=True)
print("started", flush=True)
time.sleep(float(sys.argv[2]))
"""
STUBBORN = """
import signal, sys, time
from pathlib import Path
from trajectory_platform.evaluation.process_group import this_process
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(sys.argv[1]).write_text(this_process())
time.sleep(120)
"""


class Cancelled(BaseException):
    """As Dagster's interruption: no ``Exception``."""


def soon(what: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.05)
    return what()


def cancel_when(there: Path) -> Callable[[], None]:
    def idle() -> None:
        if there.exists() and there.read_text():
            raise Cancelled

    return idle


def test_lines_come_in_order_and_the_exit_code_is_the_childs() -> None:
    lines: list[str] = []
    code = run_group(
        [sys.executable, "-c", "import sys; print('a'); print('b', file=sys.stderr); sys.exit(3)"],
        {"PYTHONUNBUFFERED": "1"},
        on_line=lines.append,
    )
    assert (code, lines) == (3, ["a", "b"])


def test_a_cancelled_run_leaves_no_process_even_one_that_ignores_the_signal(tmp_path: Path) -> None:
    there = tmp_path / "pid"
    with pytest.raises(Cancelled):
        run_group(
            [sys.executable, "-c", STUBBORN, str(there)],
            {},
            on_line=print,
            on_idle=cancel_when(there),
            grace_s=0.5,
        )
    assert not is_alive(there.read_text())


def test_a_cancelled_launcher_takes_its_workers_with_it(tmp_path: Path) -> None:
    there = tmp_path / "pid"
    with pytest.raises(Cancelled):
        run_group(
            [sys.executable, "-c", LAUNCHER, str(there), "120"],
            {},
            on_line=print,
            on_idle=cancel_when(there),
            grace_s=0.5,
        )
    assert soon(lambda: not is_alive(there.read_text()))


def test_a_worker_that_holds_the_pipe_does_not_hold_the_stage(tmp_path: Path) -> None:
    there = tmp_path / "pid"
    started = time.monotonic()
    assert run_group([sys.executable, "-c", LAUNCHER, str(there), "1.5"], {}, on_line=print) == 0
    assert time.monotonic() - started < 30
    assert soon(lambda: there.exists() and not is_alive(there.read_text()))


def test_a_child_ends_itself_when_its_starter_is_killed(tmp_path: Path) -> None:
    there = tmp_path / "pid"
    starter = (
        "import sys; from trajectory_platform.evaluation.process_group import run_group\n"
        f"run_group([sys.executable, '-c', {WORKER!r}, sys.argv[1]], {{}}, on_line=print)"
    )
    process = subprocess.Popen([sys.executable, "-c", starter, str(there)])
    assert soon(lambda: there.exists() and bool(there.read_text()))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert soon(lambda: not is_alive(there.read_text()))


def test_a_process_is_told_from_a_later_one_of_its_number() -> None:
    own = this_process()
    assert is_alive(own)
    assert not is_alive(own.split(":")[0] + ":1")
