"""Drills: what they say is true, they hold no shopping problem, and a seed names them."""

from __future__ import annotations

import json
import re
from itertools import islice

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.miniature import drills
from trajectory_platform.sandbox.products import ROW_FIELDS, SERVICES
from trajectory_platform.sandbox.tools import TOOLS

COUNT = 60


def texts(kind: str) -> list[str]:
    return ["".join(part.text for part in drill) for drill in islice(drills.drills(7, {kind: 1.0}), COUNT)]


def test_a_seed_names_the_drills() -> None:
    mix = dict.fromkeys(drills.KINDS, 1.0)
    first = list(islice(drills.drills(1, mix), 30))
    assert first == list(islice(drills.drills(1, mix), 30))
    assert first != list(islice(drills.drills(2, mix), 30))
    assert first == list(islice(drills.drills(1, dict(reversed(mix.items()))), 30))


@pytest.mark.parametrize("mix", [{}, {"pairs": 0.0}, {"riddles": 1.0}])
def test_a_mix_that_names_nothing_is_refused(mix: dict[str, float]) -> None:
    with pytest.raises(Abort, match="kinds"):
        next(drills.drills(0, mix))


def test_no_drill_holds_a_tool_a_request_or_a_row_of_the_catalogue() -> None:
    words = {tool["function"]["name"] for tool in TOOLS} | {*ROW_FIELDS, *SERVICES, "<", "pesos", "Find"}
    for kind in drills.KINDS:
        for text in texts(kind):
            assert [word for word in words if word in text] == []


@pytest.mark.parametrize("kind", sorted(drills.KINDS))
def test_every_kind_has_something_given_and_something_to_write(kind: str) -> None:
    for drill in islice(drills.drills(3, {kind: 1.0}), COUNT):
        assert {part.trained for part in drill} == {True, False}
        assert all(part.text for part in drill)
        assert not drill[0].trained


def test_pairs_and_comparisons_are_true_and_neither_answer_is_rare() -> None:
    told = [line for text in texts("pairs") for line in text.splitlines()]
    same = 0
    for line in told:
        first, second, answer = re.fullmatch(r" (\w+) want (\w+) (same|differs)", line).groups()  # type: ignore[union-attr]
        assert (answer == "same") == (first == second)
        same += answer == "same"
    assert 0.4 < same / len(told) < 0.6
    for line in (line for text in texts("comparisons") for line in text.splitlines()):
        first, second, answer = re.fullmatch(r"(\d+) than (\d+) (same|less|more)", line).groups()  # type: ignore[union-attr]
        assert answer == ("same" if first == second else "less" if int(first) < int(second) else "more")


def test_copies_and_quotes_repeat_what_was_given() -> None:
    for drill in islice(drills.drills(5, {"copies": 1.0}), COUNT):
        for given, written, _ in zip(drill[::3], drill[1::3], drill[2::3], strict=True):
            assert given.text == f"copy{written.text}\n"
    for text in texts("quotes"):
        for line, *quoted in (block.splitlines() for block in text.split("list ")[1:]):
            shown = [part for one in quoted for part in re.findall(r'"([^"]+)"', one)]
            low, high = re.findall(r"\d+", line)
            assert [*line.split()[:-3], f"{low}-{high}"] == shown


def test_records_are_walked_up_to_the_first_that_fits() -> None:
    for text in texts("records"):
        head, listed, rest = re.fullmatch(r"want ([\w ]+)\n(\[.*\])\n(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
        rows = {row["code"]: row["words"].split() for row in json.loads(listed)}
        assert list(rows) == sorted(rows)
        for question in re.split(r"\.\nwant ", f"want {head}\n{rest}".removeprefix("want ")):
            wanted, *lines = question.rstrip(".\n").splitlines()
            assert [line.split()[0] for line in lines] == list(rows)[: len(lines)]
            for number, line in enumerate(lines, 1):
                verdicts = re.findall(r" (\w+) want (\w+) (same|differs)", line)
                assert all((one == two) == (told == "same") for one, two, told in verdicts)
                assert all(one in rows[line.split()[0]] for one, _, _ in verdicts)
                fits = set(wanted.split()) <= set(rows[line.split()[0]])
                assert fits == (number == len(lines))
