"""How often each trace is seen and in which order: a pure function of ids, weights, lengths and the seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.identity import sha256_hex
from trajectory_platform.training.recipe import Recipe

GROUP = 16  # batches sorted by length together: less padding, order still random


class Item(NamedTuple):
    """A trace to draw: its id, sampling weight and the tokens of each of its contexts."""

    trace_id: str
    weight: float
    lengths: tuple[int, ...]


class Plan(NamedTuple):
    """``order``: (trace_id, context number) in the order of training; ``times``: how often each trace was drawn."""

    order: list[tuple[str, int]]
    times: dict[str, int]


def plan_order(items: Sequence[Item], recipe: Recipe, seed: int) -> Plan:
    """Draw traces in proportion to their weight (systematic sampling) and lay them out in batches of like length.

    Equal weights and whole epochs give every trace exactly ``epochs`` draws. ``token_budget`` scales all expected
    draws down together; ``max_steps`` cuts the order, and ``times`` counts only what is left.

    Raises:
        FailPartition: a weight is negative or no number, or all are zero.
    """
    draws = _draws(items, recipe, seed)
    lengths = {item.trace_id: item.lengths for item in items}
    slots = [
        (copy, sha256_hex(f"{seed}:{copy}:{trace_id}:{number}".encode()), trace_id, number)
        for trace_id, times in draws.items()
        for copy in range(times)
        for number in range(len(lengths[trace_id]))
    ]
    flat = [(trace_id, number) for _, _, trace_id, number in sorted(slots)]
    order = _by_length(flat, lengths, recipe.batch, seed)
    if recipe.max_steps is not None:
        order = order[: recipe.max_steps * recipe.batch]
    times: dict[str, int] = {}
    for trace_id, number in order:
        if number == 0:
            times[trace_id] = times.get(trace_id, 0) + 1
    for trace_id, _ in order:  # a cut order may hold a later context of a trace without its first
        times.setdefault(trace_id, 1)
    return Plan(order, dict(sorted(times.items())))


def _draws(items: Sequence[Item], recipe: Recipe, seed: int) -> dict[str, int]:
    for item in items:
        if not math.isfinite(item.weight) or item.weight < 0:
            raise FailPartition(f"trace {item.trace_id} has sampling weight {item.weight}")
    weights = {item.trace_id: 1.0 if recipe.sampling == "uniform" else item.weight for item in items}
    total = math.fsum(weights.values())
    if total <= 0:
        raise FailPartition("all sampling weights are zero")
    per_weight = recipe.epochs * len(items) / total
    if recipe.token_budget is not None:
        tokens = math.fsum(weights[item.trace_id] * per_weight * sum(item.lengths) for item in items)
        per_weight *= min(1.0, recipe.token_budget / tokens)
    keyed = sorted(items, key=lambda item: sha256_hex(f"{seed}:draw:{item.trace_id}".encode()))
    offset = int(sha256_hex(f"{seed}:offset".encode())[:12], 16) / 16**12
    draws: dict[str, int] = {}
    reached, counted = 0.0, math.floor(offset)
    for item in keyed:
        reached += weights[item.trace_id] * per_weight
        now = math.floor(round(reached + offset, 9))
        draws[item.trace_id] = now - counted
        counted = now
    return draws


def _by_length(
    flat: list[tuple[str, int]], lengths: Mapping[str, tuple[int, ...]], batch: int, seed: int
) -> list[tuple[str, int]]:
    batches: list[list[tuple[str, int]]] = []
    for begin in range(0, len(flat), batch * GROUP):
        group = sorted(flat[begin : begin + batch * GROUP], key=lambda slot: (lengths[slot[0]][slot[1]], slot))
        parts = [group[at : at + batch] for at in range(0, len(group), batch)]
        full = [part for part in parts if len(part) == batch]
        full.sort(key=lambda part: sha256_hex(f"{seed}:{begin}:{part}".encode()))
        batches += full + [part for part in parts if len(part) < batch]  # a short batch stays last in its group
    return [slot for part in batches for slot in part]
