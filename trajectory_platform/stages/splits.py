"""The as-of stages: leak clusters over everything seen up to a day, and the training window guarded by them."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import TYPE_CHECKING

from trajectory_platform.lake import tables
from trajectory_platform.stages.context import (
    Output,
    Produced,
    StageContext,
    StageResult,
    input_digests,
    run_stage,
    window,
)

if TYPE_CHECKING:
    from trajectory_platform.lake.tables import Table

_LINK_COLUMNS = (
    "trace_id",
    "day",
    "suite_id",
    "problem_id",
    "problem_key",
    "category",
    "query",
    "query_verified",
    "outcome_success",
    "recommended_ids",
)
_CORPUS_COLUMNS = tuple(name for name in tables.AXIS_A_CORPUS.columns if name not in ("messages", "tools"))


def published_window(ctx: StageContext, table: Table, day: str) -> list[str]:
    """Published days of a table inside the training window that ends with ``day``, oldest first."""
    published = set(ctx.lake.days(table))
    return [near for near in window(day, ctx.settings.window_days) if near in published]


def days_up_to(ctx: StageContext, table: Table, day: str) -> list[str]:
    """Published days of a table up to and including ``day``, oldest first."""
    return [published for published in sorted(ctx.lake.days(table)) if published <= day]


def leak_clusters(ctx: StageContext, day: str) -> StageResult:
    """Cluster and pool of every problem ever seen up to ``day``."""
    from trajectory_platform.splits import clusters
    from trajectory_platform.splits.pools import Shares

    problem_days = days_up_to(ctx, tables.PROBLEM_SUITES, day)
    judged_days = days_up_to(ctx, tables.JUDGED_TRACES, day)
    chosen = ctx.settings

    def body() -> Produced:
        rows, edges, hints = clusters.build_clusters(
            ctx.lake.read(tables.PROBLEM_SUITES, problem_days),
            ctx.lake.read(tables.JUDGED_TRACES, judged_days, columns=list(_LINK_COLUMNS)),
            day=date.fromisoformat(day),
            pool_key=chosen.pool_key,
            shares=Shares(chosen.pool_train, chosen.pool_dev, chosen.pool_sealed),
            hold_outs=chosen.hold_outs,
            max_cluster_share=chosen.max_cluster_share,
            min_problems_for_share=chosen.min_problems_for_share,
        )
        pools = Counter(rows.column("pool").to_pylist())
        sizes = Counter(rows.column("cluster_id").to_pylist())
        summary = {
            "problems": rows.num_rows,
            "clusters": len(sizes),
            "clusters_of_several": sum(1 for size in sizes.values() if size > 1),
            "largest_cluster": max(sizes.values(), default=0),
            "edges": edges.num_rows,
            **{f"pool_{pool}": pools.get(pool, 0) for pool in ("train", "dev", "sealed")},
        }
        return Produced(
            [Output(tables.LEAK_HINTS, hints), Output(tables.LEAK_EDGES, edges), Output(tables.LEAK_CLUSTERS, rows)],
            {**summary, "hints": hints.num_rows},
        )

    return run_stage(
        ctx,
        stage="leak_clusters",
        day=day,
        code_version=clusters.VERSION,
        tables=(tables.LEAK_HINTS, tables.LEAK_EDGES, tables.LEAK_CLUSTERS),
        inputs=input_digests(ctx, {"problem_suites": problem_days, "judged_traces": judged_days}),
        body=body,
    )


def leak_guarded_splits(ctx: StageContext, day: str) -> StageResult:
    """The training window as of ``day``: accepted traces with cluster and pool, disjoint or not published."""
    from trajectory_platform.splits import guard

    corpus_days = published_window(ctx, tables.AXIS_A_CORPUS, day)
    raw_days = published_window(ctx, tables.RAW_TRACES, day)

    def body() -> Produced:
        splits, exclusions = guard.split_window(
            ctx.lake.read(tables.AXIS_A_CORPUS, corpus_days, columns=list(_CORPUS_COLUMNS)),
            ctx.lake.read(tables.LEAK_CLUSTERS, [day]),
            day=date.fromisoformat(day),
            window_days=ctx.settings.window_days,
            judged=ctx.lake.read(tables.RAW_TRACES, raw_days, columns=["trace_id", "day"]),
        )
        pools = Counter(splits.column("pool").to_pylist())
        reasons = Counter(exclusions.column("reason").to_pylist())
        summary = {
            "window_days": len(corpus_days),
            "traces": splits.num_rows,
            **{f"pool_{pool}": pools.get(pool, 0) for pool in ("train", "dev", "sealed")},
            **{f"excluded_{reason}": count for reason, count in sorted(reasons.items())},
        }
        return Produced(
            [
                Output(tables.SPLIT_EXCLUSIONS, exclusions),
                Output(tables.LEAK_GUARDED_SPLITS, splits, verify=(guard.assert_disjoint,)),
            ],
            summary,
        )

    return run_stage(
        ctx,
        stage="leak_guarded_splits",
        day=day,
        code_version=guard.VERSION,
        tables=(tables.SPLIT_EXCLUSIONS, tables.LEAK_GUARDED_SPLITS),
        inputs=input_digests(ctx, {"leak_clusters": [day], "axis_a_corpus": corpus_days, "raw_traces": raw_days}),
        body=body,
    )
