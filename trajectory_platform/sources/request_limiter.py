"""One limiter of requests per address, shared by every process that uses the same state folder.

The API counts requests per address (domain 1.10), so two processes on one machine share one budget (case I05). A grant
is a row in SQLite written inside a transaction that holds the write lock: in no window of ``window_s`` seconds are
more than ``per_window`` grants recorded, whoever asked. A process that is killed leaves its grants behind, which is
right (its requests were sent), and no lock, because the kernel drops it. A ``Retry-After`` that one process was told
holds all of them.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trajectory_platform.errors import Abort, RetryLater
from trajectory_platform.sources.api_state import opening

MAX_HOLD_S = 3600.0  # a server, or a clock that jumped, must not silence a machine for longer than this
_ADVICE = "remove its limiter.sqlite files: that forgets the requests of the last minute"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sent (address TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS sent_at ON sent (address, at);
CREATE TABLE IF NOT EXISTS hold (address TEXT PRIMARY KEY, until REAL NOT NULL);
"""


class RequestLimiter:
    """Grants requests: at most ``per_window`` in any ``window_s`` seconds over all processes and threads.

    Args:
        folder: local folder shared by the processes (``settings.api_state``); made when it is missing.
        per_window: requests allowed in one window.
        address: what is limited; limiters of different addresses in one folder do not disturb each other.
        window_s: length of the window, in seconds.
        margin_s: added to the window, for the time between a grant and the arrival of its request.
        clock: seconds that all processes agree on (wall clock).
        sleep: waits a number of seconds.
        max_wait_s: a longer hold is not waited for.

    Raises:
        Abort: the folder cannot be used. From every method ``RetryLater("state_unavailable")`` where it cannot be used
            any more: a request that cannot be counted is not sent.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        per_window: int,
        address: str = "",
        window_s: float = 60.0,
        margin_s: float = 1.0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        max_wait_s: float = 300.0,
    ) -> None:
        if per_window < 1:
            raise ValueError("at least one request must be allowed")
        self._limit, self._window, self._address = per_window, window_s + margin_s, address
        self._clock, self._sleep, self._max_wait = clock, sleep, max_wait_s
        self._folder = Path(folder)
        self._lock = threading.Lock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                self._folder / "limiter.sqlite", timeout=60.0, isolation_level=None, check_same_thread=False
            )
            with opening(self._folder):
                self._db.execute("PRAGMA journal_mode=WAL")
                # Survives kill -9; after a power cut a minute of grants is forgotten.
                self._db.execute("PRAGMA synchronous=OFF")
                self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            advice = "" if isinstance(error, OSError | sqlite3.OperationalError) else f"; {_ADVICE}"
            raise Abort(f"api_state {str(folder)!a} cannot be used: {error}{advice}") from error

    def acquire(self) -> float:
        """Wait until a request may be sent, record it, and return the seconds waited.

        Raises:
            RetryLater: ``rate_limited`` when all processes are held for longer than ``max_wait_s``.
        """
        waited = 0.0
        while (wait := self._try()) > 0:
            self._sleep(wait)
            waited += wait
        return waited

    def hold(self, seconds: float) -> None:
        """No process sends anything for this long (at most ``MAX_HOLD_S``); an earlier, longer hold stays."""
        until = self._clock() + min(max(seconds, 0.0), MAX_HOLD_S)
        with self._lock, self._errors():
            self._db.execute(
                "INSERT INTO hold VALUES (?, ?) ON CONFLICT (address) DO UPDATE SET until = max(until, excluded.until)",
                (self._address, until),
            )

    def close(self) -> None:
        """Close the connection; grants stay recorded."""
        with self._lock:
            self._db.close()

    def _try(self) -> float:
        """Record a grant and return 0, or return the seconds after which to ask again."""
        with self._lock, self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                wait = self._wait(self._clock())
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk ends it by itself
                    self._db.execute("ROLLBACK")
                raise
            return wait

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise RetryLater("state_unavailable", f"api_state {str(self._folder)!a}: {error}", 60.0) from error
        except sqlite3.DatabaseError as error:
            raise Abort(f"api_state {str(self._folder)!a}: {error}; {_ADVICE}") from error

    def _wait(self, now: float) -> float:
        mine = (self._address,)
        # A clock that was set back leaves grants in the future: counted as sent now, so that they expire.
        self._db.execute("UPDATE sent SET at = ? WHERE address = ? AND at > ?", (now, *mine, now))
        self._db.execute("DELETE FROM sent WHERE address = ? AND at <= ?", (*mine, now - self._window))
        held = self._db.execute("SELECT until FROM hold WHERE address = ?", mine).fetchone()
        if held is not None and now < held[0] <= now + MAX_HOLD_S:
            wait = float(held[0]) - now
            if wait > self._max_wait:
                raise RetryLater("rate_limited", "the API asked all processes of this machine to wait", wait)
            return wait
        row = self._db.execute(
            "SELECT at FROM sent WHERE address = ? ORDER BY at DESC LIMIT 1 OFFSET ?", (*mine, self._limit - 1)
        ).fetchone()
        if row is not None:
            return max(float(row[0]) + self._window - now, 0.001)
        self._db.execute("INSERT INTO sent VALUES (?, ?)", (*mine, now))
        return 0.0
