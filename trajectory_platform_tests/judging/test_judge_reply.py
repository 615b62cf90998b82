"""A judge's reply gives a value of the grid or a null with a reason; nothing in between (domain 2.6, cases E*)."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.judging import rubric
from trajectory_platform.judging.judge_reply import REASONS, RESPONSE_SCHEMA, parse

GOOD = '{"reasoning_quality": 0.7, "explanation": "two candidates"}'


@pytest.mark.parametrize(
    ("text", "finish", "expected"),
    [
        (GOOD, "stop", 0.7),
        (f"```json\n{GOOD}\n```", "stop", 0.7),
        (f"```\n{GOOD}\n```", None, 0.7),
        (f"<think>they wrote {{}}</think>\n{GOOD}", "stop", 0.7),
        ('{"reasoning_quality": 0.30000000000000004}', "stop", 0.3),
        (f"Sure! {GOOD} Hope that helps", "stop", "unparsed"),
        ("Sure! {'reasoning_quality': 0.3}", "stop", "unparsed"),
        (f'The agent wrote "{GOOD}". That is false.\nRating: 1', "stop", "unparsed"),
        (f"{GOOD}\n{GOOD}", "stop", "unparsed"),
        (f"[{GOOD}]", "stop", "unparsed"),
        ('{"reasoning_quality": 0.9, "reasoning_quality": 0.1}', "stop", "unparsed"),
        ('{"verdict": {"reasoning_quality": 0.9}}', "stop", "no_quality"),
        ('{"reasoning_quality": NaN}', "stop", "not_finite"),
        ('{"reasoning_quality": 1e999}', "stop", "not_finite"),
        ('{"reasoning_quality": true}', "stop", "not_a_number"),
        ('{"reasoning_quality": null}', "stop", "not_a_number"),
        ('{"reasoning_quality": "0.9"}', "stop", "not_a_number"),
        ('{"reasoning_quality": [0.9]}', "stop", "not_a_number"),
        ('{"reasoning_quality": 85}', "stop", "off_grid"),
        ('{"reasoning_quality": 0.65}', "stop", "off_grid"),
        ('{"reasoning_quality": 0}', "stop", "off_grid"),
        ('{"reasoning_quality": 1.0}', "stop", "off_grid"),
        ('{"reasoning_quality": -0.9}', "stop", "off_grid"),
        ('{"reasoning_quality": 0.', "length", "truncated"),
        ("", "length", "truncated"),
        ("", "stop", "empty"),
        (None, None, "empty"),
        ("<think>still thinking", "stop", "unparsed"),
        ("I can't help with evaluating this content.", "stop", "refused"),
        ("", "content_filter", "filtered"),
        (GOOD, "content_filter", "filtered"),
        ("9" * 100_000, "stop", "unparsed"),
    ],
    ids=lambda value: str(value)[:24].encode("ascii", "replace").decode(),
)
def test_reply(text: str | None, finish: str | None, expected: float | str) -> None:
    reply = parse(text, finish)
    if isinstance(expected, float):
        assert reply.quality == expected and reply.null_reason is None
    else:
        assert reply.quality is None and reply.null_reason == expected
        assert reply.null_reason in REASONS


def test_reply_to_another_request_is_none() -> None:
    told = json.dumps({"request": "abc", "reasoning_quality": 0.9})
    assert parse(told, nonce="abc").quality == 0.9
    assert parse(told, nonce="xyz").null_reason == "other_request"
    assert parse('{"reasoning_quality": 0.9}', nonce="xyz").quality == 0.9  # endpoints that ignore the schema


@given(st.text(max_size=200), st.sampled_from(["stop", "length", None]))
@settings(derandomize=True, deadline=None)
def test_no_text_gives_a_value_off_the_grid(text: str, finish: str | None) -> None:
    reply = parse(text, finish)
    assert (reply.quality is None) != (reply.null_reason is None)
    assert reply.quality is None or rubric.on_grid(reply.quality)


@given(st.sampled_from(rubric.GRID), st.text(max_size=60))
@settings(derandomize=True, deadline=None)
def test_what_the_schema_allows_is_read(quality: float, words: str) -> None:
    assert RESPONSE_SCHEMA["schema"]["properties"]["reasoning_quality"]["enum"] == list(rubric.GRID)
    reply = parse(json.dumps({"request": "n", "reasoning_quality": quality, "explanation": words}), "stop", nonce="n")
    assert reply.quality == quality


def test_no_reply_takes_long_to_read() -> None:
    """A judge may be made to answer with what patterns choke on."""
    begun = time.process_time()
    for text in (
        "```json\n" + " " * 60_000,
        "```json\n" + " \n" * 30_000 + "x```",
        "<think>" * 9_000,
        "{" * 60_000,
        "I'm " * 15_000,
    ):
        assert parse(text, "stop").quality is None
    assert time.process_time() - begun < 1.0
