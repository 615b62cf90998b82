"""A lease in an object store: one small object per table, taken and renewed by conditional puts.

It keeps writers from doing work that would be refused; nothing rests on it. A holder that stands still for longer than
the lease lasts may lose it and go on: then its Delta commit, its manifest or its ledger line meets what the next holder
wrote and is refused (``snapshots``, ``Storage.write``), and ``vacuum`` puts a log entry before what it deletes.

Whether a lease has expired is told by the store's clock alone: the age of the object when it was read.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition, PlatformError
from trajectory_platform.lake.storage import Content

if TYPE_CHECKING:
    from trajectory_platform.lake.s3_storage import S3Storage, Seen

LEASE_S = 30.0
"""How long a lease lasts without renewal; a writer after a killed one waits so long at most."""

_RENEWALS = 3  # in the time of a lease
_CLOCK_STEP_S = 1.0  # times of the store are whole seconds
_POLL_S = (0.1, 1.0)


@contextmanager
def lease(store: S3Storage, name: str, timeout_s: float) -> Iterator[None]:
    """Hold the lease. Raises FailPartition naming the holder when it is not free within ``timeout_s``."""
    path = f"_leases/{name}.json"
    told = {
        "holder": f"process {os.getpid()} on {socket.gethostname()}",
        "token": uuid.uuid4().hex,
        "seconds": LEASE_S,
    }
    held = _Held(store, path, told, _take(store, path, name, told, timeout_s))
    try:
        yield
    finally:
        held.release()


class _Held:
    """A lease in our hands: renewed by a thread until it is released, or lost."""

    def __init__(self, store: S3Storage, path: str, told: dict[str, Any], content: Content) -> None:
        self._store, self._path, self._told = store, path, told
        self._content: Content | None = content
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease {path}", daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        number = 0
        while self._content is not None and not self._ended.wait(self._told["seconds"] / _RENEWALS):
            number += 1  # other bytes, so another version, or two renewals could not be told apart
            with suppress(PlatformError):  # the next renewal may pass; if none does, the lease expires
                self._content = self._store.put(self._path, _encoded(self._told, renewed=number), self._content)

    def release(self) -> None:
        """Free it. One that was lost is left to whoever has it; one that cannot be freed expires."""
        self._ended.set()
        self._thread.join()
        if self._content is not None:
            with suppress(PlatformError):
                self._store.put(self._path, _encoded(self._told, free=True), self._content)


def _take(store: S3Storage, path: str, name: str, told: dict[str, Any], timeout_s: float) -> Content:
    deadline = time.monotonic() + timeout_s
    pause = _POLL_S[0]
    since: dict[str, float] = {}  # version of the object -> when we saw it first
    while True:
        seen = store.read_aged(path)
        first = since.setdefault(seen.content.tag, time.monotonic()) if seen else 0.0
        if seen is None or _ended(seen, time.monotonic() - first):
            taken = store.put(path, _encoded(told), seen.content if seen else None)
            if taken is not None:
                return taken
            continue  # somebody else took it in this moment
        if time.monotonic() > deadline:
            holder = _record(seen.content).get("holder", "unknown")
            raise FailPartition(f"table {name} is being written by {holder} for more than {timeout_s:g} s; try again")
        time.sleep(pause)
        pause = min(2 * pause, _POLL_S[1])


def _ended(seen: Seen, watched_s: float) -> bool:
    """Was it freed, or not renewed in its time? ``watched_s`` serves where the store tells no times."""
    record = _record(seen.content)
    try:
        seconds = float(record.get("seconds", LEASE_S))
    except (TypeError, ValueError):
        seconds = LEASE_S
    return record.get("free") is True or max(seen.age_s - _CLOCK_STEP_S, watched_s) > seconds


def _record(content: Content) -> dict[str, Any]:
    try:
        record = json.loads(content.data)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _encoded(told: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({**told, **more}, sort_keys=True).encode("ascii")
