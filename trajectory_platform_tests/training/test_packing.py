"""Packed rows: nothing is cut, nothing is mixed, and no context sees another."""

from __future__ import annotations

from typing import Any

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.training.packing import pack_rows


def dataset(lengths: list[int]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "trace_id": [f"run:{number}" for number in range(len(lengths))],
            "leak_cluster": [f"cluster-{number}" for number in range(len(lengths))],
            "role": ["train" if number % 2 else "generated" for number in range(len(lengths))],
            "context": [number % 3 for number in range(len(lengths))],
            "input_ids": [[number * 100 + at % 90 for at in range(length)] for number, length in enumerate(lengths)],
            "labels": [[-100] + [number] * (length - 1) for number, length in enumerate(lengths)],
        }
    )


def test_every_context_is_in_one_row_whole_with_its_lineage() -> None:
    lengths = [40, 100, 7, 60, 33, 99, 1, 52]
    given, packed = dataset(lengths), pack_rows(dataset(lengths), 100, 3)
    seen = []
    for row in packed:
        assert len(row["input_ids"]) == len(row["labels"]) == sum(row["seq_lengths"]) <= 100
        begin = 0
        for size, trace_id, cluster, role, context in zip(
            row["seq_lengths"], row["trace_id"], row["leak_cluster"], row["role"], row["context"], strict=True
        ):
            source = given[int(trace_id.rpartition(":")[2])]
            assert row["input_ids"][begin : begin + size] == source["input_ids"]
            assert row["labels"][begin : begin + size] == source["labels"]
            assert (cluster, role, context) == (source["leak_cluster"], source["role"], source["context"])
            seen.append(trace_id)
            begin += size
    assert sorted(seen) == given["trace_id"][:] and len(packed) < len(lengths)
    assert pack_rows(dataset(lengths), 100, 3)["trace_id"][:] == packed["trace_id"][:]


def test_more_rows_than_the_trainer_packs_at_a_time_are_all_there() -> None:
    given = dataset([5 + number % 40 for number in range(1200)]).select(range(1, 1200))
    packed = pack_rows(given, 100, 3)
    assert sorted(trace for row in packed["trace_id"] for trace in row) == sorted(given["trace_id"])
    assert sum(map(len, packed["input_ids"])) == sum(map(len, given["input_ids"]))


def test_a_context_longer_than_a_row_stops_the_run_instead_of_being_cut() -> None:
    with pytest.raises(FailPartition, match="101 tokens"):
        pack_rows(dataset([50, 101]), 100, 0)


def test_packed_logits_equal_those_of_separate_passes(tokenizer: Any) -> None:
    import torch
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    from trajectory_platform.training.model import build_model
    from trajectory_platform.training.recipe import ModelSpec

    spec = ModelSpec(hidden=64, layers=3, heads=4, kv_heads=2, head_dim=16, mlp=96)
    model = build_model(spec, tokenizer, max_length=256, seed=1).eval()
    packed = pack_rows(dataset([40, 100, 7, 60, 33]), 128, 0)
    collator = DataCollatorForLanguageModeling(pad_token_id=tokenizer.pad_token_id, padding_free=True)
    columns = ("input_ids", "labels", "seq_lengths")
    batch = collator([{name: row[name] for name in columns} for row in packed])
    labels = batch.pop("labels")
    with torch.no_grad():
        together = model(**batch, use_cache=False).logits[0]
        begin = 0
        for size in (size for row in packed for size in row["seq_lengths"]):
            ids = batch["input_ids"][:, begin : begin + size]
            apart = model(input_ids=ids, use_cache=False).logits[0]
            assert (together[begin : begin + size] - apart).abs().max() < 1e-5
            begin += size
    assert begin == together.shape[0] == labels.shape[1]
