"""SQL over every table of the lake, by DuckDB in memory: it can read the tables and nothing else.

One SELECT at a time. DuckDB gets the tables as Arrow datasets by name; it has no access to files, network, extensions
or Python variables, and its settings are locked. Memory, threads and the number of result rows are bounded.

Rows of sealed problems (``lake.sealing``) are hidden unless a reason is given, and every read with a reason is
written to the ledger (``lake.ledger``) before the query runs. So are rows of days that no leak clusters cover yet, and
free text that names no trace.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort
from trajectory_platform.lake import ledger, sealing
from trajectory_platform.lake.reading import damaged, dataset
from trajectory_platform.lake.snapshots import File, open_snapshot
from trajectory_platform.lake.storage import first_line
from trajectory_platform.lake.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import duckdb
    import pyarrow as pa

    from trajectory_platform.lake.publish import Lake


def sql(
    lake: Lake,
    text: str,
    *,
    sealed_reason: str | None = None,
    at: datetime | None = None,
    who: str | None = None,
    max_rows: int = 100_000,
    memory_limit: str = "2GB",
    threads: int = 2,
) -> pa.Table:
    """The result of one SELECT over the tables.

    Args:
        text: one statement of the SELECT kind (also WITH, FROM, VALUES, SHOW, DESCRIBE, SUMMARIZE).
        sealed_reason: why sealed rows must be seen; None hides them.
        at: the time that is recorded with a reason; required with one (the lake reads no clock). ``who``: who looks;
            None = ``ledger.user_name()``.
        max_rows: more result rows than this are an error, never cut off silently.

    Raises:
        Abort: no single SELECT, unknown table or column, forbidden access, too many rows, no reason or time. One line.
        FailPartition: a data file is damaged; the message names it.
    """
    import duckdb

    seal = sealing.sealed(lake)
    if sealed_reason is not None:
        keys = seal.keys if seal is not None else ()
        ledger.record(lake, what="sql", reason=sealed_reason, at=at, keys=keys, query=text, who=who)
        seal = None
    named = [name for name in TABLES if name in text.lower()] or list(TABLES)
    with duckdb.connect(":memory:", config=_config(memory_limit, threads)) as connection:
        statement = _one_select(connection, text)
        files = _register(connection, lake, named, seal)
        for setting in ("enable_external_access = false", "lock_configuration = true"):
            connection.execute(f"SET {setting}")
        try:
            reader = connection.sql(statement).to_arrow_reader(10_000)
            return _bounded(reader, max_rows)
        except (duckdb.Error, OSError) as error:
            for name in named:
                if fault := damaged(lake.storage, TABLES[name], files[name] if _about_files(error) else []):
                    raise fault from error
            raise Abort(f"the query failed: {first_line(error)}{_hint(error)}") from error


def _register(
    connection: duckdb.DuckDBPyConnection, lake: Lake, named: Sequence[str], seal: sealing.Seal | None
) -> dict[str, list[File]]:
    """Give DuckDB the tables, without what is sealed: that is no part of what it sees, so no query can reach it."""
    of_traces = any("trace_id" in TABLES[name].columns for name in named)
    traces = sealing.sealed_traces(lake, seal) if seal is not None and of_traces else sealing.NO_TRACES
    files: dict[str, list[File]] = {}
    for name in named:
        snapshot = open_snapshot(lake.storage, TABLES[name])
        files[name] = list(snapshot.files) if snapshot else []
        rows = dataset(lake.storage, TABLES[name], files[name])
        if seal is None:
            connection.register(name, rows)
            continue
        withheld = sealing.UNNAMED_TEXT.get(name, {})
        if withheld:
            rows = rows.replace_schema(_without(rows.schema, withheld))
        hidden = sealing.hidden(name, seal, traces)
        visible = rows if hidden is None else rows.filter(~hidden)
        if withheld:
            connection.from_arrow(visible).project(_projection(name, withheld)).create_view(name)
        else:
            connection.register(name, visible)
    return files


def _without(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([field for field in schema if field.name not in set(names)])


def _projection(table_name: str, withheld: Mapping[str, str | None]) -> str:
    """The columns of a table in order; those withheld are constants (names and values are ours)."""
    listed = []
    for name in TABLES[table_name].columns:
        if name in withheld:
            value = "CAST(NULL AS VARCHAR)" if withheld[name] is None else f"'{withheld[name]}'"
            listed.append(f'{value} AS "{name}"')
        else:
            listed.append(f'"{name}"')
    return ", ".join(listed)


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


def _hint(error: BaseException) -> str:
    """Where to read the name that a query got wrong; "" for what is no unknown table or column."""
    import duckdb

    if isinstance(error, duckdb.CatalogException) and "Table with name" in str(error):
        return "; 'show tables' lists what there is"
    unknown = isinstance(error, duckdb.BinderException) and "Referenced column" in str(error)
    return "; 'describe TABLE' lists the columns of one" if unknown else ""


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
