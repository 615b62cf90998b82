"""Recipes: what is written is what runs, and a misspelt option stops before it does harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.training.recipe import Recipe, load_recipe, parse_recipe, shipped_recipes


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_are_valid_and_survive_yaml(name: str) -> None:
    recipe = load_recipe(name).resolved(3)
    assert parse_recipe(recipe.to_yaml()) == recipe


def test_smoke_is_shipped() -> None:
    assert "smoke" in shipped_recipes()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("epoch: 3", "epoch"),
        ("model: {hiden: 64}", "model.hiden"),
        ("stage: dpo", "stage"),
        ("epochs: -1", "epochs"),
        ("context: {max_length: 100, reply_tokens: 90}", "context"),
        ("model: {heads: 3, kv_heads: 2}", "model"),
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


def test_identity_changes_with_what_shapes_the_weights_only() -> None:
    base = Recipe().resolved(0)
    assert base.identity() != Recipe().resolved(1).identity()
    assert base.identity() != base.model_copy(update={"epochs": 2.0}).identity()
    assert base.identity() == base.model_copy(update={"name": "x", "threads": 8}).identity()


def test_a_seed_in_the_recipe_wins_over_the_settings() -> None:
    assert Recipe(seed=5).resolved(9).seed == 5
    assert Recipe().resolved(9).seed == 9
