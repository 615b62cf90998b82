"""Rollout evaluations in the lake: same problems for every policy, nothing trained among them, resumed and skipped."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation import rollout_launch
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages import checkpoints, closing
from trajectory_platform.stages.context import StageContext, StageResult
from trajectory_platform.stages.evaluations import EVALUATIONS, LOGS, evaluate_files, evaluate_stage, evaluated_rows
from trajectory_platform.stages.report import write_report
from trajectory_platform.stages.status import lake_status, render_status
from trajectory_platform.stages.training_stages import train_stage, training_of
from trajectory_platform.training.recipe import load_recipe
from trajectory_platform_tests.stages.arena_days import DAYS, here, ingest, make_days, settings_for, split
from trajectory_platform_tests.stages.built_lake import publish
from trajectory_platform_tests.stages.recipes import write_recipe as small_file

DAY = DAYS[1]
BASE, SFT = EVALUATIONS[:2]
SCRIPT = {"kind": "spec", "spec": "script:search_and_check"}


def write_recipe(folder: Path, **rollouts: Any) -> str:
    how = {"problems": 5, "samples": 1, "concurrency": 5, "limits": {"max_steps": 8}} | rollouts
    return small_file(folder, "recipe", evaluation__rollouts=how)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Two days, split with a large dev pool, and a checkpoint of two optimiser steps."""
    root = tmp_path_factory.mktemp("evaluations")
    pools = {"pool_train": 60, "pool_dev": 30, "pool_sealed": 10}
    made = settings_for(make_days(root / "days", days=2), root / "lake", recipe=write_recipe(root), **pools)
    ingest(made, DAYS[:2])
    split(made, DAY)
    train_stage(StageContext(made), DAY, row=training_of("sft"), run=here)
    return made


@pytest.fixture
def acting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both policies are scripts, so that something succeeds and tests need no model."""

    def scripted(name: str, folder: Path, threads: int, options: Any = None) -> rollout_launch.Subject:
        return rollout_launch.Subject(name, SCRIPT)

    def browsing(*_: Any) -> rollout_launch.Subject:
        return rollout_launch.Subject(f"base-{DAY}-{'b' * 12}", {"kind": "spec", "spec": "script:random_browser"})

    monkeypatch.setattr(rollout_launch, "trained", scripted)
    monkeypatch.setattr(rollout_launch, "untrained", browsing)


def evaluated(settings: Settings, row: Any = SFT, runner: Any = here) -> StageResult:
    return evaluate_stage(StageContext(settings), DAY, row=row, run=runner)


def forget(settings: Settings) -> None:
    """Both slots are not current any more and hold nothing that could be taken again."""
    for row in EVALUATIONS:
        for table in (tables.ROLLOUTS, tables.EVAL_SCORES):
            StageContext(settings).lake.invalidate(table, DAY, row.part)


def test_two_policies_meet_the_same_held_out_problems_and_are_compared(trained: Settings, acting: None) -> None:
    ctx = StageContext(trained)
    forget(trained)
    results = {row.stage: evaluated(trained, row) for row in (BASE, SFT)}
    rows = {row.stage: evaluated_rows(ctx, DAY, row) for row in (BASE, SFT)}
    keys = {stage: sorted(one["problem_key"] for one in found) for stage, found in rows.items()}
    assert keys["base"] == keys["sft"]
    scored = [one for one in rows["sft"] if one["outcome"] != "no_reward"]
    assert len(scored) == 5 == len({one["cluster_id"] for one in scored}) and {one["pool"] for one in scored} == {"dev"}
    fed = ctx.lake.read(tables.CHECKPOINT_TRACES, [DAY]).to_pylist()
    assert not {one["cluster_id"] for one in rows["sft"]} & {one["cluster_id"] for one in fed}
    assert results["sft"].summary["outcome_success"] > results["base"].summary.get("outcome_success", 0)
    attempts = ctx.lake.read(tables.ROLLOUTS, [DAY]).to_pylist()
    assert {one["trace_id"] for one in attempts} == {one["trace_id"] for f in rows.values() for one in f} - {None}
    comparison = closing.task_comparison(ctx, DAY)
    assert comparison is not None and comparison["overall"]["difference"]["value"] > 0
    assert "sft   " in closing.tasks_text(ctx, DAY) and "sft minus base: +" in closing.tasks_text(ctx, DAY)


def test_a_second_run_commits_nothing_and_report_and_status_tell(
    trained: Settings, acting: None, tmp_path: Path
) -> None:
    lake = StageContext(trained).lake
    for row in (BASE, SFT):
        evaluated(trained, row)
    before = [lake.manifest(table, DAY, SFT.part) for table in (tables.ROLLOUTS, tables.EVAL_SCORES)]
    assert all(evaluated(trained, row, pytest.fail).skipped for row in (BASE, SFT))
    assert before == [lake.manifest(table, DAY, SFT.part) for table in (tables.ROLLOUTS, tables.EVAL_SCORES)]
    assert not list(Path(trained.checkpoint_root, LOGS).iterdir())
    status = render_status(lake_status(trained))
    assert "sft_eval  solves" in status and "in 5 clusters" in status and "held-out problems" in status
    page = write_report(trained, tmp_path / "report.html", DAY).read_text("utf-8")
    assert "What it achieves in the sandbox" in page and "sft minus base" in page


def test_the_next_step_is_nothing_only_when_the_run_ended(trained: Settings, acting: None, tmp_path: Path) -> None:
    """Between its stages a run has checkpoints of all kinds and is not done; another recipe has none of its own."""
    from trajectory_platform.stages.contamination import contamination
    from trajectory_platform.stages.lineage_counts import checkpoint_lineage

    def because() -> str:
        facts = lake_status(trained)
        assert facts["next"] == f"trajectory-platform train sft --as-of {DAY}"
        return str(facts["because"])

    forget(trained)
    assert because() == "recipe recipe: sft is not evaluated yet"
    evaluated(trained)
    assert because() == "recipe recipe: checkpoint_lineage is not brought up to date yet"
    checkpoint_lineage(StageContext(trained), DAY)
    assert because() == "recipe recipe: contamination is not brought up to date yet"
    contamination(StageContext(trained), DAY)
    facts = lake_status(trained, clock=lambda: datetime(2026, 5, 4, 12, tzinfo=UTC))
    assert facts["next"].startswith("nothing: ") and facts["newest_checkpoint"]["recipe"] == "recipe"
    assert facts["newest_checkpoint"]["evaluations"]["sft_eval"]["clusters"] == 5
    assert "5 held-out problems in 5 clusters" in render_status(facts)
    other = small_file(tmp_path, "other", stages__sft__optimiser__learning_rate=0.5)
    told = lake_status(trained.model_copy(update={"recipe": other}))
    assert told["because"] == "recipe other: no sft checkpoint yet"
    later = DAYS[2]
    publish(StageContext(trained), tables.AXIS_A_CORPUS, later, [])
    facts = lake_status(trained)
    StageContext(trained).lake.invalidate(tables.AXIS_A_CORPUS, later)
    assert facts["next"] == f"trajectory-platform train sft --as-of {later}"
    assert facts["because"] == f"recipe recipe: sft has older checkpoints, none as of {later}"


def test_other_rules_of_scoring_attempt_nothing_again(trained: Settings, acting: None) -> None:
    evaluated(trained)
    folded = trained.model_copy(update={"attribute_rule": "folded"})
    again = evaluated(folded, SFT, pytest.fail)
    assert not again.skipped and again.summary["attempts"] == 5


def test_a_killed_evaluation_goes_on_where_it_was(
    trained: Settings, acting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trajectory_platform.evaluation.rollout_log import RolloutLog

    forget(trained)
    append, kept = RolloutLog.append, []

    def killed_after_two(self: RolloutLog, task: Any, row: Any) -> None:
        if len(kept) == 2:
            raise KeyboardInterrupt
        append(self, task, row)
        kept.append(row["trace_id"])

    monkeypatch.setattr(RolloutLog, "append", killed_after_two)
    with pytest.raises(FailPartition, match="ended without a result"):
        evaluated(trained)
    assert StageContext(trained).lake.manifest(tables.EVAL_SCORES, DAY, SFT.part) is None
    made: list[str] = []

    def counted(self: RolloutLog, task: Any, row: Any) -> None:
        append(self, task, row)
        made.append(row["trace_id"])

    monkeypatch.setattr(RolloutLog, "append", counted)
    assert evaluated(trained).summary["attempts"] == 5
    assert len(made) == 3 and not set(made) & set(kept)


def test_a_problem_that_was_trained_on_stops_it(
    trained: Settings, acting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trajectory_platform.stages import eval_pools

    forget(trained)
    chosen = next(one for one in evaluated_keys(trained))
    leaked = [{"trace_id": "run:x", "problem_key": chosen, "cluster_id": "lc-of-another-day"}]
    monkeypatch.setattr(eval_pools, "seen_rows", lambda *_: leaked)
    with pytest.raises(FailPartition, match="leak: training row run:x"):
        evaluated(trained, SFT, pytest.fail)


def evaluated_keys(settings: Settings) -> list[str]:
    rows = StageContext(settings).lake.read(tables.LEAK_CLUSTERS, [DAY]).to_pylist()
    return sorted(row["problem_key"] for row in rows if row["pool"] == "dev" and row["reward_state"] == "public")


def test_the_sealed_pool_leaves_its_reason_in_the_ledger(trained: Settings, acting: None, tmp_path: Path) -> None:
    forget(trained)
    reason = "release check of May"
    sealed = trained.model_copy(update={"recipe": write_recipe(tmp_path, pool="sealed", sealed_reason=reason)})
    result = evaluated(sealed)
    assert result.summary["pool"] == "sealed" and result.summary["attempts"] > 0
    ledger = Path(trained.lake_uri, "_sealed_reads.jsonl").read_text("utf-8").splitlines()
    assert json.loads(ledger[-1])["reason"] == reason
    assert {row["pool"] for row in evaluated_rows(StageContext(sealed), DAY, SFT)} == {"sealed"}


def test_a_day_without_a_checkpoint_says_so(trained: Settings, tmp_path: Path) -> None:
    empty = trained.model_copy(update={"lake_uri": str(tmp_path / "lake"), "recipe": "fast"})
    ingest(empty, DAYS[:1])
    for row in EVALUATIONS:
        result = evaluate_stage(StageContext(empty), DAYS[0], row=row, run=pytest.fail)
        assert result.summary["state"] == "no_checkpoint" and result.manifests["eval_scores"].rows == 0
    assert "nothing attempted: no_checkpoint" in closing.tasks_text(StageContext(empty), DAYS[0])
    assert closing.report_tasks(StageContext(empty), DAYS[0]) == []


def test_the_models_themselves_act_and_base_is_what_training_began_with(trained: Settings, tmp_path: Path) -> None:
    """The real policies on two problems: the checkpoint, and the weights before its first step."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trajectory_platform.evaluation.rollout_process import write_untrained
    from trajectory_platform.training.model import build_model

    limits = {"max_steps": 2, "reply_tokens": 16}
    small = trained.model_copy(update={"recipe": write_recipe(tmp_path, problems=2, limits=limits)})
    results = [evaluated(small, BASE), evaluated(small, SFT, None)]  # None: a process of its own
    assert [result.summary["attempts"] for result in results] == [2, 2]
    names = {row["checkpoint_id"] for row in StageContext(small).lake.read(tables.EVAL_SCORES, [DAY]).to_pylist()}
    assert {result.summary["checkpoint_id"] for result in results} <= names

    checkpoint = checkpoints.current_checkpoint(StageContext(small), DAY)
    assert checkpoint is not None
    folder = Path(small.checkpoint_root) / checkpoint["path"]
    recipe = load_recipe(small.recipe)
    made = write_untrained(tmp_path / "base", checkpoint=str(folder), seed=small.seed, base=None)
    fresh = AutoModelForCausalLM.from_pretrained(made, local_files_only=True).state_dict()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    begun = build_model(recipe.model, tokenizer, max_length=recipe.context.max_length, seed=small.seed).state_dict()
    assert fresh.keys() == begun.keys() and all(bool((fresh[name] == begun[name]).all()) for name in begun)


def test_an_outsider_acts_on_the_problems_of_the_lake(trained: Settings, acting: None, tmp_path: Path) -> None:
    """``evaluate --day``: any policy on the very problems that the day's checkpoint was measured on."""
    evaluated(trained)
    done = evaluate_files(trained, out=tmp_path, day=DAY, policy="script:random_browser", problems=5, runner=here)
    theirs = {row["problem_key"] for row in map(json.loads, (tmp_path / "scores.jsonl").read_text().splitlines())}
    assert theirs == {row["problem_key"] for row in evaluated_rows(StageContext(trained), DAY, SFT)}
    assert done["metrics"]["overall"]["problems"] == 5


def test_the_fresh_pool_is_the_newest_suites_and_no_checkpoint_has_seen_it(
    trained: Settings, acting: None, tmp_path: Path
) -> None:
    from trajectory_platform.stages.eval_pools import evaluable, newest_suite

    forget(trained)
    ctx = StageContext(trained)
    newest = newest_suite(ctx, DAY, DAYS[:2])
    clusters = {row["problem_key"]: row for row in ctx.lake.read(tables.LEAK_CLUSTERS, [DAY]).to_pylist()}
    found = evaluable(ctx, DAY, DAYS[:2], "fresh", None)
    keys = [one.problem.problem_key for one in found.problems]
    assert keys and all(clusters[key]["suite_ids"] == [newest] and clusters[key]["pool"] == "dev" for key in keys)
    wider = evaluable(ctx, DAY, DAYS[:2], "fresh", None, sealed_too=True).problems
    assert {one.pool for one in wider} >= {"dev"} and len(wider) >= len(keys)
    fed = {row["cluster_id"] for row in ctx.lake.read(tables.CHECKPOINT_TRACES).to_pylist()}
    assert not fed & {one.cluster_id for one in wider}
    fresh = trained.model_copy(update={"recipe": write_recipe(tmp_path, pool="fresh")})
    result = evaluated(fresh)
    assert result.summary["pool"] == "fresh" and result.summary["contaminated_problems"] == 0
    rows = evaluated_rows(StageContext(fresh), DAY, SFT)
    assert {row["problem_key"] for row in rows} <= set(keys)
    assert result.summary["clusters"] == len({row["cluster_id"] for row in rows if row["outcome"] != "no_reward"})


def test_what_a_merge_joined_to_training_rows_since_is_left_out_and_counted(
    trained: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the clusters of the training an overlap is a leak; under later ones it is a problem that does not count."""
    from trajectory_platform.stages import eval_pools

    ctx = StageContext(trained)
    checkpoint = checkpoints.current_checkpoint(ctx, DAY)
    assert checkpoint is not None
    name = checkpoint["checkpoint_id"]
    before = eval_pools.evaluable(ctx, DAY, DAYS[:2], "dev", name)
    chosen = before.problems[0]
    joined = [{"trace_id": "run:x", "problem_key": "of the past", "cluster_id": chosen.cluster_id}]
    monkeypatch.setattr(eval_pools, "seen_rows", lambda *_: joined)
    with pytest.raises(FailPartition, match="leak"):
        eval_pools.evaluable(ctx, DAY, DAYS[:2], "dev", name)
    monkeypatch.setattr(eval_pools, "_clusters_moved", lambda *_: True)
    after = eval_pools.evaluable(ctx, DAY, DAYS[:2], "dev", name)
    assert before.contaminated == 0 and chosen not in after.problems
    assert after.contaminated == sum(one.cluster_id == chosen.cluster_id for one in before.problems) > 0
    assert len(after.problems) + after.contaminated == len(before.problems)
