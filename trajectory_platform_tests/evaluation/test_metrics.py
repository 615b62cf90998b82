"""Production-strict task metrics: hand-computed cases, what counts as a failure, what is refused, and properties."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.attempts import Planned
from trajectory_platform.evaluation.metrics import task_metrics
from trajectory_platform_tests.evaluation.score_rows import no_reward, no_trace, random_rows, score_row

Rows = list[dict[str, Any]]


def measured(rows: Rows, **more: Any) -> dict[str, Any]:
    return task_metrics(rows, **{"seed": 0, "resamples": 200, **more})


def by_hand() -> Rows:
    """Two products of one cluster (2 of 4 and 0 of 4 attempts right), one shop problem (4 of 4)."""
    rows = [score_row("a", sample, success=sample < 2, cluster="x") for sample in range(4)]
    rows += [score_row("b", sample, cluster="x") for sample in range(4)]
    rows += [score_row("c", sample, success=True, category="shop", cluster="y") for sample in range(4)]
    return rows


def test_a_case_computed_by_hand() -> None:
    result = measured(by_hand())
    overall, product = result["overall"], result["categories"]["product"]
    assert overall["success_rate"]["value"] == pytest.approx((0.5 + 0 + 1) / 3)
    assert result["macro"]["value"] == pytest.approx((0.25 + 1) / 2)  # by category, not by problem
    assert product["success_rate"]["value"] == 0.25
    assert product["pass_at_k"]["2"]["value"] == pytest.approx((1 - 1 / 6 + 0) / 2)  # C(2,2) / C(4,2) = 1 / 6
    assert (overall["problems"], overall["attempts"], overall["clusters"]) == (3, 12, 2)
    assert (overall["solved_problems"], overall["successful_attempts"]) == (2, 6)
    assert set(result["averages"]) == {"success_rate", "macro"}


def test_every_way_to_fail_stays_in_the_denominator() -> None:
    rows = [score_row("a", success=True)]
    rows += [no_trace(f"p-{name}", 0, name) for name in ("crash", "timeout", "unscorable")]
    overall = measured(rows)["overall"]
    assert overall["success_rate"]["value"] == 0.25 and overall["success_rate"]["n"] == 4
    assert overall["outcomes"] == {"crash": 1, "success": 1, "timeout": 1, "unscorable": 1}
    assert overall["reasons"] == {"crash": 1, "timeout": 1, "unscorable": 1}


def test_problems_without_a_reward_are_counted_apart_and_change_nothing() -> None:
    with_them = measured([*by_hand(), no_reward("h1"), no_reward("h2")])
    assert with_them["no_reward"] == {"problems": 2, "attempts": 2}
    without = measured(by_hand())
    assert (with_them["overall"], with_them["categories"], with_them["macro"]) == (
        without["overall"],
        without["categories"],
        without["macro"],
    )


def test_only_rewardless_problems_are_no_evaluation() -> None:
    for rows in ([], [no_reward("h")]):
        result = measured(rows)
        assert result["state"] == "no_evaluable_problems" and "success_rate" not in result["overall"]
        assert result["macro"]["value"] is None and result["categories"] == {}


def test_case_c14_no_rows_given_is_an_error_and_never_a_made_up_set(shared: Path) -> None:
    case = json.loads((shared / "cases/C14.json").read_text())
    assert case["input"]["eval"] is None
    with pytest.raises(FailPartition, match=case["expect"]["reason"]):
        task_metrics(case["input"]["eval"], seed=0, resamples=100)


# ------------------------------------------------------------------------------------------- planned


def planned(rows: Rows, samples: int) -> dict[str, Planned]:
    return {row["problem_key"]: Planned(samples, row["category"], row["cluster_id"]) for row in rows}


def test_a_planned_attempt_without_a_row_is_a_failure_with_a_name() -> None:
    rows = by_hand()
    kept = [row for row in rows if (row["problem_key"], row["sample"]) not in {("a", 0), ("c", 3)}]
    result = measured(kept, planned=planned(rows, 4))
    assert result["missing"] == {
        "attempts": 2,
        "named": [{"problem_key": "a", "samples": [0]}, {"problem_key": "c", "samples": [3]}],
    }
    assert result["overall"]["outcomes"] == {"failure": 6, "missing": 2, "success": 4}
    assert result["overall"]["success_rate"]["value"] == pytest.approx((0.25 + 0 + 0.75) / 3)
    assert result["overall"]["pass_at_k"]["4"]["short_problems"] == 0
    assert (result["overall"]["attempts"], result["overall"]["recorded"]) == (12, 10)


def test_a_problem_of_which_nothing_is_left_still_counts() -> None:
    plan = {**planned(by_hand(), 4), "d": Planned(4, "voucher", "z")}
    result = measured(by_hand(), planned=plan)
    assert result["overall"]["success_rate"]["value"] == pytest.approx(1.5 / 4)
    assert result["categories"]["voucher"]["success_rate"]["value"] == 0.0
    assert result["categories"]["voucher"]["outcomes"] == {"missing": 4}


def test_an_evaluation_that_crashed_at_once_is_zero_not_perfect() -> None:
    result = measured([], planned={"a": Planned(8, "product", "x"), "b": Planned(8, "product", "y")})
    assert result["checkpoint_id"] is None and result["state"] == "thin"
    assert {k: one["value"] for k, one in result["overall"]["pass_at_k"].items()} == dict.fromkeys("1248", 0.0)


def test_missing_and_crashed_attempts_weigh_the_same() -> None:
    rows = random_rows(4, problems=30, samples=3, rate=0.5)
    lost = [row for row in rows if row["sample"] != 1]
    crashed = lost + [
        no_trace(
            row["problem_key"], 1, "crash", checkpoint_id="ck", category=row["category"], cluster=row["cluster_id"]
        )
        for row in rows
        if row["sample"] == 1
    ]
    one, other = measured(lost, planned=planned(rows, 3))["overall"], measured(crashed)["overall"]
    assert one["success_rate"] == other["success_rate"] and one["pass_at_k"] == other["pass_at_k"]
    assert one["process_score"]["value"] == other["process_score"]["value"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([score_row("a"), score_row("a")], "attempt_twice"),
        ([score_row("a"), score_row("b", checkpoint_id="other")], "several_checkpoints"),
        ([score_row("a", 0), score_row("a", 1, category="shop")], "problem_in_two_places"),
        ([score_row("a", 0), score_row("a", 1, cluster="elsewhere")], "problem_in_two_places"),
        ([score_row("a", outcome="failure", success=None)], "outcome_contradiction"),
        ([score_row("a", outcome="unscorable", success=True)], "outcome_contradiction"),
        ([no_reward("a", success=False)], "outcome_contradiction"),
        ([score_row("a", 1), no_reward("a")], "reward_contradiction"),
        ([score_row("a", outcome="lucky")], "unknown_outcome"),
        ([score_row("a", process_score=float("nan"))], "number_out_of_range"),
        ([score_row("a", cost_usd=float("inf"))], "number_out_of_range"),
        ([score_row("a", seconds=-1.0)], "number_out_of_range"),
        ([score_row("a", seconds=1e308), score_row("b", seconds=1e308)], "number_out_of_range"),
        ([score_row("a", steps=10**5000)], "number_out_of_range"),
        ([score_row("a", format=1.5)], "number_out_of_range"),
        ([score_row("a"), score_row("b", problem_key=5)], "wrong_type: problem_key"),
        ([score_row("a", checkpoint_id=1), score_row("b", checkpoint_id=2)], "wrong_type: checkpoint_id"),
        ([score_row("a", sample=True)], "wrong_type: sample"),
        ([score_row("a", discipline="no_terminate")], "wrong_type: discipline"),
        ([score_row("a", cluster=None, cluster_id=None)], "wrong_type: cluster_id"),
    ],
)
def test_rows_that_contradict_one_another_are_refused(rows: Rows, reason: str) -> None:
    with pytest.raises(FailPartition, match=reason):
        measured(rows)


def test_attempts_beyond_the_plan_are_refused() -> None:
    for plan in ({"b": Planned(1, "product", "cluster-b")}, {"a": Planned(1, "product", "cluster-a")}):
        with pytest.raises(FailPartition, match="attempt_not_planned"):
            measured([score_row("a", 0), score_row("a", 1)], planned=plan)


# ----------------------------------------------------------------------------------- conduct and costs


def test_ids_never_seen_and_ids_never_opened_are_counted_separately() -> None:
    rows = [
        score_row("a", hallucinated_ids=["1", "2", "3"]),
        score_row("b", unviewed_ids=["4"]),
        score_row("c", success=True),
        no_trace("d", 0, "crash"),  # left no trace: says nothing about ids
    ]
    overall = measured(rows)["overall"]
    seen = {
        kind: {key: overall[kind][key] for key in ("attempts", "ids", "n")} for kind in ("hallucinated", "unviewed")
    }
    assert seen == {
        "hallucinated": {"attempts": 1, "ids": 3, "n": 3},
        "unviewed": {"attempts": 1, "ids": 1, "n": 3},
    }
    assert overall["hallucinated"]["value"] == pytest.approx(1 / 3)


def test_discipline_is_a_share_of_attempts_per_violation() -> None:
    rows = [
        score_row("a", discipline=["several_recommends", "no_terminate"]),
        score_row("b", discipline=["no_terminate"]),
        score_row("c"),
        score_row("d"),
    ]
    discipline = measured(rows)["overall"]["discipline"]
    assert discipline["clean"]["value"] == 0.5
    assert discipline["violations"] == {
        "no_terminate": {"attempts": 2, "share": 0.5},
        "several_recommends": {"attempts": 1, "share": 0.25},
    }


def test_scores_an_attempt_did_not_get_are_zero_in_the_mean() -> None:
    rows = [score_row("a", process_score=0.8), no_trace("b", 0, "timeout")]
    found = measured(rows)["overall"]["process_score"]
    assert (found["value"], found["scored_attempts"]) == (0.4, 1)


def test_problems_without_a_reference_say_nothing_about_the_process() -> None:
    alone = {"process_score": None, "process_reference": None, "process_version": None}
    rows = [score_row("a", process_score=-0.6), score_row("b", 0, **alone), score_row("b", 1, **alone)]
    found = measured(rows)["overall"]["process_score"]
    assert (found["value"], found["n"], found["scored_attempts"]) == (-0.6, 1, 1)
    none = measured([score_row("a", **alone)])["overall"]["process_score"]
    assert (none["value"], none["n"]) == (None, 0)


def test_costs_count_failures_and_are_undefined_where_nothing_was_solved() -> None:
    rows = [score_row("a", 0, success=True), score_row("a", 1, success=True), score_row("b", 0), score_row("b", 1)]
    cost = measured(rows)["overall"]["usage"]["cost_usd"]
    assert {key: pytest.approx(value) for key, value in cost.items()} == {
        "total": 0.04, "per_attempt": 0.01, "per_success": 0.02, "per_solved_problem": 0.04, "unknown": 0,
    }  # fmt: skip
    nothing = measured([score_row("a"), score_row("b")])["overall"]["usage"]["tokens"]
    assert (nothing["per_attempt"], nothing["per_success"], nothing["per_solved_problem"]) == (1200, None, None)


def test_tokens_that_were_not_reported_are_unknown_not_zero() -> None:
    rows = [score_row("a", success=True), score_row("b", prompt_tokens=None)]
    tokens = measured(rows)["overall"]["usage"]
    assert (tokens["tokens"]["per_attempt"], tokens["tokens"]["unknown"]) == (1200, 1)
    assert (tokens["completion_tokens"]["per_attempt"], tokens["completion_tokens"]["unknown"]) == (200, 0)


def test_truncated_and_lenient_stand_beside_the_strict_score() -> None:
    rows = [
        score_row("a", truncated=True),
        score_row("b", lenient_success=True),
        score_row("c", success=True),
        score_row("d", lenient_success=None),
    ]
    overall = measured(rows)["overall"]
    assert (overall["truncated"]["value"], overall["success_rate"]["value"]) == (0.25, 0.25)
    assert (overall["lenient_success_rate"]["value"], overall["lenient_success_rate"]["unknown"]) == (0.5, 1)


# ------------------------------------------------------------------------------------------ intervals


def test_no_success_at_all_has_an_interval_above_zero_and_says_why() -> None:
    rate = measured([score_row(f"p{number}") for number in range(75)])["overall"]["success_rate"]
    assert rate["value"] == 0.0 and rate["interval"]["low"] == 0.0
    assert 0.04 < rate["interval"]["high"] < 0.06 and "no width" in rate["interval"]["note"]


def test_the_interval_of_the_papers_size_is_about_eleven_points_each_way() -> None:
    """32 of 75 problems, as behind the published 42.7 % (domain 5.2)."""
    rows = [score_row(f"p{number}", success=number < 32) for number in range(75)]
    rate = measured(rows, resamples=2000)["overall"]["success_rate"]
    half = (rate["interval"]["high"] - rate["interval"]["low"]) / 2
    assert rate["value"] == pytest.approx(0.4267, abs=1e-4) and half == pytest.approx(0.11, abs=0.01)


def test_thin_and_single_clusters_are_marked() -> None:
    rows = [score_row(f"p{number}", success=number % 2 == 0, cluster=f"c{number}") for number in range(30)]
    rows += [score_row(f"s{number}", category="shop", cluster="one") for number in range(9)]
    result = measured(rows)
    assert (result["state"], result["categories"]["shop"]["state"]) == ("ok", "thin")
    assert result["categories"]["shop"]["success_rate"]["interval"] is None
    assert result["categories"]["shop"]["success_rate"]["clusters"] == 1
    assert result["macro"]["value"] is not None and result["macro"]["interval"] is None


def test_problems_of_one_cluster_are_drawn_together() -> None:
    def width(clusters: int) -> float:
        rows = [
            score_row(f"p{number}", success=(number % clusters) % 2 == 0, cluster=f"c{number % clusters}")
            for number in range(200)
        ]
        interval = measured(rows, resamples=1000)["overall"]["success_rate"]["interval"]
        return float(interval["high"] - interval["low"])

    assert width(20) > 2.5 * width(200)


def test_attempts_at_one_problem_stay_together() -> None:
    few = [score_row(f"p{number}", 0, success=number % 2 == 0) for number in range(40)]
    many = [score_row(f"p{number}", sample, success=number % 2 == 0) for number in range(40) for sample in range(8)]
    assert measured(few)["overall"]["success_rate"] == measured(many)["overall"]["success_rate"]


# ----------------------------------------------------------------------------------------- properties


OUTCOMES = st.sampled_from(["success", "failure", "crash", "timeout", "unscorable"])
PROBLEMS = st.lists(
    st.tuples(
        st.sampled_from(["product", "shop"]), st.sampled_from("uvwxyz"), st.lists(OUTCOMES, min_size=1, max_size=4)
    ),
    min_size=1,
    max_size=12,
)


def rows_of(problems: list[tuple[str, str, list[str]]]) -> Rows:
    return [
        score_row(
            f"p{number:02d}", sample, success=outcome == "success", outcome=outcome, category=category, cluster=name
        )
        for number, (category, name, outcomes) in enumerate(problems)
        for sample, outcome in enumerate(outcomes)
    ]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(PROBLEMS, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_of_problems_plays_no_part(
    problems: list[tuple[str, str, list[str]]], shuffler: random.Random
) -> None:
    rows = rows_of(problems)
    shuffled = rows[:]
    shuffler.shuffle(shuffled)
    assert measured(shuffled, resamples=50) == measured(rows, resamples=50)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(PROBLEMS)
def test_what_holds_for_any_evaluation(problems: list[tuple[str, str, list[str]]]) -> None:
    result = measured(rows_of(problems), resamples=50, ks=(1, 2, 3, 4))
    orjson.dumps(result)  # JSON types only
    for entry in (result["overall"], *result["categories"].values()):
        passed = {k: one["value"] for k, one in entry["pass_at_k"].items() if one["short_problems"] == 0}
        assert passed.get("1") == pytest.approx(entry["success_rate"]["value"])
        assert list(passed.values()) == sorted(passed.values())
        assert max(passed.values()) <= entry["solved_problems"] / entry["problems"] + 1e-12
        for one in (entry["success_rate"], entry["hallucinated"], entry["process_score"], *entry["pass_at_k"].values()):
            if one["interval"] is not None:
                assert one["interval"]["low"] <= one["value"] + 1e-12
                assert one["value"] - 1e-12 <= one["interval"]["high"] <= 1
    rates = [entry["success_rate"]["value"] for entry in result["categories"].values()]
    assert result["macro"]["value"] == pytest.approx(sum(rates) / len(rates))
    assert min(rates) - 1e-12 <= result["overall"]["success_rate"]["value"] <= max(rates) + 1e-12


def test_pass_at_n_is_any_success() -> None:
    overall = measured(random_rows(1, problems=40, samples=4, rate=0.3), ks=(1, 4))["overall"]
    assert overall["pass_at_k"]["4"]["value"] == pytest.approx(overall["solved_problems"] / 40)


def test_one_more_failure_never_raises_the_rate() -> None:
    rows = random_rows(2, problems=40, samples=1, rate=0.5)
    before = measured(rows)["overall"]["success_rate"]["value"]
    assert (
        measured([*rows, no_trace("new", 0, "crash", checkpoint_id="ck")])["overall"]["success_rate"]["value"] < before
    )


def test_micro_and_macro_agree_where_categories_are_equally_large() -> None:
    result = measured(random_rows(3, problems=60, samples=2, rate=0.4))
    assert result["macro"]["value"] == pytest.approx(result["overall"]["success_rate"]["value"])
    micro, macro = result["overall"]["success_rate"]["interval"], result["macro"]["interval"]
    assert (macro["low"], macro["high"]) == pytest.approx((micro["low"], micro["high"]), abs=0.04)


def test_a_category_alone_gives_the_same_scores() -> None:
    rows = random_rows(5, problems=60, samples=2, rate=0.4)
    alone = measured([row for row in rows if row["category"] == "shop"])
    assert alone["overall"] == measured(rows)["categories"]["shop"]


def test_ten_thousand_rows_and_two_thousand_resamples_take_about_a_second() -> None:
    rows = random_rows(6, problems=1250, samples=8, rate=0.4)
    started = time.process_time()
    measured(rows, resamples=2000)
    assert time.process_time() - started < 2.0  # about 0.2 s on the development machine
