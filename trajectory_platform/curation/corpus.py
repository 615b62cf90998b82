"""What the filter hands on: the corpus batches, the rejected rows and the counts of a day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.curation.agency import AxisDecision
from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.curation.filter_stages import Rejection
from trajectory_platform.curation.quality import weight
from trajectory_platform.curation.uses import USES
from trajectory_platform.lake.tables import AXIS_A_CORPUS, REJECTED_TRACES

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]


class Candidate(NamedTuple):
    """What the first pass keeps of a trace that no stage of single rows objected to.

    Attributes:
        order: judged_at in ISO form (last when unknown), trace_id.
        situation: row of the table of uses.
        own_quality: sampling weight before strategies are counted.
        strategy: cluster of the move list over all problems; signature: the calls with their arguments, as stored for
            the comparison across days.
        flags: violations and oddities, for people.
        axis_source: ``trace`` by its own log, ``agent`` by the agent version's other traces.
    """

    content_hash: str
    order: tuple[str, str]
    agent_version_id: str | None
    miner_hotkey: str | None
    problem_key: str | None
    axis: AxisDecision
    judged: Mapping[str, Any]
    verdict: Mapping[str, Any]
    situation: str
    uses: tuple[str, ...]
    own_quality: float
    strategy: str
    signature: str
    flags: tuple[str, ...]
    axis_source: str


def accepted_batches(
    trajectory_batches: Callable[[], Iterator[pa.RecordBatch]],
    candidates: Mapping[str, Candidate],
    config: FilterConfig,
    filter_version: str,
) -> Iterator[pa.RecordBatch]:
    """AXIS_A_CORPUS batches of the candidates, in the order of the trajectories; text columns are not copied to Python.

    Batches without an accepted trace are left out.
    """
    import pyarrow as pa

    schema = AXIS_A_CORPUS.schema()
    sizes = Counter(candidate.strategy for candidate in candidates.values())
    limit = max(config.min_strategy_weight, config.max_strategy_share * len(candidates))
    for batch in trajectory_batches():
        names = batch.column("trace_id").to_pylist()
        kept = [position for position, name in enumerate(names) if name in candidates]
        if not kept:
            continue
        taken = batch.take(pa.array(kept, pa.int64()))
        rows = []
        for position in kept:
            candidate = candidates[names[position]]
            quality = weight(candidate.own_quality, strategy_size=sizes[candidate.strategy], strategy_limit=limit)
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
        "axis_label": "A",  # the only label the corpus has; axis_source says what it rests on
        "axis_share": candidate.axis.share,
        "axis_reason": candidate.axis.reason,
        "axis_source": candidate.axis_source,
        "situation": candidate.situation,
        "flags": list(candidate.flags),
        "strategy_signature": candidate.signature,
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


class Era(NamedTuple):
    """``first``: first UTC day, "" where no date is known; ``name``: for axes and tables; ``change``: what is new."""

    first: str
    name: str
    change: str


# Source: domain 1.11 (the drift table); the change of July is dated "about July" there.
ERAS: tuple[Era, ...] = (
    Era("2026-03-26", "bare lists", "launch: lines are bare lists without a request log, so nobody can tell who acted"),
    Era(
        "2026-04-19",
        "log, judged on step 0",
        "request logs appear (first all on step 0, the same day on every step), long replies cut until July; the judge "
        "read step 0 only until 04-23 and scored too low",
    ),
    Era("2026-04-24", "log on every step", "the judge reads the calls of every step"),
    Era("2026-04-27", "envelopes", "lines are envelopes with a kind; on 04-28 and 04-29 whole files were uploaded"),
    Era("2026-04-30", "discrete gate", "reasoning scores take five values; earlier ones cannot be compared with them"),
    Era("2026-07-01", "nonces, full logs", "about July: nonces, full request logs, title guard, folded attributes"),
    Era("", "envpack", "later, no date known: episodes of generated environments replace the suites"),
)
BEFORE = Era("0000-00-00", "before the launch", "a day before the launch of the subnet")


_LARGEST, _OUTLINE_LENGTH = 10, 200  # strategies that a summary names, characters of their moves


def era_of(day: str) -> Era:
    """The era of a UTC day; an era without a date is never a day's."""
    return next((era for era in reversed(ERAS) if era.first and day >= era.first), BEFORE)


def summarise(
    raw: Mapping[str, Mapping[str, Any]],
    candidates: Mapping[str, Candidate],
    rejections: Mapping[str, Rejection],
    axes: Mapping[str, AxisDecision],
    before_copies: Mapping[str, str],
    outlines: Mapping[str, str],
) -> dict[str, Any]:
    """Counts for people: by_use counts a trace once per use, by_axis every trace that could be read.

    ``by_era`` tells the axis labels per era, under the names that the reports use: where there was no request log,
    nobody can know who acted.
    ``strategies`` counts, before and after the stages of the whole day, strategies and the traces of the largest ones,
    which are named by their moves (``outlines``).
    """
    uses = Counter(use for candidate in candidates.values() for use in candidate.uses)
    eras: dict[str, Counter[str]] = {}
    for name, axis in axes.items():
        eras.setdefault(era_of(raw[name]["day"]).name, Counter())[axis.label] += 1
    before, after = Counter(before_copies.values()), Counter(one.strategy for one in candidates.values())
    return {
        "input": len(raw),
        "accepted": len(candidates),
        "rejected": len(rejections),
        "by_stage": _sorted(Counter(rejection.stage for rejection in rejections.values())),
        "by_reason": _sorted(Counter(rejection.reason for rejection in rejections.values())),
        "by_axis": _sorted(Counter(axis.label for axis in axes.values())),
        "by_era": {era: _sorted(counts) for era, counts in sorted(eras.items())},
        "by_use": {use: uses[use] for use in USES},
        "by_situation": _sorted(Counter(candidate.situation for candidate in candidates.values())),
        "strategies": {
            "before": len(before),
            "after": len(after),
            "traces_before": len(before_copies),
            "traces_after": len(candidates),
            "largest_before": max(before.values(), default=0),
            "largest_after": max(after.values(), default=0),
            "largest": [
                {
                    "strategy": name,
                    "outline": outlines[name][:_OUTLINE_LENGTH],
                    "before": before[name],
                    "after": after[name],
                }
                for name in sorted(before, key=lambda name: (-before[name], name))[:_LARGEST]
            ],
        },
    }


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in sorted(counts)}
