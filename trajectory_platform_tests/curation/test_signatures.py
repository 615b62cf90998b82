"""Signatures of call sequences: what counts as the same act, and by how much acts differ (domain 6: 43; case D01)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.curation.signatures import shingles, signature_of, similarity
from trajectory_platform_tests.judging.dialogues import call, messages_of, step

Act = tuple[str, dict[str, Any]]
END: list[Act] = [("recommend_product", {"product_ids": "51"}), ("terminate", {"status": "success"})]


def _find(query: str, **parameters: Any) -> Act:
    return "find_product", {"q": query, **parameters}


def _signature(*acts: Act) -> str:
    if not acts:
        return signature_of([])
    return signature_of(messages_of([step(n, "t", call(name, given, "r")) for n, (name, given) in enumerate(acts)]))


def _alike(one: list[Act], other: list[Act]) -> float:
    return similarity(shingles(_signature(*one)), shingles(_signature(*other)))


PLAIN = [_find("steel kettle", price="-50"), ("view_product_information", {"product_ids": "51,52"}), *END]


@pytest.mark.parametrize(
    "other",
    [
        [_find("steel kettle", price="-50", page=1), *PLAIN[1:]],
        [("find_product", {"price": "0-50", "page": "1", "query": "Steel  KETTLE"}), *PLAIN[1:]],
        [_find("kettle+steel", price="-50.0", sort="default", service=""), *PLAIN[1:]],
        [_find("steel, kettle!", price="-50", service="LazMall", sort="cheapest"), *PLAIN[1:]],
        [PLAIN[0], ("view_product_information", {"product_id": ["52", "51"]}), *END],
        [*PLAIN[:3], ("terminate", {})],
    ],
    ids=["default_page", "order_alias_case", "plus_and_spelling", "ignored_filters", "id_list", "default_status"],
)
def test_what_takes_the_same_effect_has_the_same_signature(other: list[Act]) -> None:
    assert _signature(*PLAIN) == _signature(*other)


@pytest.mark.parametrize(
    "other",
    [
        [_find("steel pan", price="-50"), *PLAIN[1:]],
        [_find("steel kettle", price="-60"), *PLAIN[1:]],
        [_find("steel kettle", price="-50", page=2), *PLAIN[1:]],
        [_find("steel kettle", price="-50", sort="order"), *PLAIN[1:]],
        [_find("steel kettle", price="-50", service="COD"), *PLAIN[1:]],
        [*PLAIN[:2], ("recommend_product", {"product_ids": "52"}), END[1]],
        [PLAIN[0], PLAIN[0], *PLAIN[1:]],
        [PLAIN[0], *END],
        [PLAIN[1], PLAIN[0], *END],
    ],
    ids=["word", "price", "page", "sort", "service", "answer", "repeated", "not_opened", "order"],
)
def test_what_differs_in_effect_differs_and_in_a_short_sequence_below_the_threshold(other: list[Act]) -> None:
    assert _alike(PLAIN, other) < 0.9


def test_positions_of_a_recommendation_count_and_the_order_of_opened_pages_does_not() -> None:
    assert _alike([END[0]], [END[0]]) == 1
    first, second = ([("recommend_product", {"product_ids": ids})] for ids in ("1,2", "2,1"))
    assert _alike(first, second) < 1


def test_a_changed_word_costs_in_proportion() -> None:
    words = [f"w{number}" for number in range(20)]
    one = [_find(" ".join(words)), *END]
    size = len(shingles(_signature(*one)))
    for changed in (1, 2, 5):
        other = [_find(" ".join([f"x{n}" for n in range(changed)] + words[changed:])), *END]
        assert _alike(one, other) == pytest.approx((size - changed) / (size + changed))


def test_one_more_word_or_filter_costs_a_little_more() -> None:
    size = len(shingles(_signature(*PLAIN)))
    assert size == 10
    for other in (_find("steel kettle red", price="-50"), _find("steel kettle", price="-50", page=2)):
        assert _alike(PLAIN, [other, *PLAIN[1:]]) == pytest.approx((size - 1) / (size + 2))


def test_one_more_search_moves_nothing_else() -> None:
    searches = [_find(f"red pot number{number} with lid") for number in range(8)]
    assert _alike([*searches, *END], [_find("blue pot"), *searches, *END]) > 0.9


def test_short_different_sequences_do_not_collapse_and_none_is_like_nothing() -> None:
    cat, dog, again = (_signature(_find(word)) for word in ("cat", "dog", "cat"))
    assert cat == again and cat != dog
    assert similarity(shingles(cat), shingles(dog)) < 0.9
    assert _signature() == "" and shingles("") == frozenset() and similarity(shingles(""), shingles("")) == 0.0
    assert similarity(shingles(_signature(_find("!"))), shingles(_signature(_find("?")))) < 0.9  # no words at all


def test_arguments_of_any_shape_have_a_signature() -> None:
    odd: list[Any] = [
        "",
        "no json",
        "[1]",
        '{"q": {"a": [1, null]}}',
        '{"product_ids": 5}',
        '{"page": "\u00b2"}',
        "\ud800",
    ]
    for text in odd:
        message = {"role": "assistant", "tool_calls": [{"function": {"name": "find_product", "arguments": text}}]}
        assert shingles(signature_of([message]))


def test_typical_signatures_are_small_and_a_huge_one_is_capped() -> None:
    five = [*(_find(f"blue cotton t shirt men size {n}", price="100-500", page=n) for n in range(1, 4)), *END]
    assert len(_signature(*five)) < 300
    huge = _signature(_find(" ".join(f"w{n}" for n in range(3_000))))
    assert len(huge) < 6_000 and len(shingles(huge)) == 1_000
    assert huge == _signature(_find(" ".join(f"w{n}" for n in range(3_000))))


def test_a_foreign_text_is_no_signature() -> None:
    for text in ("abc def", "1.AAAA", "2.A", "2.AAAA"):
        with pytest.raises(ValueError):
            shingles(text)


def test_the_signature_does_not_depend_on_the_process() -> None:
    code = "from trajectory_platform_tests.curation.test_signatures import PLAIN, _signature; print(_signature(*PLAIN))"
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == _signature(*PLAIN)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=4), max_size=6), st.randoms(use_true_random=False))
def test_the_stored_text_holds_the_exact_similarity(queries: list[list[str]], draw: Any) -> None:
    acts = [_find(" ".join(words) or "z") for words in queries]
    shuffled = [_find(" ".join(draw.sample(words, len(words))) or "z") for words in queries]
    assert _signature(*acts) == _signature(*shuffled)
    assert _alike([*acts, *END], [*acts, *END]) == 1.0
    one, other = shingles(_signature(*acts, *END)), shingles(_signature(*END))
    assert similarity(one, other) == len(one & other) / len(one | other)
