"""What a checkpoint has seen of a problem, by the clusters of the day asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from trajectory_platform.lake.tables import LEAK_CLUSTERS, LEAK_HINTS
from trajectory_platform.splits.contamination import (
    MAX_TRACES,
    Asked,
    clean_and_dirty_scores,
    contamination_rows,
    near_clusters,
    seen_by,
    stale_training_rows,
)
from trajectory_platform.splits.ngrams import Overlap
from trajectory_platform_tests.stages.built_lake import row

DAY = "2026-05-10"


def clusters(**members: str) -> pa.Table:
    """Problem key -> cluster id."""
    rows = [row(LEAK_CLUSTERS, day=DAY, problem_key=key, cluster_id=cluster) for key, cluster in members.items()]
    return pa.Table.from_pylist(rows, schema=LEAK_CLUSTERS.schema())


def hints(*pairs: tuple[str, str, float]) -> pa.Table:
    rows = [
        {"day": DAY, "left_key": left, "right_key": right, "kind": "words", "value": value, "evidence": "e"}
        for left, right, value in pairs
    ]
    return pa.Table.from_pylist(rows, schema=LEAK_HINTS.schema())


def traced(problem_key: str, cluster_id: str, trace_id: str = "t1", checkpoint: str = "c1") -> dict[str, Any]:
    named = {"checkpoint_id": checkpoint, "trace_id": trace_id, "trace_day": "2026-05-01"}
    return named | {"problem_key": problem_key, "cluster_id": cluster_id}


def answers(
    rows: Sequence[dict[str, Any]],
    found: pa.Table,
    asked: Sequence[Asked],
    *,
    weak: pa.Table | None = None,
    texts: Mapping[tuple[str, str], Sequence[Overlap]] | None = None,
) -> dict[tuple[str, str], dict[str, Any]]:
    seen = seen_by(rows, found, texts or {})
    near = near_clusters(weak if weak is not None else hints(), found)
    table = contamination_rows(seen, {one.checkpoint_id: asked for one in seen}, near, day=DAY, stage="sft")
    return {(row["checkpoint_id"], row["problem_key"]): row for row in table.to_pylist()}


def test_a_variant_is_the_same_cluster_and_names_the_traces() -> None:
    found = clusters(held="lc-1", trained="lc-1", other="lc-2")
    told = answers(
        [traced("trained", "lc-1")], found, [Asked("held", "dev", ("lc-1",)), Asked("other", "dev", ("lc-2",))]
    )
    held = told["c1", "held"]
    assert (held["status"], held["traces"], held["cluster_id"]) == ("same_cluster", ["t1"], "lc-1")
    assert held["detail"].startswith("a variant of it was trained on; its cluster was held out")
    clean = told["c1", "other"]
    assert (clean["status"], clean["traces"], clean["detail"], clean["overlap"]) == ("clean", [], None, 0.0)


def test_a_merge_after_the_training_contaminates() -> None:
    found = clusters(held="lc-1", trained="lc-1")
    [told] = answers([traced("trained", "lc-9")], found, [Asked("held", "sealed", ("lc-1",))]).values()
    assert told["status"] == "same_cluster"


def test_the_cluster_recorded_at_training_counts_when_its_evidence_was_retracted() -> None:
    found = clusters(held="lc-1", trained="lc-7")
    [told] = answers([traced("trained", "lc-1")], found, [Asked("held", "sealed", ("lc-1",))]).values()
    assert told["status"] == "same_cluster"


def test_the_problem_itself_is_named_as_such() -> None:
    [told] = answers([traced("p", "lc-1")], clusters(p="lc-1"), [Asked("p", "train", ("lc-1",))]).values()
    assert told["detail"] == "the problem itself was trained on"


def test_a_weak_edge_of_a_cluster_is_near_for_all_its_problems() -> None:
    """Hints are stars around first problems, so they stand for the cluster."""
    found = clusters(first="lc-1", held="lc-1", trained="lc-2", far="lc-3")
    asked = [Asked("held", "dev", ("lc-1",)), Asked("far", "dev", ("lc-3",))]
    weak = hints(("first", "trained", 0.7), ("trained", "far", 0.6), ("first", "far", 0.9))
    told = answers([traced("trained", "lc-2")], found, asked, weak=weak)
    assert told["c1", "held"]["status"] == "near"
    assert told["c1", "held"]["detail"] == "weak edge words 0.70 to lc-2"
    assert told["c1", "held"]["traces"] == ["t1"]
    assert told["c1", "far"]["status"] == "near"


def overlap(share: float) -> Overlap:
    return Overlap("held", share, "message 0 user", 3, 9, "nine words of the query")


@pytest.mark.parametrize(("share", "status"), [(0.3, "clean"), (0.5, "near"), (1.0, "near")])
def test_text_is_evidence_of_its_own(share: float, status: str) -> None:
    found = clusters(held="lc-1", trained="lc-2")
    texts = {("t1", "2026-05-01"): [overlap(share)]}
    [told] = answers([traced("trained", "lc-2")], found, [Asked("held", "dev", ("lc-1",))], texts=texts).values()
    assert (told["status"], told["overlap"]) == (status, share)
    if status == "near":
        assert "t1 message 0 user words 3 to 11" in told["detail"]
        assert "nine words of the query" in told["detail"]


def test_the_text_of_a_sealed_problem_is_not_shown() -> None:
    texts = {("t1", "2026-05-01"): [overlap(1.0)]}
    found = clusters(held="lc-1", trained="lc-2")
    [told] = answers([traced("trained", "lc-2")], found, [Asked("held", "sealed", ("lc-1",))], texts=texts).values()
    assert "t1 message 0 user" in told["detail"]
    assert "nine words" not in told["detail"]


def test_a_problem_of_a_benchmark_may_be_in_no_cluster_or_in_several() -> None:
    found = clusters(one="lc-1", two="lc-2")
    asked = [Asked("benchmark:b:x", "benchmark", ()), Asked("benchmark:b:y", "benchmark", ("lc-1", "lc-2"))]
    told = answers([traced("two", "lc-2")], found, asked)
    assert told["c1", "benchmark:b:x"]["status"] == "clean"
    assert told["c1", "benchmark:b:x"]["cluster_id"] == ""
    assert told["c1", "benchmark:b:y"]["status"] == "same_cluster"


def test_many_traces_are_cut_to_the_first() -> None:
    rows = [traced("p", "lc-1", f"t{number:03}") for number in range(50)]
    [told] = answers(rows, clusters(p="lc-1"), [Asked("p", "dev", ("lc-1",))]).values()
    assert told["traces"] == [f"t{number:03}" for number in range(MAX_TRACES)]


def test_scores_are_told_apart_by_what_was_seen() -> None:
    status = {"a": "clean", "b": "same_cluster", "c": "near"}
    table = [{"checkpoint_id": "c1", "problem_key": key, "status": word} for key, word in status.items()]
    tries = [("a", True), ("a", False), ("b", True), ("c", False), ("d", True), ("e", None)]
    scores = [
        {
            "checkpoint_id": "c1",
            "problem_key": key,
            "outcome": "no_reward" if success is None else "success" if success else "failure",
            "success": success,
        }
        for key, success in tries
    ]
    found = clean_and_dirty_scores(scores, table)["c1"]
    assert found["all"] == {"problems": 4, "attempts": 5, "success": 0.625}
    assert found["clean"] == {"problems": 2, "attempts": 3, "success": 0.25}
    assert found["near"] == {"problems": 1, "attempts": 1, "success": 0.0}
    assert found["contaminated"] == {"problems": 1, "attempts": 1, "success": 1.0}
    assert found["unknown"] == {"problems": 1, "attempts": 1, "success": 1.0}


def test_rows_that_would_not_be_trained_on_today() -> None:
    raw = [
        ("fine", "2026-05-01", "trace"),
        ("retracted", "2026-05-01", "trace"),
        ("retracted", "2026-05-04", "run_unusable"),
        ("again", "2026-05-01", "trace"),
        ("again", "2026-05-03", "trace"),
        ("late", "2026-05-01", "trace"),
        ("demoted", "2026-05-01", "trace"),
    ]
    kept = [("fine", ["sft"]), ("retracted", ["sft"]), ("again", ["sft"]), ("demoted", ["kto_undesirable"])]
    rows = [traced("p", "lc-1", name) for name in ("fine", "retracted", "again", "late", "demoted", "lost")]
    found = stale_training_rows(
        rows,
        pa.table(
            {
                name: list(values)
                for name, values in zip(("trace_id", "day", "state"), zip(*raw, strict=True), strict=True)
            }
        ),
        pa.table(
            {
                "trace_id": [name for name, _ in kept],
                "day": ["2026-05-01"] * len(kept),
                "uses": [uses for _, uses in kept],
            }
        ),
        use="sft",
    )
    assert {(one["trace_id"], one["reason"], one["since"]) for one in found} == {
        ("retracted", "run_unusable", "2026-05-04"),
        ("again", "rejected_when_judged_again", "2026-05-03"),
        ("late", "no_longer_accepted", "2026-05-01"),
        ("demoted", "use_withdrawn", "2026-05-01"),
        ("lost", "gone", "2026-05-01"),
    }
