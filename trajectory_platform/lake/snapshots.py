"""The Delta log: which data files a table consists of now or consisted of at a version, and the two ways to replace
a slot in one commit.

Readers get files from here only, never by listing folders, so staged, torn and superseded files are invisible.

A commit is one log entry of the next number that is put where none is yet, so of two writers one is refused. The
refused one looks again: where the slot is no longer what it had seen under its lease, the publish ends. Log entries are
never rebased by Delta, which would let both win (tried).
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.manifests import Slot
from trajectory_platform.lake.staging import Staged, StagedFile, name_of_try, place
from trajectory_platform.lake.storage import Storage
from trajectory_platform.lake.tables import Table

if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa

LOG_RETENTION = "interval 3650 days"
"""Old versions must stay readable as long as a checkpoint names them; a log entry is about 1 KB."""

FILE_RETENTION_DAYS = 7
"""How long a replaced file stays for readers that still hold the old version."""

COMMIT_TRIES = 5
MARK = "publish"  # in the commit info of the log

REMOTE_CHECKPOINTS = "10"
"""Commits between two summaries of the log of a table in an object store, where every log entry is a request."""

SMALL_GROUP_ROWS = 4096
"""Rows of a row group in a small table. Its rows are sorted by the key, so a look for one trace reads one group of a
day, not the day; below this size the groups cost more to list than they save."""

_WHAT_TO_DO = " (bring the table back with 'lake restore', or set its folder aside and run its days again)"

_CUT_TRIES = 4
_CUT = ("error reading a body", "end of file before message length")
"""What Delta says of an answer that broke off: its object store repeats requests that fail, not bodies cut short."""

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
def plain_errors(storage: Storage, what: str, cure: str = "") -> Iterator[None]:
    """One boundary for the Rust and Arrow libraries: their errors leave as FailPartition with the table in front.

    Those of an object store's network and permissions leave as RetryLater and Abort; ``cure`` is for damage only.
    """
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        found = storage.error(error, what)
        raise (FailPartition(f"{found}{cure}") if isinstance(found, FailPartition) else found) from error


def open_snapshot(storage: Storage, table: Table, version: int | None = None) -> Snapshot | None:
    """The table now, or at a version; None when it was never created.

    Raises:
        FailPartition: the log is damaged, names a file outside the table folder, or needs features unknown here.
    """
    log = f"{table.name}/_delta_log"
    if not storage.remote and not storage.exists(log):
        return None
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    uri, options = storage.delta(table.name)
    with plain_errors(storage, f"table {table.name}: the log in {storage.shown(log)} cannot be read", _WHAT_TO_DO):
        try:
            delta = _read_whole(lambda: DeltaTable(uri, version=version, storage_options=options))
        except TableNotFoundError:
            return None  # a first writer was killed before its first log entry
        if delta.protocol().min_reader_version > 1:
            raise FailPartition(f"table {table.name} uses Delta features this platform never writes (deletion vectors)")
        return Snapshot(delta.version(), _active_files(table, delta), delta)


def _read_whole(read: Callable[[], Any]) -> Any:
    """What a reader of the log returns; read again where an answer was cut."""
    from deltalake.exceptions import DeltaError

    for left in reversed(range(_CUT_TRIES)):
        try:
            return read()
        except (DeltaError, OSError) as error:
            if not left or not any(words in str(error) for words in _CUT):
                raise
    raise AssertionError("unreachable: the last try returns or raises")


class OpenTables:
    """The tables of a lake for reading. Of those in an object store one is kept open and only told what is new in its
    log, which is one request instead of one for every entry."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._kept: dict[str, Any] = {}
        self._lock = threading.Lock()

    def now(self, table: Table) -> Snapshot | None:
        """As ``open_snapshot``. Its ``delta`` may move on with the next question: nothing may be committed with it."""
        if not self._storage.remote:
            return open_snapshot(self._storage, table)
        with self._lock:
            kept = self._kept.get(table.name)
            if kept is None:
                opened = open_snapshot(self._storage, table)
                if opened is not None:
                    self._kept[table.name] = opened.delta
                return opened
            return _caught_up(self._storage, table, kept)


def _caught_up(storage: Storage, table: Table, delta: deltalake.DeltaTable) -> Snapshot:
    log = storage.shown(f"{table.name}/_delta_log")
    with plain_errors(storage, f"table {table.name}: the log in {log} cannot be read", _WHAT_TO_DO):
        _read_whole(delta.update_incremental)
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


def create_table(storage: Storage, table: Table) -> Snapshot:
    """The table now, created with its declared schema and retention where it is missing. The caller holds the lease."""
    found = open_snapshot(storage, table)
    if found is not None:
        return found
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError

    uri, options = storage.delta(table.name)
    checkpoints = {"delta.checkpointInterval": REMOTE_CHECKPOINTS} if storage.remote else {}
    with plain_errors(storage, f"table {table.name} cannot be created"), suppress(CommitFailedError):  # a race
        DeltaTable.create(
            uri,
            schema=table.schema(),
            partition_by=list(table.partition),
            mode="ignore",
            name=table.name,
            description=table.doc,
            configuration={
                "delta.logRetentionDuration": LOG_RETENTION,
                "delta.deletedFileRetentionDuration": f"interval {FILE_RETENTION_DAYS} days",
                **_log_statistics(table),
                **checkpoints,
            },
            storage_options=options,
        )
    created = open_snapshot(storage, table)
    if created is None:
        raise FailPartition(f"table {table.name} vanished while it was created")
    return created


def _log_statistics(table: Table) -> dict[str, str]:
    """Only the first key gets min and max in the log: texts would be copied into it and outlive a retraction."""
    if table.key[0] in table.partition:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    return {"delta.dataSkippingStatsColumns": table.key[0]}


def replace_rows(
    storage: Storage,
    where: Slot,
    rows: pa.Table,
    expected: Mapping[str, int] | None = None,
    snapshot: Snapshot | None = None,
) -> Snapshot:
    """Replace a slot of a small table in one commit; returns the snapshot after it. The caller holds the lease.

    Args:
        expected: files of the slot as the caller saw them; None replaces whatever is there.
        snapshot: the table where the caller has just opened it; the first try follows its version.

    Raises:
        FailPartition: it cannot be written, or the slot is not as expected.
    """
    from deltalake import WriterProperties, write_deltalake

    def write(before: Snapshot, _: int, named: dict[str, Any]) -> bool:
        if not rows.num_rows and not before.of(where):
            return False  # an empty day of a table that has no rows there: nothing to commit
        write_deltalake(
            before.delta,
            rows,
            mode="overwrite",
            schema_mode="merge",  # a column that is new in this version of the platform comes in with the first day
            predicate=where.predicate,
            writer_properties=WriterProperties(compression="ZSTD", max_row_group_size=SMALL_GROUP_ROWS),
            **named,
        )
        return True

    return _replace(storage, where, (expected, snapshot), write)


def replace_files(
    storage: Storage,
    where: Slot,
    staged: Staged,
    expected: Mapping[str, int] | None = None,
    snapshot: Snapshot | None = None,
) -> Snapshot:
    """Replace a slot by staged files in one commit; otherwise as ``replace_rows``.

    In an object store they are uploaded after the version was read that the commit follows, and anew for every try: so
    a log entry that ``vacuum`` puts before it deletes files refuses every commit that would name one of them.
    """
    actions: list[Any] = []

    def write(before: Snapshot, number: int, named: dict[str, Any]) -> bool:
        if not staged.files and not before.of(where):
            return False
        if storage.remote or not actions:
            _remove(storage, where.table, actions)
            actions[:] = [_placed(storage, where, file, number) for file in staged.files]
        before.delta.create_write_transaction(
            actions,
            mode="overwrite",
            schema=before.delta.schema(),
            partition_by=list(where.table.partition),
            partition_filters=[(column, "=", value) for column, value in where.values],
            **named,
        )
        return True

    return _replace(storage, where, (expected, snapshot), write, refused=lambda: _remove(storage, where.table, actions))


def fence(storage: Storage, table: Table, snapshot: Snapshot) -> bool:
    """Put an entry without content right after this version of the log; False where another entry is there already.

    Whoever began a commit at this version or before is refused from now on.
    """
    from deltalake.exceptions import CommitFailedError

    mark = uuid.uuid4().hex
    with plain_errors(storage, f"the log of table {table.name} cannot be written"):
        try:
            snapshot.delta.create_write_transaction(
                [],
                mode="append",
                schema=snapshot.delta.schema(),
                partition_by=list(table.partition),
                **_commit_options(storage, mark),
            )
        except CommitFailedError as error:
            return _is_own(storage, table, snapshot.version + 1, mark, error)
    return True


def _replace(
    storage: Storage,
    where: Slot,
    seen: tuple[Mapping[str, int] | None, Snapshot | None],
    write: Callable[[Snapshot, int, dict[str, Any]], bool],
    refused: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Try ``write`` until it stands in the log; ``refused`` is called where it is known never to stand there."""
    from deltalake.exceptions import CommitFailedError

    expected, snapshot = seen
    with plain_errors(storage, f"{where} was not published"):
        for number in range(COMMIT_TRIES):
            before = snapshot if snapshot is not None and number == 0 else create_table(storage, where.table)
            if expected is not None and before.of(where) != expected:
                refused()
                raise FailPartition(f"{where} was published by another process meanwhile; run it again")
            mark = uuid.uuid4().hex
            try:
                if not write(before, number, _commit_options(storage, mark)):
                    return before
            except CommitFailedError as error:
                if not _is_own(storage, where.table, before.version + 1, mark, error):
                    continue
            return _after(storage, where, before)
    refused()
    raise FailPartition(f"{where} was not published: other writers took every one of {COMMIT_TRIES} commits")


def _commit_options(storage: Storage, mark: str) -> dict[str, Any]:
    """One try at the next version, never rebased, with a mark by which it is known again."""
    from deltalake import CommitProperties, PostCommitHookProperties

    options: dict[str, Any] = {
        "commit_properties": CommitProperties(max_commit_retries=0, custom_metadata={MARK: mark})
    }
    if storage.remote:  # entries are kept for ten years: listing those to remove is a request for nothing
        options["post_commithook_properties"] = PostCommitHookProperties(cleanup_expired_logs=False)
    return options


def _is_own(storage: Storage, table: Table, version: int, mark: str, error: BaseException) -> bool:
    """Is the entry that refused ours the very same? A put whose answer was lost is tried again by the client.

    Raises:
        BaseException: ``error``, where there is no entry: ours may still arrive, so its files must stay.
    """
    if not storage.remote:
        return False
    entry = storage.read(f"{table.name}/_delta_log/{version:020d}.json")
    if entry is None:
        raise error
    return mark.encode() in entry.data


def _remove(storage: Storage, table: Table, actions: list[Any]) -> None:
    for action in actions:
        storage.delete(f"{table.name}/{action.path}")


def _placed(storage: Storage, where: Slot, file: StagedFile, number: int) -> deltalake.transaction.AddAction:
    """Bring a staged file into the table folder; returns the log entry that will make it visible."""
    from deltalake.transaction import AddAction

    stat = file.path.stat()
    relative = place(storage, file.path, where, name_of_try(file, number))
    (key,) = where.table.key
    statistics = {
        "numRecords": file.rows,
        "minValues": {key: file.first_key},
        "maxValues": {key: file.last_key},
        "nullCount": {key: 0},
    }
    modified = stat.st_mtime_ns // 1_000_000
    return AddAction(relative, stat.st_size, dict(where.values), modified, True, json.dumps(statistics))


def _after(storage: Storage, where: Slot, before: Snapshot) -> Snapshot:
    """The snapshot after a commit, with its log entry and files made durable before a manifest may name them."""
    after = _caught_up(storage, where.table, before.delta) if storage.remote else _reopened(storage, where)
    storage.settle(where.table.name, after.of(where), f"_delta_log/{after.version:020d}.json")
    return after


def _reopened(storage: Storage, where: Slot) -> Snapshot:
    after = open_snapshot(storage, where.table)
    if after is None:
        raise FailPartition(f"table {where.table.name} vanished after a commit")
    return after
