"""Runs in processes of the code server, as Dagster starts them by default, and noticed when they die with it.

Dagster's own launcher cannot be asked whether a run still lives: when the machine, or daemon and code server together,
are killed, the run stays "started" until its longest time is over, and holds its place in the queue (cases F11, F16).
This one asks the code server that started the run.
"""

from __future__ import annotations

import json
import os

from dagster import DagsterRun
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG

_ASK_S = 15
_TRIES = 3  # looks of the run monitoring at which a run must be missing, before it is failed


class WatchedRunLauncher(DefaultRunLauncher):
    """``DefaultRunLauncher`` whose runs the run monitoring can ask about (``run_launcher`` in ``dagster.yaml``)."""

    _missing: dict[str, int]

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the code server that started a run still has it.

        A server whose socket is gone died, and its runs with it. One that does not answer, or does not know the run, is
        asked at three looks in a row: it may be busy, and a run that just ended is written down in a moment.
        """
        if not hasattr(self, "_missing"):
            self._missing = {}
        place = json.loads(run.tags.get(GRPC_INFO_TAG) or "{}")
        if not place:  # of a process that runs a job itself, such as the demo: nobody can be asked
            return CheckRunHealthResult(WorkerStatus.RUNNING, "not started by a code server")
        socket = place.get("socket")
        if socket is not None and not os.path.exists(socket):
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "the code server that started the run is gone")
        why = _why_missing(place, run.run_id)
        if why is None:
            self._missing.pop(run.run_id, None)
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        self._missing[run.run_id] = self._missing.get(run.run_id, 0) + 1
        if self._missing[run.run_id] < _TRIES:
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"{why}; asked again")
        del self._missing[run.run_id]
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"{why}, {_TRIES} times")


def _why_missing(place: dict[str, object], run_id: str) -> str | None:
    """Why the code server at an address does not have a run, or None."""
    from dagster._core.errors import DagsterUserCodeUnreachableError
    from dagster._grpc.client import DagsterGrpcClient
    from dagster._grpc.types import CanCancelExecutionRequest, CanCancelExecutionResult
    from dagster_shared.serdes import deserialize_value

    port = place.get("port")
    client = DagsterGrpcClient(
        host=str(place.get("host") or "localhost"),
        port=port if isinstance(port, int) else None,
        socket=str(place["socket"]) if "socket" in place else None,
        use_ssl=bool(place.get("use_ssl", False)),
    )
    try:
        answer = client.can_cancel_execution(CanCancelExecutionRequest(run_id=run_id), timeout=_ASK_S)
    except DagsterUserCodeUnreachableError:
        return "the code server that started the run does not answer"
    found = deserialize_value(answer, CanCancelExecutionResult)
    return None if found.can_cancel else "the code server does not know the run"
