"""Traces in MLflow's trace view, on demand. Logging the same trace again changes nothing.

The id of a trace in MLflow is made from its id in the lake. Its record carries the digest of what it shows, and MLflow
marks it when its spans are there: a trace without that mark was cut short and is written anew, one with another digest
has new facts and is replaced. No training calls this; a store that does not answer is one line.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort
from trajectory_platform.training.trace_spans import REPLY, SpanFacts, TraceFacts, request_of, trace_facts
from trajectory_platform.training.tracking import without_secrets
from trajectory_platform.training.tracking_store import ROOT, Store, one_writer

if TYPE_CHECKING:
    from mlflow.entities import Assessment, Span, TraceInfo

EXPERIMENT = "trajectory-platform-traces"
_KIND = {"mlflow.experimentKind": "genai_development"}  # its page opens on the traces
_MESSAGE_FORMAT = "mistral"  # OpenAI's messages with thinking as a part: of the forms its pages read, the one that fits
_BATCH = 32  # traces per write
_FORGOTTEN = 100  # traces per deletion, as many as a server takes at once
_WAIT_S = 60.0  # for another writer of a SQLite file
_DIGEST = "view_digest"


class Logged(NamedTuple):
    """How many traces were written, were there already, and were replaced because their facts changed.

    Attributes:
        page: where MLflow's pages show them, below the address of a server; "" when nothing was to be logged.
    """

    written: int = 0
    known: int = 0
    replaced: int = 0
    page: str = ""


def log_traces(uri: str, views: Iterable[Mapping[str, Any]]) -> Logged:
    """Log views of ``stages.trace_views``, each once, however often this is called.

    Args:
        uri: tracking URI, a server or ``sqlite:///FILE``.
        views: read batch by batch, so they may come from a generator; withheld ones must not be among them.

    Raises:
        Abort: the store cannot be used; the words hold no password of the address.
    """
    waiting = iter(views)
    total = Logged()
    tracing: _Tracing | None = None
    while batch := list(islice(waiting, _BATCH)):
        if any(view["withheld"] for view in batch):
            raise ValueError("a withheld trace has nothing to log")
        facts = [trace_facts(view) for view in batch]
        with _in_words(uri), one_writer(uri, _WAIT_S):
            tracing = tracing or _Tracing(uri)
            done = tracing.log(facts)
        total = Logged(
            total.written + done.written, total.known + done.known, total.replaced + done.replaced, done.page
        )
    return total


def forget_traces(uri: str, trace_ids: Sequence[str]) -> int:
    """Remove traces of the lake from the store, as far as they are there; returns how many were.

    Raises:
        Abort: the store cannot be used; the words hold no password of the address.
    """
    removed = 0
    waiting = iter(trace_ids)
    while batch := list(islice(waiting, _FORGOTTEN)):
        with _in_words(uri), one_writer(uri, _WAIT_S):
            removed += _Tracing(uri).forget([request_of(name) for name in batch])
    return removed


@contextmanager
def _in_words(uri: str) -> Iterator[None]:
    """Errors of the store as one line without its password."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - MLflow raises its own, requests', sqlalchemy's and import errors
        words = without_secrets(" ".join(str(error).split()), uri)[:300]
        raise Abort(f"mlflow: {type(error).__name__}: {words}") from None


class _Tracing:
    """The tracing store of an address and the experiment that holds the traces."""

    def __init__(self, uri: str) -> None:
        os.environ.setdefault("MLFLOW_ASYNC_TRACE_LOGGING_RETRY_TIMEOUT", "20")  # seconds; 500 by default
        Store(uri)  # what every client of ours sets: no telemetry, short timeouts, few retries
        from mlflow.entities import LifecycleStage
        from mlflow.tracing.client import TracingClient
        from mlflow.tracking import MlflowClient

        self._tracing = TracingClient(uri)
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(EXPERIMENT)
        if found is not None and found.lifecycle_stage == LifecycleStage.DELETED:
            client.restore_experiment(found.experiment_id)  # or what is logged could not be seen
        self._experiment = str(
            found.experiment_id
            if found
            else client.create_experiment(EXPERIMENT, artifact_location=f"{ROOT}{EXPERIMENT}", tags=_KIND)
        )

    def forget(self, ids: Sequence[str]) -> int:
        """Delete the traces that are there; how many that were."""
        known = [info.trace_id for info in self._tracing.store.batch_get_trace_infos(list(ids))]
        if known:
            self._tracing.delete_traces(self._experiment, trace_ids=known)
        return len(known)

    def log(self, facts: Sequence[TraceFacts]) -> Logged:
        """Write the traces that are not there as they are now."""
        ids = [one.request_id for one in facts]
        known = {info.trace_id: _digest_of(info) for info in self._tracing.store.batch_get_trace_infos(ids)}
        fresh = [one for one in facts if known.get(one.request_id) != one.digest]
        stale = [one.request_id for one in fresh if one.request_id in known]
        if stale:
            self._tracing.delete_traces(self._experiment, trace_ids=stale)
        for one in fresh:
            self._tracing.start_trace(_info(one, self._experiment))
        if fresh:
            self._tracing.log_spans(self._experiment, [span for one in fresh for span in _spans(one)])
        # the traces have the times of their runs, which the pages leave out unless all times are asked for
        page = f"#/experiments/{self._experiment}/traces?startTimeLabel=ALL"
        return Logged(len(fresh) - len(stale), len(facts) - len(fresh), len(stale), page)


def _digest_of(info: TraceInfo) -> str | None:
    """The digest of a trace that is there as a whole; None while it has no spans."""
    from mlflow.tracing.constant import TraceTagKey

    return info.tags.get(_DIGEST) if TraceTagKey.SPANS_LOCATION in info.tags else None


def _spans(facts: TraceFacts) -> Iterator[Span]:
    from mlflow.entities import Span

    for span in facts.spans:
        yield Span.from_dict(_span(facts, span))


def _span(facts: TraceFacts, span: SpanFacts) -> dict[str, Any]:
    """A span in the form ``Span.from_dict`` reads; attribute values are JSON text."""
    from mlflow.tracing.constant import SpanAttributeKey

    attributes = {
        SpanAttributeKey.REQUEST_ID: facts.request_id,
        SpanAttributeKey.SPAN_TYPE: span.kind,
        SpanAttributeKey.INPUTS: span.inputs,
        SpanAttributeKey.OUTPUTS: span.outputs,
        **{name: value for name, value in span.attributes.items() if value not in (None, [], {})},
    }
    if span.kind == REPLY:
        attributes[SpanAttributeKey.MESSAGE_FORMAT] = _MESSAGE_FORMAT
    return {
        "trace_id": _base64(facts.request_id.removeprefix("tr-")),
        "span_id": _base64(span.span_id),
        "parent_span_id": _base64(span.parent) if span.parent else None,
        "name": span.name,
        "start_time_unix_nano": span.start_ns,
        "end_time_unix_nano": span.end_ns,
        "events": [],
        "status": {"code": "STATUS_CODE_ERROR" if span.error else "STATUS_CODE_OK", "message": span.error or ""},
        "attributes": {name: json.dumps(value, ensure_ascii=False) for name, value in attributes.items()},
        "links": [],
    }


def _info(facts: TraceFacts, experiment: str) -> TraceInfo:
    from mlflow.entities import TraceInfo, TraceLocation
    from mlflow.entities.trace_state import TraceState
    from mlflow.tracing.constant import TraceMetadataKey, TraceTagKey

    root = facts.spans[0]
    metadata = {TraceMetadataKey.INPUTS: facts.request[:250], TraceMetadataKey.OUTPUTS: facts.response[:250]}
    if facts.usage is not None:
        metadata[TraceMetadataKey.TOKEN_USAGE] = json.dumps(facts.usage)
    start_ms, end_ms = root.start_ns // 1_000_000, root.end_ns // 1_000_000
    return TraceInfo(
        trace_id=facts.request_id,
        trace_location=TraceLocation.from_experiment_id(experiment),
        request_time=start_ms,
        execution_duration=end_ms - start_ms,
        state=TraceState.ERROR if facts.failed else TraceState.OK,
        request_preview=facts.request,
        response_preview=facts.response,
        client_request_id=facts.tags["trace_id"],
        trace_metadata=metadata,
        tags={**facts.tags, TraceTagKey.TRACE_NAME: facts.name},
        assessments=list(_assessments(facts, end_ms)),
    )


def _assessments(facts: TraceFacts, at_ms: int) -> Iterator[Assessment]:
    from mlflow.entities import AssessmentError, AssessmentSource, Feedback

    for said in facts.verdicts:
        yield Feedback(
            name=said.name,
            value=said.value,
            error=None if said.missing is None else AssessmentError(said.missing.upper()[:100], said.missing),
            source=AssessmentSource(said.kind, said.source),
            rationale=said.rationale,
            metadata=said.metadata,
            trace_id=facts.request_id,
            create_time_ms=at_ms,
            last_update_time_ms=at_ms,
        )


def _base64(digits: str) -> str:
    return base64.b64encode(bytes.fromhex(digits)).decode("ascii")
