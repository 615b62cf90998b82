"""The rows of the listing files and of the truth file, field by field (design 5; names of the public API)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

from trajectory_platform.arena import artifacts, referee
from trajectory_platform.arena.miners import Agent
from trajectory_platform.arena.plan import RunPlan
from trajectory_platform.arena.problems import ArenaProblem
from trajectory_platform.arena.race import Episode


@dataclass(frozen=True)
class DayContext:
    """What all rows of a day share."""

    day: date
    suite_id: int
    race_id: str
    race_number: int


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
    episode: Episode
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


def run_row(context: DayContext, plan: RunPlan, pairs: Sequence[Pair]) -> dict[str, Any]:
    """The run as the API lists it, with the run's aggregates."""
    end = max(pair.updated_at for pair in pairs if pair.episode.quirk != "judged_two_days_later" or len(pairs) == 1)
    row = run_base(context, plan, "SUCCESS", end)
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
        return row
    quality = round(sum(judged) / len(judged), 4) if judged else None
    weight = referee.coefficient(quality) if quality is not None else 1.0
    rate = won / len(pairs)
    hits = [_position_share(pair) for pair in pairs]
    row |= {
        "validator_score": round(rate * weight, 4),
        "reasoning_quality": quality,
        "reasoning_coefficient": weight if quality is not None else None,
        "score_components_summary": {
            "ground_truth_rate": rate,
            "success_rate": rate,
            "format_score": sum(pair.truth.malformed is None for pair in pairs) / len(pairs),
            "field_matching": sum(hits) / len(hits),
            "total_problems": len(pairs),
            "successful_problems": won,
            "scored_problems": sum(pair.truth.outcome in ("success", "failure") for pair in pairs),
            "reasoning_quality": quality,
            "reasoning_coefficient": weight if quality is not None else None,
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
            "invalidation_reason": "prompt injection detected",
        }
    return row


def run_base(context: DayContext, plan: RunPlan, status: str, end: int | None) -> dict[str, Any]:
    alive = end is not None or status in ("STALE", "TIMED_OUT", "RUNNING")
    versions = {
        name: f"sha256:{context.suite_id:04d}{name[:3]}" for name in ("search-server", "proxy", "validator", "sandbox")
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
        "suite_id": context.suite_id,
        "validator_hotkey": plan.validator,
        "status": status,
        "claimed_at": iso(plan.start, 0),
        "lease_expires_at": iso(plan.start + 2_400_000, 0),
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
        "race_id": context.race_id if plan.phase == "RACE" else None,
        "race_number": context.race_number if plan.phase == "RACE" else None,
    }


def version_row(context: DayContext, agent: Agent, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rng = Random(f"submitted|{agent.agent_version_id}")
    submitted = datetime(context.day.year, context.day.month, context.day.day, tzinfo=UTC) - timedelta(
        seconds=rng.randrange(86_400, 4 * 86_400)
    )
    released = iso(int(submitted.timestamp() * 1000) + 2 * 86_400_000, 0)
    scores = [run["validator_score"] for run in runs if run["agent_version_id"] == agent.agent_version_id]
    return {
        "agent_version_id": agent.agent_version_id,
        "agent_id": agent.agent_id,
        "agent_name": agent.name,
        "miner_hotkey": agent.hotkey,
        "version_number": agent.version,
        "submitted_at": iso(int(submitted.timestamp() * 1000), 0),
        "released_at": released,
        "code_available_at": released,
        "suite_id": context.suite_id,
        "latest_final_score": next((score for score in reversed(scores) if score is not None), None),
    }


# What the truth says of a pair of which nothing was published: labels follow the artifact, not the agent.
_UNPUBLISHED: dict[str, Any] = {
    "axis": "unknown",
    "axis_reason": "no_dialogue",
    "outcome": "no_trace",
    "success": False,
    "length_score": None,
    "recommended_ids": None,
    "strategy_template": None,
}


def truth_row(context: DayContext, pair: Pair, regime: str | None) -> dict[str, Any]:
    """One line of ``truth.jsonl``: what the made-up pair is, and what a reader of its artifact should find."""
    plan, problem, truth, quirk = pair.plan, pair.problem, pair.truth, pair.episode.quirk
    return {
        "day": context.day.isoformat(),
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
        "axis_intent": "B" if plan.agent.kind.startswith("b_") else "mixed" if plan.agent.kind == "mixed_ab" else "A",
        "outcome": truth.outcome,
        "success": truth.success,
        "length_score": truth.length_score,
        "recommended_ids": truth.recommended_ids,
        "hallucinated_ids": truth.hallucinated_ids,
        "unviewed_ids": truth.unviewed_ids,
        "injection": bool(truth.injection_sources),
        "injection_sources": truth.injection_sources,
        "forged_log": quirk in ("forged_planted", "forged_repeated"),
        "strategy_group": plan.agent.group,
        "strategy_template": truth.strategy_template,
        "leak_cluster": problem.leak_cluster,
        "variant_of": problem.variant_of,
        "reasoning_intent": referee.intent_of(plan.agent.kind),
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
