"""The content digest: what the rows of a slot are, whatever files, row groups and batches hold them.

Canonical encoding. Each column is cut into five streams of bytes; each stream is hashed with SHA-256 over the rows in
key order. The digest is the SHA-256 of the JSON object ``{"encoding": 1, "rows": n, "columns": [[name, type, [five
stream digests]], ...]}`` in the order of the declared columns. The streams of a column (unused ones stay empty):

- validity: one byte a row, 1 where there is a value;
- text: the length in bytes of each value (64 bit little endian, 0 for null), and the UTF-8 of all values in a row;
- int, float, time: 8 bytes a row, little endian (time: microseconds since 1970 UTC), 0 for null, one NaN for all NaNs;
- bool: one byte a row;
- texts: the number of items of each list (64 bit, 0 for null), then the streams of the items as a text column.

Streams only grow by appending, so batch boundaries cannot show in them, and whole Arrow buffers are hashed at once.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from trajectory_platform.identity import digest_json
from trajectory_platform.lake.tables import Table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


class ContentDigest:
    """Digest of rows that arrive batch by batch, in key order and in the declared schema."""

    def __init__(self, table: Table) -> None:
        self._columns = table.columns
        self._streams = {name: [hashlib.sha256() for _ in range(5)] for name in table.columns}
        self.rows = 0

    def update(self, batch: pa.RecordBatch) -> None:
        """Append the rows of one batch."""
        for name, kind in self._columns.items():
            _add(self._streams[name], kind.rstrip("?"), batch.column(name))
        self.rows += batch.num_rows

    def hexdigest(self) -> str:
        """Hex SHA-256 of everything appended so far."""
        columns = [
            [name, kind, [stream.hexdigest() for stream in self._streams[name]]] for name, kind in self._columns.items()
        ]
        return digest_json({"encoding": 1, "rows": self.rows, "columns": columns})


def table_digest(table: Table, rows: pa.Table) -> str:
    """Digest of a whole table already in key order."""
    digest = ContentDigest(table)
    for batch in rows.to_batches():
        digest.update(batch)
    return digest.hexdigest()


def _add(streams: list[Any], kind: str, array: pa.Array) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.null_count:
        streams[0].update(array.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False))
    else:
        streams[0].update(b"\x01" * len(array))
    if kind == "text":
        _add_text(streams[1:], array)
    elif kind == "texts":
        lengths = pc.list_value_length(array).cast(pa.int64()).fill_null(0)
        streams[1].update(_bytes(lengths.to_numpy(zero_copy_only=False)))
        items = array.flatten()
        streams[2].update(items.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False))
        _add_text(streams[3:], items)
    elif kind == "bool":
        streams[1].update(array.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False))
    elif kind == "float":
        values = array.fill_null(0.0).to_numpy(zero_copy_only=False)
        streams[1].update(_bytes(np.where(np.isnan(values), np.nan, values)))
    else:
        integers = array.cast(pa.int64()).fill_null(0)
        streams[1].update(_bytes(integers.to_numpy(zero_copy_only=False)))


def _add_text(streams: list[Any], array: pa.Array) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.binary_length(array).cast(pa.int64()).fill_null(0)
    streams[0].update(_bytes(lengths.to_numpy(zero_copy_only=False)))
    values = array.drop_null() if array.null_count else array  # the bytes under a null are undefined
    _, offset_buffer, data = values.buffers()
    if not len(values) or data is None:
        return
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)
    first, last = offsets[values.offset], offsets[values.offset + len(values)]
    streams[1].update(memoryview(data)[int(first) : int(last)])


def _bytes(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little)
