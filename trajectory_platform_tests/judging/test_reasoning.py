"""The rules judge: the four gates, read from thinking, results and log; nothing else (domain 2.6)."""

from __future__ import annotations

from typing import Any

import pytest

from trajectory_platform.judging import reasoning
from trajectory_platform.traces.evidence import extract
from trajectory_platform_tests.judging.dialogues import dialogue, messages_of, proxy_log


def _judge(thoughts: list[str], *, tokens: int = 60) -> reasoning.RulesVerdict:
    steps = dialogue()
    for one, thought in zip(steps, thoughts, strict=False):
        one["completion"]["message"]["think"] = thought
    return reasoning.judge(messages_of(steps), extract(proxy_log(steps, tokens=tokens), binding=None))


REQUEST_ONLY = ["I want a steel kettle below 600 PHP."] * 4


@pytest.mark.parametrize(
    ("third", "quality"),
    [
        ("I choose the steel kettle below 600 PHP.", 0.3),
        ("The search returned 2 results, I take one.", 0.5),
        ("5100000001 is what I take.", 0.7),
        ("It costs 500.0 PHP, so it fits.", 0.7),
        ("The detail page says colour blue.", 0.7),
        ("5100000001 and 5100000002 are on the page.", 0.7),
        ("5100000001 is better than 5100000002 because the pot is made of clay.", 0.9),
        ("5100000001 ang pipiliin ko kaysa 5100000002 dahil mas mura.", 0.9),
    ],
)
def test_the_first_failed_gate_gives_the_value(third: str, quality: float) -> None:
    assert _judge([REQUEST_ONLY[0], REQUEST_ONLY[0], third, "Done."]).quality == quality


def test_a_comparison_must_be_in_one_thought() -> None:
    split = ["Search.", "5100000001 costs 500.0 PHP.", "5100000002 is worse because it is clay.", "Done."]
    assert _judge(split).quality == 0.7


def test_ids_that_no_result_showed_are_no_data() -> None:
    assert _judge(["s", "s", "999999999 is better than 888888888 because it is cheaper.", "Done."]).quality == 0.3


def test_a_thought_before_any_result_refers_to_none() -> None:
    first = "5100000001 is better than 5100000002 because it is cheaper."
    assert _judge([first, "Next.", "This one.", "Done."]).quality == 0.3


def test_words_of_the_request_are_no_data() -> None:
    assert _judge(["s", "The material must be steel and below 600.", "steel", "Done."]).quality == 0.3


def test_rhetoric_and_length_count_for_nothing() -> None:
    grand = "I reason with great care, weighing everything, because quality matters. " * 40
    assert _judge([grand] * 4).quality == 0.3


def test_short_replies_fail_the_first_gate_and_a_missing_log_is_no_verdict() -> None:
    assert _judge(["x"] * 4, tokens=29).quality == 0.1
    silent = reasoning.judge(messages_of(dialogue()), extract(dialogue(), binding=None))
    assert (silent.quality, silent.null_reason) == (None, "no_log")


def test_a_reply_that_the_log_cut_holds_more_than_thirty_tokens() -> None:
    logged: list[dict[str, Any]] = proxy_log(dialogue())
    for one in logged:
        entry = one["extra_info"]["proxy_calls"][0]
        entry.pop("response")
        entry.update(response_truncated=True, response_length=2400)
    assert reasoning.judge(messages_of(dialogue()), extract(logged, binding=None)).quality != 0.1
