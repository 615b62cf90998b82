"""A stage from splits and corpus to a checkpoint and its scores: identity, guard, atomicity, what is recorded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.child import run_child
from trajectory_platform.evaluation.launch import evaluate_actions
from trajectory_platform.identity import digest_json
from trajectory_platform.lake.tables import ACTION_SCORES, CHECKPOINT_TRACES, CHECKPOINTS
from trajectory_platform.training import process
from trajectory_platform.training.checkpoints import list_checkpoints, trace_list_digest, verify_checkpoint
from trajectory_platform.training.launch import checkpoint_identity
from trajectory_platform.training.recipe import Recipe
from trajectory_platform_tests.training import shopping
from trajectory_platform_tests.training.conftest import Window

DAY = "2026-05-02"


train = shopping.train_stage


def here(command: Sequence[str], env: Mapping[str, str]) -> None:
    """A runner that does the child's work in this process: saves the imports."""
    run_child(command[-1], process.work)


def never(command: Sequence[str], env: Mapping[str, str]) -> None:
    raise AssertionError("no process may be started")


def test_a_checkpoint_is_complete_and_named_by_its_identity(
    trained: Any, recipe: Recipe, checkpoint_root: Path
) -> None:
    identity = checkpoint_identity(recipe, "sft", shopping.INPUTS, None)
    assert trained.checkpoint_id == f"sft-{DAY}-{identity[:12]}"
    assert list_checkpoints(checkpoint_root) == [trained.checkpoint_id]
    manifest = verify_checkpoint(trained.path)
    assert manifest["inputs"] == shopping.INPUTS and manifest["recipe"] == recipe.model_dump(mode="json")
    assert {"torch", "trl", "transformers"} <= set(manifest["packages"])
    assert manifest["rows"]["trained_tokens"]["tool"] == 0 < manifest["rows"]["trained_tokens"]["assistant"]
    assert manifest["recipe_digest"] == digest_json(recipe.model_dump(mode="json"))
    assert not list((checkpoint_root / ".scratch").iterdir()) and not list((checkpoint_root / ".progress").iterdir())


def test_the_rows_for_the_lake_say_which_traces_were_trained(trained: Any, window: Any) -> None:
    train_ids = [row["trace_id"] for row in window.splits.to_pylist() if row["pool"] == "train"]
    rows = trained.traces.to_pylist()
    assert [row["trace_id"] for row in rows] == sorted(train_ids)
    assert {row["role"] for row in rows} == {"train"} and {row["weight"] for row in rows} == {1.0}
    assert trained.traces.schema == CHECKPOINT_TRACES.schema() and trained.checkpoints.schema == CHECKPOINTS.schema()
    entry = trained.checkpoints.to_pylist()[0]
    assert entry["trace_list_digest"] == trace_list_digest(rows) and entry["path"] == trained.checkpoint_id
    assert trace_list_digest(rows) != trace_list_digest([{**row, "role": "generated"} for row in rows])


def test_the_same_checkpoint_is_not_trained_again(
    trained: Any, window: Any, recipe: Recipe, checkpoint_root: Path
) -> None:
    again = train(window, recipe, checkpoint_root, runner=never)
    assert again.status == "reused" and again.checkpoint_id == trained.checkpoint_id
    assert again.checkpoints.equals(trained.checkpoints) and again.traces.equals(trained.traces)


def test_two_trainings_give_the_same_weights(trained: Any, window: Any, recipe: Recipe, tmp_path: Path) -> None:
    second = train(window, recipe, tmp_path, runner=here)
    assert second.status == "trained"
    assert second.manifest["files"]["model.safetensors"] == trained.manifest["files"]["model.safetensors"]
    assert second.manifest["files"]["tokenizer.json"] == trained.manifest["files"]["tokenizer.json"]


def test_a_flipped_byte_is_named_and_never_reused(trained: Any, window: Any, recipe: Recipe, tmp_path: Path) -> None:
    copied = tmp_path / trained.checkpoint_id
    shutil.copytree(trained.path, copied)
    weights = copied / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(FailPartition, match=r"model\.safetensors differs"):
        train(window, recipe, tmp_path, runner=never)


def test_a_checkpoint_without_its_manifest_is_not_listed(trained: Any, tmp_path: Path) -> None:
    copied = tmp_path / trained.checkpoint_id
    shutil.copytree(trained.path, copied)
    (copied / "manifest.json").unlink()
    assert list_checkpoints(tmp_path) == []
    with pytest.raises(FailPartition, match="no manifest"):
        verify_checkpoint(copied)


def test_too_few_traces_skip_the_stage_with_a_reason(recipe: Recipe, tmp_path: Path) -> None:
    for count in (0, 3):
        splits, corpus = shopping.window(count, 2, 0)
        result = train(Window(splits, corpus), recipe, tmp_path, runner=never)
        assert (result.status, result.reason, result.checkpoint_id) == ("skipped", "too_few_traces", None)
        assert result.checkpoints.num_rows == result.traces.num_rows == 0
        assert result.metrics == {"train_traces": count, "min_traces": 4, **({"train": count} if count else {})}
    assert list_checkpoints(tmp_path) == [] and not list((tmp_path / ".scratch").iterdir())


def test_a_planted_leak_stops_training_before_a_process_starts(recipe: Recipe, tmp_path: Path) -> None:
    import pyarrow as pa

    splits, corpus = shopping.window()
    rows = splits.to_pylist()
    rows[-1]["cluster_id"] = rows[0]["cluster_id"]  # sealed row in a training cluster
    leaky = pa.Table.from_pylist(rows, schema=splits.schema)
    with pytest.raises(FailPartition, match=rows[0]["cluster_id"]) as caught:
        train(Window(leaky, corpus), recipe, tmp_path, runner=never)
    assert rows[0]["trace_id"] in str(caught.value) and rows[-1]["trace_id"] in str(caught.value)


def test_a_cluster_held_out_beyond_the_window_stops_the_process(window: Any, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(FailPartition, match="cluster-0003"):
        train(window, recipe, tmp_path, runner=here, held_out_clusters=["cluster-0003"])
    assert list_checkpoints(tmp_path) == []


def test_without_the_guards_list_the_process_trains_nothing(window: Any, recipe: Recipe, tmp_path: Path) -> None:
    def without_guard(command: Sequence[str], env: Mapping[str, str]) -> None:
        job = json.loads(Path(command[-1]).read_text())
        del job["held_out_clusters"]
        Path(command[-1]).write_text(json.dumps(job))
        here(command, env)

    with pytest.raises(FailPartition, match="leak guard"):
        train(window, recipe, tmp_path, runner=without_guard)


def test_rows_missing_from_the_corpus_are_named(window: Any, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(FailPartition, match="run-000:problem-0000"):
        train(window, recipe, tmp_path, runner=never, corpus=window.corpus.slice(1))


def changed(recipe: Recipe, **amount: Any) -> Recipe:
    """The recipe with another amount in its SFT stage."""
    part = recipe.stage("sft")
    part = part.model_copy(update={"amount": part.amount.model_copy(update=amount)})
    return recipe.model_copy(update={"stages": recipe.stages.model_copy(update={"sft": part})})


def test_another_recipe_input_or_parent_is_another_checkpoint(recipe: Recipe) -> None:
    base = checkpoint_identity(recipe, "sft", shopping.INPUTS, None)
    other_inputs: dict[str, dict[str, Any]] = {
        **shopping.INPUTS,
        "axis_a_corpus/2026-05-02": {"content_digest": "e" * 64},
    }
    assert base != checkpoint_identity(changed(recipe, epochs=2.0), "sft", shopping.INPUTS, None)
    assert base == checkpoint_identity(changed(recipe, micro_batch=2), "sft", shopping.INPUTS, None)
    assert base != checkpoint_identity(recipe, "sft", other_inputs, None)
    assert base != checkpoint_identity(recipe, "sft", shopping.INPUTS, "sft-2026-05-01-000000000000")
    newer = {name: {**entry, "table_version": 99} for name, entry in shopping.INPUTS.items()}
    assert base == checkpoint_identity(recipe, "sft", newer, None)  # versions are recorded, never digested


def test_a_base_folder_enters_the_identity_by_its_content_not_by_its_place(recipe: Recipe, tmp_path: Path) -> None:
    def identity(folder: Path) -> str:
        model = recipe.model.model_copy(update={"base": str(folder)})
        return checkpoint_identity(recipe.model_copy(update={"model": model}), "sft", shopping.INPUTS, None)

    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"weights")
    before = identity(tmp_path / "here")
    assert before == identity(tmp_path / "there") != checkpoint_identity(recipe, "sft", shopping.INPUTS, None)
    (tmp_path / "here" / "model.safetensors").write_bytes(b"Weights")
    assert before != identity(tmp_path / "here")
    with pytest.raises(Abort, match="no folder"):
        identity(tmp_path / "nowhere")


def test_scores_of_dev_traces_have_rows_intervals_and_a_baseline(trained: Any, window: Any, recipe: Recipe) -> None:
    result = evaluate_actions(
        checkpoint=trained.path,
        day=DAY,
        stage="sft",
        splits=window.splits,
        corpus=window.corpus,
        trained=trained.traces,
        plan=recipe.evaluation,
        runner=evaluate_here,
    )
    rows = result.scores.to_pylist()
    dev = {row["trace_id"] for row in window.splits.to_pylist() if row["pool"] == "dev"}
    assert result.scores.schema == ACTION_SCORES.schema()
    assert len(rows) == 12 == result.counts["scored_turns"] and {row["trace_id"] for row in rows} <= dev
    assert {row["checkpoint_id"] for row in rows} == {trained.checkpoint_id}
    whole = result.metrics["categories"][0]
    assert whole["state"] == "thin" and whole["turns"] == 12 and 0 < whole["majority_share"] < 1


def evaluate_here(command: Sequence[str], env: Mapping[str, str]) -> None:
    from trajectory_platform.evaluation import process as scoring

    run_child(command[-1], scoring.work)


def test_a_trained_trace_among_the_dev_rows_stops_the_evaluation(trained: Any, window: Any, recipe: Recipe) -> None:
    import pyarrow as pa

    rows = window.splits.to_pylist()
    rows[0]["pool"] = "dev"
    with pytest.raises(FailPartition, match=rows[0]["trace_id"]):
        evaluate_actions(
            checkpoint=trained.path,
            day=DAY,
            stage="sft",
            splits=pa.Table.from_pylist(rows, schema=window.splits.schema),
            corpus=window.corpus,
            trained=trained.traces,
            plan=recipe.evaluation,
            runner=never,
        )


def test_a_day_without_dev_traces_says_so_and_starts_no_process(trained: Any, window: Any, recipe: Recipe) -> None:
    splits, corpus = shopping.window(16, 0, 2)
    result = evaluate_actions(
        checkpoint=trained.path,
        day=DAY,
        stage="sft",
        splits=splits,
        corpus=corpus,
        trained=trained.traces,
        plan=recipe.evaluation,
        runner=never,
    )
    assert result.scores.num_rows == 0 and result.metrics["state"] == "no_dev_traces"


def test_left_overs_of_a_dead_run_are_swept_and_those_of_a_live_one_are_not(tmp_path: Path) -> None:
    from trajectory_platform.training.checkpoints import scratch_folder, sweep_scratch

    mine = scratch_folder(tmp_path, "sft-2026-05-02-000000000000")
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    left_over = mine.with_name(mine.name.rsplit("-", 1)[0] + f"-{dead.pid}")
    left_over.mkdir()
    assert sweep_scratch(tmp_path) == [left_over.name]
    assert mine.is_dir()


@pytest.mark.slow
def test_a_short_training_beats_the_majority_tool_and_the_untrained_model(tmp_path: Path) -> None:
    import pyarrow as pa

    from trajectory_platform.evaluation.action_metrics import action_metrics
    from trajectory_platform.evaluation.actions import DevTrace, build_prompts, score_actions
    from trajectory_platform.training.datasets import rows_of
    from trajectory_platform.training.model import build_model
    from trajectory_platform.training.recipe import load_recipe
    from trajectory_platform.training.sft import train_sft
    from trajectory_platform.training.trained import Rows

    smoke = load_recipe("smoke").resolved(0)
    recipe = changed(smoke, token_budget=120_000)
    rows = Rows(*rows_of(pa.Table.from_pylist([shopping.record(number) for number in range(100)])))
    trained = train_sft(rows, recipe, "sft", parent=None, folder=tmp_path, files={}, report=print)
    untrained = build_model(recipe.model, trained.tokenizer, max_length=recipe.context.max_length, seed=0)
    dev = [
        DevTrace.from_record({**shopping.record(number), "cluster_id": f"c{number}", "category": "product"})
        for number in range(500, 525)
    ]
    plan = recipe.evaluation.model_copy(update={"max_turns": 60})
    prompts = build_prompts(dev, trained.tokenizer, recipe.context, plan).prompts
    shares = []
    for model in (trained.model.eval(), untrained.eval()):
        scores = score_actions(model, trained.tokenizer, prompts, policy=recipe.context, plan=plan)
        shares.append(action_metrics(scores, plan)["categories"][0])
    assert shares[1]["tool"]["share"] < 0.05
    assert shares[0]["tool"]["wilson"][0] > shares[0]["majority_share"] + 0.1
