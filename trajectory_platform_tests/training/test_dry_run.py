"""A dry run counts what training then does, says what it cannot know, and never needs the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.training.dry_run import dry_run, text_of
from trajectory_platform.training.launch import corpus_records, training_rows
from trajectory_platform.training.recipe import Recipe, load_recipe, parse_recipe
from trajectory_platform_tests.stages.arena_days import here
from trajectory_platform_tests.training import shopping


def records(traces: int = 16) -> list[dict[str, Any]]:
    splits, corpus = shopping.window(traces, 2, 2)
    return list(corpus_records(training_rows(splits, "sft")[0], corpus))


@pytest.mark.slow
def test_it_counts_what_training_does(trained: Any, recipe: Recipe) -> None:
    from safetensors import safe_open

    found = dry_run(recipe, {"sft": records()}, problems=16, device="cpu-core", seed=7)
    stage, manifest = found["stages"]["sft"], trained.manifest
    assert stage["steps"] == manifest["metrics"]["steps"] and stage["rows_used"] == manifest["rows"]["rows_used"]
    assert stage["tokens"] == manifest["rows"]["tokens"] == stage["run_tokens"]  # one epoch
    assert stage["trained_tokens"] == manifest["rows"]["trained_tokens"]["assistant"]
    with safe_open(trained.path / "model.safetensors", "np") as weights:
        sizes = {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118 - no mapping
    assert found["parameters"] == sum(_product(shape) for name, shape in sizes.items() if name != "lm_head.weight")
    assert found["tokenizer"]["exact"] and parse_recipe(found["recipe"]) == recipe
    assert any("no weights were touched" in line for line in text_of(found))


@pytest.mark.slow
def test_the_shipped_run_of_qwen3_4b_is_rehearsed_without_its_folder(tmp_path: Path) -> None:
    shipped = load_recipe("qwen3-4b")
    absent = shipped.model.model_copy(update={"base": str(tmp_path / "Qwen3-4B")})
    recipe = shipped.model_copy(update={"model": absent})
    found = dry_run(recipe, {"sft": records(80)}, problems=50, device="h100-80", seed=7)
    stages = found["stages"]
    assert found["parameters"] == 4_022_468_096 and list(stages) == list(recipe.names())
    assert stages["sft"]["rows_used"] == 80 and stages["sft"]["steps"] >= 1
    assert stages["sft"]["drawn_rows"] < 400 and stages["sft"]["run_tokens"] > 100_000  # five epochs, packed
    assert stages["resft"]["rows"] == 180 and stages["dr_grpo"]["steps"] == 100
    assert stages["kto"]["notes"] == ["no rows: nothing can be said before its traces are there"]
    assert 10 < stages["sft"]["memory_gib"] < 80
    source = found["tokenizer"]["source"]
    assert source.startswith("the real Qwen3 vocabulary") or source.startswith("APPROXIMATE")
    small = dry_run(
        recipe.model_copy(update={"stages": recipe.stages.model_copy(update={"resft": None})}),
        {"sft": records(80)},
        problems=50,
        device="rtx4090-24",
        seed=7,
    )
    assert any("DOES NOT FIT into 24 GiB" in line for line in text_of(small))


def test_what_is_yet_to_be_generated_is_bounded_as_training_would_bound_it(recipe: Recipe) -> None:
    """By the steps and the tokens a stage may take, and by the corpus that there is to mix in."""

    def of(**part: Any) -> dict[str, Any]:
        own = {"rollouts": {"samples": 4}, "accept": {"keep": 4}, "corpus_share": 0.5, **part}
        grpo = {"amount": {"max_steps": 5, "batch": 8, "micro_batch": 8}, "group": 4, "iterations": 2, "problems": 3}
        stages = {"sft": recipe.stages.sft, "resft": own, "dr_grpo": grpo}
        chosen = Recipe.model_validate({**recipe.model_dump(), "stages": stages})
        found: dict[str, Any] = dry_run(chosen, {"sft": rows}, problems=40, device="cpu-core", seed=7, runner=here)
        stages_of: dict[str, Any] = found["stages"]
        return stages_of

    rows = records()
    free = of(amount={"batch": 2})["resft"]
    assert free["rows"] == 160 + len(rows), "the corpus has no 160 rows to mix in"
    assert free["steps"] == 88
    short = of(amount={"batch": 2, "max_steps": 10})["resft"]
    assert short["steps"] == 10 and short["run_tokens"] == pytest.approx(free["run_tokens"] * 20 / 176, rel=0.01)
    cheap = of(amount={"batch": 2, "token_budget": 3000})
    assert cheap["resft"]["run_tokens"] == 3000
    grpo = cheap["dr_grpo"]
    assert grpo["rows"] == 3 and grpo["steps"] == 4, "two passes over each of two batches"
    assert any(note.startswith("16 attempts") for note in grpo["notes"])


def test_numbers_come_first_evaluations_are_counted_and_the_recipe_is_there_when_asked_for(recipe: Recipe) -> None:
    found = dry_run(recipe, {"sft": records()}, problems=16, device="cpu-core", seed=7, evaluated=3, runner=here)
    told, plan = found["evaluations"], recipe.evaluation.rollouts
    assert told["measured"] == len(recipe.names()) + 1 and told["attempts"] == min(plan.problems or 3, 3) * plan.samples
    assert told["hours"] > 0
    stages = sum(entry.get("hours") or 0.0 for entry in found["stages"].values())
    assert found["total_hours"] == pytest.approx(stages + told["hours"], abs=1e-3)
    lines = text_of(found)
    assert lines[0].startswith("recipe ") and any(line.startswith("sft ") and line.endswith(" s") for line in lines)
    assert not any("0.00" in line and "hours" in line for line in lines) and "resolved recipe" not in lines
    assert text_of(found, with_recipe=True)[-1] == found["recipe"].splitlines()[-1]


@pytest.mark.slow
def test_what_training_would_refuse_is_said_for_its_stage(recipe: Recipe) -> None:
    rows = records()
    for row in rows[:8]:
        row["messages"] = '[{"role": "user", "content": "no answer"}]'
    found = dry_run(recipe, {"sft": rows}, problems=16, device="cpu-core", seed=7)
    assert "more than max_lost_share" in found["stages"]["sft"]["refused"]
    assert any("refused" in line for line in text_of(found))


@pytest.mark.slow
def test_the_real_vocabulary_has_the_published_ids() -> None:
    from trajectory_platform.training.qwen_vocabulary import merges_file, qwen_tokenizer
    from trajectory_platform.training.tokenizer import template_text

    merges = merges_file()
    if merges is None:
        pytest.skip("the extra [qwen] is not installed")
    tokenizer = qwen_tokenizer(merges, template_text("qwen3_training"))
    assert len(tokenizer) == 151_669
    known = {"<|im_start|>": 151644, "<|im_end|>": 151645, "<tool_call>": 151657, "<think>": 151667}
    assert {text: tokenizer.convert_tokens_to_ids(text) for text in known} == known
    assert tokenizer("Hello, AI!")["input_ids"] == [9707, 11, 15235, 0]


def _product(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


@pytest.mark.parametrize("name", ["qwen3-4b", "qwen3-4b-lora"])
def test_the_shipped_runs_have_all_stages_and_the_published_numbers(name: str) -> None:
    recipe = load_recipe(name)
    sft, grpo = recipe.stages.sft, recipe.stages.dr_grpo
    assert recipe.names() == ("sft", "resft", "teacher_sft", "kto", "dr_grpo")
    assert sft is not None and grpo is not None and recipe.stages.kto is not None
    assert (sft.optimiser.learning_rate, sft.optimiser.warmup_share, sft.amount.epochs) == (5e-5, 0.1, 5)
    assert sft.optimiser.schedule == "cosine" and sft.amount.packing and sft.amount.micro_batch == 1
    assert recipe.context.max_length == 20480 and recipe.hardware.precision == "bf16"
    assert grpo.beta == 0 and grpo.amount.batch == 128
    adapters = {stage: recipe.stage(stage).adapter for stage in recipe.names()}
    if name.endswith("lora"):
        targets = {adapter.targets for adapter in adapters.values() if adapter is not None}
        assert targets == {("q_proj", "k_proj", "v_proj", "o_proj")} and None not in adapters.values()
    else:
        assert set(adapters.values()) == {None} and recipe.hardware.zero == 2
