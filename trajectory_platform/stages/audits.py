"""Audits: what the platform promises about a published day, counted again from the tables as a user reads them.

Each takes (context, day) and returns ``{"passed": bool, ...counts}``; none writes anything. A table that cannot be
read, or was never published, fails its audit: nothing is promised about rows that nobody saw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import StageContext

Audit = Callable[[StageContext, str], dict[str, Any]]


def conservation(ctx: StageContext, day: str) -> dict[str, Any]:
    """found + moved_in = accepted + rejected + moved_out (design 3)."""
    summary = ctx.lake.read(tables.DAY_SUMMARIES, [day]).to_pylist()
    if not summary:
        return {"passed": False, "reason": "day was never ingested"}
    row = summary[0]
    raw = set(ctx.lake.read(tables.RAW_TRACES, [day], columns=["trace_id"]).column("trace_id").to_pylist())
    accepted = ctx.lake.read(tables.AXIS_A_CORPUS, [day], columns=["trace_id"]).column("trace_id").to_pylist()
    rejected = ctx.lake.read(tables.REJECTED_TRACES, [day], columns=["trace_id"]).column("trace_id").to_pylist()
    left, right = row["found"] + row["moved_in"], len(accepted) + len(rejected) + row["moved_out"]
    return {
        "passed": left == right and set(accepted) | set(rejected) == raw and len(accepted) + len(rejected) == len(raw),
        "found": row["found"],
        "moved_in": row["moved_in"],
        "accepted": len(accepted),
        "rejected": len(rejected),
        "moved_out": row["moved_out"],
    }


def accepted_rows(ctx: StageContext, day: str) -> dict[str, Any]:
    """Accepted rows are readable, usable, axis A, carry a use, and are not rejected as well."""
    if ctx.lake.manifest(tables.AXIS_A_CORPUS, day) is None:
        return _not_published(tables.AXIS_A_CORPUS.name, day)
    columns = ["trace_id", "axis_label", "uses"]
    accepted = ctx.lake.read(tables.AXIS_A_CORPUS, [day], columns=columns).to_pylist()
    readable = {
        row["trace_id"]
        for row in ctx.lake.read(tables.TRAJECTORIES, [day], columns=["trace_id", "readable"]).to_pylist()
        if row["readable"]
    }
    rejected = set(ctx.lake.read(tables.REJECTED_TRACES, [day], columns=["trace_id"]).column("trace_id").to_pylist())
    injected = {
        row["trace_id"]
        for row in ctx.lake.read(tables.JUDGED_TRACES, [day], columns=["trace_id", "injection_suspected"]).to_pylist()
        if row["injection_suspected"]
    }
    bad = [
        row["trace_id"]
        for row in accepted
        if row["axis_label"] != "A"
        or not row["uses"]
        or row["trace_id"] not in readable
        or row["trace_id"] in rejected
        or row["trace_id"] in injected
    ]
    return {"passed": not bad, "accepted": len(accepted), "bad": len(bad), "first_bad": bad[:3]}


def content_digest(*names: str) -> Audit:
    """The published rows of a day still have the digests that the manifests of these tables record."""

    def audit(ctx: StageContext, day: str) -> dict[str, Any]:
        from trajectory_platform.lake.verification import verify

        damages = [f"{one.table}: {one.reason}: {one.detail}" for one in verify(ctx.lake, names, [day])]
        damages += [f"{name}: not published" for name in names if day not in ctx.lake.days(name)]
        return {"passed": not damages, "problems": damages[:3]}

    return audit


def pools_disjoint(ctx: StageContext, day: str) -> dict[str, Any]:
    """No leak cluster, problem or text stands in two pools of the published splits, and the pools are the clusters'."""
    from trajectory_platform.splits import guard

    if ctx.lake.manifest(tables.LEAK_GUARDED_SPLITS, day) is None:
        return _not_published(tables.LEAK_GUARDED_SPLITS.name, day)
    splits = ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [day])
    columns = ["problem_key", "cluster_id", "pool"]
    clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [day], columns=columns).to_pylist()
    drawn = {row["problem_key"]: (row["cluster_id"], row["pool"]) for row in clusters}
    try:
        guard.assert_disjoint(splits)
    except FailPartition as error:
        return {"passed": False, "reason": str(error)}
    other = [
        row["trace_id"]
        for row in splits.to_pylist()
        if drawn.get(row["problem_key"]) != (row["cluster_id"], row["pool"])
    ]
    return {"passed": not other, "traces": splits.num_rows, "not as in leak_clusters": other[:3]}


def checkpoint_intact(stage: str) -> Audit:
    """Files, manifest and the published trace list of the checkpoints of a stage agree."""

    def audit(ctx: StageContext, day: str) -> dict[str, Any]:
        from pathlib import Path

        import pyarrow.compute as pc

        from trajectory_platform.training import checkpoints

        if ctx.lake.manifest(tables.CHECKPOINTS, day, {"stage": stage}) is None:
            return _not_published(tables.CHECKPOINTS.name, f"{day} {stage}")
        own = pc.field("stage") == stage
        problems = []
        listed = ctx.lake.read(tables.CHECKPOINTS, [day], filter=own).to_pylist()
        columns = ["checkpoint_id", "trace_id", "role"]
        traced = ctx.lake.read(tables.CHECKPOINT_TRACES, [day], columns=columns, filter=own).to_pylist()
        for row in listed:
            name = row["checkpoint_id"]
            fed = [trace for trace in traced if trace["checkpoint_id"] == name]
            try:
                checkpoints.verify_checkpoint(Path(ctx.settings.checkpoint_root) / row["path"])
            except FailPartition as error:
                problems.append(str(error))
            if checkpoints.trace_list_digest(fed) != row["trace_list_digest"]:
                problems.append(f"{name}: checkpoint_traces is not the list it was trained on")
        return {"passed": not problems, "checkpoints": len(listed), "problems": problems[:3]}

    return audit


def generated_accounted(stage: str) -> Audit:
    """Every planned attempt of what was generated for a stage is there, accepted or with a reason; accepted ones are
    strict successes on train problems without an invented id."""

    def audit(ctx: StageContext, day: str) -> dict[str, Any]:
        from trajectory_platform.stages.generated_slots import accepted_digest, present_traces

        manifest = ctx.lake.manifest(tables.GENERATED_TRACES, day, {"stage": stage})
        if manifest is None:
            return _not_published(tables.GENERATED_TRACES.name, f"{day} {stage}")
        clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [day], columns=["problem_key", "pool"]).to_pylist()
        train = {row["problem_key"] for row in clusters if row["pool"] == "train"}
        rows = present_traces(ctx, day, stage)
        accepted = [row for row in rows if row["accepted"]]
        bad = [
            row["trace_id"]
            for row in rows
            if row["problem_key"] not in train
            or row["accepted"] != (row["reason"] is None)
            or (row["accepted"] and (not row["success"] or row["hallucinated_ids"]))
        ]
        told = manifest.summary
        counted = {"attempts": len(rows), "accepted": len(accepted)}
        same = all(told[name] == count for name, count in counted.items())
        if rows:
            same = same and told["accepted_digest"] == accepted_digest(rows)
        return {"passed": same and not bad, **counted, "as published": same, "bad": bad[:3]}

    return audit


def audited(audit: Audit, ctx: StageContext, day: str) -> dict[str, Any]:
    """The facts of an audit; damage that keeps it from reading is a failed audit, not a broken one."""
    try:
        return audit(ctx, day)
    except FailPartition as error:
        return {"passed": False, "reason": str(error)}


def _not_published(table: str, day: str) -> dict[str, Any]:
    return {"passed": False, "reason": f"{table} {day} is not published"}
