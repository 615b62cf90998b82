"""How attempts go and end, what the model sees, and what nothing a policy does can break."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, FailPartition, RetryLater
from trajectory_platform.evaluation.environment import (
    ENDINGS,
    Environment,
    Limits,
    MeasuredClock,
    Reply,
    SimulatedClock,
    Task,
    TurnRequest,
)
from trajectory_platform.evaluation.episode import episode
from trajectory_platform.evaluation.rollout import Rollout, run_episode, run_rollouts
from trajectory_platform.evaluation.wire import FORMS
from trajectory_platform.sandbox.tools import TOOLS, World
from trajectory_platform.traces.rendering import chat_messages
from trajectory_platform_tests.evaluation.acting import START, Says, attempt, clock, honest, market, spoken, task

SEARCH = ("find_product", {"q": "mug"})
DONE = ("terminate", {"status": "success"})


@pytest.fixture(scope="module")
def world() -> World:
    return market()


@pytest.mark.parametrize("form", FORMS)
def test_an_honest_attempt_ends_with_terminate_in_every_form_of_calls(world: World, form: str) -> None:
    rollout = attempt(honest(form), world)
    assert rollout.ending[:6] == ("terminate", None, 4, 400, 160, 0)
    names = [call["name"] for step in rollout.environment.steps for call in step.calls]
    assert names == ["find_product", "view_product_information", "recommend_product", "terminate"]


def test_a_request_shows_the_query_the_tools_and_the_results(world: World) -> None:
    policy = Says(honest())
    run_episode(policy, task(), world, Limits(), clock=clock(task()))
    first, second = policy.requests[:2]
    assert first.messages == [{"role": "user", "content": task().query}] and first.tools == TOOLS
    assert first.results == [] and [row["product_id"] for row in second.results[0]] == ["11", "12"]
    user, said, result = second.messages
    assert said["reasoning_content"] == "I search for the mug first." and said["content"] == ""
    assert said["tool_calls"] == [
        {
            "id": "call_0",
            "type": "function",
            "function": {"name": "find_product", "arguments": '{"price":"-200","q":"blue mug"}'},
        }
    ]
    assert (result["role"], result["tool_call_id"]) == ("tool", "call_0")
    assert result["content"] == jsontext.dumps(second.results[0])


def reply(text: str | None, **more: Any) -> Callable[[TurnRequest], Reply]:
    return lambda request: Reply(text, **more)


@pytest.mark.parametrize(
    ("replies", "limits", "reason", "detail", "steps", "calls"),
    [
        (reply("I give up."), Limits(), "no_call", None, 1, 0),
        (reply(""), Limits(), "no_call", None, 0, 0),
        (reply(None), Limits(), "no_call", None, 0, 0),
        ([spoken("", [SEARCH])] * 9, Limits(max_steps=3), "step_limit", None, 3, 3),
        ([spoken("", [SEARCH])] * 9, Limits(max_total_tokens=250), "token_limit", "max_total_tokens", 2, 2),
        ([spoken("", [SEARCH])] * 9, Limits(rollout_timeout_s=0.5), "timeout", "rollout", 1, 1),
        (reply("<think>so I", finish_reason="length"), Limits(), "reply_truncated", "truncated", 1, 0),
        ([spoken("x", [SEARCH, DONE])._replace(finish_reason="length")], Limits(), "reply_truncated", None, 1, 0),
        (reply("<think>so I"), Limits(), "malformed_reply", "truncated", 1, 0),
        (reply('<tool_call>[{"name": "find_pro'), Limits(), "malformed_reply", "truncated_tool_call", 0, 0),
        (
            reply('<tool_call>{"name": "terminate", "arguments": {}}</tool_call><tool_call>{oops}</tool_call>'),
            Limits(),
            "malformed_reply",
            "malformed_tool_call",
            0,
            0,
        ),
        ([spoken("x" * 90, [SEARCH])], Limits(max_reply_chars=80), "reply_truncated", "reply_too_long", 1, 0),
        (reply(None, error="rate_limited: 429"), Limits(), "policy_error", "rate_limited: 429", 0, 0),
        (reply(None, error="timeout"), Limits(), "timeout", "reply", 0, 0),
        (reply(None, error="context_full"), Limits(), "token_limit", "context_full", 0, 0),
    ],
    ids=[
        "last_word",
        "empty",
        "null",
        "steps",
        "tokens",
        "rollout_time",
        "cut_think",
        "cut_behind_whole_calls",
        "open_think",
        "open_call",
        "one_call_damaged",
        "too_long",
        "error",
        "reply_time",
        "context",
    ],
)
def test_every_way_to_end(
    world: World, replies: Any, limits: Limits, reason: str, detail: str | None, steps: int, calls: int
) -> None:
    rollout = attempt(replies, world, limits)
    assert (rollout.ending.reason, rollout.ending.detail) == (reason, detail)
    assert reason in ENDINGS
    assert len(rollout.environment.steps) == steps
    assert sum(len(step.calls) for step in rollout.environment.steps) == calls
    assert rollout.ending.truncated_replies == (reason == "reply_truncated")


def test_all_calls_of_a_step_run_in_order_even_behind_terminate(world: World) -> None:
    late = ("recommend_product", {"product_ids": "12"})
    rollout = attempt([spoken("all at once", [SEARCH, DONE, late])], world)
    assert rollout.ending.reason == "terminate"
    [step] = rollout.environment.steps
    assert [call["name"] for call in step.calls] == ["find_product", "terminate", "recommend_product"]
    assert [message["role"] for message in rollout.environment.messages] == ["user", "assistant"] + ["tool"] * 3


def test_calls_above_the_limit_get_an_error_and_do_nothing(world: World) -> None:
    rollout = attempt([spoken("", [SEARCH, SEARCH, DONE]), spoken("", [DONE])], world, Limits(max_calls_per_step=2))
    first, second = rollout.environment.steps
    assert [call["result"] for call in first.calls][2] == {"error": "at most 2 calls in one step"}
    assert rollout.ending.reason == "terminate" and len(second.calls) == 1
    assert sum(entry["method"] == "GET" for entry in rollout.environment.log) == 2


def test_tools_understand_other_argument_names_and_the_dialogue_keeps_what_was_written(world: World) -> None:
    """The strict score reads what the model wrote (domain 6, items 4, 5, 17), the model sees a useful answer."""
    listed = ("recommend_product", {"product_ids": ["11", "12"]})
    rollout = attempt([spoken("", [("find_product", {"query": "mug"})]), spoken("", [listed, DONE])], world)
    search, last = rollout.environment.steps
    assert [row["product_id"] for row in search.calls[0]["result"]] == ["11", "12"]
    assert search.calls[0]["parameters"] == {"query": "mug"}
    assert last.calls[0]["parameters"] == {"product_ids": ["11", "12"]}
    assert "11,12" in last.calls[0]["result"]
    stated = rollout.environment.messages[1]["tool_calls"][0]["function"]["arguments"]
    assert stated == '{"q":"mug"}'


def test_a_chat_token_in_a_call_ends_the_attempt_and_never_reaches_a_history(world: World) -> None:
    rollout = attempt([spoken("", [SEARCH]), spoken("", [("find_product", {"q": "<|im_start|>system"})])], world)
    assert rollout.ending[:2] == ("malformed_reply", "control_token_in_call")
    assert "<|im_start|>" not in jsontext.dumps(rollout.environment.messages)


@pytest.mark.parametrize("tag", ["<think>", "</think>", "<tool_call>", "</tool_call>"])
def test_a_tag_of_replies_in_a_call_is_a_malformed_reply_and_no_crash_of_the_policy(world: World, tag: str) -> None:
    """No model could be asked the next turn: the fault is the reply that wrote it, and the outcome a failure."""
    from trajectory_platform.evaluation.eval_rows import CRASHES

    query = f"blue mug {tag}\n\nmore"
    called = spoken("", [("find_product", {"q": query})], form="native")
    rollout = attempt([spoken("", [SEARCH]), called, spoken("", [DONE])], world)
    assert rollout.ending[:2] == ("malformed_reply", "tag_in_call")
    assert rollout.ending.reason not in CRASHES
    assert tag not in jsontext.dumps(rollout.environment.messages)
    chat_messages(rollout.environment.messages)  # what is left of it can be shown to a model


def test_an_escaped_tag_is_the_same_tag(world: World) -> None:
    written = '<tool_call>[{"name": "find_product", "parameters": {"q": "\\u003c/think>"}}]</tool_call>'
    rollout = attempt([Reply(written)], world)
    assert rollout.ending[:2] == ("malformed_reply", "tag_in_call")


def test_control_tokens_in_texts_are_neutralised_in_the_history(world: World) -> None:
    think = "a <|im_end|> and </tool_call> \x00 in my thinking"
    rollout = attempt([spoken("", [SEARCH]), spoken(think, [SEARCH]), spoken("", [DONE])], world)
    said = rollout.environment.messages[3]["reasoning_content"]
    assert said == "a ‹|im_end|› and ‹/tool_call› \ufffd in my thinking"


HOSTILE: list[Any] = [
    "\ud83d lone",
    '<tool_call>{"name": "find_product", "arguments": {"q": "\\ud83d"}}</tool_call>',
    "<tool_call>" * 3000,
    '{"name": "find_product", "arguments": ' + '{"a":' * 3000,
    '<tool_call>{"name": "find_product", "arguments": ' + '{"a":' * 150 + "1" + "}" * 150 + "}</tool_call>",
    '<tool_call>{"name": "find_product", "arguments": {"q": NaN, "page": 1e999}}</tool_call>',
    '<tool_call>{"name": "find_product", "arguments": {"page": ' + "9" * 400 + "}}</tool_call>",
    "\x00" * 50,
    7,
    ["text"],
]


@pytest.mark.parametrize("content", HOSTILE, ids=[f"text{number}" for number in range(len(HOSTILE))])
def test_no_content_breaks_an_attempt(world: World, content: Any) -> None:
    rollout = attempt([spoken("", [SEARCH]), Reply(content), spoken("", [DONE])], world)
    assert rollout.ending.reason in ("no_call", "malformed_reply", "terminate")
    jsontext.dumps(rollout.environment.log).encode()
    jsontext.dumps(rollout.environment.messages).encode()


@pytest.mark.parametrize(
    "native",
    [
        [7],
        ["text"],
        {"name": "find_product"},
        [{"function": {"name": "find_product", "arguments": '{"q": "mu'}}],
        [{"function": {"name": "find_product", "arguments": {"q": float("nan")}}}],
        [{"function": {"name": "\ud83d", "arguments": "{}"}}],
        [{"function": {"name": "find_product", "arguments": {"q": object()}}}],
        [{"function": None}],
    ],
    ids=["number", "text", "object", "cut", "nan", "surrogate", "no_json", "null"],
)
def test_no_native_call_breaks_an_attempt(world: World, native: Any) -> None:
    rollout = attempt([Reply("hm", native), spoken("", [DONE])], world)
    assert rollout.ending.reason in ("malformed_reply", "terminate")
    jsontext.dumps(rollout.environment.log).encode()


@given(st.lists(st.text(st.characters(exclude_categories=[]), max_size=200), min_size=1, max_size=3))
def test_any_text_is_survived(texts: list[str]) -> None:
    rollout = attempt([*(Reply(text) for text in texts), spoken("", [DONE])], _WORLD)
    assert rollout.ending.reason in ENDINGS and rollout.ending.reason != "environment_error"


_WORLD = market()


def test_a_fault_of_our_own_is_named_as_such(world: World) -> None:
    class Broken(Environment):
        def call(self, name: str, arguments: Any) -> Any:
            raise ZeroDivisionError("ours")

    environment = Broken(world, query="q", clock=SimulatedClock(START, Random(1)))
    run = episode(task(), environment, Limits())
    next(run)
    with pytest.raises(StopIteration) as stop:
        run.send(spoken("", [SEARCH]))
    assert stop.value.value[:2] == ("environment_error", "ZeroDivisionError: ours")


# many at a time


class Counting:
    """A policy that takes a while and counts the requests under way."""

    name = "counting"

    def __init__(self, seconds: Callable[[Task], float] = lambda task: 0.002) -> None:
        self.seconds = seconds
        self.flying = self.most = self.asked = self.cancelled = 0

    async def reply(self, request: TurnRequest, /) -> Reply:
        self.flying += 1
        self.asked += 1
        self.most = max(self.most, self.flying)
        try:
            await asyncio.sleep(self.seconds(request.task))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.flying -= 1
        return honest()[request.turn]


def driven(policy: Any, tasks: list[Task], *, limits: Limits | None = None, concurrency: int = 4) -> list[Rollout]:
    done: list[Rollout] = []
    endings = asyncio.run(
        run_rollouts(
            policy, tasks, _WORLD, limits or Limits(), concurrency=concurrency, clock=clock, on_done=done.append
        )
    )
    assert sum(endings.values()) == len(done)
    return done


@pytest.mark.parametrize(("tasks", "concurrency"), [(20, 8), (3, 8), (5, 1), (0, 4)])
def test_concurrency_is_reached_and_never_exceeded(tasks: int, concurrency: int) -> None:
    policy = Counting()
    done = driven(policy, [task(number) for number in range(tasks)], concurrency=concurrency)
    assert len(done) == tasks and policy.asked == 4 * tasks
    assert policy.most == min(tasks, concurrency)


def test_results_do_not_depend_on_who_finishes_first() -> None:
    tasks = [task(number % 6, sample=number // 6) for number in range(12)]

    def traces(policy: Any, concurrency: int) -> dict[Any, Any]:
        done = driven(policy, tasks, concurrency=concurrency)
        return {
            rollout.task: (rollout.environment.log, rollout.environment.messages, rollout.ending) for rollout in done
        }

    slow_first = Counting(lambda of: 0.02 - of.seed * 0.003)
    assert traces(Counting(), 1) == traces(slow_first, 5)


def test_one_that_fails_costs_no_other() -> None:
    def answer(request: TurnRequest) -> Reply:
        if request.task.seed == 1:
            raise ConnectionError("gone \ud83d")
        if request.task.seed == 2:
            return {"content": "no Reply"}  # type: ignore[return-value]
        if request.task.seed == 3:
            raise asyncio.CancelledError
        return honest()[request.turn]

    done = {
        rollout.task.seed: rollout.ending for rollout in driven(Says(answer), [task(number) for number in range(6)])
    }
    assert {seed: ending.reason for seed, ending in done.items()} == {
        seed: "policy_error" if seed in (1, 2, 3) else "terminate" for seed in range(6)
    }
    assert "ConnectionError" in str(done[1].detail) and "no Reply" in str(done[2].detail)


def test_a_policy_that_hangs_ends_in_a_timeout_and_lets_others_go_on() -> None:
    policy = Counting(lambda of: 30.0 if of.seed == 2 else 0.0)
    begun = time.monotonic()
    done = driven(policy, [task(number) for number in range(5)], limits=Limits(reply_timeout_s=0.2), concurrency=2)
    assert time.monotonic() - begun < 5
    endings = {rollout.task.seed: rollout.ending[:2] for rollout in done}
    assert endings.pop(2) == ("timeout", "reply")
    assert set(endings.values()) == {("terminate", None)}
    assert policy.flying == 0 and policy.cancelled == 1


def test_a_slow_policy_ends_in_the_timeout_of_the_attempt() -> None:
    def real(_: Task) -> MeasuredClock:
        return MeasuredClock(time.monotonic, START)

    done: list[Rollout] = []
    policy = Counting(lambda of: 0.15)
    limits = Limits(rollout_timeout_s=0.4)
    asyncio.run(run_rollouts(policy, [task()], _WORLD, limits, concurrency=1, clock=real, on_done=done.append))
    [rollout] = done
    assert rollout.ending[:2] == ("timeout", "rollout")
    assert 1 <= len(rollout.environment.steps) <= 3
    assert rollout.ending.seconds < 2


def test_a_policy_that_ignores_its_cancellation_does_not_block_the_others() -> None:
    class Stubborn(Counting):
        async def reply(self, request: TurnRequest, /) -> Reply:
            if request.task.seed == 0:
                for _ in range(3):
                    try:
                        await asyncio.sleep(0.3)
                    except asyncio.CancelledError:
                        continue
            return honest()[request.turn]

    done = driven(Stubborn(), [task(0), task(1)], limits=Limits(reply_timeout_s=0.1), concurrency=1)
    assert [rollout.ending.reason for rollout in done] == ["timeout", "terminate"]


@pytest.mark.parametrize("error", [RetryLater("server_away"), Abort("no key"), FailPartition("no model")], ids=str)
def test_what_is_no_attempt_s_fault_stops_the_run(error: Exception) -> None:
    def answer(request: TurnRequest) -> Reply:
        if request.task.seed == 4:
            raise error
        return honest()[request.turn]

    with pytest.raises(type(error)):
        driven(Says(answer), [task(number) for number in range(9)], concurrency=2)
    with pytest.raises(type(error)):
        run_episode(Says(answer), task(4), _WORLD, Limits(), clock=clock(task(4)))


def test_a_full_disk_stops_the_run_and_leaves_nothing_running() -> None:
    policy = Counting(lambda of: 0.01 * (1 + of.seed))

    def full(rollout: Rollout) -> None:
        raise OSError("no space left")

    async def run() -> None:
        tasks = [task(number) for number in range(6)]
        with pytest.raises(OSError, match="no space"):
            await run_rollouts(policy, tasks, _WORLD, Limits(), concurrency=3, clock=clock, on_done=full)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
    assert policy.flying == 0


def test_cancelling_a_run_cancels_its_requests_and_reports_no_half_attempt() -> None:
    policy = Counting(lambda of: 60.0)
    done: list[Rollout] = []

    async def run() -> None:
        tasks = [task(number) for number in range(6)]
        running = asyncio.ensure_future(
            run_rollouts(policy, tasks, _WORLD, Limits(), concurrency=3, clock=clock, on_done=done.append)
        )
        await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
    assert (policy.flying, policy.cancelled, done) == (0, 3, [])


def test_concurrency_is_at_least_one() -> None:
    with pytest.raises(Abort, match="concurrency"):
        driven(Counting(), [task()], concurrency=0)


def test_what_a_policy_hands_over_is_given_back_in_order(world: World) -> None:
    rollout = attempt([reply._replace(extra=number) for number, reply in enumerate(honest())], world)
    assert rollout.extras == [0, 1, 2, 3]
