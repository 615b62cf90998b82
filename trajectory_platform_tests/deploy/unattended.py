"""The compose stack left alone with a history of the subnet: a clock for all of it, faults of services, waiting.

It begins with a backfill, which a person starts; from then on nothing but the daemon's schedules and sensors asks for
anything. The clock is moved on whenever nothing is in progress.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from dagster import DagsterRun
from dagster._core.scheduler.instigation import TickData
from dagster._serdes import deserialize_value

from trajectory_platform_tests.deploy.stack import REPOSITORY, Stack

CLOCK_FOLDER = str(Path(__file__).with_name("clock"))
CLOCK = "TRAJECTORY_PLATFORM_TESTS_CLOCK"
SERVICES = ("code", "webserver", "daemon")
FOLLOWING = ("new_raw_days", "repoll_open_days")
"""The sensors that ask for days."""
_IDLE_S = 30.0
_STEP = timedelta(minutes=6)  # above the shortest interval of every sensor, and above the rest a written folder needs


class Clock:
    """The clock of a history, in a file that all its processes read."""

    def __init__(self, folder: Path, now: datetime) -> None:
        self._path = folder / "clock"
        self.set(now)
        self.environment = {CLOCK: str(self._path), "PYTHONPATH": f"{CLOCK_FOLDER}:{REPOSITORY}"}

    def set(self, now: datetime) -> None:
        """From now on it is ``now``, and time runs as it does."""
        self._ahead = (now - datetime.now(UTC)).total_seconds()
        fresh = self._path.with_suffix(".new")
        fresh.write_text(f"{self._ahead:.3f}", "ascii")
        fresh.chmod(0o644)
        os.replace(fresh, self._path)
        time.sleep(0.3)  # every process has read it

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._ahead)


@contextmanager
def served(
    days: Path, faults: Mapping[str, Any] | None = None, *, rate: int = 100, environment: Mapping[str, str]
) -> Iterator[str]:
    """The subnet's API over simulated days in a process of its own, by the clock of ``environment``; its URL."""
    script = days.parent / "faults.json"
    script.write_text(json.dumps(faults or {}), "utf-8")
    command = ["-m", "trajectory_platform.cli", "arena", "serve", "--days", str(days), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, *command, "--faults", str(script), "--requests-per-minute", str(rate)],
        env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait(30)


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())


@dataclass
class Unattended:
    """A stack whose clock is moved; ``told`` collects what was done to it."""

    stack: Stack
    clock: Clock
    told: list[str] = field(default_factory=list)

    def backfill(self, first: date, last: date, trouble: Callable[[], None] | None = None) -> dict[str, Any]:
        """What a person starts once; ``trouble`` happens in the middle of it. Its facts."""
        command = (
            "trajectory-platform", "backfill", "--server", self.stack.url("webserver"), "--json",
            "--from", first.isoformat(), "--to", last.isoformat(),
        )  # fmt: skip
        done: list[subprocess.CompletedProcess[str]] = []
        thread = threading.Thread(target=lambda: done.append(self.stack.run("code", *command, timeout_s=7200)))
        thread.start()
        if trouble is not None:
            half = (last - first).days // 2
            self._wait(lambda: not thread.is_alive() or self.materialised("raw_traces") > half, "half of the backfill")
            trouble()
        thread.join()
        assert done and done[0].returncode in (0, 1), done[0].stderr[-3000:] if done else "no backfill"
        facts: dict[str, Any] = json.loads(done[0].stdout.splitlines()[-1])
        return facts

    def settle(self) -> int:
        """Wait until schedules and sensors ask for nothing more; how many runs they asked for since it was called."""
        asked_for = 0
        while True:
            since = self.clock.now()
            self._wait_for_ticks(since)
            self._wait(lambda: self.unfinished() == 0, "the end of runs")
            found = sum(len(runs) for _, runs in self.ticks(since))
            asked_for += found
            if not found:
                return asked_for
            self.clock.set(self.clock.now() + _STEP)

    def _wait_for_ticks(self, since: datetime) -> None:
        """Until every sensor that asks for days has ticked; where nothing happens meanwhile, time passes faster."""
        idle = time.monotonic()

        def ticked() -> bool:
            nonlocal idle
            if set(FOLLOWING) <= {name for name, _ in self.ticks(since)}:
                return True
            if time.monotonic() - idle > _IDLE_S and self.unfinished() == 0:
                self.clock.set(self.clock.now() + _STEP)
                idle = time.monotonic()
            return False

        self._wait(ticked, "ticks")

    def ticks(self, since: datetime) -> list[tuple[str, list[str]]]:
        """(schedule or sensor, runs it asked for) of every tick that ended since."""
        rows = self.stack.sql(
            f"select tick_body from job_ticks where status <> 'STARTED' and timestamp >= '{since:%Y-%m-%d %H:%M:%S.%f}'"
        )
        ticks = [deserialize_value(body, TickData) for (body,) in rows]
        return [(tick.instigator_name, list(tick.run_ids)) for tick in ticks]

    def unfinished(self) -> int:
        """Runs that are queued or in progress."""
        statement = "select count(*) from runs where status not in ('SUCCESS', 'FAILURE', 'CANCELED')"
        return int(self.stack.sql(statement)[0][0])

    def materialised(self, asset: str) -> int:
        """Days of an asset that were made."""
        statement = (
            "select count(distinct partition) from event_logs "
            f"where dagster_event_type = 'ASSET_MATERIALIZATION' and asset_key = '[\"{asset}\"]'"
        )
        return int(self.stack.sql(statement)[0][0])

    def runs(self) -> dict[tuple[str, str], int]:
        """(who asked for it, how it ended) -> runs."""
        found: Counter[tuple[str, str]] = Counter()
        for body, status in self.stack.sql("select run_body, status from runs"):
            tags = deserialize_value(body, DagsterRun).tags
            names = ("dagster/backfill", "dagster/schedule_name", "dagster/sensor_name")
            who = next((tags[name] for name in names if name in tags), "by hand")
            found["backfill" if "dagster/backfill" in tags else who, str(status)] += 1
        return dict(found)

    # ------------------------------------------------------------------------------------------ faults of services

    def killed(self, service: str) -> None:
        """SIGKILL to a service and all it started; started again, as ``restart: unless-stopped`` does."""
        self.told.append(f"{self.clock.now():%m-%d %H:%M} {service} killed")
        self.stack.stop(service, signal.SIGKILL)
        self.stack.start(service)
        self.stack.wait(service)

    def database_restarted(self) -> None:
        self.told.append(f"{self.clock.now():%m-%d %H:%M} Postgres restarted")
        self.stack.postgres.ctl("restart", "-m", "fast")

    def store_fails(self, times: int) -> None:
        """The next requests to the object store are answered by 503."""
        self.told.append(f"{self.clock.now():%m-%d %H:%M} {times} x 503 of the object store")
        self.stack.store.play("*", ".*", times, status=503, code="SlowDown")

    def _wait(self, true: Callable[[], bool], what: str, within_s: float = 1800) -> None:
        import psycopg2

        deadline = time.monotonic() + within_s
        while True:
            with suppress(psycopg2.OperationalError):  # it is being restarted
                if true():
                    return
            late = time.monotonic() > deadline
            assert not late, f"not within {within_s:.0f} s: {what}\n{self.stack.log('daemon')[-3000:]}"
            time.sleep(1.0)
