"""Prints how the axis decision agrees with the labelled days and with mutated artifacts.

python benchmarks/axis_confusion.py [--days ../shared/days] [--every 1] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trajectory_platform import jsontext
from trajectory_platform.curation.agency import decide
from trajectory_platform.sources.container import Limits
from trajectory_platform.sources.files import FileSource
from trajectory_platform.traces.evidence import extract
from trajectory_platform.traces.inventory import inventory_folder
from trajectory_platform.traces.normalise import normalise_batches
from trajectory_platform_tests.curation.labelled_days import LabelledTrace, load, messages
from trajectory_platform_tests.curation.mutated_days import mutated_traces

LABELS = ("A", "B", "mixed", "unknown")


def print_matrix(title: str, pairs: Counter[tuple[str, str]], errors: list[float]) -> None:
    """Expected label down, decided label across; mean and greatest share error."""
    total = sum(pairs.values())
    agreeing = sum(count for (expected, found), count in pairs.items() if expected == found)
    print(f"\n{title}: {agreeing} of {total} agree ({agreeing / max(total, 1):.2%})")
    print(f"{'expected':>10} " + " ".join(f"{label:>8}" for label in LABELS) + "   recall")
    for expected in LABELS:
        row = [pairs[expected, found] for found in LABELS]
        recall = pairs[expected, expected] / sum(row) if sum(row) else 1.0
        print(f"{expected:>10} " + " ".join(f"{count:8d}" for count in row) + f"   {recall:.2%}")
    if errors:
        print(
            f"share error: mean {sum(errors) / len(errors):.5f}, greatest {max(errors):.4f} over {len(errors)} traces"
        )


def labelled_days(days: Path, traces: list[LabelledTrace]) -> None:
    """The three days as published, through the product's own inventory and readers."""
    truths = {(trace.truth["eval_run_id"], trace.truth["problem_id"]): trace.truth for trace in traces}
    pairs: Counter[tuple[str, str]] = Counter()
    errors: list[float] = []
    source = FileSource(str(days))
    for day in source.days():
        rows = inventory_folder(source, day, Limits()).rows
        for batch in normalise_batches(rows, source, Limits(), 256, 1):
            for row in batch.to_pylist():
                truth = truths.get((row["eval_run_id"], row["problem_id"]))
                if truth is None:
                    continue  # an entry without an execution behind it
                decision = decide(json.loads(row["messages"]), json.loads(row["evidence"]))
                pairs[truth["axis"], decision.label] += 1
                share = (truth["axis_evidence"] or {}).get("share")
                if share is not None and decision.dispatches:
                    errors.append(abs((decision.share or 0.0) - share))
                if truth["axis"] != decision.label:
                    print(
                        f"{truth['subkind']}: {truth['axis']}, decided {decision.label} ({decision.reason}), "
                        f"reader says {row['malformed']}"
                    )
    print_matrix("labelled days", pairs, errors)


def mutations(traces: list[LabelledTrace], every: int, seed: int) -> None:
    """Mutated artifacts whose label is known by construction."""
    pairs: Counter[tuple[str, str]] = Counter()
    kinds: Counter[str] = Counter()
    right: Counter[str] = Counter()
    errors: list[float] = []
    for mutated in mutated_traces(traces, every=every, seed=seed):
        decision = decide(messages(mutated.steps), extract(mutated.steps, binding=mutated.binding))
        pairs[mutated.label, decision.label] += 1
        kinds[mutated.mutation] += 1
        right[mutated.mutation] += mutated.label == decision.label
        if mutated.share is not None:
            errors.append(abs((decision.share or 0.0) - mutated.share))
    print_matrix("mutated artifacts", pairs, errors)
    for kind, count in sorted(kinds.items()):
        print(f"{kind:>26} {right[kind]:6d} of {count:6d}")


def speed(traces: list[LabelledTrace]) -> None:
    """CPU time per trace of evidence and decision (best of three rounds), and the size of the evidence."""
    work = [(trace.steps, trace.binding, messages(trace.steps)) for trace in traces if trace.steps]
    rounds = []
    for _ in range(3):
        started = time.process_time()
        for steps, binding, shown in work:
            decide(shown, extract(steps or [], binding=binding))
        rounds.append(time.process_time() - started)
    stored = sum(len(jsontext.dumps(extract(steps or [], binding=binding))) for steps, binding, _ in work)
    each = min(rounds) / len(work) * 1e6
    print(f"\nevidence + decision: {each:.0f} us CPU per trace; {stored / len(work):.0f} bytes stored")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "days")
    parser.add_argument("--every", type=int, default=1, help="mutate every n-th clean trace")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not arguments.days.is_dir():
        print(f"skipped: no labelled days at {arguments.days}")
        return
    traces = load(arguments.days)
    labelled_days(arguments.days, traces)
    mutations(traces, arguments.every, arguments.seed)
    speed(traces)


if __name__ == "__main__":
    main()
