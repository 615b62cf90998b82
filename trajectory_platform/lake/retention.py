"""Removing what nobody needs (``vacuum``) and what nobody may keep (``purge``).

A file is needed while it is active, while a version that names it is kept, or while it was replaced less than the
retention ago (a reader may still be in it). Kept versions are those of ``checkpoints`` manifests, of partition
manifests and of the caller. Everything else in a table folder goes: replaced files after the retention, files of
killed writers at once (all writers hold the table's lease, and so does this). In an object store a lease may expire
before its holder has ended, so there a log entry without content is put before such files are deleted: a writer that
comes back finds its version taken and uploads anew.

Retracted text is stronger than any keeping: files that hold a retracted trace are deleted, and the report says which
kept versions lost files by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import manifests, staging, value_index
from trajectory_platform.lake.manifests import Manifest, Slot, slot, table_of
from trajectory_platform.lake.snapshots import (
    COMMIT_TRIES,
    FILE_RETENTION_DAYS,
    Snapshot,
    fence,
    open_snapshot,
    plain_errors,
    replace_files,
    replace_rows,
)
from trajectory_platform.lake.storage import Storage
from trajectory_platform.lake.tables import CHECKPOINTS, TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.lake.publish import Lake, State

_LOG_LEFTOVER = re.compile(r"_commit_.*\.tmp|.*\.tmp|.*#\d+")


@dataclass
class VacuumReport:
    """What was removed, or would be (``dry_run``). Paths lie below the lake folder.

    Attributes:
        removed: deleted files. removed_bytes: their size.
        kept_versions: table -> versions whose files were kept.
        missing_versions: table -> versions that are named somewhere but are not in the log.
        broken_versions: table -> kept version -> files it lost to a retraction.
        unreadable: superseded files that could not be searched for retracted traces; look at them by hand.
    """

    dry_run: bool
    removed: list[str] = field(default_factory=list)
    removed_bytes: int = 0
    kept_versions: dict[str, list[int]] = field(default_factory=dict)
    missing_versions: dict[str, list[int]] = field(default_factory=dict)
    broken_versions: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


@dataclass
class PurgeReport:
    """What a retraction did: table -> day -> rows removed, and the vacuum that deleted the bytes."""

    rows: dict[str, dict[str, int]]
    vacuum: VacuumReport


def vacuum(
    lake: Lake,
    *,
    tables: Iterable[Table | str] | None = None,
    keep: Mapping[str, Iterable[int]] | None = None,
    partition_versions: bool = True,
    retention_days: int = FILE_RETENTION_DAYS,
    retracted: Collection[str] = (),
    dry_run: bool = False,
) -> VacuumReport:
    """Remove the files of all tables that nothing needs (see the module).

    Args:
        keep: table name -> further versions to keep.
        partition_versions: False keeps, of what partition manifests name, only their own (always active) files.
            After a rebuild of every day the old files are otherwise kept as long as one old manifest is left.
        retracted: trace ids whose superseded files are deleted whatever names them. Rows in *active* files are the
            business of ``purge``.

    Raises:
        FailPartition: a checkpoint manifest or a log cannot be read; nothing is removed on a guess.
    """
    report, storage = VacuumReport(dry_run), lake.storage
    named = named_versions(lake, partition_versions=partition_versions)
    for name, versions in (keep or {}).items():
        named.setdefault(table_of(name).name, set()).update(versions)
    for table in map(table_of, TABLES if tables is None else tables):
        if not storage.exists(table.name) and not (lake.workspace / "_staging" / table.name).is_dir():
            continue
        with plain_errors(storage, f"vacuum of {table.name}"), storage.lease(table.name):
            for path in staging.remove_dead(storage, table.name, dry_run=dry_run):
                report.removed.append(path)
            _vacuum_table(storage, table, named.get(table.name, set()), retention_days, set(retracted), report)
            if not dry_run:
                value_index.remove_stale(storage, table)  # no data: not in the report
    return report


def named_versions(lake: Lake, *, partition_versions: bool = True) -> dict[str, set[int]]:
    """Table -> versions that checkpoint manifests (and partition manifests) name. Raises FailPartition."""
    named: dict[str, set[int]] = {}
    for row in lake.read(CHECKPOINTS, columns=["checkpoint_id", "manifest"]).to_pylist():
        try:
            _collect(json.loads(row["manifest"]).get("inputs"), named)
        except (ValueError, AttributeError) as error:
            raise FailPartition(f"manifest of checkpoint {row['checkpoint_id']!r:.80} cannot be read") from error
    for table in TABLES.values() if partition_versions else ():
        for manifest in lake.manifests(table):
            named.setdefault(table.name, set()).add(manifest.table_version)
            _collect(manifest.inputs, named)
    return named


def purge(lake: Lake, trace_ids: Iterable[str], *, tables: Iterable[Table | str] | None = None) -> PurgeReport:
    """Remove traces from the published days in new commits, then delete every file that held them.

    Identities stay, so a purged day is not rebuilt from the raw artifact by the next run; keeping the trace out of
    later rebuilds is the publisher's business. The content digest changes, so everything downstream is rebuilt.

    Args:
        tables: tables to clean; None for all with big text.
    """
    ids = set(trace_ids)
    chosen = [table for table in TABLES.values() if table.big_text] if tables is None else list(map(table_of, tables))
    rows: dict[str, dict[str, int]] = {}
    for table in chosen:
        for where in _slots_holding(lake, table, ids):
            removed = _publish_without(lake, where, ids)
            rows.setdefault(table.name, {})[where.day] = removed
    return PurgeReport(rows, vacuum(lake, tables=chosen, retracted=ids))


def _collect(inputs: Any, named: dict[str, set[int]]) -> None:
    """Versions in ``{"table" or "table/day": {"version": n, ...}}``, also nested and in lists of such objects."""
    if isinstance(inputs, list):
        for item in inputs:
            _collect(item, named)
    if not isinstance(inputs, dict):
        return
    for key, value in inputs.items():
        name = key.partition("/")[0]
        for entry in value if isinstance(value, list) else [value]:
            if name in TABLES and isinstance(entry, dict):
                for word in ("version", "table_version"):
                    if isinstance(entry.get(word), int) and not isinstance(entry[word], bool):
                        named.setdefault(name, set()).add(entry[word])
        _collect(value, named)


def _vacuum_table(
    storage: Storage, table: Table, versions: set[int], retention_days: int, retracted: set[str], report: VacuumReport
) -> None:
    snapshot, present = _fenced(storage, table, report.dry_run)
    active = {file.path for file in snapshot.files} if snapshot else set()
    by_version = _files_of_versions(storage, table, snapshot, versions, report)
    kept = active.union(*by_version.values())
    recent = _replaced(snapshot) - _replaced(snapshot, retention_days)
    for path, size in present.items():
        if path in active:
            continue
        holds = _holds(storage, table, path, retracted, report) if retracted else False
        if not holds and (path in kept or path in recent):
            continue
        _delete(storage, f"{table.name}/{path}", size, report)
        for version, files in by_version.items():
            if path in files:
                report.broken_versions.setdefault(table.name, {}).setdefault(version, []).append(path)
    if storage.remote:
        return  # its log has no half-written entries
    for name, size in storage.walk(f"{table.name}/_delta_log").items():
        if _LOG_LEFTOVER.fullmatch(name):
            _delete(storage, f"{table.name}/_delta_log/{name}", size, report)


def _fenced(storage: Storage, table: Table, dry_run: bool) -> tuple[Snapshot | None, dict[str, int]]:
    """A snapshot and the data files listed after it was read, of which no unfinished commit can name one any more.

    A remote writer reads the version it will follow before it uploads. So a file that is listed here and in no version
    is of a commit that follows this version or an earlier one, and the entry put here refuses it.
    """
    for _ in range(COMMIT_TRIES):
        snapshot = open_snapshot(storage, table)
        present = _data_files(storage, table)
        if not storage.remote:
            return snapshot, present
        if snapshot is None:
            return None, {}  # a first writer may be about to create the table
        unnamed = present.keys() - {file.path for file in snapshot.files} - _replaced(snapshot)
        if dry_run or not unnamed:
            return snapshot, present
        if fence(storage, table, snapshot):
            storage.forget_uploads(table.name)
            return snapshot, present
    raise FailPartition(f"vacuum of {table.name}: other writers took every one of {COMMIT_TRIES} commits; try again")


def _files_of_versions(
    storage: Storage, table: Table, snapshot: Snapshot | None, versions: set[int], report: VacuumReport
) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for version in sorted(versions):
        past = None
        if snapshot is not None and 0 <= version <= snapshot.version:
            try:
                past = open_snapshot(storage, table, version)
            except FailPartition:
                past = None  # its log entries are gone: reported as missing
        if past is None:
            report.missing_versions.setdefault(table.name, []).append(version)
        else:
            found[version] = {file.path for file in past.files}
            report.kept_versions.setdefault(table.name, []).append(version)
    return found


def _replaced(snapshot: Snapshot | None, days: int = 0) -> set[str]:
    """Files that were replaced at least so many days ago."""
    if snapshot is None:
        return set()
    listed = snapshot.delta.vacuum(retention_hours=24 * days, dry_run=True, enforce_retention_duration=False)
    return set(listed)


def _data_files(storage: Storage, table: Table) -> dict[str, int]:
    """Every file below a table folder except the log, also torn uploads (``name#1``) that Delta never lists."""
    found = storage.walk(table.name)
    return {path: found[path] for path in sorted(found) if not path.startswith("_delta_log/")}


def _delete(storage: Storage, path: str, size: int, report: VacuumReport) -> None:
    report.removed.append(path)
    report.removed_bytes += size
    if not report.dry_run:
        storage.delete(path)


def _holds(storage: Storage, table: Table, path: str, ids: set[str], report: VacuumReport) -> bool:
    """Does a superseded file hold one of these traces? Only the id column is read."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if "trace_id" not in table.columns:
        return False
    wanted = pa.array(sorted(ids), pa.string())
    try:
        with pq.ParquetFile(storage.source(f"{table.name}/{path}")) as parquet:
            for batch in parquet.iter_batches(batch_size=65536, columns=["trace_id"]):
                if pc.any(pc.is_in(batch.column("trace_id"), value_set=wanted)).as_py():
                    return True
    except (OSError, pa.ArrowException) as error:
        found = storage.error(error, f"{table.name}/{path} cannot be searched")
        if not isinstance(found, FailPartition):
            raise found from error  # out of reach for now
        report.unreadable.append(f"{table.name}/{path}")
    return False


def _slots_holding(lake: Lake, table: Table, ids: set[str]) -> list[Slot]:
    import pyarrow as pa
    import pyarrow.dataset as ds

    columns = list(dict.fromkeys((*table.partition, "trace_id")))
    rows = lake.read(table, columns=columns, filter=ds.field("trace_id").isin(pa.array(sorted(ids), pa.string())))
    found = {tuple(row[column] for column in table.partition) for row in rows.to_pylist()}
    return [slot(table, values[0], dict(zip(table.partition[1:], values[1:], strict=True))) for values in sorted(found)]


def _publish_without(lake: Lake, where: Slot, ids: set[str]) -> int:
    """Commit a slot anew without some traces; returns how many rows went. The manifest keeps its identity."""
    from trajectory_platform.lake import contracts, digests, reading

    table, storage = where.table, lake.storage
    with ExitStack() as stack:
        before = lake.state(where)
        snapshot = open_snapshot(storage, table)
        active = [file for file in snapshot.files if file.path in before.files] if snapshot else []
        batches = reading.read_batches(storage, table, active, None, 256)
        rows: pa.Table | None = None
        if table.big_text:
            folder = stack.enter_context(staging.staging_folder(storage, table.name))
            staged = staging.stage(where, _without(batches, ids), folder)
        else:
            rows = reading.one_table(table, [contracts.conform(where, batch) for batch in _without(batches, ids)])
            staged = staging.Staged((), rows.num_rows, digests.table_digest(table, rows), rows)
        with plain_errors(storage, f"{where} was not purged"), storage.lease(table.name):
            if not lake.state(where).same(before):
                raise FailPartition(f"{where} was published by another process meanwhile; purge again")
            if rows is not None:
                after = replace_rows(storage, where, rows, before.files)
            else:
                after = replace_files(storage, where, staged, before.files)
            if before.manifest is not None:
                _save_purged(storage, where, before, before.manifest, staged, after)
    return sum(file_rows(storage, table, path) for path in before.files) - staged.rows


def file_rows(storage: Storage, table: Table, path: str) -> int:
    """Rows of a data file by its footer."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(storage.source(f"{table.name}/{path}")) as parquet:
        return int(parquet.metadata.num_rows)


def _save_purged(
    storage: Storage, where: Slot, before: State, published: Manifest, staged: staging.Staged, after: Snapshot
) -> None:
    gone = published.rows - staged.rows + int(published.summary.get("retracted", 0))
    purged = replace(
        published,
        content_digest=staged.content_digest,
        rows=staged.rows,
        table_version=after.version,
        files=after.of(where),
        summary={**published.summary, "retracted": gone},
    )
    manifests.save(storage, where, purged, before.content)


def _without(batches: Iterator[pa.RecordBatch], ids: set[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(sorted(ids), pa.string())
    for batch in batches:
        yield batch.filter(pc.invert(pc.is_in(batch.column("trace_id"), value_set=wanted)))
