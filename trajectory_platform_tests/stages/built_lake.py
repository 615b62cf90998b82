"""A lake whose input tables are written directly, so that a test of the as-of stages needs no raw days."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from trajectory_platform.lake import tables
from trajectory_platform.lake.manifests import Manifest
from trajectory_platform.lake.tables import Table
from trajectory_platform.sandbox.problems import Problem, to_table
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext

_EMPTY: Mapping[str, Any] = {"text": "", "int": 0, "float": 0.0, "bool": False, "texts": []}


def context(root: Path, **changes: Any) -> StageContext:
    """A stage context over an empty lake."""
    values: dict[str, Any] = {"pool_key": "test-key", "min_problems_for_share": 10**6}
    values |= {"data_root": str(root / "days")} | changes
    return StageContext(Settings(lake_uri=str(root / "lake"), checkpoint_root=str(root / "checkpoints"), **values))


def row(table: Table, **values: Any) -> dict[str, Any]:
    """A row of a table: what a test does not state is empty, or null where it may be."""
    base = {name: None if kind.endswith("?") else _EMPTY.get(kind) for name, kind in table.columns.items()}
    for name, allowed in table.values.items():
        base[name] = allowed[0]
    return base | values


def publish(
    ctx: StageContext,
    table: Table,
    day: str,
    rows: Iterable[Mapping[str, Any]] | pa.Table,
    *,
    part: dict[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
    summary: Mapping[str, Any] | None = None,
) -> Manifest:
    """Publish rows of a day as they are."""
    if not isinstance(rows, pa.Table):
        rows = pa.Table.from_pylist(list(rows), schema=table.schema())
    return ctx.lake.publish(
        table,
        day,
        rows,
        identity="given",
        inputs=dict(inputs or {}),
        code_version="1",
        settings={},
        part=part,
        summary=summary,
    )


def publish_day(ctx: StageContext, day: str, problems: Iterable[Problem], traces: Iterable[Mapping[str, Any]]) -> None:
    """The input tables of a day.

    A trace has trace_id, problem_id and, optionally, problem_key, suite_id, query (the user's words), said (the
    assistant's), agent, signature, uses, success, ids, state, content_hash, category.
    """
    listed = list(traces)
    publish(ctx, tables.PROBLEM_SUITES, day, to_table(list(problems), day))
    raw = [row(tables.RAW_TRACES, day=day, folder_day=day, **_common(one), state=_state(one)) for one in listed]
    publish(ctx, tables.RAW_TRACES, day, raw)
    kept = [one for one in listed if _state(one) == "trace"]
    publish(ctx, tables.JUDGED_TRACES, day, [_judged(one, day) for one in kept])
    publish(ctx, tables.AXIS_A_CORPUS, day, [_accepted(one, day) for one in kept])


def _state(one: Mapping[str, Any]) -> str:
    return str(one.get("state", "trace"))


def _common(one: Mapping[str, Any]) -> dict[str, Any]:
    values = {"trace_id": one["trace_id"], "problem_id": one["problem_id"], "suite_id": one.get("suite_id", "1")}
    return values | {"category": one.get("category", "product")}


def _judged(one: Mapping[str, Any], day: str) -> dict[str, Any]:
    success = bool(one.get("success", True))
    return row(
        tables.JUDGED_TRACES,
        day=day,
        **_common(one),
        problem_key=one.get("problem_key"),
        query=one.get("query"),
        outcome="success" if success else "failure",
        outcome_success=success,
        outcome_source="rule",
        recommended_ids=one.get("ids", []),
    )


def _accepted(one: Mapping[str, Any], day: str) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": one.get("query") or "a wish"},
        {"role": "assistant", "content": one.get("said", "done")},
    ]
    return row(
        tables.AXIS_A_CORPUS,
        day=day,
        **_common(one),
        problem_key=one.get("problem_key"),
        agent_version_id=one.get("agent"),
        content_hash=one.get("content_hash", f"hash of {one['trace_id']}"),
        messages=json.dumps(messages),
        tools="[]",
        uses=one.get("uses", ["sft"]),
        quality=1.0,
        strategy_signature=one.get("signature", ""),
    )


def publish_checkpoint(ctx: StageContext, day: str, name: str | None = None) -> str:
    """What a training stage would publish of the train pool as of a day, without the training."""
    name = name or f"sft-{day}"
    rows = [
        row(
            tables.CHECKPOINT_TRACES,
            checkpoint_id=name,
            stage="sft",
            role="train",
            weight=1.0,
            **{key: one[key] for key in ("day", "trace_id", "trace_day", "problem_key", "cluster_id")},
        )
        for one in ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [day]).to_pylist()
        if one["pool"] == "train" and "sft" in one["uses"]
    ]
    publish(ctx, tables.CHECKPOINT_TRACES, day, rows, part={"stage": "sft"})
    return name


def key_of(problem: Problem) -> str:
    return problem.problem_key
