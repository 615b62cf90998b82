"""Intervals over leak clusters, thin days and the baseline beside the score."""

from __future__ import annotations

import random
from typing import Any

import pytest

from trajectory_platform.evaluation.metrics import action_metrics, cluster_bootstrap, metric_lines, wilson
from trajectory_platform.evaluation.plan import ActionPlan

PLAN = ActionPlan(bootstrap=500, thin_below=20)


def score(
    number: int, *, cluster: str, correct: bool, tool: str = "find_product", category: str = "product"
) -> dict[str, Any]:
    return {
        "trace_id": f"t{number:04d}",
        "turn": 0,
        "category": category,
        "cluster_id": cluster,
        "expected_tool": tool,
        "tool_correct": correct,
        "arguments_correct": False,
        "parse_error": None if correct else "truncated",
        "clipped": not correct,
    }


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (38, 100, 0.2909, 0.4779)],
)
def test_wilson_against_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == pytest.approx((low, high), abs=5e-4)


def test_no_interval_without_turns() -> None:
    assert wilson(0, 0) is None


def test_one_cluster_says_nothing_about_others() -> None:
    assert cluster_bootstrap([("a", True)] * 50, seed=0, resamples=200) is None


def test_whole_clusters_are_drawn_so_alike_turns_widen_the_interval() -> None:
    alike = [(f"c{number // 20}", (number // 20) % 2 == 0) for number in range(400)]
    apart = [(f"c{number}", number % 2 == 0) for number in range(400)]
    wide, narrow = (cluster_bootstrap(values, seed=1, resamples=1000) for values in (alike, apart))
    assert wide is not None and narrow is not None
    assert wide[1] - wide[0] > 3 * (narrow[1] - narrow[0])
    independent = wilson(200, 400)
    assert independent is not None and narrow == pytest.approx(independent, abs=0.02)


def test_the_interval_does_not_depend_on_the_order_of_rows() -> None:
    values = [(f"c{number % 30}", number % 3 == 0) for number in range(300)]
    shuffled = values[:]
    random.Random(5).shuffle(shuffled)
    assert cluster_bootstrap(values, seed=2, resamples=300) == cluster_bootstrap(shuffled, seed=2, resamples=300)


def test_an_empty_day_is_named_and_has_no_number() -> None:
    metrics = action_metrics([], PLAN)
    assert metrics == {
        "state": "no_dev_traces",
        "categories": [{"category": "all", "state": "no_dev_traces", "turns": 0, "clusters": 0}],
    }
    assert metric_lines(metrics) == ["all: no dev traces to score on"]


def test_a_thin_category_is_marked_and_a_full_one_is_not() -> None:
    rows = [score(number, cluster=f"c{number}", correct=True) for number in range(25)]
    rows += [score(100 + number, cluster=f"s{number}", correct=False, category="shop") for number in range(3)]
    states = {entry["category"]: entry["state"] for entry in action_metrics(rows, PLAN)["categories"]}
    assert states == {"all": "ok", "product": "ok", "shop": "thin"}
    lines = metric_lines(action_metrics(rows, PLAN))
    assert ["thin" in line for line in lines] == [False, False, True]
    assert all("n = " in line for line in lines)


def test_the_majority_tool_stands_beside_the_score() -> None:
    rows = [score(number, cluster=f"c{number}", correct=number < 10) for number in range(30)]
    rows += [score(100 + number, cluster=f"d{number}", correct=False, tool="terminate") for number in range(10)]
    entry = action_metrics(rows, PLAN)["categories"][0]
    assert (entry["majority_tool"], entry["majority_share"]) == ("find_product", 0.75)
    assert (entry["tool"]["share"], entry["tool"]["n"], entry["parse_errors"]) == (0.25, 40, 30)
