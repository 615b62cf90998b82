"""The report of a checkpoint: complete, the same each time, and text of others stays text."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from trajectory_platform.reports import checkpoint_figures
from trajectory_platform.reports.checkpoint_data import CheckpointData
from trajectory_platform.reports.checkpoint_page import build_checkpoint_page
from trajectory_platform.reports.figure_svg import svg
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
    assert "evaluable clusters" in said and "contaminated, left out" in said
    assert "not measured" in said  # a stage of the run that nobody evaluated is named
    assert "too few to conclude from" in said


def test_three_traces_of_a_kind_are_shown_and_none_of_a_sealed_pool() -> None:
    page = build_checkpoint_page(sample_checkpoint())
    assert "wrong title: 3 of 6 to read" in words(page)
    assert page.count('<article class="trace"') == 3
    assert "No trace is shown: the problems are sealed." in words(page)


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
