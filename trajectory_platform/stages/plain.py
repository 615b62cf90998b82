"""The stages without an orchestrator: what ``ingest`` and ``train`` do on the command line.

A bad day fails alone: its later stages are left out, other days go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import date, timedelta
from functools import partial
from typing import Any

from trajectory_platform.errors import Abort, PlatformError
from trajectory_platform.identity import days_between
from trajectory_platform.settings import Settings
from trajectory_platform.stages import daily, splits
from trajectory_platform.stages.context import Stage, StageContext

Fact = dict[str, Any]

DAILY_STAGES: tuple[tuple[str, Stage], ...] = (
    ("raw_traces", daily.raw_traces),
    ("problem_suites", daily.problem_suites),
    ("trajectories", daily.trajectories),
    ("judged_traces", daily.judged_traces),
    ("axis_a_corpus", daily.axis_a_corpus),
)


def ingest_days(settings: Settings, day: str | None, first: str | None, last: str | None) -> Iterator[Fact]:
    """Run the per-day stages, stage by stage over all days, so that neighbours' suites are known.

    Raises:
        Abort: when no day is named and the source holds none, or the range is empty.
    """
    ctx = StageContext(settings)
    days = _chosen_days(ctx, day, first, last)
    broken: set[str] = set()
    for name, stage in DAILY_STAGES:
        for one in days:
            if one in broken:
                continue
            fact = run_one(ctx, name, stage, one)
            if fact["state"] == "failed":
                broken.add(one)
            yield fact


def train_days(settings: Settings, stage: str, as_of: str | None) -> Iterator[Fact]:
    """Clusters, splits, checkpoint, scores and lineage as of one day.

    Raises:
        Abort: for an unknown stage, or when nothing was ingested.
    """
    from trajectory_platform.lake import tables
    from trajectory_platform.stages import checkpoints, contamination, evaluations

    if stage != "sft":
        raise Abort(f"train {stage}: this version trains the stage 'sft' only")
    ctx = StageContext(settings)
    ingested = sorted(ctx.lake.days(tables.AXIS_A_CORPUS))
    if not ingested:
        raise Abort(f"nothing ingested in {settings.lake_uri}: run 'trajectory-platform ingest' first")
    if as_of is not None and not ingested[0] <= as_of <= ingested[-1]:
        raise Abort(f"as of {as_of}: the ingested days are {ingested[0]} to {ingested[-1]}")
    day = as_of or ingested[-1]
    stages: tuple[tuple[str, Stage], ...] = (
        ("leak_clusters", splits.leak_clusters),
        ("leak_guarded_splits", splits.leak_guarded_splits),
        ("sft_checkpoint", lambda c, d: checkpoints.sft_checkpoint(c, d, run=None)),
        ("sft_action_scores", lambda c, d: checkpoints.sft_action_scores(c, d, run=None)),
        *((row.asset, partial(evaluations.evaluate_stage, row=row, run=None)) for row in evaluations.EVALUATIONS),
        ("checkpoint_lineage", checkpoints.checkpoint_lineage),
        ("contamination", contamination.contamination),
    )
    for name, body in stages:
        fact = run_one(ctx, name, body, day)
        yield fact
        if fact["state"] == "failed":
            return


def run_one(ctx: StageContext, name: str, stage: Stage, day: str) -> Fact:
    """One stage on one day as a fact for people: published, current or failed with the reason."""
    try:
        result = stage(ctx, day)
    except Abort:
        raise
    except PlatformError as error:
        return _failed(day, name, str(error))
    except Exception as error:
        # the boundary of a day, as in the Dagster layer: an unknown fault fails this day and names itself
        logging.getLogger(__name__).exception("%s %s", name, day)
        return _failed(day, name, f"{type(error).__name__}: {error}")
    numbers = {key: value for key, value in result.summary.items() if isinstance(value, int | float | str)}
    return {
        "day": day,
        "stage": name,
        "state": "current" if result.skipped else "published",
        "summary": result.summary,
        "text": ", ".join(f"{key} {value}" for key, value in numbers.items()),
    }


def _failed(day: str, stage: str, reason: str) -> Fact:
    return {"day": day, "stage": stage, "state": "failed", "summary": {}, "text": reason}


def _chosen_days(ctx: StageContext, day: str | None, first: str | None, last: str | None) -> list[str]:
    from trajectory_platform.lake import tables

    try:
        given = [None if text is None else date.fromisoformat(text) for text in (day, first, last)]
    except ValueError as error:
        raise Abort(f"{error}: write days as YYYY-MM-DD") from None
    if given[0] is not None:
        return [given[0].isoformat()]
    present = ctx.source.days()
    low = given[1] or (present[0] if present else None)
    high = given[2] or (present[-1] if present else None)
    if low is None or high is None:
        raise Abort(f"no day folders in {ctx.settings.data_root}: set TRAJECTORY_PLATFORM_DATA_ROOT")
    chosen = days_between(low, high)
    if not chosen:
        raise Abort(f"empty range {low} to {high}")
    # a day can only have rows from its own folder and the two beside it
    seen = {near for one in present for near in (one - timedelta(days=1), one, one + timedelta(days=1))}
    published = set(ctx.lake.days(tables.RAW_TRACES))
    kept = [one.isoformat() for one in chosen if one in seen or one.isoformat() in published]
    if not kept:
        raise Abort(f"no day folders from {low} to {high} in {ctx.settings.data_root}")
    return kept
