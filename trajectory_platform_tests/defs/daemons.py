"""A DAGSTER_HOME with settings of its own, and real daemons over it: started, waited for, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import dagster as dg

from trajectory_platform.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[2]
MODULE = "trajectory_platform.defs.definitions"


@dataclass(frozen=True)
class Home:
    """A folder with a ``dagster.yaml``, and the environment of processes that use it."""

    folder: Path
    env: Mapping[str, str]

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        """The instance as this process sees it."""
        with dg.DagsterInstance.from_config(str(self.folder)) as instance:
            yield instance

    def run(self, *command: str, timeout_s: float = 300) -> tuple[int, str]:
        """A command of this interpreter to its end; its code and what it printed.

        What it leaves behind (a code server whose parent was killed) is ended with it.
        """
        printed = self.folder / "printed"
        with printed.open("wb") as stream:
            process = self._start(command, stream)
            try:
                code = process.wait(timeout_s)
            finally:
                end(process)
        return code, printed.read_text("utf-8", "replace")

    @contextmanager
    def started(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """A process group in the background; it is killed at the end, its output is ``log`` in the folder."""
        with (self.folder / "log").open("ab") as log:
            process = self._start(command, log)
            try:
                yield process
            finally:
                end(process)

    def daemon(self) -> subprocess.Popen[bytes]:
        """``dagster-daemon run`` as a process group of its own; end it with :func:`end`."""
        with (self.folder / "log").open("ab") as log:
            return self._start(("-m", "dagster._daemon", "run", "-m", MODULE), log)

    def _start(self, command: tuple[str, ...], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *command], env=dict(self.env), cwd=REPOSITORY, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip

    def log(self) -> str:
        """What the daemons and servers printed."""
        path = self.folder / "log"
        return path.read_text("utf-8", "replace") if path.exists() else ""


def home_of(folder: Path, settings: Settings, config: str, **env: str) -> Home:
    """A home with this ``dagster.yaml`` whose processes have these settings in their environment."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dagster.yaml").write_text(config, "utf-8")
    given = settings.model_dump(mode="json", exclude_unset=True)
    variables = {f"TRAJECTORY_PLATFORM_{name.upper()}": _text(value) for name, value in given.items()}
    base = {name: value for name, value in os.environ.items() if not name.startswith("TRAJECTORY_PLATFORM_")}
    python = {"PYTHONPATH": str(REPOSITORY), "DAGSTER_HOME": str(folder), "DAGSTER_DISABLE_TELEMETRY": "yes"}
    return Home(folder, {**base, **python, **variables, **env})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def end(process: subprocess.Popen[bytes], how: int = signal.SIGKILL) -> None:
    """End a process group and wait for its leader."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)
    process.wait(60)


def wait_until(true: Callable[[], bool], *, within_s: float, what: str | Callable[[], object]) -> None:
    """Wait for a condition; a test that waits too long says for what, or shows what there is."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what if isinstance(what, str) else what()}"
        time.sleep(1.0)
