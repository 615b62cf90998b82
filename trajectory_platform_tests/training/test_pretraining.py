"""Training from scratch: fixed steps, reproducible, and the loss falls on what is to be written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch

from trajectory_platform.errors import FailPartition
from trajectory_platform.training.model import build_model
from trajectory_platform.training.pretraining import Pretraining, Row, pretrain
from trajectory_platform.training.recipe import ModelSpec

PLAN = Pretraining(steps=24, batch=4)


def rows(shift: int = 0) -> Iterator[Row]:
    """A token is followed by the next one; the first four of a row are given."""
    number = shift
    while True:
        ids = [300 + (number * 7 + place) % 40 for place in range(8 + number % 5)]
        yield Row(ids, [-100] * 4 + ids[4:])
        number += 1


def trained(tokenizer: Any, source: Iterator[Row], plan: Pretraining = PLAN) -> tuple[Any, dict[str, Any], list[str]]:
    model = build_model(ModelSpec(layers=1, hidden=32, mlp=64), tokenizer, max_length=64, seed=3)
    lines: list[str] = []
    told = pretrain(model, source, plan, pad=tokenizer.pad_token_id, report=lines.append)
    return model, told, lines


def test_it_learns_in_exactly_the_steps_of_the_plan_and_repeats_exactly(tokenizer: Any) -> None:
    model, told, lines = trained(tokenizer, rows())
    assert told["steps"] == 24 and lines[-1].startswith("step 24/24") and told["tokens"] >= 24 * 4 * 8
    first = float(lines[0].split()[-1])
    assert told["last_loss"] < 0.5 * first
    again, _, _ = trained(tokenizer, rows())
    for one, two in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)


def test_what_is_given_is_not_trained(tokenizer: Any) -> None:
    def other_given() -> Iterator[Row]:
        for row in rows():
            yield Row(row.input_ids, [-100] * 4 + row.labels[4:])

    def all_trained() -> Iterator[Row]:
        for row in rows():
            yield Row(row.input_ids, list(row.input_ids))

    few = Pretraining(steps=2, batch=4)
    base, same, whole = (trained(tokenizer, source, few)[0] for source in (rows(), other_given(), all_trained()))
    pairs = list(zip(base.parameters(), same.parameters(), whole.parameters(), strict=True))
    assert all(torch.equal(one, two) for one, two, _ in pairs)
    assert not all(torch.equal(one, three) for one, _, three in pairs)


def test_tokens_without_a_row_stay_apart_from_one_another(tokenizer: Any) -> None:
    model, told, _ = trained(tokenizer, rows())
    table = torch.nn.functional.normalize(model.get_input_embeddings().weight.detach(), dim=1)
    seen = sorted({token for row in islice(rows(), 24 * 4) for token in row.input_ids})
    unseen = [token for token in range(len(tokenizer)) if token not in seen]
    assert told["unseen_tokens"] == len(unseen) > 100
    alike = table[unseen] @ table[unseen].T - torch.eye(len(unseen))
    assert float(alike.mean().abs()) < 0.05 and float(alike.max()) < 0.9


def test_too_few_rows_are_an_error_and_not_a_shorter_training(tokenizer: Any) -> None:
    with pytest.raises(FailPartition, match="of 24 steps"):
        trained(tokenizer, islice(rows(), 50))
