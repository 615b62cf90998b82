"""Side by side: turns are aligned, every call is told once, the first difference is named."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trajectory_platform.reports.trace_compare import (
    MOVED,
    ONLY,
    OTHER_ARGUMENTS,
    OTHER_TOOL,
    SAME,
    compare,
    first_difference,
    trace_page,
)
from trajectory_platform_tests.reports.trace_samples import GOOD, end, find, look, recommend, view

CASES: dict[str, tuple[list[list[Any]], list[list[str]], str]] = {
    "same": ([*GOOD], [[SAME], [SAME], [SAME, SAME]], "the same calls throughout"),
    "other arguments": (
        [[find("gray backpack", "10-20")], *GOOD[1:]],
        [[OTHER_ARGUMENTS], [SAME], [SAME, SAME]],
        "turn 1: other arguments for find_product (price 1271-2414 → 10-20)",
    ),
    "other tool": (
        [GOOD[0], [find("canvas")], GOOD[2]],
        [[SAME], [OTHER_TOOL], [SAME, SAME]],
        "turn 2: other tool (view_product_information → find_product)",
    ),
    "one more": (
        [GOOD[0], [look("4779797803"), find("canvas")], GOOD[2]],
        [[SAME], [SAME, ONLY], [SAME, SAME]],
        "turn 2: find_product only here",
    ),
    "moved": (
        [[find("gray backpack"), look("4779797803")], [recommend("4779797803"), end()]],
        [[SAME, MOVED], [MOVED, MOVED]],
        "turn 1: view_product_information as in turn 2 there",
    ),
    "left out": (
        [GOOD[0], GOOD[1], [recommend("4779797803")]],
        [[SAME], [SAME], [SAME]],
        "turn 3: terminate not made here",
    ),
    "shorter": ([GOOD[0]], [[SAME]], "turn 2: view_product_information not made here"),
    "longer": (
        [*GOOD, [end()]],
        [[SAME], [SAME], [SAME, SAME], [MOVED]],
        "turn 4: terminate as in turn 3 there",
    ),
    "order within a turn": (
        [GOOD[0], GOOD[1], [end(), recommend("4779797803")]],
        [[SAME], [SAME], [SAME, SAME]],
        "the same calls throughout",
    ),
    "equal arguments written otherwise": (
        [[("find_product", {"price": "1271-2414", "q": "gray  backpack "}, [])], *GOOD[1:]],
        [[SAME], [SAME], [SAME, SAME]],
        "the same calls throughout",
    ),
}


@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "-"))
def test_calls_are_told_against_the_first_trace(case: str) -> None:
    calls, kinds, sentence = CASES[case]
    first, other = view(*GOOD), view(*calls, name="r2:p1")
    told = compare(first, other)
    assert [[one.kind for one in turn.calls] for turn in told if turn.calls] == kinds
    assert first_difference(told, other) == sentence
    assert [turn.number for turn in told] == list(range(1, max(len(first["turns"]), len(other["turns"])) + 1))


@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "-"))
def test_no_call_is_lost_or_told_twice(case: str) -> None:
    """Every call of the other trace has one comparison; those of the first are paired or absent, never both."""
    first, other = view(*GOOD), view(*CASES[case][0], name="r2:p1")
    for number, turn in enumerate(compare(first, other)):
        mine = first["turns"][number]["calls"] if number < len(first["turns"]) else []
        theirs = other["turns"][number]["calls"] if number < len(other["turns"]) else []
        assert len(turn.calls) == len(theirs)
        paired = [one.against for one in turn.calls if one.against is not None]
        used = [id(call) for call in (*paired, *turn.absent)]
        assert len(used) == len(set(used)) and set(used) <= {id(call) for call in mine}
        assert len(used) == len(mine)


def test_repeated_calls_pair_one_by_one() -> None:
    first = view([find("a"), find("a"), find("b")])
    told = compare(first, view([find("a"), find("b"), find("b")], name="r2:p1"))
    assert [one.kind for one in told[0].calls] == [SAME, SAME, OTHER_ARGUMENTS]
    assert told[0].absent == ()


def test_the_page_aligns_turns_in_columns_and_marks_differences() -> None:
    others = [
        view(*CASES[name][0], name=f"r{place}:p1") for place, name in enumerate(("other arguments", "shorter"), 2)
    ]
    page = trace_page([view(*GOOD), *others])
    assert "3 traces of one problem" in page
    assert [page.count(f'<div class="cell c{place}') for place in range(3)] == [5, 5, 5]  # head, 3 turns, end
    assert page.count("no turn 2") == page.count("no turn 3") == 1
    assert page.count("Parts from A:") == 2 and "price 1271-2414 → 10-20" in page
    assert "A calls recommend_product here" in page and "A calls terminate here" in page
    assert len(re.findall(r'<p class="call-head">', page)) == 4 + 4 + 1
    assert page.count('type="radio"') == 4 and page.count("checked") >= 1


def test_traces_of_different_problems_show_each_query() -> None:
    other = view(name="r2:p2", query="Something else")
    other["facts"] = {**other["facts"], "problem_key": "z" * 64}
    page = trace_page([view(), other])
    assert "2 traces<" in page and "Something else" in page
