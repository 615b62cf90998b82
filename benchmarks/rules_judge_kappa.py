"""Prints how the rules judge agrees with the intent of labelled traces, with fresh phrasings and with the validators.

python benchmarks/rules_judge_kappa.py [--days 2026-05-02 ...] [--blind-only]

Intent is no gate value: it says what kind of agent wrote the thinking. For a kappa it is read as one of three levels,
and a verdict as low (0.1, 0.3), middle (0.5, 0.7) or high (0.9). Fabricated reasoning (text made by a harness that
reads like a comparison) is on no level of what a text shows; its verdicts are printed apart and once as low.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import orjson

from trajectory_platform.judging import agreement, reasoning, rubric
from trajectory_platform.judging.calibration import Calibration
from trajectory_platform.stages.calibration import calibration_text
from trajectory_platform_tests.judging.blind_thoughts import blind_traces
from trajectory_platform_tests.judging.shared_days import DAYS, judged_day, truth

DEVELOPED_ON = "2026-05-02"
LEVELS = {"none": 0, "poor": 0, "scripted": 1, "partial": 1, "narrated": 2, "good": 2}
LEVEL_OF_VALUE = dict(zip(rubric.GRID, (0, 0, 1, 1, 2), strict=True))


def print_kappa(title: str, pairs: list[tuple[int, int]], levels: int) -> None:
    """Kappa of (expected level, found level)."""
    table = np.zeros((levels, levels))
    for expected, found in pairs:
        table[expected, found] += 1
    kappas = [agreement.weighted_kappa(table, power) for power in (1, 2)]
    told = " ".join("undefined" if kappa is None else f"{kappa:.3f}" for kappa in kappas)
    high, low = np.triu(table, 1).sum(), np.tril(table, -1).sum()
    print(f"{title}: n={len(pairs)} kappa linear, quadratic: {told}; same {table.trace() / table.sum():.1%}", end="")
    print(f", judged higher {int(high)}, lower {int(low)}")


def print_blind() -> None:
    """Phrasings the patterns were not taken from; ``after`` was written when they were frozen."""
    places = {value: place for place, value in enumerate(rubric.GRID)}
    for part in ("first", "after"):
        found = [(trace, reasoning.judge(trace.messages, trace.evidence).quality) for trace in blind_traces(part)]
        pairs = [(places[trace.quality], places[quality]) for trace, quality in found if quality is not None]
        print_kappa(f"blind set '{part}'", pairs, len(rubric.GRID))
        for language in sorted({trace.language for trace, _ in found}):
            own = [(trace.quality, quality) for trace, quality in found if trace.language == language]
            print(f"    {language}: {sum(left == right for left, right in own)} of {len(own)} equal")


def print_day(day: str, calibration: Calibration) -> None:
    """Verdicts by intent of one day, and the validators' own agreement with the intent as a yardstick."""
    judged = judged_day(day)
    agents = {row["trace_id"]: row["agent_version_id"] for row in judged.raw.to_pylist()}
    verdicts = judged.verdicts.to_pylist()
    calibration.add(verdicts, agents)
    print(f"\n{day} ({'developed on' if day == DEVELOPED_ON else 'held out'})")
    for kind in ("rules", "validator"):
        rows = [row for row in verdicts if row["judge_kind"] == kind]
        if kind == "validator" and not any(row["score_regime"] == "discrete" for row in rows):
            continue
        valued = [
            (truth()[row["trace_id"]]["reasoning_intent"], row["reasoning_quality"])
            for row in rows
            if row["reasoning_quality"] is not None
        ]
        told = [(LEVELS[intent], LEVEL_OF_VALUE[value]) for intent, value in valued if intent in LEVELS]
        print_kappa(f"  {kind}, without fabricated", told, 3)
        hostile = [(LEVELS.get(intent, 0), LEVEL_OF_VALUE[value]) for intent, value in valued]
        print_kappa(f"  {kind}, fabricated as low", hostile, 3)
        print(f"    without a value: {len(rows) - len(valued)}")
        _print_counts(valued)


def _print_counts(valued: list[tuple[str, float]]) -> None:
    counts = Counter(valued)
    print("    intent     " + "".join(f"{value:>6}" for value in rubric.GRID))
    for intent in (*LEVELS, "fabricated"):
        print(f"    {intent:<11}" + "".join(f"{counts[intent, value]:>6}" for value in rubric.GRID))


def print_speed(day: str) -> None:
    """Seconds of one core per trace."""
    traces: list[tuple[Any, Any]] = []
    for batch in judged_day(day).batches:
        for row in batch.select(["messages", "evidence"]).to_pylist():
            traces.append((orjson.loads(row["messages"]), orjson.loads(row["evidence"])))
    started = time.process_time()
    for messages, evidence in traces:
        reasoning.judge(messages, evidence)
    print(f"\n{(time.process_time() - started) / len(traces) * 1e6:.0f} us a trace, results parsed included")


def main() -> None:
    """Prints all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", nargs="*", default=list(DAYS))
    parser.add_argument("--blind-only", action="store_true")
    options = parser.parse_args()
    print(f"judge {reasoning.JUDGE_MODEL}, rubric {rubric.RUBRIC_VERSION}")
    print_blind()
    if options.blind_only:
        return
    calibration = Calibration()
    for day in options.days:
        print_day(day, calibration)
    print_speed(options.days[-1])
    facts = {"days": sorted(options.days), "gate": 0.7, "comparisons": calibration.report()}
    print(f"\n{calibration_text(facts)}")


if __name__ == "__main__":
    main()
