"""The three shared days as (steps, binding, truth) rows, read without any code of the product."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class LabelledTrace:
    """One executed (run, problem) with its expected labels.

    Attributes:
        steps: the published dialogue, None when nothing was published.
        binding: what the run's listing says about the pair, under the column names of RAW_TRACES.
        truth: the row of ``truth.jsonl``.
    """

    steps: list[Any] | None
    binding: dict[str, Any]
    truth: dict[str, Any]


def load(days: Path) -> list[LabelledTrace]:
    """Every row of ``truth.jsonl`` with its dialogue and its listing entry."""
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for listing in sorted(days.glob("*/problems.jsonl")):
        for line in listing.read_text().splitlines():
            problem = json.loads(line)
            for result in problem["validator_results"]:
                entries[result["eval_run_id"], problem["problem_id"]] = {
                    "problem_id": problem["problem_id"],
                    "problem_status": result["status"],
                    "inference_total": result["inference_total"],
                    "execution_time": result["execution_time"],
                }
    rows = []
    for line in (days / "truth.jsonl").read_text().splitlines():
        truth = json.loads(line)
        steps = _dialogue(days / truth["artifact"], truth["artifact_line"]) if truth["artifact"] else None
        rows.append(LabelledTrace(steps, entries[truth["eval_run_id"], truth["problem_id"]], truth))
    return rows


def _dialogue(path: Path, line: int | None) -> list[Any] | None:
    data = path.read_bytes()
    while data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    try:
        value = json.loads(data)
    except ValueError:
        if line is None:
            return None
        try:
            value = json.loads(data.decode("utf-8", "replace").splitlines()[line].strip("\0"))
        except ValueError:
            return None
    if isinstance(value, dict):
        value = value.get("dialogue")
    return value if isinstance(value, list) else None


def messages(steps: list[Any] | None) -> list[dict[str, Any]]:
    """Canonical messages of well-formed steps, as far as the axis needs them (calls in order)."""
    result: list[dict[str, Any]] = [{"role": "user", "content": ""}] if steps else []
    for step in steps or ():
        message = ((step.get("completion") or {}).get("message") if isinstance(step, dict) else None) or {}
        shown = message.get("tool_call") or []
        calls = []
        for call in shown if isinstance(shown, list) else [shown]:
            if isinstance(call, dict) and isinstance(call.get("name"), str):
                parameters = call.get("parameters")
                arguments = parameters if isinstance(parameters, str) else json.dumps(parameters or {})
                calls.append({"type": "function", "function": {"name": call["name"], "arguments": arguments}})
        if isinstance(step, dict) and "completion" in step:
            result.append({"role": "assistant", "content": "", "tool_calls": calls})
    return result
