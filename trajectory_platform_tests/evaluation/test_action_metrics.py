"""Teacher-forced scores: thin days, sound intervals and the baseline beside the score."""

from __future__ import annotations

from typing import Any

from trajectory_platform.evaluation.action_metrics import action_metrics, metric_lines
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


def test_all_right_or_all_wrong_is_not_certainty() -> None:
    rows = [score(number, cluster=f"c{number}", correct=True) for number in range(30)]
    entry = action_metrics(rows, PLAN)["categories"][0]
    for name, share in (("tool", 1.0), ("arguments", 0.0)):
        low, high = entry[name]["bootstrap"]
        assert entry[name]["share"] == share and low < high and low <= share <= high
        assert entry[name]["bootstrap_method"] == "unseen_cluster_bound"
    assert "[88%, 100%]" in metric_lines(action_metrics(rows, PLAN))[0]


def test_one_cluster_has_no_bootstrap_interval() -> None:
    entry = action_metrics([score(number, cluster="c", correct=number < 3) for number in range(9)], PLAN)["categories"][
        0
    ]
    assert entry["tool"]["bootstrap"] is None and entry["tool"]["bootstrap_method"] is None
    assert entry["tool"]["wilson"] is not None and entry["state"] == "thin"
