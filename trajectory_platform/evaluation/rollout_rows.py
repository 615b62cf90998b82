"""A finished attempt as a row of table ``rollouts``: a canonical trace with its proxy log.

The attempt is written in the published form and read back by the reader of miners' traces, so judge, filter and viewer
work on it as on any other trace.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.evaluation import environment, episode
from trajectory_platform.evaluation.rollout import Rollout
from trajectory_platform.evaluation.wire import dialogue
from trajectory_platform.identity import digest_json, trace_id
from trajectory_platform.traces import evidence
from trajectory_platform.traces.sn15 import READER_VERSION, read_dialogue

VERSION = f"rows-1,{environment.VERSION},{episode.VERSION},evidence-{evidence.EVIDENCE_VERSION},sn15-{READER_VERSION}"
"""Enters the identity of what is made of rollouts: the same replies under another version may give other rows."""


def run_id(policy: str, stage: str, sample: int, plan: str) -> str:
    """The id that takes the place of a miner's evaluation run: one per policy, stage, plan and number of the attempt.

    Args:
        plan: digest of the evaluation's plan.
    """
    return "rollout-" + digest_json(["rollout run", policy, stage, sample, plan])[:40]


def rollout_row(rollout: Rollout, *, checkpoint_id: str, stage: str, day: date | str, plan: str) -> dict[str, Any]:
    """The row of one attempt, all columns of ``lake.tables.ROLLOUTS``.

    An attempt without any step (the first reply failed, or said nothing) has no messages and no content hash; how it
    ended is in ``ending``, and its log in ``source_steps`` and ``evidence``.

    Args:
        checkpoint_id: of the checkpoint, or the name of an endpoint or script.
        day: the UTC day the evaluation is as of.
        plan: digest of the evaluation's plan.
    """
    task, ending = rollout.task, rollout.ending
    steps = dialogue(rollout.environment, task.problem_id, seconds=ending.seconds)
    trajectory = read_dialogue(steps, binding=None)
    return {
        "trace_id": trace_id(run_id(checkpoint_id, stage, task.sample, plan), task.problem_id),
        "day": str(day),
        "stage": stage,
        "checkpoint_id": checkpoint_id,
        "problem_id": task.problem_id,
        "suite_id": task.suite_id,
        "problem_key": task.problem_key,
        "sample": task.sample,
        "category": task.category,
        "ending": ending.reason,
        "ending_detail": None if ending.detail is None else _storable(ending.detail),
        "content_hash": trajectory.content_hash,
        "messages": jsontext.dumps(trajectory.messages),
        "tools": jsontext.dumps(trajectory.tools),
        "source_steps": jsontext.dumps(steps),
        "evidence": jsontext.dumps(trajectory.evidence),
        "repairs": jsontext.dumps(trajectory.repairs),
        "steps": len(rollout.environment.steps),
        "tool_calls": trajectory.tool_calls,
        "prompt_tokens": ending.prompt_tokens,
        "completion_tokens": ending.completion_tokens,
        "truncated_replies": ending.truncated_replies,
        "seconds": ending.seconds,
        "cost_usd": ending.cost_usd,
    }


def _storable(text: str) -> str:
    """Text that a column can hold: details quote what policies raise."""
    return text.encode("utf-8", "replace").decode("utf-8")
