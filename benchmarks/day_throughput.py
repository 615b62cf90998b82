"""One simulated day through the daily stages: traces per second, peak memory, and the ratio to merely parsing.

    python benchmarks/day_throughput.py [--traces 20000] [--days-dir DIR]

Claims: a day of 20,000 traces goes from raw artifacts to the axis-A corpus in minutes on one core, with memory
bounded by batches and per-trace features rather than by the texts of the day. The yardstick is measured in the same
run: gunzip and ``orjson.loads`` of the same artifact bytes. Every stage runs in a process of its own, so that its
peak memory is its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from datetime import date
from pathlib import Path

import orjson

DAY = date(2026, 5, 2)
STAGES = ("raw_traces", "problem_suites", "trajectories", "judged_traces", "axis_a_corpus")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=20_000)
    parser.add_argument("--days-dir", type=Path, help="simulated days to use instead of writing them anew")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--lake", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stage:
        print(json.dumps(run_stage(args.stage, args.days_dir, args.lake)))
        return
    with tempfile.TemporaryDirectory() as folder:
        days = args.days_dir or Path(folder) / "days"
        if args.days_dir is None:
            child(["--stage", "simulate", "--days-dir", str(days), "--lake", str(args.traces)])
        measure(days, Path(folder) / "lake")


def measure(days: Path, lake: Path) -> None:
    """Run the yardstick and every stage, print the table."""
    yardstick = child(["--stage", "yardstick", "--days-dir", str(days), "--lake", str(lake)])
    traces = yardstick["rows"]
    print(
        f"{traces} artifacts, {yardstick['stored'] / 2**20:.1f} MiB stored, "
        f"{yardstick['inflated'] / 2**20:.1f} MiB inflated"
    )
    print(f"{'stage':<28}{'CPU s':>8}{'traces/s':>10}{'ratio':>8}{'peak MiB':>10}")
    total = 0.0
    for stage in ("yardstick", *STAGES):
        found = (
            yardstick
            if stage == "yardstick"
            else child(["--stage", stage, "--days-dir", str(days), "--lake", str(lake)])
        )
        name = "gunzip + orjson.loads" if stage == "yardstick" else stage
        total += 0.0 if stage == "yardstick" else found["cpu_s"]
        ratio = found["cpu_s"] / yardstick["cpu_s"]
        print(
            f"{name:<28}{found['cpu_s']:>8.1f}{traces / found['cpu_s']:>10.0f}{ratio:>8.1f}{found['peak_mib']:>10.0f}"
        )
    print(f"{'all stages':<28}{total:>8.1f}{traces / total:>10.0f}{total / yardstick['cpu_s']:>8.1f}")


def child(arguments: list[str]) -> dict[str, float]:
    """Run one part in a process of its own and read its one line of JSON."""
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_stage(stage: str, days: Path, lake: Path) -> dict[str, float]:
    """One part: its CPU seconds, rows and peak memory."""
    if stage == "simulate":
        from trajectory_platform.arena.simulate import simulate

        simulate(days, days=1, traces_per_day=int(str(lake)), seed=1, first_day=DAY)
        return {"rows": int(str(lake))}
    if stage == "yardstick":
        return parse_all(days)
    from trajectory_platform.settings import Settings
    from trajectory_platform.stages.context import StageContext
    from trajectory_platform.stages.plain import DAILY_STAGES

    ctx = StageContext(Settings(data_root=str(days), lake_uri=str(lake)))
    started = time.process_time()
    result = dict(DAILY_STAGES)[stage](ctx, DAY.isoformat())
    manifest = list(result.manifests.values())[-1]
    return {"rows": manifest.rows, "cpu_s": time.process_time() - started, "peak_mib": peak_mib()}


def parse_all(days: Path) -> dict[str, float]:
    """Gunzip and parse every artifact of the day, nothing else."""
    files = sorted((days / DAY.isoformat() / "artifacts").glob("*/*"))
    stored = inflated = 0
    started = time.process_time()
    for file in files:
        data = file.read_bytes()
        stored += len(data)
        try:
            text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        except (EOFError, OSError, zlib.error):
            continue  # cut uploads, which the platform rejects as a whole
        inflated += len(text)
        for line in [text] if text[:1] == b"[" else text.splitlines():
            try:
                orjson.loads(line)
            except orjson.JSONDecodeError:
                continue  # NaN tokens and cut lines, which the platform repairs or quarantines
    spent = time.process_time() - started
    return {
        "rows": len(files),
        "stored": stored,
        "inflated": inflated,
        "cpu_s": spent,
        "peak_mib": peak_mib(),
    }


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
