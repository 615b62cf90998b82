"""What the report of a checkpoint shows, as plain values; nothing here is escaped yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
Counted = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class FailureReport:
    """The failures of one evaluation.

    Attributes:
        label: which evaluation. attempts, failed: how many count, and how many of them failed.
        counts: kind -> category -> failures (``taxonomy.counted``). signs: (sign, meaning, failures).
        examples: kind -> views of traces (``stages.trace_views``), at most three.
        withheld: why no trace is shown ("" where some are).
    """

    label: str
    attempts: int
    failed: int
    counts: Mapping[str, Mapping[str, int]]
    signs: Sequence[tuple[str, str, int]]
    examples: Mapping[str, Sequence[Row]]
    withheld: str = ""


@dataclass(frozen=True)
class CheckpointData:
    """One checkpoint, as of the day of its training.

    Attributes:
        facts: (fact, value) of its making. chain: ``made_of`` of ``lineage.questions.about_checkpoint``.
        fed: heading -> (name, traces) of what it was fed itself: days, categories, verdict sources, miners, strategies.
        history: numbers of its training by step.
        stages: all stages of its run, the base first: rows as ``stages.stage_table.stage_rows`` gives them, with
            ``own`` on this one. words: evaluation -> what is shown of each step, one sentence each.
        passes: {label, own, attempts, problems, clusters, points} per model; passes_note: why there is none.
        categories: rows {policy, category, ...} as ``stages.closing.report_tasks`` gives them.
        failures: per evaluation.
        actions: rows of next-action scores; actions_note: whose they are, or why there are none.
        evaluations: one row per evaluation of this checkpoint: what it was measured on and what may be trusted.
        conduct: evaluation -> rows per category, "all" first. costs: (what, wall, cpu, tokens, usd, remark) rows.
        limits: sentences on what its scores may not be compared with.
    """

    checkpoint_id: str
    subtitle: str
    tiles: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    facts: Sequence[tuple[str, Any]] = ()
    chain: Sequence[Row] = ()
    fed: Mapping[str, Counted] = field(default_factory=dict)
    packages: Sequence[tuple[str, Any]] = ()
    history: Sequence[Row] = ()
    stages: Sequence[Row] = ()
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    passes: Sequence[Row] = ()
    passes_note: str = ""
    categories: Sequence[Row] = ()
    failures: Sequence[FailureReport] = ()
    actions: Sequence[Row] = ()
    actions_note: str = ""
    evaluations: Sequence[Row] = ()
    conduct: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    costs: Sequence[Row] = ()
    costs_note: str = ""
    limits: Sequence[str] = ()
