"""Which turn examples are drawn, how often, and in which order: every micro-batch holds both classes.

A batch of one class estimates the KL term from that class alone and leaves the other side of the loss empty (case
C01); the trainer takes rows as they lie, so the order is made here. A pure function of ids, weights, lengths, seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.identity import sha256_hex
from trajectory_platform.training.stage_recipes import Amount
from trajectory_platform.training.turn_examples import TurnExample

GROUP = 16  # micro-batches sorted by length together: less padding, order still random


class TurnPlan(NamedTuple):
    """What is trained.

    Attributes:
        batches: positions of examples, one list per micro-batch of one device; each holds both classes.
        counts: drawn examples (desirable, undesirable).
    """

    batches: list[list[int]]
    counts: tuple[int, int]

    @property
    def order(self) -> list[int]:
        """Positions in the order of training."""
        return [position for batch in self.batches for position in batch]


def plan_turns(examples: Sequence[TurnExample], amount: Amount, seed: int, *, micro_batch: int) -> TurnPlan:
    """Draw examples class by class and lay them out.

    ``amount.epochs`` times all examples, less what ``token_budget`` and ``max_steps`` take away and what does not fill
    an optimiser step. The classes keep their share, but each has a row in every micro-batch; where the rarer class
    has too few for that, fewer rows of the other are drawn, the rarer is not repeated beyond the epochs.

    Raises:
        FailPartition: ``micro_batch_too_small``, ``one_class``, or weights that are no numbers or all zero.
    """
    if micro_batch < 2:
        raise FailPartition("micro_batch_too_small: KTO needs at least 2 rows per device and pass (case C01)")
    sides = [[at for at, one in enumerate(examples) if one.label is label] for label in (True, False)]
    if not all(sides):
        raise FailPartition(f"one_class: {len(sides[0])} desirable and {len(sides[1])} undesirable turns")
    passes, size = _passes(examples, sides, amount, micro_batch)
    total = passes * size
    first = min(max(round(total * len(sides[0]) / len(examples)), passes), total - passes)
    drawn = [
        _drawn(examples, side, times, amount, seed) for side, times in zip(sides, (first, total - first), strict=True)
    ]
    return TurnPlan(_batches(examples, drawn, passes, size, seed), (first, total - first))


def _passes(
    examples: Sequence[TurnExample], sides: Sequence[list[int]], amount: Amount, micro_batch: int
) -> tuple[int, int]:
    """(micro-batches in the run, rows in each)."""
    size = min(micro_batch, len(examples))
    rows = amount.epochs * len(examples)
    if amount.token_budget is not None:
        tokens = amount.epochs * math.fsum(example.tokens for example in examples)
        rows *= min(1.0, amount.token_budget / tokens)
    if amount.max_steps is not None:
        rows = min(rows, amount.max_steps * amount.batch)
    rarer = min(map(len, sides))
    passes = max(1, min(int(rows + 1e-9) // size, int(amount.epochs * rarer + 1e-9)))
    each = max(1, amount.batch // micro_batch)
    return (passes // each * each if passes >= each else passes), size


def _drawn(examples: Sequence[TurnExample], side: Sequence[int], times: int, amount: Amount, seed: int) -> list[int]:
    """``times`` positions, in proportion to the weights (systematic sampling), every copy before the next."""
    weights = [1.0 if amount.sampling == "uniform" else examples[at].weight for at in side]
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or math.fsum(weights) <= 0:
        raise FailPartition("sampling weights of turns must be numbers from 0 upwards and not all zero")
    keyed = sorted(
        zip(side, weights, strict=True), key=lambda pair: sha256_hex(f"{seed}:draw:{examples[pair[0]].key}".encode())
    )
    offset = int(sha256_hex(f"{seed}:offset".encode())[:12], 16) / 16**12
    scale = times / math.fsum(weights)
    slots: list[tuple[int, str, int]] = []
    reached, counted = 0.0, 0
    for at, weight in keyed:
        reached += weight * scale
        now = min(math.floor(round(reached + offset, 9)), times)
        for copy in range(now - counted):
            slots.append((copy, sha256_hex(f"{seed}:{copy}:{examples[at].key}".encode()), at))
        counted = now
    if counted < times:  # rounding at the end of the row of weights
        slots.append((0, "", keyed[-1][0]))
    return [at for _, _, at in sorted(slots)]


def _batches(
    examples: Sequence[TurnExample], drawn: Sequence[Sequence[int]], passes: int, size: int, seed: int
) -> list[list[int]]:
    """Both classes dealt evenly to the micro-batches; rows of like length together within ``GROUP`` of them."""
    edges = [number * len(drawn[0]) // passes for number in range(passes + 1)]
    batches: list[list[int]] = []
    for begin in range(0, passes, GROUP):
        end = min(begin + GROUP, passes)
        places = (slice(edges[begin], edges[end]), slice(begin * size - edges[begin], end * size - edges[end]))
        first, second = (
            sorted(side[place], key=lambda at: (examples[at].tokens, at))
            for side, place in zip(drawn, places, strict=True)
        )
        group = []
        for number in range(begin, end):
            share = edges[number + 1] - edges[number]
            group.append([*first[:share], *second[: size - share]])
            first, second = first[share:], second[size - share :]
        group = [
            sorted(batch, key=lambda at: sha256_hex(f"{seed}:row:{begin}:{examples[at].key}".encode()))
            for batch in group
        ]
        batches += sorted(group, key=lambda batch: sha256_hex(f"{seed}:{begin}:{batch}".encode()))
    return batches
