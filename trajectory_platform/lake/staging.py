"""Staged writing of a day with big text: batch by batch to sorted Parquet files beside the tables, then moved in.

The files grow in ``_staging/{table}/{unique}/`` of the lake's workspace (its own folder where it is local), where no
reader looks. A lock held by the writing process marks the folder as alive; after kill -9 the kernel releases it and
``vacuum`` removes the folder. Into an object store the files are uploaded when they are whole.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trajectory_platform.lake.contracts import check_order, conform, light_columns
from trajectory_platform.lake.digests import ContentDigest
from trajectory_platform.lake.lease import table_lease, try_lock
from trajectory_platform.lake.manifests import Slot
from trajectory_platform.lake.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

GROUP_ROWS = 256
GROUP_BYTES = 64 << 20
"""A row group is closed at 256 rows, or earlier when its text passes this size: both bound memory."""

FILE_BYTES = 128 << 20
"""A file is closed when the text in it passes this size: Arrow's scanner (``sql``) reads whole files ahead."""


class StagedFile(NamedTuple):
    """One written file: its rows and their first and last key."""

    path: Path
    rows: int
    first_key: str
    last_key: str


class Staged(NamedTuple):
    """A checked day: its files in key order (none for a small table) and ``light``, the day without its big text."""

    files: tuple[StagedFile, ...]
    rows: int
    content_digest: str
    light: pa.Table


@contextmanager
def staging_folder(storage: Storage, table_name: str) -> Iterator[Path]:
    """A folder of one's own that is removed at the end, and by ``vacuum`` when the process dies before."""
    root = storage.workspace
    parent = root / "_staging" / table_name
    parent.mkdir(parents=True, exist_ok=True)
    name = uuid.uuid4().hex
    lock_path = parent / f"{name}.lock"
    with lock_path.open("a+b") as lock:
        with table_lease(root, table_name):  # vacuum holds the lease too: it never sees a folder without its lock
            try_lock(lock)
            (parent / name).mkdir()
        try:
            yield parent / name
        finally:
            shutil.rmtree(parent / name, ignore_errors=True)
            lock_path.unlink(missing_ok=True)


def remove_dead(storage: Storage, table_name: str, *, dry_run: bool) -> list[str]:
    """Remove (or only name) the staging folders of dead processes of this machine; paths below the workspace.

    The caller holds the table's lease. That of an object store is not the one that guards the workspace, so this one
    is taken here.
    """
    parent = storage.workspace / "_staging" / table_name
    if not parent.is_dir():
        return []
    with table_lease(storage.workspace, table_name) if storage.remote else nullcontext():
        return _remove_dead(storage.workspace, parent, dry_run)


def _remove_dead(root: Path, parent: Path, dry_run: bool) -> list[str]:
    removed: list[str] = []
    for lock_path in sorted(parent.glob("*.lock")):
        with lock_path.open("a+b") as lock:
            if not try_lock(lock):
                continue
            folder = lock_path.with_suffix("")
            removed += [str(path.relative_to(root)) for path in sorted(folder.glob("*"))]
            if not dry_run:
                shutil.rmtree(folder, ignore_errors=True)
                lock_path.unlink(missing_ok=True)
    return removed


def stage(where: Slot, batches: Iterable[pa.RecordBatch], folder: Path) -> Staged:
    """Check the batches and write them to Parquet (zstd, row groups of at most 256 rows, page checksums).

    Raises:
        FailPartition: a batch breaks the contract or is not sorted by the key.
        OSError: the disk is full or a file-size limit is reached.
    """
    import pyarrow as pa

    light_names = light_columns(where.table)
    light_schema = pa.schema([where.table.schema().field(name) for name in light_names])
    digest = ContentDigest(where.table)
    light: list[pa.RecordBatch] = []
    last: str | None = None
    with _Files(where, folder, light_names) as files:
        for raw in batches:
            batch = conform(where, raw)
            last = check_order(where, batch, last)
            digest.update(batch)
            files.add(batch)
            light.append(_detached(batch.select(light_names), light_schema))
    rows = pa.Table.from_batches(light, schema=light_schema)
    return Staged(tuple(files.written), digest.rows, digest.hexdigest(), rows)


def place(storage: Storage, staged: Path, where: Slot, name: str) -> str:
    """Move or upload a staged file into its partition folder under a name of its own; its path below the table folder.

    It is still invisible: readers know files by the Delta log only.
    """
    relative = f"{where.folder}/{name}"
    storage.place(staged, f"{where.table.name}/{relative}")
    return relative


def name_of_try(file: StagedFile, number: int) -> str:
    """The name of a staged file in its table; of a later try another one, as every try is uploaded anew."""
    return f"try{number}-{file.path.name}" if number else file.path.name


def placed_name(path: str) -> str:
    """The name that a data file had when it was staged."""
    return re.sub(r"^try\d+-", "", path.rpartition("/")[2])


def _detached(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A copy that keeps no buffer of the batch it was taken from (those may be shared with the big text)."""
    import pyarrow as pa

    return pa.ipc.read_record_batch(batch.serialize(), batch.schema).cast(schema)


class _Files:
    """Collects rows of any batches into row groups and files of bounded size; a file is opened with its first rows."""

    def __init__(self, where: Slot, folder: Path, light_names: list[str]) -> None:
        partition = set(where.table.partition)
        self._names = [name for name in where.table.columns if name not in partition]
        self._light = [name for name in light_names if name not in partition]
        (self._key,) = where.table.key
        self._folder = folder
        self._group: list[pa.RecordBatch] = []
        self._group_rows = self._group_bytes = self._file_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self.written: list[StagedFile] = []

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
            self._close()
        elif self._writer is not None:
            with suppress(OSError):  # the file is thrown away; the error that ended the staging is the one to see
                self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        step = max(1, GROUP_BYTES * batch.num_rows // max(1, batch.nbytes))
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, min(GROUP_ROWS - self._group_rows, step))
            self._group.append(piece)
            self._group_rows += piece.num_rows
            self._group_bytes += piece.nbytes
            start += piece.num_rows
            if self._group_rows >= GROUP_ROWS or self._group_bytes >= GROUP_BYTES:
                self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._group_rows:
            return
        group = pa.Table.from_batches(self._group)
        writer = self._writer or self._open(group.select(self._names).schema)
        writer.write_table(group.select(self._names), row_group_size=GROUP_ROWS)
        keys = group.column(self._key)
        now = self.written[-1]
        first = keys[0].as_py() if not now.rows else now.first_key
        self.written[-1] = StagedFile(now.path, now.rows + group.num_rows, first, keys[-1].as_py())
        self._file_bytes += self._group_bytes
        self._group, self._group_rows, self._group_bytes = [], 0, 0
        if self._file_bytes >= FILE_BYTES:
            self._close()

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        import pyarrow.parquet as pq

        path = self._folder / f"part-{len(self.written):05d}-{uuid.uuid4().hex}.zstd.parquet"
        # Dictionaries and statistics only for the light columns: big text would be stored twice.
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            use_dictionary=self._light,
            write_statistics=self._light,
            write_page_checksum=True,
        )
        self.written.append(StagedFile(path, 0, "", ""))
        return self._writer

    def _close(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer, self._file_bytes = None, 0
        with self.written[-1].path.open("rb") as stream:
            os.fsync(stream.fileno())
