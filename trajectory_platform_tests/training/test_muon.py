"""Muon: what a step does to a matrix, who gets it, and that a saved optimiser goes on where it stopped."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from trajectory_platform.training.muon import build_muon, muon, orthogonalised
from trajectory_platform.training.stage_recipes import Optimiser

RECIPE = Optimiser(kind="muon", learning_rate=0.01, muon_learning_rate=0.004, weight_decay=0.1)


class Tiny(torch.nn.Module):
    """An embedding that is the output layer too, two matrices, a norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(11, 8)
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8, bias=False)
        self.norm = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, 11, bias=False)
        self.head.weight = self.table.weight

    def get_input_embeddings(self) -> Any:
        return self.table

    def get_output_embeddings(self) -> Any:
        return self.head

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.down(self.up(self.table(ids)).relu()))
        return torch.nn.functional.cross_entropy(self.head(hidden), (ids + 1) % 11)


def steps(model: Tiny, optimiser: Any, count: int, first: int = 0) -> float:
    value = 0.0
    for number in range(first, first + count):
        ids = torch.arange(number, number + 7) % 11
        optimiser.zero_grad()
        loss = model.loss(ids)
        loss.backward()
        optimiser.step()
        value = float(loss.detach())
    return value


@pytest.mark.parametrize("shape", [(24, 24), (8, 40), (40, 8)])
def test_a_direction_keeps_the_singular_vectors_and_has_values_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    left, _, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    matrix = left @ torch.diag(torch.logspace(0, -1, min(shape))) @ right
    found = orthogonalised(matrix[None])[0]
    values = torch.linalg.svdvals(found)
    assert float(values.min()) > 0.6 and float(values.max()) < 1.25
    inside = left.T @ found @ right.T  # diagonal when the vectors are kept
    assert float((inside - torch.diag(torch.diagonal(inside))).abs().max()) < 1e-3


def test_a_step_of_a_matrix_is_as_large_as_one_of_adamw() -> None:
    torch.manual_seed(2)
    matrix = torch.nn.Parameter(torch.zeros(48, 32))
    optimiser = muon([{"params": [matrix], "muon": True}], lr=0.01)
    matrix.grad = torch.randn(48, 32) * 1e-5
    optimiser.step()
    size = float(matrix.detach().square().mean().sqrt())
    assert 0.6 * 0.2 * 0.01 < size < 1.3 * 0.2 * 0.01


def test_the_rest_takes_the_steps_of_torchs_adamw() -> None:
    torch.manual_seed(3)
    start, gradients = torch.randn(5, 3), torch.randn(4, 5, 3)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    mine = muon([{"params": [ours]}], lr=0.02, weight_decay=0.1, betas=(0.9, 0.98))
    reference = torch.optim.AdamW([theirs], lr=0.02, weight_decay=0.1, betas=(0.9, 0.98))
    for gradient in gradients:
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        reference.step()
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_muon_takes_the_matrices_of_the_layers_and_nothing_else() -> None:
    model = Tiny()
    optimiser = build_muon(model, RECIPE)
    groups = {name: id(part) for name, part in model.named_parameters()}
    of = {key: group for group in optimiser.param_groups for key in map(id, group["params"])}
    assert {name for name, key in groups.items() if of[key]["muon"]} == {"up.weight", "down.weight"}
    assert {of[groups["up.weight"]]["lr"], of[groups["table.weight"]]["lr"]} == {0.004, 0.01}
    assert of[groups["norm.weight"]]["weight_decay"] == 0.0 and of[groups["table.weight"]]["weight_decay"] == 0.1
    assert len(of) == len(list(model.parameters()))
    with pytest.raises(ValueError, match="matrices only"):
        muon([{"params": [model.norm.weight], "muon": True}], lr=0.1)


def test_it_learns_and_frozen_parameters_stay() -> None:
    model = Tiny()
    model.down.weight.requires_grad_(False)
    before = model.down.weight.clone()
    optimiser = build_muon(model, RECIPE)
    first = float(model.loss(torch.arange(7)).detach())
    assert steps(model, optimiser, 60) < 0.3 * first
    assert torch.equal(model.down.weight, before)


def test_a_saved_optimiser_goes_on_bitwise() -> None:
    whole = Tiny()
    optimiser = build_muon(whole, RECIPE)
    steps(whole, optimiser, 5)
    saved = copy.deepcopy((whole.state_dict(), optimiser.state_dict()))
    steps(whole, optimiser, 5, first=5)
    resumed = Tiny()
    other = build_muon(resumed, RECIPE)
    resumed.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    steps(resumed, other, 5, first=5)
    for one, two in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, two)
