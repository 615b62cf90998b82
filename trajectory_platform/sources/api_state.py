"""What ingestion remembers between looks, in one SQLite file of the state folder (``settings.api_state``).

The queue of wanted artifacts (``sources.wanted``), the answers of the API that may be used again for a while, on which
days an agent version was judged, and what state each day is in. WAL and whole transactions: a process killed at any
point leaves the last complete step. Losing the file costs requests, no data: what lies in the day folders is adopted.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, PlatformError, RejectRow, RetryLater
from trajectory_platform.identity import parse_utc, sha256_hex

_SCHEMA = """
CREATE TABLE IF NOT EXISTS wanted (
    eval_run_id TEXT NOT NULL, problem_id TEXT NOT NULL, day TEXT NOT NULL, agent_version_id TEXT NOT NULL,
    miner TEXT NOT NULL, race_id TEXT, rank INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, until TEXT,
    tries INTEGER NOT NULL DEFAULT 0, first_try TEXT, sha256 TEXT, size INTEGER, stratum TEXT, probability REAL,
    not_found INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (eval_run_id, problem_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS wanted_day ON wanted (day, state);
CREATE TABLE IF NOT EXISTS inside (eval_run_id TEXT NOT NULL, holder TEXT NOT NULL, problem_id TEXT NOT NULL,
    sound INTEGER NOT NULL, PRIMARY KEY (eval_run_id, holder, problem_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, seen_at TEXT NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS judged (agent_version_id TEXT NOT NULL, day TEXT NOT NULL,
    PRIMARY KEY (agent_version_id, day)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS days (day TEXT PRIMARY KEY, state TEXT NOT NULL, due TEXT, reason TEXT NOT NULL,
    memory TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS owner (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL);
"""
_SCHEMA_VERSION = 2  # PRAGMA user_version; 0 is a new file, or one of before the version was written
_QUEUE = "queue.sqlite"
_CLOCKS_DIFFER = timedelta(minutes=5)  # processes of several machines may share a folder
_ADVICE = "remove its queue*.sqlite files: that costs requests, no data, as what lies in the day folders is adopted"


# Files of runs of which pairs lie in another's file are adopted, and so looked into, at the next look at their day.
_UPGRADE = """
UPDATE wanted SET state = 'wanted', reason = 'file_vanished' WHERE state = 'fetched' AND eval_run_id IN (
    SELECT eval_run_id FROM wanted WHERE reason = 'in_whole_file')
"""


def _upgrade(db: sqlite3.Connection) -> None:
    """From layout 1 (without ``not_found`` and ``inside``), or a new file."""
    if "not_found" not in {column[1] for column in db.execute("PRAGMA table_info(wanted)")}:
        db.execute("ALTER TABLE wanted ADD COLUMN not_found INTEGER NOT NULL DEFAULT 0")
        db.execute(_UPGRADE)
    db.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")


@contextmanager
def opening(folder: Path) -> Iterator[None]:
    """One process at a time sets up the files of a folder: the switch to WAL does not wait for a lock (SQLite)."""
    (folder / "locks").mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / "locks" / "opening.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class DayState(NamedTuple):
    """What is known of a day: ``state`` (open, final, final_with_holes), when to look again, why, and what to keep."""

    state: str
    due: datetime | None
    reason: str
    memory: dict[str, Any]


class ApiState:
    """The state folder. One object per process; its methods may be called from several threads.

    Args:
        folder: local folder, made when it is missing.
        owner: which API is fetched to where. What is final in one data root, or was answered by one API, says nothing
            of another: the first owner has ``queue.sqlite``, every other a file of its own. None takes the first.

    Raises:
        Abort: the folder cannot be used (no local folder, not writable, a file that is damaged or of a newer version).
    """

    def __init__(self, folder: str | Path, *, owner: str | None = None) -> None:
        if str(folder).startswith("s3://"):
            raise Abort(f"api_state {str(folder)!a} must be a local folder: processes share it through file locks")
        self.folder = Path(folder)
        self._lock = threading.RLock()
        self._lock_suffix = ""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._db = self._opened(_QUEUE)
            if owner is not None and self._owner(owner) != owner:
                self._db.close()
                self._lock_suffix = f"-{sha256_hex(owner.encode())[:12]}"
                self._db = self._opened(f"queue{self._lock_suffix}.sqlite")
                self._owner(owner)
        except (OSError, sqlite3.Error) as error:
            advice = "" if isinstance(error, OSError | sqlite3.OperationalError) else f"; {_ADVICE}"
            raise Abort(f"api_state {str(folder)!a} cannot be used: {error}{advice}") from error

    def _opened(self, name: str) -> sqlite3.Connection:
        db = sqlite3.connect(self.folder / name, timeout=60.0, isolation_level=None, check_same_thread=False)
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > _SCHEMA_VERSION:
            db.close()
            raise Abort(
                f"api_state {str(self.folder)!a}: {name} was written by a newer version (layout {version}, this one "
                f"reads {_SCHEMA_VERSION}): upgrade, or name another folder"
            )
        with opening(self.folder):
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.executescript(_SCHEMA)
            if version < _SCHEMA_VERSION:
                _upgrade(db)
        return db

    def _owner(self, name: str) -> str:
        """Whose the open file is; a file that is nobody's is ours from now on."""
        found = self._db.execute("SELECT name FROM owner").fetchone()
        if found is None:
            self._db.execute("INSERT OR IGNORE INTO owner VALUES (1, ?)", (name,))
            found = self._db.execute("SELECT name FROM owner").fetchone()
        return str(found[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    # ------------------------------------------------------------------------------------------ SQL

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query.

        Raises:
            RetryLater, Abort: as ``transaction``.
        """
        with self._lock:
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise self._unavailable(error) from error

    def write(self, sql: str, many: Iterable[Sequence[Any]]) -> int:
        """One statement for many rows in one transaction; the number of rows changed."""
        with self.transaction():
            return self._db.executemany(sql, many).rowcount

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; other processes wait. May be entered again by the same thread.

        Raises:
            RetryLater: ``state_unavailable``: the disk is full or read-only, or another process does not let go.
            Abort: the file is damaged.
        """
        with self._lock:
            nested = self._db.in_transaction
            if nested:
                yield
                return
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except BaseException as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if isinstance(error, sqlite3.DatabaseError):
                    raise self._unavailable(error) from error
                raise

    def _unavailable(self, error: sqlite3.DatabaseError) -> PlatformError:
        """A disk or a lock may come back; a file that is damaged does not."""
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise error  # a fault of ours
        if isinstance(error, sqlite3.OperationalError):
            return RetryLater("state_unavailable", f"api_state {str(self.folder)!a}: {error}", 60.0)
        return Abort(f"api_state {str(self.folder)!a}: {error}; {_ADVICE}")

    # ------------------------------------------------------------------------------------------ answers

    def answer(self, key: str, now: datetime) -> tuple[datetime, Any] | None:
        """(when it was read, value) of a remembered answer.

        None also for one that cannot be read any more, or that a clock which was ahead dated after ``now``.
        """
        found = self.rows("SELECT seen_at, body FROM answers WHERE key = ?", (key,))
        if not found:
            return None
        seen_at = parse_utc(found[0][0])
        if seen_at is None or seen_at - now > _CLOCKS_DIFFER:
            return None
        try:
            return seen_at, jsontext.parse(zlib.decompress(found[0][1])).value
        except (zlib.error, RejectRow):
            return None

    def remember(self, key: str, value: Any, now: datetime) -> None:
        """Keep an answer."""
        body = zlib.compress(jsontext.dumps(value).encode(), 1)
        self.write("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", [(key, now.isoformat(), body)])

    def remembered(self, key: str, ask: Callable[[], Any], now: datetime, max_age_s: float) -> Any:
        """A remembered answer that is young enough, else a new one, which is remembered."""
        held = self.answer(key, now)
        if held is not None and (now - held[0]).total_seconds() < max_age_s:
            return held[1]
        value = ask()
        self.remember(key, value, now)
        return value

    # ------------------------------------------------------------------------------------------ days

    def note_judged(self, agent_version_id: str, days: Iterable[date]) -> list[date]:
        """On these days results of this agent version were judged; the days that were not known of it."""
        with self.transaction():
            known = {
                row[0] for row in self.rows("SELECT day FROM judged WHERE agent_version_id = ?", (agent_version_id,))
            }
            new = [day for day in sorted(days) if day.isoformat() not in known]
            self.write("INSERT INTO judged VALUES (?, ?)", [(agent_version_id, day.isoformat()) for day in new])
        return new

    def judged_on(self, day: date) -> list[str]:
        """Agent versions known to have results judged on a day."""
        found = self.rows("SELECT agent_version_id FROM judged WHERE day = ? ORDER BY 1", (day.isoformat(),))
        return [row[0] for row in found]

    def day(self, day: date) -> DayState | None:
        """What is known of a day."""
        found = self.rows("SELECT state, due, reason, memory FROM days WHERE day = ?", (day.isoformat(),))
        if not found:
            return None
        state, due, reason, text = found[0]
        try:
            memory = jsontext.parse(text.encode()).value
        except RejectRow:
            memory = None
        return DayState(state, parse_utc(due), reason, memory if isinstance(memory, dict) else {})

    def set_day(self, day: date, state: DayState) -> None:
        """Write what is known of a day."""
        due = None if state.due is None else state.due.isoformat()
        row = (day.isoformat(), state.state, due, state.reason, jsontext.dumps(state.memory))
        self.write("INSERT OR REPLACE INTO days VALUES (?, ?, ?, ?, ?)", [row])

    def reopen(self, day: date, reason: str) -> None:
        """A finished day has to be looked at again, now."""
        self.write("UPDATE days SET state = 'open', due = NULL, reason = ? WHERE day = ?", [(reason, day.isoformat())])

    @contextmanager
    def only_one(self, day: date) -> Iterator[None]:
        """Whoever is inside is the only process that fetches this day; the kernel frees it when a process dies.

        Raises:
            RetryLater: ``fetch_in_progress``.
        """
        folder = self.folder / "locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{day.isoformat()}{self._lock_suffix}.lock"
            handle = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RetryLater("state_unavailable", f"api_state {str(self.folder)!a}: {error.strerror}", 60.0) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RetryLater("fetch_in_progress", f"another process fetches {day}", 60.0) from error
            yield
        finally:
            os.close(handle)
