"""Connections on which no request comes: closed after a while, or a few of them would use up the whole limit.

The server that we run on (uvicorn) times the pause after an answer, but not a request whose head never ends: a client
that opens connections and sends half a line holds them for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class IdleConnections:
    """Called every few seconds; closes what has been waiting for the whole head of a request since the last call.

    Args:
        connections: the open connections as uvicorn knows them; each has a ``transport`` and a ``cycle``, which is
            None or the request it works on or worked on last.
    """

    def __init__(self, connections: Callable[[], Iterable[Any]]) -> None:
        self._connections = connections
        self._waiting: dict[Any, Any] = {}

    async def __call__(self) -> None:
        """One look."""
        before = self._waiting
        self._waiting = {
            one: one.cycle for one in self._connections() if one.cycle is None or one.cycle.response_complete
        }
        for one, cycle in self._waiting.items():
            if one in before and before[one] is cycle:
                one.transport.close()
