"""MLflow as a mirror of a run, never its ledger: losing it loses no training and no lineage.

Values are collected during the run and written by one writer. Every failure is reported as a line and swallowed
*here*, at the border to a service the platform does not need. A run is opened before training and closed with an
explicit state, so a crashed run stays RUNNING (never FINISHED) until :func:`reconcile` marks it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trajectory_platform.evaluation.child import Report
from trajectory_platform.identity import digest_json

EXPERIMENT = "trajectory-platform"
MAX_PARAM = 500  # older servers cut or refuse longer values (case H01)


def open_run(
    uri: str | None, *, name: str, params: Mapping[str, Any], tags: Mapping[str, str], report: Report
) -> str | None:
    """Create a run and log its parameters; its id, or None when tracking is off or failed.

    A parameter over ``MAX_PARAM`` characters is replaced by its digest: a cut value would no longer be the truth.
    """
    if not uri:
        return None

    def write() -> str:
        client = _client(uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
        run = client.create_run(experiment_id, run_name=name, tags={"checkpoint_id": name, **tags})
        for key, value in sorted(params.items()):
            text = str(value)
            client.log_param(run.info.run_id, key, text if len(text) <= MAX_PARAM else f"sha256:{digest_json(text)}")
        return str(run.info.run_id)

    run_id: str | None = _guarded(write, "could not open the run", report)
    return run_id


def close_run(
    uri: str | None, run_id: str | None, *, history: Sequence[Mapping[str, float]], finished: bool, report: Report
) -> None:
    """Write the metrics of all steps and the final state."""
    if not uri or run_id is None:
        return

    def write() -> None:
        from mlflow.entities import Metric

        client = _client(uri)
        metrics = [
            Metric(key, float(value), 0, int(entry.get("step", number)))
            for number, entry in enumerate(history)
            for key, value in sorted(entry.items())
            if key != "step"
        ]
        for begin in range(0, len(metrics), 500):
            client.log_batch(run_id, metrics=metrics[begin : begin + 500])
        client.set_terminated(run_id, status="FINISHED" if finished else "FAILED")

    _guarded(write, "could not write the metrics", report)


def reconcile(uri: str, checkpoint_ids: Iterable[str], report: Report) -> dict[str, str]:
    """Close runs left RUNNING by a dead process: FINISHED where the checkpoint exists, else KILLED.

    Returns:
        run id -> new state. Call it only when no training is in progress.
    """
    known = set(checkpoint_ids)

    def write() -> dict[str, str]:
        client = _client(uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return {}
        changed = {}
        for run in client.search_runs([experiment.experiment_id], filter_string="attributes.status = 'RUNNING'"):
            state = "FINISHED" if run.data.tags.get("checkpoint_id") in known else "KILLED"
            client.set_terminated(run.info.run_id, status=state)
            changed[run.info.run_id] = state
        return changed

    return _guarded(write, "could not reconcile", report) or {}


def _client(uri: str) -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    from mlflow.tracking import MlflowClient

    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # migrations of a fresh database
    return MlflowClient(tracking_uri=uri)


def _guarded(write: Callable[[], Any], what: str, report: Report) -> Any:
    try:
        return write()
    except Exception as error:  # noqa: BLE001 - MLflow raises its own, requests', sqlalchemy's and import errors
        report(f"mlflow: {what} ({type(error).__name__}: {' '.join(str(error).split())[:200]}); training goes on")
        return None
