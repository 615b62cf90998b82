"""From attempts to rows of ``eval_scores``: the strict rule, and every way to fail without a trace named apart.

Production-strict (design 4): an attempt that crashed, ran out of time or cannot be scored is a failure with a reason.
Only a problem without a published reward is none; it gets a row that says so and is left out of every share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.evaluation.eval_problems import EvalProblem, Selection
from trajectory_platform.evaluation.turn_rewards import (
    TURN_REWARD_VERSION,
    Reference,
    left_no_message,
    process_score,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.judging.outcome import OutcomeScore, Products, Scorer

VERSION = f"eval-rows-2,{TURN_REWARD_VERSION}"  # raise it when the same attempts would give other rows
CRASHES = ("policy_error", "environment_error")
TIMEOUTS = ("timeout",)
CUTS = ("step_limit", "token_limit", "timeout", "reply_truncated")  # endings by which a limit cut the attempt
NOT_RUN = "not_run"


class Rules(NamedTuple):
    """How outcomes are decided: the settings of the same names."""

    title_regime: str = "normalised"
    title_encoder: str = "none"
    attribute_rule: str = "exact"


class Measured(NamedTuple):
    """Whose attempts they are: the first columns of every row."""

    checkpoint_id: str
    day: str
    stage: str


def score_table(
    rollouts: pa.Table,
    selection: Selection,
    catalogue: Products | None,
    rules: Rules,
    *,
    samples: int,
    measured: Measured,
    references: Mapping[str, Reference] | None = None,
) -> pa.Table:
    """All rows of an evaluation in the schema of ``eval_scores``: its attempts and its problems without a reward.

    Args:
        references: the teacher's trace of each problem_key (``turn_rewards.best_reference``); a problem that is not
            in it has no process score.
    """
    import pyarrow as pa

    from trajectory_platform.lake.tables import EVAL_SCORES

    attempts = (row for batch in rollouts.to_batches(max_chunksize=64) for row in batch.to_pylist())
    known = references or {}
    rows = score_rows(
        attempts, selection.chosen, catalogue, rules, samples=samples, measured=measured, references=known
    )
    rows += no_reward_rows(selection.no_reward, measured=measured)
    return pa.Table.from_pylist(rows, schema=EVAL_SCORES.schema())


def score_rows(
    rollouts: Iterable[Mapping[str, Any]],
    problems: Iterable[EvalProblem],
    catalogue: Products | None,
    rules: Rules,
    *,
    samples: int,
    measured: Measured,
    references: Mapping[str, Reference],
) -> list[dict[str, Any]]:
    """``eval_scores`` rows: one for every problem and attempt of the plan, ordered by (problem_key, sample).

    Args:
        rollouts: ``rollouts`` rows. A planned attempt that is not among them left nothing and is a crash.
        problems: the problems that were to be attempted, with their rewards.
    """
    from trajectory_platform.judging.matching import find_rules
    from trajectory_platform.judging.outcome import Scorer

    scorer = Scorer(catalogue, find_rules(*rules))
    by_key = {one.problem.problem_key: one for one in problems}
    scored = {
        (row["problem_key"], row["sample"]): _scored(row, by_key[row["problem_key"]], scorer, references)
        for row in rollouts
        if row["problem_key"] in by_key
    }
    rows = []
    for key in sorted(by_key):
        for sample in range(samples):
            found = scored.get((key, sample)) or {**_missing(), **_grounded(references.get(key))}
            rows.append({**measured._asdict(), **_place(by_key[key]), "sample": sample, **found})
    return rows


def no_reward_rows(problems: Iterable[EvalProblem], *, measured: Measured) -> list[dict[str, Any]]:
    """One row for every problem of the pool that cannot be scored, so that it is counted and never a failure."""
    rows = []
    for one in sorted(problems, key=lambda one: one.problem.problem_key):
        reason = f"reward_{one.problem.reward_state}" if one.problem.reward is None else "no_query"
        nothing = {**_missing(), "outcome": "no_reward", "success": None, "reason": reason, "ending": NOT_RUN}
        rows.append({**measured._asdict(), **_place(one), "sample": 0, **nothing})
    return rows


def _place(one: EvalProblem) -> dict[str, Any]:
    problem = one.problem
    return {
        "problem_id": problem.problem_id,
        "suite_id": problem.suite_id,
        "problem_key": problem.problem_key,
        "pool": one.pool,
        "category": problem.category or "unknown",
        "cluster_id": one.cluster_id,
    }


def _missing() -> dict[str, Any]:
    return {
        "trace_id": None,
        "outcome": "crash",
        "success": False,
        "reason": "no_attempt_recorded",
        "ending": "crash",
        "score": "{}",
        "lenient_success": None,
        "format": None,
        "length": None,
        "conduct_score": None,
        **_grounded(None),
        "recommended_ids": [],
        "hallucinated_ids": [],
        "unviewed_ids": [],
        "discipline": [],
        "steps": 0,
        "tool_calls": 0,
        "prompt_tokens": None,
        "completion_tokens": None,
        "truncated": False,
        "seconds": 0.0,
        "cost_usd": 0.0,
    }


def _grounded(reference: Reference | None) -> dict[str, Any]:
    """The columns of the process score before there is one; an attempt that left no trace has none."""
    version = None if reference is None else TURN_REWARD_VERSION
    return {
        "process_score": None,
        "process_reference": None if reference is None else reference.trace_id,
        "process_version": version,
    }


def _scored(
    row: Mapping[str, Any], one: EvalProblem, scorer: Scorer, references: Mapping[str, Reference]
) -> dict[str, Any]:
    from trajectory_platform.evaluation.conduct import conduct_score

    steps = jsontext.parse(row["source_steps"].encode()).value
    messages = jsontext.parse(row["messages"].encode()).value
    found = scorer.score(steps, one.problem)
    outcome, success, reason = decided(row["ending"], row["ending_detail"], found)
    reference = references.get(one.problem.problem_key)
    lost = left_no_message(messages, row["ending"])
    return {
        "trace_id": row["trace_id"],
        "outcome": outcome,
        "success": success,
        "reason": reason,
        "ending": row["ending"],
        "score": jsontext.dumps(found.score),
        "lenient_success": False if outcome in ("crash", "timeout") else found.lenient_success,
        "format": found.format,
        "length": found.length,
        "conduct_score": conduct_score(messages, recommended=found.recommended_ids),
        **_grounded(reference),
        "process_score": process_score(messages, reference, lost_reply=lost),
        "recommended_ids": found.recommended_ids,
        "hallucinated_ids": found.hallucinated_ids,
        "unviewed_ids": found.unviewed_ids,
        "discipline": found.discipline,
        "truncated": bool(row["truncated_replies"]) or row["ending"] in CUTS,
        **{name: row[name] for name in _COPIED},
    }


_COPIED = ("steps", "tool_calls", "prompt_tokens", "completion_tokens", "seconds", "cost_usd")


def decided(ending: str, detail: str | None, found: OutcomeScore) -> tuple[str, bool, str | None]:
    """(outcome, success, reason): how the attempt ended comes before what it had recommended until then."""
    if ending in CRASHES:
        return "crash", False, detail or ending
    if ending in TIMEOUTS:
        return "timeout", False, detail or ending
    return found.outcome, found.outcome == "success", found.reason
