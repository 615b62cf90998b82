"""Heavy work (torch) in a process of its own: a job file goes in, a result file comes out.

The process may be started plainly or by Dagster Pipes; both only need a *runner*, a callable that starts a command
line and waits. What counts is the result file, so a killed process is a failed one, never an empty success.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trajectory_platform.errors import Abort, FailPartition, RejectRow, RetryLater

Runner = Callable[[Sequence[str], Mapping[str, str]], None]
Report = Callable[[str], None]

_RAISED: dict[str, type[Exception]] = {"FailPartition": FailPartition, "Abort": Abort}


def plain_runner(report: Report | None = None) -> Runner:
    """A runner on ``subprocess``: each line the child prints goes to ``report`` as it comes."""

    def run(command: Sequence[str], env: Mapping[str, str]) -> None:
        with subprocess.Popen(
            list(command),
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",  # an odd byte in a log line must not end a training
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if report is not None:
                        report(line.rstrip("\n"))
            except BaseException:  # interrupted: leave no process behind
                process.kill()
                raise

    return run


def run_job(
    module: str, job: Mapping[str, Any], folder: Path, *, threads: int, runner: Runner | None
) -> dict[str, Any]:
    """Write ``job.json`` into ``folder``, run ``python -m module job.json``, read ``result.json``.

    Returns:
        The child's result object.

    Raises:
        FailPartition, Abort: as the child ended; also when it ended without a result (killed, out of memory).
    """
    job_path, result_path = folder / "job.json", folder / "result.json"
    job_path.write_text(json.dumps(dict(job), sort_keys=True, indent=1), "utf-8")
    tail: list[str] = []

    def keep(line: str) -> None:
        tail.append(line)
        del tail[:-20]

    failure = ""
    try:
        (runner or plain_runner(keep))([sys.executable, "-m", module, str(job_path)], child_env(threads))
    except Exception as error:  # noqa: BLE001 - a runner raises its own kinds; the result file says what happened
        failure = f": {type(error).__name__}: {error}"
    if not result_path.is_file():
        last = " | ".join(tail[-5:])
        raise FailPartition(f"{module} ended without a result{failure}{'; it last printed: ' + last if last else ''}")
    result: dict[str, Any] = json.loads(result_path.read_text("utf-8"))
    if result["status"] == "failed":
        raise _RAISED.get(result["kind"], FailPartition)(result["message"])
    return result


def child_env(threads: int) -> dict[str, str]:
    """Variables a child gets: no hub, no telemetry, as many threads as the recipe says."""
    return {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads cost several times the work on a busy machine
        "PYTHONUNBUFFERED": "1",
    }


def run_child(job_path: str, work: Callable[[dict[str, Any], Report], dict[str, Any]]) -> int:
    """The child's side: read the job, do ``work``, write the result atomically; returns the exit code.

    Progress goes to stdout, or to the Dagster run when it was started through Pipes.
    """
    for name, value in child_env(2).items():
        os.environ.setdefault(name, value)
    path = Path(job_path)
    job: dict[str, Any] = json.loads(path.read_text("utf-8"))
    with _reporter() as report:
        try:
            result = {"status": "ok", **work(job, report)}
        except (FailPartition, Abort, RejectRow, RetryLater) as error:
            kind = type(error).__name__
            result = {"status": "failed", "kind": kind, "message": str(error)}
            report(f"failed: {error}")
        except KeyboardInterrupt:
            return 130  # the parent was interrupted too and says so; without a result this run never was
    waiting = path.parent / "result.json.part"
    waiting.write_text(json.dumps(result, sort_keys=True), "utf-8")
    os.replace(waiting, path.parent / "result.json")
    return 0 if result["status"] == "ok" else 1


class _reporter:
    """Context manager that yields a ``Report``: Pipes when the variables of Dagster Pipes are set, else print."""

    def __enter__(self) -> Report:
        self._pipes: Any = None
        if "DAGSTER_PIPES_CONTEXT" in os.environ:
            from dagster_pipes import open_dagster_pipes

            self._manager = open_dagster_pipes()
            self._pipes = self._manager.__enter__()
            return lambda line: self._pipes.log.info(line)
        return lambda line: print(line, flush=True)

    def __exit__(self, *error: object) -> None:
        if self._pipes is not None:
            self._manager.__exit__(*error)
