"""A backfill by the command over a real webserver and daemon, all of it killed in the middle and begun again."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib import request

import psutil

from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.defs.daemons import MODULE, REPOSITORY, Home, end, home_of, wait_until


def config(poll_s: int = 10) -> str:
    """The shipped instance; a run whose worker died is found out sooner than in a minute."""
    text = (REPOSITORY / "dagster.yaml").read_text("utf-8")
    return text.replace("poll_interval_seconds: 60", f"poll_interval_seconds: {poll_s}")


class Memory(threading.Thread):
    """The most resident memory that some process groups held at one time, looked at every second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.leaders: list[int] = []
        self.peak_mb = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(1.0):
            held = sum(_resident(leader) for leader in list(self.leaders))
            self.peak_mb = max(self.peak_mb, held >> 20)


def _resident(leader: int) -> int:
    try:
        family = [psutil.Process(leader), *psutil.Process(leader).children(recursive=True)]
    except psutil.Error:
        return 0
    total = 0
    for process in family:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def served(home: Home, port: int, memory: Memory) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A webserver and a daemon; both killed at the end."""
    with home.started("-m", "dagster_webserver", "-m", MODULE, "-h", "127.0.0.1", "-p", str(port)) as web:
        daemon = home.daemon()
        memory.leaders += [web.pid, daemon.pid]
        try:
            wait_until(lambda: _answers(port), within_s=240, what="the webserver answers")
            yield [web, daemon]
        finally:
            end(daemon)
            memory.leaders.clear()


def _answers(port: int) -> bool:
    try:
        with request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def run(folder: Path, settings: Settings, days: list[str], *, kill: bool = True) -> dict[str, Any]:
    """The days by ``trajectory-platform backfill``, killed once about half of them have been read.

    Returns:
        what the second command said, and ``killed_after`` (complete days), ``per_day`` (materialisations of the corpus
        per day), ``duplicates`` (rows of raw_traces that stand twice), ``total_s``, ``peak_memory_of_all_mb``.
    """
    home = home_of(folder, settings, config())
    lake = StageContext(settings).lake
    port, memory = free_port(), Memory()
    memory.start()
    began = time.monotonic()
    command = (
        "-m", "trajectory_platform.cli", "backfill", "--from", days[0], "--to", days[-1],
        "--server", f"http://127.0.0.1:{port}", "--json",
    )  # fmt: skip
    before = 0
    if kill:
        with served(home, port, memory) as (web, daemon), home.started(*command) as client:
            half = max(1, len(days) // 2)
            wait_until(lambda: len(lake.days("raw_traces")) >= half, within_s=1200, what=f"{half} days")
            before = len(lake.days("axis_a_corpus"))
            for process in (daemon, client, web):
                end(process, signal.SIGKILL)
    with served(home, port, memory):
        code, printed = home.run(*command, timeout_s=3000)
    memory.over.set()
    line = next((one for one in reversed(printed.splitlines()) if one.startswith("{")), None)
    assert line is not None, printed[-3000:] + home.log()[-3000:]
    return {
        **json.loads(line),
        "code": code,
        "killed_after": before,
        "per_day": _materialised(home, days),
        "duplicates": _duplicates(lake, days),
        "total_s": round(time.monotonic() - began, 1),
        "peak_memory_of_all_mb": memory.peak_mb,
    }


def _materialised(home: Home, days: list[str]) -> dict[str, int]:
    import dagster as dg

    with home.instance() as instance:
        records = instance.fetch_materializations(dg.AssetKey("axis_a_corpus"), limit=10 * len(days)).records
    return dict(Counter(str(record.partition_key) for record in records))


def _duplicates(lake: Any, days: list[str]) -> int:
    rows = lake.read("raw_traces", days, columns=["trace_id", "day"]).to_pylist()
    return len(rows) - len({(row["trace_id"], row["day"]) for row in rows})
