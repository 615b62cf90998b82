"""The sampling weight: domain 5.2 and section 6 item 43."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.curation.quality import Features, features, weight
from trajectory_platform_tests.judging.dialogues import call, dialogue, messages_of, step

PLAIN = Features(refined=False, verified_share=0.0, repeats=0)


def _weight(traits: Features, size: int = 1, limit: float = 5) -> float:
    return weight(traits, strategy_size=size, strategy_limit=limit)


def test_refinement_and_verification_are_rewarded_and_repetition_is_not() -> None:
    assert _weight(PLAIN._replace(refined=True)) > _weight(PLAIN)
    assert _weight(PLAIN._replace(verified_share=1.0)) > _weight(PLAIN._replace(verified_share=0.5)) > _weight(PLAIN)
    assert _weight(PLAIN._replace(repeats=2)) < _weight(PLAIN)
    assert _weight(Features(True, 1.0, 0)) == 1.0


def test_a_crowded_strategy_never_weighs_more_than_its_limit() -> None:
    best = Features(True, 1.0, 0)
    assert _weight(best, size=5) == 1.0
    assert sum(_weight(best, size=400, limit=20) for _ in range(400)) <= 20 + 1e-3


@settings(derandomize=True, deadline=None)
@given(st.booleans(), st.floats(0, 1), st.integers(0, 100), st.integers(1, 10**6), st.floats(1, 10**5))
def test_the_weight_is_always_in_the_half_open_unit_interval(
    refined: bool, share: float, repeats: int, size: int, limit: float
) -> None:
    assert 0 < _weight(Features(refined, share, repeats), size, limit) <= 1


def test_features_are_read_from_the_messages() -> None:
    found = features(messages_of(dialogue()), recommended=["5100000001", "5100000002"], not_opened=1)
    assert found == Features(refined=False, verified_share=0.5, repeats=0)
    searching = [
        step(1, "t", call("find_product", {"q": "kettle"}, [])),
        step(2, "t", call("find_product", {"q": "steel kettle"}, [])),
        step(3, "t", call("find_product", {"q": "steel kettle"}, [])),
    ]
    assert features(messages_of(searching), recommended=[], not_opened=0) == Features(True, 0.0, 1)


def test_two_searches_at_once_refine_nothing() -> None:
    both = [step(1, "t", call("find_product", {"q": "kettle"}, []), call("find_product", {"q": "pot"}, []))]
    assert not features(messages_of(both), recommended=[], not_opened=0).refined
