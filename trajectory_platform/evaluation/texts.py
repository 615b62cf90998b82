"""The texts of chosen traces, picked from corpus batches as they come: memory is bounded by the choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("trace_id", "day", "messages", "tools")


def chosen_texts(
    chosen: Sequence[dict[str, Any]], corpus: pa.Table | Iterable[pa.RecordBatch]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(row of the splits, its corpus record with ``COLUMNS``), sorted by trace id.

    A trace that was judged on two days stands in the corpus twice; the day the splits name counts.

    Raises:
        FailPartition: the corpus lacks a row that the splits name.
    """
    import pyarrow as pa

    wanted = {(row["trace_id"], row["trace_day"]): row for row in chosen}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    batches = corpus.to_batches(max_chunksize=256) if isinstance(corpus, pa.Table) else corpus
    for batch in batches:
        for record in batch.select(list(COLUMNS)).to_pylist():
            key = (record["trace_id"], record["day"])
            if key in wanted:
                found[key] = record
    missing = sorted(trace_id for trace_id, day in wanted if (trace_id, day) not in found)
    if missing:
        raise FailPartition(f"{len(missing)} rows are in the splits, not in the corpus: {', '.join(missing[:20])}")
    return [(wanted[key], found[key]) for key in sorted(found)]
