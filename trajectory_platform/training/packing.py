"""Several contexts in one row, isolated from one another; TRL packs them (best fit decreasing), nothing is cut.

TRL's ``bfd`` cuts what is longer than a row. A context is never longer (``evaluation.context`` saw to that), and what
came out is counted against what went in before a step is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.identity import sha256_hex


def pack_rows(dataset: Any, max_length: int, seed: int) -> Any:
    """A dataset of packed rows from one with ``input_ids``, ``labels``, ``trace_id``, ``leak_cluster``, ``role`` and
    ``context``: the same columns as lists per document (the ids and labels joined), and ``seq_lengths``.

    Packed rows come in an order drawn from the seed: best fit sorts by length, and training by length is not wanted.

    Raises:
        FailPartition: a context is longer than a row, or a token is missing afterwards.
    """
    from datasets import Dataset
    from trl import pack_dataset

    lengths = [len(ids) for ids in dataset["input_ids"]]
    if lengths and max(lengths) > max_length:
        raise FailPartition(f"a context of {max(lengths)} tokens does not fit into a packed row of {max_length}")
    # A dataset of its own: TRL packs a thousand rows at a time, and a column added to a selection lies in other chunks.
    numbered = Dataset.from_dict(
        {
            "input_ids": dataset["input_ids"][:],
            "labels": dataset["labels"][:],
            "document": [[number] * length for number, length in enumerate(lengths)],
        }
    )
    packed = pack_dataset(numbered, max_length, "bfd")
    documents = [_starts(row, sizes) for row, sizes in zip(packed["document"], packed["seq_lengths"], strict=True)]
    if sorted(number for row in documents for number in row) != list(range(len(lengths))) or any(
        size != lengths[number]
        for row, sizes in zip(documents, packed["seq_lengths"], strict=True)
        for number, size in zip(row, sizes, strict=True)
    ):
        raise FailPartition("packing lost or cut a context; nothing was trained")
    packed = packed.remove_columns(["document"])
    for column in ("trace_id", "leak_cluster", "role", "context"):
        values = dataset[column][:]
        packed = packed.add_column(column, [[values[number] for number in row] for row in documents])
    order = sorted(range(len(documents)), key=lambda at: sha256_hex(f"{seed}:pack:{documents[at]}".encode()))
    return packed.select(order)


def _starts(document: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The document number at the start of each part."""
    found, at = [], 0
    for size in sizes:
        found.append(document[at])
        at += size
    return found
