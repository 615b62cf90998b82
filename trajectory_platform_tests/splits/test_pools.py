"""Pools: shares, secrecy and strictness of the draw."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest

from trajectory_platform.identity import sha256_hex
from trajectory_platform.settings import HoldOut
from trajectory_platform.splits.pools import (
    Shares,
    draw,
    observed_shares,
    rotations,
    shares_lines,
    strictest,
    suite_first_days,
)
from trajectory_platform_tests.splits.rows import clusters, link, links, on_days, pool_of, public

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


def test_a_new_suite_is_sealed_from_its_first_day_and_released_after_the_time() -> None:
    problems = on_days(
        ("2026-05-01", [public("a", "text one", ["1"], suite="v1")]),
        ("2026-05-04", [public("b", "text two", ["2"], suite="v2")]),
        ("2026-05-09", [public("b", "text two", ["2"], suite="v2")]),
    )
    pools = {}
    for day in (date(2026, 5, number) for number in range(1, 12)):
        held = rotations(suite_first_days([problems], day), 3)
        pools[day.day] = pool_of(clusters(problems, day=day, hold_outs=held, shares=(100, 0, 0)))
    sealed = {name: [day for day, found in pools.items() if found.get(name) == "sealed"] for name in "ab"}
    assert sealed == {"a": [1, 2, 3], "b": [4, 5, 6]}
    assert pools[7] == {"a": "train", "b": "train"}


def test_a_new_suite_holds_the_older_variants_of_its_problems_too() -> None:
    problems = on_days(
        ("2026-05-01", [public("old", "text one", ["1"], suite="v1")]),
        ("2026-05-08", [public("new", "other words", ["1"], suite="v2")]),
    )
    day = date(2026, 5, 8)
    held = rotations(suite_first_days([problems], day), 3)
    assert pool_of(clusters(problems, day=day, hold_outs=held, shares=(100, 0, 0))) == {
        "old": "sealed",
        "new": "sealed",
    }


def test_a_rotation_looks_at_nothing_after_the_day() -> None:
    problems = on_days(("2026-05-03", [public("a", "text", ["1"], suite="v1")]), ("2026-05-01", []))
    traces = links(link("a", suite_id="v1", day="2026-05-02"), link("x", suite_id=None))
    assert suite_first_days([problems, traces], date(2026, 5, 9)) == {"v1": "2026-05-02"}
    assert suite_first_days([problems], date(2026, 5, 2)) == {}
    assert rotations({"v1": "2026-05-02"}, 0) == []


def test_the_observed_shares_tell_problems_and_clusters_per_category() -> None:
    problems = on_days(
        (
            "2026-05-01",
            [
                public("a", "text one", ["1"], category="product"),
                public("b", "text two", ["1"], category="shop"),
                public("c", "text three", ["3"], category="shop"),
            ],
        )
    )
    held = [HoldOut(since=date(2026, 5, 1), problem_id="a")]
    observed = observed_shares(clusters(problems, hold_outs=held, shares=(100, 0, 0)).clusters)
    assert observed["all"]["sealed"] == {"problems": 2, "share": 0.6667, "clusters": 1}
    assert observed["shop"]["train"] == {"problems": 1, "share": 0.5, "clusters": 1}
    assert observed["product"]["dev"] == {"problems": 0, "share": 0.0, "clusters": 0}
    for pools in observed.values():
        assert sum(pool["share"] for pool in pools.values()) == pytest.approx(1, abs=0.001)
    lines = shares_lines(observed, Shares(80, 10, 10))
    assert [line.split()[0] for line in lines] == ["problems", "all", "product", "shop"]
    assert "66.7%" in lines[1]
