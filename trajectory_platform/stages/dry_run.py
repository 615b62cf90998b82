"""``train STAGE --dry-run``: the data of a run as it would be trained, counted and estimated; nothing is trained."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages import splits
from trajectory_platform.stages.attempted_problems import chosen_problems, market
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.eval_pools import evaluable
from trajectory_platform.stages.plain import as_of_day, wanted_stage
from trajectory_platform.stages.training_rows import Feed
from trajectory_platform.stages.training_stages import TRAINING

if TYPE_CHECKING:
    from trajectory_platform.evaluation.child import Runner
    from trajectory_platform.training.recipe import Recipe

DEVICES = {"cpu": "cpu-core", "gpu": "h100-80", "gpus": "h100-80"}
"""Device that is assumed for a hardware profile where none is named."""


def rehearse(
    settings: Settings, stage: str, day: str | None, *, device: str | None = None, runner: Runner | None = None
) -> dict[str, Any]:
    """What training up to a stage (``all``) as of a day would take (``training.dry_run.dry_run``), with ``day``.

    Clusters and splits are brought up to date and the guard looks at them and at every row, as before a training. What
    a stage is to generate for itself is there only if it was generated before.

    Args:
        device: name in ``training.estimate.DEVICES``; None takes the one of the recipe's hardware profile.

    Raises:
        Abort: no such stage or device, or nothing ingested. FailPartition: a leak, or rows that cannot be read.
    """
    from trajectory_platform.training.dry_run import dry_run
    from trajectory_platform.training.estimate import device_of
    from trajectory_platform.training.recipe import load_recipe
    from trajectory_platform.training.stage_recipes import STAGES

    last = wanted_stage(settings, stage)
    ctx = StageContext(settings)
    on = as_of_day(ctx, day)
    recipe = load_recipe(settings.recipe).resolved(settings.seed)
    device_of(device or DEVICES[recipe.hardware.profile])  # before the work is done
    later = dict.fromkeys(STAGES[STAGES.index(last) + 1 :])
    recipe = recipe.model_copy(update={"stages": recipe.stages.model_copy(update=later)})
    if not recipe.names():
        raise Abort(f"recipe {recipe.name!r} has no stage up to {last!r}")
    splits.leak_clusters(ctx, on)
    splits.leak_guarded_splits(ctx, on)
    with tempfile.TemporaryDirectory(prefix="dry-run-") as scratch:
        rows, problems = _rows(ctx, on, recipe, Path(scratch))
        found = dry_run(
            recipe,
            rows,
            problems=problems,
            device=device or DEVICES[recipe.hardware.profile],
            seed=settings.seed,
            evaluated=_evaluable(ctx, on, recipe),
            runner=runner,
        )
    return {"day": on, **found}


def _rows(
    ctx: StageContext, day: str, recipe: Recipe, scratch: Path
) -> tuple[Mapping[str, Sequence[Mapping[str, Any]]], int]:
    """(stage -> its rows, number of train problems that can be attempted)."""
    found = {}
    for row in TRAINING:
        if row.stage not in recipe.names():
            continue
        splits.check_trainable(ctx, day, row.uses)
        if not row.attempts or market(ctx, day) is not None:
            found[row.stage] = row.material(Feed(ctx, day, recipe, row.stage), scratch).rows
    selection, _ = chosen_problems(ctx, day, Feed(ctx, day, recipe, recipe.names()[0]).held_out, limit=None, seed=0)
    return found, selection.available


def _evaluable(ctx: StageContext, day: str, recipe: Recipe) -> int:
    """How many problems of the evaluation's pool can be attempted as of a day; none without a catalogue."""
    from trajectory_platform.evaluation.eval_problems import select

    if market(ctx, day) is None:
        return 0
    plan = recipe.evaluation.rollouts
    suite_days = splits.days_up_to(ctx, tables.PROBLEM_SUITES, day)
    found = evaluable(ctx, day, suite_days, plan.pool, None, sealed_too=plan.sealed_reason is not None)
    return select(found.problems, limit=None, seed=0).available


def dry_run_text(facts: Mapping[str, Any], *, with_recipe: bool = False) -> str:
    """The result for people; with the resolved recipe at its end where that is asked for."""
    from trajectory_platform.stages.text import shown
    from trajectory_platform.training.dry_run import text_of

    lines = text_of(facts, with_recipe=with_recipe)
    return "\n".join([f"dry run as of {facts['day']}", *(shown(line) for line in lines)])
