"""The axis on mutated artifacts: no shortcut may stand in for matching calls by their arguments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from trajectory_platform.curation.agency import decide
from trajectory_platform.traces.evidence import extract
from trajectory_platform_tests.curation.labelled_days import LabelledTrace, load, messages
from trajectory_platform_tests.curation.mutated_days import MUTATIONS, clean, mutated_traces


@pytest.fixture(scope="module")
def traces(shared: Path) -> list[LabelledTrace]:
    return load(shared / "days")


def _agreement(traces: list[LabelledTrace], every: int) -> tuple[Counter[str], Counter[tuple[str, str, str]]]:
    total: Counter[str] = Counter()
    wrong: Counter[tuple[str, str, str]] = Counter()
    for mutated in mutated_traces(traces, every=every):
        decision = decide(messages(mutated.steps), extract(mutated.steps, binding=mutated.binding))
        total[mutated.mutation] += 1
        if decision.label != mutated.label:
            wrong[mutated.mutation, mutated.label, decision.label] += 1
        elif mutated.share is not None:
            assert decision.share == pytest.approx(mutated.share, abs=1e-3), mutated.mutation
    return total, wrong


def test_labels_of_mutated_artifacts_agree(traces: list[LabelledTrace]) -> None:
    total, wrong = _agreement(traces, every=6)
    assert sum(wrong.values()) <= 0.01 * sum(total.values()), wrong
    assert sum(total.values()) > 2_000
    for mutation, count in total.items():
        missed = sum(number for (name, _, _), number in wrong.items() if name == mutation)
        assert missed <= 0.01 * count, (mutation, wrong)


def test_the_mutations_reach_every_label_and_every_share(traces: list[LabelledTrace]) -> None:
    """A generator that only made easy cases would prove nothing."""
    found = list(mutated_traces(traces, every=12))
    assert {mutated.label for mutated in found} == {"A", "B", "mixed", "unknown"}
    shares = {round(mutated.share, 1) for mutated in found if mutated.share is not None}
    assert {0.0, 0.2, 0.5, 0.8, 1.0} <= shares
    assert len({mutated.mutation for mutated in found}) > len(MUTATIONS)
    assert sum(map(clean, traces)) > 200
