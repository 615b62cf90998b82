"""What a checkpoint has seen of a problem: nothing (clean), a variant (same cluster), or something alike (near).

Three independent kinds of evidence, each measured against the clusters *of the day asked about*, not of the day of
training: a merge, a late reward or a newly registered benchmark may have joined a trained problem to a held-out one
since. ``same_cluster`` is proof by the strong and medium edges. ``near`` is for review: a weak edge (``leak_hints``),
or text of the query inside a training row (``ngrams``). Whatever a checkpoint learned from rows that were withdrawn
later is a question of its own (``stale_training_rows``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.lake.tables import CONTAMINATION
from trajectory_platform.splits.ngrams import EVIDENCE_SHARE, NGRAMS_VERSION, Overlap

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = f"contamination-1,{NGRAMS_VERSION}"  # raise it when the same rows would give other answers
MAX_TRACES = 20
BENCHMARK_POOL = "benchmark"


class Asked(NamedTuple):
    """A problem that somebody is or may be measured on.

    Attributes:
        pool: train, dev, sealed; ``benchmark`` for a problem of a registered file.
        cluster_ids: clusters it is in; several or none for a benchmark problem, which is no member itself.
    """

    problem_key: str
    pool: str
    cluster_ids: tuple[str, ...]


@dataclass
class Seen:
    """What one checkpoint was trained on, by cluster and by problem, under the clusters of one day."""

    checkpoint_id: str
    by_cluster: dict[str, list[str]] = field(default_factory=dict)
    by_problem: dict[str, list[str]] = field(default_factory=dict)
    texts: dict[str, list[tuple[Overlap, str]]] = field(default_factory=dict)


def seen_by(
    traced: Iterable[Mapping[str, Any]],
    clusters: pa.Table,
    overlaps: Mapping[tuple[str, str], Sequence[Overlap]],
) -> list[Seen]:
    """Per checkpoint, by id, what it was trained on.

    Args:
        traced: ``checkpoint_traces`` rows.
        clusters: ``leak_clusters`` of the day. The cluster recorded at training counts as well: it is what held then.
        overlaps: (trace id, trace day) -> ``NgramIndex.overlaps`` of that row.
    """
    rows = zip(clusters["problem_key"].to_pylist(), clusters["cluster_id"].to_pylist(), strict=True)
    present = dict(rows)
    found: dict[str, Seen] = {}
    for row in sorted(traced, key=lambda row: (row["checkpoint_id"], row["trace_id"], row["trace_day"])):
        seen = found.setdefault(row["checkpoint_id"], Seen(row["checkpoint_id"]))
        now = present.get(row["problem_key"], row["cluster_id"])
        for cluster in dict.fromkeys((now, row["cluster_id"])):
            seen.by_cluster.setdefault(cluster, []).append(row["trace_id"])
        seen.by_problem.setdefault(row["problem_key"], []).append(row["trace_id"])
        for overlap in overlaps.get((row["trace_id"], row["trace_day"]), ()):
            seen.texts.setdefault(overlap.problem_key, []).append((overlap, row["trace_id"]))
    return [found[name] for name in sorted(found)]


def near_clusters(hints: pa.Table, clusters: pa.Table) -> dict[str, dict[str, tuple[str, float]]]:
    """Cluster -> cluster it has a weak edge to -> (kind, value) of the strongest: hints stand for whole clusters."""
    rows = zip(clusters["problem_key"].to_pylist(), clusters["cluster_id"].to_pylist(), strict=True)
    cluster_of = dict(rows)
    found: dict[str, dict[str, tuple[str, float]]] = {}
    names = ("left_key", "right_key", "kind", "value")
    for left, right, kind, value in zip(*(hints[name].to_pylist() for name in names), strict=True):
        one, other = cluster_of.get(left), cluster_of.get(right)
        if one is None or other is None or one == other:
            continue
        for here, there in ((one, other), (other, one)):
            held = found.setdefault(here, {}).setdefault(there, (kind, value))
            if (value, kind) > (held[1], held[0]):
                found[here][there] = (kind, value)
    return found


def contamination_rows(
    seen: Sequence[Seen],
    asked: Mapping[str, Sequence[Asked]],
    near: Mapping[str, Mapping[str, tuple[str, float]]],
    *,
    day: str,
    stage: str,
) -> pa.Table:
    """Rows in the ``contamination`` schema: one per checkpoint and problem, clean ones included.

    Args:
        asked: checkpoint id -> the problems to answer for.
        near: see ``near_clusters``.
    """
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in CONTAMINATION.columns}
    for one in seen:
        for problem in sorted(asked.get(one.checkpoint_id, ())):
            row = _answer(one, problem, near) | {"day": day, "stage": stage, "checkpoint_id": one.checkpoint_id}
            for name, values in columns.items():
                values.append(row[name])
    return pa.table(columns, schema=CONTAMINATION.schema())


def _answer(seen: Seen, problem: Asked, near: Mapping[str, Mapping[str, tuple[str, float]]]) -> dict[str, Any]:
    texts = seen.texts.get(problem.problem_key, [])
    best = max(texts, key=lambda text: (text[0].share, text[1]), default=None)
    share = best[0].share if best is not None else 0.0
    own = [cluster for cluster in problem.cluster_ids if cluster in seen.by_cluster]
    details: list[str] = []
    traces: set[str] = set()
    status = "clean"
    if own:
        status = "same_cluster"
        for cluster in own:
            traces.update(seen.by_cluster[cluster])
        exact = problem.problem_key in seen.by_problem
        details.append("the problem itself was trained on" if exact else "a variant of it was trained on")
        if problem.pool in ("dev", "sealed"):  # the guard lets nobody train on a held-out cluster
            details.append("its cluster was held out, by a merge or an entry, after the training")
    else:
        for cluster, (kind, value) in _weak(seen, problem, near):
            status = "near"
            traces.update(seen.by_cluster[cluster])
            details.append(f"weak edge {kind} {value:.2f} to {cluster}")
    if best is not None and share >= EVIDENCE_SHARE:
        status = "near" if status == "clean" else status
        traces.update(trace for overlap, trace in texts if overlap.share >= EVIDENCE_SHARE)
        details.append(best[0].evidence(best[1], show=problem.pool not in ("sealed", BENCHMARK_POOL)))
    return {
        "problem_key": problem.problem_key,
        "pool": problem.pool,
        "cluster_id": problem.cluster_ids[0] if problem.cluster_ids else "",
        "status": status,
        "overlap": share,
        "traces": sorted(traces)[:MAX_TRACES],
        "detail": "; ".join(details) or None,
    }


def _weak(
    seen: Seen, problem: Asked, near: Mapping[str, Mapping[str, tuple[str, float]]]
) -> list[tuple[str, tuple[str, float]]]:
    """Weak edges to trained clusters, the strongest first."""
    found = {
        cluster: told
        for own in problem.cluster_ids
        for cluster, told in near.get(own, {}).items()
        if cluster in seen.by_cluster
    }
    return sorted(found.items(), key=lambda item: (-item[1][1], item[0]))


def stale_training_rows(
    traced: Iterable[Mapping[str, Any]], raw: pa.Table, corpus: pa.Table, *, use: str | None = None
) -> list[dict[str, Any]]:
    """Training rows that would not be chosen today: rows {checkpoint_id, trace_id, trace_day, reason, since}, sorted.

    Reasons: the state of the newest listing of the pair (``run_unusable``, ``not_final``, ``no_trace``,
    ``unreadable``), ``rejected_when_judged_again`` (judged on a later day and not accepted there),
    ``no_longer_accepted`` (a late reward, verdict or filter took the row out of the corpus of its day),
    ``use_withdrawn`` (still accepted, no longer for ``use``) and ``gone`` (no listing has it any more).

    Args:
        traced: ``checkpoint_traces`` rows.
        raw: trace_id, day, state of ``raw_traces``, of all days up to the one asked about.
        corpus: trace_id, day, uses of ``axis_a_corpus`` of these days.
        use: what the stage trains on; None does not look at uses.
    """
    rows = list(traced)
    wanted = {row["trace_id"] for row in rows}
    newest: dict[str, tuple[str, str]] = {}
    for name, day, state in zip(*(raw[one].to_pylist() for one in ("trace_id", "day", "state")), strict=True):
        if name in wanted:
            newest[name] = max(newest.get(name, ("", "")), (day, state))
    accepted: dict[tuple[str, str], list[str]] = {}
    for name, day, uses in zip(*(corpus[one].to_pylist() for one in ("trace_id", "day", "uses")), strict=True):
        if name in wanted:
            accepted[name, day] = uses
    found = []
    for row in rows:
        reason = _stale(row, newest.get(row["trace_id"]), accepted, use)
        if reason is not None:
            since = newest.get(row["trace_id"], (row["trace_day"], ""))[0]
            named = {name: row[name] for name in ("checkpoint_id", "trace_id", "trace_day")}
            found.append({**named, "reason": reason, "since": since})
    return sorted(found, key=lambda one: (one["checkpoint_id"], one["trace_id"], one["trace_day"]))


def _stale(
    row: Mapping[str, Any],
    newest: tuple[str, str] | None,
    accepted: Mapping[tuple[str, str], Sequence[str]],
    use: str | None,
) -> str | None:
    if newest is None:
        return "gone"
    day, state = newest
    if state != "trace":
        return state
    uses = accepted.get((row["trace_id"], day))
    if uses is None:
        return "no_longer_accepted" if day == row["trace_day"] else "rejected_when_judged_again"
    return None if use is None or use in uses else "use_withdrawn"


def clean_and_dirty_scores(
    scores: Iterable[Mapping[str, Any]], contamination: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Strict success of each checkpoint over all problems and, beside it, over what it has and has not seen.

    checkpoint id -> group -> {problems, attempts, success}; groups are ``all``, ``clean`` (status clean or near: a hint
    is no proof), ``contaminated`` (same_cluster), ``near`` (also part of clean) and ``unknown`` (not in
    ``contamination``). ``success`` is the mean over problems of their share of successful attempts, None without any;
    attempts without a reward are in no group.

    Args:
        scores: ``eval_scores`` rows (checkpoint_id, problem_key, outcome, success).
        contamination: ``contamination`` rows of one day.
    """
    status = {(row["checkpoint_id"], row["problem_key"]): row["status"] for row in contamination}
    groups = {
        "clean": ("clean", "clean", "all"),
        "near": ("near", "clean", "all"),
        "same_cluster": ("contaminated", "all"),
        "unknown": ("unknown", "all"),
    }
    attempts: dict[str, dict[str, dict[str, list[bool]]]] = {}
    for row in scores:
        if row["outcome"] == "no_reward":
            continue
        told = status.get((row["checkpoint_id"], row["problem_key"]), "unknown")
        mine = attempts.setdefault(row["checkpoint_id"], {})
        for group in dict.fromkeys(groups[told]):
            mine.setdefault(group, {}).setdefault(row["problem_key"], []).append(row["success"] is True)
    names = ("all", "clean", "contaminated", "near", "unknown")
    return {
        checkpoint: {group: _measured(attempts[checkpoint].get(group, {})) for group in names}
        for checkpoint in sorted(attempts)
    }


def _measured(problems: Mapping[str, Sequence[bool]]) -> dict[str, Any]:
    shares = [sum(tries) / len(tries) for _, tries in sorted(problems.items())]
    return {
        "problems": len(shares),
        "attempts": sum(map(len, problems.values())),
        "success": round(sum(shares) / len(shares), 6) if shares else None,
    }
