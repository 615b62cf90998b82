"""The structural filter: every raw row of a day ends in exactly one place (design 3, "Conservation").

A row is rejected by the first stage that objects (``filter_stages`` has the table, ``config`` the order); what remains
is thinned by the stages that look at the whole day (copies, strategy, caps) and accepted with its uses. The reasoning
gate withholds uses, it never rejects. Two passes over the trajectories: the first keeps small features, the second
hands the accepted rows on batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from trajectory_platform.curation import uses as uses_table
from trajectory_platform.curation.agency import AGENCY_VERSION, AxisDecision, decide
from trajectory_platform.curation.caps import over_caps
from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.curation.copies import COPIES_VERSION, exact_copies, strategy_copies
from trajectory_platform.curation.corpus import Candidate, accepted_batches, rejected_table, summarise
from trajectory_platform.curation.discipline import DISCIPLINE_VERSION, ineffective_filters, violations
from trajectory_platform.curation.filter_stages import Case, Rejection, first_objection, objections, stage_versions
from trajectory_platform.curation.quality import QUALITY_VERSION, features, opened_late, own_weight
from trajectory_platform.curation.signatures import signature_of
from trajectory_platform.curation.strategy import STRATEGY_VERSION, fingerprint
from trajectory_platform.errors import FailPartition
from trajectory_platform.judging.verdicts import effective_verdicts
from trajectory_platform.traces.garbage import collection_paused

if TYPE_CHECKING:
    import pyarrow as pa

FILTER_VERSION = "filter-2"
VERSION = "/".join(
    (
        FILTER_VERSION, stage_versions(), f"axis-{AGENCY_VERSION}", STRATEGY_VERSION, COPIES_VERSION, QUALITY_VERSION,
        DISCIPLINE_VERSION,
    )
)  # fmt: skip

Row = dict[str, Any]
Batches = Callable[[], Iterator["pa.RecordBatch"]]
_READ_COLUMNS = ["trace_id", "readable", "malformed", "malformed_detail", "content_hash", "messages", "evidence"]
_RAW_COLUMNS = [
    "trace_id", "day", "state", "state_reason", "state_detail", "judged_at", "duplicates_differ", "agent_version_id",
    "miner_hotkey", "policy_checkpoint_id",
]  # fmt: skip
_JUDGED_COLUMNS = [
    "trace_id", "problem_key", "query_verified", "outcome", "reason", "outcome_success", "outcome_source",
    "validators_agree", "validator_success", "recommended_ids", "lenient_ids", "hallucinated_ids", "unviewed_ids",
    "not_in_catalogue_ids", "discipline", "format", "injection_suspected", "injection_sources",
]  # fmt: skip


@dataclass(frozen=True)
class CurationResult:
    """The day after the filter.

    Attributes:
        accepted: AXIS_A_CORPUS batches in trace_id order; consumed once.
        rejected: REJECTED_TRACES rows, sorted by trace_id.
        summary: input, accepted, rejected, by_stage, by_reason, by_axis, by_era, by_use.
        all_reasons: trace_id -> every objection of the row stages, where asked for.
    """

    accepted: Iterator[pa.RecordBatch]
    rejected: pa.Table
    summary: dict[str, Any]
    all_reasons: dict[str, list[Rejection]] = field(default_factory=dict)


def curate_day(
    raw_rows: pa.Table,
    trajectory_batches: Batches,
    judged: pa.Table,
    verdicts: pa.Table,
    *,
    config: FilterConfig,
    all_reasons: bool = False,
) -> CurationResult:
    """Run the filter over one day.

    Args:
        raw_rows: RAW_TRACES rows of the day.
        trajectory_batches: gives the day's TRAJECTORIES batches, each call from the start (it is called twice, and
            once more with ``accept_proven_agents``).
        judged, verdicts: JUDGED_TRACES and VERDICTS rows of the day.
        all_reasons: also keep every objection, not only the rejecting one.

    Raises:
        FailPartition: a row would be lost or counted twice, or a trajectory belongs to no raw row.
    """
    with collection_paused():
        sieve = _Sieve(raw_rows, judged, verdicts, config, all_reasons)
        sieve.run(trajectory_batches)
    candidates, rejections = sieve.candidates, sieve.rejections
    if len(candidates) + len(rejections) != len(sieve.raw):
        raise FailPartition(
            f"{len(sieve.raw)} raw rows, {len(candidates)} accepted and {len(rejections)} rejected: a row is lost"
        )
    day_of = {name: row["day"] for name, row in sieve.raw.items()}
    return CurationResult(
        accepted=accepted_batches(trajectory_batches, candidates, config, FILTER_VERSION),
        rejected=rejected_table(rejections, sieve.axes, day_of, FILTER_VERSION),
        summary=summarise(sieve.raw, candidates, rejections, sieve.axes, sieve.before_copies, sieve.outlines),
        all_reasons=sieve.all_reasons,
    )


def worth_judging(
    raw_rows: pa.Table, trajectory_batches: Batches, judged: pa.Table, verdicts: pa.Table, *, config: FilterConfig
) -> list[str]:
    """Traces an LLM judge should be asked about, sorted: no other stage of a row objects, and no verdict of a
    validator can be gated. Everything else would be paid for and then thrown away.
    """
    sieve = _Sieve(raw_rows, judged, verdicts, config, True)
    worth = []
    for case in sieve.cases(trajectory_batches):
        against = [one for one in objections(case) if one.stage != "judge"]
        told = case.verdict is not None and case.verdict["judge_kind"] == "validator" and case.verdict["gate_eligible"]
        if not against and not told and case.row is not None:
            worth.append(case.raw["trace_id"])
    return sorted(worth)


class _Sieve:
    """One pass over a day: raw rows and their cases, then candidates and rejections by trace_id."""

    def __init__(
        self, raw_rows: pa.Table, judged: pa.Table, verdicts: pa.Table, config: FilterConfig, all_reasons: bool
    ) -> None:
        self.raw: dict[str, Row] = {row["trace_id"]: row for row in raw_rows.select(_RAW_COLUMNS).to_pylist()}
        if len(self.raw) != raw_rows.num_rows:
            raise FailPartition(f"{raw_rows.num_rows - len(self.raw)} raw rows share a trace_id")
        self.config, self.keep_all = config, all_reasons
        self.judged = {row["trace_id"]: row for row in judged.select(_JUDGED_COLUMNS).to_pylist()}
        self.verdicts = effective_verdicts(verdicts, config.judge)
        self.axes: dict[str, AxisDecision] = {}
        self.candidates: dict[str, Candidate] = {}
        self.rejections: dict[str, Rejection] = {}
        self.all_reasons: dict[str, list[Rejection]] = {}
        self.before_copies: dict[str, str] = {}  # trace -> strategy of what the stages of single rows let through
        self.outlines: dict[str, str] = {}  # strategy -> its moves in words

    def run(self, batches: Batches) -> None:
        """File every row as candidate or rejection."""
        for case in self.cases(batches):
            self._file(case)
        self.before_copies = {name: candidate.strategy for name, candidate in self.candidates.items()}
        for stage, against in (
            ("copies", exact_copies),
            ("strategy", lambda rows: strategy_copies(rows, similarity=self.config.copy_similarity)),
            ("caps", lambda rows: over_caps(rows, self.config)),
        ):
            if self.config.active(stage):
                found = against(self.candidates)
                self.rejections.update(found)
                for name in found:
                    del self.candidates[name]

    def cases(self, batches: Batches) -> Iterator[Case]:
        """A case for every raw row: those with a trajectory in its order, then the others by trace_id."""
        proven = self._proven(batches) if self.config.accept_proven_agents else frozenset[str]()
        seen: set[str] = set()
        for row in _rows(batches()):
            name = row["trace_id"]
            raw = self.raw.get(name)
            if raw is None:
                raise FailPartition(f"trajectory {name} belongs to no raw row of the day")
            seen.add(name)
            messages = orjson.loads(row["messages"]) if row["readable"] and not row["malformed"] else None
            axis = self._decide(name, messages, row) if messages is not None else None
            yield self._case(raw, row, messages, axis, raw["agent_version_id"] in proven)
        for name in sorted(self.raw.keys() - seen):
            yield self._case(self.raw[name], None, None, None, False)

    def _case(self, raw: Row, row: Row | None, messages: Any, axis: AxisDecision | None, proven: bool) -> Case:
        name = raw["trace_id"]
        return Case(raw, row, messages, axis, self.judged.get(name), self.verdicts.get(name), self.config, proven)

    def _decide(self, name: str, messages: list[Any], row: Row) -> AxisDecision:
        axis = self.axes.get(name)
        if axis is None:
            evidence = orjson.loads(row["evidence"])
            bounds = {"a_min_share": self.config.a_min_share, "b_max_share": self.config.b_max_share}
            axis = self.axes[name] = decide(messages, evidence, **bounds)
        return axis

    def _proven(self, batches: Batches) -> frozenset[str]:
        """Agent versions whose evidenced traces of the day are axis A often enough."""
        told: dict[str, list[bool]] = {}
        for row in _rows(batches()):
            agent = self.raw[row["trace_id"]]["agent_version_id"] if row["trace_id"] in self.raw else None
            if agent is None or not row["readable"] or row["malformed"]:
                continue
            axis = self._decide(row["trace_id"], orjson.loads(row["messages"]), row)
            if axis.label != "unknown":
                told.setdefault(agent, []).append(axis.label == "A" and not axis.theatre_suspected and not axis.notes)
        config = self.config
        return frozenset(
            agent
            for agent, marks in told.items()
            if len(marks) >= config.proven_traces and sum(marks) >= config.proven_share * len(marks)
        )

    def _file(self, case: Case) -> None:
        name = case.raw["trace_id"]
        if self.keep_all:
            found = list(objections(case))
            if found:
                self.all_reasons[name] = found
            objection = found[0] if found else None
        else:
            objection = first_objection(case)
        if objection is not None:
            self.rejections[name] = objection
        else:
            strategy = fingerprint(case.messages or [])
            self.outlines[strategy.cluster] = strategy.signature
            self.candidates[name] = _candidate(case, strategy.cluster)


def _candidate(case: Case, strategy: str) -> Candidate:
    """The features and the uses of a trace that no stage of single rows objects to."""
    messages, axis, judged, verdict, config = case.messages, case.axis, case.judged, case.verdict, case.config
    assert messages is not None and axis is not None and judged is not None and verdict is not None
    raw = case.raw
    against = violations(judged, config)
    found = uses_table.situation(
        success=bool(judged["outcome_success"]),
        unseen_id=bool(judged["hallucinated_ids"] or judged["not_in_catalogue_ids"]),
        quality=verdict["reasoning_quality"],
        gate=config.reasoning[verdict["score_regime"]],
        disciplined=not against,
        own_policy=raw["policy_checkpoint_id"] is not None,
    )
    flags = ineffective_filters(messages)
    ids = judged["recommended_ids"]
    not_opened = len(judged["unviewed_ids"]) + len(judged["hallucinated_ids"]) + opened_late(messages, ids)
    traits = features(messages, recommended=ids, not_opened=not_opened, ineffective=len(flags))
    assert case.row is not None
    return Candidate(
        content_hash=case.row["content_hash"],
        order=("9999" if raw["judged_at"] is None else raw["judged_at"].isoformat(), raw["trace_id"]),
        agent_version_id=raw["agent_version_id"],
        miner_hotkey=raw["miner_hotkey"],
        problem_key=judged["problem_key"],
        axis=axis,
        judged=judged,
        verdict=verdict,
        situation=found,
        uses=tuple(config.uses[found]),
        own_quality=own_weight(traits),
        strategy=strategy,
        signature=signature_of(messages),
        flags=(*against, *flags),
        axis_source="agent" if axis.label == "unknown" else "trace",
    )


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from batch.select(_READ_COLUMNS).to_pylist()
