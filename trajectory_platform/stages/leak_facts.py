"""Leak clusters as of a day for its report: sizes, and what that day added."""

from __future__ import annotations

from collections import Counter
from typing import Any

from trajectory_platform.lake import tables
from trajectory_platform.reports.leak_section import GROWN, KNOWN, NEW, LeakFacts
from trajectory_platform.stages.context import StageContext

Row = dict[str, Any]
_MOST_CHANGED = 15
_COLUMNS = ["problem_key", "problem_ids", "category", "first_seen", "cluster_id", "pool"]
POOLS = ("train", "dev", "sealed")


def leak_facts(ctx: StageContext, day: str) -> LeakFacts | None:
    """The clusters as of the day, or of the next later day that has them without the problems that came after; None
    where there are none.

    A cluster is new when all its problems were first seen that day, grown when some were. What joins problems of
    sealed clusters is not told (they are counted): the pools are those of the *newest* clusters where these know more.
    """
    built = sorted(one for one in ctx.lake.days(tables.LEAK_CLUSTERS) if one >= day)
    if not built:
        return None
    as_of = built[0]
    rows = [
        row
        for row in ctx.lake.read(tables.LEAK_CLUSTERS, [as_of], columns=_COLUMNS).to_pylist()
        if row["first_seen"] <= day
    ]
    members: dict[str, list[Row]] = {}
    for row in rows:
        members.setdefault(row["cluster_id"], []).append(row)
    states = {cluster: _state(found, day) for cluster, found in members.items()}
    sizes: dict[str, Counter[int]] = {}
    for cluster, found in members.items():
        sizes.setdefault(states[cluster], Counter())[len(found)] += 1
    changed = [cluster for cluster, found in members.items() if states[cluster] != KNOWN and len(found) > 1]
    sealed = _sealed_keys(ctx)
    hidden = {
        cluster
        for cluster in changed
        if any(row["pool"] == "sealed" or row["problem_key"] in sealed for row in members[cluster])
    }
    return LeakFacts(
        day=day,
        as_of=as_of,
        sizes={state: dict(sorted(counts.items())) for state, counts in sorted(sizes.items())},
        pools=[_pool(pool, members, states, day) for pool in POOLS],
        changed=_changed(ctx, as_of, day, [name for name in changed if name not in hidden], members, states),
        sealed_changed=len(hidden),
    )


def _state(found: list[Row], day: str) -> str:
    new = sum(row["first_seen"] == day for row in found)
    return NEW if new == len(found) else GROWN if new else KNOWN


def _pool(pool: str, members: dict[str, list[Row]], states: dict[str, str], day: str) -> Row:
    own = {cluster: found for cluster, found in members.items() if found[0]["pool"] == pool}
    return {
        "pool": pool,
        "clusters": len(own),
        "problems": sum(map(len, own.values())),
        "new_clusters": sum(states[cluster] == NEW for cluster in own),
        "new_problems": sum(row["first_seen"] == day for found in own.values() for row in found),
    }


def _sealed_keys(ctx: StageContext) -> frozenset[str]:
    from trajectory_platform.lake import sealing

    seal = sealing.sealed(ctx.lake)
    return seal.keys if seal is not None else frozenset()


def _changed(
    ctx: StageContext,
    as_of: str,
    day: str,
    changed: list[str],
    members: dict[str, list[Row]],
    states: dict[str, str],
) -> list[Row]:
    largest = sorted(changed, key=lambda cluster: (-len(members[cluster]), cluster))[:_MOST_CHANGED]
    if not largest:
        return []
    wanted = {row["problem_key"] for cluster in largest for row in members[cluster]}
    kinds: dict[str, set[str]] = {}
    edges = ctx.lake.read(tables.LEAK_EDGES, [as_of], columns=["left_key", "right_key", "kind"], ordered=False)
    for edge in edges.to_pylist():
        for key in {edge["left_key"], edge["right_key"]} & wanted:
            kinds.setdefault(key, set()).add(edge["kind"])
    return [
        {
            "cluster_id": cluster,
            "state": states[cluster],
            "pool": members[cluster][0]["pool"],
            "size": len(members[cluster]),
            "new": sum(row["first_seen"] == day for row in members[cluster]),
            "category": ", ".join(sorted({row["category"] for row in members[cluster]})),
            "why": ", ".join(sorted(set().union(*(kinds.get(row["problem_key"], set()) for row in members[cluster])))),
            "problems": sorted(problem for row in members[cluster] for problem in row["problem_ids"]),
        }
        for cluster in largest
    ]
