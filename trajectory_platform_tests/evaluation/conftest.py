"""The tiny tokenizer of the training tests, here too."""

from __future__ import annotations

from trajectory_platform_tests.training.conftest import recipe, tokenizer

__all__ = ["recipe", "tokenizer"]
