"""Rows of ``eval_scores`` as tests need them, and the messages of an attempt."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import orjson


def score_row(
    key: str,
    sample: int = 0,
    *,
    success: bool = False,
    category: str = "product",
    cluster: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One attempt with a trace; ``cluster`` is the problem's own where it is not said."""
    row: dict[str, Any] = {
        "checkpoint_id": "sft-2026-05-02-aaaaaaaaaaaa",
        "day": "2026-05-02",
        "stage": "sft",
        "problem_id": f"id-{key}",
        "suite_id": "suite-1",
        "problem_key": key,
        "sample": sample,
        "pool": "dev",
        "category": category,
        "cluster_id": cluster or f"cluster-{key}",
        "trace_id": f"run:{key}:{sample}",
        "outcome": "success" if success else "failure",
        "success": success,
        "reason": None,
        "ending": "terminate",
        "score": "{}",
        "lenient_success": success,
        "format": 1.0,
        "length": 0.25,
        "conduct_score": 0.5,
        "process_score": 0.5,
        "process_reference": "run:teacher",
        "process_version": "turn-reward-1",
        "recommended_ids": ["1"],
        "hallucinated_ids": [],
        "unviewed_ids": [],
        "discipline": [],
        "steps": 4,
        "tool_calls": 5,
        "prompt_tokens": 1000,
        "completion_tokens": 200,
        "truncated": False,
        "seconds": 2.0,
        "cost_usd": 0.01,
    }
    return {**row, **more}


def no_trace(key: str, sample: int, outcome: str, **more: Any) -> dict[str, Any]:
    """An attempt that failed without a trace."""
    nothing: dict[str, Any] = dict.fromkeys(("trace_id", "lenient_success", "format", "length"))
    nothing |= {"process_score": None, "conduct_score": None}
    nothing |= {"prompt_tokens": None, "completion_tokens": None, "recommended_ids": []}
    return score_row(key, sample, **{**nothing, "outcome": outcome, "ending": outcome, "reason": outcome, **more})


def no_reward(key: str, **more: Any) -> dict[str, Any]:
    """A problem whose reward is not known."""
    return no_trace(key, 0, "no_reward", **{"success": None, **more})


def random_rows(seed: int, *, problems: int, samples: int, rate: float, name: str = "ck") -> list[dict[str, Any]]:
    """Attempts at problems of three categories in clusters of one or two problems."""
    draw = random.Random(seed)
    return [
        score_row(
            f"p{number:04d}",
            sample,
            success=draw.random() < rate,
            category=("product", "shop", "voucher")[number % 3],
            cluster=f"c{number // 2 if number % 4 == 0 else number:04d}",
            checkpoint_id=name,
            hallucinated_ids=["9"] * (draw.random() < 0.1),
            discipline=["no_terminate"] * (draw.random() < 0.2),
            process_score=2 * draw.random() - 1,
            conduct_score=draw.random(),
        )
        for number in range(problems)
        for sample in range(samples)
    ]


def conversation(*turns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Canonical messages: each turn is ``{think, calls: [(name, arguments, result), ...]}``."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "a red steel kettle below 500"}]
    number = 0
    for turn in turns:
        calls, results = [], []
        for name, arguments, result in turn.get("calls", ()):
            text = orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS).decode()
            call_id = f"call_{number}"
            number += 1
            calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": text}})
            content = result if isinstance(result, str) else orjson.dumps(result).decode()
            results.append({"role": "tool", "tool_call_id": call_id, "name": name, "content": content})
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        if turn.get("think"):
            message["reasoning_content"] = turn["think"]
        if calls:
            message["tool_calls"] = calls
        messages += [message, *results]
    return messages
