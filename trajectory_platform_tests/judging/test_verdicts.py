"""Stored judge values: domain 2.6, 1.11, 8.6; section 6 items 23 to 27; cases E05, E07."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pytest

from trajectory_platform.judging import rubric, verdicts
from trajectory_platform.judging.reasoning import RulesVerdict
from trajectory_platform.lake.tables import VERDICTS
from trajectory_platform_tests.judging.dialogues import raw_row, table


@pytest.mark.parametrize(
    ("day", "regime"),
    [
        ("2026-04-12", "continuous_step0_only"),
        ("2026-04-23", "continuous_step0_only"),
        ("2026-04-24", "continuous"),
        ("2026-04-29", "continuous"),
        ("2026-04-30", "discrete"),
        ("2026-07-01", "discrete"),
    ],
)
def test_regime_by_day_of_judging(day: str, regime: str) -> None:
    assert verdicts.regime_of(date.fromisoformat(day)) == regime


def test_the_regime_follows_the_judged_day_not_the_folder() -> None:
    late = datetime(2026, 4, 29, 23, 59, 59, 999999, tzinfo=UTC)
    row = raw_row("r:p", day="2026-04-30", judged_at=late, reasoning_score=0.83)
    assert verdicts.validator_verdict(row)["score_regime"] == "continuous"
    undated = raw_row("r:p", day="2026-04-30", judged_at=None)
    assert verdicts.validator_verdict(undated)["score_regime"] == "discrete"


@pytest.mark.parametrize(
    ("value", "text", "model", "regime", "reason"),
    [
        (None, None, None, "discrete", "not_judged"),
        (None, "NaN", "m", "discrete", "not_finite"),
        (None, "-Infinity", "m", "discrete", "not_finite"),
        (None, "1e999", "m", "discrete", "not_finite"),
        (None, '"0.9"', "m", "discrete", "not_a_number"),
        (None, "true", "m", "discrete", "not_a_number"),
        (math.nan, None, "m", "discrete", "not_finite"),
        (True, None, "m", "discrete", "not_a_number"),
        (85.0, None, "m", "discrete", "out_of_range"),
        (0.65, None, "m", "discrete", "off_grid"),
        (0.0, None, "m", "discrete", "off_grid"),
        (0.0, None, "", "discrete", "infrastructure_zero"),
        (0.0, None, None, "continuous", "infrastructure_zero"),
        (0.0, None, "", "continuous_step0_only", "infrastructure_zero"),
        (0.0, None, "m", "continuous_step0_only", "unparseable_zero"),
    ],
)
def test_what_is_no_verdict_is_null_with_a_reason(
    value: Any, text: str | None, model: str | None, regime: str, reason: str
) -> None:
    assert verdicts.read_quality(value, raw_text=text, model=model, regime=regime) == (None, reason)


def test_the_five_gate_values_pass_also_after_binary_rounding() -> None:
    for value in (0.1, 0.3, 0.5, 0.1 + 0.6, 0.9):
        assert verdicts.read_quality(value, raw_text=None, model="m", regime="discrete").quality == value


@pytest.mark.parametrize(
    ("quality", "expected"),
    [
        (0.0, 0.3),
        (0.1, 0.3875),
        (0.3, 0.5625),
        (0.5, 0.7375),
        (0.7, 0.9125),
        (0.8, 1.0),
        (0.9, 1.0),
        (None, None),
        (math.nan, None),
    ],
)
def test_the_coefficient_formula(quality: float | None, expected: float | None) -> None:
    assert verdicts.coefficient(quality) == expected


def test_only_a_discrete_verdict_may_be_gated() -> None:
    assert verdicts.validator_verdict(raw_row("r:p"))["gate_eligible"]
    old = verdicts.validator_verdict(raw_row("r:p", judged_at=datetime(2026, 4, 25, tzinfo=UTC), reasoning_score=0.95))
    assert old["reasoning_quality"] == 0.95 and not old["gate_eligible"]
    failed = verdicts.validator_verdict(raw_row("r:p", reasoning_score=0.0, reasoning_model=""))
    assert failed["reasoning_quality"] is None and failed["reasoning_coefficient"] is None
    assert not failed["gate_eligible"]


def test_the_effective_verdict_prefers_a_gateable_validator_then_the_configured_judge() -> None:
    good, infra = raw_row("a:p"), raw_row("b:p", reasoning_score=0.0, reasoning_model="")
    rows = []
    for row in (good, infra):
        rows.append(verdicts.validator_verdict(row))
        rows.append(verdicts.rules_verdict(row, RulesVerdict(0.7, 3, None, "x")))
    for ordered in (rows, rows[::-1]):
        chosen = verdicts.effective_verdicts(table(ordered, VERDICTS), "rules")
        assert chosen["a:p"]["judge_kind"] == "validator"
        assert chosen["b:p"]["judge_kind"] == "rules"
        alone = verdicts.effective_verdicts(table(ordered, VERDICTS), "validator")
        assert alone["b:p"]["null_reason"] == "infrastructure_zero"


def test_the_rubric_has_four_gates_and_five_values() -> None:
    assert [rubric.value(failed) for failed in (0, 1, 2, 3, None)] == list(rubric.GRID) == [0.1, 0.3, 0.5, 0.7, 0.9]
