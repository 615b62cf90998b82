"""Reading published rows: by the Delta log, in the declared schema, with a damaged file named.

Missing tables and days are empty tables of the declared schema. Only the columns asked for are read; filters go down
to the row groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort, FailPartition, PlatformError
from trajectory_platform.lake.snapshots import File
from trajectory_platform.lake.storage import Storage, first_line
from trajectory_platform.lake.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds


def schema_of(table: Table, columns: Sequence[str] | None) -> pa.Schema:
    """The declared schema, or the declared fields of some columns in the order asked for."""
    import pyarrow as pa

    schema = table.schema()
    if columns is None:
        return schema
    if unknown := [name for name in columns if name not in table.columns]:
        raise Abort(f"table {table.name} has no column {', '.join(map(repr, unknown))[:200]}")
    return pa.schema([schema.field(name) for name in columns])


def dataset(storage: Storage, table: Table, files: Iterable[File]) -> ds.Dataset:
    """The rows of some data files as one lazy Arrow dataset in the declared schema, partition columns included."""
    import pyarrow.dataset as ds

    files_below = storage.filesystem(table.name)
    options = ds.ParquetFragmentScanOptions(
        page_checksum_verification=True, use_buffered_stream=not storage.remote, **storage.parquet_options()
    )
    parquet = ds.ParquetFileFormat(default_fragment_scan_options=options)
    fragments = []
    for file in files:
        guarantee = None
        for column, value in file.values:
            equal = ds.field(column) == value
            guarantee = equal if guarantee is None else guarantee & equal
        # `file_size` would spare a request in an object store, but a cut object could then pass for a whole one (tried)
        fragments.append(parquet.make_fragment(file.path, filesystem=files_below, partition_expression=guarantee))
    return ds.FileSystemDataset(fragments, table.schema(), parquet, files_below)


def read_rows(
    storage: Storage,
    table: Table,
    files: Sequence[File],
    columns: Sequence[str] | None,
    condition: Any,
    *,
    ordered: bool = True,
) -> pa.Table:
    """Rows of the files, sorted by partition and key. Raises FailPartition naming a damaged file."""
    import pyarrow as pa

    schema = schema_of(table, columns)
    order = list(dict.fromkeys((*table.partition, *table.key))) if ordered else []
    needed = list(dict.fromkeys((*schema.names, *order)))
    try:
        rows = dataset(storage, table, files).to_table(columns=needed, filter=condition)
    except (OSError, pa.ArrowException) as error:
        raise damaged(storage, table, files) or storage.error(error, f"table {table.name}") from error
    rows = rows.take(_ordered(rows, order)) if rows.num_rows and order else rows
    try:
        return rows.select(schema.names).cast(schema)
    except ValueError as error:  # a column that came later and may not be null
        raise FailPartition(
            f"table {table.name}: rows of an older version lack a column ({error}); run their days again"
        ) from error


def ordered_rows(table: Table, rows: pa.Table) -> pa.Table:
    """Rows of several slots by partition and key."""
    order = list(dict.fromkeys((*table.partition, *table.key)))
    return rows.take(_ordered(rows, order)) if rows.num_rows else rows


def sorted_rows(table: Table, rows: pa.Table) -> pa.Table:
    """Rows of one slot in key order (UTF-8 bytes, nulls last)."""
    return rows.take(_ordered(rows, list(table.key))) if rows.num_rows else rows


def one_table(table: Table, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Batches in the declared schema as one table, also when there are none."""
    import pyarrow as pa

    return pa.Table.from_batches(list(batches), schema=table.schema())


def _ordered(rows: pa.Table, columns: list[str]) -> Any:
    import pyarrow.compute as pc

    return pc.sort_indices(rows, [(name, "ascending", "at_end") for name in columns])


def read_batches(
    storage: Storage, table: Table, files: Sequence[File], columns: Sequence[str] | None, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Rows of one day in key order with no more than a row group in memory.

    The sorted files of a big-text day are read in the order of their first key, and must not overlap.

    Raises:
        FailPartition: a file is damaged or the files overlap.
    """
    import pyarrow as pa

    schema = schema_of(table, columns)
    if not table.big_text:
        yield from read_rows(storage, table, files, columns, None).to_batches(max_chunksize=batch_rows)
        return
    key = table.key[0]
    physical = [name for name in dict.fromkeys((*schema.names, key)) if name not in table.partition]
    last: bytes | None = None
    for file in _by_first_key(storage, table, files, key):
        for batch in _file_batches(storage, table, file, physical, batch_rows):
            if not batch.num_rows:
                continue
            first = batch.column(key)[0].as_py().encode()
            if last is not None and first <= last:
                raise FailPartition(
                    f"{storage.shown(_path(table, file))} overlaps another file of its day; publish the day anew"
                )
            last = batch.column(key)[-1].as_py().encode()
            for column, value in file.values:
                constant = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
                batch = batch.append_column(column, constant)
            yield batch.select(schema.names).cast(schema)


def _by_first_key(storage: Storage, table: Table, files: Sequence[File], key: str) -> list[File]:
    if len(files) <= 1:
        return list(files)
    firsts = {}
    for file in files:
        batch = next(_file_batches(storage, table, file, [key], 1), None)
        firsts[file] = b"" if batch is None else batch.column(key)[0].as_py().encode()
    return sorted(files, key=lambda file: firsts[file])


def _file_batches(
    storage: Storage, table: Table, file: File, columns: list[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = _path(table, file)
    try:
        with pq.ParquetFile(
            storage.source(path), page_checksum_verification=True, **storage.parquet_options()
        ) as parquet:
            yield from parquet.iter_batches(batch_size=batch_rows, columns=columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise file_error(storage, path, error) from error


def file_error(storage: Storage, path: str, error: BaseException) -> PlatformError:
    """A data file that could not be read: damaged, or out of reach for now."""
    found = storage.error(error, f"data file {storage.shown(path)}")
    if not isinstance(found, FailPartition):
        return found
    return FailPartition(f"data file {storage.shown(path)} is damaged: {first_line(error)}")


def damaged(storage: Storage, table: Table, files: Iterable[File]) -> FailPartition | None:
    """The error that names the first unreadable file, or None when all can be read whole."""
    for file in files:
        try:
            for _ in _file_batches(storage, table, file, _physical(table), 256):
                pass
        except FailPartition as error:
            return error
    return None


def missing(storage: Storage, table: Table, files: dict[str, int]) -> list[str]:
    """Which of these files are not there with their recorded size (a cheap check, contents are not read)."""
    present = storage.sizes(table.name, files)
    return [name for name, size in files.items() if present.get(name) != size]


def _physical(table: Table) -> list[str]:
    return [name for name in table.columns if name not in table.partition]


def _path(table: Table, file: File) -> str:
    return f"{table.name}/{file.path}"
