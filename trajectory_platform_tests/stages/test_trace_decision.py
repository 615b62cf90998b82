"""``traces show`` explains a decision: every judge's verdict, every dispatch, every stage (issue 4, "Explainable")."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.curation.config import DAY_STAGES, ROW_STAGES
from trajectory_platform.errors import Abort
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages import daily
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.traces import find_trace, render_trace
from trajectory_platform_tests.conftest import shared_folder

DAY = "2026-05-02"


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StageContext]:
    days = shared_folder() / "days"
    if not days.is_dir():
        pytest.skip(f"no shared days in {days}")
    root = tmp_path_factory.mktemp("decisions")
    made = StageContext(Settings(data_root=str(days), lake_uri=str(root / "lake")))
    for stage in (daily.raw_traces, daily.problem_suites, daily.trajectories, daily.judged_traces, daily.axis_a_corpus):
        stage(made, DAY)
    yield made


def show(ctx: StageContext, trace_id: str, **changes: Any) -> dict[str, Any]:
    from datetime import UTC, datetime

    settings = ctx.settings.model_copy(update=changes)
    return find_trace(settings, trace_id, sealed_reason="test", at=datetime(2026, 5, 3, tzinfo=UTC))


def rejected(ctx: StageContext) -> dict[str, dict[str, Any]]:
    """One row per reason."""
    rows = ctx.lake.read(tables.REJECTED_TRACES, [DAY]).to_pylist()
    return {f"{row['stage']}:{row['reason']}": row for row in reversed(rows)}


def test_the_first_objection_on_the_path_is_the_published_reason(ctx: StageContext) -> None:
    readable = set(ctx.lake.read(tables.TRAJECTORIES, [DAY], columns=["trace_id"]).column("trace_id").to_pylist())
    told = 0
    for row in rejected(ctx).values():
        if row["trace_id"] not in readable:
            with pytest.raises(Abort, match=f"rejected at {row['stage']}: {row['reason']}"):
                show(ctx, row["trace_id"])
            continue
        path = show(ctx, row["trace_id"])["decision"]["path"]
        assert tuple(step["stage"] for step in path) == (*ROW_STAGES, *DAY_STAGES)
        first = next(step for step in path if step["state"] == "objects")
        assert (first["stage"], first["reason"]) == (row["stage"], row["reason"])
        told += 1
    assert told >= 6


def test_an_accepted_trace_shows_its_verdicts_its_dispatches_and_its_uses(ctx: StageContext) -> None:
    accepted = ctx.lake.read(tables.AXIS_A_CORPUS, [DAY], columns=["trace_id", "uses", "situation"]).to_pylist()
    verdicts = ctx.lake.read(tables.VERDICTS, [DAY]).to_pylist()
    for one in accepted[:10]:
        row = show(ctx, one["trace_id"])
        told = row["decision"]
        assert {step["state"] for step in told["path"]} == {"passed"}
        kinds = {verdict["judge_kind"] for verdict in verdicts if verdict["trace_id"] == one["trace_id"]}
        assert {verdict["judge_kind"] for verdict in told["verdicts"]} == kinds
        assert sum(verdict["counts"] for verdict in told["verdicts"]) == 1
        reasons = [dispatch["reason"] for dispatch in told["axis"]["dispatches"]]
        assert reasons and set(reasons) <= {"matched", "composite_child", "retry_child"}
        text = render_trace(row)
        assert f"uses: {', '.join(one['uses'])} ({one['situation']})" in text
        assert text.count("\n") > len(reasons) + len(told["path"])


def test_switches_and_order_of_the_settings_are_told(ctx: StageContext, tmp_path: Path) -> None:
    injected = rejected(ctx)["injection:injection"]["trace_id"]
    options = tmp_path / "filter.yaml"
    order = ["ingest", "read", "judge", "outcome", "axis", "format", "protocol", "injection", "duplicate"]
    options.write_text(f"order: [{', '.join(order)}]\nskip: [injection, caps]\n", "utf-8")
    path = show(ctx, injected, filter=str(options))["decision"]["path"]
    assert [step["stage"] for step in path] == [*order, *DAY_STAGES]
    assert [step["stage"] for step in path if step["state"] == "off"] == ["injection", "caps"]


def test_a_day_stage_passes_what_came_before_it(ctx: StageContext) -> None:
    copy = rejected(ctx)["strategy:strategy_copy"]
    path = {step["stage"]: step for step in show(ctx, copy["trace_id"])["decision"]["path"]}
    assert [path[stage]["state"] for stage in DAY_STAGES] == ["passed", "objects", "asked_later"]
    assert copy["duplicate_of"] in render_trace(show(ctx, copy["trace_id"]))
