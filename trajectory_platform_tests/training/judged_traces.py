"""Judged traces for preference tests: a good one and the ways in which agents go wrong, each at a known turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trajectory_platform.training.datasets import TraceRow
from trajectory_platform_tests.training import shopping

RECIPE = """
name: tiny
hardware: {profile: cpu, threads: 1}
model: {hidden: 32, layers: 1, heads: 2, kv_heads: 1, head_dim: 16, mlp: 64}
tokenizer: {vocab: 1200}
context: {max_length: 1024, reply_tokens: 128, max_result_chars: 200}
min_traces: 4
stages:
  sft: {optimiser: {learning_rate: 0.01}, amount: {epochs: 1, batch: 4, sampling: uniform}}
  kto:
    optimiser: {learning_rate: 0.005, warmup_share: 0.0}
    amount: {epochs: 1, batch: 4, sampling: uniform}
"""
SEEN, OTHER, NEVER = "3001", "3002", "9999"
Step = tuple[str, str, dict[str, Any], Any]


def rows_of(*ids: str) -> list[dict[str, Any]]:
    """Search results."""
    return [{"product_id": one, "title": f"blue lamp {one}", "price": 120.5, "shop_id": "77"} for one in ids]


def detail(one: str) -> list[dict[str, Any]]:
    """A detail page."""
    return [{"product_id": one, "attributes": {"color_family": ["blue"]}}]


def search(thought: str = "I look for a blue lamp.", **arguments: Any) -> Step:
    return thought, "find_product", {"q": "blue lamp", **arguments}, rows_of(SEEN, OTHER)


def view(one: str = SEEN, thought: str = "3001 costs 120.5, I open it.") -> Step:
    return thought, "view_product_information", {"product_ids": one}, detail(one)


def recommend(one: str = SEEN, thought: str = "Its color_family is blue, so 3001 fits.") -> Step:
    return thought, "recommend_product", {"product_ids": one}, "Recommended."


def end(status: str = "success") -> Step:
    return "The recommendation is made.", "terminate", {"status": status}, "done"


def dialogue(steps: Sequence[Step], query: str = "I need a blue lamp for at most 200 pesos.") -> list[dict[str, Any]]:
    """Canonical messages: one assistant turn and one result per step."""
    found: list[dict[str, Any]] = [{"role": "user", "content": query}]
    for number, (thought, name, arguments, result) in enumerate(steps):
        call = shopping.call(number, name, **arguments)
        found.append({"role": "assistant", "content": "", "reasoning_content": thought, "tool_calls": [call]})
        text = result if isinstance(result, str) else json.dumps(result, separators=(",", ":"))
        found.append({"role": "tool", "tool_call_id": call["id"], "name": name, "content": text})
    return found


def row(
    steps: Sequence[Step] | list[dict[str, Any]], *, number: int = 0, role: str = "undesirable", **extra: Any
) -> TraceRow:
    """A row of a KTO job; ``steps`` may be canonical messages already."""
    messages = steps if steps and isinstance(steps[0], dict) else dialogue(steps)  # type: ignore[arg-type]
    return TraceRow(
        trace_id=f"run:{number:03d}",
        leak_cluster=f"cluster-{number:03d}",
        messages=messages,  # type: ignore[arg-type]
        tools=shopping.TOOLS,
        role=role,
        extra=extra,
    )


def mixed_rows(count: int = 12) -> list[TraceRow]:
    """Good traces of different problems, and for every third a failure that recommends another product."""
    found: list[TraceRow] = []
    for number in range(count):
        messages = shopping.messages(number)
        if number % 3:
            found.append(row(messages, number=number, role="desirable", situation="success_clean"))
        else:
            found.append(row(messages, number=number, situation="failure", outcome_success=False))
    return found
