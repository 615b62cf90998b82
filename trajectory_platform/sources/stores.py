"""Where raw files lie: a local folder or an S3 prefix. Both list completely and read whole files.

The platform never writes here. Paths are relative to the root and separated by ``/``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from trajectory_platform.errors import Abort, PlatformError, RejectRow, RetryLater
from trajectory_platform.identity import parse_utc

if TYPE_CHECKING:
    import pyarrow.fs

T = TypeVar("T")
TRIES = 2  # a storage call that may pass is tried once more, signed anew; never endlessly


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


def connect_s3() -> pyarrow.fs.S3FileSystem:
    """An S3 file system configured by ``AWS_ENDPOINT_URL``, ``AWS_REGION`` and the usual credential variables."""
    import pyarrow.fs

    options: dict[str, Any] = {
        "region": os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    }
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        scheme, _, address = endpoint.rpartition("://")
        options["endpoint_override"] = address.rstrip("/")
        options["scheme"] = scheme or "https"
    return pyarrow.fs.S3FileSystem(connect_timeout=10, request_timeout=60, **options)


def check_uri(uri: str) -> None:
    """Refuse a uri that is absolute, climbs, or could not have come from a listing.

    Raises:
        RejectRow: ``outside_root``.
    """
    parts = PurePosixPath(uri).parts
    if not uri or "\x00" in uri or uri.startswith("/") or "://" in uri or ".." in parts or os.path.isabs(uri):
        raise RejectRow("outside_root", f"{uri!a} is no relative path below the data root")


def attempt(call: Callable[[], T], *, what: str) -> T:
    """Run a storage call at most twice; errors come out classified (each try is signed anew)."""
    for number in range(1, TRIES + 1):
        try:
            return call()
        except (OSError, ValueError) as error:
            classified = classify_storage_error(error, what=what)
            if number == TRIES or not isinstance(classified, RetryLater):
                raise classified from error
    raise AssertionError("unreachable: the last try returns or raises")


_SKEW_CODES = ("RequestTimeTooSkewed", "RequestExpired")
_BUSY_CODES = ("SlowDown", "TooManyRequests", "Throttling", "RequestLimitExceeded")


def classify_storage_error(error: BaseException | Mapping[str, Any], *, what: str = "") -> PlatformError:
    """A storage error as what the runner does with it.

    Args:
        error: an exception of pyarrow, or a mapping ``{status, code, request_time, server_time}`` of an HTTP answer.
        what: the object asked for, for the message.

    Returns:
        ``RetryLater`` (``clock_skew`` with the offset in words, ``rate_limited``, ``storage_unavailable``),
        ``RejectRow("not_found")``, or ``Abort`` where credentials are refused.
    """
    if isinstance(error, Mapping):
        code, status, text = str(error.get("code") or ""), error.get("status"), str(error.get("message") or "")
        offset = _offset_s(error.get("request_time"), error.get("server_time"))
    else:
        text = str(error)
        code = text
        found = re.search(r"HTTP(?: status(?: code)?)? ?:? ?(\d{3})|HTTPCode[:= ]+(\d{3})", text)
        status = int(found.group(1) or found.group(2)) if found else None
        offset = _offset_in_text(text)
    if any(name in code for name in _SKEW_CODES):
        return RetryLater("clock_skew", _skew_words(offset), None)
    if any(name in code for name in _BUSY_CODES) or status in (429, 503):
        return RetryLater("rate_limited", f"storage asks to slow down: {what!a}", 5.0)
    if isinstance(error, FileNotFoundError) or status == 404 or "NoSuchKey" in code or "NoSuchBucket" in code:
        return RejectRow("not_found", f"{what!a}")
    if status in (401, 403) or "AccessDenied" in code or "ACCESS_DENIED" in code or "InvalidAccessKeyId" in code:
        return Abort(f"storage refuses access to {what!a}: check the AWS_* variables")
    return RetryLater("storage_unavailable", f"{what!a}: {text[:300]}", 30.0)


def _offset_s(request_time: Any, server_time: Any) -> float | None:
    """Seconds by which the server's clock is ahead of the request's, or None."""
    asked, answered = parse_utc(request_time), parse_utc(server_time)
    return None if asked is None or answered is None else (answered - asked).total_seconds()


def _offset_in_text(text: str) -> float | None:
    request = re.search(r"RequestTime\W+(\d{8}T\d{6}Z)", text)
    server = re.search(r"ServerTime\W+(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)", text)
    return _offset_s(request.group(1), server.group(1)) if request and server else None


def _skew_words(offset: float | None) -> str:
    advice = (
        "the clocks differ by more than the 15 minutes that are allowed; credentials are not at fault; set the clock"
    )
    if offset is None:
        return f"clock skew: {advice}"
    seconds = abs(round(offset))
    side = "behind" if offset > 0 else "ahead of"
    return (
        f"clock skew: this machine's clock is {seconds // 60} min {seconds % 60} s {side} the server's "
        f"(offset_s={round(offset)}); {advice}"
    )
