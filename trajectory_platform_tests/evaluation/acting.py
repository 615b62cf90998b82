"""A small market and policies that read from a list, for the tests of environment and rollouts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from trajectory_platform.evaluation.environment import Call, Limits, Reply, SimulatedClock, Task, TurnRequest
from trajectory_platform.evaluation.rollout import Rollout, run_episode
from trajectory_platform.evaluation.wire import assistant_message
from trajectory_platform.sandbox.tools import World
from trajectory_platform_tests.sandbox.market import product, world_of

START = 1_777_000_000_000
THINK = (
    "The search gave two mugs. I prefer 11 at 120 PHP over 12 at 180 PHP because 11 is made of stoneware and "
    "12 is plain glass, which is not what was asked for."
)


def market() -> World:
    return world_of(
        product("11", title="blue mug", price=120.0, attributes={"material": ["stoneware"]}, service=["COD"]),
        product("12", title="blue glass mug", price=180.0, attributes={"material": ["glass"]}),
        product("13", title="tea box", price=60.0, shop_id="s2", description="holds 40 bags"),
        product("14", title="tea pot", price=310.5, shop_id="s2", sku_options={"1": {"color": "red"}}),
    )


def task(number: int = 0, *, sample: int = 0, query: str = "a blue stoneware mug") -> Task:
    return Task(f"problem-{number}", "suite", f"key-{number}", "product", query, sample, seed=number)


def clock(of: Task) -> SimulatedClock:
    return SimulatedClock(START, Random(f"{of.problem_key}|{of.sample}"))


def spoken(
    think: str = "", calls: list[Call] | None = None, response: str = "", form: str = "xml_array", **more: Any
) -> Reply:
    """A reply in a wire form, with token counts."""
    message = assistant_message(form, think, calls or [], response)
    usage = {"prompt_tokens": 100, "completion_tokens": 40} | more
    return Reply(message["content"], message["tool_calls"], **usage)


def honest(form: str = "xml_array") -> list[Reply]:
    """A model that searches, looks, recommends and terminates."""
    return [
        spoken("I search for the mug first.", [("find_product", {"q": "blue mug", "price": "-200"})], form=form),
        spoken(
            "The results list 11 and 12; I open both.",
            [("view_product_information", {"product_ids": "11,12"})],
            form=form,
        ),
        spoken(THINK, [("recommend_product", {"product_ids": "11"})], form=form),
        spoken("That is all.", [("terminate", {"status": "success"})], "I recommend mug 11.", form=form),
    ]


class Says:
    """A policy that says the next thing of a list, or what a function makes of the request."""

    def __init__(self, replies: list[Reply] | Callable[[TurnRequest], Reply], name: str = "listed") -> None:
        self.name, self.replies = name, replies
        self.requests: list[TurnRequest] = []

    def reply_now(self, request: TurnRequest, /) -> Reply:
        self.requests.append(request)
        return self.replies[request.turn] if isinstance(self.replies, list) else self.replies(request)

    async def reply(self, request: TurnRequest, /) -> Reply:
        return self.reply_now(request)


def attempt(
    replies: list[Reply] | Callable[[TurnRequest], Reply], world: World, limits: Limits | None = None
) -> Rollout:
    one = task()
    return run_episode(Says(replies), one, world, limits or Limits(), clock=clock(one))
