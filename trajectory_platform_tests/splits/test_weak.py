"""Word similarity as review hints: recall, exactness, templates, and what they never do."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.errors import Abort
from trajectory_platform.splits.weak import RECALL, bands_for, near_pairs, near_vectors, similarity


def case(shared: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared / "cases" / f"{name}.json").read_text("utf-8"))
    return found


def named(shared: Path, name: str, threshold: float) -> set[tuple[str, str]]:
    texts = case(shared, name)["input"]
    found = near_pairs([text["text"] for text in texts], threshold)
    return {(texts[pair.left]["id"], texts[pair.right]["id"]) for pair in found}


def test_short_texts_are_alike_only_when_equal(shared: Path) -> None:
    """Case D01: cat and dog are two things, the empty text is none."""
    assert named(shared, "D01", 0.1) == {("t0", "t2")}


def renamed(text: str, number: int) -> str:
    return " ".join(f"{word}v{number}" for word in text.split())


def test_planted_pairs_above_the_threshold_are_found(shared: Path) -> None:
    """Case D02: 300 seeded pairs of similarity 0.835 at the threshold 0.8, at most three missed."""
    texts = case(shared, "D02")["input"]
    planted = [renamed(text["text"], number) for number in range(300) for text in texts]
    found = near_pairs(planted, 0.8)
    assert {pair.value for pair in found} == {round(91 / 109, 6)}
    assert all(pair.right == pair.left + 1 for pair in found)
    assert len(found) >= 297


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.6, 0.8, 0.95])
def test_bands_are_chosen_for_recall(threshold: float) -> None:
    bands, rows = bands_for(threshold)
    assert 1 - (1 - threshold**rows) ** bands >= RECALL > 0.99


def test_a_candidate_below_the_threshold_is_no_pair(shared: Path) -> None:
    """Case D03: 0.55 is below 0.6; the value that is stored is the measured one."""
    assert named(shared, "D03", 0.6) == set()
    texts = [text["text"] for text in case(shared, "D03")["input"]]
    (pair,) = near_pairs(texts, 0.5)
    assert pair.value == round(22 / 40, 6) == round(similarity(*texts), 6)


def test_the_threshold_is_what_decides() -> None:
    """Case D10: one pair of overlap 0.5 under a sweep; a threshold that is none is refused."""
    texts = ["a b c", "b c d"]
    assert [len(near_pairs(texts, limit)) for limit in (0.01, 0.25, 0.5, 0.51, 0.85, 1.0)] == [1, 1, 1, 0, 0, 0]
    for limit in (0.0, -1.0, 1.01, math.nan):
        with pytest.raises(Abort, match="no threshold"):
            near_pairs(texts, limit)


def test_every_process_finds_the_same(shared: Path) -> None:
    """Case D04: the hash seed of the process and the order of the rows decide nothing."""
    texts = [text["text"] for text in case(shared, "D04")["input"]]
    code = (
        "import json,sys;from trajectory_platform.splits.weak import near_pairs;"
        "print(json.dumps(near_pairs(json.loads(sys.argv[1]),0.5,strip=False)))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code, json.dumps(texts)],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(answers) == 1
    turned = near_pairs(texts[::-1], 0.5, strip=False)
    last = len(texts) - 1
    again = {(last - pair.right, last - pair.left, pair.value) for pair in turned}
    assert again == {(pair.left, pair.right, pair.value) for pair in near_pairs(texts, 0.5, strip=False)}


def test_the_false_pairs_of_the_benchmark_are_its_voucher_text(shared: Path) -> None:
    """Domain 4.4: 21 pairs share six words of ten, all false; without templates none is left."""
    queries = [
        json.loads(line)["query"]
        for path in sorted((shared / "samples" / "shoppingbench").glob("*.jsonl"))
        for line in path.read_text("utf-8").rstrip("\n").split("\n")
    ]
    assert len(near_pairs(queries, 0.6, strip=False)) == 21
    assert near_pairs(queries, 0.6) == []


def test_own_words_decide_under_a_template() -> None:
    tail = " with a voucher of these rules one two three four five six seven eight nine ten"
    texts = [f"thing{number} kind{number} sort{number}{tail} {number}" for number in range(40)]
    copy = f"kind7 thing7 sort7{tail} 99"
    found = near_pairs([*texts, copy], 0.6)
    assert [(pair.left, pair.right) for pair in found] == [(7, 40)]
    assert found[0].shared == ("kind7", "sort7", "thing7")


def test_a_generated_series_costs_no_more_than_its_length() -> None:
    """500 near copies of one text are 124,750 pairs; each is compared with a few of them."""
    base = [f"word{number}" for number in range(30)]
    texts = [" ".join([*base[: 30 - 2], f"x{number}", f"y{number}"]) for number in range(500)]
    found = near_pairs(texts, 0.6, strip=False)
    assert {pair.right for pair in found} == set(range(1, 500))
    assert len(found) < 500 * 499 // 2


def test_vectors_are_compared_exactly() -> None:
    found = near_vectors([[1, 0], [2, 0.1], [0, 1], [0, 0]], 0.9)
    assert [(pair.left, pair.right) for pair in found] == [(0, 1)]
    assert near_vectors([], 0.9) == []


_TEXTS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6).map(" ".join), max_size=16)


@given(_TEXTS, st.sampled_from([0.3, 0.5, 0.75, 1.0]))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_nothing_below_the_threshold_and_nearly_all_above(texts: list[str], threshold: float) -> None:
    """Against all pairs. Equal sets are tied to their first, so pairs are compared by the sets they stand for."""
    sets = [frozenset(text.split()) for text in texts]
    found = {frozenset((sets[pair.left], sets[pair.right])) for pair in near_pairs(texts, threshold, strip=False)}
    wanted = {
        frozenset((one, two))
        for number, one in enumerate(sets)
        for two in sets[:number]
        if one and two and len(one & two) / len(one | two) >= threshold
    }
    assert found <= wanted
    assert len(wanted - found) <= 1


def test_recall_at_the_threshold() -> None:
    """3,000 pairs of similarity 0.6 exactly; the bands promise 0.995."""
    chance = random.Random(7)
    texts = []
    for number in range(3000):
        both = [f"k{number}b{chance.random()}" for _ in range(12)]
        texts += [" ".join([*both, *(f"k{number}{side}{n}" for n in range(4))]) for side in "lr"]
    assert len(near_pairs(texts, 0.6)) >= 0.99 * 3000
