"""Two policies on the same problems: paired, clustered, honest about what it could have seen."""

from __future__ import annotations

import random
from typing import Any

import numpy
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.attempts import Planned
from trajectory_platform.evaluation.comparison import compare, randomisation_test, sign_test, smallest_detectable, words
from trajectory_platform_tests.evaluation.score_rows import no_reward, random_rows, score_row

stats = pytest.importorskip("scipy.stats", reason="scipy is a development dependency")
Rows = list[dict[str, Any]]


def compared(rows_a: Rows, rows_b: Rows, **more: Any) -> dict[str, Any]:
    return compare(rows_a, rows_b, **{"seed": 0, "resamples": 500, **more})


def outcomes(name: str, marks: str, **more: Any) -> Rows:
    """One attempt per problem; ``+`` is a success."""
    return [
        score_row(f"p{number:03d}", success=mark == "+", checkpoint_id=name, **more)
        for number, mark in enumerate(marks)
    ]


def test_a_case_computed_by_hand() -> None:
    """6 better, 1 worse, 13 alike: McNemar's exact p = 2 * (C(7,0) + C(7,1)) / 2^7 = 0.125."""
    a = outcomes("a", "------+" + "+" * 6 + "-" * 7)
    b = outcomes("b", "++++++-" + "+" * 6 + "-" * 7)
    overall = compared(a, b)["overall"]
    assert (overall["a"], overall["b"]) == (0.35, 0.6)
    assert overall["difference"]["value"] == pytest.approx(0.25)
    problems = overall["tests"]["problems"]
    assert (problems["test"], problems["better"], problems["worse"], problems["equal"]) == ("exact McNemar", 6, 1, 13)
    assert problems["p_value"] == 0.125 == overall["tests"]["mean_over_clusters"]["p_value"]
    assert overall["verdict"] == "undecided"


def test_a_clear_gain_is_called_one_and_its_mirror_a_loss() -> None:
    a, b = outcomes("a", "-" * 30 + "+" * 30), outcomes("b", "+" * 25 + "-" * 5 + "+" * 30)
    there, back = compared(a, b)["overall"], compared(b, a)["overall"]
    assert (there["verdict"], back["verdict"]) == ("better", "worse")
    assert there["difference"]["value"] == pytest.approx(-back["difference"]["value"])
    assert there["tests"] == {
        **back["tests"],
        **{name: {**back["tests"][name], "better": 25, "worse": 0} for name in ("problems", "clusters")},
    }
    assert any("b is better" in line for line in there["words"])
    named = words(there, a="base", b="sft")
    assert named[0].startswith("sft minus base: +") and any(line.startswith("sft is better") for line in named)


def test_a_policy_against_itself_shows_nothing_and_claims_no_certainty() -> None:
    rows = random_rows(1, problems=60, samples=2, rate=0.5)
    overall = compared(rows, rows)["overall"]
    low, high = overall["difference"]["interval"]["low"], overall["difference"]["interval"]["high"]
    assert overall["difference"]["value"] == 0 and low < 0 < high and low == pytest.approx(-high)
    assert overall["verdict"] == "undecided" and overall["tests"]["clusters"]["p_value"] == 1.0
    assert not any("surely" in line for line in overall["words"])
    assert overall["smallest_detectable"]["upper_bound"] and overall["smallest_detectable"]["value"] > 0


def test_what_only_one_side_has_is_left_out_and_named() -> None:
    a = [*outcomes("a", "+-+-"), score_row("only-a", checkpoint_id="a"), no_reward("hidden", checkpoint_id="a")]
    b = [*outcomes("b", "++--"), score_row("only-b", checkpoint_id="b"), score_row("hidden", checkpoint_id="b")]
    result = compared(a, b)
    assert result["dropped"] == {"only_in_a": ["only-a"], "only_in_b": ["only-b"], "no_reward": ["hidden"]}
    assert result["overall"]["problems"] == 4 and result["overall"]["difference"]["value"] == 0


def test_nothing_shared_is_refused() -> None:
    with pytest.raises(Abort, match="nothing_shared"):
        compared([score_row("x", checkpoint_id="a")], [score_row("y", checkpoint_id="b")])


def test_a_problem_in_two_categories_is_refused() -> None:
    with pytest.raises(FailPartition, match="problem_in_two_places"):
        compared([score_row("x")], [score_row("x", category="shop")])


def test_a_lost_attempt_counts_against_its_side() -> None:
    a, b = outcomes("a", "++++"), outcomes("b", "++++")
    plan = {row["problem_key"]: Planned(1, row["category"], row["cluster_id"]) for row in a}
    assert compared(a, b[:2], planned_b=plan)["overall"]["difference"]["value"] == -0.5


def test_clusters_that_merged_between_two_days_are_one() -> None:
    """On the later day p000 and p001 are one cluster, and so are p001 and p002 on the earlier one."""
    a, b = outcomes("a", "+-+-"), outcomes("b", "-++-")
    a[1]["cluster_id"] = a[2]["cluster_id"] = "early"
    b[0]["cluster_id"] = b[1]["cluster_id"] = "late"
    assert compared(a, b)["overall"]["clusters"] == 2


def test_the_pairing_makes_small_differences_visible() -> None:
    """Two policies that agree on 90 of 100 problems: far narrower than two separate samples would be."""
    a = outcomes("a", "+" * 45 + "-" * 45 + "-" * 10)
    b = outcomes("b", "+" * 45 + "-" * 45 + "+" * 10)
    interval = compared(a, b)["overall"]["difference"]["interval"]
    unpaired = 1.96 * (0.45 * 0.55 / 100 + 0.55 * 0.45 / 100) ** 0.5
    assert interval["low"] > 0 and interval["high"] - interval["low"] < 2 * unpaired


def test_alike_problems_of_one_cluster_are_one_piece_of_evidence() -> None:
    apart_a, apart_b = outcomes("a", "-" * 12 + "+" * 28), outcomes("b", "+" * 12 + "+" * 28)
    alike_a, alike_b = ([{**row, "cluster_id": f"c{int(row['problem_key'][1:]) // 12}"} for row in rows]
                        for rows in (apart_a, apart_b))  # fmt: skip
    apart, alike = compared(apart_a, apart_b)["overall"], compared(alike_a, alike_b)["overall"]
    assert apart["verdict"] == "better" and alike["verdict"] == "undecided"
    assert alike["tests"]["problems"]["p_value"] < 0.01 < alike["tests"]["clusters"]["p_value"] == 1.0


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 9))
def test_the_sign_test_is_scipys_binomial_test(better: int, worse: int, equal: int) -> None:
    found = sign_test([0.5] * better + [-1.0] * worse + [0.0] * equal)
    expected = stats.binomtest(better, better + worse).pvalue if better + worse else 1.0
    assert found["p_value"] == pytest.approx(expected, rel=1e-9)
    assert (found["better"], found["worse"], found["equal"]) == (better, worse, equal)


def test_the_sign_test_of_thousands() -> None:
    found = sign_test([1.0] * 2100 + [-1.0] * 1900)
    assert found["p_value"] == pytest.approx(stats.binomtest(2100, 4000).pvalue, rel=1e-9)


def test_the_randomisation_test_is_scipys_permutation_test() -> None:
    gains = [0.5, -0.25, 1.0, 0.75, 0.0, -0.5, 1.0, 0.25, 0.25]
    expected = stats.permutation_test(
        (numpy.array(gains), numpy.zeros(len(gains))),
        lambda x, y: numpy.mean(x - y),
        permutation_type="samples",
        n_resamples=numpy.inf,
    ).pvalue
    found = randomisation_test(gains, seed=0, resamples=10)
    assert found["exact"] and found["p_value"] == pytest.approx(expected)


def test_many_clusters_are_tossed_and_agree_with_the_normal_law() -> None:
    gains = list(numpy.random.default_rng(0).normal(0.1, 1.0, 400))
    found = randomisation_test(gains, seed=0, resamples=4000)
    z = sum(gains) / sum(gain * gain for gain in gains) ** 0.5
    assert not found["exact"] and found["p_value"] == pytest.approx(2 * stats.norm.sf(abs(z)), abs=0.02)
    assert randomisation_test([0.0] * 30, seed=0, resamples=10)["p_value"] == 1.0


def test_the_smallest_detectable_difference_is_found_four_times_in_five() -> None:
    """A simulation with a true difference of just that size, tested with the normal test it is made for."""
    size, draw = 200, numpy.random.default_rng(4)
    spread = draw.choice([-1.0, 0.0, 1.0], p=[0.15, 0.7, 0.15], size=size)
    limit = smallest_detectable(spread - spread.mean(), [1.0] * size)["value"]
    assert limit == pytest.approx((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * spread.std(ddof=1) / size**0.5)
    found = 0
    for _ in range(2000):
        sample = draw.choice(spread - spread.mean(), size=size) + limit
        found += abs(sample.mean()) > 1.96 * sample.std(ddof=1) / size**0.5
    assert found / 2000 == pytest.approx(0.8, abs=0.03)


def test_the_smallest_detectable_difference_shrinks_with_more_problems_and_is_said_in_words() -> None:
    small, large = (
        compared(
            random_rows(1, problems=size, samples=1, rate=0.4, name="a"),
            random_rows(2, problems=size, samples=1, rate=0.4, name="b"),
        )["overall"]
        for size in (75, 600)
    )
    few, many = (entry["smallest_detectable"]["value"] for entry in (small, large))
    assert few == pytest.approx(many * (600 / 75) ** 0.5, rel=0.15) and 0.15 < few < 0.3
    assert any(f"can only see differences above {100 * few:.1f} points" in line for line in small["words"])


def test_one_cluster_gives_no_interval_and_no_verdict() -> None:
    overall = compared(outcomes("a", "--", cluster="c"), outcomes("b", "++", cluster="c"))["overall"]
    assert overall["difference"]["interval"] is None and overall["smallest_detectable"]["value"] is None
    assert overall["verdict"] == "undecided" and "nothing can be said" in overall["words"][-1]


def test_several_attempts_are_a_sign_test_and_pass_at_k_is_compared_where_both_have_k() -> None:
    a, b = random_rows(3, problems=40, samples=4, rate=0.3), random_rows(4, problems=40, samples=2, rate=0.3)
    overall = compared(a, b, ks=(1, 2, 4))["overall"]
    assert overall["tests"]["problems"]["test"] == "sign test"
    assert overall["pass_at_k"]["2"]["n"] == 40 and overall["pass_at_k"]["4"]["value"] is None
    assert overall["pass_at_k"]["1"]["value"] == pytest.approx(overall["difference"]["value"])
    assert (overall["attempts_a"], overall["attempts_b"]) == (160, 80)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 25), st.integers(1, 3))
def test_what_holds_for_any_comparison(seed: int, problems: int, samples: int) -> None:
    a = random_rows(seed, problems=problems, samples=samples, rate=0.4, name="a")
    b = random_rows(seed + 1, problems=problems, samples=samples, rate=0.6, name="b")
    result = compared(a, b, resamples=60)
    orjson.dumps(result)  # JSON types only
    shuffled_a, shuffled_b = a[:], b[:]
    random.Random(seed).shuffle(shuffled_a)
    random.Random(seed + 1).shuffle(shuffled_b)
    assert compared(shuffled_a, shuffled_b, resamples=60) == result
    overall = result["overall"]
    difference = overall["difference"]
    assert difference["value"] == pytest.approx(overall["b"] - overall["a"])
    if difference["interval"] is not None:
        assert -1 <= difference["interval"]["low"] <= difference["value"] + 1e-12
        assert difference["value"] - 1e-12 <= difference["interval"]["high"] <= 1
    mirrored = compared(b, a, resamples=60)["overall"]
    assert mirrored["difference"]["value"] == pytest.approx(-difference["value"])
    assert mirrored["smallest_detectable"]["value"] == pytest.approx(overall["smallest_detectable"]["value"])
