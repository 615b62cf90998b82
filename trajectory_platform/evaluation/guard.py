"""The last look before a model is trained or scored: nothing of one side may be on the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trajectory_platform.errors import FailPartition

SHARED_KEYS = ("trace_id", "cluster_id", "problem_key", "content_hash", "reward_product_ids")


def assert_no_overlap(train: Iterable[Mapping[str, Any]], held_out: Iterable[Mapping[str, Any]]) -> None:
    """No trace, leak cluster, problem, content or reward product of the training rows occurs among dev or sealed rows
    (case C14).

    Both are rows with the keys of ``SHARED_KEYS``, each a value or several; a key that is absent, null or empty on one
    side is not compared.

    Raises:
        FailPartition: names one row of either side and what they share.
    """
    seen: dict[tuple[str, str], str] = {}
    for row in held_out:
        for key, value in _values(row):
            seen.setdefault((key, value), row["trace_id"])
    for row in train:
        for key, value in _values(row):
            other = seen.get((key, value))
            if other is not None:
                raise FailPartition(
                    f"leak: training row {row['trace_id']} and held-out row {other} share {key} {value}"
                )


def _values(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in SHARED_KEYS:
        value = row.get(key)
        if isinstance(value, str):
            if value:
                yield key, value
        elif value is not None:
            for one in sorted(value):
                yield key, one
