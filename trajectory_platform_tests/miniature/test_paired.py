"""Filtered against unfiltered: paired by problem, per way of decoding, with the aim said out loud."""

from __future__ import annotations

import random
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.miniature.paired import control_comparison, control_text
from trajectory_platform_tests.evaluation.score_rows import no_reward, score_row

HOW: dict[str, Any] = {"seed": 1, "resamples": 500}


def run(name: str, rate: float, *, problems: int = 200, samples: int = 1, seed: int = 0) -> list[dict[str, Any]]:
    """Attempts whose success is drawn from what makes each problem hard, the same for every run."""
    hard, draw = random.Random(9), random.Random(f"{name}{seed}")
    rows = []
    for number in range(problems):
        ease = hard.random()
        rows += [
            score_row(
                f"p{number}",
                sample,
                success=0.5 * ease + 0.5 * draw.random() < rate,
                cluster=f"c{number // 2}",
                checkpoint_id=name,
                hallucinated_ids=["9"] if draw.random() < (0.2 if name == "unfiltered" else 0.0) else [],
            )
            for sample in range(samples)
        ]
    return rows


def both(filtered: float, unfiltered: float, **how: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {
            "greedy": run("filtered", filtered, **how),
            "temperature 1": run("filtered", filtered, **{**how, "samples": 8}),
        },
        {
            "greedy": run("unfiltered", unfiltered, **how),
            "temperature 1": run("unfiltered", unfiltered, **{**how, "samples": 8}),
        },
    )


def test_a_large_gain_is_shown_in_both_ways_of_decoding() -> None:
    found = control_comparison(*both(0.6, 0.3), **HOW)
    assert [one.name for one in found] == ["greedy", "temperature 1"]
    for one in found:
        entry = one.compared["overall"]
        assert entry["difference"]["value"] > 0.2 and entry["verdict"] == "better" and one.aim == "shown"
        assert one.hallucinated[0] > 0.1 and one.hallucinated[1] == 0
        assert entry["clusters"] == 100
    text = control_text(found)
    assert text.count("| shown |") == 2 and "-> " not in text
    assert all(len(line.split("|")) == 11 for line in text.splitlines()[:4])


def test_no_gain_is_missed_and_a_loss_is_said() -> None:
    assert {one.aim for one in control_comparison(*both(0.45, 0.45), **HOW)} == {"missed"}
    lost = control_comparison(*both(0.3, 0.6), **HOW)
    assert {one.aim for one in lost} == {"missed"} and lost[0].compared["overall"]["verdict"] == "worse"


def test_a_gain_above_the_aim_that_is_not_sure_is_reached_only() -> None:
    found = control_comparison(*both(0.6, 0.3, problems=12), **HOW)
    assert found[0].compared["overall"]["difference"]["value"] >= 0.1 and found[0].aim in ("reached", "shown")
    few = control_comparison(*both(0.62, 0.48, problems=20), **HOW, aim=0.02)
    assert few[0].aim == "reached"


def test_other_problems_or_other_decoding_are_refused() -> None:
    filtered, unfiltered = both(0.6, 0.3)
    with pytest.raises(Abort, match="differently"):
        control_comparison({"greedy": filtered["greedy"]}, unfiltered, **HOW)
    unfiltered["greedy"] = unfiltered["greedy"][:-1]
    with pytest.raises(Abort, match="one run only"):
        control_comparison(filtered, unfiltered, **HOW)


def test_problems_without_a_reward_and_the_order_of_rows_change_nothing() -> None:
    filtered, unfiltered = both(0.6, 0.3)
    plain = control_text(control_comparison(filtered, unfiltered, **HOW))
    for side, name in ((filtered, "filtered"), (unfiltered, "unfiltered")):
        rows = [*side["greedy"], no_reward("hidden", checkpoint_id=name)]
        random.Random(3).shuffle(rows)
        side["greedy"] = rows
    assert control_text(control_comparison(filtered, unfiltered, **HOW)) == plain
