"""A day on S3 against the same day on disk: publish, read, look up; and how many requests a publish makes.

    python benchmarks/lake_on_s3.py [--traces 20000] [--repeats 3]

Claims: publishing a day to an object store takes about thirty requests whatever the size of the day, reading one takes
a few. The yardstick is measured in the same run: the same rows in a lake on the local disk, in turn with the other.
The store is moto on this machine (``trajectory_platform_tests.s3_server``), which itself takes much of the time: what
counts elsewhere is the number of requests times their latency, plus the bytes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DAYS = [f"2026-05-{number:02d}" for number in range(1, 29)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    from trajectory_platform_tests import s3_server

    with tempfile.TemporaryDirectory() as folder, s3_server.running() as server:
        os.environ.update(server.environment)
        server.bucket("bench")
        measure(server, Path(folder), args.traces, args.repeats)


def measure(server: Any, folder: Path, traces: int, repeats: int) -> None:
    """Publish days to both lakes in turn and print the table: median seconds, ratio, requests of one call."""
    from trajectory_platform.lake.publish import Lake
    from trajectory_platform.lake.tables import RAW_TRACES, TRAJECTORIES

    lakes = {"disk": Lake(str(folder / "lake")), "s3": Lake("s3://bench/lake", folder / "local")}
    print(f"{traces} traces a day, {repeats} days each; seconds are medians")
    print(f"{'table':<14}{'':<24}{'disk s':>8}{'s3 s':>8}{'ratio':>7}{'requests':>10}")
    for table in (RAW_TRACES, TRAJECTORIES):
        rows = {day: _rows(table, day, traces) for day in DAYS[: repeats + 1]}
        for lake in lakes.values():  # imports, connections, the table itself
            _publish(lake, table, DAYS[repeats], rows[DAYS[repeats]])
        some = rows[DAYS[0]].column("trace_id").to_pylist()[:: traces // 10]

        def publish(lake: Any, day: str, table: Any = table, rows: Any = rows) -> None:
            _publish(lake, table, day, rows[day])

        def current(lake: Any, day: str, table: Any = table) -> None:
            assert lake.is_current(table, day, "bench")

        def read(lake: Any, day: str, table: Any = table) -> None:
            assert lake.read(table, [day]).num_rows == traces

        def look_up(lake: Any, day: str, table: Any = table, some: Any = some) -> None:
            assert lake.lookup(table, "trace_id", some, [day]).num_rows <= len(some)

        for name, work in (
            ("publish a day", publish),
            ("is it current", current),
            ("read a day", read),
            ("look up 10 traces", look_up),
        ):
            _report(server, lakes, f"{table.name:<14}{name:<24}", work, repeats)


def _report(server: Any, lakes: dict[str, Any], name: str, work: Callable[[Any, str], None], repeats: int) -> None:
    seconds: dict[str, list[float]] = {kind: [] for kind in lakes}
    requests: list[int] = []
    for day in DAYS[:repeats]:
        for kind, lake in lakes.items():
            server.requests()
            began = time.perf_counter()
            work(lake, day)
            seconds[kind].append(time.perf_counter() - began)
            if kind == "s3":
                requests.append(len(server.requests()))
    disk, s3 = statistics.median(seconds["disk"]), statistics.median(seconds["s3"])
    print(f"{name}{disk:>8.3f}{s3:>8.3f}{s3 / disk:>7.1f}{statistics.median(requests):>10.0f}")


def _publish(lake: Any, table: Any, day: str, rows: Any) -> None:
    lake.publish(table, day, rows, identity="bench", inputs={}, code_version="1", settings={})


def _rows(table: Any, day: str, count: int) -> Any:
    """Rows with about 4 KB of text that compresses like dialogues, where the table has such a column."""
    import hashlib

    from trajectory_platform_tests.lake.rows import fill

    def text(number: int) -> str:
        seed = hashlib.sha256(f"{day}{number}".encode()).hexdigest()
        return f'[{{"role": "user", "content": "{seed} {"find me a lamp that fits " * 60}"}}, {seed * 30!r}]'

    ids = [f"run{number // 50:06d}:p{number % 50:03d}" for number in range(count)]
    more = {"messages": [text(number) for number in range(count)]} if table.big_text else {}
    return fill(table, ids, day, **more)


if __name__ == "__main__":
    main()
