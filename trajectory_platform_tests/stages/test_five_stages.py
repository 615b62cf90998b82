"""All five stages on simulated days, in one process: chained, guarded, compared, answerable, and skipped when current.

The parent of re-SFT is played by a script, because a model of two optimiser steps solves nothing; everything else is
the real thing in tiny amounts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.evaluation import child, rollout_launch
from trajectory_platform.lake import tables
from trajectory_platform.lineage import ledger, questions, words
from trajectory_platform.settings import Settings
from trajectory_platform.stages import audits, closing, generated
from trajectory_platform.stages.checkpoints import current_checkpoint, last_checkpoint, seen_rows
from trajectory_platform.stages.contamination import seen_table
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.evaluations import EVALUATIONS, evaluated_rows
from trajectory_platform.stages.plain import train_days
from trajectory_platform.stages.report import report_data, write_report
from trajectory_platform.stages.stage_table import stage_rows
from trajectory_platform.training.checkpoints import verify_checkpoint
from trajectory_platform.training.stage_recipes import STAGES
from trajectory_platform_tests.stages.arena_days import DAYS, here, ingest, make_days, settings_for
from trajectory_platform_tests.stages.recipes import write_recipe

DAY = DAYS[1]
# two rows a stage are drawn: of their own ones, so that it does not hang on the draw which roles are there
HOW: dict[str, Any] = {"stages": STAGES, "stages__resft__corpus_share": 0.0, "stages__teacher_sft__corpus_share": 0.0}
ROLES = {
    "sft": {"train"},
    "resft": {"generated"},
    "teacher_sft": {"teacher"},
    "kto": {"desirable", "undesirable"},
    "dr_grpo": {"prompt", "reference"},
}


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    """Children work here, and whoever evaluates or asks the SFT checkpoint gets a script that can shop."""
    real = rollout_launch.trained

    def acting(name: str, folder: Path, threads: int, options: Any = None) -> rollout_launch.Subject:
        if name.startswith("sft-"):
            return rollout_launch.Subject(name, {"kind": "spec", "spec": "script:search_and_check"})
        return real(name, folder, threads, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "plain_runner", lambda *_: here)
        patch.setattr(rollout_launch, "trained", acting)
        yield


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Two days and every stage trained as of the second."""
    root = tmp_path_factory.mktemp("five")
    pools = {"pool_train": 60, "pool_dev": 30, "pool_sealed": 10}
    made = settings_for(
        make_days(root / "days", days=2, traces=70), root / "lake", recipe=write_recipe(root, **HOW), **pools
    )
    ingest(made, DAYS[:2])
    facts = train(made)
    assert {fact["state"] for fact in facts} == {"published"}, [one for one in facts if one["state"] == "failed"]
    return made


def train(settings: Settings, stage: str = "all") -> list[dict[str, Any]]:
    return list(train_days(settings, stage, DAY))


def checkpoint(settings: Settings, stage: str) -> dict[str, Any]:
    found = current_checkpoint(StageContext(settings), DAY, stage)
    assert found is not None, stage
    return found


def test_each_stage_starts_where_the_one_before_ended(settings: Settings) -> None:
    ctx = StageContext(settings)
    chain = [checkpoint(settings, stage)["checkpoint_id"] for stage in STAGES]
    for stage, name, parent in zip(STAGES, chain, [None, *chain], strict=False):
        row = checkpoint(settings, stage)
        assert row["parent"] == parent
        manifest = verify_checkpoint(Path(settings.checkpoint_root) / row["path"])
        assert [one["checkpoint_id"] for one in manifest["ancestors"]] == chain[: chain.index(name)]
        own = [one for one in seen_rows(ctx, name) if one["checkpoint_id"] == name]
        assert {one["role"] for one in own} == ROLES[stage] == set(manifest["roles"])
        assert audits.checkpoint_intact(stage)(ctx, DAY)["passed"]
    last = last_checkpoint(ctx, DAY)
    assert last is not None and last["stage"] == STAGES[-1]


def test_nothing_held_out_was_seen_in_any_role(settings: Settings) -> None:
    ctx = StageContext(settings)
    rows = ctx.lake.read(tables.LEAK_CLUSTERS, [DAY]).to_pylist()
    pools = {row["problem_key"]: row["pool"] for row in rows}
    everything = seen_rows(ctx, checkpoint(settings, "dr_grpo")["checkpoint_id"])
    assert {row["role"] for row in everything} == set.union(*ROLES.values())
    assert {pools[row["problem_key"]] for row in everything} == {"train"}
    made = ctx.lake.read(tables.GENERATED_TRACES, [DAY]).to_pylist()
    assert {pools[row["problem_key"]] for row in made} == {"train"}
    assert {row["stage"] for row in made if row["accepted"]} == {"resft", "teacher_sft"}
    assert all(row["success"] and not row["hallucinated_ids"] for row in made if row["accepted"])
    assert all(row["reason"] for row in made if not row["accepted"])


def test_a_second_run_commits_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = StageContext(settings).lake
    names = ("checkpoints", "checkpoint_traces", "generated_traces", "eval_scores", "rollouts", "contamination")
    before = [lake.manifests(name) for name in names]
    monkeypatch.setattr(child, "plain_runner", lambda *_: pytest.fail("nothing is to be started"))
    assert {fact["state"] for fact in train(settings)} == {"current"}
    assert [lake.manifests(name) for name in names] == before


def test_all_stages_meet_the_same_problems_and_are_paired(settings: Settings, tmp_path: Path) -> None:
    ctx = StageContext(settings)
    keys = {row.stage: {one["problem_key"] for one in evaluated_rows(ctx, DAY, row)} for row in EVALUATIONS}
    assert len(set(map(frozenset, keys.values()))) == 1
    table = {row["stage"]: row for row in stage_rows(ctx, DAY)}
    assert list(table) == ["base", *STAGES]
    for before, stage in zip(table, STAGES, strict=False):
        assert table[stage]["against"] == before and table[stage]["difference"] is not None
    grounded = [one for row in EVALUATIONS for one in evaluated_rows(ctx, DAY, row) if one["process_reference"]]
    assert grounded and all(-1 <= one["process_score"] <= 1 for one in grounded if one["process_score"] is not None)
    corpus = ctx.lake.read(tables.AXIS_A_CORPUS, DAYS[:2], columns=["trace_id"]).column("trace_id").to_pylist()
    assert {one["process_reference"] for one in grounded} <= set(corpus)
    assert "points on kto" in closing.tasks_text(ctx, DAY)
    page = write_report(settings, tmp_path / "report.html", DAY).read_text("utf-8")
    assert "Stage by stage" in page and checkpoint(settings, "dr_grpo")["checkpoint_id"] in page
    masks = report_data(ctx, closing.day_summaries(ctx)).loss_masks
    assert [mask["stage"] for mask in masks] == ["sft", "resft", "teacher_sft", "kto"]


def test_lineage_tells_what_was_fed_and_what_was_inherited(settings: Settings) -> None:
    ctx = StageContext(settings)
    ids = {stage: checkpoint(settings, stage)["checkpoint_id"] for stage in STAGES}
    facts = questions.about_checkpoint(ctx.lake, ids["dr_grpo"])
    assert facts is not None and facts["trace_list_holds"] and not facts["no_longer_in_corpus"]
    assert [one["stage"] for one in facts["made_of"]] == list(reversed(STAGES))
    assert all(sum(role["share"] for role in one["roles"].values()) == pytest.approx(1) for one in facts["made_of"])
    made_by = {one["stage"]: one["generated_by"] for one in facts["made_of"]}
    assert set(made_by["resft"]) == {ids["sft"]} and set(made_by["teacher_sft"]) == {"script:search_and_check@1"}
    assert ids["resft"] in words.checkpoint_text(facts) and facts["changed_inputs"] == []
    rows = seen_rows(ctx, ids["dr_grpo"])
    own = next(row for row in rows if row["role"] == "generated")
    told = questions.about_trace(ctx.lake, own["trace_id"])
    assert told is not None and [(step["stage"], step["decision"]) for step in told["steps"]] == [
        ("generated_traces", "accepted")
    ]
    assert [(one["checkpoint_id"], one["role"], one["weight"]) for one in told["fed"]] == [
        (ids["resft"], "generated", own["weight"])
    ]
    heirs = {one["checkpoint_id"]: one["from"] for one in told["inherited"]}
    assert heirs == {ids[stage]: [ids["resft"]] for stage in ("teacher_sft", "kto", "dr_grpo")}
    text = words.trace_text(told)
    assert f"made here by {ids['sft']}" in text and f"inherited by {ids['kto']} from {ids['resft']}" in text
    for role in ("train", "teacher", "desirable", "undesirable", "prompt", "reference"):
        one = next(row for row in rows if row["role"] == role)
        answer = questions.about_trace(ctx.lake, one["trace_id"])
        assert answer is not None and role in {fed["role"] for fed in answer["fed"]}, role


def test_counts_of_the_lineage_and_what_a_checkpoint_has_seen_add_up(settings: Settings) -> None:
    ctx = StageContext(settings)
    counted = ctx.lake.read(tables.CHECKPOINT_LINEAGE, [DAY]).to_pylist()
    fed = ctx.lake.read(tables.CHECKPOINT_TRACES, [DAY]).to_pylist()
    for stage in STAGES:
        assert sum(row["traces"] for row in counted if row["stage"] == stage) == sum(
            row["stage"] == stage for row in fed
        )
        seen = seen_table(ctx, DAY, stage).to_pylist()
        before = {row["trace_id"] for row in fed if STAGES.index(row["stage"]) <= STAGES.index(stage)}
        assert {row["trace_id"] for row in seen} == before
    judged = {row["stage"]: row for row in ctx.lake.read(tables.CONTAMINATION, [DAY]).to_pylist()}
    assert set(judged) == set(STAGES)
    assert {row["status"] for row in ctx.lake.read(tables.CONTAMINATION, [DAY]).to_pylist()} <= {"clean", "near"}


def test_a_changed_rule_of_acceptance_attempts_nothing_again(settings: Settings, tmp_path: Path) -> None:
    stricter = write_recipe(tmp_path, **HOW, stages__resft__accept__keep=1)
    ctx = StageContext(settings.model_copy(update={"recipe": stricter}))
    again = generated.resft_rollouts(ctx, DAY, run=lambda *_: pytest.fail("attempted again"))
    assert not again.skipped and again.summary["accepted"] > 0
    generated.resft_rollouts(StageContext(settings), DAY, run=lambda *_: pytest.fail("attempted again"))


def test_a_changed_option_of_kto_rebuilds_kto_and_what_descends_from_it(settings: Settings, tmp_path: Path) -> None:
    ctx = StageContext(settings)
    first = {stage: checkpoint(settings, stage)["checkpoint_id"] for stage in STAGES}
    other = settings.model_copy(update={"recipe": write_recipe(tmp_path, **HOW, stages__kto__beta=0.2)})
    states = {fact["stage"]: fact["state"] for fact in train(other)}
    assert {name for name, state in states.items() if state == "published"} == {
        "kto_checkpoint", "kto_eval", "dr_grpo_checkpoint", "dr_grpo_eval", "checkpoint_lineage", "contamination"
    }  # fmt: skip
    second = {stage: checkpoint(settings, stage)["checkpoint_id"] for stage in STAGES}
    assert {stage for stage in STAGES if first[stage] != second[stage]} == {"kto", "dr_grpo"}
    assert questions.about_checkpoint(ctx.lake, first["dr_grpo"]) is not None, "the first chain is still answerable"
    assert ledger.ancestors(ledger.family(ctx.lake), second["dr_grpo"])[0] == second["kto"]
    # back to the first recipe: its checkpoints are there
    back = [fact for fact in train(settings) if fact["stage"] in ("kto_checkpoint", "dr_grpo_checkpoint")]
    assert [fact["summary"]["status"] for fact in back] == ["reused", "reused"]
    assert {stage: checkpoint(settings, stage)["checkpoint_id"] for stage in STAGES} == first
