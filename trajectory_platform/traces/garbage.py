"""Holding the collector of reference cycles while a batch of parsed JSON is in hand.

Parsed JSON is many containers and no cycles. Every few hundred of them the collector wakes up and walks through what
is alive, which is a fifth of the time of reading a trace; the reference counts alone free all of it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """No automatic collection inside; meant for a batch or a pass, never for a whole process.

    Where two threads overlap, the collector is on again at the latest when the first one that came leaves.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
