"""What is done to a process from inside, at a point of its work that a seed chooses.

A point is the n-th call of, or return from, one function of the platform. It is found in the recording of an
undisturbed run, so equal seeds meet equal points; a further delay reaches into the libraries, where no point can be
named.
"""

from __future__ import annotations

import datetime as real_datetime
import importlib
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trajectory_platform_tests.lake import children

PACKAGE = str(Path(__file__).resolve().parents[2] / "trajectory_platform") + os.sep
Points = dict[str, int]


@dataclass(frozen=True)
class Trap:
    """An action at a point.

    Attributes:
        action: kill | clock (jump by ``value`` seconds) | kill_worker | starve_worker (leave it ``value`` bytes).
        later_s: seconds between the point and a kill.
    """

    name: str
    nth: int
    when: str
    action: str = "kill"
    later_s: float = 0.0
    value: float = 0.0

    def __str__(self) -> str:
        later = f" + {1000 * self.later_s:.0f} ms" if self.later_s else ""
        return f"{self.when} {self.nth} of {self.name}{later}"


def drawn(points: Points, chance: random.Random, action: str = "kill", value: float = 0.0) -> Trap:
    """A trap at a random function, so that hot loops do not take all seeds; every third one comes a little later."""
    name = chance.choice(sorted(points))
    later = chance.uniform(0.0, 0.03) if action == "kill" and not chance.randrange(3) else 0.0
    return Trap(name, chance.randint(1, points[name]), chance.choice(["call", "return"]), action, later, value)


def recorded(path: Path, *packages: str) -> Points:
    """The points of a recording that lie in some packages."""
    found: Points = json.loads(path.read_text("utf-8"))["calls"]
    return {name: times for name, times in found.items() if name.startswith(packages)}


@cache
def _name(code: Any) -> str | None:
    if not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"):
        return None
    module = code.co_filename.removeprefix(PACKAGE).removesuffix(".py").replace(os.sep, ".")
    return f"{module}:{code.co_qualname}"


class _Watch:
    """The profile function of a child: counts calls, and springs the trap."""

    def __init__(self, trap: Trap | None) -> None:
        self.calls: Counter[str] = Counter()
        self._returns = 0
        self._trap = trap

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        name = _name(frame.f_code)
        if name is None:
            return
        if event == "call":
            self.calls[name] += 1
        trap = self._trap
        if trap is None or name != trap.name:
            return
        if event == "return":
            self._returns += 1
        reached = self.calls[name] if event == "call" else self._returns
        if event == trap.when and reached >= trap.nth:
            self._trap = None
            spring(trap)


def spring(trap: Trap) -> None:
    """Do what the trap says, now."""
    if trap.action == "kill":
        if not trap.later_s:
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Thread(target=_kill_later, args=(trap.later_s,), daemon=True).start()
    elif trap.action == "clock":
        jump(trap.value)
    else:
        for worker in multiprocessing.active_children():
            if worker.pid is not None and trap.action == "kill_worker":
                os.kill(worker.pid, signal.SIGKILL)
            elif worker.pid is not None:
                resource.prlimit(worker.pid, resource.RLIMIT_AS, (int(trap.value), int(trap.value)))


def _kill_later(seconds: float) -> None:
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def jump(seconds: float) -> None:
    """Let every clock of this process that tells a date jump; those that measure durations go on (as the kernel's)."""
    honest = time.time

    class Shifted(real_datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real_datetime.datetime.now(tz) + real_datetime.timedelta(seconds=seconds)

    time.time = lambda: honest() + seconds
    for name, module in list(sys.modules.items()):
        if name.startswith("trajectory_platform.") and getattr(module, "datetime", None) is real_datetime.datetime:
            module.datetime = Shifted  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Conditions:
    """What a child lives with: variables, a trap, limits, another user; where its words and recording go.

    ``imported`` is a recording whose modules are imported before the user changes, who may not read all of Python.
    """

    env: dict[str, str]
    said: str
    trap: Trap | None = None
    record: str | None = None
    file_bytes: int | None = None
    uid: int | None = None
    imported: str | None = None


def _prepare(how: Conditions) -> _Watch | None:
    os.environ.update(how.env)
    descriptor = os.open(how.said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    if how.file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (how.file_bytes, how.file_bytes))
    if how.imported is not None:
        for name in json.loads(Path(how.imported).read_text("utf-8"))["modules"]:
            with suppress(Exception):
                importlib.import_module(name)
    if how.uid is not None and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(how.uid)
        os.setuid(how.uid)
    if how.trap is None and how.record is None:
        return None
    watch = _Watch(how.trap)
    threading.setprofile(watch)
    sys.setprofile(watch)
    return watch


def _end(how: Conditions, watch: _Watch | None) -> None:
    sys.setprofile(None)
    if watch is not None and how.record is not None:
        Path(how.record).write_text(json.dumps({"calls": watch.calls, "modules": sorted(sys.modules)}), "utf-8")


def command(how: Conditions, words: tuple[str, ...]) -> None:
    """Child: the platform's command line."""
    watch = _prepare(how)
    sys.argv = ["trajectory-platform", *words]
    from trajectory_platform.cli import main

    try:
        main()
    finally:
        _end(how, watch)


def publish(how: Conditions, uri: str, table: str) -> None:
    """Child: the new day of ``lake.children`` is published."""
    watch = _prepare(how)
    try:
        children.publish_new(uri, table, "never")
    finally:
        _end(how, watch)
