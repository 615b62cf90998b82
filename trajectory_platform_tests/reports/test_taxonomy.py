"""Kinds of failure: each can be reached, every failure has exactly one, and the earlier kind wins."""

from __future__ import annotations

import random
from typing import Any

import pytest

from trajectory_platform.reports.taxonomy import (
    KINDS,
    OTHER,
    Evidence,
    counted,
    examples,
    failures,
    is_failure,
    kind_of,
    signs,
    words_of,
)
from trajectory_platform_tests.reports.checkpoint_sample import scores

RIGHT = {"product": 1.0, "rule": 1.0, "title": 1.0, "price": 1.0, "service": 1.0, "sku & attrs": 1.0}
NAMES = [kind.name for kind in KINDS]

# kind -> (what makes a failure of it, what its trace adds)
REACHED: dict[str, tuple[dict[str, Any], Evidence]] = {
    "no_attempt": ({"outcome": "crash", "reason": "no_attempt_recorded", "trace_id": None}, Evidence()),
    "crash": ({"outcome": "crash", "reason": "policy_error", "ending": "policy_error"}, Evidence()),
    "timeout": ({"outcome": "timeout", "ending": "timeout"}, Evidence()),
    "malformed_reply": ({"ending": "malformed_reply", "recommended_ids": [], "score": {}}, Evidence()),
    "reply_cut": ({"ending": "reply_truncated", "truncated": True}, Evidence()),
    "token_limit": ({"ending": "token_limit", "truncated": True}, Evidence()),
    "step_limit": ({"ending": "step_limit", "truncated": True}, Evidence()),
    "unscorable": ({"outcome": "unscorable", "reason": "scorer_raised:KeyError", "score": {}}, Evidence()),
    "unread_recommendation": ({"recommended_ids": [], "lenient_success": True, "score": {}}, Evidence()),
    "gave_up": ({"recommended_ids": [], "ending": "no_call", "score": {}}, Evidence()),
    "no_recommendation": ({"recommended_ids": [], "discipline": ["no_recommend"], "score": {}}, Evidence()),
    "hallucinated_id": ({"hallucinated_ids": ["42"]}, Evidence(wanted_seen=True)),
    "missing_product": ({"score": {"product": 0.5, "title": 0.5, "rule": 0.5}}, Evidence(wanted_seen=True)),
    "never_viewed": ({"unviewed_ids": ["42"]}, Evidence(wanted_seen=True)),
    "passed_over": ({}, Evidence(wanted_seen=True, refined=False)),
    "never_refined": ({}, Evidence(wanted_seen=False, refined=False)),
    "wrong_title": ({}, Evidence(wanted_seen=False, refined=True)),
    "wrong_attributes": ({"score": {**RIGHT, "rule": 0.8, "sku & attrs": 0.5, "price": 0.0}}, Evidence()),
    "wrong_price": ({"score": {**RIGHT, "rule": 0.8, "price": 0.0, "service": 0.0}}, Evidence()),
    "wrong_service": ({"score": {**RIGHT, "rule": 0.8, "service": 0.0}}, Evidence()),
    "wrong_answer": ({"score": {"product": 1.0, "rule": 0.7, "title": 1.0, "response": 0.0, "kw": 1.0}}, Evidence()),
    "several_shops": ({"score": {**RIGHT, "shop": 0.0}}, Evidence()),
    "over_budget": ({"score": {**RIGHT, "budget": 0.0}}, Evidence()),
    OTHER: ({"score": {}}, Evidence()),
}


def test_every_kind_is_tried_here() -> None:
    assert sorted(REACHED) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_can_be_reached_and_says_what_it_is(name: str) -> None:
    more, evidence = REACHED[name]
    assert kind_of(scores(0, **more), evidence) == name
    assert words_of(name)


def test_the_order_is_documented_and_ends_with_what_is_left() -> None:
    """What kept it from acting, what it did not say, what it said; of a product the check that tells most."""
    marks = ["crash", "step_limit", "no_recommendation", "hallucinated_id", "never_viewed", "passed_over",
             "never_refined", "wrong_title", "wrong_attributes", "wrong_price", "over_budget", OTHER]  # fmt: skip
    assert [NAMES.index(name) for name in marks] == sorted(NAMES.index(name) for name in marks)
    assert NAMES[-1] == OTHER and len(set(NAMES)) == len(NAMES)


def test_of_several_faults_the_first_counts_and_the_others_are_signs() -> None:
    row = scores(0, hallucinated_ids=["42"], unviewed_ids=["7"], discipline=["no_terminate"], truncated=True)
    found = failures([row], {row["trace_id"]: Evidence(wanted_seen=True, refined=False)})
    assert counted(found) == {"hallucinated_id": {"product": 1}}
    told = {name: count for name, _, count in signs(found)}
    wanted = {"hallucinated ids", "never viewed", "wanted product seen", "search not refined", "cut by a limit"}
    assert wanted | {"protocol violated", "check failed: title", "check failed: SKU and attributes"} == set(told)
    assert set(told.values()) == {1}


def test_every_failure_is_counted_once_and_nothing_else_is() -> None:
    rows = [scores(number, **more) for number, (more, _) in enumerate(REACHED.values())]
    rows += [scores(90, "success"), scores(91, "no_reward")]
    known = {row["trace_id"]: evidence for row, (_, evidence) in zip(rows, REACHED.values(), strict=False)}
    found = failures(rows, known)
    assert [one.row for one in found] == [row for row in rows if is_failure(row)]
    assert sum(count for kinds in counted(found).values() for count in kinds.values()) == len(REACHED)
    assert list(counted(found)) == NAMES


def test_an_attempt_without_a_trace_is_judged_by_its_row() -> None:
    assert [one.kind for one in failures([scores(0, trace_id=None)], {})] == ["wrong_title"]


def test_examples_are_few_of_different_problems_and_do_not_hang_on_the_order() -> None:
    rows = [scores(number, sample=sample, trace_id=f"t{number}-{sample}") for number in (5, 3, 1) for sample in (1, 0)]
    rows += [scores(9, trace_id=None)]
    chosen = examples(failures(rows, {}), most=3)
    assert chosen == {"wrong_title": ["t1-0", "t3-0", "t5-0"]}
    assert examples(failures(rows, {}), most=5)["wrong_title"][3:] == ["t1-1", "t3-1"]
    for seed in range(5):
        shuffled = random.Random(seed).sample(rows, len(rows))
        assert examples(failures(shuffled, {}), most=3) == chosen
