"""Blame falls on the turns that earned it, and on no others."""

from __future__ import annotations

from typing import Any

import pytest

from trajectory_platform.curation import uses
from trajectory_platform.training.turn_faults import FAULTS, Judged, blamed_turns, judged_of, own_faults, read_turns
from trajectory_platform_tests.training import judged_traces as made
from trajectory_platform_tests.training import shopping

GOOD = [made.search(), made.view(), made.recommend(), made.end()]


def own(steps: list[made.Step]) -> list[tuple[str, ...]]:
    return own_faults(read_turns(made.dialogue(steps)), shopping.TOOLS)


def blamed(steps: list[made.Step], **extra: Any) -> dict[int, tuple[str, ...]]:
    return blamed_turns(made.dialogue(steps), shopping.TOOLS, judged_of(extra))


def test_a_good_trace_has_no_faulty_turn() -> None:
    assert own(GOOD) == [()] * 4
    assert own_faults(read_turns(shopping.messages(3)), shopping.TOOLS) == [()] * len(read_turns(shopping.messages(3)))


@pytest.mark.parametrize(
    ("name", "steps", "turn", "fault"),
    [
        ("hallucinated", [made.search(), made.recommend(made.NEVER), made.end()], 1, "hallucinated_id"),
        ("never opened", [made.search(), made.recommend(), made.end()], 1, "unviewed_id"),
        ("opens an unseen id", [made.search(), made.view(made.NEVER), *GOOD[1:]], 1, "unseen_id"),
        ("repeats itself", [made.search(), made.search(), *GOOD[1:]], 1, "repeated_call"),
        ("price in words", [made.search(price="cheap"), *GOOD[1:]], 0, "ineffective_price"),
        ("unknown service", [made.search(service="gift"), *GOOD[1:]], 0, "ineffective_service"),
        ("no such order", [made.search(sort="best"), *GOOD[1:]], 0, "ineffective_sort"),
        ("recommends twice", [*GOOD[:3], made.recommend(made.OTHER), made.end()], 3, "several_recommends"),
        ("after the end", [*GOOD, made.view(made.OTHER)], 4, "steps_after_terminate"),
        ("recommends after the end", [made.search(), made.view(), made.end(), made.recommend()], 3, "recommend_after"),
        ("names nothing", [*GOOD[:2], made.recommend(""), made.end()], 2, "empty_recommend"),
        ("ids with quotes", [*GOOD[:2], made.recommend('"3001"'), made.end()], 2, "ids_not_plain"),
        ("never ends", GOOD[:2], 1, "no_terminate"),
        ("an invented tool", [("x", "buy_now", {"a": 1}, {"error": "no"}), *GOOD], 0, "unknown_tool"),
        ("a refused call", [("x", "find_product", {"q": 1}, {"error": "q must be text"}), *GOOD], 0, "failed_call"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_fault_is_found_at_its_turn(name: str, steps: list[made.Step], turn: int, fault: str) -> None:
    found = own(steps)
    assert any(one.startswith(fault) for one in found[turn]), found
    assert all(one in FAULTS for faults in found for one in faults)
    assert not any(one.startswith(fault) for at, faults in enumerate(found) for one in faults if at != turn)


def test_a_turn_without_a_call_is_faulty() -> None:
    messages = made.dialogue(GOOD)
    messages.insert(1, {"role": "assistant", "content": "Hello!"})
    assert own_faults(read_turns(messages), shopping.TOOLS)[0] == ("no_call",)


def test_a_result_that_says_not_found_is_no_refused_call() -> None:
    answer = {"match": False, "mismatches": ["color"], "error": "Product not found"}
    steps = [made.search(), ("3001 costs 120.5.", "find_product", {"q": "lamp"}, answer), *GOOD[1:]]
    assert own(steps)[1] == ()


def test_a_well_reasoned_failure_keeps_its_good_early_turns() -> None:
    steps = [made.search(), made.view(), made.view(made.OTHER), made.recommend(), made.end()]
    assert blamed(steps, situation=uses.FAILURE, outcome_success=False) == {3: ("wrong_end",)}


def test_where_one_product_was_opened_the_choice_was_made_there() -> None:
    assert blamed(GOOD, situation=uses.FAILURE, outcome_success=False) == {1: ("wrong_choice",), 2: ("wrong_end",)}


def test_giving_up_is_the_wrong_end_of_a_failure() -> None:
    assert blamed([made.search(), made.view(), made.end("failure")], situation=uses.FAILURE) == {2: ("wrong_end",)}


def test_a_failure_that_was_cut_off_is_blamed_for_its_loops_not_for_its_last_search() -> None:
    found = blamed([made.search(), made.search(), made.search(page=2)], situation=uses.FAILURE)
    assert found[1] == ("repeated_call",) and found[2] == ("no_terminate",) and 0 not in found


def test_a_right_choice_is_not_to_blame_for_the_end_that_is_missing_after_it() -> None:
    """The same turn is desirable in every trace in which the end follows it."""
    assert own(GOOD[:3]) == [()] * 3
    assert blamed(GOOD[:3], situation=uses.UNDISCIPLINED, outcome_success=True, discipline=["no_terminate"]) == {}
    failed = blamed([GOOD[0], made.view(made.OTHER), *GOOD[1:3]], situation=uses.FAILURE, outcome_success=False)
    assert failed == {3: ("wrong_end",)}
    again = blamed([*GOOD[:3], made.recommend()], situation=uses.UNDISCIPLINED, outcome_success=True)
    assert set(again) == {3} and {"several_recommends", "no_terminate"} <= set(again[3])


def test_to_try_a_call_again_that_was_not_answered_is_no_repetition() -> None:
    thought, name, arguments, _ = made.search()
    refused = (thought, name, arguments, {"error": "the search service timed out"})
    assert own([refused, made.search(), *GOOD[1:]])[:2] == [("failed_call",), ()]
    assert set(own([made.search(), refused, *GOOD[1:]])[1]) == {"failed_call", "repeated_call"}


def test_a_lucky_shortcut_is_undesirable_where_it_took_it() -> None:
    steps = [made.search(), made.recommend(), made.end()]
    assert blamed(steps, situation=uses.UNDISCIPLINED, outcome_success=True, flags=["unviewed_id"]) == {
        1: ("unviewed_id",)
    }


def test_below_the_gate_the_ungrounded_moves_are_blamed() -> None:
    steps = [made.search(), made.view(thought="The first one."), made.recommend(thought="Take it."), made.end()]
    found = blamed(steps, situation=uses.BELOW_GATE, outcome_success=True)
    assert found == {1: ("ungrounded",), 2: ("ungrounded",)}
    steps[1] = made.view()
    assert blamed(steps, situation=uses.BELOW_GATE, outcome_success=True) == {2: ("ungrounded",)}


def test_a_thought_before_the_first_result_cannot_be_grounded_and_is_not_blamed() -> None:
    assert 0 not in blamed([made.search(thought=""), *GOOD[1:]], situation=uses.BELOW_GATE)


def test_where_nothing_is_known_the_decisive_turn_is_blamed() -> None:
    assert blamed(GOOD, situation=uses.BELOW_GATE) == {2: ("decisive",)}
    assert blamed(GOOD) == {2: ("decisive",)}
    assert blamed(GOOD[:2] + [made.end()]) == {2: ("decisive",)}


def test_an_id_the_catalogue_does_not_have_is_hallucinated_though_a_text_showed_it() -> None:
    found = blamed(GOOD, situation=uses.UNSEEN_ID, outcome_success=True, hallucinated_ids=[made.SEEN])
    assert found == {2: ("hallucinated_id",)}


def test_bad_format_is_blamed_on_the_turns_that_are_not_well_formed() -> None:
    found = blamed([made.search(thought=""), *GOOD[1:]], situation=uses.UNDISCIPLINED, flags=["format_below_gate"])
    assert found == {0: ("format_below_gate",)}


def test_the_outcome_is_read_strictly() -> None:
    assert judged_of({"outcome_success": "false"}) == Judged()
    assert judged_of({"outcome_success": False}).success is False
    assert judged_of({"flags": None, "hallucinated_ids": None}) == Judged()


def test_no_turns_no_blame() -> None:
    assert blamed_turns([{"role": "user", "content": "x"}], [], Judged()) == {}


@pytest.mark.parametrize("value", [None, 1, [], "{cut", {"product_ids": None}, {"product_ids": [3001, "3002"]}])
def test_odd_arguments_never_raise(value: Any) -> None:
    messages = made.dialogue(GOOD)
    for message in messages:
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = value if isinstance(value, str) else str(value)
    assert blamed_turns(messages, shopping.TOOLS, Judged(situation=uses.FAILURE, success=False))
