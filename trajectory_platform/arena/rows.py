"""The rows of the listing files and of the truth file, field by field (design 5; names of the public API)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from trajectory_platform.arena import artifacts, referee, rules
from trajectory_platform.arena.account import forgery_of
from trajectory_platform.arena.plan import Entry, RunPlan
from trajectory_platform.arena.problems import ArenaProblem


@dataclass
class Pair:
    """One executed (run, problem) pair on its way into the files.

    Attributes:
        seconds: execution time.
        updated_at: UTC milliseconds when the validator reported it.
        entry: the validator's result as problems.jsonl lists it.
    """

    plan: RunPlan
    problem: ArenaProblem
    episode: referee.Played
    truth: referee.Outcome
    seconds: float
    updated_at: int
    dialogue: artifacts.Dialogue | None = None
    entry: dict[str, Any] = field(default_factory=dict)
    quality: float = 0.0
    judge_state: str = "not_judged"
    artifact: str | None = None
    artifact_form: str | None = None
    artifact_line: int | None = None


def run_row(plan: RunPlan, pairs: Sequence[Pair]) -> tuple[dict[str, Any], int]:
    """(the run as the API lists it, with the run's aggregates; when it ended in UTC milliseconds)."""
    last = max(pair.updated_at for pair in pairs)
    end = max((pair.updated_at for pair in pairs if pair.episode.quirk != "judged_two_days_later"), default=last)
    row = run_base(plan, "SUCCESS", end)
    scores = [pair.entry["reasoning_score"] for pair in pairs]
    judged = [float(score) for score in scores if score is not None]
    won = sum(pair.entry["status"] == "SUCCESS" for pair in pairs)
    calls = sum(pair.entry["inference_total"] or 0 for pair in pairs)
    row |= {"inference_failure_count": 0, "inference_total": calls}
    if plan.fate == "judge_failed":
        failed = 8 * len(pairs)
        row |= {
            "status": "FAILED",
            "is_included": False,
            "failure_reason": f"Reasoning judge infrastructure failure ({failed}/{failed} calls failed)",
        }
        return row, end
    quality = round(sum(judged) / len(judged), 4) if judged else None
    weight = referee.coefficient(quality) if quality is not None else None
    rate = won / len(pairs)
    hits = [_position_share(pair) for pair in pairs]
    row |= {
        "validator_score": rules.final_score(rate, weight),
        "reasoning_quality": quality,
        "reasoning_coefficient": weight,
        "score_components_summary": {
            "ground_truth_rate": rate,
            "success_rate": rate,
            "format_score": sum(pair.truth.malformed is None for pair in pairs) / len(pairs),
            "field_matching": sum(hits) / len(hits),
            "total_problems": len(pairs),
            "successful_problems": won,
            "scored_problems": sum(pair.truth.outcome in ("success", "failure") for pair in pairs),
            "reasoning_quality": quality,
            "reasoning_coefficient": weight,
            "judge_inference_failed": sum(pair.judge_state == "infrastructure_zero" for pair in pairs),
            "judge_inference_total": len(judged),
        },
    }
    if plan.fate == "not_included":
        row["is_included"] = False
    elif plan.fate == "invalidated":
        row |= {
            "is_included": False,
            "invalidated_at": iso(end + 26 * 3_600_000, 0),
            "invalidated_by": "admin",
            "invalidation_reason": _invalidation(plan),
        }
    return row, end


def _invalidation(plan: RunPlan) -> str:
    """Why the operators took a run out: for what it shows, else because its version was discarded."""
    conduct = set(plan.quirks.values())
    if any(quirk.startswith("forged") for quirk in conduct):
        return "forged proxy log"
    if any(quirk.startswith("inject") for quirk in conduct):
        return "prompt injection detected"
    return "agent version discarded"


def run_base(plan: RunPlan, status: str, end: int | None) -> dict[str, Any]:
    """A run without aggregates; ``end`` is None for one that never ended."""
    alive = end is not None or status in ("STALE", "TIMED_OUT", "RUNNING")
    versions = {
        name: f"sha256:{plan.suite_id:04d}{name[:3]}" for name in ("search-server", "proxy", "validator", "sandbox")
    }
    box = (
        None
        if end is None
        else {
            "exit_code": 0,
            "duration_seconds": round((end - plan.start) / 1000, 2),
            "stderr_tail": None,
        }
    )
    return {
        "eval_run_id": plan.run_id,
        "agent_version_id": plan.agent.agent_version_id,
        "suite_id": plan.suite_id,
        "validator_hotkey": plan.validator,
        "status": status,
        "claimed_at": iso(plan.start, 0),
        "lease_expires_at": iso(plan.start + rules.LEASE_MS, 0),
        "is_included": status == "SUCCESS",
        "last_heartbeat_at": iso((end or plan.start + 600_000) - 1_000, 0) if alive else None,
        "completed_at": None if end is None else iso(end, 0),
        "invalidated_at": None,
        "invalidated_by": None,
        "invalidation_reason": None,
        "failure_reason": None,
        "validator_score": None,
        "reasoning_quality": None,
        "reasoning_coefficient": None,
        "score_components_summary": None,
        "service_versions": None if end is None else versions,
        "sandbox_metadata": box,
        "inference_failure_count": None,
        "inference_total": None,
        "phase": plan.phase,
        "race_id": plan.race.race_id if plan.race else None,
        "race_number": plan.race.number if plan.race else None,
    }


def version_row(
    entry: Entry, suite_id: int, state: str, rated: tuple[float, int] | None, moment: int
) -> dict[str, Any]:
    """The agent version as the API lists it.

    ``state`` and ``release_state`` are fields of the API's status of a version (domain 1.10). Only versions of our
    own carry ``policy_checkpoint_id``.

    Args:
        rated: (final score, eligible at), or None for a version without an included run.
        moment: when the list was made.
    """
    agent = entry.agent
    public_at = rules.code_public_at(rated[1] if rated else entry.submitted_at)
    row = {
        "agent_version_id": agent.agent_version_id,
        "agent_id": agent.agent_id,
        "agent_name": agent.name,
        "miner_hotkey": agent.hotkey,
        "version_number": agent.version,
        "submitted_at": iso(entry.submitted_at, 0),
        "released_at": iso(public_at, 0),
        "code_available_at": iso(public_at, 0),
        "suite_id": suite_id,
        "latest_final_score": rated[0] if rated else None,
        "state": state,
        "release_state": rules.release_state(public_at, moment),
    }
    if entry.checkpoint_id is not None:
        row["policy_checkpoint_id"] = entry.checkpoint_id
    return row


# What the truth says of a pair of which nothing was published: labels follow the artifact, not the agent.
_UNPUBLISHED: dict[str, Any] = {
    "axis": "unknown",
    "axis_reason": "no_dialogue",
    "axis_evidence": None,
    "outcome": "no_trace",
    "success": False,
    "length_score": None,
    "recommended_ids": None,
    "strategy_template": None,
}


def truth_row(day: date, pair: Pair, regime: str | None) -> dict[str, Any]:
    """One line of ``truth.jsonl``: what the made-up pair is, and what a reader of its artifact should find."""
    plan, problem, truth, quirk = pair.plan, pair.problem, pair.truth, pair.episode.quirk
    return {
        "day": day.isoformat(),
        "eval_run_id": plan.run_id,
        "problem_id": problem.problem_id,
        "agent_version_id": plan.agent.agent_version_id,
        "miner_hotkey": plan.agent.hotkey,
        "validator_hotkey": plan.validator,
        "category": problem.category,
        "phase": plan.phase,
        "problem_in_suite_file": problem.in_suite,
        "kind": plan.agent.kind,
        "subkind": quirk,
        "artifact": pair.artifact,
        "artifact_form": pair.artifact_form,
        "artifact_line": pair.artifact_line,
        "execution_status": truth.execution_status,
        "malformed": truth.malformed,
        "flags": truth.flags,
        "axis": truth.axis,
        "axis_reason": truth.axis_reason,
        "axis_evidence": truth.axis_evidence,
        "axis_intent": "B" if plan.agent.kind.startswith("b_") else "mixed" if plan.agent.kind == "mixed_ab" else "A",
        "outcome": truth.outcome,
        "success": truth.success,
        "length_score": truth.length_score,
        "recommended_ids": truth.recommended_ids,
        "hallucinated_ids": truth.hallucinated_ids,
        "unviewed_ids": truth.unviewed_ids,
        "injection": bool(truth.injection_sources),
        "injection_sources": truth.injection_sources,
        **forgery_of(quirk),
        "strategy_group": plan.agent.group,
        "copied_from": plan.entry.copied_from,
        "strategy_template": truth.strategy_template,
        "leak_cluster": problem.leak_cluster,
        "variant_of": problem.variant_of,
        "reasoning_intent": referee.intent_of(plan.agent.kind, quirk),
        "reasoning_score": pair.entry["reasoning_score"],
        "reasoning_regime": regime,
        "judge_state": pair.judge_state,
        "reported_status": pair.entry["status"],
        "reported_score": pair.entry["score"],
        "run_status": "FAILED" if plan.fate == "judge_failed" else "SUCCESS",
        "run_included": plan.fate == "included",
        "run_invalidated": plan.fate == "invalidated",
        "usable_run": plan.fate == "included",
        "expected_utc_day": iso(pair.updated_at, 0)[:10],
        **({} if pair.artifact else _UNPUBLISHED),
    }


def cluster_row(day: date, problem: ArenaProblem) -> dict[str, Any]:
    return {
        "problem_id": problem.problem_id,
        "day": day.isoformat(),
        "in_suite_file": problem.in_suite,
        "category": problem.category,
        "leak_cluster": problem.leak_cluster,
        "variant_of": problem.variant_of,
    }


def _position_share(pair: Pair) -> float:
    """The share of wanted positions that were met."""
    wanted = pair.problem.target_ids
    given = pair.truth.recommended_ids
    return sum(left == right for left, right in zip(wanted, given, strict=False)) / len(wanted)


def iso(milliseconds: int, micros: int) -> str:
    """UTC text with microseconds, the way the API writes times."""
    moment = datetime.fromtimestamp(milliseconds // 1000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}{micros:03d}Z"
