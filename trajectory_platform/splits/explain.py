"""Why two problems are, or are not, in one leak cluster (``leaks explain PROBLEM PROBLEM``)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort

if TYPE_CHECKING:
    import pyarrow as pa


def explain(clusters: pa.Table, edges: pa.Table, left: str, right: str) -> dict[str, Any]:
    """The shortest chain of edges between two problems.

    Args:
        clusters, edges: ``leak_clusters`` and ``leak_edges`` of one day.
        left, right: problem key, an unambiguous start of one (8 digits or more), or problem id.

    Returns:
        ``same_cluster``, ``left`` and ``right`` (their cluster rows), ``path``: list of
        ``{from, to, kind, value, evidence}``, empty when the problems are not connected or are the same.

    Raises:
        Abort: a problem is unknown, or an id names several problem keys.
    """
    rows = {row["problem_key"]: row for row in clusters.to_pylist()}
    start, goal = _resolve(rows, left), _resolve(rows, right)
    return {
        "same_cluster": rows[start]["cluster_id"] == rows[goal]["cluster_id"],
        "left": rows[start],
        "right": rows[goal],
        "path": _path(edges, start, goal),
    }


def _resolve(rows: dict[str, dict[str, Any]], name: str) -> str:
    if name in rows:
        return name
    named = sorted(key for key, row in rows.items() if name in row["problem_ids"])
    if not named and len(name) >= 8:
        named = sorted(key for key in rows if key.startswith(name))
    if len(named) == 1:
        return named[0]
    if not named:
        raise Abort(f"no problem {name!a} in leak_clusters of this day: give a problem id or a problem key")
    raise Abort(
        f"problem {name!a} has {len(named)} contents; give one of the keys {', '.join(key[:16] for key in named)}"
    )


def _path(edges: pa.Table, start: str, goal: str) -> list[dict[str, Any]]:
    """Breadth-first over the edges, in their sorted order, so that the answer is always the same."""
    neighbours: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for edge in edges.to_pylist():
        neighbours.setdefault(edge["left_key"], []).append((edge["right_key"], edge))
        neighbours.setdefault(edge["right_key"], []).append((edge["left_key"], edge))
    came: dict[str, tuple[str, dict[str, Any]] | None] = {start: None}
    queue = deque([start])
    while queue and goal not in came:
        here = queue.popleft()
        for there, edge in neighbours.get(here, ()):
            if there not in came:
                came[there] = (here, edge)
                queue.append(there)
    path: list[dict[str, Any]] = []
    step = came.get(goal)
    there = goal
    while step is not None:
        here, edge = step
        path.append(
            {"from": here, "to": there, "kind": edge["kind"], "value": edge["value"], "evidence": edge["evidence"]}
        )
        there, step = here, came[here]
    return path[::-1]
