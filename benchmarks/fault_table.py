"""Runs every kind of fault with N seeds and prints what was found as a Markdown table.

    python benchmarks/fault_table.py [--seeds 50] [--first 0] [--kinds kill S3] [--json FILE]

A seed reproduces its fault: ``--kinds "kill: ingest" --first 17 --seeds 1``. Exit code 1 when a reader saw a partial
day, anything was doubled or lost, a rerun did not complete, or an error did not say what to do.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trajectory_platform.errors import PlatformError
from trajectory_platform_tests import conftest  # noqa: F401  (an environment that opens no socket by itself)
from trajectory_platform_tests.faults.oracle import NotHere, Outcome
from trajectory_platform_tests.faults.table import KINDS, Kind

HEAD = (
    *("kind", "seeds", "kills", "looks", "partial days seen", "duplicates", "losses", "rerun completes"),
    *("error told what to do", "s a seed"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, help="seeds a kind; at most its own long number. Default: the suite's")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=[""], help="beginnings of names")
    parser.add_argument("--json", type=Path, help="one line per seed")
    options = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)
    sound = True
    for kind in KINDS:
        if kind.name.startswith(tuple(options.kinds)):
            wanted = kind.default if options.seeds is None else min(options.seeds, kind.long)
            sound = one_kind(kind, range(options.first, options.first + wanted), options.json) and sound
    return 0 if sound else 1


def one_kind(kind: Kind, seeds: range, out: Path | None) -> bool:
    """Run the seeds of a kind and print its line."""
    found: list[Outcome] = []
    begun = time.monotonic()
    for seed in seeds:
        started = time.monotonic()
        try:
            outcome = kind.fault(seed)
        except NotHere as reason:
            print(f"| {kind.name} | not run: {reason} |" + " |" * (len(HEAD) - 2), flush=True)
            return True
        except (
            AssertionError,
            ArithmeticError,
            LookupError,
            OSError,
            PlatformError,
            RuntimeError,
            ValueError,
        ) as error:
            # a seed that breaks is a finding, the others go on
            outcome = Outcome(notes=[f"{type(error).__name__}: {error}"[:1500]])
        found.append(outcome)
        record(kind, seed, outcome, time.monotonic() - started, out)
    told = [one.told for one in found if one.told is not None]
    cells: list[Any] = [
        kind.name,
        len(found),
        sum(one.kills for one in found),
        sum(one.looks for one in found),
        sum(one.partial for one in found),
        sum(one.duplicates for one in found),
        sum(one.losses for one in found),
        f"{sum(one.completes for one in found)} of {len(found)}",
        f"{sum(told)} of {len(told)}" if told else "-",
        f"{(time.monotonic() - begun) / max(1, len(found)):.1f}",
    ]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    return all(one.sound() for one in found)


def record(kind: Kind, seed: int, outcome: Outcome, seconds: float, out: Path | None) -> None:
    """What is wrong goes to stderr, everything to the file."""
    if not outcome.sound():
        print(f"{kind.name}, seed {seed}, at {outcome.at}: {outcome}", file=sys.stderr, flush=True)
    if out is not None:
        with out.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"kind": kind.name, "seed": seed, "s": round(seconds, 2), **vars(outcome)}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
