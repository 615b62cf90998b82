"""What the lake does with files, on a local disk (``LocalStorage``) or in an object store (``s3_storage.S3Storage``).

Paths are relative to the lake and separated by ``/``. Two properties differ, and the code above asks for them by
``remote``: a local lease ends only with its process, one in an object store may expire before its holder has ended;
and there every question costs a request. So nothing rests on a remote lease alone: small files are replaced only
where they are what the writer has seen (``seen``), and a Delta commit only where the slot is (``snapshots``).
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trajectory_platform.errors import Abort, FailPartition, PlatformError
from trajectory_platform.lake.lease import table_lease

if TYPE_CHECKING:
    import pyarrow.fs

LOCAL_VARIABLE = "TRAJECTORY_PLATFORM_LAKE_LOCAL"
LOCAL_FOLDER = "data/lake_local"
LEASE_TIMEOUT_S = 600.0

_S3_URI = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([A-Za-z0-9._=-]+(?:/[A-Za-z0-9._=-]+)*)?/?)?")


class Content(NamedTuple):
    """A small file as it was read; ``tag`` is its version in an object store."""

    data: bytes
    tag: str = ""


ANYTHING = Content(b"", "*")
"""``seen`` of a write that replaces whatever is there."""


class Storage(Protocol):
    """What the lake does with files.

    Attributes:
        remote: leases may expire, questions cost requests, errors may be the network's.
        workspace: local folder for what a process needs beside the lake: staged files, cached indexes, journals.
    """

    remote: bool
    workspace: Path

    def shown(self, path: str) -> str:
        """A path as people write it."""

    def read(self, path: str) -> Content | None:
        """A small file; None where there is none. Raises OSError (local), RetryLater or Abort (remote)."""

    def read_many(self, paths: Iterable[str]) -> dict[str, Content | None]:
        """Many small files."""

    def write(self, path: str, data: bytes, seen: Content | None = ANYTHING) -> Content:
        """Replace a small file whole or not at all, durably.

        Args:
            seen: what it must be now (None: absent). Only a remote store tests it; locally the lease holds.

        Raises:
            FailPartition: another process wrote it meanwhile.
        """

    def appended(self, path: str, seen: Content | None, data: bytes) -> AbstractContextManager[None]:
        """Append to a file that is as ``seen``; taken back where the block fails."""

    def names(self, folder: str) -> list[str]:
        """Names of the files directly below a folder, sorted; none where there is no folder."""

    def walk(self, folder: str) -> dict[str, int]:
        """Every file below a folder -> bytes."""

    def sizes(self, folder: str, names: Iterable[str]) -> dict[str, int]:
        """Those of some files below a folder that are there -> bytes."""

    def exists(self, folder: str) -> bool:
        """Is there such a folder (remote: is anything below it)?"""

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens where it is gone."""

    def place(self, staged: Path, path: str) -> None:
        """Bring a finished local file to its place; it must not be there yet."""

    def settle(self, folder: str, files: Mapping[str, int], log_entry: str) -> None:
        """Make the files of a commit below a folder, and its log entry, durable before a manifest names them.

        Raises:
            FailPartition: one of them is gone (remote: removed behind a writer whose lease had expired).
        """

    def forget_uploads(self, folder: str) -> None:
        """Drop what killed writers left half uploaded below a folder."""

    def lease(self, name: str, timeout_s: float = LEASE_TIMEOUT_S) -> AbstractContextManager[None]:
        """One writer at a time. Raises FailPartition naming the holder when it is not free within ``timeout_s``."""

    def delta(self, folder: str) -> tuple[str, dict[str, str] | None]:
        """URI and storage options for deltalake."""

    def filesystem(self, folder: str) -> pyarrow.fs.FileSystem:
        """The files below a folder for Arrow."""

    def source(self, path: str) -> Any:
        """A Parquet file as pyarrow opens it."""

    def parquet_options(self) -> dict[str, Any]:
        """How pyarrow reads Parquet here."""

    def error(self, error: BaseException, doing: str) -> PlatformError:
        """An error of a library as what the runner does with it."""


def open_storage(uri: str, local: str | Path | None = None) -> Storage:
    """The storage of a lake.

    Args:
        uri: a local folder or ``s3://bucket/prefix``.
        local: local folder for the workspaces of remote lakes; None = ``TRAJECTORY_PLATFORM_LAKE_LOCAL``.

    Raises:
        Abort: another scheme, or a name that a library would read differently.
    """
    if "://" not in uri:
        return LocalStorage(uri)
    found = _S3_URI.fullmatch(uri)
    if found is None or any(part in (".", "..") for part in uri.split("/")):
        shown = uri.rpartition("@")[2] if "@" in uri else uri
        raise Abort(
            f"lake_uri {shown!r:.120} must be a local folder or s3://bucket/prefix with letters, digits and . _ - = "
            "only; credentials come from the environment"
        )
    from trajectory_platform.lake.s3_storage import S3Storage

    place = local or os.environ.get(LOCAL_VARIABLE) or LOCAL_FOLDER
    return S3Storage(found[1], found[2] or "", Path(os.path.expanduser(place)).resolve())


class LocalStorage:
    """A folder on a local disk, or on a network disk that keeps ``flock`` and ``rename``."""

    remote = False

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()  # links and `..` once, before any library reads the path its own way
        if "%" in str(self.root):
            raise Abort(
                f"lake_uri {self.root}: a folder with '%' in its name would be written elsewhere (Delta decodes it)"
            )
        self.workspace = self.root

    def __str__(self) -> str:
        return str(self.root)

    def shown(self, path: str) -> str:
        return f"{self.root}/{path}"

    def read(self, path: str) -> Content | None:
        try:
            return Content((self.root / path).read_bytes())
        except FileNotFoundError:
            return None

    def read_many(self, paths: Iterable[str]) -> dict[str, Content | None]:
        return {path: self.read(path) for path in paths}

    def write(self, path: str, data: bytes, seen: Content | None = ANYTHING) -> Content:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        fsync_path(target.parent)
        return Content(data)

    @contextmanager
    def appended(self, path: str, seen: Content | None, data: bytes) -> Iterator[None]:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab", buffering=0) as stream:
            try:
                _write_all(stream.fileno(), data)
                os.fsync(stream.fileno())
                yield
            except OSError:
                os.ftruncate(stream.fileno(), len(seen.data) if seen else 0)  # a full disk leaves no half line
                raise

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self.root / folder) if not entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def walk(self, folder: str) -> dict[str, int]:
        top = self.root / folder
        found = {}
        for parent, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                path = Path(parent, name)
                found[str(path.relative_to(top))] = path.lstat().st_size
        return found

    def sizes(self, folder: str, names: Iterable[str]) -> dict[str, int]:
        found = {}
        for name in names:
            path = self.root / folder / name
            if path.is_file() and not path.is_symlink():
                found[name] = path.stat().st_size
        return found

    def exists(self, folder: str) -> bool:
        return (self.root / folder).is_dir()

    def delete(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def place(self, staged: Path, path: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(staged, target)
        fsync_path(target.parent)

    def settle(self, folder: str, files: Mapping[str, int], log_entry: str) -> None:
        top = self.root / folder
        paths = [top / name for name in (*files, log_entry)]
        for path in paths:
            if path.exists():
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
        for parent in {path.parent for path in paths}:
            if parent.is_dir():
                fsync_path(parent)

    def forget_uploads(self, folder: str) -> None:
        """Nothing is uploaded here."""

    def lease(self, name: str, timeout_s: float = LEASE_TIMEOUT_S) -> AbstractContextManager[None]:
        return table_lease(self.root, name, timeout_s)

    def delta(self, folder: str) -> tuple[str, dict[str, str] | None]:
        return str(self.root / folder), None

    def filesystem(self, folder: str) -> pyarrow.fs.FileSystem:
        from pyarrow import fs

        return fs.SubTreeFileSystem(str(self.root / folder), fs.LocalFileSystem())

    def source(self, path: str) -> Any:
        return self.root / path

    def parquet_options(self) -> dict[str, Any]:
        return {"pre_buffer": False}

    def error(self, error: BaseException, doing: str) -> PlatformError:
        # all lines: Delta's first one is "Generic LocalFileSystem error", the cause and the path stand below it
        text = " ".join(str(error).split()) or type(error).__name__
        return FailPartition(f"{doing}: {text[:500]}")


def first_line(error: BaseException) -> str:
    """The first line of an error's text, at most 300 characters."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]


def fsync_path(path: Path) -> None:
    """Have the disk confirm a file, or the entries of a folder (a rename in it)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
