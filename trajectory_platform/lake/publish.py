"""The lake as its users see it: publish a day, ask what is published, read it.

Publishing replaces one slot (a day, or a day and stage) in one atomic Delta commit. Everything that can fail because
of the data (contract, conservation, pool disjointness) fails before that commit and leaves the old day. The order of
a publish, with what a reader sees after kill -9 at each point:

    check and digest the rows, stage them aside (old day)  ->  take the table's lease (old)  ->  move or upload the
    staged files into the table (old; invisible, orphans for ``vacuum``)  ->  Delta commit (new)  ->  manifest (new;
    without it the slot is "not current" and the next run rebuilds it with the same content digest)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.lake import manifests
from trajectory_platform.lake.manifests import Manifest, Slot, check_json, slot, table_of
from trajectory_platform.lake.snapshots import OpenTables
from trajectory_platform.lake.storage import Content, LocalStorage, open_storage
from trajectory_platform.lake.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.lake.retention import PurgeReport, VacuumReport
    from trajectory_platform.lake.snapshots import File, Snapshot
    from trajectory_platform.lake.staging import Staged


class State(NamedTuple):
    """A slot at a moment: active files, the manifest that describes them, its file as it was read, and the table."""

    files: dict[str, int]
    manifest: Manifest | None
    content: Content | None
    snapshot: Snapshot | None

    def same(self, other: State) -> bool:
        """Did nobody publish between the two?"""
        return (self.files, self.manifest) == (other.files, other.manifest)


class Lake:
    """A folder, or a prefix of an object store, of Delta tables.

    Cheap to construct; nothing is opened or created before it is used.

    Args:
        uri: a local folder or ``s3://bucket/prefix``.
        local: for a lake in an object store, the local folder of its workspaces (see ``storage.open_storage``).
    """

    def __init__(self, uri: str, local: str | Path | None = None) -> None:
        self.storage = open_storage(uri, local)
        self._local = local
        self._opened = OpenTables(self.storage)

    def __reduce__(self) -> tuple[Any, ...]:
        return Lake, (self.uri, self._local)  # connections and open tables belong to a process

    @property
    def root(self) -> Path:
        """The folder of a local lake. Raises Abort for one in an object store."""
        if isinstance(self.storage, LocalStorage):
            return self.storage.root
        raise Abort(f"the lake {self.uri} has no local folder")

    @property
    def uri(self) -> str:
        """The lake as people write it."""
        return str(self.storage)

    @property
    def workspace(self) -> Path:
        """Local folder for what lies beside the tables (journals, keys): the lake's own where it is local."""
        return self.storage.workspace

    def publish(
        self,
        table: Table | str,
        day: str,
        data: pa.Table | Iterable[pa.RecordBatch],
        *,
        identity: str,
        inputs: Mapping[str, Any],
        code_version: str,
        settings: Mapping[str, Any],
        complete: bool = True,
        summary: Mapping[str, Any] | None = None,
        part: Mapping[str, str] | None = None,
        verify: Sequence[Callable[[pa.Table], None]] = (),
        onto: State | None = None,
    ) -> Manifest:
        """Replace one slot by ``data``; returns what is published now.

        Rows equal to the published ones (same content digest, stored bytes still sound) make no commit: only the
        manifest is written anew. A slot that another process published meanwhile is left alone: its manifest is
        returned when it holds the same identity and rows.

        Args:
            data: rows in the declared columns and types. A table in any order; batches of a big-text table sorted by
                key (they are read once, never all at once).
            identity: digest of what the rows were made of.
            verify: called with the rows before the commit (big-text tables: without their ``HEAVY_COLUMNS``); whatever
                they raise stops the publish.
            onto: the slot as it was (``state``) before the caller read from it what ``data`` holds again; None = as
                it is now.

        Raises:
            FailPartition: contract broken, rows not sorted, disk full, another process published the slot meanwhile.
            Abort: no such table, day or part.
        """
        where = slot(table, day, part)
        started = onto or self.state(where)
        described = {
            "inputs": check_json("inputs", inputs),
            "settings": check_json("settings", settings),
        }
        with ExitStack() as stack:
            staged, rows = self._prepare(where, data, stack)
            for check in verify:
                check(staged.light)
            # read after the rows: a caller may count into it while its batches are consumed
            counted = check_json("summary", summary or {})
            manifest = Manifest(
                table=where.table.name,
                day=where.day,
                part=where.part,
                identity=identity,
                content_digest=staged.content_digest,
                table_version=-1,
                rows=staged.rows,
                complete=complete,
                code_version=code_version,
                files={},
                summary=counted,
                **described,
            )
            return self._commit(where, manifest, staged, rows, started)

    def manifest(self, table: Table | str, day: str, part: Mapping[str, str] | None = None) -> Manifest | None:
        """What is published in a slot; None when nothing is, or when no manifest describes the rows that are there."""
        return self.state(slot(table, day, part)).manifest

    def manifests(self, table: Table | str, days: Iterable[str] | None = None) -> list[Manifest]:
        """Manifests of a table that describe its present rows, by slot: of some days, or of all.

        The log is read once for all days, however many there are.
        """
        declared = table_of(table)
        snapshot = self._snapshot(declared)
        wanted = None if days is None else {manifests.checked_day(day) for day in days}
        listed = (where for where in manifests.slots(self.storage, declared) if wanted is None or where.day in wanted)
        found = (self._bound(where, snapshot, file) for where, file in manifests.files(self.storage, listed))
        return [manifest for manifest in found if manifest is not None]

    def is_current(self, table: Table | str, day: str, identity: str, part: Mapping[str, str] | None = None) -> bool:
        """True when the slot was published completely with this identity and its files are there in full size.

        A cheap test (the log and the file sizes); ``verification.verify`` reads the bytes.
        """
        from trajectory_platform.lake.reading import missing

        where = slot(table, day, part)
        found = self.state(where).manifest
        if found is None or not found.complete or found.identity != identity:
            return False
        return not missing(self.storage, where.table, found.files)

    def invalidate(self, table: Table | str, day: str, part: Mapping[str, str] | None = None) -> None:
        """Make a slot not current, so that the next run builds it anew. The rows stay readable."""
        manifests.remove(self.storage, slot(table, day, part))

    def days(self, table: Table | str) -> list[str]:
        """Published days of a table, empty ones included, ascending."""
        declared = table_of(table)
        snapshot = self._snapshot(declared)
        found = {file.values[0][1] for file in snapshot.files} if snapshot else set()
        return sorted(found | {manifest.day for manifest in self.manifests(declared)})

    def read(
        self,
        table: Table | str,
        days: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        ordered: bool = True,
    ) -> pa.Table:
        """Published rows in the declared schema, ordered by day and key.

        Args:
            days: only these days; None for all. A day that was never published has no rows.
            columns: only these, in this order.
            filter: a ``pyarrow.compute`` expression over the declared columns.
            ordered: False leaves the order open, for rows that are only counted.

        Raises:
            FailPartition: a data file is damaged; the message names it. Days in other files stay readable.
        """
        from trajectory_platform.lake.arrays import empty_table
        from trajectory_platform.lake.reading import read_rows, schema_of

        declared = table_of(table)
        files = self._files(declared, days)
        if not files:
            return empty_table(schema_of(declared, columns))
        return read_rows(self.storage, declared, files, columns, filter, ordered=ordered)

    def lookup(
        self,
        table: Table | str,
        column: str,
        values: Iterable[str],
        days: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        ordered: bool = True,
        exact: bool = True,
    ) -> pa.Table:
        """``read`` of the rows whose ``column`` has one of some values, by the index of the data files where there is
        one (``value_index``): a few rows of a large table are found without reading it.

        Args:
            exact: False trusts the 64 bit hashes of the index and does not read ``column`` itself, for counts: among
                ten million rows, ten thousand values match a strange row with a probability below one in a hundred
                million.
        """
        import pyarrow.compute as pc

        from trajectory_platform.lake import reading, value_index
        from trajectory_platform.lake.arrays import text_array

        declared = table_of(table)
        named = sorted(set(values))
        if column not in value_index.INDEXED.get(declared.name, ()):
            return self.read(declared, days, columns, pc.field(column).isin(text_array(named)), ordered)
        schema = reading.schema_of(declared, columns)
        found = value_index.find(self.storage, declared, self._files(declared, days), column, named)
        order = (*declared.partition, *declared.key) if ordered else ()
        needed = list(dict.fromkeys((*schema.names, *((column,) if exact else ()), *order)))
        rows = value_index.read(self.storage, declared, found, needed, (column, named) if exact else None)
        return (reading.ordered_rows(declared, rows) if ordered else rows).select(schema.names)

    def alike(
        self,
        table: Table | str,
        trace_ids: Iterable[str],
        among: Sequence[Table | str],
        days: Sequence[str] | None = None,
        shared: str = "content_hash",
    ) -> set[str]:
        """Trace ids of the rows of the tables ``among`` that have the value of a row of ``table`` in the column
        ``shared``.

        Both columns are looked up by the hashes of their index (``lookup`` with ``exact`` False), so neither text nor
        values are read.

        Args:
            trace_ids: of the rows of ``table``, in some days or in all.
        """
        from trajectory_platform.lake import value_index

        source = table_of(table)
        own = value_index.find(self.storage, source, self._files(source, days), "trace_id", trace_ids)
        hashes = value_index.hashes_at(self.storage, source, own, shared)
        alike: set[str] = set()
        for target in map(table_of, among) if len(hashes) else ():
            found = value_index.find_hashes(self.storage, target, self._files(target, None), shared, hashes)
            rows = value_index.read(self.storage, target, found, ["trace_id"], None)
            alike.update(rows.column("trace_id").to_pylist())
        return alike

    def batches(
        self, table: Table | str, day: str, columns: Sequence[str] | None = None, batch_rows: int = 256
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one day ordered by key, at most ``batch_rows`` at a time; memory does not grow with the day."""
        from trajectory_platform.lake.reading import read_batches

        declared = table_of(table)
        yield from read_batches(self.storage, declared, self._files(declared, [day]), columns, batch_rows)

    def vacuum(self, **options: Any) -> VacuumReport:
        """Remove files nobody needs; see ``retention.vacuum``."""
        from trajectory_platform.lake.retention import vacuum

        return vacuum(self, **options)

    def purge(self, trace_ids: Iterable[str], **options: Any) -> PurgeReport:
        """Remove retracted traces and the bytes that held them; see ``retention.purge``."""
        from trajectory_platform.lake.retention import purge

        return purge(self, trace_ids, **options)

    def _files(self, table: Table, days: Sequence[str] | None) -> list[File]:
        """Data files of some days, or of all."""
        snapshot = self._snapshot(table)
        wanted = None if days is None else {manifests.checked_day(day) for day in days}
        return [file for file in (snapshot.files if snapshot else ()) if wanted is None or file.values[0][1] in wanted]

    def _snapshot(self, table: Table) -> Snapshot | None:
        return self._opened.now(table)

    def _bound(self, where: Slot, snapshot: Snapshot | None, file: Content | None) -> Manifest | None:
        """The manifest in a file where it is sound and describes the files of the snapshot."""
        try:
            found = manifests.parsed(self.storage, where, file)
        except FailPartition:
            return None  # damaged: the slot is rebuilt; `verification.verify` names the damage
        files = snapshot.of(where) if snapshot else {}
        return found if found is not None and snapshot is not None and found.files == files else None

    def state(self, where: Slot) -> State:
        """What is in a slot now."""
        return self._state(where, self._snapshot(where.table))

    def _state(self, where: Slot, snapshot: Snapshot | None) -> State:
        file = manifests.find(self.storage, where)
        return State(snapshot.of(where) if snapshot else {}, self._bound(where, snapshot, file), file, snapshot)

    def _prepare(self, where: Slot, data: Any, stack: ExitStack) -> tuple[Staged, pa.Table | None]:
        """Check and digest the rows; big text goes to staged files, small rows come back as a sorted table."""
        import pyarrow as pa

        from trajectory_platform.lake import contracts, digests, reading, staging

        if not where.table.big_text:
            rows = _one_table(where, data)
            contracts.check_values(where, rows)
            rows = reading.sorted_rows(where.table, rows).combine_chunks()
            digest = digests.table_digest(where.table, rows)
            return staging.Staged((), rows.num_rows, digest, rows), rows
        if isinstance(data, pa.Table):
            data = reading.sorted_rows(where.table, contracts.conform(where, data)).to_batches(staging.GROUP_ROWS)
        try:
            folder = stack.enter_context(staging.staging_folder(self.storage, where.table.name))
            staged = staging.stage(where, data, folder)
        except OSError as error:
            raise self.storage.error(error, f"{where} was not published") from error
        contracts.check_values(where, staged.light)
        return staged, None

    def _commit(
        self,
        where: Slot,
        manifest: Manifest,
        staged: Staged,
        rows: pa.Table | None,
        started: State,
    ) -> Manifest:
        from trajectory_platform.lake import snapshots, value_index

        lease = self.storage.lease(where.table.name)
        with snapshots.plain_errors(self.storage, f"{where} was not published"), lease:
            now = self._state(where, snapshots.open_snapshot(self.storage, where.table))
            published = now.manifest
            if not now.same(started):
                if published is not None and _same(published, manifest) and published.complete == manifest.complete:
                    return published
                raise FailPartition(f"{where} was published by another process meanwhile; run it again")
            if published is not None and published.content_digest == manifest.content_digest and self._sound(where):
                kept = replace(manifest, table_version=published.table_version, files=published.files)
                if kept != published:
                    manifests.save(self.storage, where, kept, now.content)
                return kept
            if rows is not None:
                after = snapshots.replace_rows(self.storage, where, rows, now.files, now.snapshot)
            else:
                after = snapshots.replace_files(self.storage, where, staged, now.files, now.snapshot)
            written = replace(manifest, table_version=after.version, files=after.of(where))
            manifests.save(self.storage, where, written, now.content)
        copies = {file.path.name: file.path for file in staged.files}
        value_index.write(self.storage, where.table, written.files, copies)
        return written

    def _sound(self, where: Slot) -> bool:
        """Does the stored slot still hold the rows its manifest names? Reads them: a rebuild must repair bad bytes."""
        from trajectory_platform.lake.verification import slot_damage

        return slot_damage(self, where) is None


def _same(one: Manifest, other: Manifest) -> bool:
    return one.identity == other.identity and one.content_digest == other.content_digest


def _one_table(where: Slot, data: Any) -> pa.Table:
    import pyarrow as pa

    from trajectory_platform.lake import contracts, reading

    if isinstance(data, pa.Table):
        return contracts.conform(where, data)
    return reading.one_table(where.table, (contracts.conform(where, batch) for batch in data))
