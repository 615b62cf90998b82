"""How often each trace is seen and in which order: a pure function of ids, weights, lengths and the seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.identity import sha256_hex
from trajectory_platform.training.stage_recipes import Amount

GROUP = 16  # batches sorted by length together: less padding, order still random


class Item(NamedTuple):
    """A trace to draw: its id, sampling weight, the tokens of each of its contexts and what it is to the stage."""

    trace_id: str
    weight: float
    lengths: tuple[int, ...]
    role: str = "train"


class Plan(NamedTuple):
    """``order``: (trace_id, context number) in the order of training; ``times``: how often each trace was drawn."""

    order: list[tuple[str, int]]
    times: dict[str, int]


def plan_order(items: Sequence[Item], amount: Amount, seed: int, *, corpus_share: float | None = None) -> Plan:
    """Draw traces in proportion to their weight (systematic sampling) and lay them out in batches of like length.

    Equal weights and whole epochs give every trace exactly ``epochs`` draws. ``token_budget`` scales all expected
    draws down together; ``max_steps`` cuts the order, and ``times`` counts only what is left.

    Args:
        corpus_share: share of the draws that goes to items of the role ``train``, beside others that are drawn
            ``epochs`` times; no item of the corpus is drawn more often than that, so of a small corpus it is less.
            None draws all alike.

    Raises:
        FailPartition: a weight is negative or no number, or all are zero.
    """
    draws = _draws(items, amount, seed, corpus_share)
    lengths = {item.trace_id: item.lengths for item in items}
    slots = [
        (copy, sha256_hex(f"{seed}:{copy}:{trace_id}:{number}".encode()), trace_id, number)
        for trace_id, times in draws.items()
        for copy in range(times)
        for number in range(len(lengths[trace_id]))
    ]
    flat = [(trace_id, number) for _, _, trace_id, number in sorted(slots)]
    order = _by_length(flat, lengths, amount.batch, seed)
    if amount.max_steps is not None:
        order = order[: amount.max_steps * amount.batch]
    return Plan(order, times_of(order))


def times_of(order: Iterable[tuple[str, int]]) -> dict[str, int]:
    """How often each trace was drawn for an order of contexts, sorted by id."""
    order = list(order)
    times: dict[str, int] = {}
    for trace_id, number in order:
        if number == 0:
            times[trace_id] = times.get(trace_id, 0) + 1
    for trace_id, _ in order:  # a cut order may hold a later context of a trace without its first
        times.setdefault(trace_id, 1)
    return dict(sorted(times.items()))


def _draws(items: Sequence[Item], amount: Amount, seed: int, corpus_share: float | None) -> dict[str, int]:
    expected = _expected(items, amount, corpus_share)
    if amount.token_budget is not None:
        tokens = math.fsum(expected[item.trace_id] * sum(item.lengths) for item in items)
        scale = min(1.0, amount.token_budget / tokens) if tokens else 1.0
        expected = {trace_id: times * scale for trace_id, times in expected.items()}
    keyed = sorted(items, key=lambda item: sha256_hex(f"{seed}:draw:{item.trace_id}".encode()))
    offset = int(sha256_hex(f"{seed}:offset".encode())[:12], 16) / 16**12
    draws: dict[str, int] = {}
    for corpus in (False, True):  # apart, so that the share holds to within one draw
        reached, counted = 0.0, math.floor(offset)
        for item in keyed:
            if (item.role == "train") != corpus:
                continue
            reached += expected[item.trace_id]
            now = math.floor(round(reached + offset, 9))
            draws[item.trace_id] = now - counted
            counted = now
    return draws


def _expected(items: Sequence[Item], amount: Amount, corpus_share: float | None) -> dict[str, float]:
    """Expected draws of each item, before the token budget."""
    for item in items:
        if not math.isfinite(item.weight) or item.weight < 0:
            raise FailPartition(f"trace {item.trace_id} has sampling weight {item.weight}")
    if corpus_share is None:
        return _spread(items, amount.epochs * len(items), amount)
    own = [item for item in items if item.role != "train"]
    corpus = [item for item in items if item.role == "train"]
    mixed = len(own) * corpus_share / (1 - corpus_share)
    return {
        **_spread(own, amount.epochs * len(own), amount),
        **_spread(corpus, amount.epochs * min(mixed, len(corpus)), amount),
    }


def _spread(items: Sequence[Item], draws: float, amount: Amount) -> dict[str, float]:
    """``draws`` spread over the items in proportion to their weights."""
    weights = {item.trace_id: 1.0 if amount.sampling == "uniform" else item.weight for item in items}
    total = math.fsum(weights.values())
    if items and draws and total <= 0:
        raise FailPartition("all sampling weights are zero")
    return {trace_id: weight * (draws / total) if total else 0.0 for trace_id, weight in weights.items()}


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
