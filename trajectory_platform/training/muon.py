"""Muon for the matrices of the layers, AdamW for the rest, as one torch optimiser that a trainer can save and resume.

Muon: K. Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon). The step of a matrix is its momentum with all
singular values brought near 1 by five rounds of a quintic Newton-Schulz iteration; scaled by 0.2 * sqrt(larger side) it
has the root mean square of an AdamW step, so one learning rate and one decay serve both (Moonlight, J. Liu et al. 2025,
arXiv:2502.16982, section 2.2).

Everything is float32. ``torch.optim.Muon`` iterates in bfloat16, which is slow on a CPU without it: 17 steps in the
time of 31 of AdamW on the miniature, where this one costs a fifteenth of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from trajectory_platform.training.stage_recipes import Optimiser

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

MOMENTUM = 0.95
ROUNDS = 5
_QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's coefficients: steep at zero, so that small singular values rise fast
_SCALE = 0.2  # root mean square of a usual AdamW step
_EPSILON = 1e-8

_State = dict[str, Any]


def orthogonalised(matrices: Tensor) -> Tensor:
    """Matrices ``(n, rows, columns)`` with their singular vectors kept and the singular values brought to 0.7 to 1.2.

    A value below about a thousandth of the largest stays smaller: five rounds do not lift it all the way.
    """
    first, third, fifth = _QUINTIC
    tall = matrices.shape[-2] > matrices.shape[-1]
    found = matrices.mT if tall else matrices
    found = found / (found.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ROUNDS):
        square = found @ found.mT
        found = first * found + (third * square + fifth * square @ square) @ found
    return found.mT if tall else found


def muon(
    groups: Iterable[dict[str, Any]],
    *,
    lr: float,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    momentum: float = MOMENTUM,
) -> Optimizer:
    """An optimiser that takes Muon's steps in the groups with ``muon: True`` and AdamW's in the others.

    Args:
        groups: dicts with ``params``, ``muon`` and what differs from the defaults below.
        lr, weight_decay: of both kinds; the decay is decoupled.
        betas: of AdamW; ``momentum``: of Muon (Nesterov's form).

    Raises:
        ValueError: a group of Muon holds something that is no matrix.
    """
    import torch

    class Muon(torch.optim.Optimizer):
        """See :func:`muon`. Its whole state is in ``state_dict``."""

        @torch.no_grad()
        def step(self, closure: Callable[[], float] | None = None) -> float | None:
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                moving = [parameter for parameter in group["params"] if parameter.grad is not None]
                for parameter in moving:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                states = [self.state[parameter] for parameter in moving]
                (_step_matrices if group["muon"] else _step_rest)(moving, states, group)
            return loss

    defaults = {"lr": lr, "weight_decay": weight_decay, "betas": betas, "momentum": momentum, "muon": False}
    built = Muon(groups, defaults)
    for group in built.param_groups:
        if group["muon"] and any(parameter.ndim != 2 for parameter in group["params"]):
            raise ValueError("Muon takes matrices only; vectors and tensors go into a group without it")
    return built


def _step_matrices(moving: list[Tensor], states: list[_State], group: dict[str, Any]) -> None:
    """Matrices of one shape are iterated together: a tiny model has many small ones."""
    import torch

    alike: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}
    for parameter, state in zip(moving, states, strict=True):
        gradient = parameter.grad
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer = state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
        update = gradient.add(buffer, alpha=group["momentum"])
        alike.setdefault(tuple(parameter.shape), []).append((parameter, update))
    for shape, pairs in alike.items():
        directions = orthogonalised(torch.stack([update for _, update in pairs]).float())
        for (parameter, _), direction in zip(pairs, directions, strict=True):
            parameter.add_(direction.to(parameter.dtype), alpha=-group["lr"] * _SCALE * max(shape) ** 0.5)


def _step_rest(moving: list[Tensor], states: list[_State], group: dict[str, Any]) -> None:
    import torch

    first, second = group["betas"]
    for parameter, state in zip(moving, states, strict=True):
        gradient = parameter.grad
        assert gradient is not None
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        taken = float(state["step"])
        state["exp_avg"].lerp_(gradient, 1 - first)
        state["exp_avg_sq"].lerp_(gradient.square(), 1 - second)
        spread = (state["exp_avg_sq"] / (1 - second**taken)).sqrt_().add_(_EPSILON)
        parameter.addcdiv_(state["exp_avg"] / (1 - first**taken), spread, value=-group["lr"])


def build_muon(model: Any, optimiser: Optimiser) -> Optimizer:
    """The optimiser of a recipe: Muon for the two-dimensional weights inside the layers, AdamW for embeddings and
    output layer, and for norms and biases (these without decay, as the trainers' own AdamW has it)."""
    matrices, tables, vectors = [], [], []
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    embeddings = {id(part.weight) for part in ends if part is not None}
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in embeddings:
            tables.append(parameter)
        elif parameter.ndim == 2:
            matrices.append(parameter)
        else:
            vectors.append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": matrices, "muon": True, "lr": optimiser.muon_learning_rate or optimiser.learning_rate},
        {"params": tables},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return muon(
        [group for group in groups if group["params"]],
        lr=optimiser.learning_rate,
        weight_decay=optimiser.weight_decay,
        betas=(0.9, optimiser.beta2),
    )
