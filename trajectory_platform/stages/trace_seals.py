"""Which of some traces may not be shown, sealed or retracted: miners' traces, attempts and generated traces alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from trajectory_platform.lake import sealing, tables
from trajectory_platform.lineage import retractions

if TYPE_CHECKING:
    from trajectory_platform.lake.publish import Lake


def not_to_show(lake: Lake, trace_ids: Collection[str]) -> dict[str, str]:
    """Trace id -> why its text may not be shown by now, for those of which it may not: ``retracted`` or ``sealed``.

    Traces that the lake does not know are known by their id alone.
    """
    held = retractions.tombstones(lake)
    columns = ["trace_id", "content_hash"]
    rows = lake.lookup(tables.TRAJECTORIES, "trace_id", trace_ids, columns=columns).to_pylist()
    named = {name: {"trace_id": name} for name in trace_ids} | {row["trace_id"]: row for row in rows}
    found = dict.fromkeys(sealed_keys(lake, named.values()), "sealed")
    found |= dict.fromkeys((name for name, row in named.items() if held.of(row) is not None), "retracted")
    return found | dict.fromkeys(held.among(lake, named), "retracted")


def sealed_keys(lake: Lake, rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Trace id -> keys of the sealed problems it is about, for the sealed ones among some traces.

    A trace is sealed when ``lake.sealing`` says so of it, when its own ``problem_key`` is sealed, or when its text is
    that of a miner's trace that is sealed. The keys may be none: of a day without leak clusters they are not known.

    Args:
        rows: at least ``trace_id``; ``problem_key``, ``content_hash`` and ``problem_id`` where there are.
    """
    seal = sealing.sealed(lake)
    if seal is None:
        return {}
    listed = list(rows)
    texts = {row["content_hash"] for row in listed if row.get("content_hash")}
    alike: dict[str, set[str]] = {}
    columns = ["trace_id", "content_hash"]
    for row in lake.lookup(tables.TRAJECTORIES, "content_hash", texts, columns=columns).to_pylist() if texts else ():
        alike.setdefault(row["content_hash"], set()).add(row["trace_id"])
    names = {row["trace_id"]: {row["trace_id"], *alike.get(row.get("content_hash") or "", ())} for row in listed}
    told = sealing.sealed_problems_of_many(lake, set[str]().union(*names.values()))
    found: dict[str, tuple[str, ...]] = {}
    for row in listed:
        hits = [told[name] for name in sorted(names[row["trace_id"]]) if name in told]
        keys = {one for one in (row.get("problem_key"),) if one in seal.keys}.union(*hits)
        if keys or hits or row.get("problem_id") in seal.problem_ids:
            found[row["trace_id"]] = tuple(sorted(keys))
    return found
