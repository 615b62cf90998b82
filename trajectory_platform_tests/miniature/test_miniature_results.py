"""The miniature's table from made-up scores: what is said of a step, of guessing, of styles, and of the aims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from trajectory_platform.miniature.aims import MET, MISSED, UNKNOWN, Aim, aims
from trajectory_platform.miniature.rates import RowShares
from trajectory_platform.miniature.results import (
    GREEDY,
    SAMPLED,
    Guesses,
    How,
    StageScores,
    groups_of,
    guess_figures,
    measured,
    over_random,
    stage_results,
    told_apart,
)
from trajectory_platform.miniature.results_text import results_text, stage_table
from trajectory_platform_tests.evaluation.score_rows import no_reward, no_trace, score_row

HOW = How(seed=1, resamples=300)
PROBLEMS = 240


def attempts(name: str, solved: Sequence[int], *, samples: int = 1, problems: int = PROBLEMS) -> list[dict[str, Any]]:
    """``solved[number % len(solved)]`` of the ``samples`` attempts at each problem succeed."""
    return [
        score_row(
            f"p{number:03d}",
            sample,
            success=sample < solved[number % len(solved)],
            cluster=f"c{number:03d}",
            checkpoint_id=name,
            trace_id=f"{name}:{samples}:{number}:{sample}",
        )
        for number in range(problems)
        for sample in range(samples)
    ]


def stage(name: str, greedy: Sequence[int], sampled: Sequence[int]) -> StageScores:
    rows = attempts(name, greedy), attempts(name, sampled, samples=8, problems=64)
    styles = {row["trace_id"]: "scan" if row["success"] else "plain" for part in rows for row in part}
    return StageScores(name, name, "ok", *rows, styles)


def guesses(rows_shown: int = 5) -> Guesses:
    shares = {
        f"p{number:03d}": RowShares(
            f"c{number:03d}", tuple(place == number % rows_shown for place in range(rows_shown))
        )
        for number in range(PROBLEMS)
    }
    script = [{**row, "process_score": 0.8} for row in attempts("script", [1, 0, 0, 0, 0])]
    return Guesses(shares, script, attempts("good", [1]))


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    """Base 0, SFT 50 %, one step that changes nothing, one left out, one that hurts."""
    stages = [
        stage("base", [0], [0]),
        stage("sft", [1, 0], [4]),
        stage("resft", [0, 1], [4]),
        StageScores("kto", "", "no_checkpoint", [], [], {}),
        stage("dr_grpo", [0, 1, 0, 0], [0, 8]),
    ]
    found = guesses()
    rows = stage_results(stages, found, HOW)
    return {"rows": rows, "guess": guess_figures(found, stages[-1].greedy, stages[-1].sampled, HOW, group=8)}


def test_a_step_helps_hurts_or_shows_nothing(run: dict[str, Any]) -> None:
    shown = {row["stage"]: row["against"] and row["against"][GREEDY]["shown"] for row in run["rows"] if "greedy" in row}
    assert shown == {"base": None, "sft": "helps", "resft": "no difference shown", "dr_grpo": "hurts"}
    last = run["rows"][-1]["against"]
    assert last["stage"] == "resft"  # the stage before that was attempted
    assert last[GREEDY]["difference"]["value"] == pytest.approx(-0.25)
    assert last[SAMPLED]["pass@8"]["value"] == pytest.approx(-0.5)
    assert run["rows"][3] == {"stage": "kto", "checkpoint_id": "", "state": "no_checkpoint"}


def test_greedy_success_knows_nothing_of_the_sampled_attempts(run: dict[str, Any]) -> None:
    sft = run["rows"][1]
    assert sft["greedy"]["success"]["value"] == 0.5 and sft["greedy"]["attempts"] == PROBLEMS
    assert sft["sampled"]["pass_at"]["1"]["value"] == 0.5 and sft["sampled"]["pass_at"]["8"]["value"] == 1.0
    assert sft["sampled"]["attempts"] == 64 * 8


def test_guessing_is_worked_out_on_the_very_problems_of_each_evaluation(run: dict[str, Any]) -> None:
    guess = run["guess"]
    assert guess["greedy"]["value"] == pytest.approx(0.2) == guess["sampled"]["value"]
    assert guess["pass_at"]["8"]["value"] == pytest.approx(1 - 0.8**8)
    assert guess["same_outcome"] == pytest.approx(0.2**8 + 0.8**8)
    assert guess["process"]["value"] == pytest.approx(0.8)
    assert run["rows"][1]["over_random"]["value"] == pytest.approx(0.3)
    few = attempts("x", [1], problems=10)
    assert over_random([*few, no_reward("unknown")], guesses().shares, HOW)["value"] == pytest.approx(0.8)


def test_problems_without_a_reward_are_in_no_figure() -> None:
    rows = [*attempts("x", [1], problems=30), no_reward("lost", checkpoint_id="x")]
    assert measured(rows, HOW, ks=(1,))["problems"] == 30


def test_styles_of_thought_are_told_apart_and_lost_attempts_have_none() -> None:
    rows = [score_row("a", success=True), score_row("b"), score_row("c"), no_trace("d", 0, "crash")]
    styles = {rows[0]["trace_id"]: "scan", rows[1]["trace_id"]: "scan", rows[2]["trace_id"]: "plain"}
    assert told_apart(rows, styles) == {
        "scan": {"attempts": 2, "success": 0.5},
        "plain": {"attempts": 1, "success": 0.0},
    }


def test_groups_at_either_end_of_dr_grpo() -> None:
    history = [{"step": step, "zero_variance": 0.1 * (step > 5), "success": 0.5} for step in range(1, 11)]
    found = groups_of([{"step": 0, "loss": 1.0}, *history])
    assert found is not None and found["steps"] == 10
    assert found["first"]["zero_variance"] == 0.0 and found["last"]["zero_variance"] == pytest.approx(0.1)
    assert found["first"]["same_outcome"] is None
    assert groups_of([{"step": 1, "loss": 1.0}]) is None


def test_aims_are_met_missed_or_not_measured(run: dict[str, Any]) -> None:
    control = {GREEDY: {"value": 0.2, "low": 0.1, "high": 0.3}, SAMPLED: {"value": 0.05, "low": 0.0, "high": 0.1}}
    found = {one.aim: one for one in aims(run["rows"], run["guess"], control=control, minutes=50.0)}
    verdicts = [one.verdict for one in found.values()]
    assert verdicts == [
        MET,  # clusters
        MET,  # base under the random row
        MET,  # SFT 30 points over it
        MISSED,  # the last stage at 25 %
        MISSED,  # and 5 points over the random row
        MISSED,  # pass@8 fell
        MET,  # filtered, greedy
        MISSED,  # filtered, temperature 1
        MET,  # hallucinations
        MET,  # every step says something
        MISSED,  # minutes
    ]
    lacking = aims(run["rows"][:1], run["guess"], control=None, minutes=None)
    assert Aim("filtered at least 10 points over unfiltered", "make miniature-control", UNKNOWN) in lacking
    assert [one.verdict for one in lacking].count(UNKNOWN) == 8


def test_the_page_shows_the_random_row_beside_every_figure(run: dict[str, Any]) -> None:
    text = stage_table(run["rows"], run["guess"])
    [sft] = [line for line in text.splitlines() if line.startswith("| sft ")]
    assert "50.0 [" in sft and sft.count(" / 20.0") == 2 and " / 83.2" in sft and " / 0.80" in sft and "helps" in sft
    assert "kto: nothing attempted (no_checkpoint)" in text
    facts = {
        "title": "T",
        "made_by": ["command: x"],
        "stages": run["rows"],
        "guess": run["guess"],
        "groups": None,
        "budget": {"whole run": {"wall": 9.0, "cpu": 8.0}, "sft_checkpoint": {"wall": 5.0, "cpu": 4.0}},
    }
    page = results_text(facts, aims(run["rows"], run["guess"], control=None, minutes=1.0))
    assert page.index("sft_checkpoint") < page.index("whole run") and "## Aims" in page
    assert "## Sealed" not in page
