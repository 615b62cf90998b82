"""The budget of requests of one day, kept at the one place every request passes: repeated tries count like first ones.

A budget is of one subnet day and one UTC day on which it is looked at: looks that follow each other on the same UTC day
share it, so that a day that fails half-way and is tried again every ten minutes costs no more than a day that does not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Protocol

from trajectory_platform.errors import RetryLater

if TYPE_CHECKING:
    from trajectory_platform.sources.api_state import ApiState

BUDGET_SPENT = "request_budget"


class Limiter(Protocol):
    """What the client needs of ``RequestLimiter``."""

    def acquire(self) -> float: ...
    def hold(self, seconds: float) -> None: ...


class RequestBudget:
    """A limiter that grants only so many requests while it is told to; everything else is the limiter's behind it."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._left: int | None = None
        self._lock = threading.Lock()

    @contextmanager
    def at_most(self, requests: int | None) -> Iterator[None]:
        """Inside, no more than this many requests are granted (None: any number)."""
        self._left = None if requests is None else max(requests, 0)
        try:
            yield
        finally:
            self._left = None

    def acquire(self) -> float:
        """Seconds waited for one request.

        Raises:
            RetryLater: ``request_budget``, or as the limiter.
        """
        with self._lock:
            if self._left is not None:
                if self._left == 0:
                    raise RetryLater(BUDGET_SPENT, "the requests of this day are spent (api_requests_per_day)")
                self._left -= 1
        return self._limiter.acquire()

    def hold(self, seconds: float) -> None:
        """See ``RequestLimiter.hold``."""
        self._limiter.hold(seconds)

    def close(self) -> None:
        """Close the limiter behind."""
        close = getattr(self._limiter, "close", None)
        if close is not None:
            close()


class Spending:
    """What was asked of the API for one subnet day on one UTC day of looks; kept in the state folder.

    Attributes:
        budget: requests allowed; None for any number.
        spent: requests sent on the UTC day of ``now``, those of earlier looks included.
    """

    def __init__(self, state: ApiState, day: date, budget: int | None, now: datetime) -> None:
        self._state, self._now, self.budget = state, now, budget
        self._key, self._today = f"spent:{day.isoformat()}", now.astimezone(UTC).date()
        held = state.answer(self._key, now)
        known = held[1] if held is not None else {}
        self._before = int(known["requests"]) if known.get("on") == self._today.isoformat() else 0
        self.spent = self._before

    def sent(self, requests: int) -> None:
        """Note how many requests this look has sent so far."""
        self.spent = self._before + requests
        self._state.remember(self._key, {"on": self._today.isoformat(), "requests": self.spent}, self._now)

    @property
    def left(self) -> int | None:
        """Requests that may still be sent today; None for any number."""
        return None if self.budget is None else max(self.budget - self.spent, 0)

    def resumes(self, listing: int) -> datetime | None:
        """When a further look, which costs ``listing`` requests before it fetches anything, has room again.

        None: at once. A budget below the cost of a listing allows one look a day.
        """
        if self.left is None or self.left > listing:
            return None
        return datetime.combine(self._today, time(), tzinfo=UTC) + timedelta(days=1)
