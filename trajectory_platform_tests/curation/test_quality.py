"""The sampling weight: domain 5.2 and section 6 item 43."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.curation.quality import Features, features, opened_late, own_weight, weight
from trajectory_platform_tests.judging.dialogues import call, dialogue, messages_of, step

PLAIN = Features(refined=False, verified_share=0.0, repeats=0)


def _weight(traits: Features, size: int = 1, limit: float = 5) -> float:
    return weight(own_weight(traits), strategy_size=size, strategy_limit=limit)


def test_refinement_and_verification_are_rewarded_and_repetition_is_not() -> None:
    assert _weight(PLAIN._replace(refined=True)) > _weight(PLAIN)
    assert _weight(PLAIN._replace(verified_share=1.0)) > _weight(PLAIN._replace(verified_share=0.5)) > _weight(PLAIN)
    assert _weight(PLAIN._replace(repeats=2)) < _weight(PLAIN._replace(repeats=1)) < _weight(PLAIN)
    assert _weight(PLAIN._replace(ineffective=1)) < _weight(PLAIN)
    assert _weight(Features(True, 1.0, 0)) == 1.0


def test_a_crowded_strategy_never_weighs_more_than_its_limit() -> None:
    best = Features(True, 1.0, 0)
    assert _weight(best, size=5) == 1.0
    assert sum(_weight(best, size=400, limit=20) for _ in range(400)) <= 20 + 1e-3


@settings(derandomize=True, deadline=None)
@given(
    st.booleans(),
    st.floats(0, 1),
    st.integers(0, 100),
    st.integers(0, 4),
    st.integers(1, 10**6),
    st.floats(1, 10**5),
)
def test_the_weight_is_always_in_the_half_open_unit_interval(
    refined: bool, share: float, repeats: int, ineffective: int, size: int, limit: float
) -> None:
    assert 0 < _weight(Features(refined, share, repeats, ineffective), size, limit) <= 1


def test_features_are_read_from_the_messages() -> None:
    found = features(messages_of(dialogue()), recommended=["5100000001", "5100000002"], not_opened=1, ineffective=2)
    assert found == Features(refined=False, verified_share=0.5, repeats=0, ineffective=2)
    searching = [
        step(1, "t", call("find_product", {"q": "kettle"}, [])),
        step(2, "t", call("find_product", {"q": "steel kettle"}, [])),
        step(3, "t", call("find_product", {"q": "steel kettle"}, [])),
    ]
    assert features(messages_of(searching), recommended=[], not_opened=0) == Features(True, 0.0, 1)


def test_two_searches_at_once_refine_nothing() -> None:
    both = [step(1, "t", call("find_product", {"q": "kettle"}, []), call("find_product", {"q": "pot"}, []))]
    assert not features(messages_of(both), recommended=[], not_opened=0).refined


def _late(*turns: list[tuple[str, Any]]) -> int:
    steps = [step(n, "t", *(call(name, given, "r") for name, given in turn)) for n, turn in enumerate(turns)]
    return opened_late(messages_of(steps), ["1", "2"])


def test_opening_a_product_after_committing_to_it_verifies_nothing() -> None:
    view = [("view_product_information", {"product_ids": "1,2"})]
    recommend = [("recommend_product", {"product_ids": "1,2"})]
    assert _late(view, recommend) == 0
    assert _late(recommend, view) == 2
    assert _late([*view, *recommend]) == 2  # in one step: the answer comes after both
    assert _late(view, recommend, view) == 0
    assert _late(recommend, view, recommend) == 0  # the last recommendation counts
    assert _late([("check_product_match", {"product_id": 1})], recommend, view) == 1
    assert _late(view) == 0
