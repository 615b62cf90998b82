"""The strategies of accepted traces, read from the lake: of one day with its copies, or over days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trajectory_platform.lake import tables
from trajectory_platform.reports.diversity import Tail, tail_of, tails_by
from trajectory_platform.reports.flow import MEANINGS
from trajectory_platform.reports.strategy_section import ALL, StrategyFacts
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.flows import counted_rows

if TYPE_CHECKING:
    from trajectory_platform.lake.manifests import Manifest

Row = dict[str, Any]
DAY_STAGES = ("copies", "strategy", "caps")
_MOST_COPIED = 10
_MOST_CATEGORIES = 5  # lines of the figure besides all


def strategy_tails(rows: Sequence[Mapping[str, Any]]) -> dict[str, Tail]:
    """All rows, then each of the largest categories; rows as ``diversity.tails_by`` takes them, with ``category``."""
    every = next(iter(tails_by(({**row, ALL: ""} for row in rows), ALL).values()), tail_of({}))
    categories = list(tails_by(rows, "category").items())[:_MOST_CATEGORIES]
    return {ALL: every} | (dict(categories) if len(categories) > 1 else {})


def day_strategies(
    ctx: StageContext,
    day: str,
    accepted: Sequence[Row],
    rejected: Sequence[Row],
    people: Mapping[str, Mapping[str, Any]],
    opened: Collection[str],
) -> StrategyFacts:
    """The strategies of one day.

    Args:
        accepted: rows of the corpus with ``trace_id, category, miner_hotkey, strategy_cluster``.
        rejected: rows with ``trace_id, stage, reason, duplicate_of``.
        people: trace id -> ``miner_hotkey, agent_version_id``.
        opened: accepted traces that may be named.
    """
    manifest = ctx.lake.manifest(tables.AXIS_A_CORPUS, day)
    window, between = between_days(ctx, day)
    largest, before = thinning(manifest)
    thinned = [row for row in rejected if row["stage"] in DAY_STAGES]
    return StrategyFacts(
        tails=strategy_tails(accepted),
        miners=miner_tails(accepted),
        largest=largest,
        before=before,
        removed=removed(thinned),
        copied=_copied(thinned, {row["trace_id"]: row for row in accepted}, people, opened),
        between_days=between,
        window=window,
    )


def strategies_over(ctx: StageContext, days: Sequence[str]) -> StrategyFacts:
    """The strategies of several days together, and of each."""
    columns = ["day", "category", "miner_hotkey", "strategy_cluster"]
    rows = counted_rows(ctx, tables.AXIS_A_CORPUS, days, columns)
    by_day = tails_by(rows, "day")
    window, between = between_days(ctx, days[-1]) if days else ("", {})
    rejected = counted_rows(ctx, tables.REJECTED_TRACES, days, ["stage", "reason"])
    return StrategyFacts(
        tails=strategy_tails(rows),
        miners=miner_tails(rows),
        removed=removed([row for row in rejected if row["stage"] in DAY_STAGES]),
        days={day: (tail.strategies, tail.effective) for day, tail in by_day.items()},
        between_days=between,
        window=window,
    )


def thinning(manifest: Manifest | None) -> tuple[list[Row], tuple[int, int] | None]:
    """The largest strategies and (strategies, traces) before the stages of the whole day, as the filter counted."""
    counted = dict((manifest.summary if manifest is not None else None) or {}).get("strategies")
    if not counted:
        return [], None
    return list(counted["largest"]), (counted["before"], counted["traces_before"])


def removed(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rejections counted by stage and reason, largest first; a row may stand for several (``traces``)."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts[row["stage"], row["reason"]] += row.get("traces", 1)
    return [
        {"stage": stage, "reason": reason, "count": count, "meaning": MEANINGS.get((stage, reason), "")}
        for (stage, reason), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def between_days(ctx: StageContext, day: str) -> tuple[str, dict[str, int]]:
    """(as-of day, reason -> accepted traces that the training window leaves out); ("", {}) where none was built."""
    if ctx.lake.manifest(tables.SPLIT_EXCLUSIONS, day) is None:
        return "", {}
    counts = counted_rows(ctx, tables.SPLIT_EXCLUSIONS, [day], ["reason"])
    return day, {
        row["reason"]: row["traces"] for row in sorted(counts, key=lambda row: (-row["traces"], row["reason"]))
    }


def short_names(hotkeys: Iterable[str | None]) -> dict[str | None, str]:
    """Hotkey -> how it is shown; those that look alike when shortened are told apart by a number behind them."""
    alike: dict[str, list[str | None]] = {}
    for hotkey in sorted(set(hotkeys), key=lambda one: (one is not None, one or "")):
        alike.setdefault(shortened(hotkey), []).append(hotkey)
    return {
        hotkey: name if len(same) == 1 else f"{name} #{number}"
        for name, same in alike.items()
        for number, hotkey in enumerate(same, 1)
    }


def miner_tails(rows: Iterable[Mapping[str, Any]]) -> dict[str, Tail]:
    """The tail of each miner under its short name, most traces first; rows as ``diversity.tails_by`` takes them."""
    listed = [{**row, "miner_hotkey": row["miner_hotkey"] or None} for row in rows]
    names = short_names(row["miner_hotkey"] for row in listed)
    return tails_by(({**row, "miner": names[row["miner_hotkey"]]} for row in listed), "miner")


def shortened(hotkey: str | None) -> str:
    """A hotkey as it is shown: both ends, enough to find it again."""
    name = hotkey or "(unknown)"
    return name if len(name) <= 16 else f"{name[:8]}…{name[-4:]}"


def _copied(
    thinned: Sequence[Row],
    accepted: Mapping[str, Row],
    people: Mapping[str, Mapping[str, Any]],
    opened: Collection[str],
) -> list[Row]:
    """The kept traces with most copies; a copy of a copy counts for the trace that was kept in the end."""
    of = {row["trace_id"]: row["duplicate_of"] for row in thinned if row["duplicate_of"]}
    groups: dict[str, list[str]] = {}
    for name in of:
        kept, steps = of[name], 0
        while kept in of and steps < len(of):
            kept, steps = of[kept], steps + 1
        groups.setdefault(kept, []).append(name)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))[:_MOST_COPIED]
    return [
        {
            "survivor": kept if kept in opened else None,
            "copies": len(copies),
            "agents": _distinct(people, [kept, *copies], "agent_version_id"),
            "miners": _distinct(people, [kept, *copies], "miner_hotkey"),
            "strategy": accepted[kept]["strategy_cluster"] if kept in accepted else None,
        }
        for kept, copies in ordered
    ]


def _distinct(people: Mapping[str, Mapping[str, Any]], names: Sequence[str], column: str) -> int:
    return len({people[name][column] for name in names if name in people and people[name][column] is not None})
