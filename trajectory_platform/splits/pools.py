"""Pools: a problem draws by keyed hash, a cluster takes the strictest of its members (design 3, "Pools").

A pure, monotone function of the problems and edges up to a day: nothing here looks at use, at other days' results or
at the order in which days were filled.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, NamedTuple

from trajectory_platform.escaping import escaped

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.settings import HoldOut

STRICTNESS = ("train", "dev", "sealed")  # loosest first


class Shares(NamedTuple):
    """Percentages that add up to 100."""

    train: int = 80
    dev: int = 10
    sealed: int = 10


def draw(pool_key: str, problem_key: str, shares: Shares) -> str:
    """The pool a problem draws alone: keyed BLAKE2b of its key, modulo 100.

    The key keeps outsiders from choosing a wording that lands in the pool they want.
    """
    secret = pool_key.encode()
    if len(secret) > hashlib.blake2b.MAX_KEY_SIZE:
        secret = hashlib.blake2b(secret).digest()
    digest = hashlib.blake2b(problem_key.encode(), key=secret, digest_size=8, person=b"leak-pool").digest()
    slot = int.from_bytes(digest, "big") % 100
    if slot < shares.train:
        return "train"
    return "dev" if slot < shares.train + shares.dev else "sealed"


def strictest(pools: Iterable[str]) -> str:
    """The strictest of some pools; ``train`` for none."""
    return max(pools, key=STRICTNESS.index, default="train")


def active(hold_outs: Sequence[HoldOut], day: date) -> list[HoldOut]:
    """Entries in force on a day: ``since <= day < until``; ``until`` is the release."""
    return [entry for entry in hold_outs if entry.since <= day and (entry.until is None or day < entry.until)]


def held_pools(hold_outs: Sequence[HoldOut], problem_key: str, bindings: Iterable[tuple[str | None, str]]) -> list[str]:
    """Pools of the entries that name a problem; every field an entry gives must fit one binding."""
    pairs = list(bindings)
    return [
        entry.pool
        for entry in hold_outs
        if entry.problem_key in (None, problem_key)
        and any(entry.suite_id in (None, suite) and entry.problem_id in (None, problem) for suite, problem in pairs)
    ]


def rotations(first_days: Mapping[str, str], days: int) -> list[HoldOut]:
    """Hold-outs of new suites: each is sealed on its first day and released ``days`` days later.

    A suite that was there on the first day of the lake counts as new on that day: nothing older is known of it.

    Args:
        first_days: ``suite_first_days``.
        days: 0 holds nothing.
    """
    from trajectory_platform.settings import HoldOut

    if days <= 0:
        return []
    found = []
    for suite, first in sorted(first_days.items()):
        since = date.fromisoformat(first)
        found.append(HoldOut(pool="sealed", since=since, until=since + timedelta(days=days), suite_id=suite))
    return found


def suite_first_days(tables: Iterable[pa.Table], day: date) -> dict[str, str]:
    """First day on which each suite was listed or run, up to ``day``: a pure function of the problems up to then.

    Args:
        tables: rows with ``suite_id`` and ``day`` (``problem_suites``, ``judged_traces``).
    """
    import pyarrow.compute as pc

    first: dict[str, str] = {}
    for table in tables:
        rows = table.select(["suite_id", "day"]).filter(pc.is_valid(table["suite_id"]))
        rows = rows.filter(pc.less_equal(rows["day"], day.isoformat()))
        oldest = rows.group_by("suite_id").aggregate([("day", "min")])
        for suite, seen in zip(oldest["suite_id"].to_pylist(), oldest["day_min"].to_pylist(), strict=True):
            first[suite] = min(first.get(suite, seen), seen)
    return first


def observed_shares(clusters: pa.Table) -> dict[str, dict[str, dict[str, float]]]:
    """What the pools really hold, as clusters are strict: category (``all`` for all) -> pool -> problems, share of
    the category's problems, and clusters.

    Args:
        clusters: ``leak_clusters`` rows of one day.
    """
    problems: Counter[tuple[str, str]] = Counter()
    groups: dict[tuple[str, str], set[str]] = {}
    columns = [clusters[name].to_pylist() for name in ("category", "pool", "cluster_id")]
    for category, pool, cluster in zip(*columns, strict=True):
        for name in ("all", category or "unknown"):
            problems[name, pool] += 1
            groups.setdefault((name, pool), set()).add(cluster)
    totals: Counter[str] = Counter()
    for (name, _), count in problems.items():
        totals[name] += count
    return {
        name: {
            pool: {
                "problems": problems[name, pool],
                "share": round(problems[name, pool] / totals[name], 4),
                "clusters": len(groups.get((name, pool), ())),
            }
            for pool in STRICTNESS
        }
        for name in ["all", *sorted(totals.keys() - {"all"})]
        if totals[name]
    }


def shares_lines(observed: Mapping[str, Mapping[str, Mapping[str, float]]], wanted: Shares) -> list[str]:
    """``observed_shares`` for people, with the shares of the draw that they are to be compared with."""
    head = "  ".join(f"{pool} (draw {share}%)".rjust(22) for pool, share in wanted._asdict().items())
    lines = [f"{'problems':<12}{head}"]
    for name, pools in observed.items():
        cells = (f"{pools[pool]['problems']:>8.0f}  {pools[pool]['share']:>7.1%}".rjust(22) for pool in STRICTNESS)
        lines.append(f"{escaped(name)[:11]:<12}" + "  ".join(cells))
    return lines
