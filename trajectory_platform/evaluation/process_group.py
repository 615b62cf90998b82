"""A command in a process group of its own, of which nothing is left running, however its starter ends.

Ended or cancelled (an exception such as ``KeyboardInterrupt`` or Dagster's interruption), the whole group gets
SIGTERM and after a while SIGKILL. A starter that is killed outright can clean nothing up: therefore it passes its
process id on (``OWNER``), and a child that called :func:`end_with_owner` ends itself within a few seconds.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

OWNER = "TRAJECTORY_PLATFORM_OWNER"
GRACE_S = 20.0  # between SIGTERM and SIGKILL: a launcher ends its own workers in it
_POLL_S = 0.2
_WATCH_S = 1.0


def run_group(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    on_line: Callable[[str], None],
    on_idle: Callable[[], None] = lambda: None,
    grace_s: float = GRACE_S,
) -> int:
    """Run to the end; its exit code (negative: the signal that ended it).

    ``on_line`` gets every line of stdout and stderr as it comes, ``on_idle`` is called about five times a second;
    both in the calling thread. Whatever they raise ends the group and goes on to the caller.
    """
    process = subprocess.Popen(
        list(command),
        env={**os.environ, **env, OWNER: _owner_text(os.getpid())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",  # an odd byte in a log line must not end a training
        start_new_session=True,
    )
    assert process.stdout is not None
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_pump, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        _follow(process, lines, on_line, on_idle)
    finally:
        _end_group(process, grace_s)
        reader.join(timeout=5)
    return process.returncode


def end_with_owner() -> None:
    """From now on this process ends itself when its starter's process, or its own parent, is gone."""
    owner = os.environ.get(OWNER)
    if not owner:
        return  # started by something else than run_group (Kubernetes, a person)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent and _owner_text(int(owner.split(":")[0])) == owner:
            time.sleep(_WATCH_S)
        os._exit(128 + signal.SIGKILL)

    threading.Thread(target=watch, name="end-with-owner", daemon=True).start()


def is_alive(owner: str) -> bool:
    """Whether the process that an owner text (``pid:start``) names is still running, not another one of its number."""
    pid = owner.split(":")[0]
    return pid.isdigit() and _owner_text(int(pid)) == owner


def this_process() -> str:
    """The owner text of this process: its id and, where /proc tells it, when it started."""
    return _owner_text(os.getpid())


def _follow(
    process: subprocess.Popen[str],
    lines: queue.SimpleQueue[str | None],
    on_line: Callable[[str], None],
    on_idle: Callable[[], None],
) -> None:
    ended_at: float | None = None
    while True:
        try:
            line = lines.get(timeout=_POLL_S)
        except queue.Empty:
            line = ""
        if line is None:
            break
        if line:
            on_line(line.rstrip("\n"))
        on_idle()
        if _has_ended(process):  # a grandchild may still hold the pipe: it is not waited for longer than this
            ended_at = ended_at or time.monotonic()
            if not line and time.monotonic() - ended_at > 1.0:
                break
    while not _has_ended(process):
        time.sleep(_POLL_S)
        on_idle()
    on_idle()


def _pump(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _has_ended(process: subprocess.Popen[str]) -> bool:
    """True once the leader has ended; it stays unreaped, so that its group's number cannot pass to a stranger."""
    return process.returncode is not None or (
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    )


def _end_group(process: subprocess.Popen[str], grace_s: float) -> None:
    if not _has_ended(process):
        _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while not _has_ended(process) and time.monotonic() < deadline:
            time.sleep(_POLL_S / 4)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:  # nobody is left in it
        return
    except PermissionError:  # macOS says this of a group of which only the unreaped leader is left
        return


def _owner_text(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        state, *rest = stat.rpartition(")")[2].split()
        return "" if state == "Z" else f"{pid}:{rest[18]}"  # field 22: start time in clock ticks since boot
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return f"{pid}:"
