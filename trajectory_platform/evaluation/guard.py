"""The last look before a model is trained or scored: nothing of one side may be on the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trajectory_platform.errors import FailPartition

SHARED_KEYS = ("trace_id", "cluster_id", "problem_key", "content_hash")


def assert_no_overlap(train: Iterable[Mapping[str, Any]], held_out: Iterable[Mapping[str, Any]]) -> None:
    """No trace, leak cluster, problem or content of the training rows occurs among dev or sealed rows (case C14).

    Both are rows with the keys of ``SHARED_KEYS``; a key that is absent or null on one side is not compared.

    Raises:
        FailPartition: names one row of either side and what they share.
    """
    seen: dict[tuple[str, str], str] = {}
    for row in held_out:
        for key in SHARED_KEYS:
            if row.get(key):
                seen.setdefault((key, row[key]), row["trace_id"])
    for row in train:
        for key in SHARED_KEYS:
            other = seen.get((key, row.get(key) or ""))
            if other is not None:
                raise FailPartition(
                    f"leak: training row {row['trace_id']} and held-out row {other} share {key} {row[key]}"
                )
