"""A copy of a lake that is whole, taken while days are published: ``lake backup`` and ``lake restore``.

Data files and log entries have names of their own and never change, so they can be copied at leisure. What must fit
together (which log entries there are, and the manifests) is small and is read under the lease of its table, which every
publish holds from its commit to its manifest. Tables are read from the end of the flow to its beginning: what a row of
a copied table was made from is in the copy, because it was published before. They are written from the beginning to
the end, and of a table first the data, then the log, then the manifests: an interrupted copy is an earlier state of
the lake, like a publish that was killed, and the next copy goes on.

Left out are leases, staged files and the cached indexes (``_index``, made anew when they are asked for).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trajectory_platform.errors import Abort, FailPartition, RetryLater
from trajectory_platform.lake import ledger, manifests
from trajectory_platform.lake.snapshots import plain_errors
from trajectory_platform.lake.staging import staging_folder
from trajectory_platform.lake.storage import Content, LocalStorage, Storage
from trajectory_platform.lake.tables import TABLES, Table

if TYPE_CHECKING:
    from trajectory_platform.lake.publish import Lake

_ENTRY = re.compile(r"\d{20}\.(json|checkpoint(\.\d+\.\d+)?\.parquet)")
_HINT = "_last_checkpoint"
_NOT_COPIED = {"_index", "_leases", "_manifests", "_staging", ledger.LEDGER, ledger.HEAD}
_BESIDE = "_beside"
_CHUNK = 8 << 20


@dataclass
class CopyReport:
    """What a copy did.

    Attributes:
        files, bytes: data files that were copied; ``kept``: those that the target had already.
        log_entries, manifests: written ones.
        forgotten: manifests that the target had and the source has no more.
        beside: written files of the workspace (journals of paid replies, the key of releases).
    """

    source: str
    target: str
    tables: int = 0
    files: int = 0
    bytes: int = 0
    kept: int = 0
    log_entries: int = 0
    manifests: int = 0
    forgotten: int = 0
    beside: int = 0


@dataclass(frozen=True)
class _Frozen:
    """A table as it was at a moment between two publishes."""

    table: Table
    entries: list[str]
    hint: Content | None
    data: dict[str, int]
    manifests: dict[str, bytes]

    @property
    def log(self) -> str:
        return f"{self.table.name}/_delta_log"


@dataclass
class _Copy:
    source: Storage
    target: Storage
    report: CopyReport


def copy(source: Lake, target: Lake) -> CopyReport:
    """Bring ``target`` to the state of ``source``: an empty place, or an earlier copy of the same lake.

    Days may be published to the source meanwhile; those that are not finished when their table is read are not in the
    copy. Nobody may write to the target.

    Raises:
        Abort: the source holds nothing; the target holds something else, or was written to since it was copied.
        RetryLater: a file was removed meanwhile (``lake vacuum``, ``lake purge``); run it again.
        FailPartition: it cannot be read or written.
    """
    one = _Copy(source.storage, target.storage, CopyReport(source.uri, target.uri))
    if source.uri == target.uri:
        raise Abort(f"{source.uri} is the lake itself: name another place")
    frozen = [found for table in reversed(TABLES.values()) if (found := _freeze(one.source, table)) is not None]
    if not frozen:
        raise Abort(f"nothing is published in {source.uri}")
    looks = _frozen_ledger(one.source)  # after the scores: a look is recorded before a score comes of it
    for table in reversed(frozen):
        _assert_earlier(one, table)
    for table in reversed(frozen):
        with plain_errors(one.target, f"table {table.table.name} was not copied"):
            _copy_data(one, table)
            _copy_log(one, table)
            _copy_manifests(one, table)
        one.report.tables += 1
    for path, data in looks.items():
        one.target.write(path, data)
    _copy_beside(one)
    return one.report


def _freeze(source: Storage, table: Table) -> _Frozen | None:
    """A table between two publishes; None where it was never created."""
    log = f"{table.name}/_delta_log"
    if not source.exists(log):
        return None
    with source.lease(table.name):
        entries = [name for name in source.names(log) if _ENTRY.fullmatch(name)]
        paths = [manifests.path_of(where) for where in manifests.slots(source, table)]
        held = {path: found.data for path, found in source.read_many(paths).items() if found is not None}
        data = {path: size for path, size in source.walk(table.name).items() if not path.startswith("_delta_log/")}
        return _Frozen(table, entries, source.read(f"{log}/{_HINT}"), data, held)


def _frozen_ledger(source: Storage) -> dict[str, bytes]:
    """The ledger and its head as they belong together."""
    with source.lease(ledger.LEASE):
        found = source.read_many([ledger.LEDGER, ledger.HEAD])
    return {path: content.data for path, content in found.items() if content is not None}


def _assert_earlier(one: _Copy, frozen: _Frozen) -> None:
    """The target's log must be a beginning of the source's.

    Raises:
        Abort: it is not.
    """
    there = [name for name in one.target.names(frozen.log) if _ENTRY.fullmatch(name)]
    last = max((name for name in there if name.endswith(".json")), default=None)
    if set(there) <= set(frozen.entries) and (last is None or _equal(one, f"{frozen.log}/{last}")):
        return
    raise Abort(
        f"{one.target} holds table {frozen.table.name} with another history: it is no earlier copy of {one.source}, or "
        "it was written to since; name an empty place"
    )


def _equal(one: _Copy, path: str) -> bool:
    """Log entries carry a random mark each, so equal bytes are the same commit."""
    ours, theirs = one.source.read(path), one.target.read(path)
    return ours is not None and theirs is not None and ours.data == theirs.data


def _copy_data(one: _Copy, frozen: _Frozen) -> None:
    name = frozen.table.name
    there = one.target.walk(name)
    missing = {path: size for path, size in frozen.data.items() if there.get(path) != size}
    one.report.kept += len(frozen.data) - len(missing)
    if not missing:
        return
    with staging_folder(one.target, name) as folder:
        for number, (path, size) in enumerate(sorted(missing.items())):
            if path in there:
                one.target.delete(f"{name}/{path}")  # a copy that was cut short
            staged = folder / str(number)
            _fetch(one.source, name, path, staged, size)
            one.target.place(staged, f"{name}/{path}")
            staged.unlink(missing_ok=True)
            one.report.files += 1
            one.report.bytes += size


def _fetch(source: Storage, folder: str, path: str, staged: Path, size: int) -> None:
    """A data file as a durable local file of the expected size."""
    try:
        with source.filesystem(folder).open_input_stream(path) as stream, staged.open("wb") as written:
            shutil.copyfileobj(stream, written, _CHUNK)
            written.flush()
            os.fsync(written.fileno())
    except FileNotFoundError:
        staged.unlink(missing_ok=True)
    if not staged.exists() or staged.stat().st_size != size:
        raise RetryLater("file_removed_meanwhile", f"{source.shown(f'{folder}/{path}')}: run the copy again")


def _copy_log(one: _Copy, frozen: _Frozen) -> None:
    """Entries in their order, so that an interrupted copy has no gap; the hint at the newest summary comes last."""
    there = one.target.sizes(frozen.log, frozen.entries)
    for name in frozen.entries:
        if name in there:
            continue
        one.target.write(f"{frozen.log}/{name}", _read(one.source, f"{frozen.log}/{name}"))
        one.report.log_entries += 1
    if frozen.hint is not None:
        one.target.write(f"{frozen.log}/{_HINT}", frozen.hint.data)


def _copy_manifests(one: _Copy, frozen: _Frozen) -> None:
    paths = [manifests.path_of(where) for where in manifests.slots(one.target, frozen.table)]
    there = {path: found.data for path, found in one.target.read_many(paths).items() if found is not None}
    for path, data in frozen.manifests.items():
        if there.get(path) != data:
            one.target.write(path, data)
            one.report.manifests += 1
    for path in sorted(there.keys() - frozen.manifests.keys()):
        one.target.delete(path)
        one.report.forgotten += 1


def _copy_beside(one: _Copy) -> None:
    """Journals and keys of the workspace. A copy in an object store has them below ``_beside`` too, from where they go
    back to a workspace: that of the machine the lake is restored on."""
    found = {f"{_BESIDE}/{path}": path for path in one.source.walk(_BESIDE)} if one.source.remote else {}
    held = {path: _read(one.source, stored) for stored, path in found.items()}
    held |= {path: (one.source.workspace / path).read_bytes() for path in _beside(one.source.workspace)}
    for path, data in held.items():
        place = one.target.workspace / path
        if place.exists() and (place.read_bytes() == data or one.target.remote):
            continue  # of an object store only the copy below _beside is brought up to date
        LocalStorage(one.target.workspace).write(path, data)
        one.report.beside += 1
    for path, data in held.items() if one.target.remote else ():
        there = one.target.read(f"{_BESIDE}/{path}")
        if there is None or there.data != data:
            one.target.write(f"{_BESIDE}/{path}", data)


def _beside(root: Path) -> Iterator[str]:
    for entry in sorted(os.scandir(root), key=lambda found: found.name) if root.is_dir() else ():
        if entry.name in _NOT_COPIED or entry.name in TABLES or entry.is_symlink():
            continue
        if entry.is_file():
            yield entry.name
        else:
            for parent, _, names in os.walk(entry.path):
                yield from (str(Path(parent, name).relative_to(root)) for name in sorted(names))


def _read(source: Storage, path: str) -> bytes:
    found = source.read(path)
    if found is None:
        raise FailPartition(f"{source.shown(path)} is gone: the log of a table may not be changed by hand")
    return found.data
