"""How fast raw artifacts become canonical trajectories, beside what unpacking and parsing alone costs.

    python benchmarks/normalise_throughput.py DAY_DIR [--repeat 5] [--workers 1]

Prints traces/s, inflated MB/s, peak memory, and the ratio to gunzip + orjson.loads of the same bytes in the same run
(best of the repeats each, CPU seconds for one worker, wall seconds for several).
"""

from __future__ import annotations

import argparse
import gzip
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

SHARED_DAY = Path(__file__).resolve().parents[2] / "shared" / "days" / "2026-05-02"


def main() -> int:
    """Measure and print."""
    import pyarrow.compute as pc

    from trajectory_platform.sources.container import Limits
    from trajectory_platform.sources.files import open_folder
    from trajectory_platform.traces.inventory import inventory_folder
    from trajectory_platform.traces.normalise import normalise_batches

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("day_dir", nargs="?", default=str(SHARED_DAY), help="a day folder, named YYYY-MM-DD")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    if options.day_dir == str(SHARED_DAY) and not SHARED_DAY.is_dir():
        print(f"skipped: no {SHARED_DAY}; name a day folder")
        return 0
    source, day = open_folder(options.day_dir)
    limits = Limits()
    clock = time.process_time if options.workers == 1 else time.perf_counter
    listing, inventory = timed(lambda: inventory_folder(source, day, limits), clock)
    rows = inventory.rows.filter(pc.equal(inventory.rows.column("state"), "trace"))
    uris = sorted(set(rows.column("artifact_uri").to_pylist()))
    if not uris:
        print(f"{options.day_dir}: no readable traces", file=sys.stderr)
        return 1
    before = peak_mib()
    size = sum(len(unpack(source.read(uri))) for uri in uris)

    def parse_only() -> None:
        for uri in uris:
            content = unpack(source.read(uri))
            for line in [content] if content[:1] == b"[" else content.splitlines():
                parse_leniently(line)

    def normalise() -> None:
        for _ in normalise_batches(rows, source, limits, 256, options.workers):
            pass

    normalise()
    baseline = min(timed(parse_only, clock)[0] for _ in range(options.repeat))
    taken = min(timed(normalise, clock)[0] for _ in range(options.repeat))
    print(
        f"{options.day_dir}: {rows.num_rows} traces, {len(uris)} artifacts, {size / rows.num_rows / 1024:.1f} KB each"
    )
    print(f"{'':<28}{'s':>9}{'traces/s':>11}{'MB/s':>8}")
    for name, seconds in (("gunzip + orjson.loads", baseline), ("normalise", taken), ("inventory (once)", listing)):
        print(f"{name:<28}{seconds:>9.3f}{rows.num_rows / seconds:>11.0f}{size / seconds / 1e6:>8.1f}")
    print(
        f"normalise takes {taken / baseline:.1f} times as long; peak memory {peak_mib():.0f} MiB ({before:.0f} before)"
    )
    return 0


def timed(work: Callable[[], Any], clock: Callable[[], float]) -> tuple[float, Any]:
    """(seconds, result)."""
    started = clock()
    result = work()
    return clock() - started, result


def unpack(data: bytes) -> bytes:
    """The content of a stored artifact."""
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def parse_leniently(line: bytes) -> Any:
    """What the yardstick does with one record: nothing when it is no strict JSON."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def peak_mib() -> float:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
