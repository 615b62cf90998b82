"""Registered benchmarks as something to be measured on: what was seen is left out and counted, for every checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.settings import Benchmark
from trajectory_platform.stages import splits
from trajectory_platform.stages.contamination import contamination
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.eval_pools import evaluable, evaluable_clusters, pool_inputs, pool_line
from trajectory_platform_tests.splits.rows import public
from trajectory_platform_tests.stages.built_lake import context, publish, publish_checkpoint, publish_day, row
from trajectory_platform_tests.stages.test_contamination_stage import trace

DAY = "2026-05-01"
POOL = "benchmark:bench"


def item(query: str, product: str) -> dict[str, object]:
    return {"category": "product", "query": query, "reward": {"product_id": product, "title": [f"title {product}"]}}


def registered(folder: Path, *items: dict[str, object], sealed: bool = False) -> StageContext:
    """A day with two train problems and a sealed one, a checkpoint of the train ones, and a benchmark file."""
    from trajectory_platform.settings import HoldOut

    path = folder / "bench.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in items), "utf-8")
    ctx = context(folder, pool_train=100, pool_dev=0, pool_sealed=0)
    entries = (HoldOut(pool="sealed", since=DAY, problem_id="held"),)
    known = (Benchmark(name="bench", path=str(path), sealed=sealed),)
    ctx = StageContext(ctx.settings.model_copy(update={"hold_outs": entries, "benchmarks": known}))
    problems = [public("a", "wish a", ["1"]), public("b", "thing b apart", ["2"]), public("held", "kept back", ["3"])]
    publish_day(ctx, DAY, problems, [trace("run", one) for one in problems])
    splits.leak_clusters(ctx, DAY)
    splits.leak_guarded_splits(ctx, DAY)
    return ctx


FILE = (
    item("a new way to ask for a", "1"),  # a variant of what was trained on
    item("something nobody sold so far", "70"),
    item("the same thing in other words", "70"),  # a variant inside the file
    item("kept back, asked differently", "3"),  # a variant of a sealed problem
    item("two things at once", "80"),
)


def test_what_a_checkpoint_has_seen_is_left_out_and_counted_and_what_is_sealed_needs_a_reason(tmp_path: Path) -> None:
    ctx = registered(tmp_path, *FILE)
    name = publish_checkpoint(ctx, DAY)
    found = evaluable(ctx, DAY, [DAY], POOL, name)
    assert [one.problem.reward_product_ids for one in found.problems] == [("70",), ("70",), ("80",)]
    assert {one.pool for one in found.problems} == {"benchmark"}
    assert (found.contaminated, found.withheld, evaluable_clusters(found.problems)) == (1, 1, 2)
    nobody = evaluable(ctx, DAY, [DAY], POOL, None)
    assert (len(nobody.problems), nobody.contaminated, nobody.withheld) == (4, 0, 1), "nothing seen"
    opened = evaluable(ctx, DAY, [DAY], POOL, name, sealed_too=True)
    assert sorted(one.pool for one in opened.problems) == ["benchmark"] * 3 + ["sealed"] and opened.withheld == 0
    line = pool_line(
        {"pool": POOL, "available_problems": 3, "available_clusters": 2, "contaminated_problems": 1,
         "withheld_problems": 1}
    )  # fmt: skip
    assert line == (
        "pool benchmark:bench: 3 problems in 2 clusters can be evaluated; left out: 1 of which a variant was trained "
        "on, 1 sealed in the lake"
    )


def test_variants_inside_the_file_fall_together(tmp_path: Path) -> None:
    """One of two variants was trained on under its own words: the other one is no clean problem either."""
    ctx = registered(tmp_path, item("wish a", "1"), item("sold beside it", "1"), item("apart from all", "90"))
    found = evaluable(ctx, DAY, [DAY], POOL, publish_checkpoint(ctx, DAY))
    assert [one.problem.reward_product_ids for one in found.problems] == [("90",)] and found.contaminated == 2


def test_a_sealed_benchmark_takes_its_variants_out_of_training_and_so_loses_nothing(tmp_path: Path) -> None:
    ctx = registered(tmp_path, *FILE, sealed=True)
    name = publish_checkpoint(ctx, DAY)
    fed = ctx.lake.read(tables.CHECKPOINT_TRACES, [DAY]).to_pylist()
    assert {one["trace_id"] for one in fed} == {"run:b"}
    found = evaluable(ctx, DAY, [DAY], POOL, name, sealed_too=True)
    assert (len(found.problems), found.contaminated) == (5, 0)


def test_an_unknown_benchmark_and_older_clusters_are_refused(tmp_path: Path) -> None:
    ctx = registered(tmp_path, *FILE)
    with pytest.raises(Abort, match="benchmark 'other' is not registered in the settings; registered: bench"):
        evaluable(ctx, DAY, [DAY], "benchmark:other", None)
    before = pool_inputs(ctx, DAY, [DAY], POOL)
    assert before.keys() >= {"benchmark/bench"}
    Path(ctx.settings.benchmarks[0].path).write_text(json.dumps(item("changed", "5")) + "\n", "utf-8")
    assert pool_inputs(ctx, DAY, [DAY], POOL) != before, "another file is another evaluation"
    with pytest.raises(FailPartition, match="benchmark/bench has changed since the leak clusters were made"):
        evaluable(ctx, DAY, [DAY], POOL, None)


def test_a_score_on_a_benchmark_problem_is_flagged_once_a_variant_of_it_was_trained_on(tmp_path: Path) -> None:
    """Scores name a benchmark problem by its own key; the flag must find it there."""
    ctx = registered(tmp_path, *FILE)
    name = publish_checkpoint(ctx, DAY)
    (one, *_) = [
        one for one in evaluable(ctx, DAY, [DAY], POOL, None).problems if "1" in one.problem.reward_product_ids
    ]
    told = {"checkpoint_id": name, "day": DAY, "stage": "sft", "problem_key": one.problem.problem_key}
    scored = row(tables.EVAL_SCORES, **told, problem_id="x", pool="benchmark", outcome="success", success=True)
    publish(ctx, tables.EVAL_SCORES, DAY, [scored], part={"stage": "sft"})
    flagged = contamination(ctx, DAY).summary["flagged"][name]
    assert flagged == {"benchmark_problems": 1, "benchmark_evaluated_problems": 1}
