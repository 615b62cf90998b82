"""The as-of stages: leak clusters over everything seen up to a day, and the training window guarded by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import orjson

from trajectory_platform.errors import FailPartition
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
from trajectory_platform.stages.retraction import retracted_rows, retraction_inputs

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from trajectory_platform.lake.tables import Table
    from trajectory_platform.settings import HoldOut, Settings
    from trajectory_platform.splits.ngrams import NgramIndex
    from trajectory_platform.splits.pools import Shares

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
_STATED_COLUMNS = ("suite_id", "problem_id", "problem_key", "query")
_SHOWN_LEAKS = 5


def published_window(ctx: StageContext, table: Table, day: str) -> list[str]:
    """Published days of a table inside the training window that ends with ``day``, oldest first."""
    published = set(ctx.lake.days(table))
    return [near for near in window(day, ctx.settings.window_days) if near in published]


def days_up_to(ctx: StageContext, table: Table, day: str) -> list[str]:
    """Published days of a table up to and including ``day``, oldest first."""
    return [published for published in sorted(ctx.lake.days(table)) if published <= day]


def leak_clusters(ctx: StageContext, day: str) -> StageResult:
    """Cluster and pool of every problem ever seen up to ``day``; what registered benchmarks overlap is marked.

    Raises:
        Abort: the file of a registered benchmark is missing or unreadable.
        FailPartition: one cluster is too large, a benchmark's file changed while it was read, or the day lies after
            all that was ingested.
    """
    from trajectory_platform.splits import benchmarks, clusters

    _check_reached(ctx, day)
    problem_days = days_up_to(ctx, tables.PROBLEM_SUITES, day)
    judged_days = days_up_to(ctx, tables.JUDGED_TRACES, day)
    chosen = ctx.settings
    files = benchmarks.registered(chosen.benchmarks)

    def body() -> Produced:
        problems = ctx.lake.read(tables.PROBLEM_SUITES, problem_days)
        links = ctx.lake.read(tables.JUDGED_TRACES, judged_days, columns=list(_LINK_COLUMNS))
        rotated = rotated_suites(ctx, [problems, links], day)
        rows, edges, hints = clusters.build_clusters(
            problems,
            links,
            day=date.fromisoformat(day),
            pool_key=chosen.pool_key,
            shares=pool_shares(ctx.settings),
            hold_outs=[*chosen.hold_outs, *rotated],
            max_cluster_share=chosen.max_cluster_share,
            min_problems_for_share=chosen.min_problems_for_share,
            benchmarks=benchmarks.load(chosen.benchmarks, files),
            near_similarity=chosen.near_similarity,
        )
        summary = _cluster_summary(rows, edges, hints) | _rotation_summary(rotated, day)
        outputs = [(tables.LEAK_EDGES, edges), (tables.LEAK_HINTS, hints), (tables.LEAK_CLUSTERS, rows)]
        return Produced([Output(table, data) for table, data in outputs], summary)

    return run_stage(
        ctx,
        stage="leak_clusters",
        day=day,
        code_version=clusters.VERSION,
        tables=(tables.LEAK_EDGES, tables.LEAK_HINTS, tables.LEAK_CLUSTERS),
        inputs={**input_digests(ctx, {"problem_suites": problem_days, "judged_traces": judged_days}), **files},
        body=body,
    )


def _check_reached(ctx: StageContext, day: str) -> None:
    """Refuse a day that the data have not reached: hold-outs are released by their date, and the newest clusters say
    what is sealed, so a mistyped year would open every rotated suite."""
    ingested = {*ctx.lake.days(tables.PROBLEM_SUITES), *ctx.lake.days(tables.JUDGED_TRACES)}
    if day > max(ingested, default=""):
        newest = f"the newest ingested is {max(ingested)}" if ingested else "nothing was ingested"
        raise FailPartition(f"no clusters as of {day}: {newest}")


def pool_shares(settings: Settings) -> Shares:
    """The shares of the draw."""
    from trajectory_platform.splits.pools import Shares

    return Shares(settings.pool_train, settings.pool_dev, settings.pool_sealed)


def place_files(settings: Settings, suites: Sequence[Path]) -> list[dict[str, Any]]:
    """Cluster and pool of every row of plain suite files, by the settings (``suite_files.split_files``)."""
    from trajectory_platform.splits.suite_files import split_files

    return split_files(
        suites,
        pool_key=settings.pool_key,
        shares=pool_shares(settings),
        hold_outs=settings.hold_outs,
        max_cluster_share=settings.max_cluster_share,
        min_problems_for_share=settings.min_problems_for_share,
        benchmarks=settings.benchmarks,
    )


def rotated_suites(ctx: StageContext, seen: Iterable[pa.Table], day: str) -> list[HoldOut]:
    """Hold-outs of the suites seen up to ``day``, released ones included."""
    from trajectory_platform.splits.pools import rotations, suite_first_days

    held = ctx.settings.hold_new_suites_days
    return rotations(suite_first_days(seen, date.fromisoformat(day)), held) if held else []


def _rotation_summary(rotated: Sequence[HoldOut], day: str) -> dict[str, Any]:
    from trajectory_platform.splits.pools import active

    held = active(rotated, date.fromisoformat(day))
    if not rotated:
        return {}
    releases = {str(entry.suite_id): str(entry.until) for entry in held}
    return {"suites_held": len(held), "suite_releases": releases}


def _cluster_summary(rows: pa.Table, edges: pa.Table, hints: pa.Table) -> dict[str, Any]:
    from trajectory_platform.splits.pools import observed_shares

    pools = Counter(rows.column("pool").to_pylist())
    sizes = Counter(rows.column("cluster_id").to_pylist())
    marks = Counter(name for names in rows.column("benchmark_overlap").to_pylist() for name in names or ())
    return {
        "problems": rows.num_rows,
        "clusters": len(sizes),
        "clusters_of_several": sum(1 for size in sizes.values() if size > 1),
        "largest_cluster": max(sizes.values(), default=0),
        "largest_diameter": max((value or 0 for value in rows.column("diameter").to_pylist()), default=0),
        "edges": edges.num_rows,
        "hints": hints.num_rows,
        **{f"pool_{pool}": pools.get(pool, 0) for pool in ("train", "dev", "sealed")},
        **{f"problems_in_benchmark_{name}": count for name, count in sorted(marks.items())},
        "shares": observed_shares(rows),
    }


def pools_text(ctx: StageContext, day: str) -> str:
    """Observed shares of the pools per category as of a day, for people."""
    from trajectory_platform.splits.pools import observed_shares, shares_lines

    clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [day])
    if not clusters.num_rows:
        return f"pools as of {day}: no problems"
    return "\n".join([f"pools as of {day}", *shares_lines(observed_shares(clusters), pool_shares(ctx.settings))])


def leak_guarded_splits(ctx: StageContext, day: str) -> StageResult:
    """The training window as of ``day``: accepted traces with cluster and pool, disjoint or not published."""
    from trajectory_platform.curation.config import filter_config
    from trajectory_platform.splits import guard

    corpus_days = published_window(ctx, tables.AXIS_A_CORPUS, day)
    raw_days = published_window(ctx, tables.RAW_TRACES, day)
    problem_days = days_up_to(ctx, tables.PROBLEM_SUITES, day)
    judged_days = days_up_to(ctx, tables.JUDGED_TRACES, day)
    read = {"leak_clusters": [day], "axis_a_corpus": corpus_days, "raw_traces": raw_days}
    read |= {"problem_suites": problem_days, "judged_traces": judged_days}
    rules = filter_config(ctx.settings)
    similarity = rules.copy_similarity if rules.active("strategy") else None

    def body() -> Produced:
        clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [day])
        splits, exclusions = guard.split_window(
            ctx.lake.read(tables.AXIS_A_CORPUS, corpus_days, columns=list(_CORPUS_COLUMNS)),
            clusters,
            day=date.fromisoformat(day),
            window_days=ctx.settings.window_days,
            judged=ctx.lake.read(tables.RAW_TRACES, raw_days, columns=["trace_id", "day"]),
            copy_similarity=similarity,
            restated=restated_rows(ctx, held_out_index(ctx, day, clusters), clusters, corpus_days),
            retracted=retracted_rows(ctx, corpus_days),
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
        inputs=input_digests(ctx, read) | retraction_inputs(ctx),
        body=body,
        extra_settings={"copy_similarity": similarity},
    )


def held_out_index(ctx: StageContext, day: str, clusters: pa.Table, also: Iterable[str] = ()) -> NgramIndex:
    """The queries of dev and sealed problems as of a day, to be looked for in rows.

    Args:
        also: further problem keys.
    """
    from trajectory_platform.splits.ngrams import NgramIndex, known_queries

    pools = dict(zip(clusters["problem_key"].to_pylist(), clusters["pool"].to_pylist(), strict=True))
    wanted = {key for key, pool in pools.items() if pool != "train"} | set(also)
    problems = ctx.lake.read(
        tables.PROBLEM_SUITES, days_up_to(ctx, tables.PROBLEM_SUITES, day), columns=["problem_key", "query"]
    )
    stated = ctx.lake.read(
        tables.JUDGED_TRACES, days_up_to(ctx, tables.JUDGED_TRACES, day), columns=list(_STATED_COLUMNS)
    )
    known = known_queries(problems, stated, clusters)
    return NgramIndex((query for query in known if query.problem_key in wanted), background=known)


def corpus_messages(
    ctx: StageContext, days: Sequence[str], wanted: set[tuple[str, str]] | None = None
) -> Iterator[tuple[str, str, str | None, list[dict[str, Any]]]]:
    """(trace id, day, problem key, messages) of corpus rows, as they are read; of all rows or of those wanted."""
    columns = ["trace_id", "day", "problem_key", "messages"]
    for day in days:
        for batch in ctx.lake.batches(tables.AXIS_A_CORPUS, day, columns=columns, batch_rows=ctx.settings.batch_rows):
            for row in batch.to_pylist():
                if wanted is None or (row["trace_id"], row["day"]) in wanted:
                    yield row["trace_id"], row["day"], row["problem_key"], orjson.loads(row["messages"])


def restated_rows(
    ctx: StageContext,
    index: NgramIndex,
    clusters: pa.Table,
    days: Sequence[str],
    wanted: set[tuple[str, str]] | None = None,
) -> dict[tuple[str, str], str]:
    """(trace id, day) -> evidence, for rows of problems of the train pool that restate a held-out problem's query."""
    facts = {row["problem_key"]: row for row in clusters.select(["problem_key", "pool", "cluster_id"]).to_pylist()}
    found: dict[tuple[str, str], str] = {}
    for trace_id, day, key, messages in corpus_messages(ctx, days, wanted):
        if key in facts and facts[key]["pool"] != "train":
            continue
        for overlap in index.overlaps(messages):
            pool = facts[overlap.problem_key]["pool"]
            if pool != "train":
                found[trace_id, day] = overlap.evidence(trace_id, show=pool != "sealed")
                break
    return found


def check_trainable(ctx: StageContext, day: str, uses: Sequence[str] = ("sft",)) -> dict[str, int]:
    """The guard of a training stage: nothing is trained unless every kind of leak is ruled out on what is published.

    Splits of other clusters, clusters of other benchmarks, a cluster, problem, content or reward product in two pools
    or on both sides, text of held-out problems in the rows to be trained on, and splits or clusters that were made
    before what they are made of changed (a late reward, a listing, a retracted run, a hold-out). Returns what was
    looked at.

    Raises:
        Abort: the file of a registered benchmark is missing.
        FailPartition: names the leak.
    """
    from trajectory_platform.evaluation.guard import assert_no_overlap
    from trajectory_platform.splits import guard

    _check_manifests(ctx, day)
    clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [day])
    splits = ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [day])
    problems = ctx.lake.read(
        tables.PROBLEM_SUITES,
        days_up_to(ctx, tables.PROBLEM_SUITES, day),
        columns=["problem_key", "reward_product_ids"],
    )
    guard.assert_disjoint(clusters, problems)
    guard.assert_disjoint(splits, problems)
    products = guard.reward_products(problems)
    rows = [{**row, "reward_product_ids": products.get(row["problem_key"], ())} for row in splits.to_pylist()]
    train = [row for row in rows if row["pool"] == "train" and not set(uses).isdisjoint(row["uses"])]
    held_out = [row for row in rows if row["pool"] != "train"] + held_out_problems(clusters, products)
    assert_no_overlap(train, held_out)
    _check_text(ctx, day, clusters, train)
    _check_current(ctx, day)
    return {"train_rows": len(train), "held_out_rows": len(held_out)}


def held_out_problems(clusters: pa.Table, products: Mapping[str, set[str]]) -> list[dict[str, Any]]:
    """Dev and sealed problems as rows that ``assert_no_overlap`` compares; ``products``: key -> reward product ids."""
    return [
        {
            "trace_id": f"problem {row['problem_key'][:16]}",
            "problem_key": row["problem_key"],
            "cluster_id": row["cluster_id"],
            "reward_product_ids": products.get(row["problem_key"], ()),
        }
        for row in clusters.select(["problem_key", "cluster_id", "pool"]).to_pylist()
        if row["pool"] != "train"
    ]


def _check_text(ctx: StageContext, day: str, clusters: pa.Table, train: Sequence[Mapping[str, Any]]) -> None:
    wanted = {(row["trace_id"], row["trace_day"]) for row in train}
    days = sorted({row["trace_day"] for row in train})
    found = restated_rows(ctx, held_out_index(ctx, day, clusters), clusters, days, wanted)
    if found:
        some = "; ".join(found[name] for name in sorted(found)[:_SHOWN_LEAKS])
        raise FailPartition(f"leak: {len(found)} training rows hold the text of held-out problems: {some}")


def _check_manifests(ctx: StageContext, day: str) -> None:
    """Refuse splits that were made of other clusters than the published ones: pools may have become stricter since."""
    from trajectory_platform.splits.benchmarks import assert_unchanged

    splits = ctx.lake.manifest(tables.LEAK_GUARDED_SPLITS, day)
    clusters = ctx.lake.manifest(tables.LEAK_CLUSTERS, day)
    if splits is None or clusters is None:
        raise FailPartition(f"the splits of {day} are not published: run leak_clusters and leak_guarded_splits first")
    if splits.inputs.get(f"leak_clusters/{day}") != clusters.content_digest:
        raise FailPartition(f"the splits of {day} are older than its leak clusters: run leak_guarded_splits again")
    assert_unchanged(ctx.settings.benchmarks, clusters.inputs)


def _check_current(ctx: StageContext, day: str) -> None:
    """Refuse clusters and splits that the lake has overtaken: what came since may join a training row to a held-out
    problem, and only clusters made anew can tell."""
    learnt = {table.name: days_up_to(ctx, table, day) for table in (tables.PROBLEM_SUITES, tables.JUDGED_TRACES)}
    clusters = ctx.lake.manifest(tables.LEAK_CLUSTERS, day)
    splits = ctx.lake.manifest(tables.LEAK_GUARDED_SPLITS, day)
    assert clusters is not None and splits is not None, "they were there a moment ago"
    now = input_digests(ctx, learnt)
    then = {name: value for name, value in clusters.inputs.items() if name.partition("/")[0] in learnt}
    changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    wanted = ctx.settings.used_by("leak_clusters")
    # the files of benchmarks were compared by their content
    changed += [name for name, value in wanted.items() if name != "benchmarks" and clusters.settings.get(name) != value]
    if changed:
        raise FailPartition(f"the leak clusters of {day} are older than {_some(changed)}: run leak_clusters again")
    read: dict[str, list[str]] = {}
    for name in splits.inputs:
        table, _, of = name.partition("/")
        read.setdefault(table, []).append(of)
    now = input_digests(ctx, read) | retraction_inputs(ctx)
    changed = sorted(name for name, value in now.items() if splits.inputs.get(name) != value)
    if changed:
        raise FailPartition(f"the splits of {day} are older than {_some(changed)}: run leak_guarded_splits again")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN_LEAKS]) + (
        f" and {len(names) - _SHOWN_LEAKS} more" if len(names) > _SHOWN_LEAKS else ""
    )
