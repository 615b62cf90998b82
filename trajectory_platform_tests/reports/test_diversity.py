"""Strategies: the effective number means what it says, the tail is told whole, the figures follow."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.reports.diversity import tail_of, tails_by
from trajectory_platform.reports.figure_svg import svg
from trajectory_platform.reports.page import Figures
from trajectory_platform.reports.strategy_figures import diversity_figure, rank_size_figure
from trajectory_platform.reports.strategy_section import ALL, StrategyFacts, strategy_section
from trajectory_platform_tests.reports.sample import HOSTILE

COUNTS = st.dictionaries(st.text(min_size=1, max_size=4), st.integers(0, 500), max_size=40)


@pytest.mark.parametrize("ways", [1, 2, 7, 400])
def test_equal_shares_are_as_diverse_as_their_number(ways: int) -> None:
    assert tail_of({str(number): 3 for number in range(ways)}).effective == pytest.approx(ways)


@given(COUNTS)
def test_the_effective_number_lies_between_one_and_the_strategies(counts: dict[str, int]) -> None:
    tail = tail_of(counts)
    assert tail.traces == sum(counts.values()) == sum(tail.sizes)
    assert tail.strategies == sum(count > 0 for count in counts.values())
    if tail.traces:
        assert 1 - 1e-9 <= tail.effective <= tail.strategies + 1e-9
        assert 0 < tail.top_1 <= tail.top_10 <= 1 + 1e-12
        assert tail.singleton_traces == pytest.approx(tail.singletons / tail.traces)
    else:
        assert tail.effective == 0


def test_a_dominant_strategy_leaves_little_diversity() -> None:
    tail = tail_of({"copied": 97, "a": 1, "b": 1, "c": 1})
    entropy = -(0.97 * math.log(0.97) + 3 * 0.01 * math.log(0.01))
    assert tail.effective == pytest.approx(math.exp(entropy)) and tail.effective < 1.2
    assert (tail.top_1, tail.singletons, tail.singleton_traces) == (0.97, 3, 0.03)


def test_groups_are_told_largest_first() -> None:
    rows = [{"miner": miner, "strategy_cluster": way} for miner, way in ("ax", "ay", "bx", "by", "bz", "cx")]
    assert {name: tail.strategies for name, tail in tails_by(rows, "miner").items()} == {"b": 3, "a": 2, "c": 1}


@given(COUNTS.filter(lambda counts: sum(counts.values()) > 0), st.integers(2, 50))
def test_the_line_falls_and_reaches_the_last_strategy(counts: dict[str, int], points: int) -> None:
    tail = tail_of(counts)
    line = rank_size_figure({ALL: tail}, points=points)["data"][0]
    assert line["x"][0] == 1 and line["x"][-1] == tail.strategies and len(line["x"]) <= points + 1
    assert line["x"] == sorted(set(line["x"]))
    assert line["y"] == sorted(line["y"], reverse=True) == [tail.sizes[rank - 1] for rank in line["x"]]


def test_the_figures_are_drawn_as_static_pictures_too() -> None:
    tails = {ALL: tail_of({"a": 900, "b": 30, "c": 1}), HOSTILE: tail_of({"a": 3})}
    days = {"2026-05-02": (3, 1.2), "2026-05-03": (4, 2.0)}
    for figure in (rank_size_figure(tails), diversity_figure(days)):
        assert "<script" not in svg(figure, title="t")


def test_the_section_tells_the_tail_and_what_copies_cost() -> None:
    facts = StrategyFacts(
        tails={ALL: tail_of({"a": 8, "b": 1, "c": 1}), HOSTILE: tail_of({"a": 8})},
        miners={HOSTILE: tail_of({"a": 8})},
        largest=[{"strategy": "a", "outline": HOSTILE, "before": 9, "after": 8}],
        before=(4, 14),
        removed=[{"stage": "copies", "reason": "exact_copy", "count": 4, "meaning": "m"}],
        between_days={"cross_day_copy": 2},
        window="2026-05-04",
    )
    html = strategy_section(facts, Figures())
    assert "10 accepted traces use 3 strategies, as diverse as 1.9 of equal size" in html
    assert "2 strategies (20.0% of the traces) were seen once" in html
    assert "14 traces of 4 strategies; after them 10 of 3" in html and "cross_day_copy 2" in html
    assert "<script" not in html


def test_nothing_accepted_is_words() -> None:
    assert "no trace was accepted" in strategy_section(StrategyFacts(tails={ALL: tail_of({})}), Figures())
