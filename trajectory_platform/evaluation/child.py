"""Heavy work (torch) in processes of its own: a job file goes in, a result file comes out.

A job may be started plainly, by Dagster Pipes, or as several ranks by a launcher (``Start``); all need a *runner*, a
callable that runs a command line and waits. What counts is the result file, so a killed process is a failed one,
never an empty success. Of several ranks only rank 0 reports and writes the result; one that fails leaves its words.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from trajectory_platform.errors import Abort, FailPartition, RejectRow, RetryLater
from trajectory_platform.evaluation.process_group import end_with_owner, run_group

Runner = Callable[[Sequence[str], Mapping[str, str]], None]
Report = Callable[[str], None]
Values = Mapping[str, float]

KIND = "metrics"  # of the Pipes message that carries the numbers of a step
_RAISED: dict[str, type[Exception]] = {"FailPartition": FailPartition, "Abort": Abort}
_KEPT_LINES = 20


class Start(NamedTuple):
    """How a job's processes are started: ``prefix`` is followed by the module and the job file."""

    prefix: tuple[str, ...] = (sys.executable, "-m")
    env: tuple[tuple[str, str], ...] = ()
    ranks: int = 1


class Reporter:
    """What a child reports with: called with a line for people; ``metrics`` takes the numbers of a step.

    ``listeners`` get every step's numbers too (MLflow's mirror is one).
    """

    def __init__(self, line: Report, send: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._line, self._send = line, send
        self.listeners: list[Callable[[int, Values], None]] = []

    def __call__(self, line: str) -> None:
        self._line(line)

    def metrics(self, step: int, values: Values) -> None:
        """Pass on the numbers of an optimiser step; NaN and infinity go as text, JSON has no word for them."""
        if self._send is not None:
            plain = {key: float(value) if abs(value) < float("inf") else str(value) for key, value in values.items()}
            self._send({"kind": KIND, "step": step, "values": plain})
        for listener in self.listeners:
            listener(step, values)


def report_metrics(report: Report, step: int, values: Values) -> None:
    """The numbers of a step, where ``report`` can carry them (a plain function such as ``print`` cannot)."""
    if isinstance(report, Reporter):
        report.metrics(step, values)


def plain_runner(report: Report | None = None) -> Runner:
    """A runner on ``subprocess``: each line the child prints goes to ``report`` as it comes."""

    def run(command: Sequence[str], env: Mapping[str, str]) -> None:
        run_group(command, env, on_line=report if report is not None else lambda line: None)

    return run


def run_job(
    module: str,
    job: Mapping[str, Any],
    folder: Path,
    *,
    threads: int,
    runner: Runner | None,
    start: Start | None = None,
) -> dict[str, Any]:
    """Write ``job.json`` into ``folder``, run ``python -m module job.json`` (or as ``start`` says), read the result.

    Returns:
        The child's result object.

    Raises:
        FailPartition, Abort: as the child, or the first of its ranks that failed, ended; also when it ended without a
            result (killed, out of memory).
    """
    start = start or Start()
    job_path, result_path = folder / "job.json", folder / "result.json"
    for old in (result_path, *folder.glob("rank-*.json")):  # of a run before, in a folder that is used again
        old.unlink(missing_ok=True)
    job_path.write_text(json.dumps(dict(job), sort_keys=True, indent=1), "utf-8")
    tail: list[str] = []

    def keep(line: str) -> None:
        tail.append(line)
        del tail[:-_KEPT_LINES]

    failure = ""
    try:
        (runner or plain_runner(keep))(
            [*start.prefix, module, str(job_path)], {**child_env(threads), **dict(start.env)}
        )
    except Exception as error:  # noqa: BLE001 - a runner raises its own kinds; the result file says what happened
        failure = f": {type(error).__name__}: {error}"
    if result_path.is_file():
        result: dict[str, Any] = json.loads(result_path.read_text("utf-8"))
        if result["status"] == "failed":
            raise _RAISED.get(result["kind"], FailPartition)(result["message"])
        return result
    _raise_ranks(folder, start.ranks)
    last = " | ".join(tail[-5:])
    raise FailPartition(f"{module} ended without a result{failure}{'; it last printed: ' + last if last else ''}")


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


def rank() -> int:
    """Number of this process among those of its job (0 when it is alone)."""
    return int(os.environ.get("RANK", "0"))


def ranks() -> int:
    """How many processes work on this job."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def wait_for_ranks() -> None:
    """Return when every rank has come here; call it before rank 0 publishes, so that a dead rank publishes nothing."""
    if ranks() > 1:
        import torch.distributed as distributed

        if distributed.is_initialized():
            distributed.barrier()


def run_child(job_path: str, work: Callable[[dict[str, Any], Reporter], dict[str, Any]]) -> int:
    """The child's side: read the job, do ``work``, write the result atomically; returns the exit code.

    Progress of rank 0 goes to stdout, or to the Dagster run when it was started through Pipes; other ranks are mute.
    """
    for name, value in child_env(2).items():
        os.environ.setdefault(name, value)
    end_with_owner()
    folder = Path(job_path).parent
    job: dict[str, Any] = json.loads(Path(job_path).read_text("utf-8"))
    with _reporter() as report:
        try:
            result = {"status": "ok", **work(job, report)}
        except (FailPartition, Abort, RejectRow, RetryLater) as error:
            result = {"status": "failed", "kind": type(error).__name__, "message": str(error)}
            report(f"failed: {error}")
        except KeyboardInterrupt:
            return 130  # the parent was interrupted too and says so; without a result this run never was
        except Exception as error:
            if ranks() > 1:  # often only the echo of another rank's death: the time tells which was first
                _leave_words(folder, "FailPartition", f"{type(error).__name__}: {error}", ours=False)
            raise
    if result["status"] == "failed" and ranks() > 1:
        _leave_words(folder, result["kind"], result["message"], ours=True)
    elif rank() == 0:
        _write(folder / "result.json", result)
    return 0 if result["status"] == "ok" else 1


def _leave_words(folder: Path, kind: str, message: str, *, ours: bool) -> None:
    words = {"rank": rank(), "kind": kind, "message": message, "ours": ours, "at": time.time()}
    _write(folder / f"rank-{rank()}.json", words)


def _raise_ranks(folder: Path, count: int) -> None:
    """Raise what the first failed rank said, if any said something: errors of ours before those of libraries.

    A library's error is often only the echo of another rank that was killed, so the silent ones are named too.
    """
    found = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("rank-*.json"))]
    if not found:
        return
    first = min(found, key=lambda words: (not words["ours"], words["at"]))
    silent = sorted(set(range(count)) - {words["rank"] for words in found})
    more = ""
    if silent and not first["ours"]:
        more = f"; without a word ended: rank {', '.join(map(str, silent))} (killed, or stopped because of this)"
    message = " ".join(first["message"].split())[:2000]
    raise _RAISED.get(first["kind"], FailPartition)(f"rank {first['rank']} of {count}: {message}{more}")


def _write(path: Path, value: Mapping[str, Any]) -> None:
    waiting = path.with_suffix(".part")
    waiting.write_text(json.dumps(value, sort_keys=True), "utf-8")
    os.replace(waiting, path)


@contextmanager
def _reporter() -> Iterator[Reporter]:
    """Pipes when the variables of Dagster Pipes are set, else print; of several ranks only the first speaks."""
    if rank() != 0:
        yield Reporter(lambda line: None)
    elif "DAGSTER_PIPES_CONTEXT" in os.environ:
        from dagster_pipes import open_dagster_pipes

        with open_dagster_pipes() as pipes:
            yield Reporter(pipes.log.info, pipes.report_custom_message)
    else:
        yield Reporter(lambda line: print(line, flush=True))
