"""Where raw files lie: a local folder or an S3 prefix. Both list completely and read whole files.

Only a fetch from the API writes here (``sources.raw_day_writer``). Paths are relative to the root, separated by ``/``.
"""

from __future__ import annotations

import os
import stat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from trajectory_platform.errors import Abort, RejectRow
from trajectory_platform.lake.object_store import TRIES as TRIES
from trajectory_platform.lake.object_store import attempt as attempt
from trajectory_platform.lake.object_store import classify_storage_error as classify_storage_error
from trajectory_platform.lake.object_store import connect_s3 as connect_s3

if TYPE_CHECKING:
    import pyarrow.fs


class LocalStore:
    """Files below a local folder."""

    parallel_reads = 1

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(os.path.expanduser(root))

    def folders(self, path: str) -> list[str]:
        """Names of the folders directly below ``path``, sorted."""
        try:
            with os.scandir(os.path.join(self._root, path)) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def walk(self, path: str) -> list[tuple[str, int]]:
        """(uri, size) of every file below ``path``, sorted by uri.

        A link to a file is listed, also one that leads out of the root: reading it is refused there with a reason,
        so that it is counted. Links to folders are not followed. A name that is no UTF-8 is listed with its bytes as
        ``\\xNN`` and cannot be read.
        """
        found: list[tuple[str, int]] = []
        pending = [path]
        while pending:
            folder = pending.pop()
            try:
                with os.scandir(os.path.join(self._root, folder)) as entries:
                    for entry in entries:
                        uri = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(uri)
                        elif entry.is_symlink():
                            found.append((_storable(uri), 0))
                        else:
                            found.append((_storable(uri), entry.stat(follow_symlinks=False).st_size))
            except (FileNotFoundError, NotADirectoryError):
                continue
        return sorted(found)

    def leads_out(self, path: str) -> bool:
        """Whether the path, with its links followed, is outside the root."""
        return not os.path.realpath(os.path.join(self._root, path)).startswith(self._root.rstrip(os.sep) + os.sep)

    def read(self, uri: str) -> bytes:
        """The bytes of a file; see ``FileSource.read``."""
        check_uri(uri)
        path = os.path.realpath(os.path.join(self._root, uri))
        if self.leads_out(uri):
            raise RejectRow("outside_root", f"{uri!a} leads out of the data root")
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # opening a named pipe would wait for a writer for ever
                raise RejectRow("unreadable_file", f"{uri!a} is no regular file")
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError as error:
            raise RejectRow("name_not_utf8" if "\\x" in uri else "not_found", f"{uri!a}") from error
        except (OSError, ValueError) as error:
            raise RejectRow("unreadable_file", f"{uri!a}: {type(error).__name__}") from error


class S3Store:
    """Objects below ``s3://bucket/prefix``, through pyarrow, which follows the continuation token of every page."""

    parallel_reads = 16

    def __init__(self, root: str) -> None:
        bucket, _, prefix = root.removeprefix("s3://").partition("/")
        if not bucket or "@" in bucket or "?" in root:
            shown = root.rpartition("@")[2]
            raise Abort(f"data root {shown!r} must be s3://bucket/prefix; credentials come from the environment")
        self._base = f"{bucket}/{prefix}".strip("/")
        self._connected: pyarrow.fs.S3FileSystem | None = None

    @property
    def _fs(self) -> pyarrow.fs.S3FileSystem:
        if self._connected is None:
            self._connected = connect_s3()
        return self._connected

    def folders(self, path: str) -> list[str]:
        """Names of the prefixes directly below ``path``, sorted."""
        import pyarrow.fs

        return sorted(
            info.base_name for info in self._list(path, recursive=False) if info.type == pyarrow.fs.FileType.Directory
        )

    def walk(self, path: str) -> list[tuple[str, int]]:
        """(uri, size) of every object below ``path``, sorted by uri."""
        import pyarrow.fs

        return sorted(
            (info.path.removeprefix(self._base + "/"), int(info.size))
            for info in self._list(path, recursive=True)
            if info.type == pyarrow.fs.FileType.File
        )

    def leads_out(self, path: str) -> bool:
        """Never: object stores have no links."""
        return False

    def read(self, uri: str) -> bytes:
        """The bytes of an object; see ``FileSource.read``."""
        check_uri(uri)

        def fetch() -> bytes:
            # By default pyarrow inflates whatever is named .gz; the bytes here are judged by content, not by name.
            with self._fs.open_input_stream(f"{self._base}/{uri}", compression=None) as stream:
                return bytes(stream.read())

        return attempt(fetch, what=uri)

    def _list(self, path: str, *, recursive: bool) -> list[pyarrow.fs.FileInfo]:
        import pyarrow.fs

        folder = f"{self._base}/{path}".rstrip("/")
        selector = pyarrow.fs.FileSelector(folder, allow_not_found=True, recursive=recursive)
        return attempt(lambda: list(self._fs.get_file_info(selector)), what=folder)


def _storable(uri: str) -> str:
    """A listed path as text that a column can hold: bytes that are no UTF-8 are shown escaped."""
    return uri.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def check_uri(uri: str) -> None:
    """Refuse a uri that is absolute, climbs, or could not have come from a listing.

    Raises:
        RejectRow: ``outside_root``.
    """
    parts = PurePosixPath(uri).parts
    if not uri or "\x00" in uri or uri.startswith("/") or "://" in uri or ".." in parts or os.path.isabs(uri):
        raise RejectRow("outside_root", f"{uri!a} is no relative path below the data root")
