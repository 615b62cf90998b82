"""pass@k against enumeration, against the case of the public bug reports, and where nothing can be said."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.evaluation.pass_at_k import mean_pass_at_k, pass_at_k

special = pytest.importorskip("scipy.special", reason="scipy is a development dependency")
COUNTS = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


def test_case_c12_fewer_attempts_than_k_is_missing_and_never_one(shared: Path) -> None:
    """The usual formula returns 1.0 there, so a crashed evaluation looked perfect (openai/human-eval#68)."""
    case = json.loads((shared / "cases/C12.json").read_text())
    assert [[one["n"], one["c"], one["k"]] for one in case["expect"]["cases"]] == case["input"]
    for one in case["expect"]["cases"]:
        assert pass_at_k(one["n"], one["c"], one["k"]) == one["value"]


def test_case_c12_short_problems_are_counted_beside_the_mean() -> None:
    assert mean_pass_at_k([(4, 0), (8, 0), (8, 8), (0, 0)], 8) == (0.5, 2, 2)
    assert mean_pass_at_k([(4, 4)], 8) == (None, 0, 1)
    assert mean_pass_at_k([], 1) == (None, 0, 0)


@pytest.mark.parametrize("n", range(1, 8))
def test_it_is_the_share_of_draws_with_a_success(n: int) -> None:
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        attempts = [True] * c + [False] * (n - c)
        draws = list(itertools.combinations(attempts, k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-15)


def test_large_numbers_against_scipy() -> None:
    for n, c, k in ((200, 3, 8), (1000, 17, 100), (5000, 1, 2500)):
        expected = 1 - special.comb(n - c, k, exact=True) / special.comb(n, k, exact=True)
        assert pass_at_k(n, c, k) == pytest.approx(expected, rel=1e-12)


@settings(derandomize=True, deadline=None)
@given(COUNTS)
def test_one_attempt_is_the_mean_and_all_attempts_are_any(counts: tuple[int, int]) -> None:
    n, c = counts
    assert pass_at_k(n, c, 1) == c / n
    assert pass_at_k(n, c, n) == float(c > 0)


@settings(derandomize=True, deadline=None)
@given(COUNTS)
def test_it_grows_with_k_and_with_successes(counts: tuple[int, int]) -> None:
    n, c = counts
    by_k = [pass_at_k(n, c, k) or 0.0 for k in range(1, n + 1)]
    assert by_k == sorted(by_k) and all(0 <= value <= 1 for value in by_k)
    for k in (1, n // 2 or 1, n):
        by_c = [pass_at_k(n, successes, k) or 0.0 for successes in range(n + 1)]
        assert by_c == sorted(by_c) and by_c[0] == 0.0


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (-1, 0, 1)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@k needs|successes in"):
        pass_at_k(n, c, k)
