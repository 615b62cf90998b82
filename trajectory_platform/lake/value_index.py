"""Where a value stands in the data files: a small index beside each file, so that a look for one trace reads no day.

``{lake_uri}/_index/{table}/{data file}.{column}.index`` holds 64 bit integers, little endian: the hashes of the
column's values in ascending order, the row of each in the file, and their number. Data files never change and their
names are unique, so an index is right or not there. It is written after a publish, or by the first look that misses it,
and ``vacuum`` removes what lost its file. It holds no text. Reads go through it by hash and are then tested by value.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.arrays import empty_table, row_array, text_array
from trajectory_platform.lake.snapshots import File, first_line
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
    RAW_TRACES.name: ("trace_id",),
    TRAJECTORIES.name: ("trace_id", "content_hash"),
    JUDGED_TRACES.name: ("trace_id",),
    AXIS_A_CORPUS.name: ("trace_id", "content_hash"),
    GENERATED_TRACES.name: ("trace_id", "content_hash"),
    ROLLOUTS.name: ("trace_id",),
    LEAK_GUARDED_SPLITS.name: ("trace_id",),
    CHECKPOINT_TRACES.name: ("trace_id",),
}
"""Table -> columns that are asked for across all days; other questions name the day or are small."""


def write(root: Path, table: Table, files: Iterable[str]) -> None:
    """Index data files (paths below the table folder) that have none yet."""
    for column in INDEXED.get(table.name, ()):
        for file in files:
            if not _place(root, table, file, column).is_file():
                _build(root, table, file, column)


def find(root: Path, table: Table, files: Sequence[File], column: str, values: Iterable[str]) -> dict[File, Any]:
    """File -> rows (ascending) that may have one of the values of an indexed column; files without any are left out.

    A file without an index is indexed now.

    Raises:
        FailPartition: a data file that is not indexed yet is damaged.
    """
    return find_hashes(root, table, files, column, _hashes(values))


def find_hashes(root: Path, table: Table, files: Sequence[File], column: str, wanted: Any) -> dict[File, Any]:
    """``find`` for values of which only the hashes are known (``hashes_at``)."""
    import numpy as np

    wanted = np.unique(wanted)
    found: dict[File, Any] = {}
    for file in files:
        hashes, places = _loaded(root, table, file.path, column)
        first, last = np.searchsorted(hashes, wanted, "left"), np.searchsorted(hashes, wanted, "right")
        counts = last - first
        if counts.any():
            steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            found[file] = np.unique(places[np.repeat(first, counts) + steps])
    return found


def hashes_at(root: Path, table: Table, found: dict[File, Any], column: str) -> np.ndarray[Any, Any]:
    """Hashes of another indexed column in the rows that ``find`` found; nulls have none. No data file is read."""
    import numpy as np

    parts: list[np.ndarray[Any, Any]] = [np.zeros(0, np.uint64)]
    for file, rows in found.items():
        hashes, places = _loaded(root, table, file.path, column)
        parts.append(hashes[np.isin(places, rows)])
    return np.unique(np.concatenate(parts))


def read(
    root: Path,
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
    parts = []
    for file, rows in found.items():
        path = root / table.name / file.path
        try:
            with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as parquet:
                counts = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
                starts = np.concatenate([[0], np.cumsum(counts)])
                groups = np.unique(np.searchsorted(starts, rows.astype(np.int64), "right") - 1)
                places = np.concatenate([np.arange(starts[group], starts[group + 1]) for group in groups])
                part = parquet.read_row_groups(groups.tolist(), columns=stored, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise FailPartition(f"data file {path} is damaged: {first_line(error)}") from error
        part = part.take(row_array(np.searchsorted(places, rows.astype(np.int64))))
        if tested is not None:
            part = part.filter(pc.is_in(part.column(tested[0]), value_set=named))
        for name, value in file.values:
            if name in columns:
                part = part.append_column(name, text_array([value] * part.num_rows))
        parts.append(part.select(list(columns)).cast(schema))
    return pa.concat_tables(parts) if parts else empty_table(schema)


def remove_stale(root: Path, table: Table) -> None:
    """Remove the indexes of data files that are gone, and what a killed writer left."""
    folder = root / FOLDER / table.name
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_dir():
            continue
        file = path.relative_to(folder).as_posix().removesuffix(".index").rpartition(".")[0]
        if path.suffix != ".index" or not (root / table.name / file).is_file():
            path.unlink()


def _loaded(root: Path, table: Table, file: str, column: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    import numpy as np

    path = _place(root, table, file, column)
    held: np.ndarray[Any, Any] = np.zeros(0, "<u8")
    with suppress(OSError, ValueError):  # absent or empty: made anew
        held = np.memmap(path, "<u8", "r")
    if held.size % 2 != 1 or int(held[-1]) != held.size // 2:  # absent, or cut off by a power loss
        held = _build(root, table, file, column)
    count = held.size // 2
    return held[:count], held[count : 2 * count]


def _build(root: Path, table: Table, file: str, column: str) -> np.ndarray[Any, Any]:
    """The index of one file, written whole or not at all; a lake that cannot be written is searched without."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = root / table.name / file
    try:
        with pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True) as parquet:
            values = parquet.read(columns=[column], use_threads=False).column(column).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise FailPartition(f"data file {source} is damaged: {first_line(error)}") from error
    rows = np.array([place for place, value in enumerate(values) if value is not None], np.uint64)
    hashes = _hashes(value for value in values if value is not None)
    order = np.argsort(hashes, kind="stable")
    built: np.ndarray[Any, Any] = np.concatenate([hashes[order], rows[order], np.array([len(rows)], np.uint64)]).astype(
        "<u8"
    )
    target = _place(root, table, file, column)
    temporary = target.with_name(f".{uuid.uuid4().hex}.tmp")
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as stream:
                stream.write(built.tobytes())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    return built


def _hashes(values: Iterable[str]) -> np.ndarray[Any, Any]:
    import numpy as np

    joined = b"".join(hashlib.blake2b(value.encode(), digest_size=8).digest() for value in values)
    hashes: np.ndarray[Any, Any] = np.frombuffer(joined, "<u8").astype(np.uint64)
    return hashes


def _place(root: Path, table: Table, file: str, column: str) -> Path:
    return root / FOLDER / table.name / f"{file}.{column}.index"
