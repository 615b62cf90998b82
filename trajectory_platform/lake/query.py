"""SQL over every table of the lake, by DuckDB in memory: it can read the tables and nothing else.

One SELECT at a time. DuckDB gets the tables as Arrow datasets by name; it has no access to files, network, extensions
or Python variables, and its settings are locked. Memory, threads and the number of result rows are bounded.

Rows of sealed problems are hidden unless a reason is given, and every read with a reason is written to
``{lake_uri}/_sealed_reads.jsonl`` before the query runs. A row is sealed when its ``problem_key``, ``problem_id``
(also the one inside its ``trace_id``), edge key or own ``pool`` is sealed in the *newest* published ``leak_clusters``,
or when its dialogue or its survivor (``duplicate_of``) is that of a sealed trace: an agent may replay one elsewhere.
Problems that are in no cluster yet (a day whose clusters were not built) count as not sealed: nothing is known of
them that could seal them, except hold-outs, which the next ``leak_clusters`` applies.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.identity import safe_id, sha256_hex
from trajectory_platform.lake.reading import damaged, dataset
from trajectory_platform.lake.snapshots import File, first_line, open_snapshot
from trajectory_platform.lake.tables import (
    AXIS_A_CORPUS,
    JUDGED_TRACES,
    LEAK_CLUSTERS,
    LEAK_GUARDED_SPLITS,
    TABLES,
    TRAJECTORIES,
)

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset as ds

    from trajectory_platform.lake.publish import Lake

LEDGER = "_sealed_reads.jsonl"
_NOT_PROBLEM = r"^[^:]*:|#\d+$"  # what a trace id holds besides its problem id


def sql(
    lake: Lake,
    text: str,
    *,
    sealed_reason: str | None = None,
    at: datetime | None = None,
    max_rows: int = 100_000,
    memory_limit: str = "2GB",
    threads: int = 2,
) -> pa.Table:
    """The result of one SELECT over the tables.

    Args:
        text: one statement of the SELECT kind (also WITH, FROM, VALUES, SHOW, DESCRIBE, SUMMARIZE).
        sealed_reason: why sealed rows must be seen; None hides them.
        at: the time that is recorded with a reason; required with one (the lake reads no clock).
        max_rows: more result rows than this are an error, never cut off silently.

    Raises:
        Abort: no single SELECT, unknown table or column, forbidden access, too many rows, no reason or time. One line.
        FailPartition: a data file is damaged; the message names it.
    """
    import duckdb

    if sealed_reason is not None:
        _record(lake, text, sealed_reason, at)
    named = [name for name in TABLES if name in text.lower()] or list(TABLES)
    with duckdb.connect(":memory:", config=_config(memory_limit, threads)) as connection:
        statement = _one_select(connection, text)
        seal = None if sealed_reason is not None else sealed(lake)
        of_traces = any("trace_id" in TABLES[name].columns for name in named)
        traces = _sealed_traces(lake, seal) if seal is not None and of_traces else _NO_TRACES
        files: dict[str, list[File]] = {}
        for name in named:
            snapshot = open_snapshot(lake.root, TABLES[name])
            files[name] = list(snapshot.files) if snapshot else []
            rows = dataset(lake.root, TABLES[name], files[name])
            hidden = None if seal is None else _hidden(name, seal, traces)
            connection.register(name, rows if hidden is None else rows.filter(~hidden))
        for setting in ("enable_external_access = false", "lock_configuration = true"):
            connection.execute(f"SET {setting}")
        try:
            reader = connection.sql(statement).to_arrow_reader(10_000)
            return _bounded(reader, max_rows)
        except (duckdb.Error, OSError) as error:
            for name in named:
                if fault := damaged(lake.root, TABLES[name], files[name] if _about_files(error) else []):
                    raise fault from error
            raise Abort(f"the query failed: {first_line(error)}") from error


class Seal(NamedTuple):
    """Sealed problems by key and by id, as of the newest published ``leak_clusters``."""

    day: str
    keys: frozenset[str]
    problem_ids: frozenset[str]


def sealed(lake: Lake) -> Seal | None:
    """The sealed problems of the newest clusters; None where no clusters were published or nothing is sealed."""
    days = lake.days(LEAK_CLUSTERS)
    if not days:
        return None
    rows = lake.read(LEAK_CLUSTERS, [days[-1]], columns=["problem_key", "problem_ids", "pool"]).to_pylist()
    chosen = [row for row in rows if row["pool"] == "sealed"]
    if not chosen:
        return None
    ids = frozenset(problem_id for row in chosen for problem_id in row["problem_ids"])
    return Seal(days[-1], frozenset(row["problem_key"] for row in chosen), ids)


def _config(memory_limit: str, threads: int) -> dict[str, Any]:
    return {
        "python_enable_replacements": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "temp_directory": "",  # a query too large for its memory fails, it does not fill the disk
        "memory_limit": memory_limit,
        "threads": str(threads),
    }


def _one_select(connection: duckdb.DuckDBPyConnection, text: str) -> Any:
    import duckdb

    try:
        statements = connection.extract_statements(text)
    except duckdb.Error as error:
        raise Abort(f"this is no SQL: {first_line(error)}") from error
    if len(statements) != 1:
        raise Abort(f"write exactly one statement, not {len(statements)}")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise Abort(f"only SELECT is allowed here, not {statements[0].type.name}")
    return statements[0]


def _about_files(error: BaseException) -> bool:
    """Only these errors can come from a damaged data file, so only they are worth reading the files again."""
    import duckdb

    return isinstance(error, OSError | duckdb.IOException | duckdb.InvalidInputException | duckdb.InternalException)


def _bounded(reader: Any, max_rows: int) -> pa.Table:
    import pyarrow as pa

    batches, count = [], 0
    for batch in reader:
        batches.append(batch)
        count += batch.num_rows
        if count > max_rows:
            raise Abort(f"the result has more than {max_rows} rows; add LIMIT or aggregate")
    return pa.Table.from_batches(batches, schema=reader.schema)


class SealedTraces(NamedTuple):
    """Traces to hide by id, and the content hashes of all sealed dialogues."""

    ids: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


_NO_TRACES = SealedTraces()


def _hidden(table_name: str, seal: Seal, traces: SealedTraces) -> ds.Expression | None:
    """The Arrow condition of sealed rows of a table, by the columns it has. It is part of the dataset DuckDB sees,
    so no query can reach around it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = TABLES[table_name].columns
    keys = pa.array(sorted(seal.keys), pa.string())
    ids = pa.array(sorted(seal.problem_ids), pa.string())
    conditions = [pc.field(name).isin(keys) for name in ("problem_key", "left_key", "right_key") if name in columns]
    if "problem_id" in columns:
        conditions.append(pc.field("problem_id").isin(ids))
    if "pool" in columns:
        conditions.append(pc.field("pool") == "sealed")
    if "content_hash" in columns:
        conditions.append(pc.field("content_hash").isin(pa.array(traces.texts, pa.string())))
    named = pa.array(traces.ids, pa.string())
    for name in ("trace_id", "duplicate_of"):
        if name in columns:
            conditions += [_names_problem(name, seal), pc.field(name).isin(named)]
    hidden = None
    for condition in conditions:
        certain = pc.coalesce(condition, False)  # a null key hides nothing
        hidden = certain if hidden is None else hidden | certain
    return hidden


def _sealed_traces(lake: Lake, seal: Seal) -> SealedTraces:
    """Traces that must be named: of problems known by key only (race problems carry no suite id), and every trace that
    repeats the text of a sealed one under another problem."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = pa.array(sorted(seal.keys), pa.string())
    ids: set[str] = set()
    for table in (JUDGED_TRACES, AXIS_A_CORPUS, LEAK_GUARDED_SPLITS):
        rows = lake.read(table, columns=["trace_id"], filter=pc.field("problem_key").isin(keys))
        ids.update(rows.column("trace_id").to_pylist())
    known = _names_problem("trace_id", seal) | pc.field("trace_id").isin(pa.array(sorted(ids), pa.string()))
    sealed_rows = lake.read(TRAJECTORIES, columns=["content_hash"], filter=known)
    texts = pc.unique(sealed_rows.column("content_hash").drop_null().combine_chunks())
    copies = lake.read(TRAJECTORIES, columns=["trace_id"], filter=pc.field("content_hash").isin(texts))
    ids.update(copies.column("trace_id").to_pylist())
    return SealedTraces(tuple(sorted(ids)), tuple(texts.to_pylist()))


def _names_problem(column: str, seal: Seal) -> ds.Expression:
    """Does the problem id inside a trace id belong to a sealed problem?"""
    import pyarrow as pa
    import pyarrow.compute as pc

    safe = pa.array(sorted({safe_id(problem_id) for problem_id in seal.problem_ids}), pa.string())
    return pc.replace_substring_regex(pc.field(column), pattern=_NOT_PROBLEM, replacement="").isin(safe)


def _record(lake: Lake, text: str, reason: str, at: datetime | None) -> None:
    if not reason.strip():
        raise Abort("reading sealed rows needs a reason: --sealed REASON")
    if at is None or at.tzinfo is None:
        raise Abort("reading sealed rows needs the time of the read (at=, with a zone)")
    entry = {"at": at.astimezone(UTC).isoformat(), "reason": reason, "query_sha256": sha256_hex(text.encode())}
    try:
        lake.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lake.root / LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, json.dumps(entry, sort_keys=True).encode("ascii") + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise FailPartition(f"the sealed read cannot be recorded in {LEDGER}: {first_line(error)}") from error
