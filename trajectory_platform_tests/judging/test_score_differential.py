"""The scorer against the labels of the shared days: every executed pair of a public problem, every field.

The labels were made by running the reference's scorer (``days/README.md``), so this is a comparison with another
implementation, not with our own earlier output.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

from trajectory_platform.lake.tables import JUDGED_TRACES
from trajectory_platform.settings import Settings
from trajectory_platform.stages.folder import open_folder, score_rows
from trajectory_platform_tests.judging.shared_days import DAYS, DAYS_FOLDER, truth

pytestmark = pytest.mark.skipif(not DAYS_FOLDER.is_dir(), reason="shared/days is not present")

NO_DIALOGUE = "no_trace"
# One artifact ends inside its JSON. The label calls that no trace, the contract of `score` an unreadable artifact.
CUT = "cut_line"
# Two artifacts lost the message of the step that opened the pages: what was viewed cannot be read from them.
LOST_STEP = ("message_null", "completion_null")
# One result is nested more than 100 deep: too_deep under the default cap, a plain success once the cap allows it.
DEEP = 5_000


@lru_cache(maxsize=1)
def pairs() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(row of the command ``score``, label) of every executed pair of a public problem."""
    settings = Settings(max_depth=DEEP)
    rows = [row for day in DAYS for row in score_rows(open_folder(settings, str(DAYS_FOLDER / day)), [])]
    labelled = [(row, truth()[row["trace_id"]]) for row in rows if row["trace_id"] in truth()]
    assert len(labelled) == len(truth())
    return [(row, label) for row, label in labelled if label["problem_in_suite_file"]]


def test_every_pair_of_a_public_problem_has_the_label_s_outcome() -> None:
    assert len(pairs()) == 492
    for row, label in pairs():
        if label["malformed"] == CUT:
            assert (row["outcome"], row["reason"]) == ("unscorable", CUT)
            continue
        found = (row["outcome"], row["success"], row["format"], row["length"])
        wanted = (label["outcome"], label["success"], label["format_score"], label["length_score"])
        assert found == wanted, row["trace_id"]


def test_the_whole_score_object_is_equal() -> None:
    scored = [(row, label) for row, label in pairs() if label["outcome"] in ("success", "failure")]
    assert len(scored) > 430
    for row, label in scored:
        assert row["score"] == label["score"], row["trace_id"]
    assert all(row["score"] == {} for row, label in pairs() if label["outcome"] in ("unscorable", NO_DIALOGUE))


def test_the_exception_of_the_reference_is_the_reason() -> None:
    raised = [(row, label) for row, label in pairs() if label["score_error"]]
    assert {label["score_error"] for _, label in raised} == {"ValidationError", "KeyError", "TypeError"}
    assert all(row["reason"] == f"scorer_raised:{label['score_error']}" for row, label in raised)


@pytest.mark.parametrize("name", ["recommended_ids", "hallucinated_ids", "unviewed_ids", "not_in_catalogue_ids"])
def test_id_lists_are_equal_in_order(name: str) -> None:
    compared = 0
    for row, label in pairs():
        if label["outcome"] == NO_DIALOGUE or (name == "unviewed_ids" and label["malformed"] in LOST_STEP):
            continue
        assert row[name] == label[name], row["trace_id"]
        compared += 1
    assert compared > 430


def test_only_the_depth_cap_stands_between_the_default_settings_and_the_labels() -> None:
    rows = {
        row["trace_id"]: row for day in DAYS for row in score_rows(open_folder(Settings(), str(DAYS_FOLDER / day)), [])
    }
    changed = [row for row, _ in pairs() if rows[row["trace_id"]] != row]
    assert [rows[row["trace_id"]]["reason"] for row in changed] == ["too_deep"]


def test_the_rules_stand_beside_every_score() -> None:
    assert {row["rules"] for row, label in pairs() if label["outcome"] in ("success", "failure")} == {
        "normalised-1/exact-1"
    }


@pytest.mark.skipif("lenient_success" not in JUDGED_TRACES.columns, reason="the table has no lenient columns yet")
def test_the_lenient_result_stands_beside_the_strict_one() -> None:
    moved = {}
    for row, label in pairs():
        if row["outcome"] == "success":
            assert row["lenient"]["outcome"] == "success"
        elif row["lenient"]["outcome"] == "success":
            moved[row["trace_id"]] = label["malformed"]
    # ids given as a list or a number, and dialogues on which the reference raises for another reason
    assert moved and set(moved.values()) <= {
        "product_ids_missing",  # a singular product_id
        "product_ids_not_text",
        "think_not_text",
        "tool_call_not_list",
        "tool_call_text",
        "tool_call_item_not_object",
        "call_without_name",
        "completion_null",
        "chat_shape",
    }
