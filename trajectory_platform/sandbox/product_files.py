"""Catalogue files as bytes: plain, gzip or zstd JSON lines, read as a stream and named by what is in them.

Nothing here holds a whole file: a catalogue of 2.5 million documents is about 5 GB of text.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias

from trajectory_platform.errors import Abort, FailPartition

Source: TypeAlias = str | Path | bytes | Callable[[], IO[bytes]]
"""A file, its bytes, or a function that opens it anew (an object store); packing is told from the first bytes."""

MAX_LINE_BYTES = 1 << 20  # the largest real document has 5.2 KB (domain 3)
_CHUNK = 1 << 20
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


def inflated(source: Source) -> Iterator[bytes]:
    """The inflated content in pieces of at most 1 MiB.

    Raises:
        Abort: the file cannot be opened.
        FailPartition: its compression is damaged: nobody knows what is missing.
    """
    try:
        stream = _opened(source)
    except OSError as error:
        raise Abort(f"cannot read the product catalogue: {error}") from error
    with stream:
        try:
            yield from _pieces(stream)
        except (OSError, EOFError, zlib.error) as error:
            raise FailPartition(f"the product catalogue is damaged: {error}; fetch it again") from error


def content_digest(source: Source) -> str:
    """Hex SHA-256 of the inflated bytes: the same for every packing of one text.

    The order of the lines is part of it. Reordered lines hold the same documents and give the same answers, yet
    telling that would take parsing every document before one knows that there is nothing to do.
    """
    hasher = hashlib.sha256()
    for piece in inflated(source):
        hasher.update(piece)
    return hasher.hexdigest()


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends; of one that is too long (a decompression bomb has no line ends) only the beginning,
    which is longer than ``MAX_LINE_BYTES``."""
    rest = b""
    first = True
    for piece in pieces:
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()[: MAX_LINE_BYTES + 1]
        if first and lines:
            lines[0] = lines[0].removeprefix(_BOM)
            first = False
        yield from lines
    if rest:
        yield rest.removeprefix(_BOM) if first else rest


def _opened(source: Source) -> IO[bytes]:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    return open(source, "rb") if isinstance(source, str | Path) else source()


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    head = stream.read(4)
    whole = _Rejoined(head, stream)
    if head.startswith(_ZSTD):
        import pyarrow as pa

        with pa.CompressedInputStream(pa.PythonFile(whole, mode="r"), "zstd") as unpacked:
            while piece := unpacked.read(_CHUNK):
                yield piece
    elif head.startswith(_GZIP):
        with gzip.GzipFile(fileobj=io.BufferedReader(whole, _CHUNK)) as unpacked:
            while piece := unpacked.read(_CHUNK):
                yield piece
    else:
        while piece := whole.read(_CHUNK):
            yield piece


class _Rejoined(io.RawIOBase):
    """A stream whose first bytes were read to see what it is; works for streams that cannot seek."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        super().__init__()
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(data) :] if self._head else b""
        buffer[: len(data)] = data
        return len(data)
