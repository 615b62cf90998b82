"""A simulated day through normalise, agency and the structural filter: traces/s, peak memory, ratio to parsing.

    python benchmarks/filter_throughput.py [--traces 12000 | --full] [--days-dir DIR] [--json]

The three are two stages of the daily flow (``trajectories``; ``axis_a_corpus``, which decides the axis and filters),
with reading from and publishing to the lake. The judge stands between them and is shown apart, as are the inventory
and the suites. Yardstick in the same run: gunzip and ``orjson.loads`` of the same artifact bytes, in one process.

Every row is a process of its own. CPU counts the process and its workers, so it does not depend on what else the
machine does; the clock does. ``ratio`` is CPU to the yardstick's CPU, ``clock ratio`` the clock to the yardstick's
clock: with two workers it says what two cores gain. Peak is that of the process plus that of its workers, each taken
as large as the largest. Aims of the platform for 60,000 traces on 2 cores (``--full``): 1,536 MiB and ratio 3.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from day_throughput import DAY, parse_all

FULL = 60_000
WORKERS = 2
LOADED = ("pyarrow.compute", "pyarrow.parquet", "deltalake", "tantivy")  # two seconds of imports are no throughput
AIM_MIB, AIM_RATIO = 1536, 3.0
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=12_000, help="pairs of the simulated day")
    parser.add_argument("--full", action="store_true", help=f"{FULL} pairs, the size the aims are given for")
    parser.add_argument("--days-dir", type=Path, help=f"simulated days that hold {DAY}, instead of writing them anew")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--lake", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        print(json.dumps(run_part(args.part, args.days_dir, args.lake, args.workers, args.traces)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        days = args.days_dir or Path(folder) / "days"
        if args.days_dir is None:
            child("simulate", days, Path(folder), traces=FULL if args.full else args.traces)
        rows = measure(days, Path(folder))
    print(json.dumps(rows) if args.json else table(rows))
    return 0


def measure(days: Path, scratch: Path) -> list[Row]:
    """Every part in its order; the lake with one worker and the one with two share the inventory."""
    one, two = scratch / "lake", scratch / "lake2"
    rows = [
        child("gunzip + orjson.loads", days, one),
        child("raw_traces", days, one),
        child("problem_suites", days, one),
    ]
    shutil.copytree(one, two)
    rows.append(child("trajectories", days, one))
    rows.append(child("trajectories", days, two, workers=WORKERS))
    rows += [child("judged_traces", days, one), child("axis_a_corpus", days, one)]
    for normalise, workers in ((rows[3], 1), (rows[4], WORKERS)):
        parts = (normalise, rows[6])
        rows.append(
            {
                "part": "normalise + agency + filter",
                "workers": workers,
                "rows": normalise["rows"],
                **{key: sum(part[key] for part in parts) for key in ("cpu_s", "wall_s")},
                "peak_mib": max(part["peak_mib"] for part in parts),
            }
        )
    for row in rows:
        row["ratio"] = row["cpu_s"] / rows[0]["cpu_s"]
        row["clock_ratio"] = row["wall_s"] / rows[0]["wall_s"]
    return rows


def child(part: str, days: Path, lake: Path, *, workers: int = 1, traces: int = 0) -> Row:
    """Run one part in a process of its own and read its one line of JSON."""
    command = [sys.executable, __file__, "--part", part, "--days-dir", str(days), "--lake", str(lake)]
    command += ["--workers", str(workers), "--traces", str(traces)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return {"part": part, "workers": workers, **found}


def run_part(part: str, days: Path, lake: Path, workers: int, traces: int) -> Row:
    """One part: rows, CPU seconds with its workers, seconds by the clock, peak memory."""
    if part == "simulate":
        from trajectory_platform.arena.simulate import simulate

        simulate(days, days=1, traces_per_day=traces, seed=1, first_day=DAY)
        return {"rows": traces}
    clock = time.perf_counter()
    if part.startswith("gunzip"):
        found = parse_all(days)
        return {**found, "wall_s": time.perf_counter() - clock}
    from trajectory_platform.settings import Settings
    from trajectory_platform.stages.context import StageContext
    from trajectory_platform.stages.plain import DAILY_STAGES

    for module in LOADED:
        import_module(module)
    ctx = StageContext(Settings(data_root=str(days), lake_uri=str(lake), workers=workers))
    before, clock = cpu_seconds(), time.perf_counter()
    result = dict(DAILY_STAGES)[part](ctx, DAY.isoformat())
    manifest = list(result.manifests.values())[-1]
    rows = result.summary["input"] if part == "axis_a_corpus" else manifest.rows
    return {
        "rows": rows,
        "cpu_s": cpu_seconds() - before,
        "wall_s": time.perf_counter() - clock,
        "peak_mib": peak_mib(workers),
    }


def cpu_seconds() -> float:
    """User and system seconds of this process and of its finished workers."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_mib(workers: int) -> float:
    """Peak of this process, and of its workers as if each were as large as the largest."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss if workers > 1 else 0
    return (own + workers * largest) / 1024


def table(rows: list[Row]) -> str:
    """The rows as text, and how the aims are met."""
    yardstick = rows[0]
    lines = [
        f"{yardstick['rows']} artifacts, {yardstick['inflated'] / 2**20:.0f} MiB inflated",
        f"{'':<34}{'CPU s':>8}{'clock s':>9}{'per core/s':>12}{'clock/s':>9}{'ratio':>7}{'clock ratio':>13}{'MiB':>7}",
    ]
    for row in rows:
        name = row["part"] + (f", {row['workers']} workers" if row["workers"] > 1 else "")
        lines.append(
            f"{name:<34}{row['cpu_s']:>8.1f}{row['wall_s']:>9.1f}{row['rows'] / row['cpu_s']:>12.0f}"
            f"{row['rows'] / row['wall_s']:>9.0f}{row['ratio']:>7.1f}{row['clock_ratio']:>13.1f}{row['peak_mib']:>7.0f}"
        )
    last = rows[-1]
    met = {True: "met", False: "not met"}
    lines.append(
        f"aims on {WORKERS} cores: peak {AIM_MIB} MiB {met[last['peak_mib'] <= AIM_MIB]}, "
        f"clock ratio {AIM_RATIO:.0f} {met[last['clock_ratio'] <= AIM_RATIO]}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
