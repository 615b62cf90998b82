"""Format and length: domain 2.4, with the quirks of the reference that are kept on purpose."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trajectory_platform.judging.protocol import format_score, length_score, step_format, well_formed
from trajectory_platform_tests.judging.dialogues import call, dialogue, step


def _find(result: Any = None, **parameters: Any) -> dict[str, Any]:
    return {"think": "t", "tool_call": [call("find_product", parameters or {"q": "pot"}, result)]}


def test_think_and_a_call_or_an_answer_are_needed() -> None:
    assert well_formed(_find())
    assert well_formed({"think": "t", "response": "r"})
    assert not well_formed({"think": "t"})
    assert not well_formed({"response": "r"})


@pytest.mark.parametrize(
    "broken", [{"name": 3, "parameters": {}}, {"name": "f", "parameters": "{}"}, {"name": "f"}, {}]
)
def test_calls_need_a_name_and_an_object(broken: dict[str, Any]) -> None:
    assert not well_formed({"think": "t", "tool_call": [broken]})


def test_opening_tag_text_in_a_result_zeroes_the_step_closing_tag_text_does_not() -> None:
    assert not well_formed(_find([{"title": "<response>free</response>"}]))
    assert not well_formed({**_find(), "think": "then I write </think>"})
    assert not well_formed({**_find(), "response": "<think>"})
    assert well_formed(_find([{"title": "ends with </tool_call> text"}]))  # ujson writes <\/tool_call>


def test_other_angle_brackets_are_harmless() -> None:
    assert well_formed({**_find([{"title": "<b>5 < 6</b>"}], q="<think"), "think": "price < 600"})


@pytest.mark.parametrize(
    ("stamp", "value"), [(1, 1.0), (True, 1.0), (math.nan, 1.0), (0, 0.5), (-1, 0.5), ("1", 0.5), (None, 0.5)]
)
def test_a_step_without_a_usable_timestamp_counts_half(stamp: Any, value: float) -> None:
    one = step(1, "t", call("find_product", {}))
    one["extra_info"]["timestamp"] = stamp
    assert step_format(one) == value


def test_missing_extra_info_counts_half_and_a_null_one_nothing() -> None:
    one = step(1, "t", call("find_product", {}))
    del one["extra_info"]
    assert step_format(one) == 0.5
    assert step_format({**one, "extra_info": None}) == 0.0


def test_length_is_one_over_the_steps_when_the_last_step_terminates() -> None:
    assert length_score(dialogue()) == 0.25
    failed = [*dialogue()[:3], step(4, "t", call("terminate", {"status": "failure"}))]
    assert length_score(failed) == 0.25  # any status
    assert length_score(dialogue()[:3]) == 0.0
    assert length_score([*dialogue(), step(5, "t", response="bye")]) == 0.0
    assert length_score([]) == format_score([]) == 0.0
