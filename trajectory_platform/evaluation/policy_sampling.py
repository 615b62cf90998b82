"""How replies are drawn, and with which seed: the same words for a checkpoint in process and for an endpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.environment import Task
from trajectory_platform.identity import digest_lines


@dataclass(frozen=True)
class Sampling:
    """Decoding parameters.

    Attributes:
        temperature: 0 is greedy.
        top_p: the smallest set of tokens with at least this probability is drawn from; 1 is all of them.
        seed: enters the seed of every turn, beside the task's own.
        max_tokens: tokens of one reply; None leaves it to the limits of the attempt (and, for a checkpoint, its
            context policy, whichever is smaller).
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise Abort(f"temperature must be at least 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise Abort(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise Abort(f"max_tokens must be at least 1, not {self.max_tokens}")

    @property
    def label(self) -> str:
        """The part of a policy's name that says how it was drawn; seeds count only where something is drawn."""
        drawn = "greedy" if self.temperature == 0 else f"t={self.temperature:g},p={self.top_p:g},seed={self.seed}"
        return drawn if self.max_tokens is None else f"{drawn},max={self.max_tokens}"


def turn_seed(task: Task, turn: int, seed: int) -> int:
    """Seed of one reply, 0 to 2^31 - 1: of the task's identity, its own seed, the turn and the policy's seed alone.

    So what an attempt draws does not depend on the order, the company or the number of other attempts.
    """
    named = [task.suite_id or "", task.problem_id, task.problem_key, task.query]
    numbers = [str(number) for number in (task.sample, task.seed, turn, seed)]
    return int(digest_lines([*named, *numbers])[:8], 16) >> 1
