"""Publishes two days of a lake over and over, every time with other rows, until its input closes.

python -m trajectory_platform_tests.deploy.publishing LAKE_URI
"""

from __future__ import annotations

import sys
import threading

from trajectory_platform.errors import PlatformError
from trajectory_platform.lake.publish import Lake

TABLES = ("raw_traces", "trajectories", "judged_traces", "verdicts", "axis_a_corpus", "rejected_traces")


def main(uri: str) -> None:
    """One line for every publish: table and day."""
    over = threading.Event()

    def until_closed() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=until_closed, daemon=True).start()
    lake, number = Lake(uri), 0
    while not over.is_set():
        number += 1
        for name in TABLES:
            if over.is_set():
                return
            _publish(lake, name, lake.days(name)[number % 2], number)


def _publish(lake: Lake, name: str, day: str, number: int) -> None:
    """The rows of a day without one of them, another one every time."""
    rows = lake.read(name, [day])
    if rows.num_rows < 2:
        return
    cut = number % 2
    kept = rows.slice(cut, rows.num_rows - 1 + cut) if number % 3 else rows
    try:
        lake.publish(name, day, kept, identity=f"{number}", inputs={}, code_version="1", settings={})
    except PlatformError as error:
        sys.stderr.write(f"{name} {day}: {error}\n")
    sys.stdout.write(f"{name} {day}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
