"""Each knob of a recipe rebuilds what depends on it and nothing else; no asset ignores one of its own.

Identities are compared, nothing is run: the lake is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from trajectory_platform.identity import identity_digest
from trajectory_platform.settings import Settings
from trajectory_platform.stages import checkpoints, evaluations, generated, training_stages
from trajectory_platform.stages.context import StageContext, StageResult
from trajectory_platform.stages.plain import training_flow
from trajectory_platform.training import recipe as recipes
from trajectory_platform.training.recipe import Recipe
from trajectory_platform.training.stage_recipes import STAGES

DAY = "2026-05-02"
OWN = {stage: {f"{stage}_checkpoint"} for stage in STAGES}
GENERATORS = {"resft": "resft_rollouts", "teacher_sft": "teacher_traces"}
ROLLOUT_EVALUATIONS = {f"{stage}_eval" for stage in (*STAGES, "base")}
# How fast it goes, where, what it is called, and how published scores are summed up: never what comes out.
FREE = {
    *("name", "hardware.threads", "hardware.profile", "hardware.zero", "hardware.vllm_memory"),
    *("hardware.gradient_checkpointing", "evaluation.rollouts.concurrency"),
    "stages.sft.parent",  # base either way
    *(f"stages.{stage}.save_every" for stage in STAGES),
    *(f"stages.{stage}.amount.micro_batch" for stage in STAGES if stage != "kto"),  # KTO estimates its KL within one
    *(
        "stages.resft.rollouts.concurrency",
        "stages.teacher_sft.rollouts.concurrency",
        "stages.dr_grpo.generation_batch",
    ),
}


class _Caught(Exception):
    pass


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the last ``run_stage`` was called with; its work is not done."""
    found: dict[str, Any] = {}

    def note(ctx: StageContext, *, stage: str, code_version: str, inputs: Any, **more: Any) -> StageResult:
        told = {**ctx.settings.used_by(stage), **(more.get("extra_settings") or {})}
        found["identity"] = identity_digest(stage=stage, code_version=code_version, inputs=inputs, settings=told)
        raise _Caught

    for module in (checkpoints, evaluations, generated, training_stages):
        monkeypatch.setattr(module, "run_stage", note)
    return found


def full_recipe(**changes: Any) -> Recipe:
    """Every stage with everything that may be absent present, so that each knob has a leaf."""
    stages: dict[str, Any] = {stage: {"adapter": {}} for stage in STAGES}
    stages["kto"]["amount"] = {"batch": 16}
    stages["teacher_sft"]["rollouts"] = {"temperature": 0.5}
    attempts = {"temperature": 0.5, "pool": "sealed", "sealed_reason": "to see"}
    plain = {"stages": stages, "hardware": {"profile": "gpus"}, "evaluation": {"rollouts": attempts}}
    return Recipe.model_validate(plain | changes)


def leaves(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    else:
        yield place, value


def changed(recipe: Recipe, place: tuple[str, ...]) -> Recipe:
    """The recipe with another valid value in one place."""
    old = recipe.model_dump(mode="json")
    inner: Any = old
    for key in place[:-1]:
        inner = inner[key]
    before = inner[place[-1]]
    numbers = [before * 2, before / 2, before * 0.9] if isinstance(before, int | float) else []
    words = [
        "script:row_scan",
        "muon",
        "linear",
        "uniform",
        "unfiltered",
        "apo_zero_unpaired",
        "all",
        "turn",
        "mask",
        "warn",
        "bf16",
        "cpu",
    ]
    words += ["colocate", "qwen3_instruct_2507_training", "dev", "base"]
    for value in (not before if isinstance(before, bool) else None, *numbers, 8, 16, 2, 3, 0.5, 1, *words, ["q_proj"]):
        if value is None or value == before:
            continue
        inner[place[-1]] = value
        try:
            made = Recipe.model_validate(old)
        except ValidationError:
            continue
        if made != recipe:
            return made
    raise AssertionError(f"no other valid value for {'.'.join(place)} (now {before!r})")


def identities(recipe: Recipe, ctx: StageContext, caught: dict[str, Any], patch: pytest.MonkeyPatch) -> dict[str, str]:
    patch.setattr(recipes, "load_recipe", lambda _name: recipe)
    found = {}
    for name, stage in training_flow(STAGES[-1])[2:]:
        if name in ("checkpoint_lineage", "contamination"):
            continue
        with pytest.raises(_Caught):
            stage(ctx, DAY)
        found[name] = caught["identity"]
    return found


def expected(place: str, names: Mapping[str, str]) -> set[str]:
    """The assets that a knob is of."""
    part, *rest = place.split(".")
    if place in FREE:
        return set()
    if place == "hardware.processes":  # KTO estimates its KL from the rows of one pass
        return OWN["kto"]
    if place == "hardware.vllm":  # it draws with random numbers of its own
        return OWN["dr_grpo"]
    if part == "stages":
        generator = (
            {GENERATORS[rest[0]]} if rest[0] in GENERATORS and rest[1] in ("rollouts", "accept", "teacher") else set()
        )
        return OWN[rest[0]] | generator
    if part == "evaluation":
        of_turns = {"sft_action_scores"} if rest[0] != "rollouts" else set()
        return of_turns | (ROLLOUT_EVALUATIONS if rest[0] in ("rollouts", "seed") else set())
    trained = set.union(*OWN.values())
    return trained | (set(GENERATORS.values()) if part == "seed" else set())


def test_every_knob_rebuilds_its_assets_and_no_others(
    tmp_path: Path, caught: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = StageContext(
        Settings(data_root=str(tmp_path), lake_uri=str(tmp_path / "lake"), checkpoint_root=str(tmp_path))
    )
    recipe = full_recipe(seed=7)
    before = identities(recipe, ctx, caught, monkeypatch)
    wrong = {}
    for place, _ in leaves(recipe.model_dump(mode="json")):
        name = ".".join(place)
        if name == "model.base":  # its content enters (test_launch)
            continue
        after = identities(changed(recipe, place), ctx, caught, monkeypatch)
        different = {asset for asset in before if before[asset] != after[asset]}
        if different != expected(name, before):
            wrong[name] = sorted(different ^ expected(name, before))
    assert wrong == {}
