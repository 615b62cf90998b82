"""A clock for all processes of a simulated history: Python imports this file where its folder is on the path.

The file ``TRAJECTORY_PLATFORM_TESTS_CLOCK`` holds by how many seconds the clock is ahead of the machine's; a process
follows a change within a tenth of a second. Only what Python asks for is moved, never back: the deadlines that gRPC and
other native code wait for go by the machine's clock and are at worst too long.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable


def _leave_grpc(now: Callable[[], float]) -> None:
    from types import SimpleNamespace

    for part in ("aio", "_channel", "_common", "_server", "_utilities"):
        importlib.import_module(f"grpc.{part}")  # some of them are imported late otherwise

    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "grpc" and getattr(module, "time", None) is time:
            vars(module)["time"] = SimpleNamespace(**{**vars(time), "time": now})


def _follow(path: str) -> None:
    import time_machine

    real, since = time.time(), time.monotonic()

    def ahead() -> float:
        with open(path, encoding="ascii") as stream:
            return float(stream.read())

    moved = ahead()
    _leave_grpc(lambda: real + time.monotonic() - since)
    clock = time_machine.travel(real + moved, tick=True).start()

    def watch() -> None:
        known = moved
        while True:
            time.sleep(0.1)
            try:
                found = ahead()
            except (OSError, ValueError):
                return  # the history is over
            if found != known:
                known = found
                clock.move_to(real + time.monotonic() - since + found)

    def begin() -> None:
        threading.Thread(target=watch, name="clock of the history", daemon=True).start()

    begin()
    os.register_at_fork(after_in_child=begin)


if os.environ.get("TRAJECTORY_PLATFORM_TESTS_CLOCK"):
    try:
        _follow(os.environ["TRAJECTORY_PLATFORM_TESTS_CLOCK"])
    except (OSError, ImportError) as error:
        sys.stderr.write(f"no clock of the history: {error}\n")
