"""The contract of a table, checked before anything is committed: a day that breaks it is never published.

Two layers. Arrow checks what it knows without looking at values: exactly the declared columns, exactly the declared
types (no silent cast: text is not made of an int, nor an int of a bool), no null where none is allowed, valid UTF-8.
Pandera checks the values: allowed words, the partition columns equal to the slot, the key unique. Tables with big
text are checked batch by batch for the first layer and for the order of the key (strictly ascending, hence unique);
pandera then sees the whole day without the columns of ``HEAVY_COLUMNS``, which carry no rule of value and would
be the only reason to hold a day in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.manifests import Slot
from trajectory_platform.lake.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

HEAVY_COLUMNS = frozenset({"messages", "tools", "source_steps", "evidence"})
"""Columns of big-text tables that hold nearly all of their bytes."""

_SHOWN = 3


def light_columns(table: Table) -> list[str]:
    """The columns of a table without its big text; all columns of a small table."""
    return [name for name in table.columns if not (table.big_text and name in HEAVY_COLUMNS)]


def conform(where: Slot, data: Any) -> Any:
    """A pa.Table or pa.RecordBatch in the declared schema.

    Only the layout of a type may differ from the declared one (large or view text and lists, dictionaries of text,
    an all-null column for a nullable one); columns may come in any order.

    Raises:
        FailPartition: a column is missing, foreign, of another type, null where it must not be, or no valid UTF-8.
    """
    import pyarrow as pa

    schema = where.table.schema()
    _same_names(where, schema.names, data.schema.names)
    columns = []
    for field in schema:
        column = data.column(field.name)
        if column.type != field.type:
            column = _relayout(where, field, column)
        if column.null_count and not field.nullable:
            raise FailPartition(f"{where}: column {field.name} holds {column.null_count} nulls and allows none")
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise FailPartition(f"{where}: column {field.name} is damaged: {error}") from error
        columns.append(column)
    return type(data).from_arrays(columns, schema=schema)


def check_values(where: Slot, rows: pa.Table) -> None:
    """Check allowed words, partition columns and key uniqueness with pandera. Raises FailPartition.

    Args:
        rows: conformed rows of the whole slot; columns may be left out (``light_columns``).
    """
    import pandera.errors
    import polars

    frame = polars.from_arrow(rows)
    try:
        _pandera_schema(where, rows.schema).validate(frame, lazy=True)
    except pandera.errors.SchemaErrors as error:
        raise FailPartition(f"{where}: {_explain(where, rows, error)}") from error


def check_order(where: Slot, batch: pa.RecordBatch, last: str | None) -> str | None:
    """Check that the key ascends strictly within a batch and after ``last``; returns the key to go on from.

    The order is that of UTF-8 bytes. Raises FailPartition for a repeated or a misplaced key.
    """
    import pyarrow.compute as pc

    if not batch.num_rows:
        return last
    (name,) = where.table.key
    keys = batch.column(name)
    ascending = pc.all(pc.less(keys[:-1], keys[1:]), min_count=0).as_py()
    if ascending and (last is None or last.encode() < keys[0].as_py().encode()):
        return str(keys[-1].as_py())
    previous = last
    for key in keys.to_pylist():
        if previous is not None and key.encode() <= previous.encode():
            fault = "twice" if key == previous else f"after {previous!r:.80}"
            raise FailPartition(f"{where}: rows must arrive sorted by {name}, found {key!r:.80} {fault}")
        previous = key
    return previous


def _same_names(where: Slot, declared: list[str], given: list[str]) -> None:
    faults = []
    if missing := [name for name in declared if name not in given]:
        faults.append(f"columns missing: {', '.join(missing)}")
    if foreign := sorted({name for name in given if name not in declared}):
        faults.append(f"columns not declared: {', '.join(foreign)[:200]}")
    if len(set(given)) != len(given):
        faults.append("a column is given twice")
    if faults:
        raise FailPartition(f"{where}: {'; '.join(faults)}")


def _relayout(where: Slot, field: pa.Field, column: Any) -> Any:
    import pyarrow as pa

    kind = column.type
    if kind == pa.null() and field.nullable:
        allowed = True
    elif field.type == pa.string():
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        allowed = pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_string(kind)
    elif pa.types.is_list(field.type):
        allowed = (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and (
            kind.value_type in (pa.string(), pa.large_string(), pa.string_view(), pa.null())
        )
    else:
        allowed = False
    if allowed:
        try:
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise FailPartition(f"{where}: column {field.name} cannot be laid out anew: {error}") from error
    raise FailPartition(f"{where}: column {field.name} is {column.type}, declared is {field.type}; no silent cast")


def _pandera_schema(where: Slot, schema: pa.Schema) -> Any:
    import pandera.polars
    import polars

    kinds = {
        "text": polars.String,
        "int": polars.Int64,
        "float": polars.Float64,
        "bool": polars.Boolean,
        "texts": polars.List(polars.String),
        "time": polars.Datetime("us", "UTC"),
    }
    partition = dict(where.values)
    columns = {}
    for name in schema.names:
        kind = where.table.columns[name]
        checks = []
        if name in where.table.values:
            checks.append(pandera.polars.Check.isin(list(where.table.values[name]), name="allowed values"))
        if name in partition:
            checks.append(pandera.polars.Check.equal_to(partition[name], name="the partition"))
        columns[name] = pandera.polars.Column(kinds[kind.rstrip("?")], checks=checks, nullable=kind.endswith("?"))
    return pandera.polars.DataFrameSchema(columns, strict=True, unique=list(where.table.key))


def _explain(where: Slot, rows: pa.Table, error: Any) -> str:
    """The first failures on one line: column, value, rule and key. Values are third-party text: cut and escaped."""
    failures = error.failure_cases.to_dicts()
    faults = []
    for failure in failures[:_SHOWN]:
        index = failure["index"]
        key = [rows.column(name)[index].as_py() for name in where.table.key] if index is not None else []
        shown = f"{key!r:.120}"
        if failure["column"] is None:
            faults.append(f"key {shown} is not unique")
        else:
            faults.append(f"{failure['column']} = {failure['failure_case']!r:.80} in {shown} ({failure['check']})")
    more = f" and {len(failures) - _SHOWN} more" if len(failures) > _SHOWN else ""
    return ascii("; ".join(faults))[1:-1] + more
