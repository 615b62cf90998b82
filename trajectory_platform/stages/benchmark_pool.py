"""Registered benchmarks: their problems as something to be measured on, and what sealing one would cost.

The problems are no members of the leak clusters. What ties them to problems of the lake are the edges that were found
when the clusters were made (``leak_edges``), and the lake's own row of the same problem. Variants inside the file stand
or fall together: where one of them was trained on, none of them is clean.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.splits import days_up_to
from trajectory_platform.stages.text import shown

if TYPE_CHECKING:
    from trajectory_platform.evaluation.eval_problems import EvalProblem
    from trajectory_platform.settings import Benchmark

POOL = "benchmark"


class Tied(NamedTuple):
    """A problem of a benchmark.

    Attributes:
        problem: its cluster is that of the file; its pool is ``sealed`` where the lake has sealed a variant of it.
        keys: of it and its variants in the file. clusters: of the lake, that these are variants of members of.
    """

    problem: EvalProblem
    keys: frozenset[str]
    clusters: frozenset[str]


def benchmark_problems(ctx: StageContext, day: str, name: str) -> list[Tied]:
    """The readable problems of a registered benchmark as of a day, one per key, in the order of the file.

    Raises:
        Abort: the file cannot be read.
        FailPartition: the clusters of the day are not published, or were made with other benchmarks.
    """
    from trajectory_platform.evaluation.eval_problems import EvalProblem
    from trajectory_platform.splits.benchmarks import assert_unchanged
    from trajectory_platform.splits.suite_files import read_suite_files, split_files

    manifest = ctx.lake.manifest(tables.LEAK_CLUSTERS, day)
    if manifest is None:
        raise FailPartition(f"eval_set_missing: the leak clusters of {day} are not published")
    assert_unchanged(ctx.settings.benchmarks, manifest.inputs)
    benchmark = next(one for one in ctx.settings.benchmarks if one.name == name)
    found: dict[str, EvalProblem] = {}
    placed = split_files([benchmark.path], pool_key=ctx.settings.pool_key, max_cluster_share=1.0)
    for row, place in zip(read_suite_files([benchmark.path]), placed, strict=True):
        if row.problem is not None:
            problem = replace(row.problem, problem_id=row.problem_id, suite_id=row.suite)
            found.setdefault(problem.problem_key, EvalProblem(problem, place["cluster_id"], POOL))
    return _tied(ctx, day, benchmark, found)


def _tied(ctx: StageContext, day: str, benchmark: Benchmark, found: dict[str, EvalProblem]) -> list[Tied]:
    from trajectory_platform.splits.benchmarks import ties
    from trajectory_platform.splits.clusters import BENCHMARK_KEY

    columns = ["problem_key", "cluster_id", "pool"]
    rows = ctx.lake.read(tables.LEAK_CLUSTERS, [day], columns=columns).to_pylist()
    cluster_of = {row["problem_key"]: row["cluster_id"] for row in rows}
    sealed = {row["cluster_id"] for row in rows if row["pool"] == "sealed"}
    variants = ties(ctx.lake.read(tables.LEAK_EDGES, [day]))
    keys: dict[str, set[str]] = {}
    clusters: dict[str, set[str]] = {}
    for key, one in found.items():
        known = {key, *variants.get(f"{BENCHMARK_KEY}{benchmark.name}:{key}", ())}
        keys.setdefault(one.cluster_id, set()).update(known)
        clusters.setdefault(one.cluster_id, set()).update(cluster_of[own] for own in known if own in cluster_of)
    return [
        Tied(
            one._replace(pool="sealed") if clusters[one.cluster_id] & sealed else one,
            frozenset(keys[one.cluster_id]),
            frozenset(clusters[one.cluster_id]),
        )
        for one in found.values()
    ]


def benchmark_cost(ctx: StageContext, name: str) -> list[dict[str, Any]]:
    """What training would lose if a registered benchmark were sealed: see ``benchmarks.cost_per_day``.

    Counted on the newest published window, whether the benchmark is sealed there already or not.

    Raises:
        Abort: no such benchmark, its file cannot be read, or no splits were published.
    """
    from trajectory_platform.splits import benchmarks

    chosen = [one for one in ctx.settings.benchmarks if one.name == name]
    if not chosen:
        known = ", ".join(one.name for one in ctx.settings.benchmarks) or "none"
        raise Abort(f"benchmark {shown(name)!a} is not registered; registered: {known}")
    days = ctx.lake.days(tables.LEAK_GUARDED_SPLITS)
    if not days:
        raise Abort(f"no splits in {ctx.settings.lake_uri}: run 'trajectory-platform train sft' first")
    day = days[-1]
    problems = ctx.lake.read(tables.PROBLEM_SUITES, days_up_to(ctx, tables.PROBLEM_SUITES, day))
    links = ctx.lake.read(tables.JUDGED_TRACES, days_up_to(ctx, tables.JUDGED_TRACES, day))
    clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [day])
    [file] = benchmarks.load(chosen, benchmarks.registered(chosen))
    hit = benchmarks.overlapping(problems, links, clusters, file)
    return benchmarks.cost_per_day(ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [day]), hit)


def benchmark_text(ctx: StageContext, name: str) -> str:
    """``benchmark_cost`` for people."""
    rows = benchmark_cost(ctx, name)
    lost, train = sum(row["lost"] for row in rows), sum(row["train_traces"] for row in rows)
    lines = [f"sealing benchmark {shown(name)} takes {lost} of {train} training traces:"]
    lines += [f"  {row['day']}  {row['lost']:>6} of {row['train_traces']:>6}  {row['share']:>6.1%}" for row in rows]
    return "\n".join(lines)


def newly_sealed(ctx: StageContext, day: str) -> list[str]:
    """Benchmarks that the settings declare sealed and the newest clusters up to ``day`` do not: what they cost is to be
    shown (``benchmark_text``) before they are applied."""
    days = days_up_to(ctx, tables.LEAK_CLUSTERS, day)
    manifest = ctx.lake.manifest(tables.LEAK_CLUSTERS, days[-1]) if days else None
    then = manifest.inputs if manifest is not None else {}
    return [
        one.name
        for one in ctx.settings.benchmarks
        if one.sealed and not str(then.get(f"benchmark/{one.name}", "")).startswith("sealed:")
    ]
