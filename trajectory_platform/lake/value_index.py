"""Where a value stands in the data files: a small index beside each file, so that a look for one trace reads no day.

``{lake_uri}/_index/{table}/{data file}.{column}.index`` holds 64 bit integers, little endian: the hashes of the
column's values in ascending order, the row of each in the file, and their number. Data files never change and their
names are unique, so an index is right or not there. It is written after a publish, or by the first look that misses it,
and ``vacuum`` removes what lost its file. It holds no text. Reads go through it by hash and are then tested by value.

An index in an object store is fetched whole once (16 bytes a row) and kept under the same name in the lake's workspace:
a search in it jumps from place to place, and each jump would be a request.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import PlatformError
from trajectory_platform.lake.arrays import empty_table, row_array, text_array
from trajectory_platform.lake.reading import file_error
from trajectory_platform.lake.snapshots import File
from trajectory_platform.lake.staging import placed_name
from trajectory_platform.lake.storage import LocalStorage, Storage
from trajectory_platform.lake.tables import (
    AXIS_A_CORPUS,
    CHECKPOINT_TRACES,
    GENERATED_TRACES,
    JUDGED_TRACES,
    LEAK_GUARDED_SPLITS,
    RAW_TRACES,
    ROLLOUTS,
    TRAJECTORIES,
    Table,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

FOLDER = "_index"
INDEXED: dict[str, tuple[str, ...]] = {
    RAW_TRACES.name: ("trace_id", "miner_hotkey"),
    TRAJECTORIES.name: ("trace_id", "content_hash"),
    JUDGED_TRACES.name: ("trace_id",),
    AXIS_A_CORPUS.name: ("trace_id", "content_hash"),
    GENERATED_TRACES.name: ("trace_id", "content_hash"),
    ROLLOUTS.name: ("trace_id",),
    LEAK_GUARDED_SPLITS.name: ("trace_id",),
    CHECKPOINT_TRACES.name: ("trace_id",),
}
"""Table -> columns that are asked for across all days; other questions name the day or are small."""


def write(storage: Storage, table: Table, files: Iterable[str], staged: Mapping[str, Path] | None = None) -> None:
    """Index data files (paths below the table folder) that have none yet.

    Args:
        staged: name of a data file -> a local copy, where the publish still has one.
    """
    for file in files:
        wanted = [
            column for column in INDEXED.get(table.name, ()) if not _place(storage, table, file, column).is_file()
        ]
        if wanted:
            _build(storage, table, file, wanted, (staged or {}).get(placed_name(file)))


def find(storage: Storage, table: Table, files: Sequence[File], column: str, values: Iterable[str]) -> dict[File, Any]:
    """File -> rows (ascending) that may have one of the values of an indexed column; files without any are left out.

    A file without an index is indexed now.

    Raises:
        FailPartition: a data file that is not indexed yet is damaged.
    """
    return find_hashes(storage, table, files, column, _hashes(values))


def find_hashes(storage: Storage, table: Table, files: Sequence[File], column: str, wanted: Any) -> dict[File, Any]:
    """``find`` for values of which only the hashes are known (``hashes_at``)."""
    import numpy as np

    wanted = np.unique(wanted)
    found: dict[File, Any] = {}
    for file in files:
        hashes, places = _loaded(storage, table, file.path, column)
        if not len(hashes):
            continue
        first = np.searchsorted(hashes, wanted, "left")
        there = hashes[np.minimum(first, len(hashes) - 1)] == wanted
        if there.any():  # few of many values: only these are searched a second time
            first = first[there]
            counts = np.searchsorted(hashes, wanted[there], "right") - first
            steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            found[file] = np.unique(places[np.repeat(first, counts) + steps])
    return found


def hashes_at(storage: Storage, table: Table, found: dict[File, Any], column: str) -> np.ndarray[Any, Any]:
    """Hashes of another indexed column in the rows that ``find`` found; nulls have none. No data file is read."""
    import numpy as np

    parts: list[np.ndarray[Any, Any]] = [np.zeros(0, np.uint64)]
    for file, rows in found.items():
        hashes, places = _loaded(storage, table, file.path, column)
        parts.append(hashes[np.isin(places, rows)])
    return np.unique(np.concatenate(parts))


def read(
    storage: Storage,
    table: Table,
    found: dict[File, Any],
    columns: Sequence[str],
    tested: tuple[str, Sequence[str]] | None,
) -> pa.Table:
    """Rows of the found files, in any order; only their row groups are read.

    Args:
        tested: column and values that a row must have, as a hash proves nothing; None believes the hashes.

    Raises:
        FailPartition: a data file is damaged; the message names it.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    named = text_array(tested[1]) if tested is not None else None
    schema = pa.schema([table.schema().field(name) for name in columns])
    stored = [name for name in columns if name not in table.partition]
    # values that repeat are not written out for rows that are dropped at once; indexed ones hardly repeat
    repeated = [
        name for name in stored if schema.field(name).type == pa.string() and name not in INDEXED.get(table.name, ())
    ]
    parts = []
    for file, rows in found.items():
        path = f"{table.name}/{file.path}"
        try:
            with pq.ParquetFile(
                storage.source(path),
                page_checksum_verification=True,
                read_dictionary=repeated,
                **storage.parquet_options(),
            ) as parquet:
                counts = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
                starts = np.concatenate([[0], np.cumsum(counts)])
                groups = np.unique(np.searchsorted(starts, rows.astype(np.int64), "right") - 1)
                places = np.concatenate([np.arange(starts[group], starts[group + 1]) for group in groups])
                part = parquet.read_row_groups(groups.tolist(), columns=stored, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise file_error(storage, path, error) from error
        part = part.take(row_array(np.searchsorted(places, rows.astype(np.int64))))
        if tested is not None:
            part = part.filter(pc.is_in(part.column(tested[0]), value_set=named))
        for name, value in file.values:
            if name in columns:
                part = part.append_column(name, text_array([value] * part.num_rows))
        parts.append(part.select(list(columns)).cast(schema))
    return pa.concat_tables(parts) if parts else empty_table(schema)


def remove_stale(storage: Storage, table: Table) -> None:
    """Remove the indexes of data files that are gone, and what a killed writer left."""
    files = storage.walk(table.name)
    for place in (storage, LocalStorage(storage.workspace)) if storage.remote else (storage,):
        for name in place.walk(f"{FOLDER}/{table.name}"):
            file, _, kind = name.rpartition(".")
            if kind != "index" or file.rpartition(".")[0] not in files:
                place.delete(f"{FOLDER}/{table.name}/{name}")


def _loaded(
    storage: Storage, table: Table, file: str, column: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    import numpy as np

    path = _place(storage, table, file, column)
    held: np.ndarray[Any, Any] = np.zeros(0, "<u8")
    with suppress(OSError, ValueError):  # absent or empty: made anew
        held = np.memmap(path, "<u8", "r")
    if not _is_whole(held) and storage.remote:
        held = _fetched(storage, table, file, column)
    if not _is_whole(held):  # absent, or cut off by a power loss
        held = _build(storage, table, file, [column])[column]
    count = held.size // 2
    return held[:count], held[count : 2 * count]


def _is_whole(held: np.ndarray[Any, Any]) -> bool:
    return held.size % 2 == 1 and int(held[-1]) == held.size // 2


def _fetched(storage: Storage, table: Table, file: str, column: str) -> np.ndarray[Any, Any]:
    """The index as it lies in the object store, kept in the workspace; nothing where there is none."""
    import numpy as np

    found = storage.read(_name(table, file, column))
    data = found.data if found and len(found.data) % 8 == 0 else b""
    held: np.ndarray[Any, Any] = np.frombuffer(data, "<u8")
    if _is_whole(held):
        _keep(_place(storage, table, file, column), data)
    return held


def _build(
    storage: Storage, table: Table, file: str, columns: list[str], copy: Path | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """The indexes of one file, each written whole or not at all; a lake that cannot be written is searched without."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = f"{table.name}/{file}"
    source: Any = copy if copy is not None and copy.is_file() else None
    try:
        if source is None and storage.remote and not table.big_text:
            whole = storage.read(path)  # one request instead of one for every row group
            source = pa.BufferReader(whole.data) if whole else None
        with pq.ParquetFile(
            source or storage.source(path), page_checksum_verification=True, **storage.parquet_options()
        ) as parquet:
            read = parquet.read(columns=columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise file_error(storage, path, error) from error
    built = {}
    for column in columns:
        built[column] = _index(read.column(column).to_pylist())
        data = built[column].tobytes()
        _keep(_place(storage, table, file, column), data)
        if storage.remote:
            with suppress(PlatformError):  # whoever may only read searches with what is kept here
                storage.write(_name(table, file, column), data)
    return built


def _index(values: list[str | None]) -> np.ndarray[Any, Any]:
    import numpy as np

    rows = np.array([place for place, value in enumerate(values) if value is not None], np.uint64)
    hashes = _hashes(value for value in values if value is not None)
    order = np.argsort(hashes, kind="stable")
    parts = [hashes[order], rows[order], np.array([len(rows)], np.uint64)]
    built: np.ndarray[Any, Any] = np.concatenate(parts).astype("<u8")
    return built


def _keep(target: Path, data: bytes) -> None:
    temporary = target.with_name(f".{uuid.uuid4().hex}.tmp")
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as stream:
                stream.write(data)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def _hashes(values: Iterable[str]) -> np.ndarray[Any, Any]:
    import numpy as np

    joined = b"".join(hashlib.blake2b(value.encode(), digest_size=8).digest() for value in values)
    hashes: np.ndarray[Any, Any] = np.frombuffer(joined, "<u8").astype(np.uint64)
    return hashes


def _place(storage: Storage, table: Table, file: str, column: str) -> Path:
    return storage.workspace / _name(table, file, column)


def _name(table: Table, file: str, column: str) -> str:
    return f"{FOLDER}/{table.name}/{file}.{column}.index"
