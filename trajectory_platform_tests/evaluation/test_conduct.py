"""The conduct score: each part is earned by acting well, lost by its own fault alone, and doing nothing earns none."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from trajectory_platform.evaluation.conduct import PARTS, assess, conduct_score
from trajectory_platform_tests.evaluation.score_rows import conversation

ROWS = [
    {"product_id": "111", "shop_id": "71", "title": "Red steel kettle 1.7 litres", "price": 431.5},
    {"product_id": "222", "shop_id": "72", "title": "Blue enamel kettle 2 litres", "price": 388.0},
]
PAGE = [{"product_id": "111", "attributes": {"material": ["steel"]}, "sku_options": {}}]
SEARCH = ("find_product", {"q": "red kettle"}, ROWS)
REFINED = ("find_product", {"q": "red steel kettle", "price": "0-500"}, ROWS[:1])
VIEW = ("view_product_information", {"product_ids": "111"}, PAGE)
RECOMMEND = ("recommend_product", {"product_ids": "111"}, "Recommended 111")
TERMINATE = ("terminate", {"status": "success"}, "Done")
THOUGHT = "111 costs 431.5, below the limit, and is steel"

Turns = list[dict[str, Any]]


def good() -> Turns:
    return [
        {"think": "search first", "calls": [SEARCH]},
        {"think": "two results, narrower", "calls": [REFINED]},
        {"think": "look at 111", "calls": [VIEW]},
        {"think": THOUGHT, "calls": [RECOMMEND, TERMINATE]},
    ]


def parts(turns: Turns, **more: Any) -> dict[str, float]:
    return assess(conversation(*turns), **more).parts


def without(turns: Turns) -> dict[str, float]:
    """Parts that are not fully earned."""
    return {name: value for name, value in parts(turns).items() if value != 1.0}


def test_a_careful_attempt_earns_every_part() -> None:
    found = assess(conversation(*good()))
    assert found.score == 1.0 and list(found.parts) == list(PARTS) and len(PARTS) == 8


@pytest.mark.parametrize("turns", [[], [{"think": "hm"}], [{"think": "111 costs 431.5"}]])
def test_doing_nothing_earns_nothing(turns: Turns) -> None:
    assert conduct_score(conversation(*turns)) == 0.0


def test_the_score_is_the_mean_of_its_parts() -> None:
    turns = good()[:1] + good()[3:]
    found = assess(conversation(*turns))
    assert found.score == pytest.approx(sum(found.parts.values()) / 8)
    assert conduct_score(conversation(*turns)) == found.score


def test_each_fault_costs_its_own_part_only() -> None:
    turns = good()
    assert without([turns[0], turns[1], turns[3]]) == {"verified": 0.0}
    assert without([*turns[:3], {"think": THOUGHT, "calls": [RECOMMEND]}]) == {"disciplined": 0.0}
    blind = [{**turn, "think": "searching on"} for turn in turns]
    assert without(blind) == {"grounded": 0.0}
    silent = ("find_product", {"q": "kettle", "price": "above:10"}, ROWS)
    assert without([turns[0], {"calls": [silent]}, *turns[1:]]) == {"effective_filters": pytest.approx(2 / 3)}
    assert without([turns[0], turns[0], *turns[1:]]) == {"no_repeats": pytest.approx(5 / 6)}


def test_an_id_that_no_result_showed_is_neither_known_nor_verified() -> None:
    invented = ("recommend_product", {"product_ids": "111,999"}, "Recommended 999")
    turns = [*good()[:3], {"think": THOUGHT, "calls": [invented, TERMINATE]}]
    assert without(turns) == {"verified": 0.5, "known_ids": 0.5}


def test_a_page_opened_after_or_beside_the_recommendation_verified_nothing() -> None:
    beside = [*good()[:2], {"think": THOUGHT, "calls": [VIEW, RECOMMEND]}, {"calls": [TERMINATE]}]
    after = [*good()[:2], {"think": THOUGHT, "calls": [RECOMMEND]}, {"calls": [VIEW]}, {"calls": [TERMINATE]}]
    for turns in (beside, after):
        assert (parts(turns)["verified"], parts(turns)["known_ids"]) == (0.0, 1.0)


def test_recommending_before_any_search_is_blind() -> None:
    turns = [{"calls": [RECOMMEND]}, {"calls": [SEARCH]}, {"calls": [TERMINATE]}]
    found = parts(turns)
    assert (found["searched"], found["known_ids"], found["verified"]) == (0.0, 0.0, 0.0)


def test_refining_is_asked_for_only_where_the_first_search_did_not_suffice() -> None:
    once = [good()[0], *good()[2:]]
    assert parts(once)["refined"] == 1.0  # 111 was in the first result
    elsewhere = ("find_product", {"q": "kettle"}, ROWS[1:])
    assert parts([{"calls": [elsewhere]}, *good()[2:]])["refined"] == 0.0
    paged = ("find_product", {"q": "kettle", "page": 2}, ROWS[:1])
    assert parts([{"calls": [elsewhere]}, {"calls": [paged]}, *good()[2:]])["refined"] == 1.0
    same_time = [{"calls": [elsewhere, ("find_product", {"q": "pot"}, [])]}, *good()[2:]]
    assert parts(same_time)["refined"] == 0.0  # nothing had been seen before the second search


def test_the_last_recommendation_is_the_one_that_counts() -> None:
    first = ("recommend_product", {"product_ids": "222"}, "ok")
    turns = [*good()[:2], {"calls": [first]}, *good()[2:]]
    assert without(turns) == {"disciplined": 0.0}


def test_the_strict_reading_can_be_given() -> None:
    listed = ("recommend_product", {"product_ids": ["111"]}, "ok")
    turns = [*good()[:3], {"think": THOUGHT, "calls": [listed, TERMINATE]}]
    assert without(turns) == {}
    strict = parts(turns, recommended=[])  # the scorer reads no id from a list
    assert (strict["verified"], strict["known_ids"], strict["disciplined"]) == (0.0, 0.0, 0.0)


def test_results_belong_to_the_call_with_their_id_in_whatever_order_they_come() -> None:
    turns = [*good()[:1], {"think": "both", "calls": [REFINED, VIEW]}, good()[3]]
    messages = conversation(*turns)
    position = next(place for place, message in enumerate(messages) if message.get("name") == VIEW[0])
    swapped = messages[:]
    swapped[position - 1], swapped[position] = swapped[position], swapped[position - 1]
    assert assess(swapped) == assess(messages)


@pytest.mark.parametrize(
    "damage",
    [
        {"arguments": '{"q": "kett'},
        {"arguments": "[1, 2]"},
        {"arguments": "null"},
        {"arguments": ""},
        {"name": "open_door"},
    ],
)
def test_broken_calls_are_read_without_raising(damage: dict[str, str]) -> None:
    messages = conversation(*good())
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"].update(damage)
    assert 0.0 <= conduct_score(messages) < 1.0
    assert 0.0 <= conduct_score([message for message in messages if message["role"] != "tool"]) < 1.0
    assert 0.0 <= conduct_score([message for message in messages if message["role"] != "assistant"]) == 0.0


def test_the_messages_are_left_as_they_are() -> None:
    messages = conversation(*good())
    before = copy.deepcopy(messages)
    assess(messages)
    assert messages == before


def test_it_is_fast_enough_for_a_day() -> None:
    messages = conversation(*good())
    started = time.process_time()
    for _ in range(200):
        conduct_score(messages)
    assert (time.process_time() - started) / 200 < 0.001  # about 0.1 ms on the development machine
