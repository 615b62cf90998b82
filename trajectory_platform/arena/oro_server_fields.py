"""Fields of the public API by the moment at which they are known, and which of a row an endpoint shows."""

from __future__ import annotations

from typing import Any

IN_PROGRESS: dict[str, Any] = {
    "is_included": False,
    "completed_at": None,
    "invalidated_at": None,
    "invalidated_by": None,
    "invalidation_reason": None,
    "failure_reason": None,
    "validator_score": None,
    "reasoning_quality": None,
    "reasoning_coefficient": None,
    "score_components_summary": None,
    "sandbox_metadata": None,
    "inference_failure_count": None,
    "inference_total": None,
}
NOT_INVALIDATED: dict[str, Any] = {
    "is_included": True,
    "invalidated_at": None,
    "invalidated_by": None,
    "invalidation_reason": None,
}
UNJUDGED: dict[str, Any] = {
    "score": None,
    "score_components": None,
    "reasoning_score": None,
    "updated_at": None,
    "inference_failure_count": None,
    "inference_total": None,
    "execution_time": None,
}

DETAIL = (
    "eval_run_id",
    "agent_version_id",
    "validator_hotkey",
    "status",
    "claimed_at",
    "completed_at",
    "failure_reason",
    "is_included",
    "invalidated_at",
    "invalidation_reason",
    "sandbox_metadata",
    "inference_failure_count",
    "inference_total",
    "score_components_summary",
)
VERSION = (
    "agent_version_id",
    "agent_name",
    "miner_hotkey",
    "version_number",
    "submitted_at",
    "suite_id",
    "code_available_at",
)
