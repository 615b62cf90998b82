"""The figure beside every score: exact, with its interval, and what the same policies do when they are really run."""

from __future__ import annotations

from typing import Any

import pytest

from trajectory_platform.evaluation.eval_rows import Measured
from trajectory_platform.evaluation.metrics import task_metrics
from trajectory_platform.evaluation.turn_rewards import Reference, references_from_rows
from trajectory_platform.miniature import miners, rates
from trajectory_platform.miniature.rates import RowShares
from trajectory_platform_tests.miniature.market import market


def test_a_rate_is_the_mean_share_of_right_rows() -> None:
    shares = [RowShares("a", (True, False)), RowShares("b", (False, False, True, True)), RowShares("c", ())]
    found = rates.guessing_rates(shares, seed=0)
    assert found["random_row"].value == pytest.approx(1 / 3)
    assert found["random_row_pass@8"].value == pytest.approx(2 * (1 - 0.5**8) / 3)
    assert found["first_row"].value == found["last_row"].value == pytest.approx(1 / 3)
    assert found["random_row"].problems == found["random_row"].clusters == 3


def test_problems_of_one_cluster_stay_together_in_the_interval() -> None:
    apart = [RowShares(str(number), (number % 2 == 0, number % 2 == 1)) for number in range(40)]
    together = [one._replace(cluster_id=one.right[0] and "even" or "odd") for one in apart]
    wide, narrow = (rates.guessing_rates(shares, seed=0)["first_row"] for shares in (together, apart))
    assert wide.value == narrow.value == 0.5
    assert wide.interval is not None and narrow.interval is not None
    assert wide.interval["high"] - wide.interval["low"] > narrow.interval["high"] - narrow.interval["low"]
    assert rates.guessing_rates(together[:1], seed=0)["first_row"].interval is None


def _metrics(script: Any, samples: int, references: dict[str, Reference] | None = None) -> dict[str, Any]:
    found = market()
    rows = rates.script_scores(
        script,
        found.evaluated()[:100],
        found.world,
        measured=Measured(f"script:{script.__name__}", "2026-05-02", "guess"),
        samples=samples,
        references=references,
    )
    whole: dict[str, Any] = task_metrics(rows, ks=(1, samples), seed=0, resamples=200)["overall"]
    return whole


def test_the_exact_rates_lie_in_the_intervals_of_the_policies_that_are_run() -> None:
    found = market()
    exact = rates.guessing_rates(rates.row_shares(found.evaluated()[:100], found.world, found.scorer), seed=0)
    drawn, first = _metrics(miners.random_row, 8), _metrics(miners.first_row, 1)
    assert drawn["success_rate"]["value"] == pytest.approx(exact["random_row"].value, abs=0.05)
    assert drawn["pass_at_k"]["8"]["value"] == pytest.approx(exact["random_row_pass@8"].value, abs=0.12)
    assert first["success_rate"]["value"] == pytest.approx(exact["first_row"].value)
    assert drawn["hallucinated"]["value"] == 0.0


def test_the_process_score_tells_a_guess_from_the_teacher() -> None:
    found = market()
    teacher = rates.script_scores(
        miners.scan, found.evaluated()[:100], found.world, measured=Measured("script:scan", "2026-05-02", "guess")
    )
    assert all(row["success"] for row in teacher)
    references = references_from_rows(
        {"problem_key": rollout["problem_key"], "trace_id": rollout["trace_id"], "messages": rollout["messages"]}
        for rollout in rates.script_rollouts(
            miners.scan, found.evaluated()[:100], found.world, measured=Measured("t", "2026-05-02", "guess")
        )
    )
    good, guess = _metrics(miners.scan, 1, references), _metrics(miners.random_row, 1, references)
    assert good["process_score"]["value"] == pytest.approx(1.0, abs=0.05)
    assert guess["process_score"]["value"] < good["process_score"]["value"] - 0.05
