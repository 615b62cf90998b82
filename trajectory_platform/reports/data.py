"""What a report shows, as plain values: the caller fills it, :mod:`trajectory_platform.reports.html` renders it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trajectory_platform.reports.cost_section import CostFacts
from trajectory_platform.reports.flow import Flow
from trajectory_platform.reports.strategy_section import StrategyFacts


@dataclass(frozen=True)
class ReportData:
    """One report. Every part may be empty; the page then says so instead of leaving a hole.

    Counts are numbers of traces unless said otherwise, shares and accuracies lie in 0..1, days are ISO dates.
    Text of third parties (categories, ids, reasons, queries) is passed as it is: the renderer escapes it.

    Attributes:
        title: heading of the page; ``subtitle``: one line below it (days covered, lake, code version).
        tiles: (label, value) pairs shown large at the top, most important first.
        days: one mapping a day: ``day, found, moved_in, moved_out, accepted, rejected``. The page adds
            ``found + moved_in - moved_out`` and whether it equals ``accepted + rejected``.
        funnels: day -> ordered (stage, count) pairs, counts not increasing except among uses, which overlap.
        flow: where every pair of all days went; strategies: of the accepted traces; cost: what it all cost.
        axis: day -> axis label (``A, mixed, B, unknown``) -> count.
        reasons: rejections, largest first: ``stage, reason, count`` and optionally ``meaning``.
        pools: ``pool, clusters, problems, traces`` and optionally ``no_reward`` (problems without a known reward).
        cluster_sizes: problems in a cluster -> number of such clusters.
        clusters: the largest: ``cluster_id, pool, size, category, problems`` (list of ids) and ``why`` (edge kinds).
        scores: one mapping per category, the total under the category ``all``: ``category, n`` (actions),
            ``clusters``, ``tool, tool_low, tool_high`` and ``arguments, arguments_low, arguments_high``
            (accuracies with their interval, None when not known), and optionally ``baseline_tool``,
            ``baseline_arguments``, ``parse_errors``, ``clipped``, ``thin`` (True: too few to conclude from).
        stages: the stages of training side by side: ``stage, traces, state, reason``, and where something was attempted
            ``success, success_low, success_high, pass_at, process, process_low, process_high, hallucinated, truncated,
            thin, difference, difference_low, difference_high, detectable`` (the last four against the stage before).
        tasks: success in the sandbox, per policy and category (the total under ``all``): ``policy, category, success,
            success_low, success_high, pass_at`` (k -> value or None), ``lenient, truncated, hallucinated,
            unviewed, clean, process, problems, attempts, clusters, thin``; shares in 0..1.
        task_pairs: the last policy against the first on the same problems, per category: ``category, before, after,
            difference, difference_low, difference_high, detectable, problems, clusters, thin`` and optionally
            ``process, process_low, process_high`` (difference of the process scores).
        task_words: what the comparison allows to say, sentence by sentence; tasks_note: what was measured.
        scores_note: what was measured, how the interval was made and what the baseline is; one or two sentences.
        calibration: comparisons of judges with validators, as ``judging.calibration`` gives them.
        contamination: per checkpoint ``checkpoint_id, flags, all, clean, contaminated, near``; the last four are
            ``{problems, attempts, success}``.
        checkpoint: (label, value) facts of the checkpoint.
        loss_masks: what is trained in one row of each checkpoint: its ``loss_mask.json`` (``training.loss_mask``) with
            ``checkpoint_id`` and ``stage``.
        lineage_of: the trace whose path is told; ``lineage``: its steps, raw to checkpoint, ``step, value`` and
            optionally ``detail``.
        notes: what a reader must know to read the page right (what was not run, what is simulated).
    """

    title: str
    subtitle: str = ""
    tiles: Sequence[tuple[str, str]] = ()
    days: Sequence[Mapping[str, Any]] = ()
    funnels: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)
    flow: Flow | None = None
    axis: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    strategies: StrategyFacts | None = None
    cost: CostFacts | None = None
    reasons: Sequence[Mapping[str, Any]] = ()
    pools: Sequence[Mapping[str, Any]] = ()
    cluster_sizes: Mapping[int, int] = field(default_factory=dict)
    clusters: Sequence[Mapping[str, Any]] = ()
    scores: Sequence[Mapping[str, Any]] = ()
    scores_note: str = ""
    stages: Sequence[Mapping[str, Any]] = ()
    tasks: Sequence[Mapping[str, Any]] = ()
    task_pairs: Sequence[Mapping[str, Any]] = ()
    task_words: Sequence[str] = ()
    tasks_note: str = ""
    calibration: Sequence[Mapping[str, Any]] = ()
    contamination: Sequence[Mapping[str, Any]] = ()
    checkpoint: Sequence[tuple[str, Any]] = ()
    loss_masks: Sequence[Mapping[str, Any]] = ()
    lineage_of: str = ""
    lineage: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()


def total_funnel(funnels: Mapping[str, Sequence[tuple[str, int]]]) -> list[tuple[str, int]]:
    """The days added up, stage by stage, in the order in which the stages first appear."""
    total: dict[str, int] = {}
    for day in sorted(funnels):
        for stage, count in funnels[day]:
            total[stage] = total.get(stage, 0) + count
    return list(total.items())
