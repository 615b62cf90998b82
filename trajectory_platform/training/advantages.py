"""Advantages of Dr. GRPO per turn and per attempt, over the attempts of all processes.

Liu et al. 2025 (arXiv:2503.20783): a reward minus the mean of its group; no division by the group's deviation, and no
division of the loss by the length of an attempt (case C06). Per turn: the reward of turn *t* minus the mean of turn
*t* over those attempts of the group that have one.

All functions take the attempts of *all* processes in their global order, in which the attempts of a group stand
together; a group may be spread over processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from trajectory_platform.errors import FailPartition

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-6  # rewards are sums of few terms of size 1: differences below are rounding

Mode = Literal["turn", "outcome", "both"]
Gather = Callable[["Tensor"], "Tensor"]


class Scores(NamedTuple):
    """What attempts were worth.

    Attributes:
        turns: (N, T) float, reward of every turn; NaN where there is no such turn or no reference.
        outcome: (N,) float.
        kept: (N,) bool, False for attempts that are not trained on; they take no part in a baseline.
        group: (N,) int, what the members of a group have in common and no other group has.
    """

    turns: Tensor
    outcome: Tensor
    kept: Tensor
    group: Tensor


class Advantages(NamedTuple):
    """Advantages by attempt and turn.

    Attributes:
        turns: (N, T), to be added to every token of the turn.
        whole: (N,), to be added to every token the model wrote.
        zero_variance: (N / group,) bool: groups whose advantages are all zero, from which nothing is learned (C04).
        same_outcome: (N / group,) bool: groups in which all outcomes are equal.
    """

    turns: Tensor
    whole: Tensor
    zero_variance: Tensor
    same_outcome: Tensor


def gathered(local: Scores, gather: Gather) -> Scores:
    """The scores of all processes, in the order of their ranks.

    Args:
        gather: concatenates equally shaped tensors of all processes along the first dimension.
    """
    import torch

    own = torch.tensor([local.turns.shape[1]], device=local.turns.device)
    width = int(gather(own).max())
    turns = local.turns.new_full((local.turns.shape[0], width), float("nan"))
    turns[:, : local.turns.shape[1]] = local.turns
    kept = gather(local.kept.to(torch.int64)).bool()
    return Scores(gather(turns), gather(local.outcome), kept, gather(local.group))


def group_advantages(
    scores: Scores, *, size: int, mode: Mode, turn_weight: float = 1.0, outcome_weight: float = 1.0
) -> Advantages:
    """Group-relative advantages.

    Args:
        size: attempts in a group.
        mode: ``turn`` and ``outcome`` take one term, ``both`` their weighted sum. Where a problem has no reference
            there are no turn rewards, and its outcome counts in every mode.

    Raises:
        FailPartition: the attempts are not in whole groups (``group_split``): a baseline over other problems would be
            wrong without any sign of it.
    """
    import torch

    groups = scores.group.view(-1, size) if scores.group.numel() % size == 0 else None
    if groups is None or bool((groups != groups[:, :1]).any()):
        raise FailPartition("group_split: the attempts of one problem do not stand together; nothing was trained")
    kept = scores.kept.view(-1, size)
    known = scores.turns.view(*groups.shape, -1).masked_fill(~kept[:, :, None], float("nan"))
    by_turn = torch.nan_to_num(known - known.nanmean(dim=1, keepdim=True), nan=0.0)
    outcome = scores.outcome.view_as(groups).masked_fill(~kept, float("nan"))
    whole = torch.nan_to_num(outcome - outcome.nanmean(dim=1, keepdim=True), nan=0.0)
    same = (whole.abs() < EPSILON).all(dim=1)
    grounded = (~torch.isnan(known)).flatten(1).any(dim=1)
    by_turn = by_turn * (0.0 if mode == "outcome" else turn_weight)
    silent = grounded[:, None] & (mode == "turn")
    whole = torch.where(silent, 0.0, whole * outcome_weight)
    nothing = (by_turn.abs() < EPSILON).flatten(1).all(dim=1) & (whole.abs() < EPSILON).all(dim=1)
    return Advantages(by_turn.reshape(scores.turns.shape), whole.reshape(-1), nothing, same)


def per_token(advantages: Advantages, attempt: Tensor, turns: Tensor, *, scale: float = 1.0) -> Tensor:
    """(R, L) advantages of tokens.

    Args:
        attempt: (R,) number of the attempt (in the order of ``advantages``) that each row is a part of; -1 = none.
        turns: (R, L) number of the turn each token belongs to; -1 = not the model's, which gets 0.
        scale: factor that makes up for rows that are no attempts; see ``loss_scale``.
    """
    import torch

    row = attempt.clamp(min=0)
    by_turn = advantages.turns[row]
    if by_turn.shape[1] == 0:
        by_turn = by_turn.new_zeros((by_turn.shape[0], 1))
    inside = turns.clamp(min=0, max=by_turn.shape[1] - 1)
    tokens = torch.where(turns < by_turn.shape[1], by_turn.gather(1, inside), 0.0) + advantages.whole[row][:, None]
    trained = (turns >= 0) & (attempt >= 0)[:, None]
    return torch.where(trained, tokens * scale, torch.zeros_like(tokens))


def loss_scale(rows: int, attempts: int) -> float:
    """The factor on advantages that turns a mean over rows into a mean over trained attempts.

    TRL divides by rows times a constant length. Rows of masked attempts, further segments and padding would dilute
    the rest (case C08): numerator and denominator must count the same attempts. 0 where none is left.
    """
    return rows / attempts if attempts else 0.0
