"""The stages without an orchestrator: what ``ingest`` and ``train`` do on the command line.

A bad day fails alone: its later stages are left out, other days go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort, PlatformError
from trajectory_platform.settings import Settings
from trajectory_platform.stages import daily, splits
from trajectory_platform.stages.context import (
    Stage,
    StageContext,
    StageResult,
    assert_in_reach,
    given_days,
    some_days,
)
from trajectory_platform.stages.fetching import utc_now
from trajectory_platform.stages.result_words import result_words

if TYPE_CHECKING:
    from trajectory_platform.evaluation.child import Runner
    from trajectory_platform.stages.progress import Watch

Fact = dict[str, Any]
ALL = "all"  # as a stage to train: all of the recipe

DAILY_STAGES: tuple[tuple[str, Stage], ...] = (
    ("raw_traces", daily.raw_traces),
    ("problem_suites", daily.problem_suites),
    ("trajectories", daily.trajectories),
    ("judged_traces", daily.judged_traces),
    ("axis_a_corpus", daily.axis_a_corpus),
)
DAILY_ASSETS = (*(name for name, _ in DAILY_STAGES), "rejected_traces")
"""What is made of a raw day; the last is written beside the corpus."""


def daily_stages(settings: Settings) -> tuple[tuple[str, Stage], ...]:
    """(asset, its work) of a day, in the order of the flow; what comes from the subnet's API is fetched first."""
    if settings.source != "oro_api":
        return DAILY_STAGES
    from trajectory_platform.stages import fetching

    return ((fetching.STAGE, fetching.fetched_day), *DAILY_STAGES)


def daily_assets(settings: Settings) -> tuple[str, ...]:
    """The assets of a day, in the order of the flow."""
    return (*(name for name, _ in daily_stages(settings)), DAILY_ASSETS[-1])


def ingest_days(
    settings: Settings,
    day: str | None,
    first: str | None,
    last: str | None,
    *,
    clock: Callable[[], datetime] = utc_now,
) -> Iterator[Fact]:
    """Run the per-day stages, stage by stage over all days, so that neighbours' suites are known.

    A day without a folder is taken where pairs of the folders beside it were judged on it; without such pairs it is no
    day of the source: named, it fails, and in a range it is left out with a word.

    Args:
        clock: tells which days are over.

    Raises:
        Abort: no day is named and the source holds none, the range is empty, or a named day is not over or lies before
            the first one.
    """
    ctx = StageContext(settings)
    days = _chosen_days(ctx, day, first, last, clock().date())
    broken: set[str] = set()
    for one, why in _not_to_take(ctx, days).items():
        broken.add(one)
        yield _failed(one, "ingest", why) if day is not None else _left_out(one, why)
    if day is None and settings.source != "oro_api":
        for one, why in _out_of_reach(ctx, clock().date(), before=first is None, after=last is None).items():
            yield _left_out(one, why)
    for name, stage in daily_stages(settings):
        for one in days:
            if one in broken:
                continue
            fact = run_one(ctx, name, stage, one)
            if fact["state"] == "failed":
                broken.add(one)
            yield fact


def train_days(settings: Settings, stage: str, as_of: str | None, *, show: Watch | None = None) -> Iterator[Fact]:
    """Clusters, splits, then checkpoints and evaluations up to a stage (``all``: all of them), lineage as of one day.

    What is current is skipped, so a later stage goes on where an earlier one ended.

    Args:
        show: is told which stage runs and every line of its process (``progress.shown_on_stderr``).

    Raises:
        Abort: for an unknown stage or one that the recipe does not have, when nothing was ingested, or when the base
            model or the teacher is not there.
    """
    wanted = wanted_stage(settings, stage)
    ctx = StageContext(settings)
    day = as_of_day(ctx, as_of)
    _check_beforehand(ctx, wanted)
    for name, body in training_flow(wanted, None if show is None else show.runner()):
        with nullcontext() if show is None else show.stage(name):
            fact = run_one(ctx, name, body, day)
        yield fact
        if fact["state"] == "failed":
            return


def _check_beforehand(ctx: StageContext, last: str) -> None:
    """What would only be missed after hours of training, or when it is too late for a day's budget.

    Raises:
        Abort: the base folder is not there, or the teacher cannot be asked.
    """
    from trajectory_platform.stages.generated import TEACHER_SFT, teacher_of
    from trajectory_platform.training.launch import base_digest
    from trajectory_platform.training.recipe import load_recipe
    from trajectory_platform.training.stage_recipes import STAGES

    recipe = load_recipe(ctx.settings.recipe).resolved(ctx.settings.seed)
    base_digest(recipe)
    if TEACHER_SFT in recipe.names() and STAGES.index(TEACHER_SFT) <= STAGES.index(last):
        teacher_of(ctx, recipe)


def as_of_day(ctx: StageContext, as_of: str | None) -> str:
    """The day to train as of: the one given, else the newest ingested.

    Raises:
        Abort: nothing was ingested, or the day lies outside of what was.
    """
    from trajectory_platform.lake import tables

    ingested = sorted(ctx.lake.days(tables.AXIS_A_CORPUS))
    if not ingested:
        raise Abort(f"nothing ingested in {ctx.settings.lake_uri}: run 'trajectory-platform ingest' first")
    if as_of is not None and not ingested[0] <= as_of <= ingested[-1]:
        raise Abort(f"as of {as_of}: the ingested days are {ingested[0]} to {ingested[-1]}")
    return as_of or ingested[-1]


def wanted_stage(settings: Settings, stage: str) -> str:
    """The last stage to train for a word of the user; Abort for one that is none or that the recipe does not have."""
    from trajectory_platform.training.recipe import load_recipe
    from trajectory_platform.training.stage_recipes import STAGES

    if stage == ALL:
        recipe = load_recipe(settings.recipe)
        if not recipe.names():
            raise Abort(f"recipe {recipe.name!r} has no stage: nothing to train")
        return STAGES[-1]
    if stage not in STAGES:
        raise Abort(f"train {stage}: choose one of {', '.join(STAGES)}, or {ALL}")
    load_recipe(settings.recipe).stage(stage)
    return stage


def training_flow(last: str, run: Runner | None = None) -> list[tuple[str, Stage]]:
    """(asset, its work) as of a day, in the order of the flow, up to a stage of training, without an orchestrator.

    Args:
        run: starts the processes of the stages; None starts them plainly and shows nothing.
    """
    from trajectory_platform.stages import checkpoints, contamination, evaluations, generated, lineage_counts
    from trajectory_platform.stages.checkpoint_figures import mirrored
    from trajectory_platform.stages.training_stages import TRAINING, train_stage
    from trajectory_platform.training.stage_recipes import STAGES

    base, *others = evaluations.EVALUATIONS
    measured = {row.stage: row for row in others}
    before: dict[str, list[tuple[str, Stage]]] = {
        "resft": [("resft_rollouts", partial(generated.resft_rollouts, run=run))],
        "teacher_sft": [("teacher_traces", generated.teacher_traces)],
    }
    flow: list[tuple[str, Stage]] = [
        ("leak_clusters", splits.leak_clusters),
        ("leak_guarded_splits", splits.leak_guarded_splits),
    ]
    for row in TRAINING[: STAGES.index(last) + 1]:
        flow += [*before.get(row.stage, []), (row.asset, mirrored(partial(train_stage, row=row, run=run)))]
        if row.stage == STAGES[0]:
            flow.append(("sft_action_scores", partial(checkpoints.sft_action_scores, run=run)))
        evaluation = measured[row.stage]
        flow.append((evaluation.asset, mirrored(partial(evaluations.evaluate_stage, row=evaluation, run=run))))
    # of the run's first checkpoint, whichever stage made it
    flow.append((base.asset, mirrored(partial(evaluations.evaluate_stage, row=base, run=run))))
    flow.append(("checkpoint_lineage", lineage_counts.checkpoint_lineage))
    flow.append(("contamination", contamination.contamination))
    return flow


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
    warnings = _warnings(ctx, result)
    return {
        "day": day,
        "stage": name,
        "state": "current" if result.skipped else "published",
        "summary": result.summary | ({"warnings": warnings} if warnings else {}),
        "text": result_words(ctx, result),
    }


def _warnings(ctx: StageContext, result: StageResult) -> list[str]:
    """What a stage that went well should not keep to itself."""
    from trajectory_platform.lake import tables
    from trajectory_platform.stages.catalogue import catalogue_place, judged_without

    judged = result.manifests.get(tables.JUDGED_TRACES.name)
    if judged is None or not judged_without(judged):
        return list(result.summary.get("warnings") or ())
    lost = f"{result.summary['unscorable']} of {result.summary['judged']} traces are unscorable"
    place = catalogue_place(ctx.settings.data_root)
    return [f"{lost}: the day has no product catalogue (no_catalogue); put it at {place} and ingest again"]


def _failed(day: str, stage: str, reason: str) -> Fact:
    return {"day": day, "stage": stage, "state": "failed", "summary": {}, "text": reason}


def _left_out(day: str, why: str) -> Fact:
    return {"day": day, "stage": "ingest", "state": "left out", "summary": {}, "text": why}


def _not_to_take(ctx: StageContext, days: list[str]) -> dict[str, str]:
    """The days that the source has no folder and no pair of -> why; of one that is published its stage says more."""
    from trajectory_platform.lake import tables

    if ctx.settings.source == "oro_api":  # fetching a day makes its folder
        return {}
    known = {one.isoformat() for one in ctx.source.days()} | set(ctx.lake.days(tables.RAW_TRACES))
    missing = [day for day in days if day not in known]
    return {day: why for day in missing if (why := daily.no_pairs_beside(ctx, day)) is not None}


def _out_of_reach(ctx: StageContext, today: date, *, before: bool, after: bool) -> dict[str, str]:
    """Folders that a range without a first or last day leaves out -> why."""
    first = ctx.settings.first_day
    early = [one for one in ctx.source.days() if before and one < first]
    late = [one for one in ctx.source.days() if after and one >= today]
    return {one.isoformat(): f"before the first day {first} (TRAJECTORY_PLATFORM_FIRST_DAY)" for one in early} | {
        one.isoformat(): f"not over: it is {today} (UTC)" for one in late
    }


def _chosen_days(ctx: StageContext, day: str | None, first: str | None, last: str | None, today: date) -> list[str]:
    from trajectory_platform.lake import tables

    given = given_days(day, first, last)
    assert_in_reach(ctx.settings, filter(None, given[:1]), today, running=False)
    if given[0] is not None:
        return [given[0].isoformat()]
    if given[1] is not None and given[2] is not None:
        some_days(given[1], given[2])
    assert_in_reach(ctx.settings, filter(None, given[1:]), today, running=False)
    if ctx.settings.source == "oro_api":
        days = some_days(given[1] or ctx.settings.first_day, given[2] or today - timedelta(days=1))
        return [one.isoformat() for one in days]
    folders = ctx.source.days()
    present = [one for one in folders if ctx.settings.first_day <= one < today]
    low = given[1] or (present[0] if present else None)
    high = given[2] or (present[-1] if present else None)
    if low is None or high is None:
        raise Abort(_no_folders(ctx, today))
    chosen = some_days(low, high)
    # a day can only have rows from its own folder and the two beside it
    seen = {near for one in folders for near in (one - timedelta(days=1), one, one + timedelta(days=1))}
    published = set(ctx.lake.days(tables.RAW_TRACES))
    kept = [one.isoformat() for one in chosen if one in seen or one.isoformat() in published]
    if not kept:
        raise Abort(f"no day folders from {low} to {high} in {ctx.settings.data_root}")
    return kept


def _no_folders(ctx: StageContext, today: date) -> str:
    """Why there is no day to take where none was named."""
    root, first = ctx.settings.data_root, ctx.settings.first_day
    if ctx.source.days():
        return f"no day folder in {root} from {first} (TRAJECTORY_PLATFORM_FIRST_DAY) on that is over on {today} (UTC)"
    return f"no day folders in {root}: set TRAJECTORY_PLATFORM_DATA_ROOT"
