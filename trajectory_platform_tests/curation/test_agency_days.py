"""The axis on the three labelled days: at least 99 % agreement, and the evidence behind it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from trajectory_platform.curation.agency import AxisDecision, decide
from trajectory_platform.traces.evidence import extract
from trajectory_platform_tests.curation.labelled_days import LabelledTrace, load, messages

Decided = list[tuple[LabelledTrace, AxisDecision]]


@pytest.fixture(scope="module")
def decided(shared: Path) -> Decided:
    return [
        (trace, decide(messages(trace.steps), extract(trace.steps or [], binding=trace.binding)))
        for trace in load(shared / "days")
    ]


def test_labels_agree(decided: Decided) -> None:
    confusion = Counter((trace.truth["axis"], decision.label) for trace, decision in decided)
    agreeing = sum(count for (expected, found), count in confusion.items() if expected == found)
    assert agreeing >= 0.99 * len(decided), confusion
    assert not any(found == "A" and expected != "A" for expected, found in confusion), "a wrong A would be trained on"


def test_reasons_and_counts_agree(decided: Decided) -> None:
    wrong = []
    for trace, decision in decided:
        known = trace.truth["axis_evidence"]
        if trace.truth["axis_reason"] != decision.reason:
            wrong.append((trace.truth["artifact"], trace.truth["axis_reason"], decision.reason))
        elif known is not None:
            found = (
                decision.dispatches,
                decision.matched,
                decision.composite_child,
                decision.retry_child,
                decision.harness_made + decision.unmatched,
                decision.inference_truncated,
            )
            names = ("dispatches", "matched", "composite_child", "retry_child", "unmatched", "inference_truncated")
            if found != tuple(known[name] for name in names):
                wrong.append((trace.truth["artifact"], known, found))
            elif known["share"] is not None and abs((decision.share or 0.0) - known["share"]) > 1e-3:
                wrong.append((trace.truth["artifact"], known["share"], decision.share))
    assert len(wrong) <= 0.01 * len(decided), wrong


def test_calls_of_a_model_that_acts_are_all_emitted(decided: Decided) -> None:
    for trace, decision in decided:
        if trace.truth["kind"] in ("a_xml", "a_native", "a_composite") and decision.label == "A":
            assert all(flag for turn in decision.emitted for flag in turn), trace.truth["artifact"]
        if trace.truth["kind"] in ("b_regex", "b_classifier", "b_narrator", "b_decoy") and decision.label == "B":
            assert not any(flag for turn in decision.emitted for flag in turn), trace.truth["artifact"]


def test_evidence_is_small_beside_its_trace(shared: Path) -> None:
    traces = [trace for trace in load(shared / "days") if trace.steps]
    raw = sum(len(json.dumps(trace.steps)) for trace in traces)
    assert (
        sum(len(json.dumps(extract(trace.steps or [], binding=None), separators=(",", ":"))) for trace in traces)
        < 0.3 * raw
    )
