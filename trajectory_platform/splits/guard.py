"""The leak guard over the training window: which accepted traces may be used, each with its cluster and pool.

The day's corpus is never rewritten: what only the window can see (a copy of an earlier day's trace, a problem without
a cluster) goes to ``split_exclusions`` with the reason and the trace that stays (design 3, "Conservation").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.tables import LEAK_GUARDED_SPLITS, SPLIT_EXCLUSIONS
from trajectory_platform.sandbox.problems import hidden_problem_key
from trajectory_platform.splits.pools import STRICTNESS

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "splits-2"  # raise it when the same corpus and clusters would give other splits
CORPUS_COLUMNS = (
    "trace_id", "day", "problem_id", "suite_id", "problem_key", "category", "content_hash", "uses", "quality"
)  # fmt: skip


class Split(NamedTuple):
    """``splits`` in the ``leak_guarded_splits`` schema, ``exclusions`` in ``split_exclusions``; both sorted."""

    splits: pa.Table
    exclusions: pa.Table


def split_window(
    corpus_meta: pa.Table, clusters: pa.Table, *, day: date, window_days: int, judged: pa.Table | None = None
) -> Split:
    """Cluster and pool of every accepted trace of the window ``(day - window_days, day]``.

    Args:
        corpus_meta: ``axis_a_corpus`` rows, at least ``CORPUS_COLUMNS`` (no messages needed); other days are ignored.
        clusters: ``leak_clusters`` as of ``day``.
        window_days: length of the window, the day included.
        judged: trace_id and day of ``raw_traces`` of the window; None looks at the corpus alone.

    A pair that was judged again is listed by a later folder too, and so stands in two partitions. The latest says what
    it is, also where it was rejected there (an invalidated run): the earlier are excluded as ``judged_again``.
    Of traces with one content hash the one in the strictest pool stays, among those the earliest (day, then id); the
    others are excluded as ``cross_day_copy`` (``same_day_copy`` inside one day) with ``duplicate_of``. A trace whose
    problem is in no cluster cannot be placed safely: excluded as ``no_cluster``. In + out = rows of the window.

    Raises:
        FailPartition: the result is not disjoint (see ``assert_disjoint``).
    """
    first = (day - timedelta(days=window_days - 1)).isoformat()
    known = {row["problem_key"]: row for row in clusters.select(["problem_key", "cluster_id", "pool"]).to_pylist()}
    latest = _latest_days(corpus_meta, judged, first, day.isoformat())
    placed: list[dict[str, Any]] = []
    excluded: list[dict[str, Any]] = []
    for trace in corpus_meta.select(CORPUS_COLUMNS).to_pylist():
        if not first <= trace["day"] <= day.isoformat():
            continue
        if trace["day"] < latest[trace["trace_id"]]:
            excluded.append(_exclusion(trace["trace_id"], trace["day"], day, "judged_again", None))
            continue
        key = _key(trace)
        cluster = known.get(key) if key is not None else None
        if cluster is None:
            excluded.append(_exclusion(trace["trace_id"], trace["day"], day, "no_cluster", None))
        else:
            placed.append(_placed(trace, cluster, day))
    kept, copies = _drop_copies(placed, day)
    split = Split(_table(kept, LEAK_GUARDED_SPLITS.schema()), _table([*excluded, *copies], SPLIT_EXCLUSIONS.schema()))
    assert_disjoint(split.splits)
    return split


def _latest_days(corpus: pa.Table, judged: pa.Table | None, first: str, last: str) -> dict[str, str]:
    """Trace id -> last day of the window that has a row for it, for the traces of the corpus."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = corpus.select(["trace_id", "day"])
    if judged is not None:
        named = judged.select(["trace_id", "day"])
        named = named.filter(pc.is_in(named["trace_id"], value_set=rows["trace_id"].combine_chunks()))
        rows = pa.concat_tables([rows, named.cast(rows.schema)])
    rows = rows.filter(pc.and_(pc.greater_equal(rows["day"], first), pc.less_equal(rows["day"], last)))
    latest = rows.group_by("trace_id").aggregate([("day", "max")])
    return dict(zip(latest["trace_id"].to_pylist(), latest["day_max"].to_pylist(), strict=True))


def _key(trace: Mapping[str, Any]) -> str | None:
    """The trace's problem key; a problem that no listing named has the key of its bare id."""
    if trace["problem_key"] is not None:
        return str(trace["problem_key"])
    return hidden_problem_key(trace["suite_id"], trace["problem_id"]) if trace["problem_id"] is not None else None


def _placed(trace: Mapping[str, Any], cluster: Mapping[str, Any], day: date) -> dict[str, Any]:
    return {
        "trace_id": trace["trace_id"],
        "day": day.isoformat(),
        "trace_day": trace["day"],
        "problem_key": cluster["problem_key"],
        "cluster_id": cluster["cluster_id"],
        "pool": cluster["pool"],
        "uses": trace["uses"],
        "quality": trace["quality"],
        "category": trace["category"],
        "content_hash": trace["content_hash"],
    }


def _drop_copies(placed: list[dict[str, Any]], day: date) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Keep one trace per content hash: were a copy of a sealed trace kept in train, the sealed one would be leaked."""
    kept: dict[str, dict[str, Any]] = {}
    copies: list[dict[str, Any]] = []
    placed.sort(key=lambda row: (-STRICTNESS.index(row["pool"]), row["trace_day"], row["trace_id"]))
    for row in placed:
        survivor = kept.setdefault(row["content_hash"], row)
        if survivor is not row:
            reason = "same_day_copy" if survivor["trace_day"] == row["trace_day"] else "cross_day_copy"
            copies.append(_exclusion(row["trace_id"], row["trace_day"], day, reason, survivor["trace_id"]))
    return list(kept.values()), copies


def _exclusion(trace_id: str, trace_day: str, day: date, reason: str, survivor: str | None) -> dict[str, Any]:
    return {
        "trace_id": trace_id,
        "day": day.isoformat(),
        "trace_day": trace_day,
        "reason": reason,
        "duplicate_of": survivor,
    }


def assert_disjoint(splits: pa.Table, problems: pa.Table | None = None) -> None:
    """No cluster, problem, content hash or reward product lies in two pools.

    Args:
        splits: ``leak_guarded_splits`` or ``leak_clusters`` rows.
        problems: ``problem_suites`` rows; with them reward products are tested too.

    Raises:
        FailPartition: names the value and one row of each side (case D12).
    """
    names = [name for name in ("cluster_id", "problem_key", "content_hash") if name in splits.column_names]
    label = "trace_id" if "trace_id" in splits.column_names else "problem_key"
    labels, pools = splits[label].to_pylist(), splits["pool"].to_pylist()
    for name in names:
        _one_pool_each(name, zip(splits[name].to_pylist(), labels, pools, strict=True))
    if problems is None:
        return
    products: dict[str, list[str]] = {}
    for row in problems.select(["problem_key", "reward_product_ids"]).to_pylist():
        products[row["problem_key"]] = row["reward_product_ids"]
    keys = splits["problem_key"].to_pylist()
    _one_pool_each(
        "reward product id",
        (
            (product, row_label, pool)
            for key, row_label, pool in zip(keys, labels, pools, strict=True)
            for product in products.get(key, ())
        ),
    )


def _one_pool_each(name: str, values: Iterable[tuple[str, str, str]]) -> None:
    """Every value with one pool only; ``values`` are (value, row label, pool)."""
    first: dict[str, tuple[str, str]] = {}
    for value, label, pool in values:
        held_label, held_pool = first.setdefault(value, (label, pool))
        if held_pool != pool:
            raise FailPartition(
                f"{name} {value!a} is in two pools: row {held_label!a} in {held_pool}, row {label!a} in {pool}"
            )


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(sorted(rows, key=lambda row: (row["trace_id"], row["trace_day"])), schema=schema)
