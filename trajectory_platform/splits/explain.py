"""Why two problems are, or are not, in one leak cluster (``leaks explain PROBLEM PROBLEM``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort
from trajectory_platform.splits.clusters import BENCHMARK_KEY
from trajectory_platform.splits.constraints import BOILERPLATE, Item, prices_meet, same_request
from trajectory_platform.splits.similarity import Node, nodes_of, without_voucher
from trajectory_platform.splits.weak import similarity

if TYPE_CHECKING:
    import pyarrow as pa

# Asked with the keys of the sealed problems an answer would show; True: the look was recorded, show them.
Reveal = Callable[[Sequence[str]], bool]
HIDDEN = "(sealed)"


def explain(
    clusters: pa.Table,
    edges: pa.Table,
    left: str,
    right: str,
    *,
    hints: pa.Table | None = None,
    problems: pa.Table | None = None,
    reveal: Reveal | None = None,
) -> dict[str, Any]:
    """The shortest chain of edges between two problems, or what they share and where they differ.

    Args:
        clusters, edges, hints: ``leak_clusters``, ``leak_edges`` and ``leak_hints`` of one day.
        left, right: problem key, an unambiguous start of one (8 digits or more), or problem id.
        problems: ``problem_suites`` rows of the two problems (others are ignored), to compare what they ask for.
        reveal: decides whether text and products of sealed problems may be shown, and records that they were; without
            it everything is shown (tables that hold no sealed problems, plain files).

    Returns:
        ``same_cluster``; ``left`` and ``right`` (their cluster rows); ``path``: list of ``{from, to, kind, value,
        evidence}``, empty when the problems are not connected or are the same; ``why_not``: None for one cluster, else
        ``{nearest_hint, compared, sealed}``. ``nearest_hint`` is the strongest hint between the two problems, else
        between their clusters (an edge, as in ``path``), or None; ``compared`` is None where ``problems`` does not hold
        both, else see ``compare``; ``sealed`` says that text was withheld.

    Raises:
        Abort: a problem is unknown, or an id names several problem keys.
    """
    rows = {row["problem_key"]: row for row in clusters.to_pylist()}
    start, goal = _resolve(rows, left), _resolve(rows, right)
    same = rows[start]["cluster_id"] == rows[goal]["cluster_id"]
    path = _path(edges, start, goal)
    hint = None if same or hints is None else _nearest(hints, rows, start, goal)
    shown = {start, goal, *(key for step in [*path, *([hint] if hint else [])] for key in (step["from"], step["to"]))}
    sealed = sorted(key for key in shown if rows.get(key, {}).get("pool") == "sealed")
    withheld = bool(sealed) and reveal is not None and not reveal(sealed)
    compared = None
    if not same and not withheld and problems is not None:
        found = nodes_of(_only(problems, (start, goal)))
        compared = compare(found[start], found[goal]) if start in found and goal in found else None
    if withheld:
        path = [{**step, "evidence": HIDDEN} for step in path]
        hint = hint and {**hint, "evidence": HIDDEN}
    return {
        "same_cluster": same,
        "left": rows[start],
        "right": rows[goal],
        "path": path,
        "why_not": None if same else {"nearest_hint": hint, "compared": compared, "sealed": withheld},
    }


def compare(left: Node, right: Node) -> dict[str, Any]:
    """What two problems share and where they differ.

    Returns:
        ``words``: word similarity of their queries; ``words_without_voucher``: the same without the voucher tail;
        ``queries_known``, ``rewards_known``: whether both have one; ``items``: per item of the smaller reward the most
        alike of the other: ``{left_title, right_title, same_title, same_product, shared, only_left, only_right,
        prices_meet, same_request}``; ``boilerplate``: services and pairs that both ask for somewhere and that tell
        nothing.
    """
    queries = list(product(sorted(left.queries | left.said), sorted(right.queries | right.said)))
    specs = list(product(left.specs, right.specs))
    items = max((_items(one, two) for one, two in specs), key=_alike, default=[])
    return {
        "words": round(max((similarity(one, two) for one, two in queries), default=0.0), 4),
        "words_without_voucher": round(
            max((similarity(without_voucher(one), without_voucher(two)) for one, two in queries), default=0.0), 4
        ),
        "queries_known": bool(queries),
        "rewards_known": bool(specs),
        "items": items,
        "boilerplate": sorted(_boilerplate(left) & _boilerplate(right)),
    }


def _items(left: Sequence[Item], right: Sequence[Item]) -> list[dict[str, Any]]:
    """Items side by side: greedily the most alike, each once."""
    alike = sorted(
        (one.title != two.title, -len(one.pairs & two.pairs), i, j)
        for i, one in enumerate(left)
        for j, two in enumerate(right)
    )
    found: list[dict[str, Any]] = []
    used: set[tuple[str, int]] = set()
    for _, _, i, j in alike:
        if used.isdisjoint({("left", i), ("right", j)}):
            used |= {("left", i), ("right", j)}
            found.append(_beside(left[i], right[j]))
    return found


def _beside(one: Item, two: Item) -> dict[str, Any]:
    return {
        "left_title": one.title,
        "right_title": two.title,
        "same_title": one.title == two.title,
        "same_product": one.product_id == two.product_id,
        "shared": sorted(one.pairs & two.pairs),
        "only_left": sorted(one.pairs - two.pairs),
        "only_right": sorted(two.pairs - one.pairs),
        "prices_meet": prices_meet(one, two),
        "same_request": one.product_id == two.product_id or same_request(one, two),
    }


def _alike(items: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    return (sum(item["same_title"] for item in items), sum(len(item["shared"]) for item in items))


def _boilerplate(node: Node) -> set[str]:
    items = [item for spec in node.specs for item in spec]
    plain = {pair for item in items for pair in item.pairs if pair.partition("=")[2] in BOILERPLATE}
    return plain | {f"service={name}" for item in items for name in item.services}


def _only(problems: pa.Table, keys: Iterable[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    return problems.filter(pc.is_in(problems["problem_key"], value_set=pa.array(sorted(keys), pa.string())))


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


def _nearest(hints: pa.Table, rows: Mapping[str, Mapping[str, Any]], start: str, goal: str) -> dict[str, Any] | None:
    """The strongest hint between the two problems, else between their clusters."""
    wanted = {rows[start]["cluster_id"], rows[goal]["cluster_id"]}
    best: tuple[bool, float, str, str] | None = None
    found: dict[str, Any] | None = None
    for hint in hints.to_pylist():
        keys = (hint["left_key"], hint["right_key"])
        if {rows.get(key, {}).get("cluster_id") for key in keys} == wanted:
            rank = (set(keys) == {start, goal}, hint["value"], hint["kind"], hint["evidence"])
            if best is None or rank > best:
                best, found = rank, _step(*keys, hint)
    return found


def _step(here: str, there: str, edge: Mapping[str, Any]) -> dict[str, Any]:
    return {"from": here, "to": there, "kind": edge["kind"], "value": edge["value"], "evidence": edge["evidence"]}


def _path(edges: pa.Table, start: str, goal: str) -> list[dict[str, Any]]:
    """Breadth-first over the edges, in their sorted order, so that the answer is always the same. A benchmark problem
    is no member of a cluster, so no way leads over it."""
    neighbours: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for edge in edges.to_pylist():
        if edge["right_key"].startswith(BENCHMARK_KEY):
            continue
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
        path.append(_step(here, there, edge))
        there, step = here, came[here]
    return path[::-1]
