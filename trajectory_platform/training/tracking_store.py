"""The MLflow store as the mirror uses it: one client, one writer at a time on SQLite, artifacts that can be moved.

Experiments are created at ``mlflow-artifacts:/``, which names no machine and no folder (case H04). A server resolves
it; for a local SQLite file the artifacts lie beside it in ``mlflow-artifacts/``, exactly where ``make mlflow-ui`` (an
MLflow server with that folder as its artifact destination) looks for them. File and folder can be moved together.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

EXPERIMENT = "trajectory-platform"
MODEL = "trajectory-platform"
ROOT = "mlflow-artifacts:/"
MAX_VALUE = 500  # older servers cut or refuse longer ones (case H01)
_SQLITE = "sqlite:///"
_KIND = {"mlflow.experimentKind": "custom_model_development"}  # the pages open on training, not on prompts


class Point(NamedTuple):
    """One value of a metric; ``at_ms`` is when it was measured."""

    key: str
    value: float
    step: int
    at_ms: int


class Store:
    """A tracking store. Every method may raise what MLflow, requests or SQLAlchemy raise; the mirror guards them."""

    def __init__(self, uri: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("PGCONNECT_TIMEOUT", "10")  # a database that does not answer, as a server above
        os.environ.setdefault("_MLFLOW_SERVER_ARTIFACT_ROOT", ROOT)  # else the default experiment names this folder
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # migrations of a fresh database
        if not uri.startswith("http"):
            from mlflow.store.db import utils

            # MLflow waits for a database that is down for a hundred seconds, again at every write; the mirror has a
            # pause of its own between two tries
            utils.MAX_RETRY_COUNT = 2
        self._uri = uri
        self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        self._experiment = ""

    def experiment(self) -> str:
        """Id of the experiment; created with an explicit location when it is not there."""
        if not self._experiment:
            found = self._client.get_experiment_by_name(EXPERIMENT)
            location = f"{ROOT}{EXPERIMENT}"
            self._experiment = (
                found.experiment_id
                if found
                else self._client.create_experiment(EXPERIMENT, artifact_location=location, tags=_KIND)
            )
        return self._experiment

    def create_run(self, name: str, tags: Mapping[str, str]) -> str:
        """A new run in the state RUNNING; its id. Tags are short by contract (``short`` cuts none)."""
        return str(self._client.create_run(self.experiment(), run_name=name, tags=dict(tags)).info.run_id)

    def log_params(self, run: str, params: Mapping[str, str]) -> None:
        """Log parameters of at most ``MAX_VALUE`` characters each.

        Raises:
            ValueError: one is longer; it would be cut, and no longer be the truth.
        """
        from mlflow.entities import Param

        for key, value in params.items():
            if len(value) > MAX_VALUE:
                raise ValueError(f"parameter {key!r} has {len(value)} characters, more than {MAX_VALUE}")
        items = [Param(key, value) for key, value in sorted(params.items())]
        for begin in range(0, len(items), 100):
            self._client.log_batch(run, params=items[begin : begin + 100])

    def log_points(self, run: str, points: Sequence[Point]) -> None:
        """Log metric values; the same point logged twice counts once."""
        from mlflow.entities import Metric

        metrics = [Metric(point.key, point.value, point.at_ms, point.step) for point in points]
        for begin in range(0, len(metrics), 500):
            self._client.log_batch(run, metrics=metrics[begin : begin + 500])

    def log_datasets(self, run: str, datasets: Sequence[Mapping[str, str]]) -> None:
        """Log input datasets (``name``, ``digest`` of which MLflow keeps 36 characters, ``source``, ``profile``)."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        entries = [
            DatasetInput(
                Dataset(
                    name=entry["name"],
                    digest=entry["digest"][:36],
                    source_type="lake",
                    source=entry["source"],
                    schema=None,
                    profile=entry["profile"],
                ),
                [InputTag("mlflow.data.context", "training")],
            )
            for entry in datasets
        ]
        for begin in range(0, len(entries), 50):
            self._client.log_inputs(run, datasets=entries[begin : begin + 50])

    def put_text(self, run: str, name: str, text: str) -> str:
        """Store a text as an artifact; the short value that stands for it: its digest and its name in the run."""
        self.put_bytes(run, name, text.encode())
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()} {name}"

    def put_bytes(self, run: str, name: str, content: bytes) -> None:
        """Store an artifact; ``name`` is its path within the run. One of the same name is replaced."""
        folder = local_artifacts(self._uri)
        uri = str(self._client.get_run(run).info.artifact_uri)
        if folder is not None and uri.startswith(ROOT):
            place = folder / uri.removeprefix(ROOT) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            waiting = place.with_name(place.name + ".part")
            waiting.write_bytes(content)
            os.replace(waiting, place)
            return
        with tempfile.TemporaryDirectory(prefix="artifact-") as scratch:
            path = Path(scratch) / PurePosixPath(name).name
            path.write_bytes(content)
            parent = str(PurePosixPath(name).parent)
            self._client.log_artifact(run, str(path), None if parent == "." else parent)

    def run_of(self, checkpoint_id: str) -> str | None:
        """The newest finished run that made a checkpoint; None without one. Ids hold no quotes (``checkpoint_id``)."""
        found = self._client.search_runs(
            [self.experiment()],
            filter_string=f"tags.checkpoint_id = '{checkpoint_id}' and attributes.status = 'FINISHED'",
            order_by=["attributes.start_time DESC"],
            max_results=1,
        )
        return str(found[0].info.run_id) if found else None

    def get_text(self, run: str, reference: str) -> str:
        """The text a value of ``put_text`` stands for.

        Raises:
            ValueError: the artifact is not what its digest says.
        """
        digest, name = reference.removeprefix("sha256:").split(" ", 1)
        folder = local_artifacts(self._uri)
        uri = str(self._client.get_run(run).info.artifact_uri)
        if folder is not None and uri.startswith(ROOT):
            text = (folder / uri.removeprefix(ROOT) / name).read_text("utf-8")
        else:
            text = Path(str(self._client.download_artifacts(run, name))).read_text("utf-8")
        if hashlib.sha256(text.encode()).hexdigest() != digest:
            raise ValueError(f"artifact {name} of run {run} differs from its digest")
        return text

    def set_tags(self, run: str, tags: Mapping[str, str]) -> None:
        """Set tags of a run."""
        from mlflow.entities import RunTag

        self._client.log_batch(run, tags=[RunTag(key, value) for key, value in sorted(tags.items())])

    def end(self, run: str, state: str) -> None:
        """Close a run as FINISHED, FAILED or KILLED."""
        self._client.set_terminated(run, status=state)

    def running(self) -> list[tuple[str, dict[str, str]]]:
        """(run id, tags) of every run that reads as RUNNING."""
        found: list[tuple[str, dict[str, str]]] = []
        token: str | None = None
        while True:
            page = self._client.search_runs(
                [self.experiment()], filter_string="attributes.status = 'RUNNING'", page_token=token
            )
            found += [(run.info.run_id, dict(run.data.tags)) for run in page]
            token = page.token
            if not token:
                return found

    def register(self, source: str, run: str, *, alias: str, day: str, tags: Mapping[str, str]) -> str:
        """The version of a checkpoint, made if it is not there; the alias moves to it unless it is on a later day."""
        if not self._client.search_registered_models(filter_string=f"name = '{MODEL}'"):
            self._client.create_registered_model(
                MODEL, description="One version per checkpoint; the source is its id under the checkpoint root."
            )
        known = self._client.search_model_versions(f"source_path = '{source}'")
        version = known[0] if known else self._client.create_model_version(MODEL, source, run, tags=dict(tags))
        current = self._client.get_registered_model(MODEL).aliases.get(alias)
        if current is None or self._client.get_model_version(MODEL, current).tags.get("day", "") <= day:
            self._client.set_registered_model_alias(MODEL, alias, version.version)
        return str(version.version)


def local_artifacts(uri: str) -> Path | None:
    """Where artifacts of a local SQLite store lie; None for a server."""
    file = _sqlite_file(uri)
    return None if file is None else file.parent / "mlflow-artifacts"


@contextmanager
def one_writer(uri: str, wait_s: float) -> Iterator[None]:
    """Hold the store's write lock when it is a SQLite file, so that parallel trainings wait in place of failing (H02).

    Raises:
        TimeoutError: somebody else held it for ``wait_s`` seconds.
    """
    file = _sqlite_file(uri)
    if file is None:
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_name(file.name + ".lock").open("a") as handle:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"{file.name} was busy for {wait_s:.0f} s") from None
                time.sleep(0.05)
        yield


def _sqlite_file(uri: str) -> Path | None:
    return Path(uri.removeprefix(_SQLITE).split("?")[0]).absolute() if uri.startswith(_SQLITE) else None
