"""Training from scratch on prepared token rows: the base model of a miniature, not a stage of a recipe.

A plain loop instead of a trainer: rows come from a generator and are used once, nothing is resumed, and the loss is
computed at the trained places alone, which saves a third of the time where most of a row is given.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pydantic import Field

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import Report
from trajectory_platform.training.datasets import IGNORED
from trajectory_platform.training.stage_recipes import Optimiser, Part

LOGGED = 10  # lines of progress in a run
_GROUP = 8  # batches sorted by length together: less padding


class Pretraining(Part):
    """How long and how a new model is trained; the number of steps is fixed, whatever a step takes."""

    steps: int = Field(600, ge=1)
    batch: int = Field(16, ge=1)
    optimiser: Optimiser = Optimiser(kind="muon", learning_rate=0.012, muon_learning_rate=0.004, weight_decay=0.0)
    decay_share: float = Field(0.3, gt=0, le=1, description="last share of the steps, over which the rate falls to 0")


class Row(NamedTuple):
    """Token ids and labels of equal length (``-100`` = given, not trained)."""

    input_ids: list[int]
    labels: list[int]


def use_threads(threads: int) -> None:
    """Torch computes with this many threads in this process."""
    import torch

    torch.set_num_threads(threads)


def pretrain(model: Any, rows: Iterator[Row], plan: Pretraining, *, pad: int, report: Report) -> dict[str, Any]:
    """Train ``model`` in place on the first ``steps * batch`` rows.

    Tokens that are in no row get new random embeddings at the end: see :func:`_renew_unseen`.

    Returns:
        ``steps``, ``tokens`` (padding included), ``unseen_tokens`` of the vocabulary, ``last_loss`` (mean of the last
        tenth), ``seconds``, ``cpu_seconds``.

    Raises:
        FailPartition: too few rows, or a loss that is no number.
    """
    import torch

    from trajectory_platform.training.muon import build_muon

    optimiser = build_muon(model, plan.optimiser)
    peaks = [group["lr"] for group in optimiser.param_groups]
    started, cpu = time.perf_counter(), time.process_time()
    losses: list[float] = []
    seen: set[int] = set()
    tokens = 0
    window = max(1, plan.steps // LOGGED)
    model.train()
    for step, batch in enumerate(_batches(rows, plan), 1):
        rate = _rate(step, plan)
        for group, peak in zip(optimiser.param_groups, peaks, strict=True):
            group["lr"] = peak * rate
        ids, labels = _padded(batch, pad)
        loss = _loss(model, ids, labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), plan.optimiser.max_grad_norm)
        optimiser.step()
        losses.append(float(loss.detach()))
        seen.update(*(row.input_ids for row in batch))
        tokens += ids.numel()
        if losses[-1] != losses[-1]:
            raise FailPartition(f"the loss of step {step} is no number")
        if step % window == 0:
            report(f"step {step}/{plan.steps} loss {sum(losses[-window:]) / window:.3f}")
    if len(losses) < plan.steps:
        raise FailPartition(f"rows for {len(losses)} of {plan.steps} steps")
    return {
        "steps": len(losses),
        "tokens": tokens,
        "unseen_tokens": _renew_unseen(model, seen),
        "last_loss": round(sum(losses[-window:]) / len(losses[-window:]), 4),
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def _rate(step: int, plan: Pretraining) -> float:
    """The share of the peak rate at a step: a short rise, level, then a straight fall."""
    rise = max(1, round(plan.optimiser.warmup_share * plan.steps))
    fall = max(1, round(plan.decay_share * plan.steps))
    return min(1.0, step / rise, (plan.steps - step + 1) / fall)


def _batches(rows: Iterator[Row], plan: Pretraining) -> Iterator[list[Row]]:
    left = plan.steps
    while left:
        count = min(_GROUP, left)
        group = sorted(islice(rows, count * plan.batch), key=lambda row: len(row.input_ids))
        # neighbours in length share a batch; every other batch from the other end, so that no group rises in length
        batches = [group[at : at + plan.batch] for at in range(0, len(group), plan.batch)]
        batches = batches[::2] + batches[1::2][::-1]
        yield from (batch for batch in batches if len(batch) == plan.batch)
        if len(group) < count * plan.batch:
            return
        left -= count


def _padded(batch: Sequence[Row], pad: int) -> tuple[Any, Any]:
    import torch

    width = max(len(row.input_ids) for row in batch)
    ids = torch.full((len(batch), width), pad)
    labels = torch.full((len(batch), width), IGNORED)
    for place, row in enumerate(batch):
        ids[place, : len(row.input_ids)] = torch.tensor(row.input_ids)
        labels[place, : len(row.labels)] = torch.tensor(row.labels)
    return ids, labels


def _renew_unseen(model: Any, seen: set[int]) -> int:
    """Draw the embeddings of tokens without a row anew, spread as the trained ones are; returns how many.

    All that training did to them was to push them away from every answer, in one direction: with tied embeddings they
    end up as one and the same vector (cosine 0.999), and later training would first have to tell them apart.
    """
    import torch

    table = model.get_input_embeddings().weight
    unseen = torch.tensor([token for token in range(table.shape[0]) if token not in seen], dtype=torch.long)
    with torch.no_grad():
        spread = table[torch.tensor(sorted(seen), dtype=torch.long)].std()
        drawn = torch.randn(len(unseen), table.shape[1], generator=torch.Generator().manual_seed(0))
        table[unseen] = drawn * spread
    return len(unseen)


def _loss(model: Any, ids: Any, labels: Any) -> Any:
    """Mean over the trained tokens of all rows; padding is at the right, where causal attention never looks."""
    import torch

    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    wanted = labels[:, 1:]
    trained = wanted != IGNORED
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[trained]).float(), wanted[trained])
