"""Raw traces to canonical trajectories, batch by batch: pure functions from Arrow to Arrow (design 7).

Every row of the input gives exactly one row of the output. What cannot be read stays as a row with ``readable`` false
and the reason; the bytes stay in the raw folder. Results depend on the row and its bytes only, not on batches,
workers or order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Protocol

from trajectory_platform import jsontext
from trajectory_platform.errors import FailPartition, PlatformError, RejectRow
from trajectory_platform.identity import sha256_hex
from trajectory_platform.lake.tables import RAW_TRACES, TRAJECTORIES
from trajectory_platform.sources.container import Limits, Record, is_chat, read_records
from trajectory_platform.traces import chat, sn15
from trajectory_platform.traces import evidence as proxy_log
from trajectory_platform.traces.garbage import collection_paused
from trajectory_platform.traces.schema import Trajectory

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = f"normalise-1,{sn15.READER}-{sn15.READER_VERSION},{chat.READER}-{chat.READER_VERSION}"

# Columns carried over from RAW_TRACES as they are, and those that the readers are told (the binding of the pair).
CONTEXT = tuple(name for name in TRAJECTORIES.columns if name in RAW_TRACES.columns)
BINDING = (*CONTEXT, "execution_status", "problem_status", "run_status", "execution_time")
BINDING += ("inference_total", "inference_failure_count", "artifact_uri", "artifact_line", "artifact_sha256")
_STORED_BYTES_PER_BATCH = 16 << 20  # stored size, so that a day of huge traces does not fill the memory


class Source(Protocol):
    """What reads the stored bytes (``sources.files.FileSource`` has it); it is pickled into worker processes."""

    def read(self, uri: str) -> bytes: ...


def read_record(record: Record, binding: Mapping[str, Any] | None) -> Trajectory:
    """One record of an artifact as a canonical trajectory; the shape of its steps decides the reader.

    Raises:
        RejectRow: the record's own reason, or ``no_dialogue`` for a null dialogue.
    """
    if record.reject is not None:
        raise record.reject
    if record.steps is None:
        raise RejectRow("no_dialogue", "the dialogue is null")
    if is_chat(record.steps):
        trajectory = chat.read_messages({**(record.envelope or {}), "messages": record.steps}, binding=binding)
    else:
        trajectory = sn15.read_dialogue(record.steps, binding=binding)
    trajectory.repairs = [
        *({"reason": reason, "where": "record", "count": record.repairs[reason]} for reason in sorted(record.repairs)),
        *trajectory.repairs,
    ]
    return trajectory


def unreadable(error: RejectRow, binding: Mapping[str, Any] | None) -> Trajectory:
    """The row that stands for a trace that could not be read at all."""
    return Trajectory(
        messages=[],
        tools=[],
        query=None,
        source_steps=[],
        evidence=proxy_log.extract([], binding=binding),
        repairs=[],
        flags=[],
        malformed=error.reason,
        malformed_detail=error.detail or None,
        reader="container",
        reader_version=VERSION.partition(",")[0],
    )


def normalise_batch(
    raw_rows: pa.RecordBatch | pa.Table, read: Callable[[str], bytes], limits: Limits
) -> pa.RecordBatch:
    """Normalise raw rows; one output row (TRAJECTORIES schema) per input row, in the same order.

    Args:
        raw_rows: RAW_TRACES rows that name an artifact.
        read: stored bytes of an artifact uri.
        limits: sizes and depth above which an artifact or a record is set aside.

    Raises:
        RetryLater: from ``read``: the storage does not answer now.
    """
    import pyarrow as pa

    rows = raw_rows.select(list(BINDING)).to_pylist()
    values: dict[str, list[Any]] = {name: [None] * len(rows) for name in TRAJECTORIES.columns if name not in CONTEXT}
    by_uri: dict[str | None, list[int]] = {}
    for position, row in enumerate(rows):
        by_uri.setdefault(row["artifact_uri"], []).append(position)
    with collection_paused():
        for uri, positions in by_uri.items():
            for position, trajectory in _read_artifact(
                uri, {position: rows[position] for position in positions}, read, limits
            ):
                for name, value in _columns(trajectory).items():
                    values[name][position] = value
    schema = TRAJECTORIES.schema()
    arrays = [
        _carried(raw_rows.column(field.name), field.type)
        if field.name in CONTEXT
        else pa.array(values[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _carried(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """A column of the raw rows as it is."""
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole if whole.type == kind else whole.cast(kind)


def _read_artifact(
    uri: str | None, rows: dict[int, dict[str, Any]], read: Callable[[str], bytes], limits: Limits
) -> Iterator[tuple[int, Trajectory]]:
    """The trajectories of the rows that one artifact holds; of a file of many lines one line is held at a time."""
    waiting: dict[int | None, list[int]] = {}
    for position, row in rows.items():
        waiting.setdefault(row["artifact_line"], []).append(position)
    lines = None if None in waiting else {line for line in waiting if line is not None}
    failure = RejectRow("record_missing", f"{uri} does not hold this record")
    try:
        if uri is None:
            raise RejectRow("no_artifact", "the row names no artifact")
        data = read(uri)
        if {row["artifact_sha256"] for row in rows.values()} - {None, sha256_hex(data)}:
            raise RejectRow("artifact_changed", f"{uri} is not what was inventoried; inventory the day again")
        for record in read_records(data, limits, lines):
            key = record.line if lines is not None else None
            for position in waiting.pop(key, ()):
                yield position, read_guarded(record, rows[position])
            if not waiting:
                return
    except RejectRow as error:
        failure = error
    for positions in waiting.values():
        for position in positions:
            yield position, unreadable(failure, rows[position])


def read_guarded(record: Record, row: Mapping[str, Any] | None) -> Trajectory:
    """The one boundary of the readers: a fault in our own code costs the row, with its name, never the batch."""
    try:
        return read_record(record, row)
    except RejectRow as error:
        return unreadable(error, row)
    except (PlatformError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  the boundary named above
        return unreadable(RejectRow("reader_error", f"{type(error).__name__}: {error}"[:500]), row)


def _columns(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "readable": trajectory.malformed is None,
        "malformed": trajectory.malformed,
        "malformed_detail": _storable(trajectory.malformed_detail),
        "content_hash": trajectory.content_hash,
        "messages": jsontext.dumps(trajectory.messages),
        "tools": jsontext.dumps(trajectory.tools),
        "query": _storable(trajectory.query),
        "source_steps": trajectory.source_text or jsontext.dumps(trajectory.source_steps),
        "evidence": jsontext.dumps(trajectory.evidence),
        "repairs": jsontext.dumps(trajectory.repairs),
        "flags": trajectory.flags,
        "steps": trajectory.steps,
        "tool_calls": trajectory.tool_calls,
        "reader": trajectory.reader,
        "reader_version": trajectory.reader_version,
    }


def _storable(text: str | None) -> str | None:
    """Text that a column can hold: details quote third-party text, which may hold lone surrogates."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")


def normalise_batches(
    raw_table: pa.Table, source: Source, limits: Limits, batch_rows: int, workers: int
) -> Iterator[pa.RecordBatch]:
    """Normalise a day in batches ordered by trace_id; ``workers`` processes, never another result.

    Args:
        raw_table: RAW_TRACES rows that name an artifact, in any order.
        source: where the bytes are; pickled into the workers.
        limits: sizes and depth above which an artifact or a record is set aside.
        batch_rows: rows per batch; batches of large artifacts hold fewer.
        workers: 1 reads in this process.

    Raises:
        FailPartition: a worker process died.
    """
    import pyarrow as pa

    table = raw_table.sort_by("trace_id")
    parts = (table.slice(start, length) for start, length in _parts(table, batch_rows))
    if workers <= 1:
        for part in parts:
            yield normalise_batch(part, source.read, limits)
        return
    import multiprocessing

    # spawn: a forked child of a process with threads (Dagster, pyarrow) may hang
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        pending: list[Future[pa.RecordBatch]] = []
        try:
            for part in parts:
                # taking the rows copies them: a pickled slice would carry the whole table
                rows = part.select(list(BINDING)).take(pa.array(range(part.num_rows)))
                pending.append(pool.submit(normalise_batch, rows, source.read, limits))
                if len(pending) > 2 * workers:
                    yield pending.pop(0).result()
            while pending:
                yield pending.pop(0).result()
        except BrokenProcessPool:
            raise FailPartition(
                "a worker process died while artifacts were read, usually because memory ran out: lower "
                "TRAJECTORY_PLATFORM_WORKERS or TRAJECTORY_PLATFORM_BATCH_ROWS, or give it more memory"
            ) from None
        finally:
            for future in pending:
                future.cancel()


def _parts(table: pa.Table, batch_rows: int) -> Iterator[tuple[int, int]]:
    """(first row, rows) of the batches."""
    sizes = table.column("artifact_bytes").to_pylist()
    start, stored = 0, 0
    for position, size in enumerate(sizes):
        if position > start and (position - start >= batch_rows or stored + (size or 0) > _STORED_BYTES_PER_BATCH):
            yield start, position - start
            start, stored = position, 0
        stored += size or 0
    if start < len(sizes):
        yield start, len(sizes) - start
