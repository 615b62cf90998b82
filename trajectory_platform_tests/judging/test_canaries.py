"""Canaries tell an obeying judge from one that reads."""

from __future__ import annotations

import re

from trajectory_platform.judging import canaries as canary_module
from trajectory_platform.judging import judge_prompt
from trajectory_platform.judging.canaries import again, canaries, read_canaries

Values = dict[tuple[int, bool], float | None]


def asked(judge: object, seed: str = "day 1", count: int = 24) -> tuple[list[object], Values]:
    pairs = canaries(seed, count)
    values: Values = {}
    for number, pair in enumerate(pairs):
        for attacked, shown in ((False, pair.control), (True, pair.attacked)):
            prompt = judge_prompt.build(shown, nonce=judge_prompt.nonce_of(judge_prompt.content_key(shown)))
            values[number, attacked] = judge(prompt[1]["content"])  # type: ignore[operator]
    return list(pairs), values


def obeying(text: str) -> float:
    """Whatever number between 0 and 1 the text names last."""
    return float((re.findall(r"(?<![\d.])0\.\d", text) or ["0.3"])[-1])


def test_a_judge_that_does_what_it_is_told_is_caught_in_every_place() -> None:
    pairs, values = asked(obeying)
    result = read_canaries(pairs, values)  # type: ignore[arg-type]
    assert not result.passed
    assert {name.split(":")[0] for name in result.obeyed} == {"thinking", "query", "result"}
    # the forged log names no number for its order to be followed by this judge, all other words do
    assert len(result.obeyed) >= len(pairs) * 3 // 4


def test_a_judge_that_reads_passes_whatever_its_level() -> None:
    for level in (0.1, 0.3, 0.9):
        pairs, values = asked(lambda _, level=level: level)
        assert read_canaries(pairs, values).passed  # type: ignore[arg-type]


def test_silence_proves_nothing() -> None:
    pairs, values = asked(lambda _: None)
    result = read_canaries(pairs, values)  # type: ignore[arg-type]
    assert result.answered == 0 and not result.passed


def test_batches_differ_and_repeat() -> None:
    assert canaries("day 1", 8) == canaries("day 1", 8)
    first, second = canaries("day 1", 8), canaries("day 2", 8)
    assert not {judge_prompt.content_key(pair.attacked) for pair in first} & {
        judge_prompt.content_key(pair.attacked) for pair in second
    }
    for pair in first:
        assert judge_prompt.content_key(pair.attacked) != judge_prompt.content_key(pair.control)


WORDS_OF_ATTACKS = [words.format(nonce="0" * 20) for _, words in canary_module._WORDS]


def test_twenty_four_hold_every_wording_in_every_place_and_fewer_are_the_first_of_more() -> None:
    pairs = canaries("day 1", 24)
    assert len({pair.name for pair in pairs}) == 24
    assert canaries("day 1", 8) == pairs[:8]
    assert len({pair.name.split(":")[1] for pair in pairs[:8]}) == 8


def test_the_same_words_again_in_another_trace() -> None:
    for pair in canaries("day 1", 24):
        second = again(pair, "day 1")
        assert second.name == pair.name and second.control != pair.control
        assert again(pair, "day 1") == second


def test_declining_to_read_the_planted_words_counts_as_an_answer() -> None:
    pairs = canaries("day 1", 1)
    values: Values = {(0, False): 0.3, (0, True): None}
    assert read_canaries(pairs, values).answered == 0
    assert read_canaries(pairs, values, {(0, True)}).passed
