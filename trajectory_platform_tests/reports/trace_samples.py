"""Views of traces as ``stages.trace_views`` makes them, with any text in every place where third-party text stands."""

from __future__ import annotations

import json
from typing import Any

from trajectory_platform.stages.trace_turns import turns_of

View = dict[str, Any]
HOSTILE = (
    "<script>document.title='owned'</script><img src=\"http://127.0.0.1:9/x.png\" onerror=\"document.title='owned'\">"
    "</pre></article><style>*{display:none}</style> ![p](http://127.0.0.1:9/p.png) [c](javascript:alert(1)) "
    "\u202egnp.exe \u2066x\u2069 \x1b[31m\x00\x07 \ud800 &lt; \"'` ${7*7} {{7*7}} \u05d0\u05d1"
)
QUERY = "A gray canvas backpack, 1271 to 2414 pesos"
T0 = 1_777_745_170_000


def find(q: str, price: str = "1271-2414") -> tuple[str, dict[str, Any], Any]:
    rows = [
        {"product_id": number, "shop_id": "9", "title": f"backpack {number}", "price": 1458.0, "service": ["COD"]}
        for number in ("4779797803", "4888093778")
    ]
    return "find_product", {"q": q, "price": price}, rows


def look(*ids: str) -> tuple[str, dict[str, Any], Any]:
    rows = [
        {"product_id": one, "description": "canvas", "sku_options": {}, "attributes": {"c": ["gray"]}} for one in ids
    ]
    return "view_product_information", {"product_ids": ",".join(ids)}, rows


def recommend(product: str) -> tuple[str, dict[str, Any], Any]:
    return "recommend_product", {"product_ids": product}, f"Having recommended {product}."


def end() -> tuple[str, dict[str, Any], Any]:
    return "terminate", {"status": "success"}, "The interaction has been completed with status: success"


GOOD = ([find("gray backpack")], [look("4779797803")], [recommend("4779797803"), end()])


def view(
    *turns: list[tuple[str, dict[str, Any], Any]], name: str = "r1:p1", said: str | None = None, **changes: Any
) -> View:
    """A view of a trace with these calls per turn; ``said`` stands in every text of others."""
    words = said if said is not None else "Some words."
    messages: list[dict[str, Any]] = [{"role": "user", "content": said or QUERY}]
    events: list[dict[str, Any]] = []
    number, now = 0, float(T0)
    for calls in turns or GOOD:
        listed: list[dict[str, Any]] = []
        for tool, arguments, _ in calls:
            named = {**arguments, **({"q": said} if said is not None and "q" in arguments else {})}
            function = {"name": tool, "arguments": json.dumps(named)}
            listed.append({"id": f"call_{number + len(listed)}", "type": "function", "function": function})
        messages.append({"role": "assistant", "content": words, "reasoning_content": words, "tool_calls": listed})
        for call, (tool, _, result) in zip(listed, calls, strict=True):
            text = result if isinstance(result, str) else json.dumps(result)
            text = said if said is not None else text
            messages.append({"role": "tool", "tool_call_id": call["id"], "name": tool, "content": text})
        events.append(
            {
                "kind": "inference",
                "start": now,
                "end": now + 900,
                "state": "readable",
                "completion_tokens": 30,
                "calls": [],
            }
        )
        number, now = number + len(calls), now + 1000
    made, after = turns_of(messages, emitted=[[True] * len(calls) for calls in turns or GOOD], events=events)
    verdict = {
        "judge_kind": "validator", "judge_model": words, "reasoning_quality": 0.7, "reasoning_coefficient": None,
        "null_reason": None, "retryable": False, "score_regime": "discrete", "rubric_version": "1", "counts": True,
        "gate_eligible": True, "cost_usd": 0.0, "cached": False, "explanation": words,
    }  # fmt: skip
    missing = {**verdict, "judge_kind": "llm", "reasoning_quality": None, "null_reason": "timeout", "counts": False}
    axis = {
        "label": "A", "share": 1.0, "reason": "dispatches_and_final_emitted", "final_emitted": True,
        "theatre_suspected": False, "replies": {"readable": 3, "truncated": 0, "unreadable": 0, "failed": 0},
        "log_problems": [], "notes": [], "emitted": [],
        "dispatches": [{"tool": words, "arguments": words, "reason": "matched"}],
    }  # fmt: skip
    facts = {
        "miner_hotkey": words, "agent_version_id": "v1", "validator_hotkey": "h1", "phase": "QUALIFYING",
        "race_id": None, "policy_checkpoint_id": None, "problem_id": "p1", "suite_id": "47", "problem_key": "k" * 64,
        "category": "product", "sample": None, "ending": None,
    }  # fmt: skip
    decision = {
        "state": "rejected", "uses": None, "situation": None, "stage": "injection", "reason": "injection",
        "detail": words, "duplicate_of": None, "quality": None, "flags": [words],
    }  # fmt: skip
    outcome = {
        "outcome": "success", "reason": None, "success": True, "source": "rule", "validator_success": True,
        "validators_agree": True, "lenient_success": True, "oddities": {"hallucinated_ids": [words]},
    }  # fmt: skip
    return {
        "trace_id": name, "kind": "miner", "day": "2026-05-02", "stage": None, "by": None, "facts": facts,
        "sealed": False, "withheld": False, "readable": True, "malformed": None, "malformed_detail": None,
        "query": said or QUERY, "query_verified": False, "turns": made, "after": after,
        "recommended": ["4779797803"], "wanted": ["4779797803"], "outcome": outcome,
        "checks": [{"name": "title", "value": 1.0}, {"name": "price", "value": 0.0}],
        "verdicts": [missing, verdict], "axis": axis,
        "path": [{"stage": "usable", "state": "passed", "reason": None, "detail": words}], "decision": decision,
        "strategy_cluster": words, "leak_cluster": "lc-1", "pool": "train",
        "checkpoints": [{"checkpoint_id": "sft-1", "day": "2026-05-05", "stage": "sft", "role": "train", "weight": 2}],
        "retracted": None, "usage": {"prompt_tokens": None, "completion_tokens": 90}, "cost_usd": None,
        "seconds": 12.5, "repairs": [{"reason": "control_token", "count": 2}], "flags": [words],
    } | changes  # fmt: skip
