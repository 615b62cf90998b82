"""``leaks explain``: how two problems are tied, or what keeps them apart, from the newest clusters of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort
from trajectory_platform.lake import ledger, tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.text import shown

if TYPE_CHECKING:
    from trajectory_platform.splits.explain import Reveal


def explain_problems(
    settings: Settings, left: str, right: str, *, sealed_reason: str | None = None, at: datetime | None = None
) -> dict[str, Any]:
    """Whether two problems are variants of one another, by which edges, or why not, and their pool.

    Args:
        sealed_reason: why text or products of sealed problems must be seen: the look is recorded as of ``at``. Without
            it they are withheld.

    Raises:
        Abort: when no clusters were published, or a problem is unknown or ambiguous.
    """
    from trajectory_platform.splits.explain import explain

    ctx = StageContext(settings)
    days = sorted(ctx.lake.days(tables.LEAK_CLUSTERS))
    if not days:
        raise Abort(f"no leak clusters in {settings.lake_uri}: run 'trajectory-platform train sft' first")
    last = days[-1]
    hinted = last in ctx.lake.days(tables.LEAK_HINTS)
    listed = [day for day in sorted(ctx.lake.days(tables.PROBLEM_SUITES)) if day <= last]
    facts = explain(
        ctx.lake.read(tables.LEAK_CLUSTERS, [last]),
        ctx.lake.read(tables.LEAK_EDGES, [last]),
        left,
        right,
        hints=ctx.lake.read(tables.LEAK_HINTS, [last]) if hinted else None,
        problems=ctx.lake.read(tables.PROBLEM_SUITES, listed) if listed else None,
        reveal=_withhold if sealed_reason is None else _recorded(ctx, f"{left} {right}", sealed_reason, at),
    )
    return {**facts, "as_of": last, "text": explained_text(facts, last)}


def explain_plain_files(settings: Settings, paths: Sequence[str], left: str, right: str) -> dict[str, Any]:
    """The same for problems of suite or benchmark files, without a lake.

    Raises:
        Abort: a file cannot be read, or a problem is unknown or ambiguous.
    """
    from trajectory_platform.splits.suite_files import explain_files

    facts = explain_files(paths, left, right, pool_key=settings.pool_key, near_similarity=settings.near_similarity)
    return {**facts, "as_of": None, "text": explained_text(facts, None)}


def explained_text(facts: dict[str, Any], as_of: str | None) -> str:
    """The answer of ``explain`` for people."""
    lines = [f"as of {as_of}"] if as_of else []
    for side in ("left", "right"):
        row = facts[side]
        marks = row.get("benchmark_overlap") or []
        lines.append(
            f"{side:<6} {row['problem_key'][:16]}  {shown(row['category'])}  cluster {row['cluster_id']} "
            f"(size {row['cluster_size']})  pool {row['pool']} (own draw {row['own_draw']})  "
            f"problems {', '.join(map(shown, row['problem_ids']))}"
            + (f"  overlaps benchmark {', '.join(map(shown, marks))}" if marks else "")
        )
    if facts["why_not"] is not None:
        lines += ["different clusters: no chain of edges joins them", *_why_not(facts["why_not"])]
    elif not facts["path"]:
        lines.append("the same problem")
    lines += [_edge_text(edge) for edge in facts["path"]]
    return "\n".join(lines)


def _recorded(ctx: StageContext, named: str, reason: str, at: datetime | None) -> Reveal:
    """Show what is sealed, once it is in the ledger that it was."""

    def reveal(keys: Sequence[str]) -> bool:
        ledger.record(ctx.lake, what="leaks explain", reason=reason, at=at, keys=keys, detail=named)
        return True

    return reveal


def _withhold(keys: Sequence[str]) -> bool:
    """No text or products of sealed problems without a recorded reason."""
    return not keys


def _edge_text(edge: dict[str, Any]) -> str:
    return (
        f"  {edge['from'][:16]} -- {edge['kind']} {edge['value']:.2f} ({shown(edge['evidence'], 80)}) "
        f"-- {edge['to'][:16]}"
    )


def _why_not(why: dict[str, Any]) -> list[str]:
    hint = why["nearest_hint"]
    lines = ["no hint between their clusters"] if hint is None else ["nearest hint (never merged):", _edge_text(hint)]
    if why["sealed"]:
        return [*lines, "a sealed problem is concerned: what the two ask for is shown with a recorded reason only"]
    compared = why["compared"]
    if compared is None:
        return lines
    if compared["queries_known"]:
        lines.append(
            f"words {compared['words']:.2f} alike, {compared['words_without_voucher']:.2f} without the voucher text"
        )
    else:
        lines.append("the query of one of them is unknown")
    if not compared["rewards_known"]:
        lines.append("the reward of one of them is hidden: no products or constraints to compare")
    for item in compared["items"]:
        lines += _item_text(item)
    if compared["boilerplate"]:
        lines.append(f"shared and telling nothing: {', '.join(shown(one, 60) for one in compared['boilerplate'])}")
    return lines


def _item_text(item: dict[str, Any]) -> list[str]:
    titles = (
        f"same title {shown(item['left_title'], 60)}"
        if item["same_title"]
        else f"{shown(item['left_title'], 40)} / {shown(item['right_title'], 40)}"
    )
    lines = [f"  {titles}" + ("" if item["prices_meet"] else "; prices exclude one another")]
    for name, label in (("shared", "both"), ("only_left", "left only"), ("only_right", "right only")):
        if item[name]:
            lines.append(f"    {label}: {', '.join(shown(pair, 60) for pair in item[name])}")
    return lines
