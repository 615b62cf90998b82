"""The two questions of lineage: what was this checkpoint made of, and what became of this trace?

Answers are plain JSON values; ``lineage.words`` prints them for people.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trajectory_platform.lake import ledger as sealed_ledger
from trajectory_platform.lake import sealing, tables
from trajectory_platform.lake.arrays import text_array
from trajectory_platform.lineage import ledger, retractions

if TYPE_CHECKING:
    from trajectory_platform.lake.publish import Lake


def about_checkpoint(lake: Lake, checkpoint_id: str) -> dict[str, Any] | None:
    """What a checkpoint was made of; None when no such checkpoint is published.

    ``made_of``: for itself and each ancestor down to the base model, nearest first, its rows per role: {checkpoint_id,
    stage, day, known, roles: {role: {traces, weight, share}}, generated_by}; ``share`` is that of the weight of the
    stage, and ``generated_by`` counts the generated rows per checkpoint or teacher that made them. The rest is about
    what the checkpoint itself was fed: counts by day, miner, category, strategy and verdict source, and by the
    checkpoints of ours whose traces came back through the arena (``own_traces``); input partitions with digests and
    versions; recipe, seeds, packages, parents, base model; ``trace_list_holds`` (the list re-hashed equals the
    manifest's), ``no_longer_in_corpus`` (traces the lake lacks today), ``changed_inputs``, ``held_out_since`` (traces
    by the stricter pool that their problem has moved to since: clusters merged, a hold-out was added),
    ``retracted_rows`` (rows of the whole chain that were retracted since) and ``flags`` (what the newest
    ``contamination`` says of it).
    """
    family = ledger.family(lake)
    if checkpoint_id not in family:
        return None
    row = ledger.checkpoint_row(lake, checkpoint_id, [family[checkpoint_id]["day"]])
    if row is None:
        return None
    manifest = row["manifest"]
    chain = _Chain(lake, family, checkpoint_id)
    traces = chain.own()
    facts = _facts_of(lake, row, traces)
    parents = chain.names[1:]
    before = [ledger.checkpoint_row(lake, name, [family[name]["day"]]) for name in parents if name in family]
    return {
        "checkpoint_id": checkpoint_id,
        "stage": row["stage"],
        "day": row["day"],
        "path": row["path"],
        "parents": parents,
        "base": manifest.get("base"),
        "control": ledger.is_control(row) or any(ledger.is_control(one) for one in before if one is not None),
        "traces": len({trace["trace_id"] for trace in traces}),
        "made_of": chain.made_of(),
        "trace_list_digest": row["trace_list_digest"],
        "trace_list_holds": ledger.list_digest(traces) == row["trace_list_digest"] == manifest["trace_list_digest"],
        "weight": sum(trace["weight"] for trace in traces),
        "days": _counts(trace["trace_day"] for trace in traces),
        "clusters": len({trace["cluster_id"] for trace in traces}),
        "problems": len({trace["problem_key"] for trace in traces}),
        **facts,
        "inputs": manifest["inputs"],
        "changed_inputs": ledger.changed_inputs(lake, manifest),
        "held_out_since": _counts(ledger.held_out_now(lake, traces)),
        "retracted_rows": chain.retracted(),
        "flags": ledger.flags_of(lake, checkpoint_id),
        "recipe": manifest["recipe"],
        "recipe_digest": manifest.get("recipe_digest"),
        "seeds": manifest["seeds"],
        "code_version": manifest["code_version"],
        "packages": manifest["packages"],
        "rows": manifest["rows"],
        "metrics": manifest["metrics"],
    }


_CORPUS_FACTS = (
    "trace_id", "miner_hotkey", "agent_version_id", "category", "strategy_cluster", "judge_kind", "score_regime",
    "outcome_source", "policy_checkpoint_id",
)  # fmt: skip


def _facts_of(lake: Lake, row: Mapping[str, Any], traces: list[dict[str, Any]]) -> dict[str, Any]:
    """Who acted, on what, judged by whom, of the traces that a checkpoint itself was fed."""
    days = sorted({trace["trace_day"] for trace in traces})
    ids = {trace["trace_id"] for trace in traces if trace["role"] != ledger.PROMPT}
    corpus = {
        entry["trace_id"]: entry
        for entry in ledger.rows_where(lake, tables.AXIS_A_CORPUS, "trace_id", ids, days, _CORPUS_FACTS)
    }
    known = [corpus[name] for name in sorted(corpus)]
    made = ledger.generated_of(lake, ids - corpus.keys())
    left = ids - corpus.keys() - made.keys()
    streamed = ledger.streamed_of(lake, left) if left and ledger.is_control(row) else set()
    ours = [entry["policy_checkpoint_id"] for entry in known if entry["policy_checkpoint_id"] is not None]
    return {
        "miners": _counts(entry["miner_hotkey"] for entry in known),
        "agent_versions": len({entry["agent_version_id"] for entry in known}),
        "categories": _counts(entry["category"] for entry in (*known, *made.values())),
        "strategies": _counts(entry["strategy_cluster"] for entry in known),
        "verdict_sources": _counts(f"{entry['judge_kind']}/{entry['score_regime']}" for entry in known),
        "outcome_sources": _counts(entry["outcome_source"] for entry in known),
        "own_traces": _counts(ours),
        "no_longer_in_corpus": sorted(left - streamed),
    }


class _Chain:
    """The rows of a checkpoint and its ancestors, read once."""

    def __init__(self, lake: Lake, family: Mapping[str, Mapping[str, Any]], checkpoint_id: str) -> None:
        import pyarrow.compute as pc

        self.names = [checkpoint_id, *ledger.ancestors(family, checkpoint_id)]
        self._lake, self._family = lake, family
        days = sorted({family[name]["day"] for name in self.names if name in family})
        learnt = text_array(ledger.LEARNT_FROM)
        chosen = pc.field("checkpoint_id").isin(text_array(self.names)) & pc.field("role").isin(learnt)
        columns = ["checkpoint_id", "trace_id", "role", "weight", "trace_day", "problem_key", "cluster_id"]
        self._rows = lake.read(tables.CHECKPOINT_TRACES, days, columns, chosen)

    def of(self, name: str) -> Any:
        """The rows of one checkpoint as an Arrow table."""
        import pyarrow.compute as pc

        return self._rows.filter(pc.equal(self._rows["checkpoint_id"], name))

    def own(self) -> list[dict[str, Any]]:
        """The rows of the checkpoint itself."""
        rows: list[dict[str, Any]] = self.of(self.names[0]).to_pylist()
        return rows

    def made_of(self) -> list[dict[str, Any]]:
        """Per checkpoint its rows by role; ``known`` is False for one that the lake does not have."""
        told = []
        for name in self.names:
            rows = self.of(name)
            counted = rows.group_by("role").aggregate([("weight", "sum"), ("trace_id", "count")]).to_pylist()
            whole = sum(row["weight_sum"] for row in counted)
            by_role = {row["role"]: row for row in counted}
            facts = self._family.get(name, {})
            told.append(
                {
                    "checkpoint_id": name,
                    "stage": facts.get("stage"),
                    "day": facts.get("day"),
                    "known": name in self._family,
                    "roles": {
                        role: {
                            "traces": by_role[role]["trace_id_count"],
                            "weight": by_role[role]["weight_sum"],
                            "share": by_role[role]["weight_sum"] / whole if whole else 0.0,
                        }
                        for role in ledger.LEARNT_FROM
                        if role in by_role
                    },
                    "generated_by": self._makers(rows),
                }
            )
        return told

    def retracted(self) -> int:
        """Rows of the whole chain that fall under a retraction."""
        stones = retractions.tombstones(self._lake)
        ids = self._rows["trace_id"].to_pylist() if stones else []
        gone = stones.among(self._lake, set(ids)) if stones else {}
        return sum(name in gone for name in ids)

    def _makers(self, rows: Any) -> dict[str, int]:
        import pyarrow.compute as pc

        maybe = rows.filter(pc.is_in(rows["role"], value_set=text_array(ledger.MAYBE_GENERATED)))
        made = ledger.generated_of(self._lake, maybe["trace_id"].to_pylist())
        return _counts(row["source"] for row in made.values())


def about_trace(
    lake: Lake, trace_id: str, *, sealed_reason: str | None = None, at: datetime | None = None
) -> dict[str, Any] | None:
    """Where a trace came from, what each stage decided and why, which checkpoints it fed; None when never seen.

    ``steps`` is in the order of the flow: {stage, decision, reason, facts}. A trace that was judged again on a later
    day goes through it once per day; what is said of the trace as a whole is said by the latest. ``fed`` are the
    checkpoints it fed directly, each with role and weight; ``inherited`` those that descend from them, as such: {
    checkpoint_id, stage, day, from}; ``retracted`` is the retraction that it falls under. A ``policy_checkpoint_id`` of
    a miner's trace says that the miner played a checkpoint of ours: it came back through the arena. A trace that a
    checkpoint or a teacher of ours generated, an attempt of an evaluation and a problem that was attempted in training
    (``prompt:`` and its key) are answered in the same form.

    Of a trace of a sealed problem (``sealed``: True) the decisions and reason codes are told and no facts, unless a
    reason is given; the look is then recorded as of ``at``.
    """
    raw = ledger.rows_where(lake, tables.RAW_TRACES, "trace_id", [trace_id])
    fed = ledger.rows_where(lake, tables.CHECKPOINT_TRACES, "trace_id", [trace_id])
    own = [] if raw else _own_steps(lake, trace_id)
    if not raw and not own and not fed:
        return None
    keys = sealing.sealed_problems_of(lake, trace_id)
    if keys is not None and sealed_reason is not None:
        sealed_ledger.record(lake, what="lineage trace", reason=sealed_reason, at=at, keys=keys, detail=trace_id)
    steps = [step for _, step in own]
    for listed in raw:
        steps.append(_raw_step(listed))
        for table, describe in _DAY_STEPS:
            rows = ledger.rows_where(lake, table, "trace_id", [trace_id], [listed["day"]])
            steps += [describe(row) for row in rows]
    last = raw[-1] if raw else _nobody(own, fed)
    for row in ledger.rows_where(lake, tables.LEAK_GUARDED_SPLITS, "trace_id", [trace_id]):
        facts = {"as_of": row["day"], "cluster": row["cluster_id"], "uses": row["uses"]}
        steps.append(_step("leak_guarded_splits", row["pool"], None, facts))
    for row in ledger.rows_where(lake, tables.SPLIT_EXCLUSIONS, "trace_id", [trace_id]):
        facts = {"as_of": row["day"], "duplicate_of": row["duplicate_of"]}
        steps.append(_step("leak_guarded_splits", "excluded", row["reason"], facts))
    scored = ledger.rows_where(lake, tables.ACTION_SCORES, "trace_id", [trace_id])
    withheld = keys is not None and sealed_reason is None
    stone = retractions.tombstones(lake).among(lake, [trace_id]).get(trace_id)
    return {
        "trace_id": trace_id,
        "retracted": None
        if stone is None
        else {**{name: stone[name] for name in _STONE}, "at": stone["at"].isoformat()},
        **{name: last[name] for name in _OF_THE_PAIR},
        "sealed": keys is not None,
        "withheld": withheld,
        "steps": [{**step, "facts": {}} for step in steps] if withheld else steps,
        "fed": [{key: row[key] for key in ("checkpoint_id", "day", "stage", "role", "weight")} for row in fed],
        "inherited": _inherited(lake, [row["checkpoint_id"] for row in fed]),
        "scored_in": _counts(row["checkpoint_id"] for row in scored),
    }


def _own_steps(lake: Lake, trace_id: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(row, step) of a trace that was made here: generated for a stage, or attempted in an evaluation."""
    made = ledger.rows_where(lake, tables.GENERATED_TRACES, "trace_id", [trace_id])
    tried = ledger.rows_where(lake, tables.ROLLOUTS, "trace_id", [trace_id])
    return [*((row, _generated_step(row)) for row in made), *((row, _rollout_step(row)) for row in tried)]


def _nobody(own: list[tuple[dict[str, Any], dict[str, Any]]], fed: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said of a trace that no miner made."""
    row = own[-1][0] if own else {"day": fed[-1]["trace_day"]}
    return {name: row.get(name) for name in _OF_THE_PAIR} | {
        "policy_checkpoint_id": row.get("source") or row.get("checkpoint_id")
    }


def _inherited(lake: Lake, fed: list[str]) -> list[dict[str, Any]]:
    """Descendants of the checkpoints that a trace fed; ``from`` names those it fed, the nearest first."""
    family = ledger.family(lake) if fed else {}
    return [
        {**{key: family[name][key] for key in ("checkpoint_id", "stage", "day")}, "from": chain}
        for name, chain in ledger.heirs(family, fed).items()
    ]


def _generated_step(row: Mapping[str, Any]) -> dict[str, Any]:
    facts = {
        "for": row["stage"],
        "by": row["source"],
        "problem": row["problem_id"],
        "attempt": row["sample"],
        "ended": row["ending"],
        "outcome": row["outcome"],
        "conduct": row["conduct_score"],
        "reasoning": row["reasoning_quality"],
        "judge": row["judge_kind"],
        "recommended": row["recommended_ids"],
        "hallucinated": row["hallucinated_ids"],
        "detail": row["detail"],
    }
    return _step("generated_traces", "accepted" if row["accepted"] else "rejected", row["reason"], facts)


def _rollout_step(row: Mapping[str, Any]) -> dict[str, Any]:
    facts = {
        "by": row["checkpoint_id"],
        "for": row["stage"],
        "problem": row["problem_id"],
        "attempt": row["sample"],
        "steps": row["steps"],
    }
    return _step("rollouts", row["ending"], row["ending_detail"], facts)


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
_STONE = ("retraction_id", "at", "who", "kind", "subject", "reason")
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
