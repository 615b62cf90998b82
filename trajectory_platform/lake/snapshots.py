"""The Delta log: which data files a table consists of now or consisted of at a version, and the two ways to replace
a slot in one commit.

Readers get files from here only, never by listing folders, so staged, torn and superseded files are invisible.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.manifests import Slot, fsync_path
from trajectory_platform.lake.staging import Staged, StagedFile, place
from trajectory_platform.lake.tables import Table

if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa

LOG_RETENTION = "interval 3650 days"
"""Old versions must stay readable as long as a checkpoint names them; a log entry is about 1 KB."""

FILE_RETENTION_DAYS = 7
"""How long a replaced file stays for readers that still hold the old version."""

COMMIT_TRIES = 5

SMALL_GROUP_ROWS = 4096
"""Rows of a row group in a small table. Its rows are sorted by the key, so a look for one trace reads one group of a
day, not the day; below this size the groups cost more to list than they save."""

_FILE_PATH = re.compile(r"([a-z_]+=[A-Za-z0-9_-]+/)+[A-Za-z0-9_][A-Za-z0-9._-]*\.parquet")


class File(NamedTuple):
    """One active data file: path below the table folder, bytes, partition values."""

    path: str
    size: int
    values: tuple[tuple[str, str], ...]


class Snapshot(NamedTuple):
    """A table at one version; ``delta`` is the open deltalake table."""

    version: int
    files: tuple[File, ...]
    delta: Any

    def of(self, where: Slot) -> dict[str, int]:
        """Files of one slot, path -> bytes."""
        return {file.path: file.size for file in self.files if file.values == where.values}


@contextmanager
def plain_errors(what: str) -> Iterator[None]:
    """One boundary for the Rust and Arrow libraries: their errors leave as FailPartition with the table in front."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise FailPartition(f"{what}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text, at most 300 characters."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]


def open_snapshot(root: Path, table: Table, version: int | None = None) -> Snapshot | None:
    """The table now, or at a version; None when it was never created.

    Raises:
        FailPartition: the log is damaged, names a file outside the table folder, or needs features unknown here.
    """
    folder = root / table.name
    if not (folder / "_delta_log").is_dir():
        return None
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    with plain_errors(f"table {table.name}: the log in {folder / '_delta_log'} cannot be read"):
        try:
            delta = DeltaTable(str(folder), version=version)
        except TableNotFoundError:
            return None  # a first writer was killed before its first log entry
        if delta.protocol().min_reader_version > 1:
            raise FailPartition(f"table {table.name} uses Delta features this platform never writes (deletion vectors)")
        return Snapshot(delta.version(), _active_files(table, delta), delta)


def _active_files(table: Table, delta: deltalake.DeltaTable) -> tuple[File, ...]:
    import pyarrow as pa

    # pyarrow.table would import pandas, to ask whether this is a data frame
    actions = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
    columns = [actions.column(f"partition.{name}").to_pylist() for name in table.partition]
    files = []
    for path, size, *values in zip(
        actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), *columns, strict=True
    ):
        if not _FILE_PATH.fullmatch(path):
            raise FailPartition(f"table {table.name}: the log names a file outside the table folder: {path!r:.120}")
        files.append(File(path, size, tuple(zip(table.partition, values, strict=True))))
    return tuple(sorted(files, key=lambda file: (file.values, file.path)))


def create_table(root: Path, table: Table) -> Snapshot:
    """The table now, created with its declared schema and retention where it is missing. The caller holds the lease."""
    found = open_snapshot(root, table)
    if found is not None:
        return found
    from deltalake import DeltaTable

    with plain_errors(f"table {table.name} cannot be created"):
        DeltaTable.create(
            str(root / table.name),
            schema=table.schema(),
            partition_by=list(table.partition),
            mode="ignore",
            name=table.name,
            description=table.doc,
            configuration={
                "delta.logRetentionDuration": LOG_RETENTION,
                "delta.deletedFileRetentionDuration": f"interval {FILE_RETENTION_DAYS} days",
                **_log_statistics(table),
            },
        )
    created = open_snapshot(root, table)
    if created is None:
        raise FailPartition(f"table {table.name} vanished while it was created")
    return created


def _log_statistics(table: Table) -> dict[str, str]:
    """Only the first key gets min and max in the log: texts would be copied into it and outlive a retraction."""
    if table.key[0] in table.partition:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    return {"delta.dataSkippingStatsColumns": table.key[0]}


def replace_rows(root: Path, where: Slot, rows: pa.Table) -> Snapshot:
    """Replace a slot of a small table in one commit; returns the snapshot after it. The caller holds the lease."""
    from deltalake import WriterProperties, write_deltalake

    before = create_table(root, where.table)
    if not rows.num_rows and not before.of(where):
        return before  # an empty day of a table that has no rows there: nothing to commit
    with plain_errors(f"{where} was not published"):
        write_deltalake(
            before.delta,
            rows,
            mode="overwrite",
            predicate=where.predicate,
            writer_properties=WriterProperties(compression="ZSTD", max_row_group_size=SMALL_GROUP_ROWS),
        )
    return _reopened(root, where)


def replace_files(root: Path, where: Slot, staged: Staged) -> Snapshot:
    """Replace a slot by staged files in one commit; returns the snapshot after it. The caller holds the lease.

    A commit that meets a writer outside the lease is refused by Delta (no automatic rebase, which would let both
    win) and tried again from a fresh snapshot.
    """
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError

    create_table(root, where.table)
    with plain_errors(f"{where} was not published"):
        actions = [_placed(root, where, file) for file in staged.files]
        for _ in range(COMMIT_TRIES):
            before = create_table(root, where.table)
            if not actions and not before.of(where):
                return before
            try:
                before.delta.create_write_transaction(
                    actions,
                    mode="overwrite",
                    schema=before.delta.schema(),
                    partition_by=list(where.table.partition),
                    partition_filters=[(column, "=", value) for column, value in where.values],
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
            except CommitFailedError:
                continue
            return _reopened(root, where)
    for action in actions:
        (root / where.table.name / action.path).unlink(missing_ok=True)
    raise FailPartition(f"{where} was not published: other writers took every one of {COMMIT_TRIES} commits")


def _placed(root: Path, where: Slot, file: StagedFile) -> deltalake.transaction.AddAction:
    """Move a staged file into the table folder; returns the log entry that will make it visible."""
    from deltalake.transaction import AddAction

    folder = root / where.table.name
    relative = place(file.path, folder, where)
    stat = (folder / relative).stat()
    (key,) = where.table.key
    statistics = {
        "numRecords": file.rows,
        "minValues": {key: file.first_key},
        "maxValues": {key: file.last_key},
        "nullCount": {key: 0},
    }
    modified = stat.st_mtime_ns // 1_000_000
    return AddAction(relative, stat.st_size, dict(where.values), modified, True, json.dumps(statistics))


def _reopened(root: Path, where: Slot) -> Snapshot:
    """The snapshot after a commit, with its log entry and files made durable before a manifest may name them."""
    after = open_snapshot(root, where.table)
    if after is None:
        raise FailPartition(f"table {where.table.name} vanished after a commit")
    folder = root / where.table.name
    names = [*after.of(where), f"_delta_log/{after.version:020d}.json"]
    for path in (folder / name for name in names):
        if path.exists():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
    fsync_path(folder / "_delta_log")
    if (folder / where.folder).is_dir():
        fsync_path(folder / where.folder)
    return after
