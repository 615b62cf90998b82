"""Recipes: what is written is what runs, and a misspelt option stops before it does harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.training.recipe import Recipe, load_recipe, parse_recipe, shipped_recipes
from trajectory_platform.training.stage_recipes import BASE, STAGES

FIVE = "stages: {sft: {}, resft: {}, teacher_sft: {}, kto: {}, dr_grpo: {}}"


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_are_valid_and_survive_yaml(name: str) -> None:
    recipe = load_recipe(name).resolved(3)
    assert parse_recipe(recipe.to_yaml()) == recipe


def test_smoke_and_fast_are_shipped_and_fast_has_all_stages() -> None:
    assert {"smoke", "fast"} <= set(shipped_recipes())
    assert load_recipe("fast").names() == STAGES


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("epoch: 3", "epoch"),
        ("model: {hiden: 64}", "model.hiden"),
        ("stages: {dpo: {}}", "stages.dpo"),
        ("stages: {sft: {amount: {epochs: -1}}}", "stages.sft.amount.epochs"),
        ("stages: {sft: {amount: {epoch: 1}}}", "stages.sft.amount.epoch"),
        ("stages: {sft: {amount: {batch: 8, micro_batch: 3}}}", "multiple of micro_batch"),
        ("stages: {sft: {parent: kto}, kto: {}}", "stages.sft.parent"),
        ("stages: {kto: {parent: sft}, sft: null}", "stages.kto.parent"),
        ("stages: {kto: {parent: best}}", "stages.kto.parent"),
        ("stages: {kto: {amount: {batch: 1}}}", "stages.kto"),
        ("stages: {dr_grpo: {amount: {batch: 12}, group: 8}}", "stages.dr_grpo"),
        ("stages: {resft: {rollouts: {samples: 4, temperature: 0}}}", "stages.resft.rollouts"),
        ("{hardware: {profile: gpus, processes: 3}, stages: {sft: {amount: {batch: 8}}}}", "3 processes"),
        ("{hardware: {profile: gpus, zero: 2}, stages: {sft: {optimiser: {kind: muon}}}}", "muon"),
        ("hardware: {profile: gpu, processes: 2}", "hardware"),
        ("hardware: {profile: cpu, zero: 3}", "hardware"),
        ("hardware: {profile: cpu, vllm: colocate}", "hardware"),
        ("context: {max_length: 100, reply_tokens: 90}", "context"),
        ("model: {heads: 3, kv_heads: 2}", "model"),
        ("{seed: 1, seed: 2}", "twice"),
        ("[1, 2]", "mapping"),
        ("a: b: c", "not YAML"),
    ],
)
def test_a_fault_is_named_in_one_line(text: str, named: str) -> None:
    with pytest.raises(Abort) as caught:
        parse_recipe(text, where="my.yaml")
    assert named in str(caught.value) and str(caught.value).startswith("my.yaml") and "\n" not in str(caught.value)


def test_a_missing_recipe_names_the_shipped_ones(tmp_path: Path) -> None:
    with pytest.raises(Abort, match="smoke"):
        load_recipe(tmp_path / "none.yaml")


def test_a_stage_starts_from_the_one_before_it_that_the_recipe_has() -> None:
    five = parse_recipe(FIVE)
    assert five.names() == STAGES and [five.parent_of(name) for name in STAGES] == [BASE, *STAGES[:-1]]
    assert parse_recipe("stages: {sft: {}, kto: {}}").parent_of("kto") == "sft"
    assert parse_recipe("stages: {sft: {}, resft: {}, kto: {parent: sft}}").parent_of("kto") == "sft"
    assert parse_recipe("stages: {sft: {}, kto: {parent: base}}").parent_of("kto") == BASE
    with pytest.raises(Abort, match="no stage 'kto'.*sft"):
        Recipe().stage("kto")


def edited(text: str, stage: str = "sft") -> dict[str, Any]:
    return parse_recipe(text).resolved(0).identity(stage)


def test_identity_changes_with_what_shapes_the_weights_only() -> None:
    base = edited("{}")
    assert base != Recipe().resolved(1).identity("sft")
    assert base != edited("stages: {sft: {amount: {epochs: 2}}}")
    assert base != edited("stages: {sft: {adapter: {rank: 4}}}")
    assert base != edited("hardware: {precision: bf16}")
    assert base != edited("context: {max_length: 1024}")
    for same in (
        "name: x",
        "hardware: {threads: 8}",
        "evaluation: {max_turns: 7}",
        "stages: {sft: {save_every: 3}}",
        "stages: {sft: {amount: {micro_batch: 2}}}",
        "stages: {sft: {}, kto: {beta: 0.5}}",
    ):
        assert base == edited(same), same


def test_rows_of_a_pass_name_a_checkpoint_only_where_the_loss_compares_them() -> None:
    kto = "stages: {{kto: {{amount: {{batch: 32, micro_batch: {}}}}}}}"
    assert edited(kto.format(16), "kto") != edited(kto.format(8), "kto")
    assert edited(kto.format("null"), "kto") == edited(kto.format(32), "kto")
    whole = "hardware: {processes: 2}\n" + kto.format("null")
    assert edited(whole, "kto") == edited(kto.format(16), "kto") != edited(kto.format("null"), "kto")
    grpo = "stages: {{dr_grpo: {{generation_batch: {0}, amount: {{batch: 64, micro_batch: {0}}}}}}}"
    assert edited(grpo.format(8), "dr_grpo") == edited(grpo.format(32), "dr_grpo")


def test_another_source_of_draws_is_another_checkpoint() -> None:
    served = "hardware: {profile: gpu, vllm: colocate, vllm_memory: 0.5}\n"
    parts = "stages: {sft: {}, dr_grpo: {}}"
    assert edited(served + parts, "dr_grpo") != edited(parts, "dr_grpo")
    assert edited(served + parts, "sft") == edited(parts, "sft")


def test_a_stage_is_named_by_its_own_part_and_not_by_its_neighbours() -> None:
    assert edited(FIVE, "kto") == edited("stages: {sft: {amount: {epochs: 9}}, kto: {}}", "kto")
    assert edited(FIVE, "kto") != edited("stages: {kto: {beta: 0.2}}", "kto")
    assert edited(FIVE, "sft") != edited(FIVE, "resft")
    slower = "stages: {resft: {rollouts: {concurrency: 2}}}"
    assert edited(FIVE, "resft") == edited(slower, "resft")


def test_the_place_of_a_base_folder_is_no_part_of_the_identity() -> None:
    assert edited("model: {base: /a}") == edited("model: {base: /b, hidden: 64}") != edited("{}")


def test_a_seed_in_the_recipe_wins_over_the_settings() -> None:
    assert Recipe(seed=5).resolved(9).seed == 5
    assert Recipe().resolved(9).seed == 9


def test_a_recipe_is_recorded_without_the_place_of_the_base_model(tmp_path: Path) -> None:
    """A path of one machine is no lineage: moved, the same run records the same recipe."""
    here, there = (
        Recipe.model_validate({"model": {"base": str(tmp_path / place / "Qwen3-4B")}}) for place in ("a", "b")
    )
    assert here.recorded() == there.recorded() and str(tmp_path) not in here.recorded().to_yaml()
    for base in (None, "models/Qwen3-4B"):
        recipe = Recipe.model_validate({"model": {"base": base}})
        assert recipe.recorded() == recipe, "a relative path can be used again"
