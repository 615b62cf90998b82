"""The report of a checkpoint: complete, the same each time, and text of others stays text."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from typing import Any

import pytest

from trajectory_platform.reports import checkpoint_figures
from trajectory_platform.reports.checkpoint_data import CheckpointData
from trajectory_platform.reports.checkpoint_failures import _summary
from trajectory_platform.reports.checkpoint_page import build_checkpoint_page
from trajectory_platform.reports.figure_svg import svg
from trajectory_platform.reports.figure_svg_paint import _schemes
from trajectory_platform.reports.page import NO_SCRIPT
from trajectory_platform_tests.reports.checkpoint_sample import NAME, history, sample_checkpoint
from trajectory_platform_tests.reports.sample import HOSTILE

SECTIONS = (
    "making",
    "stages",
    "passes",
    "categories",
    "failures",
    "conduct",
    "actions",
    "trust",
    "curves",
    "costs",
    "limits",
)


def words(page: str) -> str:
    """The visible text of a page without its figures."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_every_section_is_there_and_the_page_is_the_same_each_time() -> None:
    page = build_checkpoint_page(sample_checkpoint())
    assert page == build_checkpoint_page(sample_checkpoint())
    assert tuple(re.findall(r'<section id="(\w+)"', page)) == SECTIONS
    assert NAME in words(page)


def test_scores_stand_beside_their_interval_and_their_clusters() -> None:
    said = words(build_checkpoint_page(sample_checkpoint()))
    assert "50.0% (40.0% to 60.0%)" in said and "+10.0 (+2.0 to +20.0)" in said
    assert "evaluable clusters" in said and "left out as contaminated" in said
    assert "not measured" in said  # a stage of the run that nobody evaluated is named
    assert "too few to conclude from" in said


def test_three_traces_of_a_kind_are_shown_and_none_of_a_sealed_pool() -> None:
    page = build_checkpoint_page(sample_checkpoint())
    assert "wrong title: 3 of 6 to read" in words(page)
    assert page.count('<article class="trace"') == 3
    assert "No trace is shown: the problems are sealed." in words(page)


def test_the_query_above_a_failed_attempt_is_one_line() -> None:
    summary = _summary({"query": "Find a lamp.\n\nMy budget\tis 20", "trace_id": "t:1"})
    assert summary == "Find a lamp. My budget is 20"
    assert _summary({"query": "\n", "trace_id": "t:1"}) == _summary({"query": None, "trace_id": "t:1"}) == "t:1"
    assert "\x1b" not in _summary({"query": HOSTILE, "trace_id": "t:1"})


def test_hostile_text_stays_text_everywhere() -> None:
    page = build_checkpoint_page(sample_checkpoint(HOSTILE))
    assert (
        "<script>document" not in page
        and "<img src=x" not in page
        and "javascript:document" not in re.sub(r"&lt;a href=[^<]*", "", page)
    )
    assert "\u202e" not in page and "\x1b" not in page and "\x00" not in page


def test_a_checkpoint_of_which_little_is_known_says_what_is_missing() -> None:
    page = build_checkpoint_page(CheckpointData(checkpoint_id=NAME, subtitle="sft of recipe x"))
    said = words(page)
    assert said.count("Nothing to show") >= 6
    assert f"script-src {NO_SCRIPT}" in page  # no figure, no script


def test_one_attempt_per_problem_draws_no_curve_and_says_how_to_get_one() -> None:
    data = dataclasses.replace(sample_checkpoint(), passes=[], passes_note="One attempt was made at each problem.")
    section = build_checkpoint_page(data).split('id="passes"')[1].split("</section>")[0]
    assert "One attempt was made" in section and "data-figure" not in section


def test_curves_hold_what_was_logged_and_long_ones_are_thinned() -> None:
    found = {curve.name: figure for curve, figure in checkpoint_figures.curve_figures(history())}
    assert set(found) == {"loss", "learning_rate", "rewards", "kl"}
    assert found["loss"]["data"][0]["y"][0] == 2.0 and found["loss"]["layout"]["yaxis"]["type"] == "log"
    assert [trace["name"] for trace in found["rewards"]["data"]] == ["desirable", "undesirable", "margin"]
    long = checkpoint_figures.thinned([(float(step), 0.0) for step in range(5000)], 400)
    assert len(long) == 400 and long[0][0] == 0.0 and long[-1][0] == 4999.0
    assert checkpoint_figures.curve_figures([]) == []


def test_the_band_belongs_to_the_own_checkpoint() -> None:
    figure = checkpoint_figures.pass_figure(sample_checkpoint().passes)
    names = [trace.get("name") for trace in figure["data"]]
    assert names == [None, "95 % interval", "base", "kto"]
    low, high, _, own = figure["data"]
    assert all(a <= b <= c for a, b, c in zip(low["y"], own["y"], high["y"], strict=True))


ODD = (float("nan"), float("inf"), float("-inf"), 1e308, "0.5", True, None)


@pytest.mark.parametrize("value", ODD, ids=str)
@pytest.mark.parametrize("every", [True, False])
def test_a_training_that_came_apart_has_a_page_that_says_so(value: Any, every: bool) -> None:
    """Its trainer logs numbers that are none; they are no reason to have no page."""
    told = [{"step": float(step), "loss": value if every or step > 2 else 1.5} for step in range(1, 5)]
    page = build_checkpoint_page(dataclasses.replace(sample_checkpoint(), history=told))
    finite = value is None or value is True
    assert ("the training came apart" in page) is not finite
    if not finite:
        assert f"{4 if every else 2} numbers are not finite, from step {1 if every else 3} on (loss)" in page
    for _, spec in checkpoint_figures.curve_figures(told):
        assert svg(spec, title="t")


def test_a_history_without_steps_has_no_curve() -> None:
    page = build_checkpoint_page(
        dataclasses.replace(sample_checkpoint(), history=[{"loss": 1.0}, {"step": None, "loss": 2.0}])
    )
    assert "its training logged no number by step" in page


# Machado et al. 2009, severity 1: how linear RGB looks to the colour-blind
SEEN_AS = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deutan": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritan": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}


def linear(colour: str) -> list[float]:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def lab(rgb: list[float]) -> tuple[float, float, float]:
    """CIE L*a*b* of linear RGB: equal distances look about equally different."""
    weights = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(w * part for w, part in zip(row, rgb, strict=True)) for row in weights]
    scaled = [max(0.0, value) / white for value, white in zip(xyz, (0.9505, 1.0, 1.089), strict=True)]
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in scaled)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_roles_are_told_apart_by_everyone_and_their_texts_can_be_read(scheme: int) -> None:
    colours = _schemes()[scheme]
    roles = [colours[role] for role in checkpoint_figures.ROLES]
    for matrix in SEEN_AS.values():
        seen = [
            lab([min(1.0, max(0.0, sum(w * v for w, v in zip(row, linear(one), strict=True)))) for row in matrix])
            for one in roles
        ]
        assert min(math.dist(a, b) for a, b in itertools.combinations(seen, 2)) > 18
    for one in roles:
        low, high = sorted(0.05 + sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear(c), strict=True))
                           for c in (one, colours["onbar"]))  # fmt: skip
        assert high / low >= 4.5, f"{one}: the count in the bar"


def test_bars_of_roles_carry_their_names_where_there_is_room() -> None:
    roles = {"desirable": {"share": 0.9, "traces": 9}, "undesirable": {"share": 0.1, "traces": 1}}
    chain = [{"known": True, "stage": "kto", "roles": roles}]
    texts = [trace["text"] for trace in checkpoint_figures.fed_figure(chain)["data"]]
    assert texts == [["desirable 9"], ["1"]]
    assert checkpoint_figures.fed_figure(chain, named=False)["data"][0]["text"] == ["9"]
