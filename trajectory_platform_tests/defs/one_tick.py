"""One evaluation of all sensors in a process of its own, which may be killed at a named point: ``python -m``.

    one_tick DAGSTER_HOME MINUTES [SENSOR POINT]

MINUTES later than now by Dagster's clock, so that minimum intervals are over. POINT is one of Dagster's own places for
crashes: TICK_CREATED, TICK_HELD, RUN_CREATED, RUN_LAUNCHED.
"""

from __future__ import annotations

import logging
import signal
import sys
from datetime import UTC, datetime, timedelta

import dagster as dg
from dagster._core.test_utils import freeze_time
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.sensor import execute_sensor_iteration


def main(home: str, minutes: str, *crash: str) -> None:
    """Evaluate; a crash is a SIGKILL to this process."""
    target = ModuleTarget("trajectory_platform.defs.definitions", None, None, "trajectory_platform")
    flags = {crash[0]: {crash[1]: signal.SIGKILL}} if crash else None
    later = datetime.now(UTC) + timedelta(minutes=int(minutes))
    with dg.DagsterInstance.from_config(home) as instance, WorkspaceProcessContext(instance, target) as workspace:
        log = logging.getLogger("one_tick")
        with freeze_time(later):
            errors = list(execute_sensor_iteration(workspace, log, None, None, debug_crash_flags=flags))
    if any(errors):
        raise RuntimeError(str([error for error in errors if error is not None]))


if __name__ == "__main__":
    main(*sys.argv[1:])
