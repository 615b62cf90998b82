"""Days above the request budget: who is asked for, and that the choice is accounted for and repeatable."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.sources.sampling import MIN_PLACES, allocate, choose, places
from trajectory_platform.sources.wanted import Row


def row(miner: str, number: int, rank: int = 0, state: str = "wanted") -> Row:
    return Row(
        eval_run_id=f"run-{miner}-{number}",
        problem_id=f"p{number}",
        day="2026-05-01",
        agent_version_id="v",
        miner=miner,
        race_id=None,
        rank=rank,
        state=state,
        reason=None,
        until=None,
        tries=0,
        first_try=None,
        sha256=None,
        size=None,
        stratum=None,
        probability=None,
    )


def taken_by_miner(rows: list[Row], count: int, history: dict[str, float] | None = None) -> Counter[str]:
    choice = choose(rows, count=count, key="k", axis_history=history)
    return Counter(key[0].split("-")[1] for key, (taken, _, _) in choice.pairs.items() if taken)


@given(
    sizes=st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(1, 50), max_size=8),
    count=st.integers(0, 300),
    data=st.data(),
)
def test_every_place_is_given_and_none_twice(sizes: dict[str, int], count: int, data: st.DataObject) -> None:
    weights = {name: data.draw(st.floats(0.005, 1.0)) for name in sizes}
    taken = allocate(sizes, weights, {name: min(3, size) for name, size in sizes.items()}, count)
    assert sum(taken.values()) == min(count, sum(sizes.values()))
    assert all(0 <= taken[name] <= sizes[name] for name in sizes)
    assert taken == allocate(dict(reversed(sizes.items())), weights, dict.fromkeys(sizes, 3), count)


def test_miners_with_a_history_of_axis_a_come_first_unknown_ones_are_explored_none_is_forgotten() -> None:
    rows = [row(miner, number) for miner in ("good", "bad", "new") for number in range(100)]
    taken = taken_by_miner(rows, 90, {"good": 1.0, "bad": 0.0})
    assert taken["good"] > taken["new"] > taken["bad"] >= MIN_PLACES
    assert taken.total() == 90


def test_further_copies_and_unused_runs_come_last() -> None:
    rows = [row("m", number, rank) for rank in (0, 1, 2) for number in range(rank * 100, rank * 100 + 100)]
    choice = choose(rows, count=100, key="k")
    by_kind = Counter(stratum.split(":")[1] for taken, stratum, _ in choice.pairs.values() if taken)
    assert by_kind["usable"] > 70 > by_kind["copy"] > by_kind["unused"]


def test_the_choice_depends_on_key_and_pairs_alone_and_only_grows_with_the_budget() -> None:
    rows = [row(miner, number) for miner in ("a", "b") for number in range(40)]

    def chosen(count: int, key: str = "k", order: int = 1) -> set[tuple[str, str]]:
        found = choose(rows[::order], count=count, key=key).pairs
        return {name for name, (taken, _, _) in found.items() if taken}

    assert chosen(20) == chosen(20, order=-1)
    assert chosen(20) != chosen(20, key="other")
    assert chosen(20) < chosen(40) < chosen(80)


def test_probabilities_weigh_the_sample_back_to_the_day() -> None:
    rows = [row(miner, number) for miner in ("a", "b", "c") for number in range(50)]
    choice = choose(rows, count=60, key="k", axis_history={"a": 1.0, "b": 0.3})
    assert len(choice.pairs) == len(rows)  # what is left out is recorded as well
    weighed: Counter[str] = Counter()
    for taken, stratum, probability in choice.pairs.values():
        assert 0 < probability <= 1
        if taken:
            weighed[stratum] += round(1 / probability * 1e6)
    assert all(abs(total / 1e6 - 50) < 0.01 for total in weighed.values())


def test_what_was_fetched_stays_chosen() -> None:
    rows = [row("a", number, state="fetched" if number >= 35 else "wanted") for number in range(40)]
    choice = choose(rows, count=10, key="k")
    assert all(choice.pairs[(one.eval_run_id, one.problem_id)][0] for one in rows if one.state == "fetched")
    assert sum(taken for taken, _, _ in choice.pairs.values()) == 10


def test_places_leave_room_for_links_that_are_asked_for_again() -> None:
    assert places(1000, 100) == 810
    assert places(50, 100) == 0
