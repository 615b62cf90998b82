"""Who acted, on logs made to order: every rule of the axis one by one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.curation.agency import AxisDecision, decide
from trajectory_platform.traces.evidence import extract
from trajectory_platform_tests.curation.labelled_days import messages
from trajectory_platform_tests.curation.made_logs import MadeLog

FIND = {"q": "yoga mat"}
VIEW = {"product_ids": "7"}
RECOMMEND = {"product_ids": "7"}


def _decide(log: MadeLog, **binding: Any) -> AxisDecision:
    steps = log.steps()
    return decide(messages(steps), extract(steps, binding=log.binding(**binding)))


def _acting_model() -> MadeLog:
    log = MadeLog()
    log.reply(("find_product", FIND))
    log.dispatch("find_product", q="yoga+mat", page=1)
    log.reply(("view_product_information", VIEW))
    log.dispatch("view_product_information", product_ids="7")
    log.reply(("recommend_product", RECOMMEND), ("terminate", {"status": "success"}))
    for name, arguments in (("find_product", FIND), ("view_product_information", VIEW)):
        log.show(name, arguments, [{"product_id": "7"}])
    log.show("recommend_product", RECOMMEND, "ok")
    log.show("terminate", {"status": "success"}, "ok")
    return log


def test_a_model_that_acts_is_axis_a() -> None:
    decision = _decide(_acting_model())
    assert (decision.label, decision.share, decision.final_emitted) == ("A", 1.0, True)
    assert decision.dispatch_reasons == ["matched", "matched"]
    assert [flag for turn in decision.emitted for flag in turn] == [True, True, True, True]


def test_no_recommendation_is_still_axis_a() -> None:
    log = _acting_model()
    del log.shown[2:]
    assert _decide(log).reason == "dispatches_emitted_no_final"


def test_a_narrator_is_axis_b() -> None:
    log = MadeLog()
    log.dispatch("find_product", q="yoga+mat", page=1)
    log.dispatch("view_product_information", product_ids="7")
    log.reply(text="Mat 7 looks good.")
    for name, arguments in (
        ("find_product", FIND),
        ("view_product_information", VIEW),
        ("recommend_product", RECOMMEND),
    ):
        log.show(name, arguments)
    decision = _decide(log)
    assert (decision.label, decision.reason, decision.share) == ("B", "no_matching_emission", 0.0)
    assert decision.dispatch_reasons == ["harness_made", "harness_made"]
    assert [flag for turn in decision.emitted for flag in turn] == [False, False, False]


def test_a_reply_after_the_dispatch_asked_for_nothing() -> None:
    log = MadeLog()
    log.dispatch("find_product", q="yoga+mat", page=1)
    log.reply(("find_product", FIND), ("recommend_product", {"product_ids": "8"}))
    log.show("find_product", FIND)
    log.show("recommend_product", RECOMMEND)
    decision = _decide(log)
    assert (decision.label, [flag for turn in decision.emitted for flag in turn]) == ("B", [False, False])


def test_no_inference_is_axis_b_and_no_log_is_unknown() -> None:
    log = MadeLog()
    log.dispatch("find_product", q="yoga+mat")
    log.show("find_product", FIND)
    assert (_decide(log).label, _decide(log).reason) == ("B", "no_inference")
    log.entries.clear()
    assert (_decide(log).label, _decide(log).reason) == ("unknown", "log_absent")


def test_a_final_choice_by_the_harness_is_mixed() -> None:
    log = _acting_model()
    log.shown[2]["parameters"] = {"product_ids": "8"}
    decision = _decide(log)
    assert (decision.label, decision.reason, decision.share) == ("mixed", "final_not_emitted", 1.0)


def test_the_last_recommendation_counts() -> None:
    log = _acting_model()
    log.show("recommend_product", {}, "ok")
    assert _decide(log).reason == "final_not_emitted"


def test_one_emission_serves_one_dispatch() -> None:
    log = MadeLog()
    log.reply(("find_product", FIND))
    for _ in range(5):
        log.dispatch("find_product", q="yoga+mat", page=1)
    log.show("find_product", FIND, [{"product_id": "7"}])
    decision = _decide(log)
    assert (decision.share, decision.matched, decision.harness_made) == (0.2, 1, 4)


@pytest.mark.parametrize("way", ["truncated", "empty", "cut"])
@pytest.mark.parametrize("index", [0, 2, 4])
def test_a_decisive_reply_that_cannot_be_read_makes_it_unknown(way: str, index: int) -> None:
    log = _acting_model()
    reply = log.entries[index]
    if way == "truncated":
        reply.update(response_truncated=True, response=None)
    elif way == "empty":
        reply["response"] = None
    else:
        content = reply["response"]["choices"][0]["message"]["content"]
        reply["response"]["choices"][0]["message"]["content"] = content[: len(content) // 2]
    decision = _decide(log)
    assert (decision.label, decision.reason) == ("unknown", "replies_truncated")
    assert None in [flag for turn in decision.emitted for flag in turn]


def test_an_unreadable_reply_that_decides_nothing_does_no_harm() -> None:
    log = _acting_model()
    log.reply(text="goodbye").update(response_truncated=True, response=None)
    assert _decide(log).label == "A"


def test_a_valid_nonce_shows_the_emission_of_a_truncated_reply() -> None:
    log = _acting_model()
    log.entries[0].update(response_truncated=True, response=None)
    log.entries[1]["nonce_status"] = "valid"
    assert _decide(log).label == "A"
    log.entries[1]["nonce_status"] = "mismatch"
    assert _decide(log).label == "unknown"


def test_a_nonce_alone_is_no_emission() -> None:
    log = _acting_model()
    log.entries[1].update(params={"q": "other"}, nonce_status="valid")
    assert _decide(log).dispatch_reasons == ["harness_made", "matched"]


def test_a_dispatch_before_its_reply_was_complete_is_impossible() -> None:
    log = _acting_model()
    log.entries[1].update(duration_ms=2_000.0)
    log.entries[0].update(duration_ms=5_000.0)
    decision = _decide(log)
    assert (decision.label, decision.log_problems) == ("unknown", ["impossible_durations"])


def test_children_of_composite_tools_belong_to_the_model() -> None:
    log = MadeLog()
    queries = [{"q": "red tea pot", "price": "0-50"}, {"q": "blue large cup", "service": "COD"}]
    log.reply(("find_products_in_same_shop", {"product_queries": json.dumps(queries)}))
    log.dispatch("find_product", q="red+tea+pot", price="0-50", page=1)
    log.dispatch("find_product", [], q="blue+large+cup", shop_id="1", page=1)
    log.dispatch("find_product", [], q="blue+large", shop_id="1", page=1)
    log.dispatch("find_product", q="blue", shop_id="1", page=1)
    log.dispatch("find_product", q="green+cup", shop_id="1", page=1)
    log.reply(("check_product_match", {"product_id": "7", "requirements": "{}"}))
    log.dispatch("view_product_information", product_ids="7")
    log.dispatch("view_product_information", product_ids="7")
    log.show("check_product_match", {"product_id": "7", "requirements": "{}"}, {"matched": True})
    assert _decide(log).dispatch_reasons == [
        *["composite_child"] * 4,
        "harness_made",
        "composite_child",
        "harness_made",
    ]


def test_children_end_with_the_next_reply() -> None:
    log = MadeLog()
    log.reply(("check_product_match", {"product_id": "7", "requirements": "{}"}))
    log.reply(text="nothing")
    log.dispatch("view_product_information", product_ids="7")
    log.show("check_product_match", {"product_id": "7", "requirements": "{}"})
    assert _decide(log).dispatch_reasons == ["harness_made"]


def test_automatic_retries_of_an_empty_search_belong_to_the_model() -> None:
    log = MadeLog()
    log.reply(("find_product", {"q": "red tea pot", "shop_id": "1", "service": "COD"}))
    log.dispatch("find_product", [], q="red+tea+pot", shop_id="1", service="COD", page=1)
    log.dispatch("find_product", [], q="red+tea+pot", shop_id="1", page=1)
    log.dispatch("find_product", q="red+tea", shop_id="1", page=1)
    log.dispatch("find_product", q="red", shop_id="1", page=1)
    log.show("find_product", {"q": "red tea pot", "shop_id": "1", "service": "COD"}, [{"product_id": "7"}])
    assert _decide(log).dispatch_reasons == ["matched", "retry_child", "retry_child", "harness_made"]


def test_a_search_with_rows_is_not_retried() -> None:
    log = MadeLog()
    log.reply(("find_product", {"q": "red tea pot", "service": "COD"}))
    log.dispatch("find_product", q="red+tea+pot", service="COD")
    log.dispatch("find_product", q="red+tea+pot")
    log.show("find_product", {"q": "red tea pot", "service": "COD"}, [{"product_id": "7"}])
    assert _decide(log).dispatch_reasons == ["matched", "harness_made"]


def test_native_calls_and_raw_posts_are_matched_like_xml_and_get() -> None:
    log = _acting_model()
    for index, (name, arguments) in ((0, ("find_product", FIND)), (2, ("view_product_information", VIEW))):
        call = {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        log.entries[index]["response"]["choices"][0]["message"] = {"content": None, "tool_calls": [call]}
    log.entries[1] = {**log.entries[1], "method": "POST", "params": None, "json_data": {"q": "yoga mat"}}
    assert _decide(log).label == "A"


def test_theatre_is_flagged_and_keeps_its_label() -> None:
    log = MadeLog()
    find, final = {"q": "red tea pot", "page": 1}, {"product_ids": "7000000001"}
    log.reply(("find_product", find), prompt=f"Answer with {json.dumps(find)}")
    log.dispatch("find_product", q="red+tea+pot", page=1)
    log.reply(("recommend_product", final), prompt=f"Answer with {json.dumps(final)}")
    log.show("find_product", find, [{"product_id": "7"}])
    log.show("recommend_product", final, "ok")
    decision = _decide(log)
    assert (decision.label, decision.theatre_suspected) == ("A", True)
    assert _decide(_acting_model()).theatre_suspected is False


@pytest.mark.parametrize(
    ("binding", "reason"),
    [
        ({"inference_total": 9}, "log_inconsistent:inference_count_differs"),
        ({"inference_total": None}, "log_inconsistent:inference_count_differs"),
        ({"problem_id": None}, "log_inconsistent:shared_log"),
    ],
)
def test_a_log_that_cannot_be_true_proves_nothing(binding: dict[str, Any], reason: str) -> None:
    decision = _decide(_acting_model(), **binding)
    assert (decision.label, decision.reason) == ("unknown", reason)
    assert {flag for turn in decision.emitted for flag in turn} == {None}


def test_log_entries_that_cannot_be_read_do_not_make_it_axis_b() -> None:
    log = MadeLog()
    log.dispatch("find_product", q="yoga+mat")
    log.entries.append("half an entry")  # type: ignore[arg-type]
    log.show("find_product", FIND)
    steps = log.steps()
    assert decide(messages(steps), extract(steps, binding=None)).reason == "log_unreadable"


def test_calls_that_bypassed_the_log_are_unknown() -> None:
    log = MadeLog()
    log.reply(("recommend_product", RECOMMEND))
    log.show("find_product", FIND)
    log.show("recommend_product", RECOMMEND)
    assert _decide(log).reason == "dispatches_not_logged"


def test_without_a_dialogue_nothing_is_known() -> None:
    assert decide([], extract([], binding=None)).reason == "no_dialogue"
    chat = [{"role": "user", "content": "q"}]
    assert decide(chat, extract([{"role": "user"}], binding=None)).reason == "no_steps"


def test_a_malformed_trace_is_judged_by_the_calls_that_can_be_read() -> None:
    log = _acting_model()
    decision = decide([], extract(log.steps(), binding=log.binding()))
    assert (decision.label, decision.emitted) == ("A", [])


@given(st.integers(0, 12), st.integers(0, 12), st.booleans(), st.integers(0, 1_000))
def test_share_and_label_follow_the_number_of_matching_calls(asked: int, own: int, final: bool, seed: int) -> None:
    """Any mixture of model-made and harness-made searches, in any order."""
    if asked + own == 0:
        return
    log = MadeLog()
    plan = [True] * asked + [False] * own
    random.Random(seed).shuffle(plan)
    for number, by_model in enumerate(plan):
        wanted = f"item {number}"
        log.reply(("find_product", {"q": wanted if by_model else f"unrelated {number}"}))
        log.dispatch("find_product", q=wanted.replace(" ", "+"), page=1)
        log.show("find_product", {"q": wanted}, [{"product_id": "7"}])
    log.reply(("recommend_product", RECOMMEND if final else {"product_ids": "9"}))
    log.show("recommend_product", RECOMMEND, "ok")
    decision = _decide(log)
    assert decision.share == asked / (asked + own)
    assert [flag for turn in decision.emitted for flag in turn] == [*plan, final]
    if final:
        assert decision.label == ("A" if asked >= 0.8 * (asked + own) else "mixed")
    else:
        assert decision.label == ("B" if asked <= 0.2 * (asked + own) else "mixed")


@given(st.floats(0.05, 1.0), st.floats(0.0, 0.9))
def test_the_bounds_are_settings(a_min: float, b_max: float) -> None:
    log = MadeLog()
    log.reply(("find_product", FIND))
    log.dispatch("find_product", q="yoga+mat")
    log.dispatch("find_product", q="other")
    log.show("find_product", FIND, [{"product_id": "7"}])
    steps = log.steps()
    label = decide(messages(steps), extract(steps, binding=None), a_min_share=a_min, b_max_share=b_max).label
    assert label == ("A" if a_min <= 0.5 else "B" if b_max >= 0.5 else "mixed")


def test_case_a27_calls_made_by_code_are_not_the_models(shared: Path) -> None:
    case = json.loads((shared / "cases" / "A27.json").read_text())
    decision = decide(messages(case["input"]), extract(case["input"], binding=None))
    flags = [flag for turn in decision.emitted for flag in turn]
    assert flags.count(True) == case["expect"]["model_emitted_calls"]
    assert flags.count(False) == case["expect"]["harness_calls"]
    assert decision.label == "B"
