"""The as-of stages around leaks: any order of days gives one lake, every kind of leak stops a training, old checkpoints
are flagged when what was known changes."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.sandbox.problems import Problem, hidden_problem_key
from trajectory_platform.settings import Benchmark, HoldOut
from trajectory_platform.stages import splits
from trajectory_platform.stages.contamination import (
    benchmark_cost,
    benchmark_text,
    contamination,
    contamination_report,
    contamination_text,
    newly_sealed,
    seen_of,
)
from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.splits.rows import hidden, public
from trajectory_platform_tests.splits.test_window_copies import LAMP, TEAPOT
from trajectory_platform_tests.stages.built_lake import context, publish, publish_checkpoint, publish_day, row

DAYS = [f"2026-05-{number:02}" for number in range(1, 6)]
WISH = "find a small cast iron teapot with a bamboo handle in black below thirty dollars and with free shipping"
EVERYTHING = (
    "leak_clusters", "leak_edges", "leak_hints", "leak_guarded_splits", "split_exclusions", "contamination"
)  # fmt: skip


def trace(name: str, problem: Problem, **values: Any) -> dict[str, Any]:
    key = problem.problem_key if problem.reward_state == "public" else None
    base = {"trace_id": f"{name}:{problem.problem_id}", "problem_id": problem.problem_id, "problem_key": key}
    return base | {"suite_id": problem.suite_id, "query": problem.query or f"{WISH} {problem.problem_id}"} | values


# -- any order of days --


def history() -> dict[str, tuple[list[Problem], list[dict[str, Any]]]]:
    """Five days with a merge, a late reward, a late verdict, a retraction and copies."""
    a, b, c = (
        public(name, f"wish number {name} {name * 3} of its own kind", [p])
        for name, p in zip("abc", "123", strict=True)
    )
    race = hidden("race")
    merged = public("m", "both of the things that two others ask for", ["1", "2"])
    shown = public("race", "what the race wanted in the end", ["3"])
    days = [[a, race], [a, b], [b, c, race], [merged, c], [shown, c]]
    told: dict[str, tuple[list[Problem], list[dict[str, Any]]]] = {}
    for number, problems in enumerate(days):
        traces = [
            trace(f"run{number}{agent}", one, agent=agent, signature=TEAPOT if agent == "x" else LAMP, ids=["9"])
            for one in problems
            for agent in "xy"
        ]
        traces.append(trace(f"run{number}z", problems[0], agent="z", signature=TEAPOT))
        told[DAYS[number]] = (problems, traces)
    told[DAYS[3]][1].append(trace("run2x", b, state="run_unusable"))
    told[DAYS[2]][1].append(trace("race3", race, ids=["3"], success=True))
    told[DAYS[4]][1].append(trace("copy", c, agent="w", content_hash="hash of run2x:c", signature=LAMP))
    return told


def backfill(ctx: StageContext, order: list[str]) -> dict[str, tuple[str, pa.Table]]:
    """Ingest the days in an order, each with its as-of stages; then bring every as-of day up to date."""
    told = history()
    for day in order:
        publish_day(ctx, day, *told[day])
        splits.leak_clusters(ctx, day)
        splits.leak_guarded_splits(ctx, day)
    for day in sorted(order):
        splits.leak_clusters(ctx, day)
        splits.leak_guarded_splits(ctx, day)
        publish_checkpoint(ctx, day)
        contamination(ctx, day)
    found = {}
    for table in EVERYTHING:
        for day in sorted(order):
            [manifest] = ctx.lake.manifests(table, [day])
            found[f"{table}/{day}"] = (manifest.content_digest, ctx.lake.read(table, [day]))
    return found


def test_three_orders_of_the_days_give_the_same_rows_order_and_digests(tmp_path: Path) -> None:
    orders = [DAYS, DAYS[::-1], [DAYS[2], DAYS[4], DAYS[0], DAYS[3], DAYS[1]]]
    lakes = [backfill(context(tmp_path / str(n), pool_key="k2"), order) for n, order in enumerate(orders)]
    first = lakes[0]
    for other in lakes[1:]:
        assert {name: digest for name, (digest, _) in other.items()} == {n: digest for n, (digest, _) in first.items()}
        for name, (_, rows) in other.items():
            assert rows.equals(first[name][1]), name
    reasons = {row["reason"] for day in DAYS for row in first[f"split_exclusions/{day}"][1].to_pylist()}
    assert reasons >= {"strategy_copy_in_window", "judged_again", "cross_day_copy"}
    sizes = first[f"leak_clusters/{DAYS[4]}"][1]["cluster_size"].to_pylist()
    assert max(sizes) >= 3, "the merge and the late reward are part of the history"


# -- every kind of leak stops a training --


def guarded(tmp_path: Path, **changes: Any) -> StageContext:
    """A day with two problems in train and one in dev, its clusters and splits published."""
    ctx = context(tmp_path, **({"pool_train": 100, "pool_dev": 0, "pool_sealed": 0} | changes))
    held = [HoldOut(pool="dev", since="2026-05-01", problem_id="held")]
    ctx = StageContext(ctx.settings.model_copy(update={"hold_outs": tuple(held)}))
    problems = [
        public("a", "wish a of its own", ["1"]),
        public("b", "thing b apart", ["2"]),
        public("held", WISH, ["3"]),
    ]
    publish_day(ctx, DAYS[0], problems, [trace("run", one) for one in problems])
    splits.leak_clusters(ctx, DAYS[0])
    splits.leak_guarded_splits(ctx, DAYS[0])
    return ctx


def doctored(ctx: StageContext, **values: Any) -> None:
    """The published splits with the first training row changed."""
    rows = ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [DAYS[0]]).to_pylist()
    held = next(row for row in rows if row["pool"] == "dev")
    changed = next(row for row in rows if row["pool"] == "train")
    changed |= {name: held[name] if value is None else value for name, value in values.items()}
    _publish_splits(ctx, rows)


def _publish_splits(ctx: StageContext, rows: list[dict[str, Any]]) -> None:
    clusters = ctx.lake.manifest(tables.LEAK_CLUSTERS, DAYS[0])
    assert clusters is not None
    publish(
        ctx,
        tables.LEAK_GUARDED_SPLITS,
        DAYS[0],
        rows,
        inputs={f"leak_clusters/{DAYS[0]}": clusters.content_digest},
    )


def test_a_clean_day_may_be_trained_on(tmp_path: Path) -> None:
    ctx = guarded(tmp_path)
    assert splits.check_trainable(ctx, DAYS[0]) == {"train_rows": 2, "held_out_rows": 2}


@pytest.mark.parametrize("name", ["cluster_id", "problem_key", "content_hash"])
def test_a_value_on_both_sides_stops_the_training(tmp_path: Path, name: str) -> None:
    ctx = guarded(tmp_path)
    doctored(ctx, **{name: None})
    with pytest.raises(FailPartition, match=name):
        splits.check_trainable(ctx, DAYS[0])


def test_a_cluster_that_is_held_out_beyond_the_window_stops_the_training(tmp_path: Path) -> None:
    """No held-out trace is in the splits, but the clusters know the problem."""
    ctx = guarded(tmp_path)
    rows = ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [DAYS[0]]).to_pylist()
    _publish_splits(ctx, [row | {"pool": "train"} for row in rows if row["pool"] == "dev"])
    with pytest.raises(FailPartition, match="share cluster_id"):
        splits.check_trainable(ctx, DAYS[0])


def test_a_reward_product_on_both_sides_stops_the_training(tmp_path: Path) -> None:
    ctx = guarded(tmp_path)
    rows = ctx.lake.read(tables.PROBLEM_SUITES, [DAYS[0]]).to_pylist()
    publish(ctx, tables.PROBLEM_SUITES, DAYS[0], [row | {"reward_product_ids": ["3"]} for row in rows])
    with pytest.raises(FailPartition, match="reward product id '3'"):
        splits.check_trainable(ctx, DAYS[0])


def test_the_text_of_a_held_out_problem_in_a_training_row_stops_the_training(tmp_path: Path) -> None:
    """A remembered task: the row's own problem is another one, which no edge ties to the held-out one."""
    ctx = guarded(tmp_path)
    corpus = ctx.lake.read(tables.AXIS_A_CORPUS, [DAYS[0]]).to_pylist()
    for one in corpus:
        if one["problem_id"] == "a":
            said = [{"role": "user", "content": "wish a"}, {"role": "assistant", "content": f"As before: {WISH}."}]
            one["messages"] = json.dumps(said)
    publish(ctx, tables.AXIS_A_CORPUS, DAYS[0], corpus)
    with pytest.raises(FailPartition, match="1 training rows hold the text of held-out problems: run:a message 1"):
        splits.check_trainable(ctx, DAYS[0])
    summary = splits.leak_guarded_splits(ctx, DAYS[0]).summary
    assert summary["excluded_held_out_text"] == 1, "one agent cannot stop the training of everybody"
    assert splits.check_trainable(ctx, DAYS[0])["train_rows"] == 1


def test_splits_of_other_clusters_stop_the_training(tmp_path: Path) -> None:
    ctx = guarded(tmp_path)
    changed = StageContext(ctx.settings.model_copy(update={"hold_outs": ()}))
    splits.leak_clusters(changed, DAYS[0])
    with pytest.raises(FailPartition, match="older than its leak clusters"):
        splits.check_trainable(changed, DAYS[0])
    ctx.lake.invalidate(tables.LEAK_GUARDED_SPLITS, DAYS[0])
    with pytest.raises(FailPartition, match="are not published"):
        splits.check_trainable(ctx, DAYS[0])


def test_what_came_after_the_clusters_stops_the_training_until_they_are_made_anew(tmp_path: Path) -> None:
    """A listing that joins a training problem to a held-out one, a verdict, a hold-out: the published clusters and
    splits agree with one another and know nothing of it."""
    ctx = guarded(tmp_path / "listing")
    listed = [public("a", "wish a of its own", ["1"]), public("held", WISH, ["3"]), public("m", "both", ["1", "3"])]
    publish_day(ctx, DAYS[0], listed, [trace("run", one) for one in listed[:2]])
    with pytest.raises(FailPartition, match=f"clusters of {DAYS[0]} are older than .*problem_suites/{DAYS[0]}"):
        splits.check_trainable(ctx, DAYS[0])
    splits.leak_clusters(ctx, DAYS[0])
    splits.leak_guarded_splits(ctx, DAYS[0])
    assert splits.check_trainable(ctx, DAYS[0])["train_rows"] == 0

    ctx = guarded(tmp_path / "hold-out")
    entries = (*ctx.settings.hold_outs, HoldOut(pool="dev", since=date(2026, 5, 1), problem_id="a"))
    held = StageContext(ctx.settings.model_copy(update={"hold_outs": entries}))
    with pytest.raises(FailPartition, match="are older than hold_outs: run leak_clusters again"):
        splits.check_trainable(held, DAYS[0])
    splits.leak_clusters(held, DAYS[0])
    splits.leak_guarded_splits(held, DAYS[0])
    assert splits.check_trainable(held, DAYS[0])["train_rows"] == 1

    ctx = guarded(tmp_path / "corpus")
    corpus = ctx.lake.read(tables.AXIS_A_CORPUS, [DAYS[0]]).to_pylist()
    publish(ctx, tables.AXIS_A_CORPUS, DAYS[0], [one for one in corpus if one["problem_id"] != "a"])
    with pytest.raises(FailPartition, match=f"splits of {DAYS[0]} are older than axis_a_corpus/{DAYS[0]}"):
        splits.check_trainable(ctx, DAYS[0])


def benchmark(folder: Path, *products: str, sealed: bool = False) -> tuple[Benchmark, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    items = [
        {"category": "product", "query": f"as benchmark {p}", "reward": {"product_id": p, "title": [f"title {p}"]}}
        for p in products
    ]
    path = folder / "bench.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in items), "utf-8")
    return (Benchmark(name="bench", path=str(path), sealed=sealed),)


def test_a_new_changed_or_missing_benchmark_stops_the_training_until_the_clusters_know_it(tmp_path: Path) -> None:
    ctx = guarded(tmp_path)
    files = benchmark(tmp_path, "1")
    known = StageContext(ctx.settings.model_copy(update={"benchmarks": files}))
    with pytest.raises(FailPartition, match="benchmark/bench was registered since"):
        splits.check_trainable(known, DAYS[0])
    assert splits.leak_clusters(known, DAYS[0]).summary["problems_in_benchmark_bench"] == 1
    splits.leak_guarded_splits(known, DAYS[0])
    assert splits.check_trainable(known, DAYS[0])["train_rows"] == 2, "a marked benchmark takes nothing away"
    assert splits.leak_clusters(known, DAYS[0]).skipped
    benchmark(tmp_path, "1", "2")
    with pytest.raises(FailPartition, match="benchmark/bench has changed since"):
        splits.check_trainable(known, DAYS[0])
    assert not splits.leak_clusters(known, DAYS[0]).skipped
    splits.leak_guarded_splits(known, DAYS[0])
    Path(files[0].path).unlink()
    for refused in (splits.leak_clusters, splits.check_trainable):
        with pytest.raises(Abort, match="benchmark 'bench': cannot read"):
            refused(known, DAYS[0])


def test_sealing_a_benchmark_is_counted_before_it_is_done(tmp_path: Path) -> None:
    ctx = guarded(tmp_path)
    marked = StageContext(ctx.settings.model_copy(update={"benchmarks": benchmark(tmp_path, "1")}))
    assert benchmark_cost(marked, "bench") == [
        {"day": DAYS[0], "train_traces": 2, "lost": 1, "lost_dev": 0, "share": 0.5}
    ]
    assert benchmark_text(marked, "bench").startswith("sealing benchmark bench takes 1 of 2 training traces:")
    with pytest.raises(Abort, match="'other' is not registered; registered: bench"):
        benchmark_cost(marked, "other")
    sealed = StageContext(ctx.settings.model_copy(update={"benchmarks": benchmark(tmp_path, "1", sealed=True)}))
    assert newly_sealed(marked, DAYS[0]) == []
    assert newly_sealed(sealed, DAYS[0]) == ["bench"]
    splits.leak_clusters(sealed, DAYS[0])
    assert newly_sealed(sealed, DAYS[0]) == []
    assert splits.leak_guarded_splits(sealed, DAYS[0]).summary["pool_train"] == 1


def test_a_new_suite_is_held_and_then_released(tmp_path: Path) -> None:
    ctx = context(tmp_path, pool_train=100, pool_dev=0, pool_sealed=0, hold_new_suites_days=2)
    problem = public("a", "wish a", ["1"], suite="v9")
    summaries = []
    for day in DAYS[:3]:
        publish_day(ctx, day, [problem], [])
        summaries.append(splits.leak_clusters(ctx, day).summary)
    assert [one["pool_sealed"] for one in summaries] == [1, 1, 0]
    assert summaries[0]["suite_releases"] == {"v9": DAYS[2]}
    assert summaries[2]["suites_held"] == 0


def test_a_day_that_the_data_have_not_reached_releases_nothing(tmp_path: Path) -> None:
    """The newest clusters say what is sealed: a mistyped year must not end every hold-out."""
    ctx = context(tmp_path, pool_train=100, pool_dev=0, pool_sealed=0, hold_new_suites_days=2)
    with pytest.raises(FailPartition, match="nothing was ingested"):
        splits.leak_clusters(ctx, DAYS[0])
    publish_day(ctx, DAYS[0], [public("a", "wish a", ["1"], suite="v9")], [])
    splits.leak_clusters(ctx, DAYS[0])
    with pytest.raises(FailPartition, match=f"no clusters as of 2062-05-01: the newest ingested is {DAYS[0]}"):
        splits.leak_clusters(ctx, "2062-05-01")
    assert ctx.lake.days(tables.LEAK_CLUSTERS) == [DAYS[0]]


# -- old checkpoints are looked at again --


def score(name: str, problem: Problem, success: bool) -> dict[str, Any]:
    named = {"checkpoint_id": name, "day": DAYS[0], "stage": "sft", "problem_key": problem.problem_key}
    outcome = "success" if success else "failure"
    named |= {"problem_id": problem.problem_id, "cluster_id": f"cluster of {problem.problem_id}"}
    return row(tables.EVAL_SCORES, **named, pool="dev", outcome=outcome, success=success)


def test_a_merge_flags_the_checkpoint_and_shows_its_clean_score(tmp_path: Path) -> None:
    ctx = guarded(tmp_path)
    name = publish_checkpoint(ctx, DAYS[0])
    held, far = public("held", WISH, ["3"]), public("far", "something far away", ["8"])
    publish(
        ctx,
        tables.EVAL_SCORES,
        DAYS[0],
        [score(name, held, True), score(name, far, False)],
        part={"stage": "sft"},
    )
    first = contamination(ctx, DAYS[0])
    assert (first.summary["flagged_checkpoints"], first.summary["same_cluster"]) == (0, 0)
    assert contamination(ctx, DAYS[0]).skipped
    merged = public("m", "one that asks for both", ["1", "3"])
    publish_day(ctx, DAYS[1], [merged, far], [])
    splits.leak_clusters(ctx, DAYS[1])
    second = contamination(ctx, DAYS[1])
    assert second.summary["flagged"] == {name: {"dev_problems": 3}}, "the held-out one, the merging one and its own"
    [told] = [one for one in contamination_report(ctx, DAYS[1]) if one["checkpoint_id"] == name]
    assert told["contaminated"] == {"problems": 1, "attempts": 1, "success": 1.0, "clusters": 1}
    assert told["clean"] == {"problems": 1, "attempts": 1, "success": 0.0, "clusters": 1}
    assert told["flags"] == ["3 dev problems"]
    words = (
        "success: clean 0.0% of 1 in 1 clusters, contaminated 100.0% of 1 in 1 clusters, all 50.0% of 2 in 2 clusters"
    )
    assert words in contamination_text(ctx, DAYS[1])
    [found] = seen_of(ctx.settings, name, [held.problem_key[:10]])
    assert (found["status"], found["traces"]) == ("same_cluster", ["run:a"])
    assert {one["status"] for one in seen_of(ctx.settings, name)} == {"same_cluster"}
    with pytest.raises(Abort, match="is in no held-out pool"):
        seen_of(ctx.settings, name, ["ffff"])
    with pytest.raises(Abort, match="no contamination rows"):
        seen_of(ctx.settings, "sft-unknown")


def test_a_retracted_run_and_a_registered_benchmark_flag_the_checkpoint(tmp_path: Path) -> None:
    ctx = guarded(tmp_path)
    name = publish_checkpoint(ctx, DAYS[0])
    contamination(ctx, DAYS[0])
    publish_day(ctx, DAYS[1], [], [trace("run", public("a", "wish a of its own", ["1"]), state="run_unusable")])
    known = StageContext(ctx.settings.model_copy(update={"benchmarks": benchmark(tmp_path, "2", "55")}))
    splits.leak_clusters(known, DAYS[1])
    summary = contamination(known, DAYS[1]).summary
    assert summary["flagged"] == {name: {"benchmark_problems": 1, "traces_run_unusable": 1}}
    assert (summary["clean"], summary["same_cluster"]) == (2, 1)


def test_text_in_a_trained_row_is_near(tmp_path: Path) -> None:
    """Trained before the problem was held out by its text alone; the hidden problem has no reward to be tied by."""
    ctx = guarded(tmp_path)
    race = hidden("race")
    publish_day(ctx, DAYS[1], [race], [trace("other", race, query="quite another wish", said=f"again: {WISH}")])
    splits.leak_clusters(ctx, DAYS[1])
    key = hidden_problem_key("1", "race")
    traced = row(tables.CHECKPOINT_TRACES, checkpoint_id="sft-x", day=DAYS[1], stage="sft", role="train", weight=1.0)
    traced |= {"trace_id": "other:race", "trace_day": DAYS[1], "problem_key": key, "cluster_id": f"lc-{key[:16]}"}
    publish(ctx, tables.CHECKPOINT_TRACES, DAYS[1], [traced], part={"stage": "sft"})
    contamination(ctx, DAYS[1])
    [told] = [one for one in seen_of(ctx.settings, "sft-x") if one["pool"] == "dev"]
    assert (told["status"], told["overlap"], told["traces"]) == ("near", 1.0, ["other:race"])
    assert "other:race message 1 assistant words 1 to" in told["detail"]


def test_words_of_a_problem_that_was_sealed_since_are_withheld(tmp_path: Path) -> None:
    """The rows were written while it was a dev problem; the newest clusters say that it is sealed."""
    test_text_in_a_trained_row_is_near(tmp_path)
    ctx = guarded(tmp_path)
    key = public("held", WISH, ["3"]).problem_key
    [told] = [one for one in seen_of(ctx.settings, "sft-x") if one["pool"] == "dev"]
    assert "iron teapot" in told["detail"]
    held = HoldOut(pool="sealed", since=date(2026, 5, 1), problem_key=told["problem_key"])
    entries = [*ctx.settings.hold_outs, held]
    splits.leak_clusters(StageContext(ctx.settings.model_copy(update={"hold_outs": tuple(entries)})), DAYS[1])
    for chosen in ((), (key[:12],)):
        [told] = [one for one in seen_of(ctx.settings, "sft-x", chosen) if one["problem_key"] == key]
        assert "iron teapot" not in told["detail"] and "other:race message 1 assistant words" in told["detail"]


def test_rows_of_another_day_are_asked_for_by_the_day(tmp_path: Path) -> None:
    ctx = guarded(tmp_path)
    name = publish_checkpoint(ctx, DAYS[0])
    contamination(ctx, DAYS[0])
    held = public("held", WISH, ["3"]).problem_key
    assert [one["day"] for one in seen_of(ctx.settings, name, [held], as_of=DAYS[0])] == [DAYS[0]]
    with pytest.raises(Abort, match=f"no contamination rows of .* as of {DAYS[1]}"):
        seen_of(ctx.settings, name, as_of=DAYS[1])
