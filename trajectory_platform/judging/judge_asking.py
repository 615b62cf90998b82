"""Asking one trace's judgment of the configured models until one gives a value or all have failed (domain 2.6).

One owner of retries: who waits, for how long and who is asked next is decided here. A rate limit pauses a model for
all traces, not only for the one that met it (case E12). Every reply is journalled before it is read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from trajectory_platform.identity import sha256_hex
from trajectory_platform.judging import rubric
from trajectory_platform.judging.judge_budget import Reservation, Spending
from trajectory_platform.judging.judge_journal import REPLY_CHARS
from trajectory_platform.judging.judge_models import JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_reply import JudgeReply, parse
from trajectory_platform.judging.judge_router import BROKEN_BODY, FATAL, TIMEOUT, WAITING, CallFailure, RawReply

FIRST_WAIT_S, LONGEST_BACKOFF_S = 5.0, 10.0
HANG_GRACE_S = 5.0  # beyond a model's own timeout, for a client that does not keep it
_NOT_AGAIN = frozenset({"refused", "filtered"})  # another model may answer, the same one will not

BUDGET, CIRCUIT, NO_MODEL = "budget_exhausted", "circuit_open", "no_model_available"


class Asks(Protocol):
    """One call to one model; raises CallFailure (``judge_router.JudgeRouter`` is one)."""

    async def ask(self, model: JudgeModel, messages: Sequence[dict[str, str]]) -> RawReply: ...


class Answer(NamedTuple):
    """What asking for one prompt came to.

    Attributes:
        quality: value on the grid, or None with ``null_reason``.
        model: name of the model that answered, None where none did.
        usd: of all calls made for it.
    """

    quality: float | None
    null_reason: str | None
    model: str | None
    explanation: str | None
    usd: float
    calls: int


@dataclass
class _ModelState:
    """Limits of one model, shared by all traces of a run."""

    model: JudgeModel
    slots: asyncio.Semaphore
    paused_until: float = 0.0
    next_start: float = 0.0
    disabled: str | None = None


@dataclass
class Asker:
    """The state of a run that all traces share: pauses, disabled models, spending, and why it stopped.

    Attributes:
        record: takes one row of ``judge_calls`` (without day and sequence) and makes it durable.
        clock, sleep: monotonic seconds and how to wait; injected, so that tests need no waiting.
        stopped: why no further call is made, or None.
    """

    config: JudgeConfig
    endpoint: Asks
    spending: Spending
    record: Callable[[dict[str, Any]], None]
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    stopped: str | None = None
    states: dict[str, _ModelState] = field(default_factory=dict)
    failed_in_a_row: int = 0
    _settled: asyncio.Event | None = None

    def open(self) -> None:
        """Bind the limits to the running event loop."""
        old = self.states
        self.states = {
            model.name: _ModelState(model, asyncio.Semaphore(model.concurrency)) for model in self.config.models
        }
        for name, state in old.items():
            self.states[name].disabled = state.disabled
            self.states[name].paused_until = state.paused_until
            self.states[name].next_start = state.next_start
        self._settled = asyncio.Event()

    def first_model(self) -> str | None:
        """The first model that may still be asked."""
        if self.stopped:
            return None
        return next((name for name, state in self.states.items() if state.disabled is None), None)

    def disable(self, name: str, reason: str) -> None:
        """Ask this model no more in this run."""
        self.states[name].disabled = reason
        if all(state.disabled for state in self.states.values()):
            self.stopped = self.stopped or reason

    async def answer(
        self,
        messages: Sequence[dict[str, str]],
        nonce: str,
        about: Mapping[str, Any],
        only: str | None = None,
    ) -> Answer:
        """Ask until a value is read, every model is out, the attempts are used up, or the run stopped.

        Args:
            about: columns of the journal rows that say what is asked about.
            only: ask this model and no other (canaries).
        """
        unreadable: Counter[str] = Counter()
        failures: Counter[str] = Counter()
        usd, calls, reason = 0.0, 0, NO_MODEL
        while calls < self.config.attempts:
            if self.stopped:
                return Answer(None, self.stopped, None, None, usd, calls)
            state = self._next(unreadable, failures, only)
            if state is None:
                break
            await self._wait_for(state)
            reservation = await self._reserve(state.model, messages)
            if reservation is None:
                return Answer(None, BUDGET, None, None, usd, calls)
            calls += 1
            try:
                raw = await self._call(state, messages)
            except CallFailure as failure:
                self._settle(reservation, 0.0, 0)
                reason = failure.kind
                unreadable[state.model.name] += failure.kind in (TIMEOUT, BROKEN_BODY)  # the next model, at once
                self._after_failure(state, failure, failures, f"{nonce}|{calls}")
                continue
            reply, cost = self._read(state.model, raw, reservation, nonce, {**about, "attempt": calls})
            usd += cost
            if reply.quality is not None:
                return Answer(reply.quality, None, state.model.name, reply.explanation, usd, calls)
            reason = reply.null_reason or "unparsed"
            unreadable[state.model.name] += self.config.reasks + 1 if reason in _NOT_AGAIN else 1
        return Answer(None, reason, None, None, usd, calls)

    def note(self, answer: Answer) -> None:
        """Count a trace for the circuit breaker: so many in a row that nobody could judge end the run."""
        if answer.quality is not None:
            self.failed_in_a_row = 0
        elif answer.null_reason not in (BUDGET, CIRCUIT):
            self.failed_in_a_row += 1
            if self.failed_in_a_row >= self.config.breaker:
                self.stopped = self.stopped or CIRCUIT

    def _next(self, unreadable: Counter[str], failures: Counter[str], only: str | None) -> _ModelState | None:
        """The model to ask: usable ones by fewest failures for this trace, free ones before paused ones."""
        now = self.clock()
        usable = [
            state
            for state in self.states.values()
            if state.disabled is None
            and unreadable[state.model.name] <= self.config.reasks
            and only in (None, state.model.name)
        ]
        if not usable:
            return None
        free = [state for state in usable if state.paused_until <= now]
        return min(free or usable, key=lambda state: (0 if free else state.paused_until, failures[state.model.name]))

    async def _wait_for(self, state: _ModelState) -> None:
        """Until the model's pause is over and its rate allows another call."""
        while (pause := state.paused_until - self.clock()) > 0:
            await self.sleep(pause)
        if state.model.requests_per_minute is not None:
            start = max(self.clock(), state.next_start)
            state.next_start = start + 60.0 / state.model.requests_per_minute
            if (wait := start - self.clock()) > 0:
                await self.sleep(wait)

    async def _reserve(self, model: JudgeModel, messages: Sequence[dict[str, str]]) -> Reservation | None:
        """Room in the budget. What calls in flight do not need comes back when they settle, so it is waited for."""
        assert self._settled is not None, "open() binds the run to its event loop first"
        while True:
            reservation = self.spending.reserve(model, messages)
            if reservation is not None:
                return reservation
            if self.stopped or not self.spending.in_flight:
                self.stopped = self.stopped or BUDGET
                return None
            self._settled.clear()
            await self._settled.wait()

    async def _call(self, state: _ModelState, messages: Sequence[dict[str, str]]) -> RawReply:
        async with state.slots:
            try:
                return await asyncio.wait_for(
                    self.endpoint.ask(state.model, messages), state.model.timeout_s + HANG_GRACE_S
                )
            except TimeoutError as error:
                raise CallFailure(TIMEOUT, "the client did not keep its timeout") from error

    def _settle(self, reservation: Reservation, usd: float, tokens: int) -> None:
        self.spending.settle(reservation, usd, tokens)
        if self._settled is not None:
            self._settled.set()

    def _after_failure(self, state: _ModelState, failure: CallFailure, failures: Counter[str], draw: str) -> None:
        failures[state.model.name] += 1
        if failure.kind in FATAL:
            self.disable(state.model.name, failure.kind)
        elif failure.kind in WAITING:
            wait = min(FIRST_WAIT_S * 2 ** (failures[state.model.name] - 1), LONGEST_BACKOFF_S)
            if failure.kind != "rate_limited" and failure.retry_after is None:
                wait /= FIRST_WAIT_S  # a restart is over sooner than a rate window
            wait = max(wait if failure.retry_after is None else 0.0, failure.retry_after or 0.0)
            if wait > self.config.max_wait_s:
                self.disable(state.model.name, failure.kind)
                return
            share = int(sha256_hex(draw.encode())[:4], 16) / 0xFFFF
            state.paused_until = max(state.paused_until, self.clock() + wait * (1.0 + 0.1 * share))

    def _read(
        self, model: JudgeModel, raw: RawReply, reservation: Reservation, nonce: str, about: dict[str, Any]
    ) -> tuple[JudgeReply, float]:
        """Book the cost, journal the reply, then read it; a reply without token counts is booked at its worst case."""
        known = raw.prompt_tokens is not None and raw.completion_tokens is not None
        cost = model.cost(raw.prompt_tokens or 0, raw.completion_tokens or 0) if known else reservation.usd
        tokens = (raw.prompt_tokens or 0) + (raw.completion_tokens or 0) if known else reservation.tokens
        reply = parse(raw.text, raw.finish_reason, nonce=nonce)
        self.record(
            {
                **about,
                "judge_model": model.name,
                "rubric_version": rubric.RUBRIC_VERSION,
                "status": reply.null_reason or "ok",
                "quality": reply.quality,
                "explanation": reply.explanation,
                "prompt_tokens": raw.prompt_tokens,
                "completion_tokens": raw.completion_tokens,
                "cost_usd": cost,
                "cost_known": known,
                "raw_reply": (raw.text or "")[:REPLY_CHARS],
            }
        )
        self._settle(reservation, cost, tokens)
        return reply, cost
