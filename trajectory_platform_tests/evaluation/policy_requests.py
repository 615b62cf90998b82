"""Tasks, requests and a small market for the tests of policies."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from trajectory_platform.evaluation.environment import Limits, SimulatedClock, Task, TurnRequest
from trajectory_platform.evaluation.rollout import Rollout, run_rollouts
from trajectory_platform.sandbox.tools import TOOLS, World
from trajectory_platform_tests.sandbox.market import product, world_of


def task(number: int = 0, query: str = "Find a blue mug.", **more: Any) -> Task:
    return Task(f"p{number}", "1", f"key-{number}", "product", query, **more)


def request(
    asked: Task | None = None, *, turn: int = 0, messages: list[dict[str, Any]] | None = None, **limits: Any
) -> TurnRequest:
    asked = asked or task()
    history = messages or [{"role": "user", "content": asked.query}]
    return TurnRequest(asked, turn, history, TOOLS, Limits(**limits), [])


def market() -> World:
    """Mugs in two shops; only m2 is blue and cheap enough, and only shop s2 has a mug and a red bowl."""
    return world_of(
        product("m1", title="blue mug large", price=500.0, attributes={"color": ["blue"]}),
        product("m2", title="blue mug", price=120.0, attributes={"color": ["blue"], "material": ["steel"]}),
        product("m3", title="green mug", price=110.0, attributes={"color": ["green"]}),
        product("m4", title="blue mug", price=130.0, shop_id="s2", attributes={"color": ["blue"]}),
        product("b1", title="red bowl", price=90.0, shop_id="s2", attributes={"color": ["red"]}),
        product("b2", title="white bowl", price=80.0, attributes={"color": ["white"]}),
    )


def clock(_task: Task) -> SimulatedClock:
    return SimulatedClock(1_750_000_000_000, Random(3))


def drive(policy: Any, tasks: list[Task], *, concurrency: int = 1, world: World | None = None, **limits: Any) -> Any:
    """Let the driver run the tasks; returns the finished attempts by problem id and sample."""
    done: dict[tuple[str, int], Rollout] = {}

    async def run() -> None:
        await run_rollouts(
            policy,
            tasks,
            world or market(),
            Limits(**limits),
            concurrency=concurrency,
            clock=clock,
            on_done=lambda rollout: done.__setitem__((rollout.task.problem_id, rollout.task.sample), rollout),
        )
        if hasattr(policy, "aclose"):
            await policy.aclose()

    asyncio.run(run())
    return done
