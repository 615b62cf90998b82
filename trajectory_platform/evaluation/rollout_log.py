"""Finished attempts on disk, one a line, so that an interrupted evaluation goes on where it stopped.

Scratch, not published data: the table ``rollouts`` is made of it when the evaluation is complete. The first line says
which policy and plan the file belongs to. Each line carries a digest of its text and is on the disk before the attempt
counts as finished. A process may be killed at any byte: what stands behind the last whole line is cut off, and that
attempt is made again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from trajectory_platform import jsontext
from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.environment import Task
from trajectory_platform.identity import sha256_hex

FORMAT = "trajectory-platform rollout log 1"
_DIGEST = 16  # hex digits before each line's text

Key = tuple[str, int]
"""(problem key, number of the attempt): what an attempt is called within one policy and plan."""


def key_of(task: Task) -> Key:
    """The key of a task's attempt, as in the key of table ``rollouts``."""
    return (task.problem_key, task.sample)


class RolloutLog:
    """The finished attempts of one policy under one plan.

    Opening locks the file, reads what is there and cuts off a damaged end. Use as a context manager.

    Args:
        path: the file; its folder is made.
        policy: identity of who answers.
        plan: digest of the plan (tasks, limits, versions).

    Raises:
        Abort: the file belongs to another policy or plan, is no such log, or another process is writing it.
    """

    def __init__(self, path: str | Path, *, policy: str, plan: str) -> None:
        self.path = Path(path)
        self.done: set[Key] = set()
        self.dropped_bytes = 0
        self._header = {"format": FORMAT, "policy": policy, "plan": plan}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115  closed by close()
        try:
            self._lock()
            self._recover()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> RolloutLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file; what was appended stays."""
        self._file.close()

    def remaining(self, tasks: Iterable[Task]) -> list[Task]:
        """The tasks whose attempt is not finished, in their order."""
        return [task for task in tasks if key_of(task) not in self.done]

    def append(self, task: Task, row: Mapping[str, Any]) -> None:
        """Keep the row of a finished attempt; on the disk when this returns.

        Raises:
            FailPartition: the attempt is already there.
            OSError: the disk refuses.
        """
        key = key_of(task)
        if key in self.done:
            raise FailPartition(f"attempt {key} is already in {self.path}")
        self._write({"key": list(key), "row": dict(row)})
        self.done.add(key)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of all finished attempts, in the order in which they were finished; one is in memory at a time."""
        with self.path.open("rb") as file:
            file.readline()
            for line in file:
                record = _read(line)
                if record is None:
                    return  # appended to while it is read
                yield record["row"]

    def _lock(self) -> None:
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Abort(f"{self.path} is being written by another process") from error

    def _recover(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        with self.path.open("rb") as file:
            first = file.readline()
            header = _read(first)
            if header is not None and header != self._header:
                raise Abort(f"{self.path} is the log of another evaluation ({_named(header)}); move it away")
            good = len(first)
            for line in file if header is not None else ():
                record = _read(line)
                if record is None:
                    break  # nothing behind the first damaged line is trusted
                self.done.add((str(record["key"][0]), int(record["key"][1])))
                good += len(line)
        if header is None:
            self._check_begun(first, size)
            good = 0
        self.dropped_bytes = size - good
        if self.dropped_bytes:
            os.ftruncate(self._file.fileno(), good)
            os.fsync(self._file.fileno())
        if header is None:
            self._write(self._header)

    def _check_begun(self, first: bytes, size: int) -> None:
        """Without a whole first line the file is empty, or its writer was killed in that very line."""
        if size > len(first) or not _line(self._header).startswith(first):
            raise Abort(f"{self.path} is no rollout log of this evaluation; move it away")

    def _write(self, record: Mapping[str, Any]) -> None:
        """Append one line, whole or not at all."""
        handle = self._file.fileno()
        before = os.fstat(handle).st_size
        left = memoryview(_line(record))
        try:
            while left:
                left = left[os.write(handle, left) :]
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, before)
            raise


def _line(record: Mapping[str, Any]) -> bytes:
    text = jsontext.dumps_line(record).encode()
    return sha256_hex(text)[:_DIGEST].encode() + b" " + text + b"\n"


def _read(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None when it is cut or damaged."""
    if not line.endswith(b"\n"):
        return None
    digest, _, text = line[:-1].partition(b" ")
    if digest != sha256_hex(text)[:_DIGEST].encode():
        return None
    value = orjson.loads(text)
    return value if isinstance(value, dict) else None


def _named(header: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {str(header.get(name))[:40]!a}" for name in ("policy", "plan"))
