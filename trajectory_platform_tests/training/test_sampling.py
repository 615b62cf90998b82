"""Which traces are seen how often, and in which order."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.errors import FailPartition
from trajectory_platform.training.sampling import Item, plan_order
from trajectory_platform.training.stage_recipes import Amount


def items(count: int, weight: float = 1.0) -> list[Item]:
    return [Item(f"t{number:03d}", weight, (50 + number * 7 % 90,)) for number in range(count)]


@given(count=st.integers(1, 60), epochs=st.integers(1, 4), seed=st.integers(0, 50), batch=st.integers(1, 9))
def test_equal_weights_give_every_trace_its_epochs(count: int, epochs: int, seed: int, batch: int) -> None:
    plan = plan_order(items(count), Amount(epochs=epochs, batch=batch), seed)
    assert plan.times == {item.trace_id: epochs for item in items(count)}
    assert Counter(plan.order) == {(trace_id, 0): epochs for trace_id in plan.times}


@given(weights=st.lists(st.floats(0.01, 1), min_size=2, max_size=40), seed=st.integers(0, 50))
def test_draws_follow_the_weights_to_within_one(weights: list[float], seed: int) -> None:
    rows = [Item(f"t{number:03d}", weight, (10,)) for number, weight in enumerate(weights)]
    plan = plan_order(rows, Amount(epochs=3), seed)
    for item in rows:
        wanted = 3 * len(rows) * item.weight / math.fsum(weights)
        assert math.floor(wanted) <= plan.times.get(item.trace_id, 0) <= math.ceil(wanted) + 1e-9


def test_uniform_sampling_ignores_the_weights() -> None:
    rows = [Item("a", 0.1, (10,)), Item("b", 0.9, (10,))]
    assert plan_order(rows, Amount(epochs=2, sampling="uniform"), 0).times == {"a": 2, "b": 2}


def test_the_token_budget_holds_and_shrinks_all_alike() -> None:
    rows = items(200)
    plan = plan_order(rows, Amount(epochs=5, token_budget=20_000), 0)
    lengths = {item.trace_id: item.lengths[0] for item in rows}
    assert 19_000 <= sum(lengths[trace_id] for trace_id, _ in plan.order) <= 21_000
    assert set(plan.times.values()) <= {1, 2}


def test_the_order_does_not_depend_on_the_order_of_rows() -> None:
    rows = items(50)
    assert plan_order(rows, Amount(), 4) == plan_order(rows[::-1], Amount(), 4)
    assert plan_order(rows, Amount(), 4) != plan_order(rows, Amount(), 5)


def test_batches_hold_rows_of_like_length() -> None:
    rows = [Item(f"t{number:03d}", 1.0, (number * 37 % 1000,)) for number in range(256)]
    order = plan_order(rows, Amount(batch=8), 0).order
    lengths = {item.trace_id: item.lengths[0] for item in rows}
    spread = [
        max(part) - min(part)
        for at in range(0, len(order), 8)
        if (part := [lengths[trace_id] for trace_id, _ in order[at : at + 8]])
    ]
    assert sum(spread) / len(spread) < 120


def test_a_long_trace_is_trained_with_all_its_contexts() -> None:
    plan = plan_order([Item("a", 1.0, (10, 12, 9)), Item("b", 1.0, (10,))], Amount(epochs=2), 0)
    assert Counter(plan.order) == {("a", 0): 2, ("a", 1): 2, ("a", 2): 2, ("b", 0): 2}
    assert plan.times == {"a": 2, "b": 2}


def test_max_steps_counts_only_what_is_left() -> None:
    plan = plan_order(items(40), Amount(batch=4, max_steps=3), 0)
    assert len(plan.order) == 12 and len(plan.times) == 12


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf, 0.0])
def test_weights_that_are_none_stop_the_run(weight: float) -> None:
    with pytest.raises(FailPartition):
        plan_order(items(3, weight), Amount(), 0)


def mixed(own: int, corpus: int) -> list[Item]:
    return [
        *(Item(f"own{number:03d}", 1.0, (20,), "generated") for number in range(own)),
        *(Item(f"corpus{number:03d}", 0.2 + number % 3, (30,)) for number in range(corpus)),
    ]


@pytest.mark.parametrize(("share", "corpus", "wanted"), [(0.5, 200, 40), (0.25, 200, 13), (0.0, 200, 0), (0.9, 50, 50)])
def test_the_corpus_gets_its_share_beside_a_stages_own_rows(share: float, corpus: int, wanted: int) -> None:
    plan = plan_order(mixed(40, corpus), Amount(), 0, corpus_share=share)
    drawn = Counter(trace_id[:3] for trace_id, times in plan.times.items() for _ in range(times))
    assert drawn["own"] == 40 and abs(drawn["cor"] - wanted) <= 1


def test_the_share_holds_under_a_token_budget() -> None:
    plan = plan_order(mixed(40, 200), Amount(epochs=4, token_budget=2_000), 0, corpus_share=0.5)
    drawn = Counter(trace_id[:3] for trace_id, times in plan.times.items() for _ in range(times))
    assert abs(drawn["own"] - drawn["cor"]) <= 2 and 36 <= drawn["own"] <= 44


@pytest.mark.parametrize("budget", [None, 1000])
def test_where_a_stage_lost_all_rows_of_its_own_nothing_is_left_to_mix_with(budget: int | None) -> None:
    corpus = [Item(f"t{number}", 1.0, (50,)) for number in range(4)]
    assert plan_order(corpus, Amount(token_budget=budget), 7, corpus_share=0.5).order == []
