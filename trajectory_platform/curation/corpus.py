"""What the filter hands on: the corpus batches, the rejected rows and the counts of a day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.curation.agency import AxisDecision
from trajectory_platform.curation.gates import USES, Gates
from trajectory_platform.curation.quality import Features, weight
from trajectory_platform.lake.tables import AXIS_A_CORPUS, REJECTED_TRACES

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]


class Rejection(NamedTuple):
    """Why a row is not in the corpus. ``duplicate_of`` names the survivor of a duplicate."""

    stage: str
    reason: str
    detail: str | None = None
    duplicate_of: str | None = None
    retryable: bool = False


class Candidate(NamedTuple):
    """What the first pass keeps of a trace that no stage before ``copies`` objected to."""

    content_hash: str
    order: tuple[str, str]  # judged_at in ISO form (last when unknown), trace_id
    axis: AxisDecision
    judged: Row
    verdict: Row
    uses: tuple[str, ...]
    traits: Features
    strategy: str


def accepted_batches(
    trajectory_batches: Callable[[], Iterator[pa.RecordBatch]],
    candidates: Mapping[str, Candidate],
    gates: Gates,
    filter_version: str,
) -> Iterator[pa.RecordBatch]:
    """AXIS_A_CORPUS batches of the candidates, in the order of the trajectories; text columns are not copied to Python.

    Batches without an accepted trace are left out.
    """
    import pyarrow as pa

    schema = AXIS_A_CORPUS.schema()
    sizes = Counter(candidate.strategy for candidate in candidates.values())
    limit = max(gates.min_strategy_weight, gates.max_strategy_share * len(candidates))
    for batch in trajectory_batches():
        names = batch.column("trace_id").to_pylist()
        kept = [position for position, name in enumerate(names) if name in candidates]
        if not kept:
            continue
        taken = batch.take(pa.array(kept, pa.int64()))
        rows = []
        for position in kept:
            candidate = candidates[names[position]]
            quality = weight(candidate.traits, strategy_size=sizes[candidate.strategy], strategy_limit=limit)
            rows.append(_computed(candidate, quality, filter_version))
        columns = {
            field.name: (
                taken.column(field.name)
                if field.name in taken.schema.names
                else pa.array([row[field.name] for row in rows], field.type)
            )
            for field in schema
        }
        yield pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)


def _computed(candidate: Candidate, quality: float, filter_version: str) -> Row:
    """The columns of the corpus that the trajectories do not have."""
    judged, verdict = candidate.judged, candidate.verdict
    return {
        "problem_key": judged["problem_key"],
        "axis_label": candidate.axis.label,
        "axis_share": candidate.axis.share,
        "axis_reason": candidate.axis.reason,
        "uses": list(candidate.uses),
        "quality": quality,
        "strategy_cluster": candidate.strategy,
        "outcome_success": judged["outcome_success"],
        "outcome_source": judged["outcome_source"],
        "reasoning_quality": verdict["reasoning_quality"],
        "judge_kind": verdict["judge_kind"],
        "score_regime": verdict["score_regime"],
        "query_verified": judged["query_verified"],
        "recommended_ids": judged["recommended_ids"],
        "filter_version": filter_version,
    }


def rejected_table(
    rejections: Mapping[str, Rejection],
    axes: Mapping[str, AxisDecision],
    day_of: Mapping[str, str],
    filter_version: str,
) -> pa.Table:
    """REJECTED_TRACES rows sorted by trace_id; the axis is told where the trace could be read."""
    import pyarrow as pa

    rows = []
    for name in sorted(rejections):
        stage, reason, detail, duplicate_of, retryable = rejections[name]
        axis = axes.get(name)
        rows.append(
            {
                "trace_id": name,
                "day": day_of[name],
                "stage": stage,
                "reason": reason,
                "detail": detail,
                "axis_label": axis.label if axis else None,
                "axis_share": axis.share if axis else None,
                "axis_reason": axis.reason if axis else None,
                "duplicate_of": duplicate_of,
                "retryable": retryable,
                "filter_version": filter_version,
            }
        )
    return pa.Table.from_pylist(rows, schema=REJECTED_TRACES.schema())


def summarise(
    total: int,
    candidates: Mapping[str, Candidate],
    rejections: Mapping[str, Rejection],
    axes: Mapping[str, AxisDecision],
) -> dict[str, Any]:
    """Counts for people: by_use counts a trace once per use, by_axis every trace that could be read."""
    uses = Counter(use for candidate in candidates.values() for use in candidate.uses)
    return {
        "input": total,
        "accepted": len(candidates),
        "rejected": len(rejections),
        "by_stage": _sorted(Counter(rejection.stage for rejection in rejections.values())),
        "by_reason": _sorted(Counter(rejection.reason for rejection in rejections.values())),
        "by_axis": _sorted(Counter(axis.label for axis in axes.values())),
        "by_use": {use: uses[use] for use in USES},
    }


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in sorted(counts)}
