"""A filled page of one day, with hostile text in every place where third-party text can stand."""

from __future__ import annotations

from trajectory_platform.reports.cost_section import CostFacts
from trajectory_platform.reports.day_data import DayReport
from trajectory_platform.reports.diversity import tail_of
from trajectory_platform.reports.flow import flow_of
from trajectory_platform.reports.leak_section import GROWN, KNOWN, NEW, LeakFacts
from trajectory_platform.reports.strategy_section import ALL, StrategyFacts
from trajectory_platform_tests.reports.sample import sample_report

DAY = "2026-05-02"


def strategies(hostile: str = "") -> StrategyFacts:
    """Few large strategies and a tail."""
    every = tail_of({"copied" + hostile: 60, "own": 20, **{f"rare {number}": 1 for number in range(12)}})
    return StrategyFacts(
        tails={ALL: every, "product" + hostile: tail_of({"copied": 40, "own": 20}), "shop": tail_of({"copied": 20})},
        miners={"5Grw…utQY" + hostile: tail_of({"copied": 60})},
        largest=[
            {"strategy": "sc-1" + hostile, "outline": "find()>recommend" + hostile, "before": 80, "after": 60},
            {"strategy": "sc-2", "outline": "find()>view(n)>recommend", "before": 20, "after": 20},
        ],
        before=(14, 112),
        removed=[{"stage": "copies", "reason": "exact_copy" + hostile, "count": 20, "meaning": "equal messages"}],
        copied=[{"survivor": "r:p" + hostile, "copies": 7, "agents": 5, "miners": 3, "strategy": "sc-1"}],
        days={"2026-05-01": (11, 5.0), DAY: (14, 3.9)},
        between_days={"cross_day_copy" + hostile: 4},
        window=DAY,
    )


def costs(hostile: str = "") -> CostFacts:
    """Two LLM judges, one of which told no token counts once."""
    row = {"day": DAY, "calls": 120, "canaries": 8, "without_value": 3, "prompt_tokens": 400_000, "usd": 0.42}
    return CostFacts(
        judges=[
            {**row, "model": "judge-a" + hostile, "completion_tokens": 9_000, "unknown": 1},
            {**row, "model": "judge-b", "completion_tokens": 8_000, "unknown": 0},
        ],
        rules_verdicts=171,
        agent_calls=714,
        agent_failures=3,
        work=[{"what": "train sft" + hostile, "count": 1, "tokens": 90_000, "usd": None, "seconds": 61}],
        stored=[{"what": "171 raw artifacts", "bytes": 488_100}, {"what": "table trajectories", "bytes": 999}],
    )


def leaks(hostile: str = "") -> LeakFacts:
    """Clusters of which some are new and one has grown."""
    return LeakFacts(
        day=DAY,
        as_of="2026-05-03",
        sizes={KNOWN: {1: 50, 2: 6}, GROWN: {2: 1, 3: 1}, NEW: {1: 26, 2: 4}},
        pools=[{"pool": "train", "clusters": 70, "problems": 80, "new_clusters": 23, "new_problems": 26}],
        changed=[
            {
                "cluster_id": "c-1" + hostile,
                "state": NEW,
                "pool": "train",
                "size": 2,
                "new": 2,
                "category": "product" + hostile,
                "why": "product_id",
                "problems": ["p-1" + hostile, "p-2"],
            }
        ],
        sealed_changed=2,
    )


def sample_day(hostile: str = "") -> DayReport:
    """One day; ``hostile`` is put in every text that comes from traces, suites, the API or settings."""
    rejected = [("axis", "axis_b")] * 39 + [("ingest", "no_trace")] * 20 + [("read", "cut_line" + hostile)] * 3
    uses = [["sft", "kto_desirable"]] * 50 + [["kto_undesirable" + hostile]] * 42
    flow = flow_of(154, rejected, uses, found=155, moved_in=1, moved_out=2)
    examples = [
        {"trace_id": "run-1:p-1" + hostile, "detail": "no_inference" + hostile},
        {"trace_id": "run-2:p-1", "detail": None},
    ]
    share = {"day": DAY, "a": 0.702, "a_low": 0.51, "a_high": 0.84, "a_note": None, "n": 131, "agents": 33}
    return DayReport(
        day=DAY,
        subtitle="era: discrete gate" + hostile,
        tiles=(("pairs judged", "154"), ("axis A" + hostile, "70.2%")),
        notes=("The day has holes." + hostile,),
        facts=[("table raw_traces", "154 rows, complete" + hostile)],
        counted={"day": DAY, "found": 155, "moved_in": 1, "moved_out": 2, "accepted": 92, "rejected": 62},
        fetch=[("state", "open"), ("warning", "the cache is cold" + hostile)],
        flow=flow,
        axis={"2026-04-29": {"A": 90, "B": 30}, DAY: {"A": 92, "mixed": 9, "B": 20, "unknown": 10}},
        axis_share=share,
        calibration=sample_report(hostile).calibration,
        verdicts=[
            {
                "judge": "validator: judge-a" + hostile,
                "regime": "discrete",
                "verdicts": 120,
                "values": 110,
                "mean": "0.71",
                "passed": 0.8,
                "nulls": "off_grid 10" + hostile,
            }
        ],
        situations=[
            {"situation": "success_clean", "traces": 50, "share": 50 / 92, "uses": "SFT", "meaning": "m" + hostile}
        ],
        outcomes=[_outcome("all", None), _outcome("shop" + hostile, "all clusters agree")],
        strategies=strategies(hostile),
        leaks=leaks(hostile),
        reasons=[
            {"stage": "axis", "reason": "axis_b", "count": 39, "meaning": "code made the calls", "examples": examples},
            {"stage": "read", "reason": "cut_line" + hostile, "count": 3, "meaning": "", "examples": []},
        ],
        examples_note="4 traces of sealed problems are counted and never shown.",
        miners=[_miner("5Grw…utQY" + hostile, 90), _miner("5FHn…94ty", 64)],
        cost=costs(hostile),
    )


def _outcome(category: str, note: str | None) -> dict[str, object]:
    found = {"success": 0.7, "success_low": 0.6, "success_high": 0.8, "success_note": note}
    return {"category": category, "traces": 90, "problems": 40, "unscorable": 1, **found}


def _miner(name: str, pairs: int) -> dict[str, object]:
    counts = {"pairs": pairs, "accepted": pairs // 2, "not_a": pairs // 4, "other": pairs - pairs // 2 - pairs // 4}
    return {"miner": name, "agents": 4, "success": 0.7, "sft": pairs // 3, "strategies": 6, **counts}
