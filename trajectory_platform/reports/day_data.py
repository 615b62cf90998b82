"""What the page of one subnet day shows, as plain values: ``stages.day_report`` fills it, ``day_page`` renders it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trajectory_platform.reports.cost_section import CostFacts
from trajectory_platform.reports.flow import Flow
from trajectory_platform.reports.leak_section import LeakFacts
from trajectory_platform.reports.strategy_section import StrategyFacts


@dataclass(frozen=True)
class DayReport:
    """One day. Every part may be empty; the page then says so. Text of third parties is passed as it is.

    Attributes:
        day: the UTC day; ``subtitle``: one line (era, lake).
        tiles: (label, value) pairs shown large at the top; ``notes``: what a reader must know first.
        facts: (label, value) of the day and of what it was made from.
        counted: ``day, found, moved_in, moved_out, accepted, rejected``: the conservation of the day.
        fetch: (label, value) of the record of fetching the day; empty where it was not fetched.
        flow: where every pair went.
        axis: the day and those before it -> axis label -> traces; ``axis_share``: of the day, as ``axis_section`` takes
            it.
        calibration: comparisons of judges with validators on this day (``judging.calibration``).
        verdicts: ``judge, regime, verdicts, values, mean, passed, nulls`` per source of verdicts.
        situations: ``situation, meaning, uses, traces, share`` of the accepted traces.
        outcomes: ``category, traces, success, success_low, success_high, success_note, problems, unscorable``.
        strategies, leaks, cost: facts of their sections.
        reasons: rejections, largest first: ``stage, reason, count, meaning, examples`` where an example is
            ``trace_id, detail``.
        examples_note: why there are no examples, or what was left out of them.
        miners: ``miner, pairs, accepted, not_a, other, success, sft, strategies, agents``, most pairs first.
    """

    day: str
    subtitle: str = ""
    tiles: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    facts: Sequence[tuple[str, Any]] = ()
    counted: Mapping[str, Any] = field(default_factory=dict)
    fetch: Sequence[tuple[str, Any]] = ()
    flow: Flow | None = None
    axis: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    axis_share: Mapping[str, Any] | None = None
    calibration: Sequence[Mapping[str, Any]] = ()
    verdicts: Sequence[Mapping[str, Any]] = ()
    situations: Sequence[Mapping[str, Any]] = ()
    outcomes: Sequence[Mapping[str, Any]] = ()
    strategies: StrategyFacts | None = None
    leaks: LeakFacts | None = None
    reasons: Sequence[Mapping[str, Any]] = ()
    examples_note: str = ""
    miners: Sequence[Mapping[str, Any]] = ()
    cost: CostFacts | None = None
