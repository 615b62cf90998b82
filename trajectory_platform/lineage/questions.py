"""The two questions of lineage: what was this checkpoint made of, and what became of this trace?

Answers are plain JSON values; ``checkpoint_text`` and ``trace_text`` print them for people, third-party text escaped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trajectory_platform.lake import ledger as sealed_ledger
from trajectory_platform.lake import sealing, tables
from trajectory_platform.lineage import ledger
from trajectory_platform.traces.rendering import escape_control

if TYPE_CHECKING:
    from trajectory_platform.lake.publish import Lake


def about_checkpoint(lake: Lake, checkpoint_id: str) -> dict[str, Any] | None:
    """What a checkpoint was made of; None when no such checkpoint is published.

    Counts of its training traces by day, miner, category, strategy and verdict source; input partitions with digests
    and versions; recipe, seeds, packages, parents; ``trace_list_holds`` (the list re-hashed equals the manifest's),
    ``no_longer_in_corpus`` (trained traces the corpus lacks today), ``changed_inputs`` and ``held_out_since`` (trained
    traces by the stricter pool that their problem has moved to since: clusters merged, a hold-out was added).
    """
    row = ledger.checkpoint_row(lake, checkpoint_id)
    if row is None:
        return None
    manifest = row["manifest"]
    traces = [trace for trace in ledger.traces_of(lake, row) if trace["role"] == "train"]
    days = sorted({trace["trace_day"] for trace in traces})
    ids = {trace["trace_id"] for trace in traces}
    corpus = {
        entry["trace_id"]: entry for entry in ledger.rows_where(lake, tables.AXIS_A_CORPUS, "trace_id", ids, days)
    }
    known = [corpus[trace["trace_id"]] for trace in traces if trace["trace_id"] in corpus]
    return {
        "checkpoint_id": checkpoint_id,
        "stage": row["stage"],
        "day": row["day"],
        "path": row["path"],
        "parents": ledger.parents_of(lake, checkpoint_id),
        "traces": len(traces),
        "trace_list_digest": row["trace_list_digest"],
        "trace_list_holds": ledger.list_digest(traces) == row["trace_list_digest"] == manifest["trace_list_digest"],
        "weight": sum(trace["weight"] for trace in traces),
        "days": _counts(trace["trace_day"] for trace in traces),
        "clusters": len({trace["cluster_id"] for trace in traces}),
        "problems": len({trace["problem_key"] for trace in traces}),
        "miners": _counts(entry["miner_hotkey"] for entry in known),
        "agent_versions": len({entry["agent_version_id"] for entry in known}),
        "categories": _counts(entry["category"] for entry in known),
        "strategies": _counts(entry["strategy_cluster"] for entry in known),
        "verdict_sources": _counts(f"{entry['judge_kind']}/{entry['score_regime']}" for entry in known),
        "outcome_sources": _counts(entry["outcome_source"] for entry in known),
        "no_longer_in_corpus": sorted(ids - set(corpus)),
        "inputs": manifest["inputs"],
        "changed_inputs": ledger.changed_inputs(lake, manifest),
        "held_out_since": _counts(ledger.held_out_now(lake, traces)),
        "recipe": manifest["recipe"],
        "seeds": manifest["seeds"],
        "code_version": manifest["code_version"],
        "packages": manifest["packages"],
        "rows": manifest["rows"],
        "metrics": manifest["metrics"],
    }


def about_trace(
    lake: Lake, trace_id: str, *, sealed_reason: str | None = None, at: datetime | None = None
) -> dict[str, Any] | None:
    """Where a trace came from, what each stage decided and why, which checkpoints it fed; None when never seen.

    ``steps`` is in the order of the flow: {stage, decision, reason, facts}. A trace that was judged again on a later
    day goes through it once per day; what is said of the trace as a whole is said by the latest.

    Of a trace of a sealed problem (``sealed``: True) the decisions and reason codes are told and no facts, unless a
    reason is given; the look is then recorded as of ``at``.
    """
    raw = ledger.rows_where(lake, tables.RAW_TRACES, "trace_id", [trace_id])
    if not raw:
        return None
    keys = sealing.sealed_problems_of(lake, trace_id)
    if keys is not None and sealed_reason is not None:
        sealed_ledger.record(lake, what="lineage trace", reason=sealed_reason, at=at, keys=keys, detail=trace_id)
    steps = []
    for listed in raw:
        steps.append(_raw_step(listed))
        for table, describe in _DAY_STEPS:
            rows = ledger.rows_where(lake, table, "trace_id", [trace_id], [listed["day"]])
            steps += [describe(row) for row in rows]
    last = raw[-1]
    for row in ledger.rows_where(lake, tables.LEAK_GUARDED_SPLITS, "trace_id", [trace_id]):
        facts = {"as_of": row["day"], "cluster": row["cluster_id"], "uses": row["uses"]}
        steps.append(_step("leak_guarded_splits", row["pool"], None, facts))
    for row in ledger.rows_where(lake, tables.SPLIT_EXCLUSIONS, "trace_id", [trace_id]):
        facts = {"as_of": row["day"], "duplicate_of": row["duplicate_of"]}
        steps.append(_step("leak_guarded_splits", "excluded", row["reason"], facts))
    fed = ledger.rows_where(lake, tables.CHECKPOINT_TRACES, "trace_id", [trace_id])
    scored = ledger.rows_where(lake, tables.ACTION_SCORES, "trace_id", [trace_id])
    withheld = keys is not None and sealed_reason is None
    return {
        "trace_id": trace_id,
        **{name: last[name] for name in _OF_THE_PAIR},
        "sealed": keys is not None,
        "withheld": withheld,
        "steps": [{**step, "facts": {}} for step in steps] if withheld else steps,
        "fed": [{key: row[key] for key in ("checkpoint_id", "day", "role", "weight")} for row in fed],
        "scored_in": _counts(row["checkpoint_id"] for row in scored),
    }


def checkpoint_text(answer: Mapping[str, Any]) -> str:
    """``about_checkpoint`` as plain text."""
    holds = "matches the manifest" if answer["trace_list_holds"] else "DOES NOT match the manifest"
    lines = [
        f"checkpoint {answer['checkpoint_id']}",
        f"  stage {answer['stage']}, as of {answer['day']}, parents {', '.join(answer['parents']) or 'none'}",
        f"  recipe {answer['recipe']['name']}, code {answer['code_version']}, seed {answer['seeds']['training']}",
        f"  {answer['traces']} traces of {answer['problems']} problems in {answer['clusters']} leak clusters; "
        f"the trace list {holds}",
    ]
    for label, key in (
        ("days", "days"),
        ("categories", "categories"),
        ("miners", "miners"),
        ("strategies", "strategies"),
        ("verdicts", "verdict_sources"),
        ("outcomes", "outcome_sources"),
    ):
        lines.append(f"  {label}: {_listed(answer[key])}")
    for name, entry in sorted(answer["inputs"].items()):
        digest = str(entry["content_digest"])[:12]
        lines.append(f"  input {name}: content {digest}, table version {entry.get('table_version')}")
    for change in answer["changed_inputs"]:
        lines.append(f"  CHANGED since: {change['input']} is now {change['present'][:12]}")
    for pool, count in answer["held_out_since"].items():
        lines.append(f"  HELD OUT since: the problems of {count} trained traces are {pool} in the newest leak clusters")
    if answer["no_longer_in_corpus"]:
        lines.append(f"  no longer in the corpus: {_some(answer['no_longer_in_corpus'])}")
    return "\n".join(_plain(line) for line in lines)


def trace_text(answer: Mapping[str, Any]) -> str:
    """``about_trace`` as plain text."""
    lines = [
        f"trace {answer['trace_id']}",
        f"  day {answer['day']}, miner {answer['miner_hotkey']}, agent version {answer['agent_version_id']}, "
        f"validator {answer['validator_hotkey']}",
    ]
    if answer["withheld"]:
        lines.append("  sealed, or of a day that no leak clusters cover yet: facts are shown with --sealed REASON only")
    for step in answer["steps"]:
        why = f" ({step['reason']})" if step["reason"] else ""
        facts = ", ".join(
            f"{key} {_fact(value)}" for key, value in step["facts"].items() if value not in (None, [], "")
        )
        lines.append(f"  {step['stage']}: {step['decision']}{why}" + (f"; {facts}" if facts else ""))
    if answer["fed"]:
        lines += [f"  fed {row['checkpoint_id']} as {row['role']}, weight {row['weight']:g}" for row in answer["fed"]]
    else:
        lines.append("  fed no checkpoint")
    for name, turns in answer["scored_in"].items():
        lines.append(f"  scored {name} on {turns} of its turns")
    return "\n".join(_plain(line) for line in lines)


def _step(stage: str, decision: str, reason: str | None, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {"stage": stage, "decision": decision, "reason": reason, "facts": dict(facts)}


def _raw_step(row: Mapping[str, Any]) -> dict[str, Any]:
    judged = row["judged_at"].isoformat() if row["judged_at"] is not None else None
    facts = {
        "folder": row["folder_day"],
        "judged_at": judged,
        "artifact": row["artifact_uri"],
        "line": row["artifact_line"],
        "sha256": row["artifact_sha256"],
    }
    return _step("raw_traces", row["state"], row["state_reason"], facts)


def _trajectory_step(row: Mapping[str, Any]) -> dict[str, Any]:
    repairs = [f"{repair['reason']} x{repair['count']}" for repair in json.loads(row["repairs"])]
    facts = {
        "steps": row["steps"],
        "tool_calls": row["tool_calls"],
        "reader": f"{row['reader']} {row['reader_version']}",
        "repairs": repairs,
        "flags": row["flags"],
    }
    return _step("trajectories", "readable" if row["readable"] else "unreadable", row["malformed"], facts)


def _judged_step(row: Mapping[str, Any]) -> dict[str, Any]:
    facts = {
        "source": row["outcome_source"],
        "recommended": row["recommended_ids"],
        "hallucinated": row["hallucinated_ids"],
        "discipline": row["discipline"],
        "scorer": row["scorer_version"],
    }
    return _step("judged_traces", row["outcome"], row["reason"], facts)


def _verdict_step(row: Mapping[str, Any]) -> dict[str, Any]:
    quality = row["reasoning_quality"]
    facts = {"model": row["judge_model"], "regime": row["score_regime"], "rubric": row["rubric_version"]}
    decision = "no verdict" if quality is None else f"reasoning {quality:g}"
    return _step(f"verdict of {row['judge_kind']}", decision, row["null_reason"], facts)


def _accepted_step(row: Mapping[str, Any]) -> dict[str, Any]:
    facts = {
        "uses": row["uses"],
        "axis": f"{row['axis_label']} {row['axis_share']}",
        "quality": row["quality"],
        "strategy": row["strategy_cluster"],
        "filter": row["filter_version"],
    }
    return _step("axis_a_corpus", "accepted", row["axis_reason"], facts)


def _rejected_step(row: Mapping[str, Any]) -> dict[str, Any]:
    facts = {
        "at": row["stage"],
        "detail": row["detail"],
        "axis": row["axis_label"],
        "duplicate_of": row["duplicate_of"],
        "filter": row["filter_version"],
    }
    return _step("axis_a_corpus", "rejected", row["reason"], facts)


_DAY_STEPS = (
    (tables.TRAJECTORIES, _trajectory_step),
    (tables.JUDGED_TRACES, _judged_step),
    (tables.VERDICTS, _verdict_step),
    (tables.AXIS_A_CORPUS, _accepted_step),
    (tables.REJECTED_TRACES, _rejected_step),
)
_OF_THE_PAIR = (
    "day",
    "miner_hotkey",
    "agent_version_id",
    "validator_hotkey",
    "problem_id",
    "suite_id",
    "policy_checkpoint_id",
)


def _counts(values: Iterable[Any]) -> dict[str, int]:
    counted = Counter("unknown" if value is None else str(value) for value in values)
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def _listed(counts: Mapping[str, int], limit: int = 8) -> str:
    shown = [f"{name} {count}" for name, count in list(counts.items())[:limit]]
    return ", ".join(shown) + (f", and {len(counts) - limit} more" if len(counts) > limit else "")


def _some(names: list[str], limit: int = 5) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _fact(value: Any) -> str:
    return ", ".join(str(entry) for entry in value) if isinstance(value, list) else str(value)


def _plain(line: str) -> str:
    return escape_control(line).replace("\n", "\\n")
