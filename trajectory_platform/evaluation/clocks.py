"""The time of one attempt, injected: drawn from a seed, or measured.

The core never looks at a wall clock of its own, so an attempt with a simulated clock repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol


class Clock(Protocol):
    """Time of one attempt. ``begin`` is called when something starts; what ends asks for its milliseconds."""

    @property
    def now(self) -> int:
        """UTC milliseconds."""

    def begin(self) -> None:
        """A reply is asked for, or a tool is called."""

    def end_reply(self, seconds: float) -> float:
        """A reply is complete; returns its milliseconds. ``seconds`` is what the policy measured, 0 if nothing."""

    def end_request(self) -> float:
        """A request to the search server is answered; returns its milliseconds."""

    def end_step(self) -> None:
        """The step is written down."""


class SimulatedClock:
    """Time that is drawn: equal seeds give equal logs. For tests, the arena and scripted policies.

    Args:
        start_ms: UTC milliseconds.
        rng: drawn from for every reply (0.9 to 3.5 s), request (50 to 480 ms) and step (0 or 1 ms).
    """

    __slots__ = ("_now", "_rng")

    def __init__(self, start_ms: int, rng: Random) -> None:
        self._now, self._rng = start_ms, rng

    @property
    def now(self) -> int:
        return self._now

    def begin(self) -> None:
        """Nothing to remember: durations are drawn when they end."""

    def end_reply(self, seconds: float) -> float:
        return self._pass(round(seconds * 1000.0, 1) if seconds > 0 else round(self._rng.uniform(900, 3500), 1))

    def end_request(self) -> float:
        return self._pass(round(self._rng.uniform(50, 480), 1))

    def end_step(self) -> None:
        self._now += self._rng.choice((0, 0, 1))

    def _pass(self, milliseconds: float) -> float:
        self._now += max(1, int(milliseconds))  # no two entries of a log are of one moment
        return milliseconds


class MeasuredClock:
    """Time that is measured, for policies that take theirs.

    No two entries of a log get the same millisecond: where work is faster, its stamp is the next free one. Two equal
    calls in a row would otherwise look like one entry forged twice (domain 6, item 36).

    Args:
        monotonic: seconds since any moment, never going back (``time.monotonic``); the entry point injects it.
        start_ms: UTC milliseconds at the moment of construction.
    """

    __slots__ = ("_begun", "_least", "_monotonic", "_start_ms", "_zero")

    def __init__(self, monotonic: Callable[[], float], start_ms: int) -> None:
        self._monotonic, self._start_ms, self._least = monotonic, start_ms, start_ms
        self._zero = self._begun = monotonic()

    @property
    def now(self) -> int:
        # What was read may stand in an entry: on a busy machine time passes between its end and its stamp, and the next
        # entry must not get the same millisecond.
        self._least = max(self._least, self._at(self._monotonic()))
        return self._least

    def begin(self) -> None:
        self._begun = self._monotonic()

    def end_reply(self, seconds: float) -> float:
        return self.end_request()

    def end_request(self) -> float:
        before, self._begun = self._begun, self._monotonic()
        self._least = max(self._least + 1, self._at(self._begun))
        return round((self._begun - before) * 1000.0, 1)

    def end_step(self) -> None:
        """Real time passes by itself."""

    def _at(self, moment: float) -> int:
        return self._start_ms + int((moment - self._zero) * 1000.0)
