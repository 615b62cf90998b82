"""Attempts driven: one after the other for scripts, or many at a time for policies that wait for a model.

What a reply means is decided in ``evaluation.episode``; here it is asked for, with time limits and a concurrency that
is really applied. One attempt that fails costs no other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trajectory_platform.errors import Abort, FailPartition, RetryLater
from trajectory_platform.evaluation.environment import (
    TIMEOUT,
    Clock,
    Ending,
    Environment,
    Limits,
    Reply,
    Task,
    TurnRequest,
)
from trajectory_platform.evaluation.episode import VERSION as VERSION
from trajectory_platform.evaluation.episode import episode as episode

if TYPE_CHECKING:
    from trajectory_platform.sandbox.tools import World

_GRACE_S = 1.0  # for policies to give up the requests that nobody waits for any more


class Policy(Protocol):
    """Whoever answers. ``name`` is its identity in stored rows and logs."""

    @property
    def name(self) -> str: ...

    def reply(self, request: TurnRequest, /) -> Coroutine[Any, Any, Reply]: ...


class PolicyNow(Protocol):
    """A policy that answers without an event loop."""

    @property
    def name(self) -> str: ...

    def reply_now(self, request: TurnRequest, /) -> Reply: ...


class Rollout(NamedTuple):
    """One finished attempt.

    Attributes:
        policy: name of who answered.
        environment: steps, log and canonical messages.
        extras: ``Reply.extra`` of every reply, in order.
    """

    task: Task
    policy: str
    environment: Environment
    ending: Ending
    extras: list[Any]


def run_episode(policy: PolicyNow, task: Task, world: World, limits: Limits, *, clock: Clock) -> Rollout:
    """One attempt without an event loop, for scripts and tests. A reply cannot be interrupted here.

    Raises:
        RetryLater, FailPartition, Abort: as ``run_rollouts``.
    """
    environment = Environment(world, query=task.query, clock=clock, model=policy.name)
    run = episode(task, environment, limits)
    extras: list[Any] = []
    try:
        request = next(run)
        while True:
            try:
                reply = _checked(policy.reply_now(request))
            except (Abort, FailPartition, RetryLater):
                raise
            except Exception as error:  # noqa: BLE001  what a policy raises is the attempt's end
                reply = _raised(error)
            extras.append(reply.extra)
            request = run.send(reply)
    except StopIteration as stop:
        return Rollout(task, policy.name, environment, stop.value, extras)


async def run_rollouts(
    policy: Policy,
    tasks: Iterable[Task],
    world: World,
    limits: Limits,
    *,
    concurrency: int,
    clock: Callable[[Task], Clock],
    on_done: Callable[[Rollout], None],
) -> dict[str, int]:
    """Many attempts, always ``concurrency`` of them under way while there are tasks left.

    Args:
        tasks: started in this order; what each gives does not depend on the others.
        clock: makes the clock of one attempt.
        on_done: called with each finished attempt, in the order in which they end. What it raises stops everything.

    Returns:
        How many attempts ended how.

    Raises:
        RetryLater, FailPartition, Abort: from the policy: no attempt's fault (the server is away, the key is wrong).
            Attempts under way are dropped, so that they can be made again; none is counted as a failure.
        asyncio.CancelledError: as for any coroutine; requests under way are cancelled.
    """
    if concurrency < 1:
        raise Abort(f"concurrency must be at least 1, not {concurrency}")
    endings: Counter[str] = Counter()
    waiting = iter(tasks)
    abandoned: set[asyncio.Future[Any]] = set()

    async def work() -> None:
        for task in waiting:  # one iterator for all workers: each task is taken once
            environment = Environment(world, query=task.query, clock=clock(task), model=policy.name)
            rollout = await _attempt(policy, task, environment, limits, abandoned)
            endings[rollout.ending.reason] += 1
            on_done(rollout)

    workers = [asyncio.ensure_future(work()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        if abandoned:
            await asyncio.wait(set(abandoned), timeout=_GRACE_S)
    return dict(sorted(endings.items()))


async def _attempt(
    policy: Policy, task: Task, environment: Environment, limits: Limits, abandoned: set[asyncio.Future[Any]]
) -> Rollout:
    deadline = asyncio.get_running_loop().time() + limits.rollout_timeout_s
    run = episode(task, environment, limits)
    extras: list[Any] = []
    try:
        request = next(run)
        while True:
            reply = await _ask(policy, request, deadline, abandoned)
            extras.append(reply.extra)
            request = run.send(reply)
    except StopIteration as stop:
        return Rollout(task, policy.name, environment, stop.value, extras)


async def _ask(policy: Policy, request: TurnRequest, deadline: float, abandoned: set[asyncio.Future[Any]]) -> Reply:
    """The reply, or the error that stands for none. A request that nobody waits for any more is cancelled."""
    left = deadline - asyncio.get_running_loop().time()
    allowed = request.limits.reply_timeout_s
    if left <= 0:
        return Reply(error=f"{TIMEOUT}: rollout")
    asked = asyncio.ensure_future(policy.reply(request))
    try:
        done, _ = await asyncio.wait({asked}, timeout=min(left, allowed))
    finally:
        if not asked.done():
            asked.cancel()
            abandoned.add(asked)
            asked.add_done_callback(abandoned.discard)
    if not done:
        return Reply(error=f"{TIMEOUT}: {'reply' if allowed <= left else 'rollout'}")
    if asked.cancelled():
        return Reply(error="policy_error: the policy cancelled its own request")
    error = asked.exception()
    if error is None:
        return _checked(asked.result())
    if isinstance(error, Abort | FailPartition | RetryLater) or not isinstance(error, Exception):
        raise error
    return _raised(error)


def _checked(reply: Any) -> Reply:
    return reply if isinstance(reply, Reply) else Reply(error=f"policy_error: a {type(reply).__name__} is no Reply")


def _raised(error: Exception) -> Reply:
    return Reply(error=f"policy_error: {type(error).__name__}: {error}"[:500])
