"""BM25 over the texts of all products, by tantivy; of equal scores the smaller ordinal, which is the smaller id, first.

Texts are added in ordinal order by one thread and fit into one segment, so tantivy's document number is the ordinal
and its own rule for ties is ours. Should a catalogue ever need more than one segment, the ordinal is read from a
column and ties are put in order here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A limit, not an allocation: a million products of 30 words take about 200 MB. Below it everything is one segment.
HEAP_BYTES = 2 << 30
_TEXT = "text"
_ORDINAL = "ordinal"


def write_ranking(texts: Iterable[str], folder: Path | None = None, *, heap_bytes: int = HEAP_BYTES) -> Ranking:
    """Index the texts, which come in ordinal order; in memory without a folder, else into an empty folder."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field(_TEXT, stored=False, tokenizer_name="en_stem", index_option="freq")
    builder.add_integer_field(_ORDINAL, fast=True)
    # sorted: a merge of segments keeps the order, so that one segment always counts in ordinals
    index = tantivy.Index(builder.build(), None if folder is None else str(folder), sort_by_field=_ORDINAL)
    writer = index.writer(heap_size=heap_bytes, num_threads=1)
    for ordinal, text in enumerate(texts):
        writer.add_document(tantivy.Document(text=text, ordinal=ordinal))
    writer.commit()
    writer.wait_merging_threads()
    return Ranking(index)


def open_ranking(folder: Path) -> Ranking:
    """A ranking that ``write_ranking`` wrote, memory-mapped; nothing watches the folder for changes."""
    import tantivy

    index = tantivy.Index.open(str(folder))
    index.config_reader("manual")
    return Ranking(index)


def engine_version() -> str:
    """Names the engine and its file format; files of another one are built again."""
    import tantivy

    return str(tantivy.__version__)


class Ranking:
    """Answers which products match some words best."""

    def __init__(self, index: Any) -> None:
        index.reload()
        self._index = index
        self._searcher = index.searcher()

    def __len__(self) -> int:
        return int(self._searcher.num_docs)

    @property
    def segments(self) -> int:
        """Of how many segments the index is made; one unless the postings outgrew ``heap_bytes``."""
        return int(self._searcher.num_segments)

    def best(self, words: str, limit: int) -> NDArray[np.uint32]:
        """The ordinals of the ``limit`` best-ranked products that hold any of the words, in rank order.

        Args:
            words: as ``search.words_of`` returns them: nothing that tantivy could read as an operator.
        """
        import numpy as np

        query = self._index.parse_query(words, [_TEXT])
        hits = self._searcher.search(query, limit, count=False).hits
        if self.segments == 1:
            return np.fromiter((address.doc for _, address in hits), np.uint32, len(hits))
        asked = limit
        while len(hits) == asked and hits[-1][0] == hits[limit - 1][0]:  # a tie goes on behind the cut
            asked *= 4
            hits = self._searcher.search(query, asked, count=False).hits
        ordinals = self._searcher.fast_field_values(_ORDINAL, [address for _, address in hits])
        ranked = sorted((-score, ordinal) for (score, _), ordinal in zip(hits, ordinals, strict=True))
        return np.array([ordinal for _, ordinal in ranked[:limit]], np.uint32)
