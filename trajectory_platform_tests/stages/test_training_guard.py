"""Nothing held out gets into a training stage wherever its rows come from, and what an ancestor saw counts as seen."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation import child
from trajectory_platform.lake import tables
from trajectory_platform.sandbox.problems import Problem
from trajectory_platform.settings import HoldOut
from trajectory_platform.stages import audits, splits
from trajectory_platform.stages.attempted_problems import chosen_problems
from trajectory_platform.stages.checkpoints import seen_rows
from trajectory_platform.stages.contamination import contamination, seen_table
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.eval_pools import pool_problems
from trajectory_platform.stages.generated_slots import accepted_digest
from trajectory_platform.stages.training_guard import HeldOut
from trajectory_platform.stages.training_stages import train_stage, training_of
from trajectory_platform_tests.splits.rows import public
from trajectory_platform_tests.stages.built_lake import context, publish, publish_day, row
from trajectory_platform_tests.stages.recipes import write_recipe

DAY = "2026-05-01"
OPEN = public("open", "a small round brass bell for a bicycle handlebar please", ["1"])
SECRET = public("secret", "find a large green garden umbrella with a heavy stone foot below forty", ["2"])
BORROWER = public("borrower", f"something else, but {SECRET.query} would do as well", ["3"])
Row = dict[str, Any]


@pytest.fixture
def ctx(tmp_path: Path) -> StageContext:
    """Two train problems, one of which quotes the third, which is held out for dev."""
    held = HoldOut(pool="dev", since=date(2026, 4, 1), problem_key=SECRET.problem_key)
    made = context(tmp_path, hold_outs=(held,), pool_train=100, pool_dev=0, pool_sealed=0)
    traces = [
        {"trace_id": f"run:{one.problem_id}", "problem_id": one.problem_id, "problem_key": one.problem_key}
        for one in (OPEN, SECRET, BORROWER)
    ]
    publish_day(made, DAY, [OPEN, SECRET, BORROWER], traces)
    splits.leak_clusters(made, DAY)
    splits.leak_guarded_splits(made, DAY)
    return made


def place_of(ctx: StageContext, problem: Problem) -> str:
    rows = ctx.lake.read(tables.LEAK_CLUSTERS, [DAY]).to_pylist()
    return str(next(one["cluster_id"] for one in rows if one["problem_key"] == problem.problem_key))


def record(ctx: StageContext, problem: Problem, said: str = "done", **values: Any) -> Row:
    messages = [{"role": "user", "content": problem.query}, {"role": "assistant", "content": said}]
    place = {"problem_key": problem.problem_key, "cluster_id": place_of(ctx, problem)}
    return {"trace_id": "generated-x:1", **place, "messages": json.dumps(messages)} | values


def test_a_row_of_a_train_problem_passes_and_a_held_out_one_does_not(ctx: StageContext) -> None:
    held_out = HeldOut(ctx, DAY)
    held_out.check([record(ctx, OPEN)], texts=True)
    with pytest.raises(FailPartition, match="not in the train pool"):
        held_out.check([record(ctx, SECRET)], texts=False)
    with pytest.raises(FailPartition, match="not in the train pool"):
        held_out.check([record(ctx, OPEN, problem_key="never seen")], texts=False)
    assert held_out.cluster_ids() == [place_of(ctx, SECRET)]


def test_a_row_whose_cluster_has_changed_since_it_was_made_is_refused(ctx: StageContext) -> None:
    with pytest.raises(FailPartition, match="no longer in cluster"):
        HeldOut(ctx, DAY).check([record(ctx, OPEN, cluster_id="lc-older")], texts=False)


def test_words_of_a_held_out_problem_are_found_in_generated_rows_and_prompts(ctx: StageContext) -> None:
    held_out = HeldOut(ctx, DAY)
    told = record(ctx, OPEN, said=f"I was asked before: {SECRET.query}")
    assert held_out.restated("x", told["messages"]) is not None
    with pytest.raises(FailPartition, match="hold the text of held-out problems"):
        held_out.check([told], texts=True)
    selection, left_out = chosen_problems(ctx, DAY, held_out, limit=None, seed=0)
    assert [one.problem.problem_id for one in selection.chosen] == ["open"] and left_out == 1


def trained(ctx: StageContext, name: str, stage: str, parent: str | None, problem: Problem, role: str) -> None:
    part = {"stage": stage}
    manifest = json.dumps({"recipe": {}})
    made = {"checkpoint_id": name, "day": DAY, "stage": stage, "parent": parent, "path": name, "manifest": manifest}
    told = {"checkpoint_id": name, "reason": ""}
    publish(ctx, tables.CHECKPOINTS, DAY, [row(tables.CHECKPOINTS, **made)], part=part, summary=told)
    fed = {"trace_id": f"run:{problem.problem_id}", "problem_key": problem.problem_key, "role": role, "weight": 1.0}
    fed |= {"checkpoint_id": name, "day": DAY, "stage": stage, "trace_day": DAY, "cluster_id": place_of(ctx, problem)}
    publish(ctx, tables.CHECKPOINT_TRACES, DAY, [row(tables.CHECKPOINT_TRACES, **fed)], part=part)


def test_a_checkpoint_is_not_measured_on_what_its_parent_saw(ctx: StageContext) -> None:
    """The parent trained on a problem that was held out later; the child saw nothing of it itself."""
    trained(ctx, "sft-x", "sft", None, SECRET, "train")
    trained(ctx, "kto-x", "kto", "sft-x", OPEN, "desirable")
    suites = [DAY]
    assert pool_problems(ctx, DAY, suites, "dev", None)
    with pytest.raises(FailPartition, match="leak: training row run:secret"):
        pool_problems(ctx, DAY, suites, "dev", "kto-x")
    assert [one["checkpoint_id"] for one in seen_rows(ctx, "kto-x")] == ["kto-x", "sft-x"]


def test_nothing_is_trained_on_top_of_a_parent_that_saw_what_is_held_out_now(
    ctx: StageContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage started alone: the ones before it are of older clusters, and their weights have what these hold out."""
    monkeypatch.setattr(child, "plain_runner", lambda *_: pytest.fail("nothing is to be trained"))
    recipe = write_recipe(tmp_path, stages=("sft", "resft", "kto"))
    ctx = StageContext(ctx.settings.model_copy(update={"recipe": recipe}))
    trained(ctx, "sft-x", "sft", None, SECRET, "train")
    trained(ctx, "resft-x", "resft", "sft-x", OPEN, "generated")
    for name in ("sft-x", "resft-x"):
        (Path(ctx.settings.checkpoint_root) / name).mkdir(parents=True)
    with pytest.raises(FailPartition, match="parent resft-x has seen 1 rows.*run:secret of sft-x.*train the stages"):
        train_stage(ctx, DAY, row=training_of("kto"), run=None)
    HeldOut(ctx, DAY).check_parent("resft-x", [one for one in seen_rows(ctx, "resft-x") if one["stage"] == "resft"])


def test_a_damaged_parent_is_named_with_the_way_out(
    ctx: StageContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "plain_runner", lambda *_: pytest.fail("nothing is to be trained"))
    settings = ctx.settings.model_copy(update={"recipe": write_recipe(tmp_path, stages=("sft", "kto"))})
    ctx = StageContext(settings)
    trained(ctx, "sft-x", "sft", None, OPEN, "train")
    (Path(settings.checkpoint_root) / "sft-x").mkdir(parents=True)
    with pytest.raises(FailPartition, match=r"sft-x: no manifest.json; remove its folder and train again"):
        train_stage(ctx, DAY, row=training_of("kto"), run=None)


def test_contamination_flags_the_descendants_too(ctx: StageContext) -> None:
    trained(ctx, "sft-x", "sft", None, SECRET, "train")
    trained(ctx, "kto-x", "kto", "sft-x", OPEN, "desirable")
    trained(ctx, "kto-y", "resft", None, OPEN, "generated")
    summary = contamination(ctx, DAY).summary
    assert {name for name, told in summary["flagged"].items() if "dev_problems" in told} == {"sft-x", "kto-x"}
    rows = ctx.lake.read(tables.CONTAMINATION, [DAY]).to_pylist()
    dirty = {one["checkpoint_id"] for one in rows if one["status"] == "same_cluster"}
    assert dirty == {"sft-x", "kto-x"} and summary["checkpoints"] == 3
    assert {one["trace_id"] for one in seen_table(ctx, DAY, "kto").to_pylist()} == {"run:secret", "run:open"}
    assert contamination(ctx, DAY).skipped


def test_a_parent_that_is_its_own_ancestor_ends_the_chain(ctx: StageContext) -> None:
    trained(ctx, "sft-x", "sft", "kto-x", OPEN, "train")
    trained(ctx, "kto-x", "kto", "sft-x", OPEN, "desirable")
    assert [one["checkpoint_id"] for one in seen_rows(ctx, "kto-x")] == ["kto-x", "sft-x"]


def test_generated_attempts_are_counted_again_and_must_still_be_of_train_problems(ctx: StageContext) -> None:
    audit = audits.generated_accounted("teacher_sft")

    def audited(*rows: Row, attempts: int = 2, accepted: int = 1) -> dict[str, Any]:
        made = [row(tables.GENERATED_TRACES, **one) for one in rows]
        told = {"source": "t@1", "attempts": attempts, "accepted": accepted, "accepted_digest": accepted_digest(made)}
        publish(ctx, tables.GENERATED_TRACES, DAY, made, part={"stage": "teacher_sft"}, summary=told)
        return audit(ctx, DAY)

    def attempt(number: int, problem: Problem = OPEN, **values: Any) -> Row:
        place = {"problem_key": problem.problem_key, "cluster_id": place_of(ctx, problem), "day": DAY}
        who = {"trace_id": f"generated-x:{number}", "stage": "teacher_sft", "source": "t@1"}
        return {**place, **who, "sample": number, "accepted": False, "reason": "not_strict"} | values

    good: dict[str, Any] = {"accepted": True, "reason": None, "success": True}
    assert not audit(ctx, DAY)["passed"], "nothing is promised about what nobody made"
    other = attempt(9, source="someone@1", stage="teacher_sft")  # another teacher's rows stay beside them
    assert audited(attempt(1, **good), attempt(2), other)["passed"]
    assert not audited(attempt(1, **good))["passed"], "an attempt is missing"
    assert not audited(attempt(1, **good), attempt(2, reason=None))["passed"], "neither accepted nor a reason"
    assert not audited(attempt(1, **good | {"success": False}), attempt(2))["passed"]
    assert not audited(attempt(1, **good, hallucinated_ids=["7"]), attempt(2))["passed"]
    assert not audited(attempt(1, SECRET, **good), attempt(2))["passed"], "held out since"
