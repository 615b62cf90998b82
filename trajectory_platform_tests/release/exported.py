"""Rows as an export holds them, and exports of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trajectory_platform import jsontext
from trajectory_platform.identity import sha256_hex
from trajectory_platform.release.exports import Written, write_export
from trajectory_platform.release.rows import label_of

Row = dict[str, Any]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("find_product", "terminate")
]
POOLS = {"problems": 3, "share": 1.0, "clusters": 3}
ABOUT: dict[str, Any] = {
    "as_of": "2026-03-02",
    "clusters_as_of": "2026-03-02",
    "days": ["2026-03-01"],
    "left_out": {},
    "filters": [{"version": "filter-2", "code_version": "filter-2/1", "days": ["2026-03-01"], "config": {}}],
    "sources": {"axis_a_corpus/2026-03-01": "d" * 64},
    "split_method": {
        "draw": "By a keyed hash.",
        "cluster_rule": "Strictest.",
        "asked_shares": {"train": 80, "dev": 10, "sealed": 10},
        "pools": {"all": dict.fromkeys(("train", "dev", "sealed"), POOLS)},
        "window_days": 40,
        "hold_out_entries": 0,
        "hold_new_suites_days": 0,
        "public_pool_key": False,
    },
}


def dialogue(arguments: Sequence[dict[str, Any]] = ({"q": "tea"},), said: str = "") -> list[Row]:
    """A user, one turn with these parallel calls, their results, and a turn that ends it."""
    calls = [_call(number, "find_product", one) for number, one in enumerate(arguments)]
    last = len(calls)
    return [
        {"role": "user", "content": "a teapot below 10"},
        {"role": "assistant", "content": said, "reasoning_content": "I search.", "tool_calls": calls},
        *(_result(number, "find_product", "[]") for number in range(last)),
        {"role": "assistant", "content": "", "tool_calls": [_call(last, "terminate", {"status": "success"})]},
        _result(last, "terminate", "done"),
    ]


def row(number: int = 0, *, pool: str = "train", use: str = "sft", messages: Any = None, **values: Any) -> Row:
    """A row that passes every check; its hash fits its messages."""
    told = dialogue() if messages is None else messages
    text = jsontext.dumps(told)
    uses = ["sft", "kto_desirable"] if use == "sft" else values.pop("uses", ["kto_undesirable"])
    base: Row = {
        "trace_id": f"run{number}:p{number}",
        "trace_day": "2026-03-01",
        "problem_key": sha256_hex(f"problem {number}".encode()),
        "cluster_id": f"c{number}",
        "pool": pool,
        "uses": uses,
        "label": label_of(use, uses),
        "quality": 0.5,
        "category": "product",
        "situation": "success",
        "strategy_cluster": "s",
        "outcome_success": True,
        "outcome_source": "rule",
        "reasoning_quality": None,
        "judge_kind": "rules",
        "query_verified": True,
        "agent_version_id": "agent",
        "policy_checkpoint_id": None,
        "filter_version": "filter-2",
        "content_hash": sha256_hex(jsontext.canonical(told).encode()),
        "messages": text,
        "tools": jsontext.dumps(TOOLS),
    }
    return base | values


def some_rows() -> list[Row]:
    """Three train rows and one dev row."""
    return [*(row(number) for number in range(3)), row(3, pool="dev")]


def export(out: Path, rows: Sequence[Row], form: str = "hf", use: str = "sft") -> Written:
    return write_export(out, rows, lambda: ABOUT, use=use, form=form, licence="cc-by-4.0")


def _call(number: int, name: str, arguments: dict[str, Any]) -> Row:
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": name, "arguments": jsontext.canonical(arguments)},
    }


def _result(number: int, name: str, content: str) -> Row:
    return {"role": "tool", "tool_call_id": f"call_{number}", "name": name, "content": content}
