"""Slots and manifests: which part of a table is published, and the small file that says what is in it.

A slot is what one publish replaces: a day, or a day and stage. Its manifest lies beside the tables, at
``{lake_uri}/_manifests/{table}/{day}[.stage=x].json``, and names the data files of the slot. Data files have unique
names and never change, so a manifest whose files are exactly the active files of the slot describes those rows and
no others. That is why a crash needs no repair: a kill before the data commit leaves the old manifest with the old
files; a kill between the commit and the manifest leaves a manifest that names superseded files, which counts as no
manifest ("rebuild").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.identity import digest_json
from trajectory_platform.lake.storage import ANYTHING, Content, Storage
from trajectory_platform.lake.storage import fsync_path as fsync_path
from trajectory_platform.lake.tables import TABLES, Table

_SAFE_VALUE = re.compile(r"[A-Za-z0-9_-]{1,64}")


def table_of(table: Table | str) -> Table:
    """The table itself, or the declared one of that name. Raises Abort for an unknown name."""
    if isinstance(table, Table):
        return table
    if table not in TABLES:
        raise Abort(f"no table is called {table[:80]!r}; tables: {', '.join(sorted(TABLES))}")
    return TABLES[table]


@dataclass(frozen=True)
class Slot:
    """What one publish replaces: one value per partition column of a table."""

    table: Table
    values: tuple[tuple[str, str], ...]

    @property
    def day(self) -> str:
        return self.values[0][1]

    @property
    def part(self) -> dict[str, str]:
        """The partition values besides the day, e.g. ``{"stage": "sft"}``."""
        return dict(self.values[1:])

    @property
    def folder(self) -> str:
        """Partition folder below the table folder."""
        return "/".join(f"{column}={value}" for column, value in self.values)

    @property
    def predicate(self) -> str:
        """The same as SQL; the values are checked by ``slot``, so nothing needs quoting."""
        return " AND ".join(f"{column} = '{value}'" for column, value in self.values)

    @property
    def file_name(self) -> str:
        extra = "".join(f".{column}={value}" for column, value in self.values[1:])
        return f"{self.day}{extra}.json"

    def __str__(self) -> str:
        return " ".join([self.table.name, *(value for _, value in self.values)])


def slot(table: Table | str, day: str, part: Mapping[str, str] | None = None) -> Slot:
    """A checked slot. Raises Abort for a day that is none, or a ``part`` that does not fit the table."""
    declared = table_of(table)
    given = dict(part or {})
    if set(given) != set(declared.partition[1:]):
        needed = ", ".join(declared.partition[1:]) or "nothing"
        raise Abort(f"{declared.name}: besides the day, {needed} must be given as part, not {sorted(given)}")
    for column, value in given.items():
        if not isinstance(value, str) or not _SAFE_VALUE.fullmatch(value):
            raise Abort(f"{declared.name}: {column} = {value!r:.80} is no safe partition value")
    return Slot(declared, (("day", checked_day(day)), *((column, given[column]) for column in declared.partition[1:])))


def checked_day(day: str) -> str:
    """The day itself where it is ``YYYY-MM-DD``; Abort otherwise (it becomes part of paths and predicates)."""
    try:
        if date.fromisoformat(day).isoformat() == day:
            return day
    except (TypeError, ValueError):
        pass
    raise Abort(f"{day!r:.80} is no day; write it as YYYY-MM-DD")


@dataclass(frozen=True)
class Manifest:
    """What is published in one slot.

    Attributes:
        identity: digest of what the slot was made of (``identity.identity_digest``).
        content_digest: digest of its rows in key order (``lake.digests``), independent of files and batches.
        table_version: Delta version that holds it; recorded, never digested.
        complete: False when the slot holds nulls to be retried; such a slot is never current.
        files: active data files of the slot, path below the table folder -> bytes.
    """

    table: str
    day: str
    part: dict[str, str]
    identity: str
    content_digest: str
    table_version: int
    rows: int
    complete: bool
    code_version: str
    settings: dict[str, Any]
    inputs: dict[str, Any]
    summary: dict[str, Any]
    files: dict[str, int]


def check_json(what: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """A plain copy of a JSON object; FailPartition when it cannot be written as JSON (checked before any commit)."""
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise FailPartition(f"{what} of the manifest is no JSON: {error}") from error
    return copied


def path_of(where: Slot) -> str:
    """Where the manifest of a slot lies below the lake."""
    return f"{folder(where.table)}/{where.file_name}"


def folder(table: Table) -> str:
    return f"_manifests/{table.name}"


def save(storage: Storage, where: Slot, manifest: Manifest, seen: Content | None = ANYTHING) -> None:
    """Write it whole or not at all, with a checksum of itself.

    Args:
        seen: the manifest file as it was when the writer looked under its lease.

    Raises:
        FailPartition: another process published the slot meanwhile (its lease had begun after ours had expired).
    """
    content = asdict(manifest)
    content["checksum"] = digest_json(content)
    text = json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"
    storage.write(path_of(where), text.encode("ascii"), seen)


def load(storage: Storage, where: Slot) -> Manifest | None:
    """The manifest as written; None where there is none. Raises FailPartition when the file is damaged.

    Whether it still describes the data is the caller's question (``Manifest.files`` against the snapshot).
    """
    return parsed(storage, where, read(storage, where))


def read(storage: Storage, where: Slot) -> Content | None:
    """The file of a manifest. Raises FailPartition when it cannot be read."""
    try:
        return storage.read(path_of(where))
    except OSError as error:
        path = storage.shown(path_of(where))
        raise FailPartition(f"manifest {path} cannot be read: {error.strerror}") from error


def parsed(storage: Storage, where: Slot, file: Content | None) -> Manifest | None:
    """``load`` of what was read already."""
    if file is None:
        return None
    path = storage.shown(path_of(where))
    try:
        content = json.loads(file.data)
    except ValueError as error:
        raise FailPartition(f"manifest {path} is damaged: {error}") from error
    checksum = content.pop("checksum", None) if isinstance(content, dict) else None
    if checksum is None or checksum != digest_json(content):
        raise FailPartition(f"manifest {path} is damaged: its checksum does not fit")
    try:
        manifest = Manifest(**content)
    except TypeError as error:
        raise FailPartition(f"manifest {path} was written by another version: {error}") from error
    if (manifest.table, manifest.day, manifest.part) != (where.table.name, where.day, where.part):
        raise FailPartition(f"manifest {path} describes {manifest.table} {manifest.day} {manifest.part}")
    return manifest


def slots(storage: Storage, table: Table) -> list[Slot]:
    """Every slot of the table that has a manifest file, sorted; temporary and foreign names are passed over."""
    found = []
    for name in storage.names(folder(table)):
        if not name.endswith(".json") or name.startswith("."):
            continue
        pieces = name.removesuffix(".json").split(".")
        pairs = [piece.partition("=") for piece in pieces[1:]]
        try:
            found.append(slot(table, pieces[0], {column: value for column, _, value in pairs}))
        except Abort:
            continue  # not one of ours: nothing is published under such a name
    return sorted(found, key=lambda one: one.values)


def find(storage: Storage, where: Slot) -> Content | None:
    """The file of a manifest; None where there is none or it cannot be read, which counts as damaged."""
    try:
        return read(storage, where)
    except FailPartition:
        return None


def files(storage: Storage, wanted: Iterable[Slot]) -> Iterator[tuple[Slot, Content | None]]:
    """Slots with their manifest files (``find``); those of an object store are read at once."""
    listed = list(wanted)
    if storage.remote:
        read_all = storage.read_many(path_of(where) for where in listed)
        yield from ((where, read_all[path_of(where)]) for where in listed)
    else:
        yield from ((where, find(storage, where)) for where in listed)


def remove(storage: Storage, where: Slot) -> None:
    """Forget the manifest; the rows stay, the slot counts as not current."""
    storage.delete(path_of(where))
