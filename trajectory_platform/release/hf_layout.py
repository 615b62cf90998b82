"""The Hugging Face datasets layout: ``data/{split}-00000-of-00002.parquet``, one schema, texts as they are.

Same rows in the same order give the same bytes (with the same pyarrow): row groups and shards are closed by counts and
sizes of the rows, never by time. ``datasets`` needs no code of ours to load it, and none is ever asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import RejectRow
from trajectory_platform.release.rows import COLUMNS, Row, SetAside, schema

if TYPE_CHECKING:
    import pyarrow.parquet as pq

DATA = "data"
GROUP_ROWS = 256
GROUP_BYTES = 64 << 20
SHARD_BYTES = 256 << 20  # of text, before compression
MAX_GROUP_BYTES = 1 << 30  # uncompressed, as a file that is read back declares it
SHARD = re.compile(r"data/(train|validation)-(\d{5})-of-(\d{5})\.parquet")
_TEXTS = ("messages", "tools")
_READ_ROWS = 64


class Shards:
    """Writes the shards of one split; ``close`` names them, as the names say how many there are."""

    def __init__(self, folder: Path, split: str, shard_bytes: int = SHARD_BYTES) -> None:
        self._folder, self._split, self._shard_bytes = folder / DATA, split, shard_bytes
        self._group: list[Row] = []
        self._group_bytes = self._bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._parts: list[Path] = []

    def add(self, row: Row) -> None:
        self._group.append(row)
        self._group_bytes += sum(len(row[name]) for name in _TEXTS)
        if len(self._group) >= GROUP_ROWS or self._group_bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> list[str]:
        """Names of the shards below the folder of the export; none for a split without rows."""
        self._flush()
        self._end_shard()
        names = []
        for number, part in enumerate(self._parts):
            name = f"{self._split}-{number:05d}-of-{len(self._parts):05d}.parquet"
            os.replace(part, part.with_name(name))
            names.append(f"{DATA}/{name}")
        return names

    def abandon(self) -> None:
        """Let go of the open file; the folder is thrown away."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._group:
            return
        writer = self._writer or self._open()
        writer.write_table(pa.Table.from_pylist(self._group, schema=schema()), row_group_size=GROUP_ROWS)
        self._bytes += self._group_bytes
        self._group, self._group_bytes = [], 0
        if self._bytes >= self._shard_bytes:
            self._end_shard()

    def _open(self) -> pq.ParquetWriter:
        import pyarrow.parquet as pq

        self._folder.mkdir(exist_ok=True)
        part = self._folder / f"{self._split}.{len(self._parts)}"
        self._parts.append(part)
        light = [name for name in COLUMNS if name not in _TEXTS]
        self._writer = pq.ParquetWriter(
            part,
            schema(),
            compression="zstd",
            use_dictionary=light,
            write_statistics=[name for name in light if name != "uses"],
            write_page_checksum=True,
            store_schema=False,
        )
        return self._writer

    def _end_shard(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer, self._bytes = None, 0


def read_shard(path: Path, name: str) -> Iterator[tuple[int, Row | SetAside]]:
    """(0-based place, row) of a shard; a file that cannot be read is one set-aside row for what is missing of it.

    Only the declared columns in the declared types are read: no extension type, nothing that runs code.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
            _check_shape(file)
            for batch in file.iter_batches(batch_size=_READ_ROWS, use_threads=False):
                for row in batch.to_pylist():
                    yield place, row
                    place += 1
    except RejectRow as error:
        yield place, SetAside(name, place, error.reason, error.detail)
    except (OSError, ValueError, pa.ArrowException) as error:
        yield place, SetAside(name, place, "damaged_file", " ".join(str(error).split())[:200])


def _check_shape(file: Any) -> None:
    declared = schema()
    told = file.schema_arrow
    if told.names != declared.names:
        raise RejectRow("schema_differs", f"columns {', '.join(map(ascii, told.names))[:200]}")
    for name in declared.names:
        if told.field(name).type != declared.field(name).type:
            raise RejectRow("schema_differs", f"{name} is {str(told.field(name).type)[:80]}")
    for number in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(number).total_byte_size
        if not 0 <= size <= MAX_GROUP_BYTES:
            raise RejectRow("too_large", f"row group {number} declares {size} bytes")
