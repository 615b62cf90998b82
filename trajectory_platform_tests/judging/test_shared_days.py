"""The three shared days against their expected labels (``days/truth.jsonl``)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from trajectory_platform.judging import injection
from trajectory_platform.judging.reasoning import judge
from trajectory_platform_tests.judging.shared_days import DAYS, DAYS_FOLDER, judged_day, truth

pytestmark = pytest.mark.skipif(not DAYS_FOLDER.is_dir(), reason="shared/days is not present")

# The label counts detail pages of steps that the published artifact no longer holds (its message is null).
LOST_STEP = {"message_null", "completion_null"}


def _labelled() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(judged row, label) of every judged trace."""
    pairs = [(row, truth().get(row["trace_id"])) for day in DAYS for row in judged_day(day).judged.to_pylist()]
    assert all(label is not None for _, label in pairs)
    return [(row, label) for row, label in pairs if label is not None]


def test_every_outcome_and_every_score_field_agrees_where_the_reward_is_public() -> None:
    public = [(row, label) for row, label in _labelled() if label["problem_in_suite_file"]]
    assert len(public) > 350
    for row, label in public:
        found = {name: row[name] for name in ("outcome", "format", "length")} | {"success": row["outcome_success"]}
        wanted = {
            "outcome": label["outcome"],
            "success": label["success"],
            "format": label["format_score"],
            "length": label["length_score"],
        }
        assert found == wanted, row["trace_id"]
        assert orjson.loads(row["score"]) == (label["score"] or {}), row["trace_id"]
        if label["score_error"]:
            assert row["reason"] == f"scorer_raised:{label['score_error']}"


def test_hidden_rewards_are_unscorable_and_take_the_validators_verdict() -> None:
    hidden = [(row, label) for row, label in _labelled() if not label["problem_in_suite_file"]]
    assert hidden
    for row, label in hidden:
        assert (row["outcome"], row["reason"]) == ("unscorable", "reward_hidden")
        assert row["outcome_source"] == "validator" and not row["query_verified"]
        assert row["outcome_success"] == (label["reported_score"] == 1.0)


@pytest.mark.parametrize("name", ["recommended_ids", "hallucinated_ids", "unviewed_ids", "not_in_catalogue_ids"])
def test_id_lists_agree(name: str) -> None:
    for row, label in _labelled():
        if name == "unviewed_ids" and label["malformed"] in LOST_STEP:
            continue
        assert row[name] == label[name], row["trace_id"]


def test_injections_are_found_with_their_sources_and_nothing_else_is_suspected() -> None:
    for row, label in _labelled():
        assert sorted(row["injection_sources"]) == sorted(label["injection_sources"]), row["trace_id"]
        assert row["injection_suspected"] == label["injection"]


def test_no_honest_document_of_the_catalogue_is_suspected() -> None:
    lines = (DAYS_FOLDER / DAYS[0] / "catalogue" / "products.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    suspected = [line for line in lines if injection.suspicious(line)]
    assert len(lines) == 512 and suspected
    assert all("NOTE TO EVALUATOR" in line for line in suspected)


def test_failed_judgments_are_null_with_the_right_reason() -> None:
    wanted = {"judged": None, "not_judged": "not_judged", "infrastructure_zero": "infrastructure_zero"}
    wanted |= {"unparseable_zero": "unparseable_zero", "off_grid": "off_grid"}
    for day in DAYS:
        for row in judged_day(day).verdicts.to_pylist():
            label = truth()[row["trace_id"]]
            if row["judge_kind"] == "validator":
                assert row["null_reason"] == wanted[label["judge_state"]]
                assert row["score_regime"] == label["reasoning_regime"]


def test_the_rules_judge_agrees_with_the_discrete_judges_as_they_do_with_themselves() -> None:
    """Not a truth, a plausibility: most verdicts equal, and scripted or absent reasoning never passes as good."""
    day = judged_day("2026-05-02")
    same = total = 0
    for batch in day.batches:
        for row in batch.select(["trace_id", "messages", "evidence"]).to_pylist():
            label = truth()[row["trace_id"]]
            quality = judge(orjson.loads(row["messages"]), orjson.loads(row["evidence"])).quality
            if label["reasoning_intent"] in ("none", "poor"):
                assert quality is None or quality <= 0.3
            if label["judge_state"] == "judged" and quality is not None:
                total += 1
                same += quality == label["reasoning_score"]
    assert total > 100 and same / total >= 0.85
