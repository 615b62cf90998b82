"""A tiny tokenizer and one really trained checkpoint, made once per session."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trajectory_platform.training.recipe import Recipe, parse_recipe
from trajectory_platform_tests.training import shopping

TINY = """
name: tiny
hardware: {threads: 1}
model: {hidden: 32, layers: 1, heads: 2, kv_heads: 1, head_dim: 16, mlp: 64}
tokenizer: {vocab: 1200}
context: {max_length: 1024, reply_tokens: 96, max_result_chars: 200}
min_traces: 4
stages:
  sft:
    optimiser: {learning_rate: 0.01}
    amount: {epochs: 1, batch: 4, sampling: uniform}
evaluation: {max_turns: 12, batch: 8, bootstrap: 200}
"""


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return parse_recipe(TINY).resolved(7)


@pytest.fixture(scope="session")
def tokenizer(recipe: Recipe) -> Any:
    from trajectory_platform.traces.rendering import chat_messages
    from trajectory_platform.training.tokenizer import build_tokenizer

    rows = [(chat_messages(shopping.messages(number)).messages, shopping.TOOLS) for number in range(30)]
    return build_tokenizer(rows, recipe)


class Window(NamedTuple):
    """Splits and corpus of one window: 16 train, 6 dev and 2 sealed traces."""

    splits: Any
    corpus: Any


@pytest.fixture(scope="session")
def window() -> Window:
    return Window(*shopping.window())


@pytest.fixture(scope="session")
def checkpoint_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="session")
def trained(window: Window, recipe: Recipe, checkpoint_root: Path) -> Any:
    """The window's checkpoint, trained in a process of its own exactly as in production."""
    return shopping.train_stage(window, recipe, checkpoint_root)
