"""Each stage of the filter on its own: every reason can occur, the order decides, switches switch (issue 4 point 7)."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.curation.config import ALWAYS_ON, ROW_STAGES, FilterConfig
from trajectory_platform.curation.filter_stages import (
    ROW_STAGE_TABLE,
    UNEVIDENCED,
    Case,
    first_objection,
    objections,
    stage_versions,
)
from trajectory_platform.curation.read_reasons import READ_REASONS
from trajectory_platform_tests.curation.small_days import good_case

GOOD = good_case()
assert GOOD.axis is not None


def _axis(**values: Any) -> Case:
    assert GOOD.axis is not None
    return good_case(axis=replace(GOOD.axis, **values))


def _messages(*messages: dict[str, Any]) -> Case:
    return good_case(messages=[{"role": "user", "content": "q"}, *messages], row={"messages": "<"})


def _call(arguments: Any, **values: Any) -> dict[str, Any]:
    function = {"name": "find_product", "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"function": function}], **values}


# (stage, reason) -> a case whose first objection it is.
CASES: dict[tuple[str, str], Case] = {
    **{
        ("ingest", state): good_case(raw={"state": state, "state_reason": "why"}, row=None, messages=None, axis=None)
        for state in ("not_final", "run_unusable", "no_trace")
    },
    **{("read", reason): good_case(row={"malformed": reason}) for reason, _ in READ_REASONS},
    ("read", "trajectory_missing"): good_case(row=None, messages=None, axis=None),
    ("read", "duplicate_line"): good_case(
        FilterConfig(skip=frozenset({"duplicate"})),
        raw={"state": "unreadable", "state_reason": "duplicate_line"},
        row=None,
        messages=None,
    ),
    ("duplicate", "duplicate_line"): good_case(
        raw={"state": "unreadable", "state_reason": "duplicate_line", "trace_id": "a:p1#1"}, row=None, messages=None
    ),
    ("duplicate", "conflicting_lines"): good_case(raw={"duplicates_differ": True}),
    ("injection", "injection"): good_case(judged={"injection_suspected": True, "injection_sources": ["think"]}),
    ("protocol", "no_assistant_turn"): _messages(),
    ("protocol", "no_tool_call"): _messages({"role": "assistant", "content": "I recommend nothing."}),
    ("format", "tag_in_reply"): _messages(_call("{}", reasoning_content="a </think> b")),
    ("format", "control_token_in_text"): _messages(_call("{}", content="a <|im_end|> b")),
    ("format", "arguments_not_object"): _messages(_call("[]")),
    ("format", "bad_messages"): _messages(_call("{}"), {"role": "narrator", "content": ""}),
    ("axis", "axis_b"): _axis(label="B"),
    ("axis", "axis_mixed"): _axis(label="mixed"),
    ("axis", "axis_unknown"): _axis(label="unknown", reason="log_absent"),
    ("axis", "axis_theatre"): _axis(theatre_suspected=True),
    ("axis", "axis_log_suspect"): _axis(notes=["out_of_order"]),
    ("outcome", "unscorable"): good_case(judged={"outcome": "unscorable", "reason": "scorer_raised:KeyError"}),
    ("outcome", "verdict_mismatch"): good_case(judged={"validators_agree": False, "validator_success": False}),
    ("outcome", "no_outcome"): good_case(judged={"outcome_success": None, "outcome_source": None}),
    ("judge", "unjudged"): good_case(verdict={"reasoning_quality": None, "null_reason": "budget"}),
}


def test_a_good_trace_meets_no_objection() -> None:
    assert list(objections(GOOD)) == []


@pytest.mark.parametrize(("stage", "reason"), list(CASES), ids=[f"{stage}-{reason}" for stage, reason in CASES])
def test_every_reason_can_occur(stage: str, reason: str) -> None:
    found = first_objection(CASES[stage, reason])
    assert found is not None and (found.stage, found.reason) == (stage, reason)


def test_the_examples_are_all_reasons_of_the_table() -> None:
    assert {(stage.name, reason) for stage in ROW_STAGE_TABLE for reason, _ in stage.reasons} == CASES.keys()


def test_details_and_survivors() -> None:
    repeated = first_objection(CASES["duplicate", "duplicate_line"])
    assert repeated is not None and repeated.duplicate_of == "a:p1"
    steered = first_objection(CASES["injection", "injection"])
    assert steered is not None and steered.detail == "think"
    budget = first_objection(CASES["judge", "unjudged"])
    assert budget is not None and (budget.detail, budget.retryable) == ("budget", True)
    missing = first_objection(good_case(verdict=None))
    assert missing is not None and (missing.reason, missing.retryable) == ("unjudged", True)
    hidden = good_case(judged={"outcome": "unscorable", "reason": "reward_hidden", "outcome_source": "validator"})
    assert first_objection(hidden) is None


def test_what_may_still_change_is_retryable_and_nothing_else_is() -> None:
    retryable = {key for key, case in CASES.items() if (found := first_objection(case)) and found.retryable}
    assert retryable == {("ingest", "not_final"), ("read", "trajectory_missing"), ("judge", "unjudged")}


BAD_EVERYWHERE = good_case(
    raw={"duplicates_differ": True},
    judged={"injection_suspected": True, "injection_sources": ["query"], "outcome": "unscorable", "reason": "x"},
    verdict={"reasoning_quality": None},
    messages=[{"role": "user", "content": ""}, {"role": "assistant", "content": "<|im_end|>"}],
    row={"messages": "<"},
    axis=replace(GOOD.axis, label="B"),
)
OBJECTING = ("duplicate", "injection", "protocol", "format", "axis", "outcome", "judge")


def test_all_objections_are_named_in_the_configured_order() -> None:
    assert tuple(found.stage for found in objections(BAD_EVERYWHERE)) == OBJECTING
    turned = FilterConfig(order=("ingest", "read", *OBJECTING[::-1]))
    case = BAD_EVERYWHERE._replace(config=turned)
    assert tuple(found.stage for found in objections(case)) == OBJECTING[::-1]


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.permutations(OBJECTING), st.sets(st.sampled_from(sorted(set(OBJECTING) - ALWAYS_ON))))
def test_the_first_active_stage_of_any_order_rejects(order: list[str], off: set[str]) -> None:
    config = FilterConfig(order=("ingest", "read", *order), skip=frozenset(off))
    found = list(objections(BAD_EVERYWHERE._replace(config=config)))
    assert [one.stage for one in found] == [name for name in order if name not in off]
    assert first_objection(BAD_EVERYWHERE._replace(config=config)) == found[0]


def test_a_stage_that_is_off_never_objects() -> None:
    for (stage, reason), case in CASES.items():
        if stage not in ALWAYS_ON and reason != "duplicate_line":
            config = FilterConfig(skip=frozenset({stage, "duplicate"} if stage == "duplicate" else {stage}))
            assert first_objection(case._replace(config=config)) is None, (stage, reason)


def test_a_regime_without_a_gate_leaves_a_trace_unjudged() -> None:
    case = good_case(verdict={"score_regime": "continuous"})
    found = first_objection(case)
    assert found is not None and found.reason == "unjudged" and "continuous" in (found.detail or "")
    gated = FilterConfig(reasoning={"continuous": 0.8})
    assert first_objection(case._replace(config=gated)) is None


def test_other_traces_excuse_a_missing_log_and_never_one_that_cannot_be_true() -> None:
    for reason in UNEVIDENCED:
        case = _axis(label="unknown", reason=reason)
        assert first_objection(case) is not None
        assert first_objection(case._replace(proven=True)) is None
    for reason in ("log_inconsistent:results", "dispatches_not_logged", "log_unreadable"):
        assert first_objection(_axis(label="unknown", reason=reason)._replace(proven=True)) is not None
    for label in ("B", "mixed"):
        assert first_objection(_axis(label=label)._replace(proven=True)) is not None


def test_the_versions_name_every_stage() -> None:
    assert [name.rstrip("0123456789") for name in stage_versions().split(",")] == [
        *ROW_STAGES,
        "copies",
        "strategy",
        "caps",
    ]


def test_stages_do_not_read_what_another_one_decided() -> None:
    """A stage sees the row, never the answers of others: alone or in company it says the same."""
    alone = {found.stage: found for found in objections(BAD_EVERYWHERE)}
    for order in list(permutations(OBJECTING))[::500]:
        case = BAD_EVERYWHERE._replace(config=FilterConfig(order=("ingest", "read", *order)))
        assert {found.stage: found for found in objections(case)} == alone
