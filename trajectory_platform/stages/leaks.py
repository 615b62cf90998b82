"""``leaks explain``: the chain of edges between two problems, from the newest clusters of the lake."""

from __future__ import annotations

from typing import Any

from trajectory_platform.errors import Abort
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.text import shown


def explain_problems(settings: Settings, left: str, right: str) -> dict[str, Any]:
    """Whether two problems are variants of one another, by which edges, and what that means for their pool.

    Raises:
        Abort: when no clusters were published, or a problem is unknown or ambiguous.
    """
    from trajectory_platform.splits.explain import explain

    ctx = StageContext(settings)
    days = sorted(ctx.lake.days(tables.LEAK_CLUSTERS))
    if not days:
        raise Abort(f"no leak clusters in {settings.lake_uri}: run 'trajectory-platform train sft' first")
    facts = explain(
        ctx.lake.read(tables.LEAK_CLUSTERS, [days[-1]]), ctx.lake.read(tables.LEAK_EDGES, [days[-1]]), left, right
    )
    return {**facts, "as_of": days[-1], "text": _text(facts, days[-1])}


def _text(facts: dict[str, Any], as_of: str) -> str:
    lines = [f"as of {as_of}"]
    for side in ("left", "right"):
        row = facts[side]
        lines.append(
            f"{side:<6} {row['problem_key'][:16]}  {shown(row['category'])}  cluster {row['cluster_id']}  "
            f"pool {row['pool']} (own draw {row['own_draw']})  problems {', '.join(map(shown, row['problem_ids']))}"
        )
    if not facts["same_cluster"]:
        lines.append("different clusters: no chain of strong edges joins them")
    elif not facts["path"]:
        lines.append("the same problem")
    for edge in facts["path"]:
        lines.append(
            f"  {edge['from'][:16]} -- {edge['kind']} {edge['value']:.2f} ({shown(edge['evidence'], 80)}) "
            f"-- {edge['to'][:16]}"
        )
    return "\n".join(lines)
