"""Rows of ``generated_traces``: every attempt a parent checkpoint or a teacher was to make, and what became of it.

Attempts in = accepted + rejected, each with a reason. No problem outside the train pool gets in: that is asserted here
once more, whoever chose the problems (case C14).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.curation.signatures import signature_of
from trajectory_platform.curation.strategy import fingerprint
from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation import conduct
from trajectory_platform.evaluation.eval_rows import CRASHES, TIMEOUTS
from trajectory_platform.evaluation.guard import assert_no_overlap
from trajectory_platform.evaluation.plan import RolloutPlan
from trajectory_platform.identity import digest_json, trace_id
from trajectory_platform.training import grounding, rejection
from trajectory_platform.training.rejection import Attempt, Decided, Decision, Judge

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.evaluation.eval_problems import EvalProblem
    from trajectory_platform.evaluation.eval_rows import Rules
    from trajectory_platform.judging.outcome import Products
    from trajectory_platform.training.stage_recipes import Acceptance, Rollouts

ROWS_VERSION = "generated-1"  # raise it when the same decisions would give other rows
NOT_RUN = "not_run"
NO_RECORD = "no_attempt_recorded"

Key = tuple[str, int]
"""(problem key, sample)."""


class Origin(NamedTuple):
    """Where the attempts come from: as-of day, stage they are for, parent checkpoint or teacher, identity of the plan.

    With other limits or another temperature the same parent does something else: an id that named both would tell a
    wrong lineage.
    """

    day: str
    stage: str
    source: str
    plan: str = ""


class Generated(NamedTuple):
    """``generated_traces`` of one stage and day.

    Attributes:
        table: every planned attempt, sorted by trace id.
        summary: counts for people and checks.
        complete: False where a later run may fill holes: a budget that was reached, an endpoint or a judge that did
            not answer.
    """

    table: pa.Table
    summary: dict[str, Any]
    complete: bool


def code_version() -> str:
    """Everything here whose change may change a row; of attempts and scores see ``stages.evaluations``."""
    return " ".join((ROWS_VERSION, rejection.VERSION, grounding.VERSION))


def plan_of(rollouts: Rollouts) -> RolloutPlan:
    """The attempts of a stage as a plan for ``evaluation.rollout_launch``; its pool is not read there."""
    return RolloutPlan(
        problems=rollouts.problems,
        samples=rollouts.samples,
        temperature=rollouts.temperature,
        top_p=rollouts.top_p,
        concurrency=rollouts.concurrency,
        limits=rollouts.limits,
    )


def generated(
    rollouts: pa.Table,
    chosen: Sequence[EvalProblem],
    catalogue: Products | None,
    rules: Rules,
    accept: Acceptance,
    *,
    origin: Origin,
    samples: int,
    clusters: Iterable[Mapping[str, Any]],
    corpus: Collection[Mapping[str, Any]] = (),
    judge: Judge | None = None,
    unmade: Mapping[Key, str] | None = None,
    cached: Collection[str] = (),
) -> Generated:
    """Score, test and choose.

    Args:
        rollouts: ``rollouts`` rows of the chosen problems.
        samples: attempts planned at each problem.
        clusters: ``leak_clusters`` rows of the day, of all pools.
        corpus: rows that are trained on anyway (``trace_id, problem_key, content_hash, strategy_signature``).
        judge: of the reasoning, where the recipe has a gate; None for the rules.
        unmade: planned attempts that were not made, with the reason; a later run may make them.
        cached: trace ids of ``rollouts`` that cost nothing in this run.

    Raises:
        FailPartition: a problem outside the train pool, or an attempt at a problem or sample that was not planned.
    """
    import pyarrow as pa

    from trajectory_platform.lake.tables import GENERATED_TRACES

    assert_train_only(chosen, clusters)
    open_holes = dict(unmade or {})
    attempts = list(_attempts(rollouts, chosen, catalogue, rules, origin, samples))
    decided = rejection.decide(attempts, accept, corpus=corpus, judge=judge)
    made = {(attempt.problem_key, attempt.sample): attempt for attempt in attempts}
    rows = []
    for one in chosen:
        for sample in range(samples):
            attempt = made.get((one.problem.problem_key, sample))
            if attempt is not None:
                rows.append(_row(attempt, decided, origin, attempt.row["trace_id"] in cached))
            else:
                reason = open_holes.get((one.problem.problem_key, sample), NO_RECORD)
                rows.append(_unmade_row(one, sample, origin, reason))
    rows.sort(key=lambda row: str(row["trace_id"]))
    retryable = any(verdict.retryable for verdict in decided.verdicts.values())
    return Generated(
        pa.Table.from_pylist(rows, schema=GENERATED_TRACES.schema()),
        _summary(rows, chosen),
        complete=not retryable and not any(key not in made for key in open_holes),
    )


def assert_train_only(chosen: Sequence[EvalProblem], clusters: Iterable[Mapping[str, Any]]) -> None:
    """No chosen problem, and no variant of one, is held out.

    Raises:
        FailPartition: names the problem.
    """
    rows = list(clusters)
    for one in chosen:
        if one.pool != "train":
            raise FailPartition(f"leak: problem {one.problem.problem_id} of pool {one.pool} was to be trained on")
    held_out = [
        {
            "trace_id": f"cluster row {row['problem_key']}",
            "problem_key": row["problem_key"],
            "cluster_id": row["cluster_id"],
        }
        for row in rows
        if row["pool"] != "train" or row.get("held_out")
    ]
    present = {row["problem_key"]: row["cluster_id"] for row in rows}
    train = [
        {
            "trace_id": f"problem {one.problem.problem_id}",
            "problem_key": one.problem.problem_key,
            "cluster_id": sorted({one.cluster_id, present.get(one.problem.problem_key, one.cluster_id)}),
        }
        for one in chosen
    ]
    assert_no_overlap(train, held_out)


def generated_id(origin: Origin, one: EvalProblem, sample: int) -> str:
    """The trace id of an attempt: one per day, stage, source, plan, problem and sample."""
    run = digest_json(["generated", *origin, one.problem.problem_key, sample])[:40]
    return trace_id(f"generated-{run}", one.problem.problem_id)


def _attempts(
    rollouts: pa.Table,
    chosen: Sequence[EvalProblem],
    catalogue: Products | None,
    rules: Rules,
    origin: Origin,
    samples: int,
) -> Iterator[Attempt]:
    from trajectory_platform.judging.matching import find_rules
    from trajectory_platform.judging.outcome import Scorer

    scorer = Scorer(catalogue, find_rules(*rules))
    by_key = {one.problem.problem_key: one for one in chosen}
    seen: set[Key] = set()
    for row in (row for batch in rollouts.to_batches(max_chunksize=64) for row in batch.to_pylist()):
        key = (str(row["problem_key"]), int(row["sample"]))
        if key[0] not in by_key or key[1] >= samples or key in seen:
            raise FailPartition(f"attempt_not_planned: sample {key[1]} of problem {key[0]}, or it is there twice")
        seen.add(key)
        one = by_key[key[0]]
        messages = jsontext.parse(row["messages"].encode()).value
        found = scorer.score(jsontext.parse(row["source_steps"].encode()).value, one.problem)
        yield Attempt(
            trace_id=generated_id(origin, one, key[1]),
            one=one,
            sample=key[1],
            row=row,
            messages=messages,
            found=found,
            conduct=conduct.assess(messages, recommended=found.recommended_ids).score,
            signature=signature_of(messages),
            outline=fingerprint(messages).signature,
        )


def _row(attempt: Attempt, decided: Decided, origin: Origin, cached: bool) -> dict[str, Any]:
    row, found = attempt.row, attempt.found
    decision = decided.decisions[attempt.trace_id]
    verdict = decided.verdicts.get(attempt.trace_id)
    ending = row["ending"]
    return {
        **_place(attempt.one, attempt.sample, origin),
        "ending": ending,
        "outcome": _outcome(ending, found.outcome),
        "success": attempt.success,
        **_decision(decision),
        "conduct_score": attempt.conduct,
        "reasoning_quality": None if verdict is None else verdict.quality,
        "judge_kind": None if verdict is None else verdict.kind,
        "strategy_signature": attempt.signature,
        "recommended_ids": found.recommended_ids,
        "hallucinated_ids": found.hallucinated_ids,
        "cached": cached,
        **{name: row[name] for name in _COPIED},
    }


_COPIED = ("content_hash", "messages", "tools", "prompt_tokens", "completion_tokens", "cost_usd")


def _unmade_row(one: EvalProblem, sample: int, origin: Origin, why: str) -> dict[str, Any]:
    return {
        **_place(one, sample, origin),
        "ending": NOT_RUN,
        "outcome": "no_attempt",
        "success": None,
        **_decision(Decision("budget" if why == "budget" else "no_attempt", why)),
        "conduct_score": None,
        "reasoning_quality": None,
        "judge_kind": None,
        "strategy_signature": "",
        "recommended_ids": [],
        "hallucinated_ids": [],
        "content_hash": None,
        "messages": "[]",
        "tools": "[]",
        "prompt_tokens": None,
        "completion_tokens": None,
        "cost_usd": 0.0,
        "cached": False,
    }


def _place(one: EvalProblem, sample: int, origin: Origin) -> dict[str, Any]:
    problem = one.problem
    return {
        "trace_id": generated_id(origin, one, sample),
        "day": origin.day,
        "stage": origin.stage,
        "source": origin.source,
        "problem_id": problem.problem_id,
        "suite_id": problem.suite_id,
        "problem_key": problem.problem_key,
        "cluster_id": one.cluster_id,
        "category": problem.category or "unknown",
        "sample": sample,
    }


def _decision(decision: Decision) -> dict[str, Any]:
    detail = decision.detail
    stored = None if detail is None else detail.encode("utf-8", "replace").decode()[:300]
    return {"accepted": decision.reason is None, "reason": decision.reason, "detail": stored}


def _outcome(ending: str, scored: str) -> str:
    if ending in CRASHES:
        return "crash"
    return "timeout" if ending in TIMEOUTS else scored


def _summary(rows: Sequence[Mapping[str, Any]], chosen: Sequence[EvalProblem]) -> dict[str, Any]:
    accepted = [row for row in rows if row["accepted"]]
    reasons = Counter(str(row["reason"]) for row in rows if not row["accepted"])
    made = [row for row in rows if row["ending"] != NOT_RUN]
    counts: dict[str, Any] = {
        "problems": len(chosen),
        "attempts": len(rows),
        "made": len(made),
        "accepted": len(accepted),
        "rejected": sum(reasons.values()),
        "reasons": dict(sorted(reasons.items())),
        "problems_solved": len({row["problem_key"] for row in rows if row["success"]}),
        "problems_accepted": len({row["problem_key"] for row in accepted}),
        "cost_usd": round(math.fsum(row["cost_usd"] for row in rows), 6),
    }
    if made:
        counts["success_share"] = sum(bool(row["success"]) for row in made) / len(made)
    return counts
