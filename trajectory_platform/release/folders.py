"""A folder that appears whole or not at all, with the checksums of everything in it.

It is written beside its place under a hidden name, every file is synced, then one rename makes it visible. A killed
process leaves only the hidden folder; the next one of the same place finds its kernel lock free and removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.identity import sha256_hex
from trajectory_platform.lake.manifests import fsync_path

SUMS = "SHA256SUMS"
MAX_FILES = 100_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_UNIQUE = re.compile(r"[0-9a-f]{32}")
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


class Fault(NamedTuple):
    """What is wrong with a folder: a file of it (or ``""`` for all of it), reason in snake_case, detail for people."""

    file: str
    reason: str
    detail: str


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A new folder beside ``target`` to write into; removed at the end where :func:`place` did not move it.

    Raises:
        Abort: ``target`` is a file or a link.
    """
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise Abort(f"{target} is no folder: name a new folder, or one that holds the same export")
    target = target.absolute()
    parent, prefix = target.parent, f".{target.name}.part-"
    parent.mkdir(parents=True, exist_ok=True)
    for leftover in sorted(parent.iterdir()):
        if leftover.name.startswith(prefix) and _UNIQUE.fullmatch(leftover.name[len(prefix) :]):
            _remove_dead(leftover)
    folder, descriptor = _own_folder(parent, prefix)
    try:
        yield folder
    finally:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def place(folder: Path, target: Path) -> bool:
    """Write the checksums of a staged folder and move it to its place; False when the same is there already.

    Raises:
        Abort: another folder is there. FailPartition: the one that is there was the same once and is damaged now.
    """
    target = target.absolute()
    write_sums(folder)
    fsync_tree(folder)
    try:
        os.rename(folder, target)  # replaces an empty folder, nothing else
    except OSError as error:
        if not target.is_dir() or not any(target.iterdir()):
            raise
        if _bytes_of(target / SUMS) != _bytes_of(folder / SUMS):
            raise Abort(f"{target} holds something else: name a new folder, or remove it first") from error
        if faults := verify_sums(target):
            first = faults[0]
            raise FailPartition(f"{target} was this export once: {first.file}: {first.reason}") from error
        return False
    fsync_path(target.parent)
    return True


def write_sums(folder: Path) -> None:
    """``SHA256SUMS`` of all files below a folder, in the form that ``sha256sum -c`` reads, sorted by name."""
    lines = [f"{file_digest(path)}  {name}\n" for name, path in files_of(folder).items() if name != SUMS]
    (folder / SUMS).write_text("".join(lines), encoding="ascii")


def verify_sums(folder: Path) -> list[Fault]:
    """Everything that differs between a folder and its ``SHA256SUMS``; no path is built from what a file says.

    Reasons: ``no_checksums``, ``bad_checksums``, ``no_regular_file``, ``strange_name``, ``missing_file``,
    ``unlisted_file``, ``checksum_differs``.
    """
    try:
        found, strange = _listed(folder)
    except OSError as error:
        return [Fault("", "unreadable", error.strerror or str(error))]
    faults = [Fault(name, reason, "") for name, reason in strange]
    sums = found.pop(SUMS, None)
    if sums is None:
        return [*faults, Fault(SUMS, "no_checksums", "")]
    said: dict[str, str] = {}
    for number, line in enumerate(sums.read_bytes().decode("ascii", "replace").splitlines()):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in said:
            return [*faults, Fault(SUMS, "bad_checksums", f"line {number + 1}")]
        said[match[2]] = match[1]
    faults += [Fault(name, "missing_file", "") for name in sorted(said.keys() - found.keys())]
    faults += [Fault(name, "unlisted_file", "") for name in sorted(found.keys() - said.keys())]
    for name in sorted(found.keys() & said.keys()):
        if file_digest(found[name]) != said[name]:
            faults.append(Fault(name, "checksum_differs", ""))
    return faults


def files_of(folder: Path) -> dict[str, Path]:
    """Name below the folder -> path of every regular file, sorted by name.

    Raises:
        FailPartition: a link, a device, or a name that is no plain one.
    """
    found, strange = _listed(folder)
    if strange:
        name, reason = strange[0]
        raise FailPartition(f"{folder}: {name}: {reason}")
    return found


def folder_digest(folder: Path) -> str:
    """The one value that names a release: SHA-256 of its ``SHA256SUMS``. Publish it elsewhere, or sign it."""
    return sha256_hex(_bytes_of(folder / SUMS))


def file_digest(path: Path) -> str:
    """Hex SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fsync_tree(folder: Path) -> None:
    """Wait until every file and folder below is on the disk."""
    for where, _, names in os.walk(folder, topdown=False):
        for name in names:
            with open(os.path.join(where, name), "rb") as stream:
                os.fsync(stream.fileno())
        fsync_path(Path(where))


def _listed(folder: Path) -> tuple[dict[str, Path], list[tuple[str, str]]]:
    """(plain files by name, (shown name, reason) of everything else); links are never followed."""
    found: dict[str, Path] = {}
    strange: list[tuple[str, str]] = []
    for where, folders, names in os.walk(folder, followlinks=False, onerror=_raise):
        for name in (*folders, *names):
            path = Path(where, name)
            shown = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                strange.append((ascii(shown), "no_regular_file"))
            elif _NAME.fullmatch(shown) is None:
                strange.append((ascii(shown), "strange_name"))
            else:
                found[shown] = path
            if len(found) > MAX_FILES:
                raise FailPartition(f"{folder}: more than {MAX_FILES} files")
    return dict(sorted(found.items())), sorted(strange)


def _own_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new hidden folder and the descriptor that holds its lock."""
    while True:
        folder = parent / f"{prefix}{uuid.uuid4().hex}"
        folder.mkdir()
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # taken for a dead one before it was locked
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        if folder.is_dir():
            return folder, descriptor
        os.close(descriptor)


def _raise(error: OSError) -> None:
    raise error


def _bytes_of(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() and not path.is_symlink() else b""


def _remove_dead(folder: Path) -> None:
    """Remove a hidden folder whose writer is gone: the kernel has released its lock."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return  # moved to its place, or removed, a moment ago; or no folder of ours
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass  # its writer is alive
    finally:
        os.close(descriptor)
