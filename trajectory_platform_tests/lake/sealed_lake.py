"""A lake in which every text of a sealed problem carries a mark that must never be printed without a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from trajectory_platform.lake import tables
from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.tables import Table
from trajectory_platform.splits.ngrams import Overlap
from trajectory_platform_tests.lake.rows import DAY, DAY2, put

MARK = "ZEBRAFINCH"
DAY3 = "2026-03-03"
CHECKPOINT = f"sft-{DAY2}-aaaaaaaaaaaa"
TRACES = {
    **{"open": "r1:o", "sealed": "r1:s", "race": "r2:@0", "replayed": "r7:o", "new": "r3:n"},
    "restating": "r8:o",
}
_IDS = frozenset(
    (
        *("trace_id", "problem_id", "problem_key", "suite_id", "checkpoint_id", "left_key", "right_key", "cluster_id"),
        *("duplicate_of", "content_hash", "eval_run_id", "policy_checkpoint_id", "parent", "path", "stage"),
        *("day", "trace_day", "folder_day", "first_seen", "pool", "own_draw"),
    )
)
# What people, agents, judges and shops wrote, and the products that solve a problem. The rest: ids and our own codes.
_TOLD = frozenset(
    (
        *("query", "title", "reward", "voucher", "reward_product_ids", "messages", "tools", "source_steps", "evidence"),
        *("score", "lenient_score", "state_detail", "malformed_detail", "detail", "ending_detail", "explanation"),
        *("reasoning_explanation", "reasoning_score_text", "repairs", "recommended_ids", "lenient_ids", "raw_reply"),
        *("hallucinated_ids", "unviewed_ids", "not_in_catalogue_ids", "injection_sources", "strategy_signature"),
        *("predicted_tool", "artifact_uri"),
    )
)
_LISTS = frozenset(("messages", "source_steps", "repairs", "tools"))
_OBJECTS = frozenset(("evidence", "score", "lenient_score", "reward", "voucher"))
SUMMARY = {
    "input": 4, "accepted": 3, "rejected": 1, "by_stage": {"axis": 1}, "by_use": {"sft": 3}, "by_axis": {"A": 3},
}  # fmt: skip


def sealed_lake(root: Path | str) -> Lake:
    """Open problem ``o``; sealed ``s`` (key ``ks``) and a sealed race problem (key ``kr``); ``n`` of a day after the
    clusters. Trace ``r7:o`` repeats the dialogue of the sealed ``r1:s`` under the open problem, ``r8:o`` quotes it."""
    lake = Lake(str(root))
    problems = [{"problem_id": "o", "problem_key": "ko"}, {"problem_id": "s", "problem_key": "ks", "marked": True}]
    _put(lake, tables.PROBLEM_SUITES, DAY, problems)
    _put(lake, tables.PROBLEM_SUITES, DAY3, [{"problem_id": "n", "problem_key": "kn", "marked": True}])
    named = ("open", "o", "ko", "h-open"), ("sealed", "s", "ks", "h-sealed"), ("race", None, "kr", "h-race")
    elsewhere = ("replayed", "o", "ko", "h-sealed"), ("restating", "o", "ko", "h-restating")
    first = [_trace(*one) for one in (*named, *elsewhere) if one[0] in TRACES]
    for day, rows in ((DAY, first), (DAY2, []), (DAY3, [_trace("new", "n", "kn", "h-new")])):
        for table in (tables.RAW_TRACES, tables.TRAJECTORIES, tables.JUDGED_TRACES, tables.VERDICTS):
            _put(lake, table, day, rows)
        _put(lake, tables.REJECTED_TRACES, day, rows)
        _put(lake, tables.AXIS_A_CORPUS, day, rows, summary=SUMMARY)
    _put(lake, tables.JUDGE_CALLS, DAY, [{"sequence": 0, "marked": True}])
    pools = [("ko", "train", ["o"]), ("ks", "sealed", ["s"]), ("kr", "sealed", [])]
    clusters = [{"problem_key": key, "pool": pool, "problem_ids": ids} for key, pool, ids in pools]
    known = ((tables.PROBLEM_SUITES, DAY), (tables.JUDGED_TRACES, DAY), (tables.JUDGED_TRACES, DAY2))
    inputs = {f"{table.name}/{day}": lake.manifest(table, day).content_digest for table, day in known}
    _put(lake, tables.LEAK_CLUSTERS, DAY2, clusters, inputs=inputs, settings={"pool_sealed": 10})
    edges = [("ks", "kr", True), ("ko", "ks", True), ("ko", "kx", False)]
    rows = [{"left_key": left, "right_key": right, "kind": "query", "marked": mark} for left, right, mark in edges]
    _put(lake, tables.LEAK_EDGES, DAY2, rows)
    _put(lake, tables.LEAK_HINTS, DAY2, rows)
    _put(lake, tables.LEAK_GUARDED_SPLITS, DAY2, [{**row, "pool": "train"} for row in first])
    restating = [row for row in first if row["trace_id"] == TRACES.get("restating")]
    found = Overlap("ks", 1.0, "message 2 assistant", 0, 8, f"{MARK} words")
    evidence = found.evidence("r8:o", show=True)  # as if it had been of the dev pool then
    _put(lake, tables.SPLIT_EXCLUSIONS, DAY2, [{**row, "detail": evidence} for row in restating])
    _of_checkpoint(lake, first)
    return lake


def _trace(name: str, problem_id: str | None, key: str, text: str) -> dict[str, Any]:
    about = {"trace_id": TRACES[name], "problem_id": problem_id, "problem_key": key, "content_hash": text}
    return {**about, "marked": name != "open"}


def _of_checkpoint(lake: Lake, traces: list[dict[str, Any]]) -> None:
    own = {"checkpoint_id": CHECKPOINT, "stage": "sft"}
    part = {"stage": "sft"}
    _put(lake, tables.CHECKPOINT_TRACES, DAY2, [{**own, **traces[0], "role": "train"}], part=part)
    manifest = {
        "inputs": {}, "recipe": {"name": "smoke"}, "seeds": {"training": 0}, "code_version": "1", "packages": {},
        "rows": {}, "metrics": {}, "trace_list_digest": "d",
    }  # fmt: skip
    row = {**own, "manifest": json.dumps(manifest), "parent": None, "path": CHECKPOINT}
    _put(lake, tables.CHECKPOINTS, DAY2, [row], part=part)
    _put(lake, tables.ACTION_SCORES, DAY2, [{**own, **row, "turn": 0} for row in traces], part=part)
    pools = {"ko": "train", "ks": "sealed", "kr": "sealed"}
    acted = [
        {**own, **row, "problem_id": row["problem_id"] or "key-kr", "pool": pools[row["problem_key"]], "sample": n}
        for n, row in enumerate(traces)
    ]
    for table in (tables.ROLLOUTS, tables.EVAL_SCORES, tables.CONTAMINATION):
        kept = {row["problem_key"]: row for row in acted[:3]} if table is tables.CONTAMINATION else None
        summary = {"state": "ok", "checkpoint_id": CHECKPOINT, "problems": 3}
        _put(lake, table, DAY2, list(kept.values()) if kept else acted, part=part, summary=summary)


def _put(lake: Lake, table: Table, day: str, rows: list[dict[str, Any]], **more: Any) -> None:
    data = [{name: _value(table, name, day, row) for name in table.columns} for row in rows]
    put(lake, table, pa.Table.from_pylist(data, schema=table.schema()), day=day, **more)


def _value(table: Table, name: str, day: str, row: dict[str, Any]) -> Any:
    """The given value, an allowed one, or text with the mark where the row is marked."""
    if name == "day":
        return day
    if name in row:
        return row[name]
    if name in table.values:
        return table.values[name][0]
    kind = table.columns[name].rstrip("?")
    text = f"{MARK} {name}" if row.get("marked") and name in _TOLD else f"plain {name}"
    if name in _LISTS:
        return json.dumps([{"role": "user", "content": text, "reason": "alias", "count": 1}])
    if name in _OBJECTS:
        return json.dumps({"said": text})
    if name in _IDS:
        return None if table.columns[name].endswith("?") else DAY
    return {"text": text, "texts": [text], "int": 1, "float": 0.5, "bool": True, "time": None}[kind]
