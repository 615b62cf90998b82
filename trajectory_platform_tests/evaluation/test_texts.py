"""Texts are taken from the day that the splits name, whatever else the corpus holds."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.texts import chosen_texts


def _corpus(*rows: tuple[str, str, str]) -> pa.Table:
    return pa.Table.from_pylist([{"trace_id": t, "day": d, "messages": m, "tools": "[]"} for t, d, m in rows])


def test_a_trace_judged_on_two_days_gives_the_text_of_the_named_day() -> None:
    corpus = _corpus(("b", "2026-05-02", "old"), ("a", "2026-05-02", "a"), ("b", "2026-05-03", "new"))
    chosen = [{"trace_id": "b", "trace_day": "2026-05-03"}, {"trace_id": "a", "trace_day": "2026-05-02"}]
    for batches in (corpus, iter(corpus.to_batches(max_chunksize=1))):
        assert [record["messages"] for _, record in chosen_texts(chosen, batches)] == ["a", "new"]


def test_a_row_of_the_splits_that_the_corpus_lacks_is_named() -> None:
    with pytest.raises(FailPartition, match="gone"):
        chosen_texts([{"trace_id": "gone", "trace_day": "2026-05-02"}], _corpus(("a", "2026-05-02", "a")))
