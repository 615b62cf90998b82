"""A filled report of a checkpoint, with hostile text in every place where third-party text can stand."""

from __future__ import annotations

import json
from typing import Any

from trajectory_platform.reports import taxonomy
from trajectory_platform.reports.checkpoint_data import CheckpointData, FailureReport

NAME = "kto-2026-03-28-0123456789ab"
SFT = "sft-2026-03-28-ba9876543210"
CATEGORIES = ("product", "shop", "voucher")


def scores(number: int, outcome: str = "failure", **more: Any) -> dict[str, Any]:
    """A row of ``eval_scores`` as the report reads it: a failure that recommended another product."""
    row = {
        "trace_id": f"rollout-a:p{number}",
        "problem_key": f"key-{number:02d}",
        "problem_id": f"p{number}",
        "cluster_id": f"lc-{number}",
        "sample": 0,
        "pool": "dev",
        "category": CATEGORIES[number % 3],
        "outcome": outcome,
        "success": None if outcome == "no_reward" else outcome == "success",
        "reason": None,
        "ending": "terminate",
        "score": {"product": 1.0, "rule": 0.5, "title": 0.0, "price": 1.0, "service": 1.0, "sku & attrs": 0.0},
        "lenient_success": False,
        "recommended_ids": ["42"],
        "hallucinated_ids": [],
        "unviewed_ids": [],
        "discipline": [],
        "truncated": False,
    }
    return row | more


def view(name: str, hostile: str = "") -> dict[str, Any]:
    """A view of an attempt (``stages.trace_views``) of one turn and one call."""
    call = {
        "id": "c0",
        "name": "find_product" + hostile,
        "arguments": json.dumps({"q": "lamp" + hostile}),
        "form": "hermes",
        "emitted": True,
        "result": json.dumps([{"product_id": "42", "title": "lamp" + hostile, "price": 3.0}]),
        "error": None,
        "start_ms": None,
        "end_ms": None,
        "status": None,
    }
    turn = {
        "number": 1,
        "before": [],
        "think": "which lamp" + hostile,
        "content": hostile or "",
        "calls": [call],
        "orphans": [],
        "start_ms": None,
        "end_ms": None,
        "state": None,
        "tokens": None,
    }
    facts = ("miner_hotkey", "agent_version_id", "validator_hotkey", "phase", "race_id", "policy_checkpoint_id")
    outcome: dict[str, Any] = {
        "outcome": "failure",
        "reason": None,
        "success": False,
        "source": "rule",
        "validator_success": None,
        "validators_agree": None,
        "lenient_success": False,
        "oddities": {},
    }
    decision: dict[str, Any] = {
        "state": "attempt",
        "uses": [],
        "situation": None,
        "stage": None,
        "reason": None,
        "detail": None,
        "duplicate_of": None,
        "quality": None,
        "flags": [],
    }
    return {
        "trace_id": name + hostile,
        "kind": "rollout",
        "day": "2026-03-28",
        "stage": "kto",
        "by": NAME,
        "facts": dict.fromkeys(facts) | {"problem_id": "p1" + hostile, "category": "product", "ending": "terminate"},
        "sealed": False,
        "withheld": False,
        "readable": True,
        "malformed": None,
        "malformed_detail": None,
        "query": "a blue lamp" + hostile,
        "query_verified": True,
        "turns": [turn],
        "after": [],
        "recommended": ["42"],
        "wanted": ["43"],
        "outcome": outcome,
        "checks": [{"name": "title", "value": 0.0}],
        "verdicts": [],
        "axis": None,
        "path": [],
        "decision": decision,
        "strategy_cluster": None,
        "leak_cluster": "lc-1",
        "pool": "dev",
        "checkpoints": [],
        "retracted": None,
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        "cost_usd": 0.0,
        "seconds": 1.5,
        "repairs": [],
        "flags": [],
    }


def history(hostile: str = "") -> list[dict[str, float]]:
    """Numbers of a KTO training by step."""
    return [
        {
            "step": float(step),
            "loss": 2.0 / step,
            "learning_rate": 1e-5 * (40 - step) / 40,
            "rewards/chosen": 0.01 * step,
            "rewards/rejected": -0.02 * step,
            "rewards/margins": 0.03 * step,
            "kl": 0.001 * step,
        }
        for step in range(1, 41)
    ]


def sample_checkpoint(hostile: str = "") -> CheckpointData:
    """Everything filled."""
    rows = [scores(number) for number in range(6)]
    found = taxonomy.failures(rows, {})
    failed = FailureReport(
        label="evaluation of the run: dev, greedy" + hostile,
        attempts=20,
        failed=len(found),
        counts=taxonomy.counted(found),
        signs=taxonomy.signs(found),
        examples={kind: [view(name, hostile) for name in names] for kind, names in taxonomy.examples(found).items()},
    )
    sealed = FailureReport(
        "evaluate: sealed, greedy", 20, 6, taxonomy.counted(found), [], {}, "the problems are sealed"
    )
    stage = {"state": "ok", "reason": "", "parent": "", "thin": False, "pass_at": {1: 0.5}, "excluded": 2}
    measured = {"success": 0.5, "success_low": 0.4, "success_high": 0.6, "process": 0.1, "process_low": 0.0}
    measured |= {"process_high": 0.2, "hallucinated": 0.05, "truncated": 0.0, "clusters": 20, "problems": 20}
    gain = {"against": "base", "difference": 0.1, "difference_low": 0.02, "difference_high": 0.2, "detectable": 0.05}
    points = [{"k": k, "value": 1 - 0.5**k, "low": 0.9 * (1 - 0.5**k), "high": 1 - 0.4**k} for k in range(1, 9)]
    counts = {"attempts": 160, "problems": 20, "clusters": 20}
    share = {"hallucinated": 0.05, "unviewed": 0.1, "clean": 0.9, "truncated": 0.0}
    worded = {"process_shown": "+0.10", "conduct_shown": "0.80", "referenced": 12, "violations": "no_terminate 2"}
    return CheckpointData(
        checkpoint_id=NAME,
        subtitle="kto of recipe small" + hostile,
        tiles=[("success", "50.0%"), ("pass@8", "99.6%")],
        notes=["Flagged" + hostile],
        facts=[("recipe", "small" + hostile), ("trace list", "holds")],
        chain=[
            {"checkpoint_id": NAME, "stage": "kto", "known": True, "generated_by": {}, "roles": {
                "desirable": {"traces": 9, "weight": 9.0, "share": 0.9}, "undesirable": {"traces": 1, "share": 0.1}}},
            {"checkpoint_id": SFT, "stage": "sft" + hostile, "known": True, "generated_by": {"script" + hostile: 3},
             "roles": {"train": {"traces": 30, "weight": 30.0, "share": 1.0}}},
        ],
        fed={"miner": [("5F" + hostile, 4), *((f"5G{n}", 1) for n in range(20))], "day": [("2026-03-28", 24)]},
        packages=[("torch", "2.13.0")],
        history=history(),
        stages=[
            {**stage, **measured, "stage": "base", "own": False, "success": 0.1, "success_low": 0.0},
            {**stage, **measured, **gain, "stage": "kto" + hostile, "own": True, "traces": 10},
            {**stage, "stage": "dr_grpo", "own": False, "state": "not measured"},
        ],
        words={"dev, greedy" + hostile: ["kto against base: shown to help." + hostile]},
        passes=[
            {"label": "base", "own": False, "points": points, **counts},
            {"label": "kto" + hostile, "own": True, "points": points, **counts},
        ],
        passes_note="8 attempts" + hostile,
        categories=[
            {**measured, "policy": policy, "category": category + hostile, "pass_at": {}, "lenient": 0.5, "thin": True}
            for policy in ("base", "kto" + hostile)
            for category in ("all", *CATEGORIES)
        ],
        failures=[failed, sealed],
        actions=[
            {"category": name + hostile, "n": 9, "clusters": 5, "tool": 0.9, "tool_low": 0.8, "tool_high": 1.0,
             "arguments": 0.7, "arguments_low": 0.6, "arguments_high": 0.8, "baseline_tool": 0.3, "parse_errors": 0,
             "clipped": 1}
            for name in ("all", "product", "shop")
        ],
        actions_note="Teacher-forced" + hostile,
        evaluations=[
            {**measured, "label": "dev" + hostile, "pool": "dev", "attempts": 20, "excluded": 2, "no_reward": 1,
             "clean": "50.0% of 20 problems", "near": None, "contaminated": None, "looks": "looked at once" + hostile},
        ],
        conduct={"dev" + hostile: [{**share, **worded, "category": name + hostile} for name in ("all", *CATEGORIES)]},
        costs=[
            {"what": "training of sft" + hostile, "wall": 3.0, "cpu": 4.0, "tokens": 100, "usd": None, "remark": ""},
        ],
        costs_note="Seconds" + hostile,
        limits=["With another day" + hostile],
    )  # fmt: skip
