"""Jobs of the graph run in this process, with a line per message of an asset: what the demo and the miniature share."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import date
from typing import Any

import dagster as dg
import typer

from trajectory_platform.defs.runs import RANGE_END, RANGE_START
from trajectory_platform.errors import FailPartition
from trajectory_platform.stages.progress import step_of
from trajectory_platform.stages.text import shown

OnStep = Callable[[str, bool], None]
"""Called with the key of a step and whether it begins (else it has ended, well or not)."""
_STEPS_S = 15.0  # between two steps of a training that are told
_DAGSTERS_OWN = ("[pipes]", "Dependencies for step ")  # the process is up; what comes after a failure is left out
_ENDS = ("STEP_SUCCESS", "STEP_FAILURE", "STEP_SKIPPED")


def quiet() -> None:
    """No words about features of Dagster that this project pins and tests."""
    for noise in (dg.PreviewWarning, dg.BetaWarning):
        warnings.filterwarnings("ignore", category=noise)


def say(started: float, text: str) -> None:
    """One line with the seconds since ``started`` (``time.monotonic``)."""
    typer.echo(f"[{time.monotonic() - started:4.0f} s] {text}")


def run_job(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    job: str,
    first: date,
    last: date,
    *,
    assets: Sequence[str] | None = None,
) -> Any:
    """A job over a range of days, in this process.

    Args:
        assets: only these of the job's.

    Raises:
        FailPartition: naming the job, the days and the innermost reason of the first step that failed.
    """
    result = definitions.resolve_job_def(job).execute_in_process(
        instance=instance,
        tags={RANGE_START: first.isoformat(), RANGE_END: last.isoformat()},
        run_config={"loggers": {"console": {}}},  # named, or Dagster adds its own console logger
        raise_on_error=False,
        asset_selection=None if assets is None else [dg.AssetKey(name) for name in assets],
    )
    failures = [event for event in result.all_events if event.is_step_failure]
    if failures:
        raise FailPartition(f"{job} {first}..{last}: {failures[0].step_key}: {_cause(failures[0])}")
    return result


def _cause(failure: dg.DagsterEvent) -> str:
    """The innermost reason of a failed step: Dagster's own message says only that the step failed."""
    error = failure.step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    if error is None:
        return str(failure.message)
    if error.cls_name in ("DagsterExecutionInterruptedError", "KeyboardInterrupt"):
        return "interrupted; start the same command again, what is complete is kept"
    return error.message.strip()


def own_instance() -> AbstractContextManager[Any]:
    """The user's Dagster instance where DAGSTER_HOME names one (make demo does), else one for this process."""
    logging.getLogger("dagster").setLevel(logging.WARNING)
    if os.environ.get("DAGSTER_HOME"):
        return nullcontext(dg.DagsterInstance.get())
    return dg.DagsterInstance.ephemeral()


def progress_logger(started: float, on_step: OnStep | None = None) -> dg.LoggerDefinition:
    """Shows what the assets and the training process say, without Dagster's own events.

    Args:
        on_step: is told when a step begins and ends.
    """
    # one line per message on a terminal; a file takes it all
    room = max(40, shutil.get_terminal_size().columns - 36) if sys.stdout.isatty() else None

    class Progress(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self._told = float("-inf")  # when a step of a training was told last

        def _due(self, text: str) -> bool:
            """Of the steps of a process one in :data:`_STEPS_S`, and the last; every other line."""
            step = step_of(text)
            if step is None:
                return True
            if time.monotonic() - self._told < _STEPS_S and step.done < step.total:
                return False
            self._told = time.monotonic()
            return True

        def emit(self, record: logging.LogRecord) -> None:
            words = getattr(record, "dagster_meta", {})
            step, event = words.get("step_key") or "", words.get("dagster_event")
            if event is not None:
                if on_step is not None and step and event.event_type_value in ("STEP_START", *_ENDS):
                    on_step(step, event.event_type_value == "STEP_START")
            elif record.levelno >= logging.INFO:
                text = words.get("orig_message") or record.getMessage()
                if record.exc_info and record.exc_info[1] is not None:
                    text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
                if not text.startswith(_DAGSTERS_OWN) and self._due(text):
                    say(started, f"  {step.partition('_and_')[0]:<23} {shown(text, room)}")

    @dg.logger(None, description="one line per message of an asset")
    def console(_context: dg.InitLoggerContext) -> logging.Logger:
        made = logging.Logger("trajectory_platform.progress", level=logging.DEBUG)
        made.addHandler(Progress())
        return made

    return console
