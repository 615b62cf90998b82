"""The structural filter: every raw row of a day ends in exactly one place (design 3, "Conservation").

The stages in order; a row is rejected by the first that objects:

    ingest     not_final (retried), run_unusable, no_trace
    read       the reason why the artifact or the dialogue cannot be read
    duplicate  duplicate_line (a further line for one problem), conflicting_lines (the lines differ)
    injection  text that addresses the judge or steers the model
    axis       axis_b, axis_mixed, axis_unknown; for A: axis_theatre, axis_log_suspect
    outcome    verdict_mismatch, unscorable, no_outcome
    judge      unjudged (retried)
    copies     exact_copy of a trace of another run

What remains is accepted with its uses. The reasoning gate withholds uses, it never rejects. Two passes over the
trajectories: the first keeps small features, the second hands the accepted rows on batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from trajectory_platform.curation import gates as uses_table
from trajectory_platform.curation.agency import AGENCY_VERSION, AxisDecision, decide
from trajectory_platform.curation.corpus import (
    Candidate,
    Rejection,
    accepted_batches,
    rejected_table,
    summarise,
)
from trajectory_platform.curation.gates import Gates
from trajectory_platform.curation.quality import QUALITY_VERSION, features
from trajectory_platform.curation.strategy import STRATEGY_VERSION, fingerprint
from trajectory_platform.errors import FailPartition
from trajectory_platform.judging.verdicts import effective_verdicts

if TYPE_CHECKING:
    import pyarrow as pa

FILTER_VERSION = "filter-1"
VERSION = f"{FILTER_VERSION}/axis-{AGENCY_VERSION}/{STRATEGY_VERSION}/{QUALITY_VERSION}"

Row = dict[str, Any]
Batches = Callable[[], Iterator["pa.RecordBatch"]]
_READ_COLUMNS = ["trace_id", "readable", "malformed", "malformed_detail", "content_hash", "messages", "evidence"]


@dataclass(frozen=True)
class CurationResult:
    """The day after the filter.

    Attributes:
        accepted: AXIS_A_CORPUS batches in trace_id order; consumed once.
        rejected: REJECTED_TRACES rows, sorted by trace_id.
        summary: input, accepted, rejected, by_stage, by_reason, by_axis, by_use.
    """

    accepted: Iterator[pa.RecordBatch]
    rejected: pa.Table
    summary: dict[str, Any]


def curate_day(
    raw_rows: pa.Table, trajectory_batches: Batches, judged: pa.Table, verdicts: pa.Table, *, gates: Gates
) -> CurationResult:
    """Run the filter over one day.

    Args:
        raw_rows: RAW_TRACES rows of the day.
        trajectory_batches: gives the day's TRAJECTORIES batches, each call from the start (it is called twice).
        judged, verdicts: JUDGED_TRACES and VERDICTS rows of the day.

    Raises:
        FailPartition: a row would be lost or counted twice, or a trajectory belongs to no raw row.
    """
    raw = {row["trace_id"]: row for row in raw_rows.select(_RAW_COLUMNS).to_pylist()}
    if len(raw) != raw_rows.num_rows:
        raise FailPartition(f"{raw_rows.num_rows - len(raw)} raw rows share a trace_id")
    outcomes = {row["trace_id"]: row for row in judged.select(_JUDGED_COLUMNS).to_pylist()}
    chosen = effective_verdicts(verdicts, gates.judge)
    rejections: dict[str, Rejection] = {}
    axes: dict[str, AxisDecision] = {}
    candidates: dict[str, Candidate] = {}
    for name, row in raw.items():
        objection = ingest_objection(row)
        if objection is not None:
            rejections[name] = objection
    for row in _rows(trajectory_batches(), _READ_COLUMNS):
        name = row["trace_id"]
        if name not in raw:
            raise FailPartition(f"trajectory {name} belongs to no raw row of the day")
        _examine(row, raw[name], outcomes.get(name), chosen.get(name), gates, axes, candidates, rejections)
    for name in raw.keys() - rejections.keys() - candidates.keys():
        rejections[name] = Rejection("read", "trajectory_missing", "no trajectory was read for this trace", None, True)
    for name, survivor in exact_copies(candidates).items():
        del candidates[name]
        rejections[name] = Rejection("copies", "exact_copy", "the canonical messages are equal", survivor)
    if len(candidates) + len(rejections) != len(raw):
        raise FailPartition(f"{len(raw)} raw rows, {len(candidates)} accepted and {len(rejections)} rejected")
    day_of = {name: row["day"] for name, row in raw.items()}
    return CurationResult(
        accepted=accepted_batches(trajectory_batches, candidates, gates, FILTER_VERSION),
        rejected=rejected_table(rejections, axes, day_of, FILTER_VERSION),
        summary=summarise(len(raw), candidates, rejections, axes),
    )


_RAW_COLUMNS = ["trace_id", "day", "state", "state_reason", "state_detail", "judged_at", "duplicates_differ"]
_JUDGED_COLUMNS = [
    "trace_id", "problem_key", "query_verified", "outcome", "reason", "outcome_success", "outcome_source",
    "validators_agree", "validator_success", "recommended_ids", "hallucinated_ids", "unviewed_ids",
    "not_in_catalogue_ids", "discipline", "injection_suspected", "injection_sources",
]  # fmt: skip


def ingest_objection(row: Mapping[str, Any]) -> Rejection | None:
    """What speaks against a raw row before its content is read."""
    state, reason = row["state"], row["state_reason"] or row["state"]
    detail = ": ".join(part for part in (row["state_reason"], row["state_detail"]) if part) or None
    if state == "trace":
        return None
    if state != "unreadable":
        return Rejection("ingest", state, detail, retryable=state == "not_final")
    if reason == "duplicate_line":
        return Rejection("duplicate", reason, detail, duplicate_of=row["trace_id"].rpartition("#")[0] or None)
    return Rejection("read", reason, row["state_detail"])


def _examine(
    row: Row,
    raw: Row,
    judged: Row | None,
    verdict: Row | None,
    gates: Gates,
    axes: dict[str, AxisDecision],
    candidates: dict[str, Candidate],
    rejections: dict[str, Rejection],
) -> None:
    """Decide the axis of one trajectory and file it as candidate or rejection."""
    name = row["trace_id"]
    if not row["readable"] or row["malformed"]:
        rejections.setdefault(name, Rejection("read", row["malformed"] or "malformed", row["malformed_detail"]))
        return
    messages = orjson.loads(row["messages"])
    axis = decide(messages, orjson.loads(row["evidence"]), a_min_share=gates.a_min_share, b_max_share=gates.b_max_share)
    axes[name] = axis
    if name in rejections:
        return
    objection = (
        _duplicate_objection(raw)
        or _injection_objection(judged)
        or _axis_objection(axis)
        or outcome_objection(judged)
        or judge_objection(verdict, gates)
    )
    if objection is not None:
        rejections[name] = objection
        return
    assert judged is not None and verdict is not None  # the objections above cover both
    not_opened = len(judged["unviewed_ids"]) + len(judged["hallucinated_ids"])
    candidates[name] = Candidate(
        content_hash=row["content_hash"],
        order=("9999" if raw["judged_at"] is None else raw["judged_at"].isoformat(), name),
        axis=axis,
        judged=judged,
        verdict=verdict,
        uses=uses_of(judged, verdict, gates),
        traits=features(messages, recommended=judged["recommended_ids"], not_opened=not_opened),
        strategy=fingerprint(messages).cluster,
    )


def _duplicate_objection(raw: Mapping[str, Any]) -> Rejection | None:
    if not raw["duplicates_differ"]:
        return None
    # The scored dialogue may be another than the published one (domain 8.5): the first line has no use either.
    return Rejection("duplicate", "conflicting_lines", "further lines for this problem differ from the first")


def _injection_objection(judged: Mapping[str, Any] | None) -> Rejection | None:
    if judged is None or not judged["injection_suspected"]:
        return None
    return Rejection("injection", "injection", ",".join(judged["injection_sources"]))


def _axis_objection(axis: AxisDecision) -> Rejection | None:
    if axis.label != "A":
        return Rejection("axis", f"axis_{axis.label.lower()}", axis.reason)
    # Label A stays what the log supports; a log that looks staged is still nothing to imitate (domain 6: 36, 42).
    if axis.theatre_suspected:
        return Rejection("axis", "axis_theatre", "the emitted calls stood verbatim in the prompt")
    if axis.notes:
        return Rejection("axis", "axis_log_suspect", ",".join(axis.notes))
    return None


def outcome_objection(judged: Mapping[str, Any] | None) -> Rejection | None:
    """No outcome, or one that contradicts the validator's verdict on the same run."""
    if judged is None:
        return Rejection("outcome", "no_outcome", "the trace was never scored", retryable=True)
    if judged["outcome"] == "unscorable" and judged["reason"] != "reward_hidden":
        return Rejection("outcome", "unscorable", judged["reason"])
    if judged["outcome_source"] == "rule" and judged["validators_agree"] is False:
        return Rejection(
            "outcome",
            "verdict_mismatch",
            f"rule says {judged['outcome']}, validator says {'success' if judged['validator_success'] else 'failure'}",
        )
    if judged["outcome_success"] is None:
        return Rejection("outcome", "no_outcome", "the reward is hidden and no validator's verdict is known")
    return None


def judge_objection(verdict: Mapping[str, Any] | None, gates: Gates) -> Rejection | None:
    """Nothing the reasoning gate could read."""
    if verdict is None:
        return Rejection("judge", "unjudged", "no verdict", retryable=True)
    if verdict["reasoning_quality"] is None:
        return Rejection("judge", "unjudged", verdict["null_reason"], retryable=True)
    if verdict["score_regime"] not in gates.reasoning:
        detail = f"no gate for the {verdict['score_regime']} regime"
        return Rejection("judge", "unjudged", detail, retryable=True)
    return None


def uses_of(judged: Mapping[str, Any], verdict: Mapping[str, Any], gates: Gates) -> tuple[str, ...]:
    """What an accepted trace is good for, by the table of uses."""
    found = uses_table.situation(
        success=bool(judged["outcome_success"]),
        unseen_id=bool(judged["hallucinated_ids"] or judged["not_in_catalogue_ids"]),
        quality=verdict["reasoning_quality"],
        gate=gates.reasoning[verdict["score_regime"]],
        disciplined=not judged["discipline"],
    )
    return gates.uses[found]


def exact_copies(candidates: Mapping[str, Candidate]) -> dict[str, str]:
    """Traces whose messages equal those of an earlier judged one: trace_id -> survivor.

    The survivor is the first by (judged_at, trace_id). Two validators' runs of one agent are two rollouts and stay,
    unless they are equal byte for byte (domain 6: 31).
    """
    survivors: dict[str, str] = {}
    copies: dict[str, str] = {}
    for name in sorted(candidates, key=lambda name: candidates[name].order):
        survivor = survivors.setdefault(candidates[name].content_hash, name)
        if survivor != name:
            copies[name] = survivor
    return copies


def _rows(batches: Iterator[pa.RecordBatch], columns: list[str]) -> Iterator[Row]:
    for batch in batches:
        yield from batch.select(columns).to_pylist()
