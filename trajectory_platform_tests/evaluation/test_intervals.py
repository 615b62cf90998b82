"""Intervals over leak clusters: against published values, scipy and a plain bootstrap; honest at the edges."""

from __future__ import annotations

import random

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.evaluation import intervals
from trajectory_platform.evaluation.intervals import (
    average_interval,
    cluster_interval,
    cluster_totals,
    resampled_totals,
    unseen_bound,
    unseen_share,
    wilson,
)

stats = pytest.importorskip("scipy.stats", reason="scipy is a development dependency")


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (38, 100, 0.2909, 0.4779)],
)
def test_wilson_against_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == pytest.approx((low, high), abs=5e-4)


@pytest.mark.parametrize("n", [1, 2, 7, 75, 900])
def test_wilson_against_scipy(n: int) -> None:
    for successes in {0, 1, n // 3, n - 1, n}:
        expected = stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
        assert wilson(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_no_interval_without_observations() -> None:
    assert wilson(0, 0) is None
    assert cluster_interval([], seed=0, resamples=200) is None


def test_one_cluster_says_nothing_about_others() -> None:
    assert cluster_interval([("a", True), ("a", False)] * 50, seed=0, resamples=200) is None


def test_the_drawn_totals_are_those_of_clusters_drawn_one_by_one() -> None:
    totals = numpy.random.default_rng(3).random((37, 4))
    drawn = numpy.random.default_rng(11).integers(0, 37, size=(200, 37))
    expected = totals[drawn].sum(axis=1)
    assert resampled_totals(totals, seed=11, resamples=200) == pytest.approx(expected, rel=1e-12)


def test_the_size_of_a_chunk_plays_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = numpy.random.default_rng(3).random((101, 3))
    whole = resampled_totals(totals, seed=5, resamples=300)
    monkeypatch.setattr(intervals, "_CELLS", 1000)
    assert resampled_totals(totals, seed=5, resamples=300) == pytest.approx(whole, rel=1e-12)


def test_the_interval_of_single_turns_is_that_of_scipys_percentile_bootstrap() -> None:
    values = [(f"c{number}", number % 3 == 0) for number in range(240)]
    own = cluster_interval(values, seed=1, resamples=4000)
    data = numpy.array([float(hit) for _, hit in values])
    other = stats.bootstrap(
        (data,), numpy.mean, n_resamples=4000, method="percentile", rng=numpy.random.default_rng(2)
    ).confidence_interval
    assert own is not None and own["method"] == "cluster_bootstrap" and own["note"] is None
    assert (own["low"], own["high"]) == pytest.approx((other.low, other.high), abs=0.01)


def test_whole_clusters_are_drawn_so_alike_turns_widen_the_interval() -> None:
    alike = [(f"c{number // 20}", (number // 20) % 2 == 0) for number in range(400)]
    apart = [(f"c{number}", number % 2 == 0) for number in range(400)]
    wide, narrow = (cluster_interval(values, seed=1, resamples=1000) for values in (alike, apart))
    assert wide is not None and narrow is not None
    assert wide["high"] - wide["low"] > 3 * (narrow["high"] - narrow["low"])
    assert (narrow["low"], narrow["high"]) == pytest.approx(wilson(200, 400), abs=0.02)


def test_the_interval_does_not_depend_on_the_order_of_rows_but_on_the_seed() -> None:
    values = [(f"c{number % 31 % 17}", number * number % 11 < 4) for number in range(300)]
    shuffled = values[:]
    random.Random(5).shuffle(shuffled)
    first = cluster_interval(values, seed=2, resamples=300)
    assert first == cluster_interval(shuffled, seed=2, resamples=300)
    assert first != cluster_interval(values, seed=3, resamples=300)


@pytest.mark.parametrize("clusters", [2, 10, 75, 600])
def test_no_success_at_all_still_leaves_room_for_some(clusters: int) -> None:
    """The bound is the exact one: were the true share at its end, seeing none of n would have 2.5 % chance."""
    found = cluster_interval([(f"c{number}", False) for number in range(clusters)] * 3, seed=0, resamples=200)
    exact = stats.binomtest(0, clusters).proportion_ci(0.95, method="exact").high
    assert found is not None and found["method"] == "unseen_cluster_bound" and "no width" in found["note"]
    assert (found["low"], found["high"]) == (0.0, pytest.approx(exact, rel=1e-9))
    assert exact > 3 / clusters or clusters < 4  # never below the rule of three


def test_only_successes_mirror_no_success() -> None:
    hits, misses = (
        cluster_interval([(f"c{number}", hit) for number in range(40)], seed=0, resamples=200) for hit in (True, False)
    )
    assert hits is not None and misses is not None
    assert (hits["low"], hits["high"]) == (pytest.approx(1 - misses["high"]), 1.0)


def test_clusters_that_all_show_one_half_are_no_proof_of_one_half() -> None:
    values = [(f"c{number}", hit) for number in range(20) for hit in (True, False)]
    found = cluster_interval(values, seed=0, resamples=200)
    assert found is not None and found["method"] == "unseen_cluster_bound"
    assert found["low"] < 0.45 and found["high"] > 0.55


def test_the_bound_of_a_difference_reaches_both_ways() -> None:
    low, high = unseen_bound(0.0, 50, (-1.0, 1.0))
    assert low == -high == pytest.approx(-unseen_share(50))
    assert unseen_bound(1.0, 50, (-1.0, 1.0)) == (pytest.approx(1 - 2 * unseen_share(50)), pytest.approx(1.0))


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """600 evaluations of 60 clusters of three like problems; a bootstrap of 60 clusters covers a little below 95 %."""
    random_state = numpy.random.default_rng(7)
    inside = 0
    for trial in range(600):
        chances = random_state.beta(2, 3, size=60)  # mean 0.4
        hits = random_state.random((60, 3)) < chances[:, None]
        values = [(f"c{cluster}", bool(hit)) for cluster in range(60) for hit in hits[cluster]]
        found = cluster_interval(values, seed=trial, resamples=400)
        assert found is not None
        inside += found["low"] <= 0.4 <= found["high"]
    assert 0.91 <= inside / 600 <= 0.975


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), min_size=1, max_size=60))
def test_the_interval_contains_the_share_and_stays_within_zero_and_one(values: list[tuple[str, bool]]) -> None:
    found = cluster_interval(values, seed=0, resamples=100)
    if len({cluster for cluster, _ in values}) < 2:
        assert found is None
        return
    share = sum(hit for _, hit in values) / len(values)
    assert found is not None
    assert 0 <= found["low"] <= share + 1e-12 and share - 1e-12 <= found["high"] <= 1


def test_totals_are_per_cluster_in_sorted_order() -> None:
    names, totals = cluster_totals(["b", "a", "b"], numpy.array([[1.0, 1.0], [2.0, 1.0], [4.0, 1.0]]))
    assert names == ["a", "b"] and totals.tolist() == [[2.0, 1.0], [5.0, 2.0]]


def test_the_average_of_bounds_is_cautious() -> None:
    bounds = [{"low": 0.0, "high": 0.2}, {"low": 0.5, "high": 1.0}]
    assert average_interval(bounds)["low"] == 0.25 and average_interval(bounds)["high"] == pytest.approx(0.6)
