"""The supervised stages on one another: what they start from, what they mix, and how the weights are trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import run_child
from trajectory_platform.training import launch, process
from trajectory_platform.training.arguments import plan_steps, trainer_arguments
from trajectory_platform.training.checkpoints import list_checkpoints, verify_checkpoint
from trajectory_platform.training.launch import Parent, corpus_records, training_rows
from trajectory_platform.training.recipe import Hardware, Recipe, parse_recipe
from trajectory_platform.training.stage_recipes import Amount
from trajectory_platform_tests.training import shopping

STAGES = """
hardware: {{threads: 1}}
model: {{hidden: 32, layers: 1, heads: 2, kv_heads: 1, head_dim: 16, mlp: 64}}
tokenizer: {{vocab: 1200}}
context: {{max_length: 1024, reply_tokens: 96, max_result_chars: 200}}
min_traces: 4
stages:
  sft: {{optimiser: {{learning_rate: 0.01}}, amount: {{batch: 4, sampling: uniform, max_steps: 3{amount}}}}}
  resft:
    optimiser: {{learning_rate: 0.01}}
    amount: {{batch: 4}}
    corpus_share: 0.5
    adapter: {adapter}
"""


def stages(*, amount: str = "", adapter: str = "null") -> Recipe:
    return parse_recipe(STAGES.format(amount=amount, adapter=adapter)).resolved(7)


def here(command: Sequence[str], env: Mapping[str, str]) -> None:
    run_child(command[-1], process.work)


def never(command: Sequence[str], env: Mapping[str, str]) -> None:
    raise AssertionError("no process may be started")


def generated(count: int, **more: Any) -> list[dict[str, Any]]:
    """What the parent made on train problems, as records of a job."""
    made = []
    for number in range(count):
        row = shopping.record(number)
        made.append(
            {
                "trace_id": f"rollout:{number}",
                "role": "generated",
                "trace_day": "2026-05-02",
                "problem_key": row["problem_key"],
                "cluster_id": row["leak_cluster"],
                "weight": 1.0,
                "messages": row["messages"],
                "tools": row["tools"],
                "extra": None,
                **more,
            }
        )
    return made


def parent_of(trained: Any) -> Parent:
    return Parent(trained.checkpoint_id, trained.path)


def mixed(window: Any, own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    train, _ = training_rows(window.splits, "sft")
    return [*corpus_records(train, window.corpus), *own]


def weights(result: Any) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(result.path / "model.safetensors"))


@pytest.fixture(scope="module")
def resft(trained: Any, window: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A second stage on the session's SFT checkpoint: six rollouts, sixteen corpus rows."""
    root = tmp_path_factory.mktemp("resft")
    rows = mixed(window, generated(6))
    return shopping.train_stage(window, stages(), root, "resft", rows=rows, parent=parent_of(trained), runner=here)


def test_a_stage_starts_from_its_parent_with_the_parents_tokenizer(resft: Any, trained: Any) -> None:
    manifest = verify_checkpoint(resft.path)
    assert resft.status == "trained" and manifest["stage"] == "resft"
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert manifest["files"][name] == trained.manifest["files"][name]
    assert manifest["files"]["model.safetensors"] != trained.manifest["files"]["model.safetensors"]
    assert manifest["parent"] == trained.checkpoint_id and manifest["base"] is None
    assert manifest["ancestors"] == [
        {key: trained.manifest[key] for key in ("checkpoint_id", "stage", "identity", "trace_list_digest")}
    ]
    assert resft.checkpoints.to_pylist()[0]["parent"] == trained.checkpoint_id


def test_a_stages_own_rows_and_the_corpus_are_mixed_and_told_apart(resft: Any) -> None:
    rows = resft.traces.to_pylist()
    weight = {role: sum(row["weight"] for row in rows if row["role"] == role) for role in ("generated", "train")}
    assert weight == {"generated": 6.0, "train": 6.0}
    assert resft.manifest["roles"] == {"generated": 6, "train": 6}
    assert {row["cluster_id"] for row in rows if row["role"] == "generated"} == {f"cluster-{n:04d}" for n in range(6)}
    assert all(row["trace_day"] and row["problem_key"] and row["stage"] == "resft" for row in rows)


def test_without_own_rows_the_stage_is_skipped_and_says_so(trained: Any, window: Any, tmp_path: Path) -> None:
    given = {"rows": mixed(window, []), "parent": parent_of(trained), "runner": never}
    result = shopping.train_stage(window, stages(), tmp_path, "resft", **given)
    assert (result.status, result.reason) == ("skipped", "no_generated_rows") and result.metrics["train"] == 16


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"cluster_id": "cluster-0017"}, "leak.*cluster-0017"),
        ({"problem_key": "key-0023"}, "leak.*key-0023"),
        ({"trace_id": "run-000:problem-0018"}, "leak.*run-000:problem-0018"),
        ({"content_hash": "hash-0016"}, "leak.*hash-0016"),
        ({"cluster_id": ""}, "no leak cluster"),
        ({"problem_key": None}, "no leak cluster or no problem"),
    ],
)
def test_a_generated_row_that_leaks_or_has_no_place_stops_the_stage(
    trained: Any, window: Any, tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    rows = mixed(window, generated(3, **changed))
    with pytest.raises(FailPartition, match=named):
        shopping.train_stage(window, stages(), tmp_path, "resft", rows=rows, parent=parent_of(trained), runner=never)
    assert list_checkpoints(tmp_path) == [] and not list((tmp_path / ".scratch").iterdir())


def test_a_trace_in_two_roles_stops_the_stage(trained: Any, window: Any, tmp_path: Path) -> None:
    rows = mixed(window, generated(5))
    rows[-1]["trace_id"] = rows[0]["trace_id"]
    with pytest.raises(FailPartition, match=f"two roles.*{rows[0]['trace_id']}"):
        shopping.train_stage(window, stages(), tmp_path, "resft", rows=rows, parent=parent_of(trained), runner=here)


def test_rows_that_were_not_given_have_no_origin() -> None:
    with pytest.raises(FailPartition, match="not given.*made up"):
        process.traces_of([], {("made up", "train"): 1.0})


def test_a_parent_that_is_another_or_damaged_stops_the_stage(trained: Any, window: Any, tmp_path: Path) -> None:
    given = {"rows": mixed(window, generated(3)), "runner": never}
    other = Parent("sft-2026-05-01-000000000000", trained.path)
    with pytest.raises(FailPartition, match="not sft-2026-05-01-000000000000"):
        shopping.train_stage(window, stages(), tmp_path, "resft", parent=other, **given)


def test_an_adapter_is_trained_and_merged(trained: Any, window: Any, tmp_path: Path) -> None:
    recipe = stages(adapter="{rank: 4, alpha: 8, targets: [q_proj, v_proj]}")
    given = {"rows": mixed(window, generated(6)), "parent": parent_of(trained), "runner": here}
    result = shopping.train_stage(window, recipe, tmp_path, "resft", **given)
    before, after = weights(trained), weights(result)
    assert set(before) == set(after)  # a whole model, no adapter files
    moved = {name for name in before if not before[name].equal(after[name])}
    assert moved == {name for name in before if "q_proj" in name or "v_proj" in name}


def test_small_micro_batches_train_the_same_model(window: Any, tmp_path: Path) -> None:
    results = []
    for name, amount in (("whole", ""), ("halves", ", micro_batch: 2")):
        root = tmp_path / name
        results.append(shopping.train_stage(window, stages(amount=amount), root, runner=here))
    whole, halves = (weights(result) for result in results)
    assert results[0].checkpoint_id == results[1].checkpoint_id  # how it is cut up is no part of what it is
    assert max(float((whole[name] - halves[name]).abs().max()) for name in whole) < 1e-4
    assert results[0].manifest["metrics"]["steps"] == results[1].manifest["metrics"]["steps"] == 3


def test_packing_trains_every_context_in_fewer_rows(window: Any, tmp_path: Path) -> None:
    recipe = stages(amount=", packing: true")
    short = recipe.context.model_copy(update={"max_length": 2048})
    result = shopping.train_stage(window, recipe.model_copy(update={"context": short}), tmp_path, runner=here)
    assert result.manifest["metrics"]["steps"] < 3 and result.manifest["metrics"]["last_loss"] < 8
    assert {row["weight"] for row in result.traces.to_pylist()} == {1.0} and result.traces.num_rows == 16


def test_a_folder_as_base_is_recorded_by_its_content(trained: Any, window: Any, tmp_path: Path) -> None:
    model = stages().model.model_copy(update={"base": str(trained.path)})
    recipe = stages().model_copy(update={"model": model})
    result = shopping.train_stage(window, recipe, tmp_path, runner=here)
    assert result.manifest["parent"] is None and result.manifest["ancestors"] == []
    assert result.manifest["base"] == {"folder": trained.path.name, "digest": launch.base_digest(recipe)}
    assert result.manifest["files"]["tokenizer.json"] == trained.manifest["files"]["tokenizer.json"]


def test_the_picture_of_a_rows_mask_lies_in_the_checkpoint(trained: Any) -> None:
    shown = json.loads((trained.path / "loss_mask.json").read_text())
    assert "loss_mask.json" in trained.manifest["files"]
    assert {part["role"] for part in shown["stretches"] if part["trained"]} == {"assistant"}


@pytest.mark.parametrize(("rows", "batch", "micro", "processes"), [(37, 8, None, 1), (37, 8, 2, 2), (8, 8, 8, 1)])
def test_steps_use_every_row_and_devices_share_a_batch(
    rows: int, batch: int, micro: int | None, processes: int
) -> None:
    hardware = Hardware(profile="gpus" if processes > 1 else "cpu", processes=processes)
    planned = plan_steps(Amount(batch=batch, micro_batch=micro), hardware, rows)
    assert planned.steps == -(-rows // batch)
    assert planned.micro_batch * planned.accumulation * processes == batch


@pytest.mark.parametrize("steps", [1, 7, 19, 20, 41, 400, 1003])
@pytest.mark.parametrize("every", [None, 1, 6, 7, 50])
def test_every_save_falls_on_a_logged_step(steps: int, every: int | None) -> None:
    recipe = Recipe()
    part = recipe.stage("sft").model_copy(update={"save_every": every})
    given = trainer_arguments(recipe, part, folder=Path("x"), steps=steps, seed=0, micro_batch=1, accumulation=1)
    assert given["save_steps"] % given["logging_steps"] == 0 and given["eval_strategy"] == "no"
    assert given["save_steps"] == every if every else steps / given["save_steps"] <= 10
