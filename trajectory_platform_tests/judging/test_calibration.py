"""Agreement of judges with the validators: numbers, their uncertainty, and when there is none (case E07)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from trajectory_platform.judging import agreement, calibration
from trajectory_platform.judging.calibration import Calibration, calibrate
from trajectory_platform_tests.conftest import shared_folder

stats = pytest.importorskip("scipy.stats", reason="scipy is a development dependency")
GRID = (0.1, 0.3, 0.5, 0.7, 0.9)
CASE = shared_folder() / "cases" / "E07.json"


def row(trace: str, kind: str, quality: float | None, **more: Any) -> dict[str, Any]:
    """One VERDICTS row, as far as a calibration reads it."""
    return {
        "trace_id": trace,
        "judge_kind": kind,
        "judge_model": {"validator": "v-1", "rules": "rules-x", "llm": "cheap"}[kind],
        "reasoning_quality": quality,
        "null_reason": None if quality is not None else "failed",
        "rubric_version": "r1",
        "score_regime": {"validator": "discrete"}.get(kind, kind),
        **more,
    }


def verdicts(
    pairs: Sequence[tuple[float | None, float | None]], kind: str = "rules", **more: Any
) -> list[dict[str, Any]]:
    """Rows of (validator, judge) pairs."""
    rows = []
    for number, (validator, judge) in enumerate(pairs):
        rows += [row(f"t{number}", "validator", validator, **more), row(f"t{number}", kind, judge)]
    return rows


def one(pairs: Sequence[tuple[float | None, float | None]], **more: Any) -> dict[str, Any]:
    (found,) = calibrate(verdicts(pairs, **more), resamples=100)
    return found


def random_pairs(count: int, noise: float, seed: int = 3) -> list[tuple[float | None, float | None]]:
    rng = Random(seed)
    pairs: list[tuple[float | None, float | None]] = []
    for _ in range(count):
        value = rng.choice(GRID)
        pairs.append((value, rng.choice(GRID) if rng.random() < noise else value))
    return pairs


def test_weighted_kappa_of_a_table_worked_by_hand() -> None:
    # observed disagreement 3/10 and chance 0.5 (2x2: linear and quadratic weights are the same)
    table = np.array([[4.0, 1.0], [2.0, 3.0]])
    assert agreement.weighted_kappa(table, 1) == pytest.approx(1 - 0.3 / 0.5)
    assert agreement.weighted_kappa(table, 2) == pytest.approx(0.4)
    # a far miss costs more under quadratic weights
    near, far = np.diag([5.0] * 5), np.diag([5.0] * 5)
    near[0, 1] = far[0, 4] = 5
    assert agreement.weighted_kappa(near, 2) > agreement.weighted_kappa(far, 2)  # type: ignore[operator]
    assert agreement.weighted_kappa(np.diag([5.0] * 5), 1) == 1.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rank_correlations_with_ties_are_those_of_scipy(seed: int) -> None:
    rng = Random(seed)
    left = [rng.choice(GRID) for _ in range(80)]
    right = [round(value + rng.gauss(0, 0.3), 1) for value in left]
    rows, columns = sorted(set(left)), sorted(set(right))
    table = np.zeros((len(rows), len(columns)))
    for first, second in zip(left, right, strict=True):
        table[rows.index(first), columns.index(second)] += 1
    assert agreement.spearman(table) == pytest.approx(stats.spearmanr(left, right).statistic)
    assert agreement.kendall_tau_b(table) == pytest.approx(stats.kendalltau(left, right).statistic)


def test_a_failed_judgment_is_a_status_and_unequal_rates_are_flagged() -> None:
    """Case E07: the mean is that of the judged, the count says how many, and the pair is flagged."""
    if not CASE.exists():
        pytest.skip(f"{CASE} is not present")
    case = json.loads(CASE.read_text())
    # marks of the case are on another scale: 5 and 4 become 0.9 and 0.7
    scale = {5: 0.9, 4: 0.7}
    pairs = [
        (scale.get(right), None if isinstance(left, dict) else scale[left])
        for left, right in zip(case["input"]["X"], case["input"]["Y"], strict=True)
    ]
    found = one(pairs)
    assert found["judged"] == {"judge": case["expect"]["judged"]["X"], "validator": case["expect"]["judged"]["Y"]}
    assert found["mean"]["judge"] == pytest.approx(0.9) and found["mean"]["validator"] == pytest.approx(0.7)
    assert found["nulls"] == {"judge": {"failed": 1}, "validator": {}}
    assert case["expect"]["flag"] == "unequal_failure_rate" and found["unequal_failure_rate"] is True
    assert found["pairs"] == 2 and found["traces"] == 3


def test_the_confusion_the_gate_and_the_bias_say_who_is_stricter() -> None:
    found = one([(0.9, 0.9)] * 6 + [(0.5, 0.7)] * 3 + [(0.7, 0.3)] * 1 + [(0.3, 0.3)] * 2)
    counts = found["confusion"]["counts"]
    assert counts[4][4] == 6 and counts[2][3] == 3 and counts[3][1] == 1 and sum(map(sum, counts)) == 12
    gate = found["gate"]
    assert [gate[name] for name in ("both", "only_judge", "only_validator", "neither")] == [6, 3, 1, 2]
    assert gate["rates"]["only_judge"] == pytest.approx(0.25)
    assert gate["agreement"]["value"] == pytest.approx(8 / 12)
    assert gate["let_through"]["value"] == pytest.approx(3 / 5)
    assert found["bias"]["value"] == pytest.approx((3 * 0.2 - 0.4) / 12)


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ([(0.7, 0.9), (0.3, 0.9), (0.5, 0.9)], "judge_constant"),
        ([(0.9, 0.7), (0.9, 0.3)], "validator_constant"),
        ([(0.9, 0.9)] * 5, "validator_constant"),
        ([(0.9, 0.9)], "too_few_pairs"),
        ([(0.9, None)], "too_few_pairs"),
    ],
)
def test_kappa_is_undefined_where_a_rater_never_differs(
    pairs: list[tuple[float | None, float | None]], why: str
) -> None:
    kappa = one(pairs)["agreement"]["quadratic_kappa"]
    assert kappa["value"] is None and kappa["undefined"] == why and kappa["low"] is None


def test_eras_are_never_mixed() -> None:
    old = verdicts([(0.62, 0.7), (0.41, 0.3), (0.88, 0.9)], score_regime="continuous")
    early = verdicts([(0.2, 0.7), (0.3, 0.9)], score_regime="continuous_step0_only")
    for number, batch in enumerate((old, early)):
        for entry in batch:
            entry["trace_id"] += f"-{number}"
            if entry["judge_kind"] == "rules":
                entry["score_regime"] = "rules"
    found = {entry["regime"]: entry for entry in calibrate([*old, *early, *verdicts([(0.9, 0.9), (0.3, 0.3)])])}
    assert set(found) == {"continuous", "continuous_step0_only", "discrete"}
    assert found["continuous"]["pairs"] == 3 and found["continuous_step0_only"]["pairs"] == 2
    for regime in ("continuous", "continuous_step0_only"):
        assert set(found[regime]["agreement"]) == {"spearman", "kendall_tau_b"}
        assert found[regime]["gate"] is None and found[regime]["confusion"] is None
    assert found["continuous"]["agreement"]["spearman"]["value"] == pytest.approx(1.0)


def test_several_judges_stand_side_by_side_and_rubrics_apart() -> None:
    rows = verdicts(random_pairs(20, 0.2))
    rows += [row(f"t{number}", "llm", 0.7) for number in range(20)]
    rows += [row(f"t{number}", "llm", 0.9, rubric_version="r2") for number in range(20)]
    found = calibrate(rows, resamples=20)
    assert [(entry["judge_kind"], entry["rubric_version"]) for entry in found] == [
        ("llm", "r1"),
        ("llm", "r2"),
        ("rules", "r1"),
    ]


def test_the_order_of_rows_and_days_changes_nothing() -> None:
    rows = verdicts(random_pairs(60, 0.3))
    agents = {f"t{number}": f"a{number % 9}" for number in range(60)}
    shuffled = list(rows)
    Random(5).shuffle(shuffled)
    straight = calibrate(rows, agents=agents, resamples=50)
    assert straight == calibrate(shuffled, agents=agents, resamples=50)
    by_day = Calibration(resamples=50)
    for trace in sorted({entry["trace_id"] for entry in rows}, reverse=True):
        by_day.add([entry for entry in rows if entry["trace_id"] == trace], agents)
    assert by_day.report() == straight


def test_traces_of_one_agent_count_as_one_voice() -> None:
    """Copies of the same trace must not narrow the interval when they come from one agent version."""
    pairs = random_pairs(20, 0.4)
    many = [pair for pair in pairs for _ in range(10)]
    agents = {f"t{number}": f"agent-{number // 10}" for number in range(200)}
    (apart,) = calibrate(verdicts(many))
    (together,) = calibrate(verdicts(many), agents=agents)
    width = [
        entry["agreement"]["quadratic_kappa"]["high"] - entry["agreement"]["quadratic_kappa"]["low"]
        for entry in (apart, together)
    ]
    assert together["clusters"] == 20 and apart["clusters"] == 200
    assert width[1] > 2 * width[0]
    (few,) = calibrate(verdicts(many), agents=dict.fromkeys(agents, "only-one"))
    assert few["agreement"]["quadratic_kappa"]["no_interval"] == f"fewer than {agreement.MIN_CLUSTERS} clusters"


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    truth = one(random_pairs(20_000, 0.3, seed=0))["agreement"]["quadratic_kappa"]["value"]
    held = 0
    for seed in range(60):
        kappa = one(random_pairs(120, 0.3, seed=seed + 1))["agreement"]["quadratic_kappa"]
        held += kappa["low"] <= truth <= kappa["high"]
    assert held >= 50


def test_the_reading_follows_the_documented_thresholds() -> None:
    assert one(random_pairs(400, 0.0))["reading"] == "trust"
    assert one(random_pairs(400, 0.35))["reading"] == "use with care"
    assert one(random_pairs(400, 1.0))["reading"] == "do not use"
    assert one(random_pairs(20, 0.0))["reading"] == "cannot tell"
    order = ["do not use", "use with care", "trust"]
    words = [one(random_pairs(400, noise))["reading"] for noise in (0.0, 0.1, 0.2, 0.5, 0.8)]
    assert all(order.index(left) >= order.index(right) for left, right in pairwise(words))
    selected = [(value, value if number % 8 else None) for number, (value, _) in enumerate(random_pairs(400, 0))]
    flagged = one(selected)
    assert flagged["reading"] == "use with care" and any("selection" in sentence for sentence in flagged["why"])
    lenient = [(value, max(value or 0, 0.7)) for value, _ in random_pairs(400, 0)]
    assert one(lenient)["reading"] == "do not use"
    early = one([(value, value) for value, _ in random_pairs(400, 0)], score_regime="continuous_step0_only")
    assert early["reading"] == "cannot tell"


def test_every_number_of_the_reading_names_its_threshold() -> None:
    why = " ".join(one(random_pairs(400, 0.35))["why"])
    for threshold in (calibration.TRUST_KAPPA, calibration.POOR_KAPPA, calibration.TRUST_BIAS, calibration.POOR_BIAS):
        assert str(threshold) in why
    assert f"{calibration.TRUST_GATE:.0%}" in why and f"{calibration.TRUST_LET_THROUGH:.0%}" in why


def test_the_bias_of_each_validator_model_is_told_apart() -> None:
    rows = verdicts([(0.5, 0.7)] * 6) + []
    for number, entry in enumerate(rows):
        if entry["judge_kind"] == "validator":
            entry["judge_model"] = "strict" if number < 6 else "fair"
            entry["reasoning_quality"] = 0.5 if number < 6 else 0.7
    (found,) = calibrate(rows)
    bias = {entry["model"]: entry["bias"]["value"] for entry in found["validator_models"]}
    assert bias == {"strict": pytest.approx(0.2), "fair": pytest.approx(0.0)}
