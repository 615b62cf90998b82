"""Registered external benchmarks: what their files are, what they overlap, and what sealing one would cost.

The problems of a benchmark are evaluation data and nothing else. They are no members of the clusters and are not
counted in the check of a cluster's share: registering a file must move no pool and stop no run
(``clusters.BenchmarkProblems``). Where a cluster holds a variant of one, its name stands in ``benchmark_overlap`` and
the benchmark's score is shown as contaminated. Declared ``sealed``, it seals these clusters; as all public suite
problems are ShoppingBench test rows (domain 4.3), that can empty a corpus, so what it costs is counted first.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.splits.clusters import BENCHMARK_KEY, BenchmarkProblems, benchmark_edges
from trajectory_platform.splits.similarity import add_links, nodes_of

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.settings import Benchmark


def registered(benchmarks: Iterable[Benchmark]) -> dict[str, str]:
    """``benchmark/NAME`` -> ``sealed`` or ``marked`` and the SHA-256 of the file: what enters an identity.

    Raises:
        Abort: a file is missing or cannot be read, or two benchmarks have one name.
    """
    found: dict[str, str] = {}
    for benchmark in benchmarks:
        name = f"benchmark/{benchmark.name}"
        if name in found:
            raise Abort(f"two benchmarks are named {benchmark.name!a}: rename one")
        found[name] = f"{'sealed' if benchmark.sealed else 'marked'}:{_digest(benchmark)}"
    return found


def load(benchmarks: Sequence[Benchmark], known: Mapping[str, str]) -> list[BenchmarkProblems]:
    """The problems of the files that ``registered`` has digested.

    Raises:
        Abort: see ``registered``; or no row of a file can be read.
        FailPartition: a file is no longer what ``known`` says.
    """
    from trajectory_platform.splits.suite_files import read_benchmarks

    read = read_benchmarks(benchmarks)
    now = registered(benchmarks)
    for name in now:
        if now[name] != known.get(name):
            raise FailPartition(f"{name}: the file changed while it was read; run the stage again")
    return read


def assert_unchanged(benchmarks: Iterable[Benchmark], recorded: Mapping[str, Any]) -> None:
    """The benchmarks of the settings are the ones that clusters were made with.

    Args:
        recorded: ``inputs`` of the manifest of ``leak_clusters``.

    Raises:
        Abort: a file is missing.
        FailPartition: one was registered, removed, sealed, released or changed since.
    """
    now = registered(benchmarks)
    then = {name: value for name, value in recorded.items() if name.startswith("benchmark/")}
    for name in sorted(now.keys() | then.keys()):
        if now.get(name) != then.get(name):
            raise FailPartition(f"{name} {_change(now.get(name), then.get(name))}: run leak_clusters again")


def _change(now: str | None, then: Any) -> str:
    if then is None:
        return "was registered since the leak clusters were made"
    if now is None:
        return "is no longer registered, but the leak clusters were made with it"
    if now.partition(":")[2] == str(then).partition(":")[2]:
        return "was sealed or released since the leak clusters were made"
    return "has changed since the leak clusters were made"


def _digest(benchmark: Benchmark) -> str:
    digest = hashlib.sha256()
    try:
        with Path(benchmark.path).open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise Abort(f"benchmark {benchmark.name!a}: cannot read {benchmark.path}: {reason}") from error
    return digest.hexdigest()


def overlapping(
    problems: pa.Table, links: pa.Table | None, clusters: pa.Table, benchmark: BenchmarkProblems
) -> dict[str, list[str]]:
    """Clusters that hold a variant of a benchmark problem: cluster id -> benchmark problem keys, sorted.

    Args:
        problems, links: as for ``clusters.build_clusters``, of the days up to that of ``clusters``.
    """
    nodes = nodes_of(problems)
    if links is not None:
        add_links(nodes, links)
    rows = zip(clusters["problem_key"].to_pylist(), clusters["cluster_id"].to_pylist(), strict=True)
    cluster_of = dict(rows)
    found: dict[str, set[str]] = {}
    for edge in benchmark_edges(nodes, [benchmark]):
        if edge.left_key in cluster_of:
            found.setdefault(cluster_of[edge.left_key], set()).add(edge.right_key.split(":", 2)[2])
    return {cluster: sorted(keys) for cluster, keys in sorted(found.items())}


def ties(edges: pa.Table) -> dict[str, set[str]]:
    """Key of a benchmark problem (``benchmark:NAME:KEY``) -> own problems that are variants of it (``leak_edges``)."""
    found: dict[str, set[str]] = {}
    for left, right in zip(edges["left_key"].to_pylist(), edges["right_key"].to_pylist(), strict=True):
        if right.startswith(BENCHMARK_KEY):
            found.setdefault(right, set()).add(left)
    return found


def cost_per_day(splits: pa.Table, sealed_clusters: Iterable[str]) -> list[dict[str, Any]]:
    """What training loses when clusters are sealed: rows {day, train_traces, lost, lost_dev, share}, by day.

    Args:
        splits: ``leak_guarded_splits`` of one as-of day; ``day`` of the answer is the trace's day. Traces that are
            sealed already are not lost anew.
    """
    sealed = set(sealed_clusters)
    counts: Counter[tuple[str, str]] = Counter()
    columns = [splits[name].to_pylist() for name in ("trace_day", "pool", "cluster_id")]
    for day, pool, cluster in zip(*columns, strict=True):
        counts[day, pool] += 1
        counts[day, f"lost {pool}"] += cluster in sealed
    rows = []
    for day in sorted({day for day, _ in counts}):
        train, lost = counts[day, "train"], counts[day, "lost train"]
        share = round(lost / train, 4) if train else 0.0
        rows.append(
            {"day": day, "train_traces": train, "lost": lost, "lost_dev": counts[day, "lost dev"], "share": share}
        )
    return rows
