"""Pools: a problem draws by keyed hash, a cluster takes the strictest of its members (design 3, "Pools").

A pure, monotone function of the problems and edges up to a day: nothing here looks at use, at other days' results or
at the order in which days were filled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from trajectory_platform.settings import HoldOut


STRICTNESS = ("train", "dev", "sealed")  # loosest first


class Shares(NamedTuple):
    """Percentages that add up to 100."""

    train: int = 80
    dev: int = 10
    sealed: int = 10


def draw(pool_key: str, problem_key: str, shares: Shares) -> str:
    """The pool a problem draws alone: keyed BLAKE2b of its key, modulo 100.

    The key keeps outsiders from choosing a wording that lands in the pool they want.
    """
    secret = pool_key.encode()
    if len(secret) > hashlib.blake2b.MAX_KEY_SIZE:
        secret = hashlib.blake2b(secret).digest()
    digest = hashlib.blake2b(problem_key.encode(), key=secret, digest_size=8, person=b"leak-pool").digest()
    slot = int.from_bytes(digest, "big") % 100
    if slot < shares.train:
        return "train"
    return "dev" if slot < shares.train + shares.dev else "sealed"


def strictest(pools: Iterable[str]) -> str:
    """The strictest of some pools; ``train`` for none."""
    return max(pools, key=STRICTNESS.index, default="train")


def active(hold_outs: Sequence[HoldOut], day: date) -> list[HoldOut]:
    """Entries in force on a day: ``since <= day < until``; ``until`` is the release."""
    return [entry for entry in hold_outs if entry.since <= day and (entry.until is None or day < entry.until)]


def held_pools(hold_outs: Sequence[HoldOut], problem_key: str, bindings: Iterable[tuple[str | None, str]]) -> list[str]:
    """Pools of the entries that name a problem; every field an entry gives must fit one binding."""
    pairs = list(bindings)
    return [
        entry.pool
        for entry in hold_outs
        if entry.problem_key in (None, problem_key)
        and any(entry.suite_id in (None, suite) and entry.problem_id in (None, problem) for suite, problem in pairs)
    ]
