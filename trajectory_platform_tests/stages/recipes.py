"""Recipes small enough for a test: the fast one with less of everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from trajectory_platform.training.recipe import load_recipe
from trajectory_platform.training.stage_recipes import STAGES

Changes = dict[str, Any]


def small_recipe(name: str = "small", *, stages: tuple[str, ...] = ("sft",), **changes: Any) -> Changes:
    """The fast recipe with some of its stages, two optimiser steps each, and few attempts.

    Args:
        changes: dotted places with ``__`` in place of the dot, for example ``stages__kto__beta=0.2``.
    """
    recipe: Changes = load_recipe("fast").model_dump(mode="json")
    recipe |= {"name": name, "min_traces": 1}
    recipe["hardware"]["threads"] = 1
    recipe["evaluation"] |= {"max_turns": 2, "bootstrap": 100}
    recipe["evaluation"]["rollouts"] |= {"problems": 3, "limits": {"max_steps": 2, "reply_tokens": 16}}
    for stage in STAGES:
        if stage not in stages:
            recipe["stages"][stage] = None
            continue
        part = recipe["stages"][stage]
        part["amount"] |= {"max_steps": 2, "token_budget": 3000}
        if "rollouts" in part:
            part["rollouts"] |= {"problems": 6}
    for place, value in changes.items():
        *path, last = place.split("__")
        inner = recipe
        for key in path:
            inner = inner[key]
        inner[last] = value
    return recipe


def write_recipe(folder: Path, name: str = "small", **how: Any) -> str:
    """``small_recipe`` as a file; its path."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(small_recipe(name, **how)))
    return str(path)
