"""Forty days of the arena, generated, ingested and curated in one go.

    python benchmarks/forty_days.py [--days 40] [--traces 2000] [--first-day 2026-03-26] [--workers N]
        [--ingest-workers N] [--keep DIR]

Claims: the first 40 days of the subnet (all eras occur: bare lists without a log, the log, envelopes, the whole-file
uploads, discrete scores) go from nothing to an axis-A corpus with memory that depends on the catalogue and one day,
not on the number of days. The yardstick is measured in the same run: gunzip and ``orjson.loads`` of the same artifact
bytes, one core. Every phase runs in a process of its own; its workers' peak memory is that of the largest of them.
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
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import orjson

PHASES = ("simulate", "yardstick", "ingest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--traces", type=int, default=2_000, help="pairs a day")
    parser.add_argument("--first-day", type=date.fromisoformat, default=date(2026, 3, 26))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=None, help="processes of the arena; default one per CPU")
    parser.add_argument("--ingest-workers", type=int, default=1, help="processes of the normaliser")
    parser.add_argument("--keep", type=Path, default=None, help="folder for days and lake, instead of a temporary one")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        print(json.dumps(run_phase(options)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        measure(options, options.keep or Path(scratch))


def measure(options: argparse.Namespace, root: Path) -> None:
    """Run the phases and print the table, the stages and the funnel."""
    found = {phase: child(options, root, phase) for phase in PHASES}
    pairs = options.days * options.traces
    yard = found["yardstick"]
    print(f"{options.days} days from {options.first_day}, {pairs} pairs, {yard['files']} artifacts", end=", ")
    print(f"{yard['stored'] / 2**20:.0f} MiB stored, {yard['inflated'] / 2**20:.0f} MiB inflated")
    print(f"{'phase':<24}{'wall s':>8}{'CPU s':>8}{'pairs/s':>9}{'ratio':>7}{'peak MiB':>10}{'workers MiB':>13}")
    names = {"yardstick": "gunzip + orjson.loads", "ingest": "ingest and curate"}
    for phase in PHASES:
        row = found[phase]
        print(
            f"{names.get(phase, phase):<24}{row['wall_s']:>8.1f}{row['cpu_s']:>8.1f}{pairs / row['wall_s']:>9.0f}"
            f"{row['wall_s'] / yard['wall_s']:>7.1f}{row['peak_mib']:>10.0f}{row['children_mib']:>13.0f}"
        )
    both = found["simulate"]["wall_s"] + found["ingest"]["wall_s"]
    print(f"{'in one go':<24}{both:>8.1f}{'':>8}{pairs / both:>9.0f}{both / yard['wall_s']:>7.1f}")
    print(f"arena by quarter, pairs/s: {', '.join(f'{rate:.0f}' for rate in found['simulate']['quarters'])}")
    print("stages, wall s: " + ", ".join(f"{name} {spent:.1f}" for name, spent in found["ingest"]["stages"].items()))
    for name, counts in found["ingest"]["funnel"].items():
        print(f"{name:<12}" + ", ".join(f"{key} {count}" for key, count in counts.items()))


def child(options: argparse.Namespace, root: Path, phase: str) -> dict[str, Any]:
    """Run one phase in a process of its own and read its one line of JSON."""
    arguments = ["--phase", phase, "--keep", str(root), "--days", str(options.days), "--traces", str(options.traces)]
    arguments += ["--first-day", options.first_day.isoformat(), "--seed", str(options.seed)]
    arguments += ["--ingest-workers", str(options.ingest_workers)]
    arguments += [] if options.workers is None else ["--workers", str(options.workers)]
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_phase(options: argparse.Namespace) -> dict[str, Any]:
    """One phase: wall and CPU seconds, peak memory of this process and of its largest worker, and what it found."""
    started = time.perf_counter()
    found = {"simulate": generate, "yardstick": parse_all, "ingest": ingest}[options.phase](options)
    own, workers = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_s": time.perf_counter() - started,
        "cpu_s": own.ru_utime + own.ru_stime + workers.ru_utime + workers.ru_stime,
        "peak_mib": own.ru_maxrss / 1024,
        "children_mib": workers.ru_maxrss / 1024,
        **found,
    }


def generate(options: argparse.Namespace) -> dict[str, Any]:
    """Write the days; the speed of each quarter of them shows whether it sinks as days pass."""
    from trajectory_platform.arena.simulate import simulate

    ends: list[float] = [time.perf_counter()]

    def progress(day: date, done: int, total: int) -> None:
        if done >= total and len(ends) <= (day - options.first_day).days + 1:
            ends.append(time.perf_counter())

    simulate(
        options.keep / "days",
        days=options.days,
        traces_per_day=options.traces,
        seed=options.seed,
        first_day=options.first_day,
        workers=options.workers,
        overwrite=True,
        progress=progress,
    )
    quarter = max(1, options.days // 4)
    marks = ends[::quarter]
    quarters = [quarter * options.traces / (last - first) for first, last in zip(marks, marks[1:], strict=False)]
    return {"quarters": quarters}


def parse_all(options: argparse.Namespace) -> dict[str, Any]:
    """Gunzip and parse every artifact, nothing else."""
    files = stored = inflated = 0
    for file in artifacts(options):
        data = file.read_bytes()
        files, stored = files + 1, stored + len(data)
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
    return {"files": files, "stored": stored, "inflated": inflated}


def artifacts(options: argparse.Namespace) -> Iterator[Path]:
    for number in range(options.days):
        day = options.first_day + timedelta(days=number)
        yield from sorted((options.keep / "days" / day.isoformat() / "artifacts").glob("*/*"))


def ingest(options: argparse.Namespace) -> dict[str, Any]:
    """All days from raw files to the corpus, stage by stage; the funnel over all days."""
    from trajectory_platform.settings import Settings
    from trajectory_platform.stages.plain import ingest_days

    root = options.keep
    settings = Settings(
        data_root=str(root / "days"),
        lake_uri=str(root / "lake"),
        first_day=options.first_day,
        workers=options.ingest_workers,
    )
    stages: dict[str, float] = {}
    funnel: dict[str, Counter[str]] = {
        "rows": Counter(),
        "by_stage": Counter(),
        "by_axis": Counter(),
        "by_use": Counter(),
    }
    mark = time.perf_counter()
    for fact in ingest_days(settings, None, None, None):
        now = time.perf_counter()
        stages[fact["stage"]] = stages.get(fact["stage"], 0.0) + now - mark
        mark = now
        if fact["state"] == "failed":
            raise SystemExit(f"{fact['stage']} {fact['day']}: {fact['text']}")
        if fact["stage"] == "axis_a_corpus":
            summary = fact["summary"]
            funnel["rows"].update({name: summary[name] for name in ("input", "accepted", "rejected")})
            for name in ("by_stage", "by_axis", "by_use"):
                funnel[name].update(summary[name])
    return {"stages": stages, "funnel": {name: dict(counts) for name, counts in funnel.items()}}


if __name__ == "__main__":
    main()
