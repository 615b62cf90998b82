"""A catalogue file built once into an index folder that processes map: ``{root}/{content digest}-v{FORMAT}``.

Complete or absent: a build writes a folder of its own and renames it at the end; the manifest, written last, names
every file. One process builds a version at a time, others wait and find it; whoever serves an older version keeps its
mapping. What a killed build left is removed by the next build that is allowed to: the lock of its version, which
the kernel releases when a process dies, is free then.

    {root}/{name}/manifest.json, the files of ``store``, words/ (tantivy)
    {root}/.building-{name}/    a build under way, or what is left of it
    {root}/.replaced-{name}/    a damaged version on its way out
    {root}/.{name}.lock         empty; never removed, so that a lock is never taken on a file that is gone
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from trajectory_platform.errors import Abort, FailPartition, RejectRow
from trajectory_platform.identity import digest_json
from trajectory_platform.lake.manifests import fsync_path
from trajectory_platform.sandbox import store
from trajectory_platform.sandbox.product_files import Source, content_digest, inflated, lines_of
from trajectory_platform.sandbox.products import BLANK, SkippedLine, read_document
from trajectory_platform.sandbox.ranking import engine_version, open_ranking, write_ranking
from trajectory_platform.sandbox.search import SearchIndex
from trajectory_platform.sandbox.store import CatalogueStore
from trajectory_platform.sandbox.store_writer import StoreWriter
from trajectory_platform.sandbox.tools import World

FORMAT = 1  # raise it when an older folder must not be read any more
WORDS = "words"
MANIFEST = "manifest.json"
MAX_EXAMPLES = 1000  # skipped lines that are named one by one; all are counted
_ALWAYS_HASHED = 64 << 20  # larger files are compared by size when a folder is opened
_PROGRESS_EVERY = 50_000
_LEFTOVER = re.compile(r"\.(?:building|replaced)-([0-9a-f]{64}-v\d+)")

Progress = Callable[[str, int], None]
"""Called with (phase, documents so far); the phases are ``read`` and ``indexed``."""


def build_index(source: Source, root: str | Path, *, progress: Progress | None = None) -> Path:
    """The index folder of a catalogue file, built unless a complete one is there.

    Plain, gzip or zstd JSON lines are streamed; memory holds about 60 bytes a document and the postings of the index
    (2.5 million documents: below 1 GB). The same content gives the same answers, whatever the packing.

    Raises:
        Abort: the file or the root cannot be opened.
        FailPartition: the file is damaged or changes while it is read, or the disk refuses.
    """
    digest = content_digest(source)
    folder = Path(root) / f"{digest}-v{FORMAT}"
    if damage_of(folder) is None:
        return folder
    try:
        Path(root).mkdir(parents=True, exist_ok=True)
        with _building(folder):
            if damage_of(folder) is None:  # another process was faster
                return folder
            _sweep(folder)
            staging = folder.with_name(f".building-{folder.name}")
            try:
                staging.mkdir()
                _write(source, digest, staging, progress or (lambda phase, done: None))
                _publish(staging, folder)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise FailPartition(f"cannot build the search index below {root}: {error}") from error
    return folder


def open_world(folder: str | Path) -> World:
    """Catalogue and search of a built folder, memory-mapped.

    Raises:
        FailPartition: the folder is incomplete or damaged; ``build_index`` builds it again.
    """
    folder = Path(folder)
    reason = damage_of(folder)
    if reason:
        raise FailPartition(f"the search index {folder} cannot be used: {reason}; build it again")
    manifest = _manifest(folder)
    examples = [SkippedLine(*entry) for entry in manifest["examples"]]
    documents = CatalogueStore(folder, manifest["digest"], manifest["skipped"], examples)
    return World(documents, SearchIndex(documents, open_ranking(folder / WORDS)))


def world_of(source: Source, root: str | Path, *, progress: Progress | None = None) -> World:
    """``build_index``, then ``open_world``."""
    return open_world(build_index(source, root, progress=progress))


def damage_of(folder: str | Path, *, thorough: bool = False) -> str | None:
    """Why a folder cannot be used, in words, or None.

    Every file must have its size, and the small ones (all but documents and postings, up to 64 MiB) their digest.

    Args:
        thorough: compare the digests of the large files too; reads everything.
    """
    folder = Path(folder)
    manifest = _manifest(folder)
    if not manifest:
        return "no complete manifest"
    made = (manifest.get("format"), manifest.get("engine"), manifest.get("byteorder"))
    if made != (FORMAT, engine_version(), sys.byteorder):
        return f"built by another version: {made}"
    for name, entry in manifest["files"].items():
        try:
            size = (folder / name).stat().st_size
            if size != entry["bytes"]:
                return f"{name} has {size} bytes instead of {entry['bytes']}"
            if (thorough or size <= _ALWAYS_HASHED) and _file_digest(folder / name) != entry["sha256"]:
                return f"{name} has other content than when it was built"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


def _write(source: Source, digest: str, staging: Path, progress: Progress) -> None:
    """Everything of a version, the manifest last."""
    hasher = hashlib.sha256()

    def hashed() -> Iterator[bytes]:
        for piece in inflated(source):
            hasher.update(piece)
            yield piece

    skips = _Skips()
    with StoreWriter(staging) as writer:
        for number, line in enumerate(lines_of(hashed())):
            if not line.strip(BLANK):
                continue
            try:
                writer.add(number, read_document(line))
            except RejectRow as error:
                skips.add(SkippedLine(number, error.reason, error.detail))
            if number % _PROGRESS_EVERY == 0:
                progress("read", number)
        if hasher.hexdigest() != digest:
            raise FailPartition("the product catalogue changed while it was read; run it again")
        for number, product_id in writer.finish():
            skips.add(SkippedLine(number, "duplicate_product_id", product_id[:80]))
        (staging / WORDS).mkdir()
        ranking = write_ranking(_counted(writer.texts(), progress), staging / WORDS)
    _write_manifest(staging, digest, len(ranking), skips)


def _counted(texts: Iterator[str], progress: Progress) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number % _PROGRESS_EVERY == 0:
            progress("indexed", number)
        yield text


class _Skips:
    """Counts all skipped lines and names the first ones of them."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.examples: list[SkippedLine] = []

    def add(self, entry: SkippedLine) -> None:
        self.counts[entry.reason] = self.counts.get(entry.reason, 0) + 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(entry)


def _write_manifest(staging: Path, digest: str, documents: int, skips: _Skips) -> None:
    names = [*store.STORE_FILES]
    # tantivy leaves lock files, which every reader may touch
    names += sorted(f"{WORDS}/{path.name}" for path in (staging / WORDS).iterdir() if not path.name.endswith(".lock"))
    files = {}
    for name in names:
        fsync_path(staging / name)
        files[name] = {"bytes": (staging / name).stat().st_size, "sha256": _file_digest(staging / name)}
    manifest = {
        "format": FORMAT,
        "engine": engine_version(),
        "byteorder": sys.byteorder,
        "digest": digest,
        "documents": documents,
        "skipped": dict(sorted(skips.counts.items())),
        "examples": [
            [entry.line, entry.reason, entry.detail] for entry in sorted(skips.examples, key=lambda entry: entry.line)
        ],
        "files": files,
    }
    whole = manifest | {"sha256": digest_json(manifest)}
    (staging / MANIFEST).write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2))
    for path in (staging / MANIFEST, staging / WORDS, staging):
        fsync_path(path)


def _manifest(folder: Path) -> dict[str, Any]:
    """The manifest, or ``{}`` when there is none, or one that is not as it was written."""
    try:
        value = orjson.loads((folder / MANIFEST).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    if not isinstance(value, dict) or value.pop("sha256", None) != digest_json(value):
        return {}
    return value


def _publish(staging: Path, folder: Path) -> None:
    """Put the finished build in its place; a damaged folder there makes room, and who maps it keeps it."""
    replaced = folder.with_name(f".replaced-{folder.name}")
    if folder.exists():
        folder.rename(replaced)
    staging.rename(folder)
    fsync_path(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def _building(folder: Path) -> Iterator[None]:
    """Hold the lock of a version; waits while another process builds it.

    Raises:
        Abort: the root is on a file system without locks, or cannot be written.
    """
    try:
        with _lock_file(folder.name, folder.parent) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
    except PermissionError as error:
        raise Abort(f"cannot write below {folder.parent}: {error.strerror}") from error


@contextmanager
def _lock_file(name: str, root: Path) -> Iterator[int]:
    descriptor = os.open(root / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sweep(folder: Path) -> None:
    """Remove what killed builds left: of this version, whose lock is held, and of every version whose lock is free."""
    for path in sorted(folder.parent.iterdir()):
        found = _LEFTOVER.fullmatch(path.name)
        if found is None:
            continue
        if found.group(1) == folder.name:
            shutil.rmtree(path)
            continue
        with _lock_file(found.group(1), folder.parent) as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # somebody builds it right now
                continue
            shutil.rmtree(path, ignore_errors=True)


def _file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
