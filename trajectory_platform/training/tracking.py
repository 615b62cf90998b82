"""MLflow as a mirror of a run, never its ledger: losing it loses no training and no lineage.

Values are buffered and written now and then by one writer; what could not be written stays in the buffer until the
end. Every failure is reported as a line and swallowed *here*, at the border to a service the platform does not need.
A run is opened before training and closed with an explicit state; one whose process died is closed as KILLED by the
next training on the same machine, so it never reads as finished.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from trajectory_platform.evaluation.child import Report, Values
from trajectory_platform.evaluation.process_group import is_alive, this_process
from trajectory_platform.training.tracking_store import MAX_VALUE, Point, Store, one_writer

FLUSH_S = 10.0  # seconds between two writes while training
_PAUSE_S = 300.0  # at most, between two tries while the store does not answer
_USER = re.compile(r"//[^/\s]*@")  # user and password in an address
_CHECKPOINT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # what may stand in a query of the store
_AT_ONCE_S, _AT_THE_END_S = 2.0, 120.0  # how long a busy SQLite file is waited for

Result = TypeVar("Result")


class Facts(NamedTuple):
    """What a run is of.

    Attributes:
        params: recipe keys, flat; a long value becomes an artifact with its digest as the parameter (case H01).
        inputs: name of a partition -> at least ``content_digest``; they are the run's datasets.
        long: name of an artifact -> text, for example the whole recipe.
    """

    checkpoint_id: str
    stage: str
    day: str
    identity: str
    parent: str | None
    params: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, Any]] = {}
    long: Mapping[str, str] = {}


class Mirror:
    """The MLflow run of one training. No method raises; without a ``uri`` none does anything."""

    def __init__(self, uri: str | None, facts: Facts, finished: Callable[[], Iterable[str]], report: Report) -> None:
        self.run_id: str | None = None
        self._uri, self._facts, self._finished, self._report = uri, facts, finished, report
        self._store: Store | None = None
        self._described = False
        self._buffer: list[Point] = []
        self._logged: set[tuple[str, int]] = set()
        self._next, self._pause, self._failed = 0.0, FLUSH_S, ""

    def log(self, step: int, values: Values) -> None:
        """Keep the numbers of a step; now and then what is kept is written."""
        if not self._uri:
            return
        at_ms = int(time.time() * 1000)
        for key, value in sorted(values.items()):
            if key != "step" and (key, step) not in self._logged:
                self._logged.add((key, step))
                self._buffer.append(Point(key, float(value), step, at_ms))
        if time.monotonic() >= self._next:
            self.flush(_AT_ONCE_S)

    def flush(self, wait_s: float) -> bool:
        """Write what is kept; False when it stays kept. After a failure the next tries are further apart."""
        written = self._guarded(self._write, wait_s) is not None
        self._pause = FLUSH_S if written else min(2 * self._pause, _PAUSE_S)
        self._next = time.monotonic() + self._pause
        return written

    def close(
        self,
        *,
        finished: bool,
        history: Sequence[Mapping[str, float]] = (),
        numbers: Mapping[str, Any] | None = None,
        traces_digest: str = "",
    ) -> None:
        """Write the rest and the final state; a finished run becomes a model version with its stage's alias.

        ``history`` may repeat what was logged, and holds what a killed run logged before this one went on.
        """
        if not self._uri:
            return
        self._next = float("inf")
        for number, entry in enumerate(history):
            self.log(int(entry.get("step", number)), entry)

        def write(store: Store) -> None:
            self._write(store)
            assert self.run_id is not None
            texts = {f"result.{key}": _text(value) for key, value in sorted((numbers or {}).items())}
            store.log_params(self.run_id, self._short(store, texts))
            if finished:
                store.set_tags(self.run_id, {"trace_list_digest": traces_digest})
                self._register(store, traces_digest)
            store.end(self.run_id, "FINISHED" if finished else "FAILED")

        self._guarded(write, _AT_THE_END_S)

    def _write(self, store: Store) -> bool:
        if self.run_id is None:
            close_dead(store, self._finished(), self._facts.checkpoint_id)
            tags = {
                "checkpoint_id": self._facts.checkpoint_id,
                "stage": self._facts.stage,
                "day": self._facts.day,
                "identity": self._facts.identity,
                "parent": self._facts.parent or "",
                "owner": _owner(),
            }
            self.run_id = store.create_run(self._facts.checkpoint_id, tags)
        if not self._described:
            params = {key: _text(value) for key, value in self._facts.params.items()}
            short = self._short(store, params)
            for name, text in sorted(self._facts.long.items()):
                short[name] = store.put_text(self.run_id, name, text)
            store.log_params(self.run_id, short)
            store.log_datasets(self.run_id, _datasets(self._facts.inputs))
            self._described = True
        store.log_points(self.run_id, self._buffer)
        self._buffer.clear()
        return True

    def _short(self, store: Store, texts: Mapping[str, str]) -> dict[str, str]:
        assert self.run_id is not None
        return {
            key: text if len(text) <= MAX_VALUE else store.put_text(self.run_id, f"params/{key}.txt", text)
            for key, text in texts.items()
        }

    def _register(self, store: Store, traces_digest: str) -> None:
        assert self.run_id is not None
        facts = self._facts
        tags = {
            "checkpoint_id": facts.checkpoint_id,
            "stage": facts.stage,
            "day": facts.day,
            "identity": facts.identity,
            "parent": facts.parent or "",
            "trace_list_digest": traces_digest,
        }
        source = f"checkpoint:{facts.checkpoint_id}"
        store.register(source, self.run_id, alias=facts.stage, day=facts.day, tags=tags)

    def _guarded(self, write: Callable[[Store], Result], wait_s: float) -> Result | None:
        assert self._uri is not None
        try:
            with one_writer(self._uri, wait_s):
                self._store = self._store or Store(self._uri)
                return write(self._store)
        except Exception as error:  # noqa: BLE001 - MLflow raises its own, requests', sqlalchemy's and import errors
            words = _words(error, self._uri)
            if words != self._failed:  # said once, not at every try
                self._report(f"mlflow: {words}; training goes on")
            self._failed = words
            return None


def open_mirror(uri: str | None, facts: Facts, *, finished: Callable[[], Iterable[str]], report: Report) -> Mirror:
    """Open the run of a training; where the store does not answer, opening is tried again with every write.

    Args:
        uri: tracking URI; None switches the mirror off (nothing is imported).
        finished: gives the ids of the checkpoints that exist, for the runs of dead processes that are closed first.
    """
    mirror = Mirror(uri, facts, finished, report)
    if uri:
        mirror.flush(_AT_THE_END_S)
    return mirror


def add_to_run(
    uri: str | None,
    checkpoint_id: str,
    files: Mapping[str, bytes],
    report: Report,
    *,
    numbers: Mapping[str, float] | None = None,
) -> bool:
    """Add artifacts and numbers to the finished run of a checkpoint, after its training.

    Args:
        uri: tracking URI; None does nothing.
        files: name within the run -> content; one of the same name is replaced.
        numbers: metrics, at step 0; a later call adds a later value.

    Returns:
        True when a run was there and everything was written. Never raises: what failed is said in one line.
    """
    if not uri or not _CHECKPOINT.fullmatch(checkpoint_id):
        return False
    try:
        with one_writer(uri, _AT_THE_END_S):
            store = Store(uri)
            run = store.run_of(checkpoint_id)
            if run is None:
                return False
            for name, content in sorted(files.items()):
                store.put_bytes(run, name, content)
            at_ms = int(time.time() * 1000)
            store.log_points(
                run, [Point(key, float(value), 0, at_ms) for key, value in sorted((numbers or {}).items())]
            )
    except Exception as error:  # noqa: BLE001 - as in ``Mirror``: MLflow raises its own, requests' and sqlalchemy's
        report(f"mlflow: {_words(error, uri)}; nothing else depends on it")
        return False
    return True


def _words(error: Exception, uri: str) -> str:
    return f"{type(error).__name__}: {without_secrets(' '.join(str(error).split()), uri)[:200]}"


def without_secrets(text: str, uri: str) -> str:
    """A text of a library, which often repeats the address, without what a tracking URI may hold of passwords: the part
    before the host of any address, and the query and the password of this one wherever they stand."""
    parts = urlsplit(uri)
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    for secret in sorted({parts.query, password, unquote(password)}, key=len, reverse=True):
        text = text.replace(secret, "***") if secret else text
    return _USER.sub("//***@", text)


def close_dead(store: Store, finished: Iterable[str], checkpoint_id: str | None = None) -> dict[str, str]:
    """Close runs that read as RUNNING although their process is gone.

    They become FINISHED where the checkpoint exists, else KILLED. A run of another machine is left alone, unless it
    was making ``checkpoint_id``, which is now made here.

    Returns:
        run id -> new state.
    """
    known = set(finished)
    changed: dict[str, str] = {}
    for run, tags in store.running():
        host, _, process = tags.get("owner", "").partition("/")
        gone = host == _host() and not is_alive(process)
        if not gone and (checkpoint_id is None or tags.get("checkpoint_id") != checkpoint_id):
            continue
        name = tags.get("checkpoint_id", "")
        if name in known:
            store.register(
                f"checkpoint:{name}",
                run,
                alias=tags["stage"],
                day=tags["day"],
                tags={key: tags.get(key, "") for key in ("checkpoint_id", "stage", "day", "identity", "parent")},
            )
        changed[run] = "FINISHED" if name in known else "KILLED"
        store.end(run, changed[run])
    return changed


def _datasets(inputs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {
            "name": name,
            "digest": str(entry["content_digest"]),
            "source": json.dumps({"partition": name, **entry}, sort_keys=True, default=str),
            "profile": json.dumps({"rows": entry["rows"]} if "rows" in entry else {}),
        }
        for name, entry in sorted(inputs.items())
    ]


def _text(value: Any) -> str:
    """A value as a parameter: of an absolute path only the last part, a folder of this machine is no lineage (H04)."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return PurePath(text).name if PurePath(text).is_absolute() and "\n" not in text else text


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _owner() -> str:
    return f"{_host()}/{this_process()}"
