"""Asking one trace's judgment of the configured models until one gives a value or all have failed (domain 2.6).

One owner of retries: who waits, for how long and who is asked next is decided here. A rate limit pauses a model for
all traces, not only for the one that met it (case E12). Every reply is journalled before it is used.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from trajectory_platform.identity import sha256_hex
from trajectory_platform.judging import rubric
from trajectory_platform.judging.judge_budget import Reservation, Spending
from trajectory_platform.judging.judge_journal import REPLY_CHARS
from trajectory_platform.judging.judge_models import JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_reply import JudgeReply, parse
from trajectory_platform.judging.judge_router import (
    BROKEN_BODY,
    FATAL,
    FILTERED,
    FORBIDDEN,
    INFRASTRUCTURE,
    RATE_LIMITED,
    REFUSED_REQUEST,
    TIMEOUT,
    WAITING,
    CallFailure,
    RawReply,
)

FIRST_WAIT_S, LONGEST_BACKOFF_S = 5.0, 10.0
# Times the worst case of a call: more tokens are a fault of the endpoint's count (hidden thinking takes less), and one
# such number must not use up the budget of a day.
IMPLAUSIBLE = 20
HANG_GRACE_S = 2.0  # beyond a model's own timeout, for an answer that drips or a client that does not keep it
# The same question would get the same answer; another model may do better.
NOT_AGAIN = frozenset({"refused", "filtered", "truncated"})
_THIS_TRACE = frozenset({FILTERED, FORBIDDEN, REFUSED_REQUEST})

BUDGET, CIRCUIT, NO_MODEL, INTERRUPTED = "budget_exhausted", "circuit_open", "no_model_available", "interrupted"
# Nulls of a run, not of a reply or a call, and what each means for people.
STOPS = {
    BUDGET: "the budget of the run or the day would not cover another call",
    CIRCUIT: "too many traces in a row were answered by no endpoint",
    NO_MODEL: "no model is left that may be asked",
}


class Asks(Protocol):
    """One call to one model; raises CallFailure (``judge_router.JudgeRouter`` is one)."""

    async def ask(self, model: JudgeModel, messages: Sequence[dict[str, str]]) -> RawReply: ...


@runtime_checkable
class Closes(Protocol):
    """An endpoint that holds connections of the running event loop."""

    async def close(self) -> None: ...


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
    answered: bool = False


@dataclass
class _Tries:
    """What one trace has met so far, by model name."""

    about: Mapping[str, Any]
    nonce: str
    only: str | None
    given_up: Counter[str] = field(default_factory=Counter)  # replies that could not be read
    failures: Counter[str] = field(default_factory=Counter)  # calls without a reply
    usd: float = 0.0
    calls: int = 0
    reason: str = NO_MODEL

    def null(self, reason: str | None = None) -> Answer:
        return Answer(None, reason or self.reason, None, None, self.usd, self.calls)


@dataclass
class Asker:
    """The state of a run that all traces share: pauses, disabled models, spending, and why it stopped.

    Attributes:
        record: takes one row of ``judge_calls`` (without day and sequence) and makes it durable.
        clock, sleep: monotonic seconds and how to wait; injected, so that tests need no waiting.
        stopped: why no further call is made, or None.
        failed: (model, kind) -> calls without a reply; details: the first words of the endpoint about each.
    """

    config: JudgeConfig
    endpoint: Asks
    spending: Spending
    record: Callable[[dict[str, Any]], None]
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    stopped: str | None = None
    states: dict[str, _ModelState] = field(default_factory=dict)
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    details: dict[tuple[str, str], str] = field(default_factory=dict)
    failed_in_a_row: int = 0
    _settled: asyncio.Event | None = None

    def open(self) -> None:
        """Bind the limits to the running event loop; once per run."""
        self.states = {
            model.name: _ModelState(model, asyncio.Semaphore(model.concurrency)) for model in self.config.models
        }
        self._settled = asyncio.Event()

    async def close(self) -> None:
        """Close the endpoint's connections."""
        if isinstance(self.endpoint, Closes):
            await self.endpoint.close()

    def first_model(self) -> str | None:
        """The first model that may still be asked."""
        if self.stopped:
            return None
        return next((name for name, state in self.states.items() if state.disabled is None), None)

    def disabled(self, name: str) -> str | None:
        """Why this model is asked no more, or None."""
        return self.states[name].disabled

    def disable(self, name: str, reason: str) -> None:
        """Ask this model no more in this run."""
        self.states[name].disabled = self.states[name].disabled or reason
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
        tries = _Tries(about, nonce, only)
        while tries.calls < self.config.attempts:
            if self.stopped:
                return tries.null(self.stopped)
            state = self._next(tries)
            if state is None:
                break
            while not self.stopped and (pause := state.paused_until - self.clock()) > 0:
                await self.sleep(pause)
            async with state.slots:
                # Paused or out while this trace waited for its turn: another model may be free now.
                if not await self._admitted(state):
                    continue
                reservation = await self._reserve(state.model, messages)
                if reservation is None:
                    return tries.null(BUDGET)
                answer = await self._once(state, messages, reservation, tries)
            if answer is not None:
                return answer
        return tries.null()

    def note(self, answer: Answer) -> None:
        """Count a trace for the circuit breaker: so many in a row that no endpoint answered end the run.

        A reply that gives no value closes the row too: what a trace says must not be able to stop the others.
        """
        if answer.null_reason in INFRASTRUCTURE:
            self.failed_in_a_row += 1
            if self.failed_in_a_row >= self.config.breaker:
                self.stopped = self.stopped or CIRCUIT
        elif answer.null_reason not in STOPS:
            self.failed_in_a_row = 0

    def _next(self, tries: _Tries) -> _ModelState | None:
        """The model to ask: usable ones by fewest failures for this trace, free ones before paused ones."""
        now = self.clock()
        usable = [
            state
            for state in self.states.values()
            if state.disabled is None
            and tries.given_up[state.model.name] <= self.config.reasks
            and tries.only in (None, state.model.name)
        ]
        if not usable:
            return None
        free = [state for state in usable if state.paused_until <= now]
        return min(
            free or usable, key=lambda state: (0 if free else state.paused_until, tries.failures[state.model.name])
        )

    async def _admitted(self, state: _ModelState) -> bool:
        """Whether the model may be asked now; waits for its rate, spread evenly over the minute."""
        if state.model.requests_per_minute is not None and self._open_to(state):
            start = max(self.clock(), state.next_start)
            state.next_start = start + 60.0 / state.model.requests_per_minute
            while self._open_to(state) and (wait := start - self.clock()) > 0:
                await self.sleep(wait)
        return self._open_to(state)

    def _open_to(self, state: _ModelState) -> bool:
        return self.stopped is None and state.disabled is None and state.paused_until <= self.clock()

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

    async def _once(
        self, state: _ModelState, messages: Sequence[dict[str, str]], reservation: Reservation, tries: _Tries
    ) -> Answer | None:
        """One call; an answer if it gave a value."""
        tries.calls += 1
        name = state.model.name
        try:
            raw = await asyncio.wait_for(self.endpoint.ask(state.model, messages), state.model.timeout_s + HANG_GRACE_S)
        except asyncio.CancelledError:
            self._book_lost(state.model, INTERRUPTED, reservation, tries)
            raise
        except TimeoutError:
            failure = CallFailure(TIMEOUT, "the answer was not complete in time", maybe_billed=True)
        except CallFailure as met:
            failure = met
        except BaseException:
            self._settle(reservation, 0.0, 0)
            raise
        else:
            state.answered = True
            reply = self._read(state.model, raw, reservation, tries)
            if reply.quality is not None:
                return Answer(reply.quality, None, name, reply.explanation, tries.usd, tries.calls)
            tries.reason = reply.null_reason or "unparsed"
            tries.given_up[name] += self.config.reasks + 1 if tries.reason in NOT_AGAIN else 1
            return None
        if failure.maybe_billed:
            self._book_lost(state.model, failure.kind, reservation, tries)
        else:
            self._settle(reservation, 0.0, 0)
        self._after_failure(state, failure, tries)
        return None

    def _settle(self, reservation: Reservation, usd: float, tokens: int) -> None:
        self.spending.settle(reservation, usd, tokens)
        if self._settled is not None:
            self._settled.set()

    def _after_failure(self, state: _ModelState, failure: CallFailure, tries: _Tries) -> None:
        name, tries.reason = state.model.name, failure.kind
        self.failed[name, failure.kind] += 1
        self.details.setdefault((name, failure.kind), failure.detail)
        if failure.kind in FATAL or (failure.kind == FORBIDDEN and not state.answered):
            self.disable(name, failure.kind)
        elif failure.kind in _THIS_TRACE:
            tries.given_up[name] += self.config.reasks + 1
        elif failure.kind in (TIMEOUT, BROKEN_BODY):  # the next model, at once
            tries.given_up[name] += 1
        elif failure.kind in WAITING:
            self._pause(state, failure, tries)

    def _pause(self, state: _ModelState, failure: CallFailure, tries: _Tries) -> None:
        """Let the whole run wait with this model; asked to wait too long, do without it."""
        name = state.model.name
        tries.failures[name] += 1
        wait = backoff_s(failure, tries.failures[name])
        if wait > self.config.max_wait_s:
            self.disable(name, failure.kind)
            return
        spread = spread_of(f"{tries.nonce}|{tries.calls}")
        state.paused_until = max(state.paused_until, self.clock() + wait * spread)

    def _read(self, model: JudgeModel, raw: RawReply, reservation: Reservation, tries: _Tries) -> JudgeReply:
        """Journal a reply with its cost; one without token counts that can be true is booked at its worst case."""
        if (raw.prompt_tokens or 0) + (raw.completion_tokens or 0) > IMPLAUSIBLE * reservation.tokens:
            raw = raw._replace(prompt_tokens=None, completion_tokens=None)
        known = raw.prompt_tokens is not None and raw.completion_tokens is not None
        cost = model.cost(raw.prompt_tokens or 0, raw.completion_tokens or 0) if known else reservation.usd
        tokens = (raw.prompt_tokens or 0) + (raw.completion_tokens or 0) if known else reservation.tokens
        reply = parse(raw.text, raw.finish_reason, nonce=tries.nonce)
        self._write(
            model,
            tries,
            status=reply.null_reason or "ok",
            quality=reply.quality,
            explanation=reply.explanation,
            prompt_tokens=raw.prompt_tokens,
            completion_tokens=raw.completion_tokens,
            cost_usd=cost,
            cost_known=known,
            raw_reply=(raw.text or "")[:REPLY_CHARS],
        )
        tries.usd += cost
        self._settle(reservation, cost, tokens)
        return reply

    def _book_lost(self, model: JudgeModel, kind: str, reservation: Reservation, tries: _Tries) -> None:
        """A reply that may have been generated and paid for, but did not arrive: its worst case, not known."""
        self._write(
            model,
            tries,
            status=kind,
            quality=None,
            explanation=None,
            prompt_tokens=None,
            completion_tokens=None,
            cost_usd=reservation.usd,
            cost_known=False,
            raw_reply="",
        )
        tries.usd += reservation.usd
        self._settle(reservation, reservation.usd, reservation.tokens)

    def _write(self, model: JudgeModel, tries: _Tries, **row: Any) -> None:
        self.record(
            {
                **tries.about,
                "attempt": tries.calls,
                "judge_model": model.name,
                "rubric_version": rubric.RUBRIC_VERSION,
                **row,
            }
        )


def backoff_s(failure: CallFailure, failures: int) -> float:
    """Seconds until a waiting failure is tried again: what the endpoint asked for, else longer with every failure."""
    wait = failure.retry_after or 0.0
    if wait > 0.0:  # "at once" from a server that has just refused is no time to wait
        return wait
    wait = min(FIRST_WAIT_S * 2.0 ** (failures - 1), LONGEST_BACKOFF_S)
    return wait if failure.kind == RATE_LIMITED else wait / FIRST_WAIT_S  # a restart is over sooner than a rate window


def spread_of(key: str) -> float:
    """A factor of 1 to 1.1 that is the same for the same key: what failed together must not come back together."""
    return 1.0 + 0.1 * int(sha256_hex(key.encode())[:4], 16) / 0xFFFF
