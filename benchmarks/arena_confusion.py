"""Prints how the platform's own axis decision and injection flag agree with the truth of simulated days, era by era.

    python benchmarks/arena_confusion.py [--traces 2000] [--seed 5] [--noise 0.5] [--eras 2026-05-02 2026-07-05 ...]

Every disagreement is named by kind, quirk and reasons; ``theatre`` counts the traces whose emissions were found in
their prompts. Nothing but the days and their listing files is read.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from axis_confusion import print_matrix

from trajectory_platform.arena.knobs import Knobs
from trajectory_platform.arena.simulate import simulate
from trajectory_platform.curation.agency import decide
from trajectory_platform.judging.injection import scan_messages
from trajectory_platform.sources.container import Limits
from trajectory_platform.sources.files import FileSource
from trajectory_platform.traces.inventory import inventory_folder
from trajectory_platform.traces.normalise import normalise_batches

ERAS = ("2026-04-10", "2026-04-19", "2026-04-20", "2026-04-28", "2026-05-02", "2026-07-05")


def compare(out: Path) -> None:
    """One simulated day against its truth file."""
    rows = [json.loads(line) for line in (out / "truth.jsonl").read_bytes().split(b"\n") if line]
    truths: dict[tuple[str, str], dict[str, Any]] = {(row["eval_run_id"], row["problem_id"]): row for row in rows}
    labels: Counter[tuple[str, str]] = Counter()
    differing: Counter[tuple[Any, ...]] = Counter()
    theatre: Counter[str] = Counter()
    injected: Counter[tuple[tuple[str, ...], tuple[str, ...]]] = Counter()
    source = FileSource(str(out))
    for day in source.days():
        for batch in normalise_batches(inventory_folder(source, day, Limits()).rows, source, Limits(), 256, 1):
            for row in batch.to_pylist():
                truth = truths.get((row["eval_run_id"], row["problem_id"]))
                if truth is None or truth["artifact"] is None:
                    continue
                decision = decide(json.loads(row["messages"]), json.loads(row["evidence"]))
                labels[truth["axis"], decision.label] += 1
                if truth["axis"] != decision.label:
                    reasons = (truth["axis_reason"], decision.reason)
                    differing[truth["kind"], truth["subkind"], truth["axis"], decision.label, *reasons] += 1
                theatre[truth["kind"]] += decision.theatre_suspected
                found = scan_messages(json.loads(row["messages"]))
                if row["malformed"] is None:
                    injected[tuple(truth["injection_sources"]), tuple(sorted(found))] += 1
    print_matrix(out.name, labels, [])
    for case, count in sorted(differing.items(), key=str):
        print(f"  {count:4d} {' | '.join(str(part) for part in case)}")
    print(f"theatre: {dict(+theatre)}")
    for (told, found), count in sorted(injected.items()):
        print(f"  injection {count:5d} truth {told or None}, found {found or None}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--noise", type=float, default=0.5)
    parser.add_argument("--adversaries", type=float, default=0.1)
    parser.add_argument("--eras", nargs="*", default=ERAS)
    options = parser.parse_args()
    for era in options.eras:
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / era
            knobs = Knobs(days=1, traces_per_day=options.traces, noise=options.noise, adversaries=options.adversaries)
            simulate(out, seed=options.seed, first_day=date.fromisoformat(era), knobs=knobs)
            compare(out)


if __name__ == "__main__":
    main()
