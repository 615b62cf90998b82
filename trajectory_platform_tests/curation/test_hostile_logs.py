"""Logs built to mislead or to stall the axis decision."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from trajectory_platform.curation.agency import decide
from trajectory_platform.traces.sn15 import read_dialogue
from trajectory_platform_tests.traces.steps import call, step

START = 1_777_000_000_000


def _reply(*calls: tuple[str, Any]) -> dict[str, Any]:
    native = [{"function": {"name": name, "arguments": json.dumps(arguments)}} for name, arguments in calls]
    body = {"choices": [{"message": {"content": "", "tool_calls": native}}], "usage": {"completion_tokens": 50}}
    path = "/inference/chat/completions"
    return {"kind": "summary", "path": path, "timestamp": START, "duration_ms": 5, "status_code": 200, "response": body}


def _dispatch(tool: str, params: Any, place: int = 1) -> dict[str, Any]:
    moment = {"timestamp": START + 10 * place, "duration_ms": 1, "status_code": 200}
    return {"kind": "summary", "path": f"/search/{tool}", "params": params, "response": [], **moment}


def _trace(calls: list[dict[str, Any]], log: list[dict[str, Any]], **binding: Any) -> Any:
    only = step(1, *calls)
    only["extra_info"]["proxy_calls"] = log
    return read_dialogue([only], binding={"problem_id": "p1", "inference_total": 1, **binding})


@pytest.mark.parametrize("number", [12, 10**19, 10**25, 10**400])
def test_a_final_id_given_as_a_number_of_any_length_is_matched(number: int) -> None:
    final = {"product_ids": number}
    trace = _trace([call("recommend_product", final)], [_reply(("recommend_product", final))])
    assert (decide(trace.messages, trace.evidence).label, trace.malformed) == ("A", None)
    wide = {"product_ids": [1], "page": number}
    trace = _trace([call("recommend_product", wide)], [_reply(("recommend_product", wide))])
    assert decide(trace.messages, trace.evidence).final_emitted is True


@pytest.mark.parametrize("status", ["SUCCESS", "success", "Failed "])
def test_the_case_of_the_status_excuses_no_forged_log(status: str) -> None:
    """A null total with an ended problem means zero counted calls, however the word is written (domain 6: 36)."""
    emitted = {"q": "mug"}
    log = [_reply(("find_product", emitted)), _dispatch("find_product", emitted)]
    trace = _trace([call("find_product", emitted, [])], log, inference_total=None, problem_status=status)
    assert decide(trace.messages, trace.evidence).reason == "log_inconsistent:inference_count_differs"


def test_thousands_of_composite_calls_and_searches_are_matched_in_time() -> None:
    composites = [
        ("find_products_in_same_shop", {"product_queries": json.dumps([{"q": f"w{n} x{m}"} for m in range(20)])})
        for n in range(2_000)
    ]
    searches = [_dispatch("find_product", {"q": f"w{n}", "shop_id": "s"}, n + 1) for n in range(2_000)]
    other = [_dispatch("find_product", {"q": "elsewhere", "shop_id": "s"}, 3_000)]
    trace = _trace([call("find_product", {"q": "mug"}, [])], [_reply(*composites), *searches, *other])
    started = time.process_time()
    axis = decide(trace.messages, trace.evidence)
    assert time.process_time() - started < 5
    assert (axis.composite_child, axis.harness_made) == (2_000, 1)


def test_a_reply_that_lists_everything_is_no_choice_of_the_model() -> None:
    """The model names a hundred calls, code makes two of them: every dispatch is matched, and nothing was decided."""
    menu = [("find_product", {"q": word}) for word in ("mug", "pan", "cup")]
    menu += [("recommend_product", {"product_ids": str(number)}) for number in range(50)]
    log = [_reply(*menu), _dispatch("find_product", {"q": "mug"})]
    shown = [call("find_product", {"q": "mug"}, []), call("recommend_product", {"product_ids": "7"})]
    assert decide(_trace(shown, log).messages, _trace(shown, log).evidence).notes == []  # two calls may stay unmade
    more = [_reply(*menu, ("view_product_information", {"product_ids": "7"})), *log[1:]]
    told = decide(_trace(shown, more).messages, _trace(shown, more).evidence)
    assert (told.label, told.notes) == ("A", ["calls_not_made"])


@pytest.mark.parametrize(
    ("searches", "children"),
    [([("mug", str(shop)) for shop in range(30)], 10), ([("mug", "")] * 30, 2), ([("mug", "1"), ("mug", "2")], 2)],
    ids=["thirty-shops", "one-search-again", "honest"],
)
def test_one_composite_call_excuses_no_more_than_it_can_send(searches: list[tuple[str, str]], children: int) -> None:
    """At most ten shops, the same search twice (domain 1.6)."""
    asked = {"product_queries": json.dumps([{"q": "mug"}])}
    sent = [{"q": word, **({"shop_id": shop} if shop else {})} for word, shop in searches]
    log = [_reply(("find_products_in_same_shop", asked))]
    log += [_dispatch("find_product", params, place + 1) for place, params in enumerate(sent)]
    trace = _trace([call("find_products_in_same_shop", asked, {})], log)
    reasons = decide(trace.messages, trace.evidence).dispatch_reasons
    assert reasons == ["composite_child"] * children + ["harness_made"] * (len(searches) - children)
