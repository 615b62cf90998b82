"""The size of the miniature, its settings and its recipes: plain values, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from trajectory_platform.miniature.base_model import BaseSpec
from trajectory_platform.miniature.days import FIRST_DAY, SCAN_SHARE, MiniatureReport, simulate_miniature
from trajectory_platform.settings import Settings
from trajectory_platform.training.pretraining import Pretraining
from trajectory_platform.training.recipe import Recipe, load_recipe
from trajectory_platform.training.stage_recipes import STAGES

RECIPE = "miniature"
CONTROL, PLAIN_DAYS = "control", "plain"


@dataclass(frozen=True)
class MiniaturePlan:
    """How large a run is.

    With the default shares of the pools, 4 days of 3,500 traces give about 3,000 traces for imitation in the train
    pool and more than 400 leak clusters each in the dev and the sealed pool.

    Attributes:
        days, traces_per_day, scan_share: of ``simulate_miniature``.
        seed: of world, days and training. The samples that the format was tried out on have seed 0.
        dev_problems: problems attempted greedily, one per leak cluster.
        sampled_problems, samples: problems attempted several times at temperature 1, and how often.
        sealed_problems: sealed problems attempted greedily, once, at the end.
        base: the model that is made first.
        small: tiny amounts in every stage: the flow only.
    """

    days: int = 4
    traces_per_day: int = 3500
    scan_share: float = SCAN_SHARE
    seed: int = 11
    dev_problems: int = 256
    sampled_problems: int = 96
    samples: int = 8
    sealed_problems: int = 256
    first_day: date = FIRST_DAY
    base: BaseSpec = field(default_factory=BaseSpec)
    small: bool = False

    @property
    def last_day(self) -> date:
        """The day as of which everything is trained."""
        return self.first_day + timedelta(days=self.days - 1)


def plan_of(*, seed: int, small: bool) -> MiniaturePlan:
    """The plan of the command line; the base model has a seed of its own, so that runs of other seeds share it."""
    plan = MiniaturePlan(seed=seed)
    if not small:
        return plan
    return replace(
        plan,
        days=2,
        traces_per_day=180,
        scan_share=0.5,  # the teacher compares in writing, and what the corpus holds already is not accepted from it
        dev_problems=8,
        sampled_problems=2,
        sealed_problems=4,
        base=plan.base.model_copy(update={"training": Pretraining(steps=4, batch=4)}),
        small=True,
    )


def settings_of(plan: MiniaturePlan, folder: Path, *, recipe: str, days: Path | None = None) -> Settings:
    """Settings of a run, everything it makes below ``folder``. The filter, the gates and the pools are the defaults.

    Args:
        days: the raw days, where they are those of another run.
    """
    return Settings(
        data_root=str(days or folder / "days"),
        lake_uri=str(folder / "lake"),
        checkpoint_root=str(folder / "checkpoints"),
        index_root=str(folder / "index"),
        first_day=plan.first_day,
        seed=plan.seed,
        recipe=recipe,
    )


def simulate(plan: MiniaturePlan, folder: Path) -> MiniatureReport:
    """Write the days of a plan where ``settings_of`` looks for them; an earlier simulation is replaced."""
    return simulate_miniature(
        folder / "days",
        days=plan.days,
        traces_per_day=plan.traces_per_day,
        seed=plan.seed,
        first_day=plan.first_day,
        scan_share=plan.scan_share,
        overwrite=True,
    )


def recipe_of(plan: MiniaturePlan, base: Path) -> Recipe:
    """The shipped recipe with this run's base model, seed and problems."""
    found = load_recipe(RECIPE)
    rollouts = found.evaluation.rollouts.model_copy(update={"problems": plan.dev_problems})
    found = found.model_copy(
        update={
            "seed": plan.seed,
            "model": found.model.model_copy(update={"base": str(base.resolve())}),
            "evaluation": found.evaluation.model_copy(update={"rollouts": rollouts}),
        }
    )
    return _small(found) if plan.small else found


def variant_of(recipe: Recipe, name: str, *, steps: int) -> Recipe:
    """SFT alone, in as many steps as the main run took: ``control`` on the unfiltered stream, ``plain`` on the corpus
    of days without a row scan."""
    sft: Any = recipe.stage("sft")
    update: dict[str, Any] = {"amount": sft.amount.model_copy(update={"max_steps": steps})}
    if name == CONTROL:
        update["select"] = sft.select.model_copy(update={"source": "unfiltered"})
    only = dict.fromkeys(STAGES) | {"sft": sft.model_copy(update=update)}
    return recipe.model_copy(update={"name": f"{recipe.name}-{name}", "stages": recipe.stages.model_copy(update=only)})


def _small(recipe: Recipe) -> Recipe:
    """Two steps a stage, few attempts: everything happens and nothing is learned."""
    stages = {name: _shrunk(recipe.stage(name), name) for name in recipe.names()}
    evaluation = recipe.evaluation.model_copy(update={"max_turns": 8})
    rollouts = evaluation.rollouts.model_copy(update={"limits": _cut(evaluation.rollouts.limits)})
    return recipe.model_copy(
        update={
            "stages": recipe.stages.model_copy(update=stages),
            "evaluation": evaluation.model_copy(update={"rollouts": rollouts}),
        }
    )


def _shrunk(part: Any, name: str) -> Any:
    batch = {"max_steps": 2, "batch": 4, "micro_batch": 4}
    update: dict[str, Any] = {"amount": part.amount.model_copy(update=batch)}
    if name == "dr_grpo":
        update |= {"group": 4, "problems": 8, "generation_batch": 4, "limits": _cut(part.limits)}
        update |= {"zero_variance_action": "warn", "clipped_action": "warn"}
    elif hasattr(part, "rollouts"):
        few = {"problems": 4 if name == "resft" else None, "samples": min(part.rollouts.samples, 2)}
        update["rollouts"] = part.rollouts.model_copy(update=few)
    return part.model_copy(update=update)


def _cut(limits: Any) -> Any:
    return limits.model_copy(update={"max_steps": 2, "reply_tokens": 16})
