"""Writes a ``store.CatalogueStore`` in one pass over the documents, in bounded memory.

Per document about 60 bytes and the id stay in memory (150 MB for 2.5 million); texts and documents go to disk.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from trajectory_platform.jsontext import canonical
from trajectory_platform.sandbox import store
from trajectory_platform.sandbox.products import search_text

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_TEXTS = "texts.tmp"
_BUFFER = 1 << 20


class StoreWriter:
    """Takes documents in any order; ``finish`` puts them into id order.

    Args:
        folder: an empty folder of this writer's own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._documents = (folder / store.DOCUMENTS).open("w+b", buffering=_BUFFER)
        self._texts = (folder / _TEXTS).open("w+b", buffering=_BUFFER)
        self._ids = bytearray()
        self._id_ends = array("q", [0])
        self._starts = array("Q", [0])
        self._text_ends = array("Q", [0])
        self._lines = array("Q")
        self._price = array("d")
        self._services = array("B")
        self._shop = array("Q")
        self._order: NDArray[np.uint64] | None = None

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._documents.close()
        self._texts.close()
        (self._folder / _TEXTS).unlink(missing_ok=True)

    def add(self, line: int, document: Mapping[str, Any]) -> None:
        """One document as ``products.read_document`` returns it from bytes, and the line it stood on."""
        written = self._documents.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
        self._starts.append(self._starts[-1] + written)
        self._text_ends.append(self._text_ends[-1] + self._texts.write(search_text(document).encode()))
        self._ids += document["product_id"].encode()
        self._id_ends.append(len(self._ids))
        fields = store.filter_fields(document)
        self._price.append(fields.price)
        self._services.append(fields.services)
        self._shop.append(fields.shop)
        self._lines.append(line)

    def finish(self) -> Iterator[tuple[int, str]]:
        """Write everything but the documents, which are there; yields (line, product id) of each repeated document.

        Of different documents with one id the first by content stays, as in ``products.load_products``. The files are
        complete when the iterator is used up.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        self._documents.flush()
        self._texts.flush()
        buffers = [None, pa.py_buffer(self._id_ends), pa.py_buffer(self._ids)]
        ids = pa.Array.from_buffers(pa.large_binary(), len(self._lines), buffers)
        order = pc.array_sort_indices(ids).to_numpy()  # stable: of equal ids the earlier line comes first
        ids = ids.take(pa.array(order))
        again = pc.equal(ids.slice(1), ids.slice(0, max(len(ids) - 1, 0))).to_numpy(zero_copy_only=False)
        kept = np.ones(len(order), bool)
        for first, end in _runs(again):
            best = self._best(order[first:end].tolist())
            for place in range(first, end):
                if order[place] != best:
                    kept[place] = False
                    yield self._lines[int(order[place])], ids[place].as_py().decode()
        if not kept.all():
            order, ids = order[kept], ids.filter(pa.array(kept))
        self._write(order, ids)
        self._order = order
        # written: the index, which comes next, needs the memory
        self._ids, self._id_ends, self._starts, self._lines = bytearray(), array("q"), array("Q"), array("Q")
        self._price, self._services, self._shop = array("d"), array("B"), array("Q")

    def texts(self) -> Iterator[str]:
        """What the search looks at, one text a document, in ordinal order; only after ``finish``."""
        assert self._order is not None, "finish comes first"
        source = self._texts.fileno()
        for place in self._order:
            start = self._text_ends[place]
            yield os.pread(source, self._text_ends[place + 1] - start, start).decode()

    def _write(self, order: NDArray[np.uint64], ids: pa.Array) -> None:
        import numpy as np

        _, ends, data = ids.buffers() if len(ids) else (None, None, None)
        id_ends = np.zeros(1, np.uint64) if ends is None else np.frombuffer(ends, np.uint64, len(ids) + 1)
        with (self._folder / store.IDS).open("wb") as file:
            if data is not None:
                file.write(memoryview(data)[: int(id_ends[-1])])
        starts = np.frombuffer(self._starts, np.uint64)
        columns: dict[str, NDArray[Any]] = {
            store.ID_ENDS: id_ends,
            store.STARTS: starts[:-1][order],
            store.LENGTHS: np.diff(starts)[order].astype(np.uint32),
            store.PRICE: np.frombuffer(self._price, np.float64)[order] if len(order) else np.empty(0),
            store.SERVICE_BITS: np.frombuffer(self._services, np.uint8)[order] if len(order) else np.empty(0, np.uint8),
            store.SHOP: np.frombuffer(self._shop, np.uint64)[order] if len(order) else np.empty(0, np.uint64),
        }
        for name, column in columns.items():
            column.tofile(self._folder / name)

    def _best(self, places: list[int]) -> int:
        """The first by content of several documents; of equal ones the earliest."""
        return min(places, key=lambda place: (canonical(self._document(place)), place))

    def _document(self, place: int) -> Any:
        start = self._starts[place]
        return orjson.loads(os.pread(self._documents.fileno(), self._starts[place + 1] - start, start))


def _runs(again: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """(first, end) of each run of equal neighbours, where ``again[i]`` says that item i + 1 equals item i."""
    import numpy as np

    edges = np.flatnonzero(np.diff(np.concatenate(([False], again, [False])).astype(np.int8)))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield first, last + 1
