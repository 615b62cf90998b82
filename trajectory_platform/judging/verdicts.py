"""The reasoning axis as rows: one verdict per trace and source (design 3, "Verdicts"; domain 2.6, 1.11).

A failed judgment is null with a reason, never 0.0: the subnet stores an infrastructure failure as 0.0 with an empty
model name, and before the end of April an unparseable reply as 0.0 with a model name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.identity import utc_day
from trajectory_platform.judging import rubric
from trajectory_platform.judging.reasoning import JUDGE_MODEL, RulesVerdict

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.judging.judge_run import JudgeOutcome

STEP0_ONLY, CONTINUOUS, DISCRETE, RULES, LLM = "continuous_step0_only", "continuous", "discrete", "rules", "llm"
LAST_STEP0_DAY = date(2026, 4, 23)
FIRST_DISCRETE_DAY = date(2026, 4, 30)
VALIDATOR_RUBRIC = "subnet"
GATE_ELIGIBLE_REGIMES = frozenset({DISCRETE, RULES, LLM})


class Reading(NamedTuple):
    """A stored judge value read strictly: a number, or null with the reason."""

    quality: float | None
    null_reason: str | None


def regime_of(day: date) -> str:
    """The scale the validators' judges used on a UTC day of judging (domain 1.11).

    Until 04-23 the judge read only the calls of step 0, so that scores are biased low; scores before 04-30 are
    continuous. Neither is comparable with the five gate values.
    """
    if day <= LAST_STEP0_DAY:
        return STEP0_ONLY
    return CONTINUOUS if day < FIRST_DISCRETE_DAY else DISCRETE


def coefficient(quality: float | None) -> float | None:
    """The subnet's reasoning coefficient of one quality: 1.0 from 0.80, else 0.3 + q * 0.7 / 0.8, 4 decimals.

    Null and NaN stay null; the reference turns NaN into 1.0 (domain 2.6, a bug that is not copied).
    """
    if quality is None or not math.isfinite(quality):
        return None
    return 1.0 if quality >= 0.80 else round(0.3 + quality * 0.7 / 0.8, 4)


def read_quality(value: Any, *, raw_text: str | None, model: str | None, regime: str) -> Reading:
    """A validator's ``reasoning_score`` as a verdict.

    Args:
        value: the number as stored, or None.
        raw_text: the raw JSON of the value where it was no finite number, e.g. ``NaN`` or ``"0.9"``.
        model: ``reasoning_model``; empty marks an infrastructure failure.
        regime: scale of the day.

    Null reasons: not_judged, not_finite, not_a_number (text and ``bool`` are refused, even ``"0.9"``), out_of_range,
    infrastructure_zero, unparseable_zero (a 0.0 of the biased regime, which also stood for an unreadable reply),
    off_grid (no gate value in the discrete regime).
    """
    if value is None:
        if raw_text is None:
            return Reading(None, "not_judged")
        return Reading(None, "not_finite" if _names_non_finite(raw_text) else "not_a_number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Reading(None, "not_a_number")
    if not math.isfinite(value):
        return Reading(None, "not_finite")
    if not 0 <= value <= 1:
        return Reading(None, "out_of_range")
    if value == 0 and not (model or "").strip():
        return Reading(None, "infrastructure_zero")
    if value == 0 and regime == STEP0_ONLY:
        return Reading(None, "unparseable_zero")
    if regime == DISCRETE and not rubric.on_grid(value):
        return Reading(None, "off_grid")
    return Reading(float(value), None)


def validator_verdict(row: Mapping[str, Any]) -> dict[str, Any]:
    """The validator's verdict of one raw trace as a row of ``verdicts``.

    Args:
        row: a ``raw_traces`` row. The regime follows the UTC day of judging.
    """
    regime = regime_of(judged_day(row))
    reading = read_quality(
        row["reasoning_score"], raw_text=row["reasoning_score_text"], model=row["reasoning_model"], regime=regime
    )
    return {
        "trace_id": row["trace_id"],
        "day": row["day"],
        "judge_kind": "validator",
        "judge_model": (row["reasoning_model"] or "").strip() or "unknown",
        "reasoning_quality": reading.quality,
        "reasoning_coefficient": coefficient(reading.quality),
        "null_reason": reading.null_reason,
        "retryable": False,  # asking again is the validator's business, not ours
        "rubric_version": VALIDATOR_RUBRIC,
        "score_regime": regime,
        "explanation": row["reasoning_explanation"],
        "cost_usd": 0.0,
        "cached": False,
        "gate_eligible": reading.quality is not None and regime in GATE_ELIGIBLE_REGIMES,
    }


def rules_verdict(row: Mapping[str, Any], verdict: RulesVerdict) -> dict[str, Any]:
    """The rules judge's verdict of one raw trace as a row of ``verdicts``."""
    return {
        "trace_id": row["trace_id"],
        "day": row["day"],
        "judge_kind": "rules",
        "judge_model": JUDGE_MODEL,
        "reasoning_quality": verdict.quality,
        "reasoning_coefficient": coefficient(verdict.quality),
        "null_reason": verdict.null_reason,
        "retryable": False,  # the same input gives the same answer
        "rubric_version": rubric.RUBRIC_VERSION,
        "score_regime": RULES,
        "explanation": verdict.explanation,
        "cost_usd": 0.0,
        "cached": False,
        "gate_eligible": verdict.quality is not None,
    }


def llm_verdict(row: Mapping[str, Any], outcome: JudgeOutcome, rubric_version: str) -> dict[str, Any]:
    """An LLM judge's verdict of one raw trace as a row of ``verdicts``; every null is asked again later."""
    return {
        "trace_id": row["trace_id"],
        "day": row["day"],
        "judge_kind": "llm",
        "judge_model": outcome.model,
        "reasoning_quality": outcome.quality,
        "reasoning_coefficient": coefficient(outcome.quality),
        "null_reason": outcome.null_reason,
        "retryable": outcome.quality is None,
        "rubric_version": rubric_version,
        "score_regime": LLM,
        "explanation": outcome.explanation,
        "cost_usd": outcome.usd,
        "cached": outcome.cached,
        "gate_eligible": outcome.quality is not None,
    }


def judged_day(row: Mapping[str, Any]) -> date:
    """The UTC day a pair was judged; the partition where no time is known."""
    judged_at = row["judged_at"]
    found = judged_at.date() if isinstance(judged_at, datetime) else utc_day(judged_at)
    return found or date.fromisoformat(row["day"])


def _names_non_finite(text: str) -> bool:
    word = text.strip().lstrip("+-").lower()
    if word in ("nan", "infinity", "inf"):
        return True
    try:
        return not math.isfinite(float(word))  # 1e999
    except ValueError:
        return False


def effective_verdicts(verdicts: pa.Table, judge: str) -> dict[str, dict[str, Any]]:
    """The verdict of each trace that the reasoning gate reads, by trace_id.

    A validator's verdict that may be gated (discrete regime, on the grid) wins; else the configured judge's row;
    else the validator's, whose null reason or regime then says why the trace is unjudged. Rows of other judges stand
    beside them for comparison and decide nothing: with ``validator`` only the validators' rows count, with ``rules``
    theirs and the rules', with an LLM judge theirs and the LLMs'.
    """
    kinds = {"validator", {"rules": "rules", "validator": "validator"}.get(judge, "llm")}
    chosen: dict[str, dict[str, Any]] = {}
    for row in verdicts.to_pylist():
        if row["judge_kind"] not in kinds:
            continue
        held = chosen.get(row["trace_id"])
        if held is None or _rank(row) > _rank(held):
            chosen[row["trace_id"]] = row
    return chosen


def _rank(row: Mapping[str, Any]) -> tuple[bool, bool, bool, str]:
    # Two judges of one kind: one with a value wins, then the name decides, so that row order does not.
    own = row["judge_kind"] == "validator"
    return (row["gate_eligible"] and own, not own, row["reasoning_quality"] is not None, row["judge_model"])
