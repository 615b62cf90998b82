"""The proxy log becomes facts: flattened, sorted by start, tolerant of every type, checked for what cannot be true."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.traces.evidence import extract
from trajectory_platform_tests.curation.made_logs import MadeLog


def _log() -> MadeLog:
    log = MadeLog()
    log.reply(("find_product", {"q": "yoga mat"}))
    log.dispatch("find_product", q="yoga+mat", page=1)
    log.reply(("view_product_information", {"product_ids": "7"}))
    log.dispatch("view_product_information", product_ids="7")
    log.show("find_product", {"q": "yoga mat"}, [{"product_id": "7"}])
    log.show("view_product_information", {"product_ids": "7"}, [{"product_id": "7"}])
    return log


def test_events_carry_the_facts() -> None:
    log = _log()
    evidence = extract(log.steps(), binding=log.binding())
    inference, dispatch = evidence["events"][:2]
    assert inference["calls"] == [{"name": "find_product", "arguments": '{"q":"yoga mat"}'}]
    assert (inference["state"], inference["completion_tokens"], inference["choices"]) == ("readable", 40, 1)
    assert (dispatch["tool"], dispatch["arguments"], dispatch["result_ids"]) == (
        "find_product",
        '{"q":"yoga mat"}',
        ["7"],
    )
    assert evidence["log_problems"] == []
    assert json.loads(json.dumps(evidence)) == evidence


@given(st.integers(0, 10_000), st.integers(1, 5))
def test_buckets_do_not_matter(seed: int, buckets: int) -> None:
    log = _log()
    expected = extract(log.steps(), binding=log.binding())
    rng = random.Random(seed)
    steps: list[dict[str, Any]] = [{"extra_info": {"proxy_calls": []}} for _ in range(buckets)]
    for entry in log.entries:
        rng.choice(steps)["extra_info"]["proxy_calls"].append(entry)
    assert extract(steps, binding=log.binding())["events"] == expected["events"]


def test_attempts_are_counted_apart_and_old_entries_are_summaries() -> None:
    log = _log()
    attempt = {**copy.deepcopy(log.entries[0]), "kind": "attempt", "attempt": 1}
    for entry in log.entries:
        del entry["kind"]  # 2026-04-19 to 04-27
    log.entries.insert(0, attempt)
    evidence = extract(log.steps(), binding=log.binding(inference_total=2))
    assert (evidence["attempts"], len(evidence["events"]), evidence["log_problems"]) == (1, 4, [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timestamp", "1777000000000"),
        ("timestamp", None),
        ("timestamp", True),
        ("timestamp", float("nan")),
        ("timestamp", 10**400),
        ("duration_ms", None),
        ("duration_ms", "200"),
        ("status_code", "200"),
        ("params", "q=tea"),
        ("params", None),
        ("response", "{not json"),
        ("response", {"choices": [None]}),
        ("response", {"choices": [{"message": {"content": 5, "tool_calls": "x"}}]}),
        ("json_data", [1]),
        ("path", None),
        ("result_product_ids", [1, None, {}]),
    ],
)
def test_type_errors_in_the_log_are_tolerated(field: str, value: Any) -> None:
    for index in range(4):
        log = _log()
        log.entries[index][field] = value
        evidence = extract(log.steps(), binding=log.binding())
        assert len(evidence["events"]) + evidence["unreadable_entries"] == 4


_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["extra_info", "proxy_calls", "path", "timestamp", "duration_ms", "response", "choices", "message"]
                + ["completion", "tool_call", "name", "parameters", "result", "status_code", "content", "params"]
            ),
            inner | st.sampled_from(["/search/find_product", "/inference/chat/completions", 200]),
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(
    st.lists(_junk, max_size=4),
    st.none() | st.dictionaries(st.sampled_from(["inference_total", "problem_status"]), _junk),
)
def test_no_steps_make_it_raise(steps: list[Any], binding: dict[str, Any] | None) -> None:
    evidence = extract(steps, binding=binding)
    json.dumps(evidence)


def test_reply_states() -> None:
    log = MadeLog()
    log.reply(text="fine")
    truncated = log.reply(text="x")
    del truncated["response"]
    truncated["response_truncated"] = True
    log.reply(text="x")["response"] = None
    log.reply(text="x")["status_code"] = 503
    log.reply(text='<tool_call>[{"name": "find_pro')
    limited = log.reply(text='<tool_call>[{"name": "find_pro')
    limited["response"]["choices"][0]["finish_reason"] = "length"
    events = extract(log.steps(), binding=None)["events"]
    assert [event["state"] for event in events] == [
        "readable",
        "truncated",
        "unreadable",
        "failed",
        "readable",
        "readable",
    ]
    assert [event["incomplete"] for event in events] == [False, False, False, False, True, True]
    assert [event["cut"] for event in events] == [False, False, False, False, False, True]


@pytest.mark.parametrize(
    ("binding", "problems"),
    [
        (None, []),
        ({"inference_total": 2, "problem_status": "SUCCESS"}, []),
        ({"inference_total": 3, "problem_status": "SUCCESS"}, ["inference_count_differs"]),
        ({"inference_total": None, "problem_status": "SUCCESS"}, ["inference_count_differs"]),
        ({"inference_total": None, "problem_status": "FAILED"}, ["inference_count_differs"]),
        ({"inference_total": None, "problem_status": "TIMED_OUT"}, []),
        ({"inference_total": None, "problem_status": "RUNNING"}, []),
        ({"inference_total": None, "problem_status": None}, []),
        ({"problem_id": None}, ["shared_log"]),
    ],
)
def test_counts_against_the_listing(binding: dict[str, Any] | None, problems: list[str]) -> None:
    assert extract(_log().steps(), binding=binding)["log_problems"] == problems


def test_an_entry_twice_is_a_forgery_and_a_repeated_search_is_none() -> None:
    log = _log()
    log.dispatch("find_product", q="yoga+mat", page=1)
    assert extract(log.steps(), binding=log.binding())["log_problems"] == []
    log.entries.append(copy.deepcopy(log.entries[1]))
    assert extract(log.steps(), binding=log.binding())["log_problems"] == ["duplicate_entries"]


@pytest.mark.parametrize("duration", [-300.0, 480_762.0, float("nan")])
def test_impossible_durations(duration: float) -> None:
    log = _log()
    log.entries[2]["duration_ms"] = duration
    assert "impossible_durations" in extract(log.steps(), binding=log.binding())["log_problems"]


def test_a_log_longer_than_a_problem_may_take_is_impossible() -> None:
    log = _log()
    log.now += 400_000
    log.dispatch("find_product", q="tea")
    assert extract(log.steps(), binding=log.binding())["log_problems"] == ["impossible_durations"]


@pytest.mark.parametrize(
    ("answer", "differs"),
    [
        ([{"product_id": "7", "price": 10.0}], False),
        ([{"product_id": "7", "price": 10.0, "title": "t"}, {"product_id": "8"}], False),  # rows and fields trimmed
        ([{"product_id": "7", "price": 11.0}], True),
        ([{"product_id": "4999999999"}], True),
        ([], True),
    ],
)
def test_results_against_the_dialogue(answer: list[dict[str, Any]], differs: bool) -> None:
    log = MadeLog()
    log.reply(("find_product", {"q": "tea"}))
    log.dispatch("find_product", answer, q="tea")
    log.show("find_product", {"q": "tea"}, [{"product_id": "7", "price": 10.0}])
    problems = extract(log.steps(), binding=log.binding())["log_problems"]
    assert problems == (["results_differ"] if differs else [])


def test_truncated_answers_are_compared_by_their_id_list_only() -> None:
    log = MadeLog()
    log.reply(("find_product", {"q": "tea"}))
    entry = log.dispatch("find_product", q="tea")
    del entry["response"]
    entry["response_truncated"] = True
    log.show("find_product", {"q": "tea"}, [{"product_id": "7"}])
    assert extract(log.steps(), binding=log.binding())["log_problems"] == []
    entry["result_product_ids"] = ["1", "2"]
    assert extract(log.steps(), binding=log.binding())["log_problems"] == ["results_differ"]


def test_the_answer_of_an_automatic_retry_stands_for_the_empty_search() -> None:
    log = MadeLog()
    log.reply(("find_product", {"q": "red tea pot", "service": "COD"}))
    log.dispatch("find_product", [], q="red+tea+pot", service="COD")
    log.dispatch("find_product", [{"product_id": "7"}], q="red+tea+pot")
    log.show("find_product", {"q": "red tea pot", "service": "COD"}, [{"product_id": "7"}])
    assert extract(log.steps(), binding=log.binding())["log_problems"] == []


def test_appended_entries_are_noted_and_prove_nothing() -> None:
    log = _log()
    log.entries[0]["timestamp"] += 60_000
    log.entries[1]["timestamp"] += 60_000
    evidence = extract(log.steps(), binding=log.binding())
    assert evidence["notes"] == ["out_of_order"]
    assert extract(_log().steps(), binding=_log().binding(execution_time=0.001))["notes"] == []
    log.entries[0]["timestamp"] -= 50_000
    assert "longer_than_run" in extract(log.steps(), binding=log.binding(execution_time=0.5))["notes"]


def test_echoed_calls_are_told_from_repeated_ones() -> None:
    call = ("find_product", {"q": "red tea pot", "page": 1})
    log = MadeLog()
    log.reply(call, prompt='Repeat exactly: {"q":"red tea pot", "page":1}')
    log.reply(call, prompt='History: {"q": "red tea pot", "page": 1}')  # made before: may stand in the history
    log.reply(("find_product", {"q": "blue cup, large"}), prompt="The user wants a blue cup, large.")
    log.reply(call)
    assert [event.get("echoed") for event in extract(log.steps(), binding=None)["events"]] == [
        [True],
        [False],
        [False],
        None,
    ]


def test_evidence_stays_small() -> None:
    log = _log()
    for entry in log.entries:
        entry["note"] = "x" * 50_000
    assert len(json.dumps(extract(log.steps(), binding=log.binding()), separators=(",", ":"))) < 2_500
