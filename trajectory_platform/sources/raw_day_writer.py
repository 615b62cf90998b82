"""Writes the raw-day layout of design 5: a local folder (atomic rename) or ``s3://`` (whole-object put).

A file is there completely or not at all, whenever the process dies. Names are composed from ids that
``identity.safe_id`` leaves as they are, never from text of a server. What is equal already is not written again.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Any

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow, RetryLater
from trajectory_platform.identity import safe_id
from trajectory_platform.sources.stores import LocalStore, S3Store, attempt, connect_s3

if TYPE_CHECKING:
    import pyarrow.fs

ARTIFACT_SUFFIX = ".json.gz"
_STAGING = ".staging"


class RawDayWriter:
    """Files of raw days below a data root.

    Args:
        data_root: a folder, or ``s3://bucket/prefix`` (endpoint and credentials from the ``AWS_*`` variables).
    """

    def __init__(self, data_root: str) -> None:
        self._remote = data_root.startswith("s3://")
        self._store: LocalStore | S3Store = S3Store(data_root) if self._remote else LocalStore(data_root)
        self._root = data_root.removeprefix("s3://").strip("/") if self._remote else os.path.expanduser(data_root)
        self._connected: pyarrow.fs.S3FileSystem | None = None

    def artifact_uri(self, day: date, eval_run_id: str, problem_id: str) -> str:
        """Where an artifact lies, relative to the root; the ids are replaced where they are no safe names."""
        return f"{day.isoformat()}/artifacts/{safe_id(eval_run_id)}/{safe_id(problem_id)}{ARTIFACT_SUFFIX}"

    def artifacts(self, day: date) -> dict[str, int]:
        """uri -> size of every artifact file of a day."""
        return dict(self._store.walk(f"{day.isoformat()}/artifacts"))

    def read(self, uri: str) -> bytes | None:
        """The bytes of a file, or None when there is none."""
        try:
            return self._store.read(uri)
        except RejectRow as error:
            if error.reason == "not_found":
                return None
            raise

    def write(self, uri: str, data: bytes) -> None:
        """Put one file, whole or not at all; it is on the disk when this returns.

        Raises:
            RetryLater: ``storage_unavailable`` (the disk is full or read-only, the object store does not answer).
            Abort: the object store refuses access, or has no such bucket.
        """
        if self._remote:
            attempt(lambda: self._put(uri, data), what=f"s3://{self._root}/{uri}")
            return
        try:
            self._replace(uri, data)
        except OSError as error:
            words = f"{self._root!a} cannot be written: {error.strerror or type(error).__name__}"
            raise RetryLater("storage_unavailable", words, 60.0) from error

    def clean(self, older_than_s: float = 3600.0) -> None:
        """Remove unfinished files of processes that were killed."""
        folder = os.path.join(self._root, _STAGING)
        if self._remote or not os.path.isdir(folder):
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process has just put it in its place
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > older_than_s:
                        os.unlink(entry.path)

    def _replace(self, uri: str, data: bytes) -> None:
        path = os.path.join(self._root, uri)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        handle, staged = tempfile.mkstemp(dir=self._staging(), prefix="part-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(staged, 0o644)
            os.replace(staged, path)
        except BaseException:
            if os.path.exists(staged):
                os.unlink(staged)
            raise

    def write_if_changed(self, uri: str, data: bytes) -> bool:
        """``write`` unless the file holds exactly this already; whether it was written."""
        if self.read(uri) == data:
            return False
        self.write(uri, data)
        return True

    def write_lines(self, uri: str, records: Iterable[Any]) -> bool:
        """``write_if_changed`` of JSON lines."""
        return self.write_if_changed(uri, "".join(jsontext.dumps_line(record) + "\n" for record in records).encode())

    def remove(self, uri: str) -> None:
        """Remove one file; nothing happens when there is none."""
        if self._remote:
            if self.read(uri) is not None:
                attempt(lambda: self._fs.delete_file(f"{self._root}/{uri}"), what=uri)
            return
        try:
            os.unlink(os.path.join(self._root, uri))
        except FileNotFoundError:
            return

    @property
    def _fs(self) -> pyarrow.fs.S3FileSystem:
        if self._connected is None:
            self._connected = connect_s3()
        return self._connected

    def _put(self, uri: str, data: bytes) -> None:
        # Nothing is visible before the stream is closed; one that fails is not completed.
        with self._fs.open_output_stream(f"{self._root}/{uri}", compression=None) as stream:
            stream.write(data)

    def _staging(self) -> str:
        """Unfinished files lie beside the days, on the same file system, where no day sees them."""
        folder = os.path.join(self._root, _STAGING)
        os.makedirs(folder, exist_ok=True)
        return folder
