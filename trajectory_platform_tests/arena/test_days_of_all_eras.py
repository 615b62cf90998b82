"""Whole simulated days of every era, full of oddities: the platform's own decisions are those of the truth file."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.arena.knobs import Knobs
from trajectory_platform.arena.simulate import simulate
from trajectory_platform.curation.agency import decide
from trajectory_platform.judging.injection import scan_messages
from trajectory_platform.sources.container import Limits
from trajectory_platform.sources.files import FileSource
from trajectory_platform.traces.inventory import inventory_folder
from trajectory_platform.traces.normalise import normalise_batches
from trajectory_platform_tests.arena.conftest import read_rows


def read_back(out: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(truth row, row of the trajectories) of every executed pair with an artifact, by the product's own readers."""
    truths = {(row["eval_run_id"], row["problem_id"]): row for row in read_rows(out / "truth.jsonl")}
    source = FileSource(str(out))
    pairs = []
    for day in source.days():
        for batch in normalise_batches(inventory_folder(source, day, Limits()).rows, source, Limits(), 256, 1):
            for row in batch.to_pylist():
                truth = truths.get((row["eval_run_id"], row["problem_id"]))
                if truth is not None and truth["artifact"] is not None:
                    pairs.append((truth, row))
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize("day", ["2026-04-10", "2026-04-19", "2026-04-20", "2026-04-28", "2026-05-02", "2026-07-05"])
def test_axis_injection_and_theatre_agree_with_the_truth(tmp_path: Path, day: str) -> None:
    knobs = Knobs(days=1, traces_per_day=700, noise=0.5, adversaries=0.1)
    simulate(tmp_path, seed=9, first_day=date.fromisoformat(day), knobs=knobs, workers=1)
    agreed: Counter[bool] = Counter()
    for truth, row in read_back(tmp_path):
        decision = decide(json.loads(row["messages"]), json.loads(row["evidence"]))
        agreed[decision.label == truth["axis"]] += 1
        if row["malformed"] is None:
            assert sorted(scan_messages(json.loads(row["messages"]))) == truth["injection_sources"]
        if truth["subkind"] is None:
            assert decision.theatre_suspected is ("calls_echoed_from_prompt" in truth["flags"])
    assert agreed.total() > 600
    # two checks of one product in one reply leave one of them unmatched; seen in 3 of 12,000 traces
    assert agreed[False] / agreed.total() <= 0.002
