"""The dense turn reward: the teacher's path earns most, every detour and every trick earns less."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.errors import RejectRow
from trajectory_platform.evaluation.turn_rewards import (
    COSTS,
    GAINS,
    Reference,
    best_reference,
    faults,
    left_no_message,
    process_score,
    references_from_rows,
    turn_rewards,
)
from trajectory_platform_tests.evaluation.score_rows import conversation

Call = tuple[str, dict[str, Any], Any]
Turns = list[list[Call]]

KETTLE = {"product_id": "111", "shop_id": "71", "title": "red steel kettle", "price": 431}
ENAMEL = {"product_id": "222", "shop_id": "72", "title": "blue enamel kettle", "price": 388}
BOWL = {"product_id": "333", "shop_id": "71", "title": "steel bowl", "price": 90}


def search(q: str, rows: list[Any], **more: Any) -> Call:
    return ("find_product", {"q": q, **more}, rows)


def view(ids: str) -> Call:
    known = {"111", "222", "333"}
    return ("view_product_information", {"product_ids": ids}, [{"product_id": i} for i in ids.split(",") if i in known])


def recommend(ids: str) -> Call:
    return ("recommend_product", {"product_ids": ids}, f"Having recommended the products to the user: {ids}.")


END: Call = ("terminate", {"status": "success"}, "The interaction has been completed with status: success")
WIDE = search("kettle", [ENAMEL, BOWL])
NARROW = search("red steel kettle", [ENAMEL, KETTLE], price="-500")
TEACHER: Turns = [[WIDE], [NARROW], [view("111")], [recommend("111")], [END]]


def messages(turns: Turns) -> list[dict[str, Any]]:
    return conversation(*({"think": "so", "calls": calls} for calls in turns))


REFERENCE = Reference("key", "run:teacher", messages(TEACHER))


def score(turns: Turns, **more: Any) -> float:
    found = process_score(messages(turns), REFERENCE, **more)
    assert found is not None
    return found


def parts(turns: Turns) -> list[dict[str, float]]:
    return [one.parts for one in turn_rewards(messages(turns), REFERENCE)]


def test_the_teachers_own_path_earns_everything() -> None:
    rewards = turn_rewards(REFERENCE.messages, REFERENCE)
    assert [one.total for one in rewards] == pytest.approx([1.0] * 5)
    assert score(TEACHER) == pytest.approx(1.0) and faults(REFERENCE) == 0
    assert {name for one in rewards for name in one.parts} == set(GAINS)


def test_without_a_reference_there_is_no_process_score() -> None:
    assert process_score(REFERENCE.messages, None) is None


def test_the_same_calls_in_other_turns_are_the_same_path() -> None:
    assert score([[WIDE], [NARROW], [view("111")], [recommend("111"), END]]) == pytest.approx(1.0)


def test_a_shorter_path_that_shows_and_opens_the_product_is_as_good() -> None:
    assert score([[NARROW], [view("111")], [recommend("111"), END]]) == pytest.approx(1.0)


TRICKS: dict[str, Turns] = {
    "repeats the search": [[WIDE], [WIDE], [NARROW], [view("111")], [recommend("111")], [END]],
    "repeats the search forever": [[NARROW]] * 25,
    "searches with ever new words": [[search(f"kettle {n}", [BOWL])] for n in range(25)],
    "pages forever": [[search("red steel kettle", [BOWL], price="-500", page=n + 1)] for n in range(5)],
    "recommends early": [[WIDE], [NARROW], [recommend("111")], [END]],
    "recommends at once": [[recommend("111")], [END]],
    "opens everything": [[WIDE], [NARROW], [view("222")], [view("333")], [view("111")], [recommend("111")], [END]],
    "opens everything at once": [[NARROW], [view("222"), view("333"), view("111")], [recommend("111")], [END]],
    "opens a list of everything": [[WIDE], [NARROW], [view("111,222,333")], [recommend("111")], [END]],
    "says it twice": [[WIDE], [NARROW], [view("111")], [recommend("111")], [recommend("111")], [END]],
    "recommends several things": [[WIDE], [NARROW], [view("111")], [recommend("222")], [recommend("111")], [END]],
    "copies backwards": [[END], [recommend("111")], [view("111")], [NARROW], [WIDE]],
    "looks before it searches": [[view("111")], [WIDE], [NARROW], [recommend("111")], [END]],
    "only begins": [[WIDE]],
    "never ends": [[WIDE], [NARROW], [view("111")], [recommend("111")]],
    "ends with nothing": [[WIDE], [END]],
    "talks": [[WIDE], [], [NARROW], [view("111")], [recommend("111")], [END]],
    "chooses the other one": [[WIDE], [NARROW], [view("222")], [recommend("222")], [END]],
    "makes an id up": [[WIDE], [NARROW], [view("111")], [recommend("999")], [END]],
    "goes on after the end": [[NARROW], [view("111")], [recommend("111"), END], [WIDE]],
    "names a tool that is none": [
        [WIDE],
        [NARROW],
        [("buy", {}, {"error": "unknown tool"})],
        [recommend("111")],
        [END],
    ],
    "sets a filter that does nothing": [
        [search("red steel kettle", [ENAMEL, KETTLE], price="about 500")],
        [view("111")],
        [recommend("111"), END],
    ],
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_earns_less_than_the_straight_path(trick: str) -> None:
    assert score(TRICKS[trick]) < score(TEACHER) - 0.03


@pytest.mark.parametrize("kept", range(len(TEACHER) - 1))
def test_ending_at_once_returns_less_than_going_on(kept: int) -> None:
    """With the rewards of later turns counted in (``GrpoStage.discount`` 1), giving up never pays."""
    begun = TEACHER[:kept]
    stopped = sum(one.gain for one in turn_rewards(messages([*begun, [END]]), REFERENCE)[kept:])
    stumbled = sum(one.gain for one in turn_rewards(messages([*begun, [], *TEACHER[kept:]]), REFERENCE)[kept:])
    straight = sum(one.gain for one in turn_rewards(REFERENCE.messages, REFERENCE)[kept:])
    assert stopped < stumbled < straight


def test_what_goes_on_for_ever_is_worth_less_than_nothing() -> None:
    assert score(TRICKS["repeats the search forever"]) < -0.3
    assert score(TRICKS["searches with ever new words"]) < -0.2


@pytest.mark.parametrize(
    ("trick", "turn", "cost"),
    [
        ("makes an id up", 3, "hallucinated"),
        ("recommends at once", 0, "hallucinated"),
        ("recommends early", 2, "early"),
        ("ends with nothing", 1, "early"),
        ("repeats the search", 1, "repeat"),
        ("opens everything", 3, "surplus"),
        ("recommends several things", 4, "surplus"),
        ("talks", 1, "no_call"),
        ("names a tool that is none", 2, "invalid"),
        ("sets a filter that does nothing", 0, "ignored_filter"),
        ("never ends", 3, "unfinished"),
    ],
)
def test_a_fault_is_named_at_its_turn(trick: str, turn: int, cost: str) -> None:
    assert parts(TRICKS[trick])[turn][cost] < 0


def test_an_id_the_user_named_is_no_invention() -> None:
    asked = [{"role": "user", "content": "is 111 red?"}, *messages([[view("111")], [recommend("111"), END]])[1:]]
    assert all("hallucinated" not in one.parts for one in turn_rewards(asked, REFERENCE))


def test_an_id_from_a_result_of_the_same_turn_was_not_known_when_it_was_written() -> None:
    assert parts([[NARROW, view("111")], [recommend("111"), END]])[0]["hallucinated"] == -COSTS["hallucinated"]


def test_what_is_done_better_later_earns_the_difference_only() -> None:
    poor, good = search("kettle steel", [BOWL]), NARROW
    first, second = turn_rewards(messages([[poor], [good], [view("111")], [recommend("111"), END]]), REFERENCE)[:2]
    assert 0 < first.total < 1 and second.total > 0
    assert first.total + second.total <= 2.0


def test_a_reply_that_left_no_message_is_a_turn_of_its_own() -> None:
    begun = messages([[WIDE]])
    assert left_no_message(begun, "reply_truncated") and not left_no_message(begun, "step_limit")
    assert not left_no_message(messages([[WIDE], []]), "malformed_reply")
    whole, last = turn_rewards(begun, REFERENCE, lost_reply=True)
    assert whole.total == pytest.approx(1.0) and last.total == -1.0
    assert score([], lost_reply=True) == -1.0 and score([]) == 0.0


# ------------------------------------------------------------------------------------------- properties

POOL = [
    WIDE,
    NARROW,
    search("kettle", [ENAMEL, BOWL], page=2),
    search("steel", [KETTLE]),
    search("red", [], price="x"),
    view("111"),
    view("222,111"),
    view("999"),
    recommend("111"),
    recommend("222"),
    recommend("111,222"),
    END,
    ("check_product_match", {"product_id": "111", "requirements": '{"color": "red"}'}, {"matched": True}),
    ("find_product", "kettle", {"error": "arguments must be an object, not str"}),
]
TURNS = st.lists(st.lists(st.sampled_from(range(len(POOL))), max_size=4), max_size=8)


def chosen(numbers: list[list[int]]) -> Turns:
    return [[POOL[number] for number in turn] for turn in numbers]


@settings(max_examples=300)
@given(TURNS)
def test_no_sequence_beats_the_teacher(numbers: list[list[int]]) -> None:
    rewards = turn_rewards(messages(chosen(numbers)), REFERENCE)
    assert len(rewards) == len(numbers) and all(-1.0 <= one.total <= 1.0 for one in rewards)
    assert score(chosen(numbers)) <= score(TEACHER) + 1e-9
    earned = sum(value for one in rewards for value in one.parts.values() if value > 0)
    assert earned <= len(REFERENCE.messages) and earned <= sum(map(len, TEACHER)) + 1e-9


@settings(max_examples=150)
@given(TURNS, TURNS)
def test_no_sequence_beats_any_teacher_by_more_than_the_teachers_own_faults(
    taught: list[list[int]], acted: list[list[int]]
) -> None:
    teacher = Reference("key", "t", messages(chosen(taught)))
    own, other = process_score(teacher.messages, teacher), process_score(messages(chosen(acted)), teacher)
    assert own is not None and other is not None
    if taught:  # a faulty turn loses 2 at most (from 1 to -1), one without a fault loses nothing
        assert other - own <= 2 * faults(teacher) / len(taught) + 1e-9


@settings(max_examples=100)
@given(st.integers(0, 5), st.sampled_from(range(len(POOL))))
def test_a_call_more_than_the_straight_path_is_never_free(place: int, extra: int) -> None:
    assert score([*TEACHER[:place], [POOL[extra]], *TEACHER[place:]]) < score(TEACHER)


def test_scores_do_not_depend_on_ids_of_calls_and_leave_the_input_alone() -> None:
    made = messages(TEACHER)
    before = copy.deepcopy(made)
    turn_rewards(made, REFERENCE)
    assert made == before
    for message in made:
        for call in message.get("tool_calls") or []:
            call["id"] = "same"
    assert process_score(made, REFERENCE) == pytest.approx(1.0)


# ------------------------------------------------------------------------------------------- the teacher


def test_the_best_reference_has_fewest_faults_then_is_short_then_by_name() -> None:
    faulty = Reference("key", "a", messages([[WIDE], [WIDE], [NARROW], [view("111")], [recommend("111"), END]]))
    short = Reference("key", "c", messages([[NARROW], [view("111")], [recommend("111"), END]]))
    again = short._replace(trace_id="d")
    candidates = [REFERENCE, faulty, again, short]
    random.Random(3).shuffle(candidates)
    assert best_reference(candidates) == short
    assert best_reference([faulty, REFERENCE]) == REFERENCE
    assert best_reference([]) is None and best_reference([Reference("key", "e", [])]) is None


def test_references_come_from_rows_and_bad_rows_are_refused() -> None:
    rows = [{"problem_key": "key", "trace_id": "t", "messages": REFERENCE.messages, "more": 1}]
    assert references_from_rows(rows) == {"key": Reference("key", "t", REFERENCE.messages)}
    strange = [
        {"role": "assistant", "tool_calls": [call]} for call in ({"name": "find_product"}, {"function": {}}, "x")
    ]
    unread = [{**rows[0], "messages": [message]} for message in (*strange, {"role": "assistant", "tool_calls": 3})]
    for bad in ({}, {"problem_key": "key", "trace_id": 3, "messages": []}, {**rows[0], "messages": "{"}, *unread):
        with pytest.raises(RejectRow):
            references_from_rows([bad])


# ------------------------------------------------------------------------ sums over turns (what GRPO is trained by)


def returned(turns: Turns) -> float:
    return sum(one.gain for one in turn_rewards(messages(turns), REFERENCE))


STRAIGHT: Turns = [[NARROW], [view("111")], [recommend("111")], [END]]


def test_neither_more_turns_nor_the_teachers_detours_are_worth_more() -> None:
    straight = returned(STRAIGHT)
    assert straight == pytest.approx(4.0) == pytest.approx(returned(TEACHER))
    assert returned([[NARROW], [view("111")], [recommend("111"), END]]) == pytest.approx(straight)
    assert returned([[WIDE, NARROW], [view("111")], [recommend("111"), END]]) == pytest.approx(straight)
    assert returned([[NARROW, view("111")], [recommend("111")], [END]]) < straight  # an id that was not known yet


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_sums_up_to_the_straight_path(trick: str) -> None:
    assert returned(TRICKS[trick]) < returned(STRAIGHT) - 0.1


def test_a_wrong_choice_first_does_not_pay_twice() -> None:
    twice = [[NARROW], [view("111")], [recommend("222")], [recommend("111")], [END]]
    assert returned(twice) < returned(STRAIGHT)


@settings(max_examples=200)
@given(TURNS)
def test_no_sequence_sums_up_to_more_than_the_teachers(numbers: list[list[int]]) -> None:
    assert returned(chosen(numbers)) <= returned(TEACHER) + 1e-9


def test_a_look_at_a_second_candidate_that_the_teacher_took_is_free_and_not_rewarded() -> None:
    careful = Reference("key", "t", messages([[NARROW], [view("222")], [view("111")], [recommend("111")], [END]]))
    both = [sum(one.gain for one in turn_rewards(messages(turns), careful)) for turns in (STRAIGHT, TEACHER)]
    same = sum(one.gain for one in turn_rewards(careful.messages, careful))
    assert both[0] == pytest.approx(same) == pytest.approx(4.0)


def test_work_done_by_other_calls_than_the_teachers_is_no_loss_of_all_of_it() -> None:
    """One call for several products, or a tool that finds them together, is no worse an agent."""
    pair = [search("kettle", [KETTLE]), search("bowl", [BOWL], shop_id="71")]
    end = [[recommend("111,333")], [END]]
    apart = Reference("key", "t", messages([[pair[0]], [pair[1]], [view("111")], [view("333")], *end]))
    together: Call = ("find_products_in_same_shop", {"product_queries": "kettle; bowl"}, {"products": [KETTLE, BOWL]})

    def worth(turns: Turns) -> float:
        return sum(one.gain for one in turn_rewards(messages(turns), apart))

    whole = worth([[pair[0]], [pair[1]], [view("111")], [view("333")], *end])
    assert whole == pytest.approx(6.0)
    assert whole > worth([[pair[0]], [pair[1]], [view("111,333")], *end]) > whole - 0.6
    assert whole > worth([[together], [view("111,333")], *end]) > whole - 1.2
    assert worth([[together], [view("111")], *end]) < worth([[together], [view("111,333")], *end])


def test_a_second_check_that_the_teacher_made_is_not_given_away() -> None:
    """That the product was opened is one thing, that its constraint was checked another."""
    check: Call = ("check_product_match", {"product_id": "111", "requirements": '{"color": "red"}'}, {"matched": True})
    checked = Reference("key", "t", messages([[NARROW], [view("111")], [check], [recommend("111")], [END]]))
    with_it = sum(one.gain for one in turn_rewards(checked.messages, checked))
    without = sum(one.gain for one in turn_rewards(messages(STRAIGHT), checked))
    assert with_it == pytest.approx(without + 1.0)
