"""Strategy copies across the days of a window, from the stored signatures."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from trajectory_platform.curation.signatures import signature_of
from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.tables import AXIS_A_CORPUS
from trajectory_platform.splits.guard import COPY_COLUMNS, CORPUS_COLUMNS, Split, assert_disjoint, split_window
from trajectory_platform_tests.splits.test_guard import leak_clusters

DAY = date(2026, 5, 10)


def signature(*searches: str) -> str:
    """What an agent that made these searches did."""
    calls = [{"function": {"name": "find_product", "arguments": {"q": text, "page": "1"}}} for text in searches] + [
        {"function": {"name": "terminate", "arguments": {"status": "success"}}}
    ]
    return signature_of([{"role": "assistant", "tool_calls": [call]} for call in calls])


TEAPOT = signature("cast iron teapot black bamboo handle", "teapot with free shipping below thirty")
LAMP = signature("desk lamp with a clamp", "lamp led warm white dimmable")


def window(*rows: dict[str, Any], similarity: float | None = 0.9, **pools: str) -> Split:
    schema = pa.schema([AXIS_A_CORPUS.schema().field(name) for name in (*CORPUS_COLUMNS, *COPY_COLUMNS)])
    base = {"suite_id": "1", "problem_id": "p", "category": "shop", "uses": ["sft"], "quality": 1.0}
    base |= {"problem_key": "k1", "strategy_signature": TEAPOT, "day": "2026-05-10"}
    table = pa.Table.from_pylist(
        [base | {"content_hash": f"hash of {row['trace_id']}"} | row for row in rows], schema=schema
    )
    found = leak_clusters(**(pools or {"k1": "train"}))
    return split_window(table, found, day=DAY, window_days=40, copy_similarity=similarity)


def excluded(split: Split) -> dict[str, tuple[str, str | None]]:
    return {row["trace_id"]: (row["reason"], row["duplicate_of"]) for row in split.exclusions.to_pylist()}


def test_another_agent_that_did_the_same_on_another_day_is_a_copy() -> None:
    split = window(
        {"trace_id": "a", "agent_version_id": "one", "day": "2026-05-03"},
        {"trace_id": "b", "agent_version_id": "two", "day": "2026-05-07"},
        {"trace_id": "c", "agent_version_id": "three", "strategy_signature": LAMP},
    )
    assert excluded(split) == {"b": ("strategy_copy_in_window", "a")}
    assert split.splits["trace_id"].to_pylist() == ["a", "c"]


def test_one_agent_may_repeat_itself_and_an_unknown_one_is_nobodys_copy() -> None:
    rows = [{"trace_id": name, "agent_version_id": agent} for name, agent in (("a", "one"), ("b", "one"), ("c", None))]
    assert excluded(window(*rows)) == {}


def test_the_same_calls_on_another_cluster_are_no_copy() -> None:
    rows = [
        {"trace_id": name, "agent_version_id": name, "problem_key": key} for name, key in (("a", "k1"), ("b", "k2"))
    ]
    assert excluded(window(*rows, k1="train", k2="train")) == {}


def test_without_the_strategy_filter_nothing_is_compared() -> None:
    rows = [{"trace_id": name, "agent_version_id": name} for name in "ab"]
    assert excluded(window(*rows, similarity=None)) == {}


def test_a_duplicate_always_names_a_trace_that_stays() -> None:
    """``c`` equals ``b`` to the letter, and ``b`` is a copy of ``a``."""
    split = window(
        {"trace_id": "a", "agent_version_id": "one", "quality": 2.0},
        {"trace_id": "b", "agent_version_id": "two", "content_hash": "same", "day": "2026-05-01"},
        {"trace_id": "c", "agent_version_id": "two", "content_hash": "same", "day": "2026-05-02"},
    )
    assert excluded(split) == {"b": ("strategy_copy_in_window", "a"), "c": ("cross_day_copy", "a")}


def test_variants_in_one_cluster_are_compared_and_all_of_them_share_a_pool() -> None:
    """A merge put two problems into one sealed cluster: a copy of the sealed trace cannot stay in train."""
    clusters = leak_clusters(k1="sealed", k2="sealed").to_pylist()
    merged = pa.Table.from_pylist([row | {"cluster_id": "lc-1"} for row in clusters], schema=leak_clusters().schema)
    schema = pa.schema([AXIS_A_CORPUS.schema().field(name) for name in (*CORPUS_COLUMNS, *COPY_COLUMNS)])
    base = {"suite_id": "1", "problem_id": "p", "uses": ["sft"], "quality": 1.0, "strategy_signature": TEAPOT}
    rows = [
        base | {"trace_id": name, "agent_version_id": name, "problem_key": key, "content_hash": name, "day": day}
        for name, key, day in (("a", "k1", "2026-05-09"), ("b", "k2", "2026-05-02"))
    ]
    table = pa.Table.from_pylist(rows, schema=schema)
    split = split_window(table, merged, day=DAY, window_days=40, copy_similarity=0.9)
    assert excluded(split) == {"b": ("strategy_copy_in_window", "a")}
    assert split.splits["pool"].to_pylist() == ["sealed"]


def test_the_order_of_rows_and_days_decides_nothing() -> None:
    rng = random.Random(3)
    names = ["teapot black iron", "teapot black iron handle", "lamp led warm", "lamp led warm clamp", "rug"]
    rows = [
        {
            "trace_id": f"t{number:02}",
            "agent_version_id": f"agent {rng.randrange(6)}",
            "day": f"2026-05-{rng.randrange(1, 11):02}",
            "problem_key": rng.choice(["k1", "k2", "k3"]),
            "quality": rng.choice([0.5, 1.0]),
            "strategy_signature": signature(rng.choice(names), rng.choice(names)),
            "content_hash": f"h{rng.randrange(50)}",
        }
        for number in range(60)
    ]
    first = window(*rows, k1="train", k2="dev", k3="sealed")
    assert {reason for reason, _ in excluded(first).values()} >= {"strategy_copy_in_window", "cross_day_copy"}
    survivors = {of for _, of in excluded(first).values()}
    assert survivors <= set(first.splits["trace_id"].to_pylist())
    assert_disjoint(first.splits)
    for _ in range(5):
        rng.shuffle(rows)
        again = window(*rows, k1="train", k2="dev", k3="sealed")
        assert again.splits.equals(first.splits)
        assert again.exclusions.equals(first.exclusions)


def test_a_signature_of_an_older_form_asks_for_the_day_to_be_run_again() -> None:
    rows = [{"trace_id": name, "agent_version_id": name, "strategy_signature": "1.abcd"} for name in "ab"]
    with pytest.raises(FailPartition, match="run axis_a_corpus of its days again"):
        window(*rows)
