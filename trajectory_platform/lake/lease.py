"""One writer per table at a time: a lock file whose lock the kernel releases when its holder dies, also by kill -9.

The lease covers the short commit, never the long staging of a day, so writers of different days hardly wait.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from trajectory_platform.errors import FailPartition

_POLL_S = 0.02


def try_lock(stream: IO[bytes]) -> bool:
    """Take the lock of an open file without waiting; False when somebody holds it."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def table_lease(root: Path, table_name: str, timeout_s: float = 600.0) -> Iterator[None]:
    """Hold the table's lease. Raises FailPartition naming the holder when it is not free within ``timeout_s``."""
    path = root / "_leases" / f"{table_name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as stream:
        deadline = time.monotonic() + timeout_s
        while not try_lock(stream):
            if time.monotonic() > deadline:
                stream.seek(0)
                holder = stream.read(32).decode("ascii", "replace").strip() or "unknown"
                raise FailPartition(
                    f"table {table_name} is being written by process {holder} for more than {timeout_s:g} s; try again"
                )
            time.sleep(_POLL_S)
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n".encode("ascii"))
        stream.flush()
        yield
