"""Every paid reply of a judge, on disk before anything is done with it: nothing is paid for twice after a crash.

An append-only file of JSON lines beside the lake, one per subnet day, synced line by line. The stage moves its rows
into the table ``judge_calls`` and removes it; until then both are read. A line that a crash cut is dropped: it was
never used. Rows are read from the file, not kept. One process judges a day at a time; the lock goes with the process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow, RetryLater
from trajectory_platform.identity import digest_json
from trajectory_platform.lake.manifests import fsync_path

REPLY_CHARS = 4_000  # of a raw reply that are kept for people
_TAIL_BYTES = 1 << 16


def call_key(content_key: str, rubric_version: str, name: str, parameters: Mapping[str, Any]) -> str:
    """Our own cache key: what is judged, by which rubric, by whom, with everything that may change the answer.

    Keys of caching layers were found to leave parameters out (case E11).
    """
    return digest_json([content_key, rubric_version, name, dict(parameters)])


class Journal:
    """The open journal of one subnet day.

    Raises:
        RetryLater: another process is judging the same day.
    """

    def __init__(self, folder: Path, day: str) -> None:
        self.path = folder / f"{day}.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = self.path.open("ab+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise RetryLater("day_is_being_judged", f"another process judges {day}: run it again after it") from error
        fsync_path(folder)
        self._cut_torn_line()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every row; ``stream`` for many."""
        return list(self.stream())

    def stream(self) -> Iterator[dict[str, Any]]:
        """The rows in the order they were written.

        A damaged line is passed over: what it said counts as never answered.
        """
        with self.path.open("rb") as file:
            for line in file:
                try:
                    value = jsontext.parse(line).value
                except RejectRow:
                    continue
                if isinstance(value, dict) and "sequence" in value:
                    yield value

    def append(self, row: dict[str, Any]) -> None:
        """Write one row and wait until it is on the disk."""
        self._file.write(jsontext.dumps_line(row).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def clear(self) -> None:
        """Forget everything: its rows are published."""
        self._file.truncate(0)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Release the day. The file stays, if need be empty: a lock on a removed file would guard nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cut_torn_line(self) -> None:
        """Cut a last line without end off the file, so that the next one starts clean."""
        size = self._file.seek(0, os.SEEK_END)
        start, tail = size, b""
        while start and b"\n" not in tail:
            step = min(start, _TAIL_BYTES)
            start -= step
            self._file.seek(start)
            tail = self._file.read(step)
        whole = start + tail.rfind(b"\n") + 1
        if whole < size:
            self._file.truncate(whole)
            os.fsync(self._file.fileno())
        self._file.seek(0, os.SEEK_END)


def spent_usd(rows: Iterable[Mapping[str, Any]]) -> float:
    """What the calls of these rows cost."""
    return sum(float(row.get("cost_usd") or 0.0) for row in rows)
