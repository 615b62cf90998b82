"""Pools: shares, secrecy and strictness of the draw."""

from __future__ import annotations

from collections import Counter

import pytest

from trajectory_platform.identity import sha256_hex
from trajectory_platform.splits.pools import Shares, draw, strictest

KEYS = [sha256_hex(str(number).encode()) for number in range(20_000)]


@pytest.mark.parametrize("shares", [Shares(80, 10, 10), Shares(50, 20, 30), Shares(100, 0, 0), Shares(0, 0, 100)])
def test_the_draw_follows_the_shares(shares: Shares) -> None:
    counts = Counter(draw("key", key, shares) for key in KEYS)
    for pool, share in shares._asdict().items():
        assert counts[pool] / len(KEYS) == pytest.approx(share / 100, abs=0.015)


def test_another_key_draws_otherwise() -> None:
    shares = Shares()
    first, second = ([draw(key, problem, shares) for problem in KEYS] for key in ("one", "two" * 40))
    assert first != second
    assert first == [draw("one", problem, shares) for problem in KEYS]


def test_a_larger_train_share_only_moves_problems_into_train() -> None:
    """The slot of a problem is fixed; shares only move the borders."""
    for key in KEYS[:2000]:
        if draw("key", key, Shares(50, 25, 25)) == "train":
            assert draw("key", key, Shares(80, 10, 10)) == "train"


def test_sealed_beats_dev_beats_train() -> None:
    assert strictest(["train", "sealed", "dev"]) == "sealed"
    assert strictest(["dev", "train"]) == "dev"
    assert strictest([]) == "train"
