"""Leak clusters: connected components of the strong and medium edges over every problem seen up to a day.

A cluster is named after its oldest problem (first day seen, then key), so its id does not change when unrelated
problems arrive, when a younger member joins, or with row order; when two clusters merge the older name stays.

Problems of registered benchmarks are no members: a cluster is marked with the benchmarks that one of its problems is a
variant of, and one that is declared sealed seals it. So registering a file that is not sealed changes no pool.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.tables import LEAK_CLUSTERS, LEAK_EDGES, LEAK_HINTS
from trajectory_platform.splits.hints import hints_between
from trajectory_platform.splits.pools import Shares, active, draw, held_pools, strictest
from trajectory_platform.splits.similarity import Edge, Node, add_links, edges_between, nodes_of

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.settings import HoldOut
    from trajectory_platform.splits.weak import Embed

VERSION = "clusters-4"  # raise it when the same problems would give other clusters or pools
_SHOWN_EDGES = 40
EXACT_DIAMETER = 200  # members up to which the diameter is exact
BENCHMARK_KEY = "benchmark:"  # start of the keys that stand for benchmark problems in ``leak_edges``


class Clusters(NamedTuple):
    """``clusters`` in the ``leak_clusters`` schema (one row per problem key), ``edges`` in ``leak_edges``, ``hints`` in
    ``leak_hints`` (empty where they were not asked for).

    An edge to a problem of a registered benchmark has ``benchmark:NAME:KEY`` as its right key.
    """

    clusters: pa.Table
    edges: pa.Table
    hints: pa.Table


class BenchmarkProblems(NamedTuple):
    """A registered benchmark: its problems in the ``problem_suites`` schema."""

    name: str
    problems: pa.Table
    sealed: bool = False


def build_clusters(
    problems: pa.Table,
    links: pa.Table | None,
    *,
    day: date,
    pool_key: str,
    shares: Shares | tuple[int, int, int] = Shares(),  # noqa: B008  (an immutable tuple)
    hold_outs: Sequence[HoldOut] = (),
    max_cluster_share: float = 0.2,
    min_problems_for_share: int = 50,
    benchmarks: Sequence[BenchmarkProblems] = (),
    near_similarity: float | None = None,
    embed: Embed | None = None,
) -> Clusters:
    """Cluster and pool of every problem seen up to ``day``.

    Args:
        problems: ``problem_suites`` rows of all days; rows after ``day`` are ignored.
        links: columns day, problem_id, suite_id, problem_key, query, query_verified, category, outcome_success,
            recommended_ids of ``judged_traces`` of all days; rows after ``day`` are ignored.
        shares: percentages train, dev, sealed.
        hold_outs: dated entries; those in force on ``day`` apply.
        max_cluster_share: largest share of all problems that one cluster may hold ...
        min_problems_for_share: ... tested from this many problems on.
        benchmarks: registered files; their overlap is marked, those declared sealed seal what they overlap.
        near_similarity: word similarity from which two problems of different clusters are listed as a hint; None
            lists no hints.
        embed: texts -> vectors, for hints by ``weak.EMBEDDING_SIMILARITY`` as well.

    Raises:
        FailPartition: a cluster is too large; the message lists the edges that built it (case D06).
    """
    with _no_cycle_search():
        nodes = nodes_of(_up_to(problems, day))
        if links is not None:
            add_links(nodes, _up_to(links, day))
        edges = edges_between(nodes)
        members = components(nodes, edges)
        rows = _rows(members, day, pool_key, Shares(*shares), active(hold_outs, day))
        sealed = {str(row["problem_key"]) for row in rows if row["pool"] == "sealed"}
        _check_share(members, edges, max_cluster_share, min_problems_for_share, sealed)
        overlaps = benchmark_edges(nodes, benchmarks)
        _mark_diameters(rows, members, edges)
        _mark_benchmarks(rows, overlaps, {benchmark.name for benchmark in benchmarks if benchmark.sealed})
        hints = [] if near_similarity is None else hints_between(nodes, members, near_similarity, embed)
        return Clusters(
            _table(rows, LEAK_CLUSTERS.schema()),
            _edge_table(sorted([*edges, *overlaps]), day, LEAK_EDGES.schema()),
            _edge_table(hints, day, LEAK_HINTS.schema()),
        )


@contextmanager
def _no_cycle_search() -> Iterator[None]:
    """The collector of cycles paused: of the millions of small objects made here none is part of a cycle, and looking
    through them again and again is 40 % of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def benchmark_edges(nodes: Mapping[str, Node], benchmarks: Sequence[BenchmarkProblems]) -> list[Edge]:
    """Why problems are variants of benchmark problems: edges with ``benchmark:NAME:KEY`` on the right, sorted.

    The benchmark's problems count as younger than all others, so they never stand between two of those.
    """
    combined = dict(nodes)
    for benchmark in benchmarks:
        for key, node in nodes_of(benchmark.problems).items():
            name = f"{BENCHMARK_KEY}{benchmark.name}:{key}"
            last = date.max.isoformat()
            combined[name] = replace(
                node,
                key=name,
                first_seen=last,
                bindings=set(),  # its ids are the file's own
                answers=dict.fromkeys(node.answers, last),
                specs=dict.fromkeys(node.specs, last),
            )
    if len(combined) == len(nodes):
        return []
    return [edge for edge in edges_between(combined) if edge.left_key in nodes and edge.right_key not in nodes]


def _mark_benchmarks(rows: Sequence[dict[str, object]], overlaps: Sequence[Edge], sealed: set[str]) -> None:
    """Set ``benchmark_overlap`` per cluster; a sealed benchmark seals it, and holds the problems it is tied to."""
    by_key: dict[str, set[str]] = {}
    for edge in overlaps:
        by_key.setdefault(edge.left_key, set()).add(edge.right_key.split(":")[1])
    by_cluster: dict[object, set[str]] = {}
    for row in rows:
        by_cluster.setdefault(row["cluster_id"], set()).update(by_key.get(str(row["problem_key"]), ()))
    for row in rows:
        names = by_cluster[row["cluster_id"]]
        row["benchmark_overlap"] = sorted(names)
        if names & sealed:
            row["pool"] = "sealed"
            row["held_out"] = row["held_out"] or bool(by_key.get(str(row["problem_key"]), set()) & sealed)


def _mark_diameters(
    rows: Sequence[dict[str, object]], members: Mapping[str, list[Node]], edges: Iterable[Edge]
) -> None:
    neighbours: dict[str, set[str]] = {}
    for edge in edges:
        neighbours.setdefault(edge.left_key, set()).add(edge.right_key)
        neighbours.setdefault(edge.right_key, set()).add(edge.left_key)
    found = {name: diameter([node.key for node in group], neighbours) for name, group in members.items()}
    for row in rows:
        row["diameter"] = found[str(row["cluster_id"])]


def diameter(keys: Sequence[str], neighbours: Mapping[str, set[str]]) -> int:
    """The longest shortest path between two members, in edges (case D06).

    Exact up to ``EXACT_DIAMETER`` members. Beyond, twice the least eccentricity met on a double sweep: never less than
    the diameter and at most twice it, so that chaining is never understated.
    """
    if len(keys) < 3:
        return len(keys) - 1
    if len(keys) <= EXACT_DIAMETER:
        return max(_levels(key, neighbours)[1] for key in keys)
    far, _ = _levels(keys[0], neighbours)
    end, _ = _levels(far, neighbours)
    middle = _middle(far, end, neighbours)
    return 2 * min(_levels(key, neighbours)[1] for key in (keys[0], far, end, middle))


def _levels(start: str, neighbours: Mapping[str, set[str]]) -> tuple[str, int]:
    """The smallest key among the farthest from ``start``, and its distance."""
    seen, level, depth = {start}, [start], 0
    while following := {there for here in level for there in neighbours.get(here, ()) if there not in seen}:
        seen |= following
        level, depth = sorted(following), depth + 1
    return min(level), depth


def _middle(start: str, goal: str, neighbours: Mapping[str, set[str]]) -> str:
    """The problem half way on a shortest path."""
    came, level = {start: start}, [start]
    while goal not in came:
        following: list[str] = []
        for here in level:
            for there in sorted(neighbours.get(here, ())):
                if there not in came:
                    came[there] = here
                    following.append(there)
        level = following
    path = [goal]
    while path[-1] != start:
        path.append(came[path[-1]])
    return path[len(path) // 2]


def components(nodes: Mapping[str, Node], edges: Iterable[Edge]) -> dict[str, list[Node]]:
    """Cluster id -> members, oldest first; the ids in order. Union-find with path halving."""
    parent = {key: key for key in nodes}

    def root(key: str) -> str:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for edge in edges:
        left, right = root(edge.left_key), root(edge.right_key)
        if left != right:
            older, younger = sorted((left, right), key=lambda key: nodes[key].age)
            parent[younger] = older
    groups: dict[str, list[Node]] = {}
    for node in sorted(nodes.values(), key=lambda node: node.age):
        groups.setdefault(cluster_name(root(node.key)), []).append(node)
    return dict(sorted(groups.items()))


def cluster_name(oldest_key: str) -> str:
    """``lc-`` and 16 digits of the oldest problem's key."""
    return f"lc-{oldest_key[:16]}"


def _rows(
    members: Mapping[str, list[Node]], day: date, pool_key: str, shares: Shares, hold_outs: Sequence[HoldOut]
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for cluster_id, group in members.items():
        draws = {node.key: draw(pool_key, node.key, shares) for node in group}
        held = {node.key: held_pools(hold_outs, node.key, node.bindings) for node in group}
        pool = strictest([*draws.values(), *(pool for pools in held.values() for pool in pools)])
        for node in group:
            rows.append(
                {
                    "day": day.isoformat(),
                    "problem_key": node.key,
                    "problem_ids": sorted({problem for _, problem in node.bindings}),
                    "suite_ids": sorted({suite for suite, _ in node.bindings if suite is not None}),
                    "category": node.category,
                    "first_seen": node.first_seen,
                    "cluster_id": cluster_id,
                    "pool": pool,
                    "own_draw": draws[node.key],
                    "held_out": bool(held[node.key]),
                    "reward_state": node.reward_state,
                    "cluster_size": len(group),
                }
            )
    return sorted(rows, key=lambda row: str(row["problem_key"]))


def _check_share(
    members: Mapping[str, list[Node]],
    edges: Sequence[Edge],
    max_share: float,
    min_problems: int,
    sealed: AbstractSet[str],
) -> None:
    """Refuse a cluster that holds too large a share of all problems (chaining, case D06).

    The message goes to terminals, logs and event stores: the evidence of edges of ``sealed`` problems (queries, reward
    products) is not part of it.
    """
    total = sum(map(len, members.values()))
    if total < min_problems:
        return
    cluster_id, group = max(members.items(), key=lambda item: (len(item[1]), item[0]))
    if len(group) <= max_share * total:
        return
    keys = {node.key for node in group}
    own = [edge for edge in edges if edge.left_key in keys]
    weight = Counter((edge.kind, edge.evidence) for edge in own)
    own.sort(key=lambda edge: (-weight[(edge.kind, edge.evidence)], edge))
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(Counter(edge.kind for edge in own).items()))
    lines = [f"  {e.left_key[:12]} - {e.right_key[:12]} {e.kind} {_evidence(e, sealed)}" for e in own[:_SHOWN_EDGES]]
    if len(own) > _SHOWN_EDGES:
        lines.append(f"  ... and {len(own) - _SHOWN_EDGES} more")
    raise FailPartition(
        f"leak cluster {cluster_id} holds {len(group)} of {total} problems "
        f"(share {len(group) / total:.2f}, allowed {max_share}); built by {len(own)} edges ({kinds}):\n"
        + "\n".join(lines)
    )


def _evidence(edge: Edge, sealed: AbstractSet[str]) -> str:
    return "(sealed)" if {edge.left_key, edge.right_key} & sealed else ascii(edge.evidence[:80])


def _up_to(table: pa.Table, day: date) -> pa.Table:
    import pyarrow.compute as pc

    return table.filter(pc.less_equal(table["day"], day.isoformat()))


def _edge_table(edges: Sequence[Edge], day: date, schema: pa.Schema) -> pa.Table:
    return _table([{"day": day.isoformat(), **edge._asdict()} for edge in edges], schema)


def _table(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=schema)
