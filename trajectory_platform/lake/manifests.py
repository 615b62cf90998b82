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
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.identity import digest_json
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


def folder(root: Path, table: Table) -> Path:
    return root / "_manifests" / table.name


def save(root: Path, where: Slot, manifest: Manifest) -> None:
    """Write it whole or not at all (temporary file, fsync, rename), with a checksum of itself."""
    target = folder(root, where.table) / where.file_name
    target.parent.mkdir(parents=True, exist_ok=True)
    content = asdict(manifest)
    content["checksum"] = digest_json(content)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("x", encoding="ascii") as stream:
            json.dump(content, stream, sort_keys=True, indent=1, allow_nan=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_path(target.parent)


def load(root: Path, where: Slot) -> Manifest | None:
    """The manifest as written; None where there is none. Raises FailPartition when the file is damaged.

    Whether it still describes the data is the caller's question (``Manifest.files`` against the snapshot).
    """
    path = folder(root, where.table) / where.file_name
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise FailPartition(f"manifest {path} is damaged: {error}") from error
    except OSError as error:
        raise FailPartition(f"manifest {path} cannot be read: {error.strerror}") from error
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


def slots(root: Path, table: Table) -> list[Slot]:
    """Every slot of the table that has a manifest file, sorted; temporary and foreign names are passed over."""
    found = []
    for name in _names(folder(root, table)):
        pieces = name.removesuffix(".json").split(".")
        pairs = [piece.partition("=") for piece in pieces[1:]]
        try:
            found.append(slot(table, pieces[0], {column: value for column, _, value in pairs}))
        except Abort:
            continue  # not one of ours: nothing is published under such a name
    return sorted(found, key=lambda one: one.values)


def remove(root: Path, where: Slot) -> None:
    """Forget the manifest; the rows stay, the slot counts as not current."""
    (folder(root, where.table) / where.file_name).unlink(missing_ok=True)


def _names(path: Path) -> Iterable[str]:
    if not path.is_dir():
        return []
    return sorted(entry.name for entry in path.iterdir() if entry.name.endswith(".json") and entry.name[0] != ".")


def fsync_path(path: Path) -> None:
    """Have the disk confirm a file, or the entries of a folder (a rename in it)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
