"""What a step of GRPO says about itself, and when it must stop.

Numbers are means over the attempts of all processes, so every process sees the same ones and decides the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.turn_rewards import COSTS, GAINS
from trajectory_platform.training.grpo_rollouts import Attempt
from trajectory_platform.training.stage_recipes import GrpoStage

if TYPE_CHECKING:
    from torch import Tensor

    from trajectory_platform.training.advantages import Advantages

CLIPPED = "all_rollouts_truncated"
ZERO_VARIANCE = "zero_variance_groups"
PARTS = (*GAINS, *COSTS)
COLUMNS = (
    "success",
    "clipped",
    "hallucinated",
    "hallucinated_ids",
    "turns",
    "tokens",
    "contexts",
    "dropped",
    "masked",
    "without_reference",
    "unscorable",
    "surprise",
    "process",
    *(f"part_{name}" for name in PARTS),
)
"""One row per attempt; ``process`` and the parts (each the mean over the turns) are NaN without a reference."""
NUMBERS = (*COLUMNS, "sampled_entropy", "zero_variance", "same_outcome", "solved_groups")
"""The numbers of a step. ``sampled_entropy``: mean of minus log p of the drawn tokens, an estimate over all attempts;
TRL's ``entropy`` is exact, over the attempts that move the model."""


class Stop(NamedTuple):
    """That a run ends early: ``reason`` and the step."""

    reason: str
    step: int


def local_numbers(attempts: Sequence[Attempt], kept: Sequence[bool]) -> list[list[float]]:
    """The columns of this process's attempts."""
    rows = []
    for attempt, trained in zip(attempts, kept, strict=True):
        turns = len(attempt.replies)
        rewards = attempt.rewards or []
        parts = [math.nan] * (1 + len(PARTS))
        if rewards:
            totals = [math.fsum(one.parts.get(name, 0.0) for one in rewards) / len(rewards) for name in PARTS]
            parts = [math.fsum(one.total for one in rewards) / len(rewards), *totals]
        rows.append(
            [
                float(attempt.success),
                float(attempt.clipped),
                float(attempt.hallucinated > 0),
                float(attempt.hallucinated),
                float(turns),
                float(sum(len(reply.token_ids) for reply in attempt.replies)),
                float(len(attempt.segments)),
                float(attempt.dropped is not None),
                float(not trained and attempt.dropped is None),
                float(attempt.asked.reference is None),
                float(attempt.reason is not None),
                -math.fsum(share for reply in attempt.replies for share in reply.logprobs),
                *parts,
            ]
        )
    return rows


def numbers_of(stats: Tensor, advantages: Advantages, *, size: int) -> dict[str, float]:
    """The numbers of a generation batch; what no attempt has is left out."""
    import torch

    means = torch.nanmean(stats.double(), dim=0).tolist()
    found = dict(zip(COLUMNS, means, strict=True))
    found["sampled_entropy"] = found.pop("surprise") / found["tokens"] if found["tokens"] else math.nan
    solved = stats[:, 0].view(-1, size).max(dim=1).values
    found |= {
        "zero_variance": float(advantages.zero_variance.double().mean()),
        "same_outcome": float(advantages.same_outcome.double().mean()),
        "solved_groups": float(solved.double().mean()),
    }
    return {name: value for name, value in found.items() if not math.isnan(value)}


def step_line(numbers: Mapping[str, float]) -> str:
    """A step for people."""
    process = "" if numbers.get("process") is None else f", process {numbers['process']:+.2f}"
    return (
        f"success {numbers['success']:.0%}, groups solved {numbers['solved_groups']:.0%}{process}, hallucinated "
        f"{numbers['hallucinated']:.0%}, cut {numbers['clipped']:.0%}, groups without a difference "
        f"{numbers['zero_variance']:.0%}, entropy {numbers.get('sampled_entropy', math.nan):.3f}"
    )


def verdict(history: Sequence[Mapping[str, Any]], part: GrpoStage) -> Stop | None:
    """Whether training must end after the steps logged so far (cases C04, C07). A resumed run decides the same.

    Raises:
        FailPartition: ``all_rollouts_truncated``, where not a single step so far had an attempt that was not cut: then
            nothing was learned but to be shorter, and a checkpoint would look like a result.
    """
    steps = [entry for entry in history if "zero_variance" in entry and "clipped" in entry]
    clipped = [float(entry["clipped"]) >= part.clipped_limit for entry in steps]
    still = [float(entry["zero_variance"]) >= part.zero_variance_limit for entry in steps]
    if part.clipped_action == "stop" and _lasting(clipped, part.clipped_patience):
        if all(clipped):
            raise FailPartition(
                f"{CLIPPED}: {steps[-1]['clipped']:.0%} of the attempts of each of the first {len(steps)} steps were "
                "cut by a limit, so nothing can be learned from their outcomes; raise context.reply_tokens, "
                "context.max_length or stages.dr_grpo.limits, or start from a better parent"
            )
        return Stop(CLIPPED, int(steps[-1]["step"]))
    if part.zero_variance_action == "stop" and _lasting(still, part.zero_variance_patience):
        return Stop(ZERO_VARIANCE, int(steps[-1]["step"]))
    return None


def warnings(history: Sequence[Mapping[str, Any]], part: GrpoStage) -> dict[str, int]:
    """In how many steps each limit was reached, whatever the recipe does about it."""
    return {
        CLIPPED: sum(float(entry.get("clipped", 0.0)) >= part.clipped_limit for entry in history),
        ZERO_VARIANCE: sum(float(entry.get("zero_variance", 0.0)) >= part.zero_variance_limit for entry in history),
    }


def _lasting(marks: Sequence[bool], patience: int) -> bool:
    return len(marks) >= patience and all(marks[-patience:])
