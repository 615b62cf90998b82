"""The clock of the local server of the public API: it says up to which moment the history has happened."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta


class ServerClock:
    """The moment up to which the history has happened: standing still, running at a speed, or the machine's own.

    Args:
        start: aware UTC; None = the machine's clock.
        speed: virtual seconds per second.
    """

    def __init__(self, start: datetime | None = None, speed: float = 0.0) -> None:
        self._lock = threading.Lock()
        self._start, self._speed, self._since = start, speed, time.monotonic()

    def now(self) -> datetime:
        with self._lock:
            if self._start is None:
                return datetime.now(UTC)
            return self._start + timedelta(seconds=self._speed * (time.monotonic() - self._since))

    def set(self, moment: datetime) -> None:
        with self._lock:
            self._start, self._since = moment, time.monotonic()
