"""The leak guard over the training window: which accepted traces may be used, each with its cluster and pool.

The day's corpus is never rewritten: what only the window can see (a copy of an earlier day's trace, a strategy that
agents of several days share, a problem without a cluster, the text of a held-out problem) goes to ``split_exclusions``
with the reason and its evidence: the trace that stays, or the place of the text (design 3, "Conservation").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake.tables import LEAK_GUARDED_SPLITS, SPLIT_EXCLUSIONS
from trajectory_platform.sandbox.problems import hidden_problem_key
from trajectory_platform.splits.ngrams import NGRAMS_VERSION
from trajectory_platform.splits.pools import STRICTNESS
from trajectory_platform.splits.window_copies import REASON, WINDOW_COPIES_VERSION, window_copies

if TYPE_CHECKING:
    import pyarrow as pa

# Raise the number when the same corpus and clusters would give other splits.
VERSION = f"splits-3,{WINDOW_COPIES_VERSION},{NGRAMS_VERSION}"
CORPUS_COLUMNS = (
    "trace_id", "day", "problem_id", "suite_id", "problem_key", "category", "content_hash", "uses", "quality"
)  # fmt: skip
COPY_COLUMNS = ("agent_version_id", "strategy_signature")  # needed to find strategy copies
HELD_OUT_TEXT = "held_out_text"
RETRACTED = "retracted"


class Split(NamedTuple):
    """``splits`` in the ``leak_guarded_splits`` schema, ``exclusions`` in ``split_exclusions``; both sorted."""

    splits: pa.Table
    exclusions: pa.Table


def split_window(
    corpus_meta: pa.Table,
    clusters: pa.Table,
    *,
    day: date,
    window_days: int,
    judged: pa.Table | None = None,
    copy_similarity: float | None = None,
    restated: Mapping[tuple[str, str], str] | None = None,
    retracted: Mapping[tuple[str, str], str] | None = None,
) -> Split:
    """Cluster and pool of every accepted trace of the window ``(day - window_days, day]``.

    Args:
        corpus_meta: ``axis_a_corpus`` rows, at least ``CORPUS_COLUMNS`` (no messages needed); other days are ignored.
        clusters: ``leak_clusters`` as of ``day``.
        window_days: length of the window, the day included.
        judged: trace_id and day of ``raw_traces`` of the window; None looks at the corpus alone.
        copy_similarity: of call sequences from which traces of two agents in one cluster are copies; None does not
            compare them. Needs ``COPY_COLUMNS`` too.
        restated: (trace id, trace day) -> evidence that the row restates a held-out problem's query (see ``ngrams``).
        retracted: (trace id, trace day) -> which retraction the row falls under.

    A retracted row is excluded as ``retracted`` before anything else, so it is nothing's survivor.
    A pair that was judged again is listed by a later folder too, and so stands in two partitions. The latest says what
    it is, also where it was rejected there (an invalidated run): the earlier are excluded as ``judged_again``.
    Of traces with one content hash the one in the strictest pool stays, among those the earliest (day, then id); the
    others are excluded as ``cross_day_copy`` (``same_day_copy`` inside one day) with ``duplicate_of``, and then those
    whose calls another agent made on the same cluster as ``strategy_copy_in_window``. ``duplicate_of`` always names a
    trace that stays. A row of the train pool that restates a held-out query is excluded as ``held_out_text`` before it
    can be anything's survivor. A trace whose problem is in no cluster cannot be placed safely: excluded as
    ``no_cluster``. In + out = rows of the window.

    Raises:
        FailPartition: the result is not disjoint (see ``assert_disjoint``).
    """
    first = (day - timedelta(days=window_days - 1)).isoformat()
    known = {row["problem_key"]: row for row in clusters.select(["problem_key", "cluster_id", "pool"]).to_pylist()}
    latest = _latest_days(corpus_meta, judged, first, day.isoformat())
    columns = CORPUS_COLUMNS if copy_similarity is None else (*CORPUS_COLUMNS, *COPY_COLUMNS)
    placed: list[dict[str, Any]] = []
    excluded: list[dict[str, Any]] = []
    for trace in corpus_meta.select(columns).to_pylist():
        if not first <= trace["day"] <= day.isoformat():
            continue
        gone = (retracted or {}).get((trace["trace_id"], trace["day"]))
        if gone is not None:
            excluded.append(_exclusion(trace, day, RETRACTED, detail=gone))
            continue
        if trace["day"] < latest[trace["trace_id"]]:
            excluded.append(_exclusion(trace, day, "judged_again"))
            continue
        key = _key(trace)
        cluster = known.get(key) if key is not None else None
        evidence = (restated or {}).get((trace["trace_id"], trace["day"]))
        if cluster is None:
            excluded.append(_exclusion(trace, day, "no_cluster"))
        elif evidence is not None and cluster["pool"] == "train":
            excluded.append(_exclusion(trace, day, HELD_OUT_TEXT, detail=evidence))
        else:
            placed.append({**trace, **cluster})
    copies, kept = _copies(placed, day, copy_similarity)
    rows = [_row(trace, day) for trace in kept]
    split = Split(_table(rows, LEAK_GUARDED_SPLITS.schema()), _table([*excluded, *copies], SPLIT_EXCLUSIONS.schema()))
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


def _row(trace: Mapping[str, Any], day: date) -> dict[str, Any]:
    return {**trace, "day": day.isoformat(), "trace_day": trace["day"]}


def _copies(
    placed: list[dict[str, Any]], day: date, copy_similarity: float | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(exclusions, traces that stay).

    One trace per content hash: were a copy of a sealed trace kept in train, the sealed one would be leaked. Then one
    of several agents that did the same.
    """
    first: dict[str, dict[str, Any]] = {}
    equal: list[tuple[dict[str, Any], dict[str, Any]]] = []
    placed.sort(key=lambda row: (-STRICTNESS.index(row["pool"]), row["day"], row["trace_id"]))
    for row in placed:
        survivor = first.setdefault(row["content_hash"], row)
        if survivor is not row:
            equal.append((row, survivor))
    alike = {} if copy_similarity is None else window_copies(first.values(), similarity=copy_similarity)
    excluded = [
        _exclusion(
            row,
            day,
            "same_day_copy" if survivor["day"] == row["day"] else "cross_day_copy",
            alike.get(survivor["trace_id"], survivor["trace_id"]),
        )
        for row, survivor in equal
    ]
    distinct = list(first.values())
    excluded += [_exclusion(row, day, REASON, alike[row["trace_id"]]) for row in distinct if row["trace_id"] in alike]
    return excluded, [row for row in distinct if row["trace_id"] not in alike]


def _exclusion(
    trace: Mapping[str, Any], day: date, reason: str, survivor: str | None = None, *, detail: str | None = None
) -> dict[str, Any]:
    """One row of ``split_exclusions``; ``detail`` is the evidence where no survivor is.

    Raises:
        FailPartition: a removal for its text without evidence (case D15).
    """
    if reason == HELD_OUT_TEXT and not detail:
        raise FailPartition(f"removal_without_evidence: {trace['trace_id']} is marked {reason}, but not by which text")
    return {
        "trace_id": trace["trace_id"],
        "day": day.isoformat(),
        "trace_day": trace["day"],
        "reason": reason,
        "duplicate_of": survivor,
        "detail": detail,
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
    products = reward_products(problems)
    keys = splits["problem_key"].to_pylist()
    _one_pool_each(
        "reward product id",
        (
            (product, row_label, pool)
            for key, row_label, pool in zip(keys, labels, pools, strict=True)
            for product in sorted(products.get(key, ()))
        ),
    )


def reward_products(problems: pa.Table) -> dict[str, set[str]]:
    """Problem key -> product ids of its reward, over all rows of ``problem_suites``."""
    products: dict[str, set[str]] = {}
    for row in problems.select(["problem_key", "reward_product_ids"]).to_pylist():
        products.setdefault(row["problem_key"], set()).update(row["reward_product_ids"])
    return products


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
