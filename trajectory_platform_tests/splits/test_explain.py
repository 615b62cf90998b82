"""``leaks explain``: which problems can be named and what the answer says."""

from __future__ import annotations

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.splits.explain import explain
from trajectory_platform_tests.splits.rows import clusters, on_days, public


def test_a_chain_is_told_in_order_and_strangers_have_no_path() -> None:
    found = clusters(
        on_days(
            (
                "2026-05-01",
                [
                    public("a", "a", ["1", "2"]),
                    public("b", "b", ["2", "3"]),
                    public("c", "c", ["3"]),
                    public("d", "d", ["9"]),
                ],
            )
        )
    )
    answer = explain(found.clusters, found.edges, "a", "c")
    assert [(step["kind"], step["evidence"]) for step in answer["path"]] == [("product_id", "2"), ("product_id", "3")]
    stranger = explain(found.clusters, found.edges, "a", "d")
    assert (stranger["same_cluster"], stranger["path"]) == (False, [])
    itself = explain(found.clusters, found.edges, "a", "a")
    assert (itself["same_cluster"], itself["path"]) == (True, [])


def test_unknown_and_ambiguous_names_are_wrong_use() -> None:
    found = clusters(on_days(("2026-05-01", [public("a", "a", ["1"], suite="1"), public("a", "b", ["2"], suite="2")])))
    key = found.clusters["problem_key"].to_pylist()[0]
    with pytest.raises(Abort, match="no problem 'zzz'"):
        explain(found.clusters, found.edges, "zzz", "a")
    with pytest.raises(Abort, match="2 contents"):
        explain(found.clusters, found.edges, "a", key)
    assert explain(found.clusters, found.edges, key[:12], key)["same_cluster"]
