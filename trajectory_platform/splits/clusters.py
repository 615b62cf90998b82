"""Leak clusters: connected components of the strong edges over every problem seen up to a day.

A cluster is named after its oldest problem (first day seen, then key), so its id does not change when unrelated
problems arrive, when a younger member joins, or with row order; when two clusters merge the older name stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.tables import LEAK_CLUSTERS, LEAK_EDGES
from trajectory_platform.splits.pools import Shares, active, draw, held_pools, strictest
from trajectory_platform.splits.similarity import Edge, Node, add_links, edges_between, nodes_of

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.settings import HoldOut

VERSION = "clusters-2"  # raise it when the same problems would give other clusters or pools
_SHOWN_EDGES = 40


class Clusters(NamedTuple):
    """``clusters`` in the ``leak_clusters`` schema (one row per problem key), ``edges`` in ``leak_edges``."""

    clusters: pa.Table
    edges: pa.Table


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

    Raises:
        FailPartition: a cluster is too large; the message lists the edges that built it (case D06).
    """
    nodes = nodes_of(_up_to(problems, day))
    if links is not None:
        add_links(nodes, _up_to(links, day))
    edges = edges_between(nodes)
    members = components(nodes, edges)
    _check_share(members, edges, len(nodes), max_cluster_share, min_problems_for_share)
    rows = _rows(members, day, pool_key, Shares(*shares), active(hold_outs, day))
    return Clusters(_table(rows, LEAK_CLUSTERS.schema()), _edge_table(edges, day))


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
    members: Mapping[str, list[Node]], edges: Sequence[Edge], total: int, max_share: float, min_problems: int
) -> None:
    """Refuse a cluster that holds too large a share of all problems (chaining, case D06)."""
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
    lines = [f"  {e.left_key[:12]} - {e.right_key[:12]} {e.kind} {e.evidence[:80]!a}" for e in own[:_SHOWN_EDGES]]
    if len(own) > _SHOWN_EDGES:
        lines.append(f"  ... and {len(own) - _SHOWN_EDGES} more")
    raise FailPartition(
        f"leak cluster {cluster_id} holds {len(group)} of {total} problems "
        f"(share {len(group) / total:.2f}, allowed {max_share}); built by {len(own)} edges ({kinds}):\n"
        + "\n".join(lines)
    )


def _up_to(table: pa.Table, day: date) -> pa.Table:
    import pyarrow.compute as pc

    return table.filter(pc.less_equal(table["day"], day.isoformat()))


def _edge_table(edges: Sequence[Edge], day: date) -> pa.Table:
    return _table([{"day": day.isoformat(), **edge._asdict()} for edge in edges], LEAK_EDGES.schema())


def _table(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=schema)
