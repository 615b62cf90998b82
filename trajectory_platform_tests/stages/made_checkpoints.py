"""Checkpoints of a lake without any training: the rows a stage would publish, made from the splits."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from trajectory_platform.lake import tables
from trajectory_platform.stages.context import StageContext
from trajectory_platform.training.checkpoints import trace_list_digest
from trajectory_platform_tests.stages.built_lake import row


def made(
    ctx: StageContext, day: str, stage: str = "sft", parent: str | None = None, seconds: float | None = 10.0
) -> str:
    """What training a stage on the day's train pool would publish; the id tells the traces apart."""
    fed = [one for one in ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [day]).to_pylist() if one["pool"] == "train"]
    traces = [
        {
            **{key: one[key] for key in ("trace_id", "trace_day", "problem_key", "cluster_id")},
            "role": "train",
            "weight": 1.0,
        }
        for one in fed
    ]
    digest = trace_list_digest(traces)
    name = f"{stage}-{day}-{digest[:12]}"
    manifest: dict[str, Any] = {
        "checkpoint_id": name, "inputs": {}, "recipe": {"name": "made", "stages": {}}, "seeds": {"training": 0},
        "code_version": "1", "packages": {}, "rows": {}, "metrics": {}, "trace_list_digest": digest,
    }  # fmt: skip
    told = row(
        tables.CHECKPOINTS, checkpoint_id=name, day=day, stage=stage, parent=parent, path=name,
        manifest=json.dumps(manifest), trace_list_digest=digest, traces=len(traces),
    )  # fmt: skip
    rows = [row(tables.CHECKPOINT_TRACES, checkpoint_id=name, day=day, stage=stage, **one) for one in traces]
    summary = {"checkpoint_id": name, **({"run_seconds": seconds, "run_tokens": 100} if seconds else {})}
    for table, added in ((tables.CHECKPOINT_TRACES, rows), (tables.CHECKPOINTS, [told])):
        held = [
            one
            for one in ctx.lake.read(table, [day]).to_pylist()
            if one["stage"] == stage and one["checkpoint_id"] != name
        ]
        ctx.lake.publish(
            table, day, pa.Table.from_pylist([*held, *added], schema=table.schema()), identity=name, inputs={},
            code_version="1", settings={}, summary=summary, part={"stage": stage},
        )  # fmt: skip
    return name
