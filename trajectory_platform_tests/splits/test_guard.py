"""The training window: nothing is lost, nothing is in two pools."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.tables import AXIS_A_CORPUS, LEAK_CLUSTERS, LEAK_GUARDED_SPLITS
from trajectory_platform.sandbox.problems import hidden_problem_key
from trajectory_platform.splits.guard import CORPUS_COLUMNS, assert_disjoint, split_window
from trajectory_platform_tests.splits.rows import clusters, on_days, public

DAY = date(2026, 5, 10)


def corpus(*rows: dict[str, Any]) -> pa.Table:
    schema = pa.schema([AXIS_A_CORPUS.schema().field(name) for name in CORPUS_COLUMNS])
    base = {
        "day": "2026-05-10",
        "problem_id": "p1",
        "suite_id": "1",
        "problem_key": "k1",
        "category": "shop",
        "uses": ["sft"],
        "quality": 1.0,
    }
    return pa.Table.from_pylist(
        [base | {"content_hash": f"hash of {row['trace_id']}"} | row for row in rows], schema=schema
    )


def leak_clusters(**pools: str) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "day": "2026-05-10",
                "problem_key": key,
                "problem_ids": [],
                "suite_ids": [],
                "category": "shop",
                "first_seen": "2026-05-01",
                "cluster_id": f"lc-{key}",
                "pool": pool,
                "own_draw": pool,
                "held_out": False,
                "reward_state": "public",
                "cluster_size": 1,
            }
            for key, pool in pools.items()
        ],
        schema=LEAK_CLUSTERS.schema(),
    )


def test_the_window_is_trailing_and_holds_the_day() -> None:
    rows = corpus(*[{"trace_id": f"t{day:02}", "day": f"2026-05-{day:02}"} for day in range(1, 13)])
    split = split_window(rows, leak_clusters(k1="train"), day=DAY, window_days=4)
    assert split.splits["trace_day"].to_pylist() == [f"2026-05-{day:02}" for day in (7, 8, 9, 10)]
    assert set(split.splits["day"].to_pylist()) == {"2026-05-10"}


def test_of_a_copy_on_two_days_the_earliest_stays_and_the_other_names_it() -> None:
    rows = corpus(
        {"trace_id": "late", "content_hash": "same"},
        {"trace_id": "early", "content_hash": "same", "day": "2026-05-08"},
        {"trace_id": "own"},
    )
    split = split_window(rows, leak_clusters(k1="train"), day=DAY, window_days=40)
    assert split.splits["trace_id"].to_pylist() == ["early", "own"]
    assert split.exclusions.to_pylist() == [
        {
            "trace_id": "late",
            "day": "2026-05-10",
            "trace_day": "2026-05-10",
            "reason": "cross_day_copy",
            "duplicate_of": "early",
            "detail": None,
        }
    ]


def test_a_copy_of_a_sealed_trace_leaves_train() -> None:
    """Case D13: the earlier copy would otherwise put sealed text into training."""
    rows = corpus(
        {"trace_id": "in-train", "content_hash": "same", "day": "2026-05-01"},
        {"trace_id": "in-sealed", "content_hash": "same", "problem_key": "k2"},
    )
    split = split_window(rows, leak_clusters(k1="train", k2="sealed"), day=DAY, window_days=40)
    assert split.splits.select(["trace_id", "pool"]).to_pylist() == [{"trace_id": "in-sealed", "pool": "sealed"}]


def test_a_problem_without_a_cluster_is_excluded_with_the_reason() -> None:
    rows = corpus(
        {"trace_id": "a", "problem_key": "unknown"}, {"trace_id": "b", "problem_key": None, "problem_id": None}
    )
    split = split_window(rows, leak_clusters(k1="train"), day=DAY, window_days=40)
    assert split.splits.num_rows == 0
    assert set(split.exclusions["reason"].to_pylist()) == {"no_cluster"}


def test_a_problem_known_only_by_id_is_found_in_its_cluster() -> None:
    key = hidden_problem_key("1", "race")
    rows = corpus({"trace_id": "a", "problem_key": None, "problem_id": "race"})
    split = split_window(rows, leak_clusters(**{key: "dev"}), day=DAY, window_days=40)
    assert split.splits["pool"].to_pylist() == ["dev"]


def test_several_traces_of_a_problem_are_on_one_side() -> None:
    """Case D12: five rollouts of each of two problems, never split by row."""
    problems = on_days(("2026-05-01", [public(f"pb-{n}", f"task text {n}", [str(n)]) for n in (1, 2)]))
    found = clusters(problems, day=DAY)
    keys = {row["problem_ids"][0]: row["problem_key"] for row in found.clusters.to_pylist()}
    traces = [
        {"trace_id": f"r{n}-{miner}", "problem_id": f"pb-{n}", "problem_key": keys[f"pb-{n}"]}
        for n in (1, 2)
        for miner in range(5)
    ]
    split = split_window(corpus(*traces), found.clusters, day=DAY, window_days=40)
    assert split.splits.num_rows == 10
    assert_disjoint(split.splits, problems)


def rows_of(*values: tuple[str, str, str, str, str]) -> pa.Table:
    names = ("trace_id", "problem_key", "cluster_id", "pool", "content_hash")
    base = {"day": "2026-05-10", "trace_day": "2026-05-10", "uses": [], "quality": 1.0, "category": None}
    return pa.Table.from_pylist(
        [base | dict(zip(names, row, strict=True)) for row in values], schema=LEAK_GUARDED_SPLITS.schema()
    )


@pytest.mark.parametrize(
    ("second", "named"),
    [
        (("t2", "k2", "c1", "dev", "h2"), "cluster_id 'c1'"),
        (("t2", "k1", "c2", "dev", "h2"), "problem_key 'k1'"),
        (("t2", "k2", "c2", "dev", "h1"), "content_hash 'h1'"),
    ],
)
def test_the_guard_names_both_rows_of_an_overlap(second: tuple[str, str, str, str, str], named: str) -> None:
    with pytest.raises(FailPartition, match="two pools") as stopped:
        assert_disjoint(rows_of(("t1", "k1", "c1", "train", "h1"), second))
    assert named in str(stopped.value)
    assert "'t1'" in str(stopped.value)
    assert "'t2'" in str(stopped.value)


def test_the_guard_sees_a_product_on_both_sides() -> None:
    problems = on_days(("2026-05-01", [public("a", "text a", ["5", "6"]), public("b", "text b", ["6", "7"])]))
    first, second = problems["problem_key"].to_pylist()
    rows = rows_of(("t1", first, "c1", "train", "h1"), ("t2", second, "c2", "sealed", "h2"))
    with pytest.raises(FailPartition, match="reward product id '6'"):
        assert_disjoint(rows, problems)


_TRACES = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from(["k1", "k2", "k3", "gone"]), st.integers(0, 6)), max_size=40
)


@given(_TRACES)
@settings(max_examples=60)
def test_every_row_of_the_window_ends_in_exactly_one_place(drawn: list[tuple[int, str, int]]) -> None:
    rows = corpus(
        *[
            {"trace_id": f"t{n:03}", "day": f"2026-05-{day:02}", "problem_key": key, "content_hash": f"h{text}"}
            for n, (day, key, text) in enumerate(drawn)
        ]
    )
    split = split_window(rows, leak_clusters(k1="train", k2="dev", k3="sealed"), day=DAY, window_days=5)
    inside = {f"t{n:03}" for n, (day, _, _) in enumerate(drawn) if 6 <= day <= 10}
    kept, out = split.splits["trace_id"].to_pylist(), split.exclusions["trace_id"].to_pylist()
    assert sorted(kept + out) == sorted(inside)
    survivors = {name for name in split.exclusions["duplicate_of"].to_pylist() if name is not None}
    assert survivors <= set(kept)
    assert_disjoint(split.splits)


def test_of_a_trace_judged_again_only_the_latest_day_counts() -> None:
    """Three partitions hold it; two exclusions of one trace are two rows; no copy of it survives in its place."""
    rows = corpus(
        *[{"trace_id": "t", "day": f"2026-05-{day:02}", "content_hash": f"h{day % 2}"} for day in (7, 8, 9)],
        {"trace_id": "other", "day": "2026-05-08"},
    )
    split = split_window(rows, leak_clusters(k1="train"), day=DAY, window_days=4)
    assert [(row["trace_id"], row["trace_day"]) for row in split.splits.to_pylist()] == [
        ("other", "2026-05-08"),
        ("t", "2026-05-09"),
    ]
    assert [(row["trace_day"], row["reason"]) for row in split.exclusions.to_pylist()] == [
        ("2026-05-07", "judged_again"),
        ("2026-05-08", "judged_again"),
    ]


def test_a_trace_rejected_when_it_was_judged_again_is_out() -> None:
    rows = corpus({"trace_id": "t", "day": "2026-05-08"}, {"trace_id": "u", "day": "2026-05-08"})
    judged = pa.table({"trace_id": ["t", "u", "t", "u"], "day": ["2026-05-08"] * 2 + ["2026-05-09", "2026-05-11"]})
    split = split_window(rows, leak_clusters(k1="train"), day=DAY, window_days=4, judged=judged)
    assert split.splits["trace_id"].to_pylist() == ["u"], "what is judged after the as-of day is not known on it"
    assert split.exclusions["reason"].to_pylist() == ["judged_again"]
