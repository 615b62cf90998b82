"""What the environment executes and what it logs about it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform.errors import Abort
from trajectory_platform.evaluation.environment import Environment, Limits, MeasuredClock, SimulatedClock
from trajectory_platform.sandbox.tools import World
from trajectory_platform_tests.evaluation.acting import START, market


@pytest.fixture(scope="module")
def world() -> World:
    return market()


def made(world: World, **options: Any) -> Environment:
    return Environment(world, query="a mug", clock=SimulatedClock(START, Random(3)), model="m", **options)


def test_a_step_by_a_model_logs_its_reply_and_then_its_requests(world: World) -> None:
    environment = made(world)
    message = {"role": "assistant", "content": "<tool_call>...</tool_call>"}
    [rows] = environment.act("think", [("find_product", {"q": "mug"})], message=message, usage={"completion_tokens": 9})
    reply, request = environment.log
    assert [entry["method"] for entry in environment.log] == ["POST", "GET"]
    assert reply["path"] == "/inference/chat/completions" and reply["json_data"] == {"model": "m"}
    assert reply["response"]["choices"] == [{"index": 0, "message": message, "finish_reason": "stop"}]
    assert reply["response"]["usage"] == {"completion_tokens": 9}
    assert request["path"] == "/search/find_product" and request["params"] == {"q": "mug", "page": 1}
    assert request["response"] == rows and [row["product_id"] for row in rows] == ["11", "12"]
    # stamped at the end of the call
    assert reply["timestamp"] - reply["duration_ms"] == pytest.approx(START, abs=1)
    assert request["timestamp"] - request["duration_ms"] == pytest.approx(reply["timestamp"], abs=1)
    [step] = environment.steps
    assert step.timestamp >= request["timestamp"] == environment.log[-1]["timestamp"]
    assert step.calls == [{"name": "find_product", "parameters": {"q": "mug"}, "result": rows}]


def test_steps_by_code_and_narrations_leave_what_they_are(world: World) -> None:
    environment = made(world)
    environment.run("code", [("view_product_information", {"product_ids": "13"})])
    environment.narrate("I would look at 13.")
    assert [entry["method"] for entry in environment.log] == ["GET", "POST"]
    assert len(environment.steps) == 1


def test_composite_tools_send_several_requests_and_local_ones_none(world: World) -> None:
    environment = made(world)
    queries = '[{"q": "tea box"}, {"q": "tea pot"}]'
    [found] = environment.run("", [("find_products_in_same_shop", {"product_queries": queries})])
    assert found["found"] and len(environment.log) > 1
    assert {entry["path"] for entry in environment.log} == {"/search/find_product"}
    environment.run("", [("check_product_match", {"product_id": "11", "requirements": '{"m": "stoneware"}'})])
    assert environment.log[-1]["path"] == "/search/view_product_information"
    before = len(environment.log)
    environment.run("", [("recommend_product", {"product_ids": "11"}), ("terminate", {"status": "success"})])
    assert len(environment.log) == before


def test_search_words_are_joined_by_plus_signs_where_the_agent_does_so(world: World) -> None:
    environment = made(world, plus=True)
    environment.run("", [("find_product", {"q": "blue mug", "sort": "default", "shop_id": None})])
    assert environment.log[0]["params"] == {"q": "blue+mug", "page": 1}
    environment.run("", [("find_product", {"q": "\ud83d"})])  # a lone surrogate is no reason to stop


def test_an_empty_search_is_repeated_without_its_service_where_the_agent_does_so(world: World) -> None:
    call = ("find_product", {"q": "glass mug", "service": "official"})
    assert made(world).run("", [call]) == [[]]
    environment = made(world, retry_without_service=True)
    [rows] = environment.run("", [call])
    assert {row["product_id"] for row in rows} == {"11", "12"}
    assert ["service" in entry["params"] for entry in environment.log] == [True, False]


@pytest.mark.parametrize(
    "arguments",
    ["service: 12", None, 7, float("nan"), [], {"q": float("nan")}, {"product_ids": {"a": 1}}, {1: 2}],
    ids=["text", "none", "number", "nan", "list", "nan_inside", "object_inside", "number_key"],
)
@pytest.mark.parametrize("name", ["find_product", "view_product_information", "recommend_product", "terminate", "odd"])
def test_arguments_of_any_type_are_answered_and_kept(world: World, name: str, arguments: Any) -> None:
    environment = made(world, plus=True, retry_without_service=True)
    [result] = environment.run("", [(name, arguments)])
    assert result is not None
    assert environment.steps[0].calls[0]["parameters"] is arguments


@given(st.text(), st.text(max_size=20))
def test_no_text_makes_a_call_raise(query: str, price: str) -> None:
    environment = made(_WORLD, plus=True)
    environment.run(query, [("find_product", {"q": query, "price": price, "service": price})])
    assert len(environment.steps) == 1


_WORLD = market()


def test_equal_seeds_give_equal_logs(world: World) -> None:
    first, second = made(world), made(world)
    for environment in (first, second):
        environment.act("t", [("find_product", {"q": "tea"})], message={"role": "assistant", "content": "x"})
    assert first.log == second.log and first.steps == second.steps


def test_a_measured_clock_states_what_its_source_says(world: World) -> None:
    moments = iter([10.0, 10.0, 12.5, 12.5, 13.0, 13.5, 14.0, 14.0])
    environment = Environment(world, query="q", clock=MeasuredClock(lambda: next(moments), START))
    environment.clock.begin()  # at 10.0
    environment.infer({"role": "assistant", "content": "x"})  # complete at 12.5
    assert environment.log[0]["duration_ms"] == 2500.0 and environment.log[0]["timestamp"] == START + 2500
    environment.call("find_product", {"q": "mug"})  # from 13.0 to 13.5, looked at again at 14.0
    assert environment.log[1]["duration_ms"] == 500.0 and environment.log[1]["timestamp"] == START + 4000


@pytest.mark.parametrize(
    "name", ["max_steps", "reply_tokens", "max_total_tokens", "reply_timeout_s", "max_reply_chars"]
)
def test_limits_are_above_zero(name: str) -> None:
    with pytest.raises(Abort, match=name):
        Limits(**{name: 0})


def test_a_measured_entry_never_gets_the_millisecond_that_was_read_before() -> None:
    """On a busy machine time passes between the end of an entry and the moment its stamp is read."""
    from trajectory_platform.evaluation.clocks import MeasuredClock

    moments = iter([0.0, 0.001, 0.002, 0.007, 0.007, 0.0071])
    clock = MeasuredClock(lambda: next(moments), 1000)
    clock.begin()
    clock.end_reply(0.0)
    first = clock.now  # 7 ms: five after the reply had ended
    clock.end_request()  # within the same millisecond
    assert first == 1007 and clock.now > first
