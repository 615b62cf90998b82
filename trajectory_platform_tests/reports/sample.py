"""A filled report as the demo makes it, with hostile text in every place where third-party text can stand."""

from __future__ import annotations

from typing import Any

from trajectory_platform.judging.calibration import calibrate
from trajectory_platform.reports.cost_section import CostFacts
from trajectory_platform.reports.data import ReportData
from trajectory_platform.reports.diversity import tail_of
from trajectory_platform.reports.flow import flow_of
from trajectory_platform.reports.strategy_section import ALL, StrategyFacts

FUNNEL_STAGES = (
    "raw pairs",
    "trace present",
    "readable",
    "usable run",
    "not injected",
    "axis A",
    "judged",
    "accepted",
    "use: sft",
)

HOSTILE = (
    "<script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\">"
    "</script><script>document.title='owned'</script>"
    "<a href=\"javascript:document.title='owned'\">click</a>\u202egnp.exe\x1b[31m\x00 ${7*7} {{7*7}}"
)

DAYS = ("2026-03-26", "2026-03-27", "2026-03-28")
COUNTS = (
    (240, 226, 214, 201, 196, 118, 118, 96, 61),
    (240, 231, 219, 207, 203, 124, 124, 104, 70),
    (238, 224, 215, 199, 195, 113, 113, 92, 58),
)


def sample_report(hostile: str = "") -> ReportData:
    """Three days; ``hostile`` is put in every text that comes from traces, suites or settings."""
    funnels = {day: list(zip(FUNNEL_STAGES, row, strict=True)) for day, row in zip(DAYS, COUNTS, strict=True)}
    moved = ((0, 3), (3, 0), (2, 2))
    return ReportData(
        title="Three simulated days" + hostile,
        subtitle="2026-03-26 to 2026-03-28, simulated arena, seed 0" + hostile,
        tiles=(("pairs", "718"), ("accepted", "292"), ("problems", "163"), ("tool accuracy", "91.4 %" + hostile)),
        days=[
            {
                "day": day,
                "found": row[0] - came + went,
                "moved_in": came,
                "moved_out": went,
                "accepted": row[7],
                "rejected": row[0] - row[7],
            }
            for day, row, (came, went) in zip(DAYS, COUNTS, moved, strict=True)
        ],
        funnels=funnels,
        flow=flow_of(
            718,
            [("axis", "axis_b")] * 363 + [("read", "truncated_gzip" + hostile)] * 63,
            [["sft", "kto_desirable"]] * 189 + [["kto_undesirable"]] * 103,
            found=718,
            moved_in=5,
            moved_out=5,
        ),
        strategies=StrategyFacts(
            tails={ALL: tail_of({"copied": 200, "own": 80, "rare": 12}), "product" + hostile: tail_of({"own": 80})},
            days={day: (3, 2.0 + number) for number, day in enumerate(DAYS)},
        ),
        cost=CostFacts(rules_verdicts=640),
        axis={
            day: {
                "A": row[5],
                "mixed": 21,
                "B": row[4] - row[5] - 29,
                "unknown": 8,
                **({hostile: 2} if hostile else {}),
            }
            for day, row in zip(DAYS, COUNTS, strict=True)
        },
        reasons=[
            {"stage": "axis", "reason": "axis_b", "count": 161, "meaning": "the agent's code made the calls"},
            {
                "stage": "axis",
                "reason": "axis_mixed",
                "count": 63,
                "meaning": "part of the calls has no matching reply",
            },
            {
                "stage": "run",
                "reason": "run_unusable",
                "count": 41,
                "meaning": "the run was invalidated or not included",
            },
            {
                "stage": "copy",
                "reason": "exact_copy",
                "count": 38,
                "meaning": "same canonical messages as an earlier trace",
            },
            {"stage": "read", "reason": "no_trace", "count": 37, "meaning": "no artifact, or an empty one"},
            {"stage": "read", "reason": "truncated_gzip" + hostile, "count": 33, "meaning": "the artifact ends early"},
            {"stage": "verdict", "reason": "verdict_mismatch", "count": 28},
            {"stage": "injection", "reason": "injected_text", "count": 13},
        ],
        pools=[
            {"pool": "train", "clusters": 74, "problems": 129, "no_reward": 12, "traces": 231},
            {"pool": "dev", "clusters": 11, "problems": 19, "no_reward": 2, "traces": 34},
            {"pool": "sealed", "clusters": 9, "problems": 15, "no_reward": 1, "traces": 27},
        ],
        cluster_sizes={1: 51, 2: 27, 3: 12, 5: 3, 7: 1},
        clusters=[
            {
                "cluster_id": "c-19f2a0",
                "pool": "train",
                "size": 7,
                "category": "product" + hostile,
                "why": ["product_id", "query"],
                "problems": [f"p-{number:04d}" for number in range(7)] + ([hostile] if hostile else []),
            }
        ],
        scores=[
            _score("all", 214, 11, 0.914, 0.673, 0.32, 0.04),
            _score("product", 96, 5, 0.948, 0.740, 0.33, 0.05),
            _score("shop", 71, 4, 0.901, 0.634, 0.31, 0.03),
            {**_score("voucher" + hostile, 47, 2, 0.862, 0.596, 0.30, 0.02), "thin": True},
        ],
        scores_note="Teacher-forced next actions on dev traces; intervals: 95 %, resampled by leak cluster. "
        "Baseline: the commonest action of the train pool at that turn." + hostile,
        tasks=[
            _task("base", "all", 40, 0.025, 1.0),
            _task("base", "product" + hostile, 22, 0.045, 1.0),
            {**_task("sft" + hostile, "all", 40, 0.275, 0.05), "pass_at": {1: 0.275, 2: 0.35, 8: None}},
            {**_task("sft" + hostile, "product" + hostile, 22, 0.409, 0.0), "thin": True},
        ],
        tasks_note="Strict success on dev problems." + hostile,
        task_pairs=[
            {
                "category": "all",
                "before": 0.025,
                "after": 0.275,
                "difference": 0.25,
                "difference_low": 0.12,
                "difference_high": 0.38,
                "detectable": 0.186,
                "problems": 40,
                "clusters": 31,
                "thin": False,
            },
            {
                "category": "product" + hostile,
                "before": 0.045,
                "after": 0.409,
                "difference": 0.364,
                "difference_low": None,
                "difference_high": None,
                "detectable": None,
                "problems": 22,
                "clusters": 1,
                "thin": True,
            },
        ],
        task_words=("b minus a: +25.0 points on 40 problems in 31 clusters" + hostile,),
        calibration=calibrate(
            [
                _verdict(f"r:{number}", kind, model + hostile, value)
                for number in range(60)
                for kind, model, value in (
                    ("validator", "judge-a", (0.3, 0.7, 0.9)[number % 3]),
                    ("rules", "rules-2", (0.3, 0.7, 0.9)[(number + number // 20) % 3]),
                )
            ],
            resamples=100,
        ),
        contamination=[
            {
                "checkpoint_id": "sft-2026-03-28-3f9a1c02b7de" + hostile,
                "flags": ["2 same cluster", "1 traces run unusable" + hostile],
                "all": {"problems": 40, "attempts": 40, "success": 0.275},
                "clean": {"problems": 38, "attempts": 38, "success": 0.263},
                "near": {"problems": 0, "attempts": 0, "success": None},
                "contaminated": {"problems": 2, "attempts": 2, "success": 0.5},
            }
        ],
        checkpoint=[
            ("checkpoint", "sft-2026-03-28-3f9a1c02b7de"),
            ("base", "tiny Qwen3 (random weights, 2 layers)"),
            ("traces", 231),
            ("loss, first to last", "5.81 to 0.47"),
            ("note", hostile or "none"),
        ],
        lineage_of="run-0031:p-0004" + hostile,
        lineage=[
            {"step": "raw artifact", "value": "2026-03-26/artifacts/run-0031/p-0004.json.gz", "detail": "sha256 9b1c…"},
            {"step": "trajectory", "value": "14 messages, 6 calls", "detail": "reader sn15 1, no repairs"},
            {
                "step": "verdict",
                "value": "success, reasoning 0.82",
                "detail": "rule score, validator's judge" + hostile,
            },
            {"step": "axis", "value": "A, share 1.00", "detail": "6 of 6 calls match a reply"},
            {"step": "cluster and pool", "value": "c-19f2a0, train", "detail": "joined by product_id"},
            {"step": "checkpoint", "value": "sft-2026-03-28-3f9a1c02b7de", "detail": "weight 1.0"},
        ],
        notes=("Scripted miners on generated products: the numbers show the machinery, not a model." + hostile,),
    )


def _score(
    category: str, n: int, clusters: int, tool: float, arguments: float, base_tool: float, base_arguments: float
) -> dict[str, object]:
    half = 0.9 / n**0.5
    return {
        "category": category,
        "n": n,
        "clusters": clusters,
        "tool": tool,
        "tool_low": max(0.0, tool - half),
        "tool_high": min(1.0, tool + half / 2),
        "arguments": arguments,
        "arguments_low": arguments - half,
        "arguments_high": arguments + half,
        "baseline_tool": base_tool,
        "baseline_arguments": base_arguments,
        "parse_errors": 3,
        "clipped": 0,
    }


def _verdict(trace_id: str, kind: str, model: str, value: float) -> dict[str, Any]:
    return {
        "trace_id": trace_id,
        "day": "2026-05-02",
        "judge_kind": kind,
        "judge_model": model,
        "rubric_version": "gates-1",
        "score_regime": "discrete" if kind == "validator" else "rules",
        "reasoning_quality": value,
        "null_reason": None,
    }


def _task(policy: str, category: str, problems: int, success: float, truncated: float) -> dict[str, object]:
    return {
        "policy": policy,
        "category": category,
        "success": success,
        "success_low": max(0.0, success - 0.1),
        "success_high": success + 0.1,
        "pass_at": {1: success, 2: None},
        "lenient": success,
        "truncated": truncated,
        "hallucinated": 0.1,
        "unviewed": 0.2,
        "clean": 0.8,
        "process": 0.61,
        "conduct": 0.72,
        "problems": problems,
        "attempts": 2 * problems,
        "clusters": problems - 9,
        "thin": False,
    }
