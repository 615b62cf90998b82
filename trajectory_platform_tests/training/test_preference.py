"""The KTO stage: rows and KL pairs as TRL makes them, weights that act, precomputed references, resuming."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import FailPartition
from trajectory_platform.traces.rendering import chat_messages
from trajectory_platform.training.class_weights import ClassWeights
from trajectory_platform.training.preference import (
    _check_rows,
    kto_arguments,
    kto_trainer,
    train_kto,
    turn_dataset,
)
from trajectory_platform.training.preference_order import TurnPlan, plan_turns
from trajectory_platform.training.recipe import Recipe, parse_recipe
from trajectory_platform.training.stage_recipes import KtoStage
from trajectory_platform.training.trained import Rows, Trained
from trajectory_platform.training.turn_examples import Source, TurnExample, build_turns
from trajectory_platform_tests.training import judged_traces as made
from trajectory_platform_tests.training import shopping

SEED = 7


@pytest.fixture(scope="module")
def kto_recipe() -> Recipe:
    return parse_recipe(made.RECIPE).resolved(SEED)


@pytest.fixture(scope="module")
def words(kto_recipe: Recipe) -> Any:
    from trajectory_platform.training.tokenizer import build_tokenizer

    rows = [(chat_messages(shopping.messages(number)).messages, shopping.TOOLS) for number in range(30)]
    return build_tokenizer(rows, kto_recipe)


@pytest.fixture(scope="module")
def parent(kto_recipe: Recipe, words: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint to start from: random weights and the tokenizer."""
    from trajectory_platform.training.model import build_model

    folder = tmp_path_factory.mktemp("parent")
    build_model(kto_recipe.model, words, max_length=1024, seed=1).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def changed(recipe: Recipe, **kto: Any) -> Recipe:
    """The recipe with other knobs of the stage."""
    value = recipe.model_dump(mode="json")
    for key, given in kto.items():
        place = value["stages"]["kto"]
        for part in key.split("__")[:-1]:
            place[part] = place[part] or {}
            place = place[part]
        place[key.split("__")[-1]] = given
    return Recipe.model_validate(value)


def train(recipe: Recipe, parent: Path, folder: Path, rows: list[Any] | None = None) -> Trained:
    folder.mkdir(exist_ok=True)
    given = Rows(made.mixed_rows() if rows is None else rows, [])
    return train_kto(given, recipe, "kto", parent=parent, folder=folder, files={}, report=lambda text: None)


def weights_of(model: Any) -> dict[str, bytes]:
    return {name: value.detach().numpy().tobytes() for name, value in model.state_dict().items()}


@pytest.fixture(scope="module")
def trained(kto_recipe: Recipe, parent: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(kto_recipe, parent, tmp_path_factory.mktemp("trained"))


def load(parent: Path) -> tuple[Any, Any]:
    from trajectory_platform.training.model import load_base

    return load_base(str(parent), None)


def laid_out(recipe: Recipe, words: Any, batches: int = 3) -> tuple[list[TurnExample], TurnPlan]:
    examples = build_turns(made.mixed_rows(), words, recipe.context).examples
    part = recipe.stage("kto")
    amount = part.amount.model_copy(update={"max_steps": batches})
    return examples, plan_turns(examples, amount, SEED, micro_batch=amount.batch)


def stage_of(recipe: Recipe) -> KtoStage:
    part = recipe.stage("kto")
    assert isinstance(part, KtoStage)
    return part


def bare(recipe: Recipe, parent: Path, folder: Path, weights: ClassWeights, **more: Any) -> tuple[Any, Any]:
    """(trainer, its rows) over three micro-batches."""
    model, tokenizer = load(parent)
    examples, plan = laid_out(recipe, tokenizer)
    dataset = turn_dataset(examples, plan)
    ref_model = more.pop("ref_model", None)
    given = {**kto_arguments(recipe, stage_of(recipe), plan, weights, folder=folder, seed=SEED), **more}
    part = stage_of(recipe)
    return kto_trainer(model, tokenizer, dataset, given, part=part, report=print, ref_model=ref_model), dataset


def test_ids_and_kl_pairs_are_those_that_trl_makes_of_the_same_messages(
    kto_recipe: Recipe, parent: Path, tmp_path: Path
) -> None:
    from datasets import Dataset, Features, Json, List, Value
    from trl import KTOConfig, KTOTrainer

    model, tokenizer = load(parent)
    rows = made.mixed_rows()
    examples, plan = laid_out(kto_recipe, tokenizer)
    ours = turn_dataset(examples, plan)
    by_id = {row.trace_id: row for row in rows}
    given = []
    for trace_id, turn, label in zip(ours["trace_id"], ours["turn"], ours["label"], strict=True):
        chat = chat_messages(by_id[trace_id].messages, max_result_chars=200).messages
        place = [at for at, message in enumerate(chat) if message["role"] == "assistant"][turn]
        tools = json.dumps(shopping.TOOLS)
        given.append({"prompt": chat[:place], "completion": [chat[place]], "label": label, "tools": tools})
    features = Features(
        {"prompt": List(Json()), "completion": List(Json()), "label": Value("bool"), "tools": Value("string")}
    )
    args = KTOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        max_length=None,
        bf16=False,
        use_cpu=True,
        report_to=[],
        gradient_checkpointing=False,
        precompute_ref_log_probs=True,
    )
    stock = KTOTrainer(
        model=model, args=args, train_dataset=Dataset.from_list(given, features=features), processing_class=tokenizer
    )
    for name in ("prompt_ids", "KL_completion_ids", "label"):
        assert stock.train_dataset[name][:] == ours[name][:], name
    ends = {tuple(stocks[len(own) :]) for stocks, own in zip(
        stock.train_dataset["completion_ids"], ours["completion_ids"], strict=True
    )}  # fmt: skip
    assert ends == {()}


def test_the_rows_of_the_trainer_keep_their_lineage(kto_recipe: Recipe, parent: Path, tmp_path: Path) -> None:
    trainer, dataset = bare(kto_recipe, parent, tmp_path, ClassWeights(1.0, 1.0, 1.0))
    _check_rows(trainer, dataset)
    assert trainer.train_dataset.num_rows == dataset.num_rows == 12
    trainer.train_dataset = trainer.train_dataset.remove_columns("leak_cluster")
    with pytest.raises(FailPartition, match="leak_cluster"):
        _check_rows(trainer, dataset)


def test_every_batch_the_trainer_draws_holds_both_classes(kto_recipe: Recipe, parent: Path, tmp_path: Path) -> None:
    trainer, _ = bare(kto_recipe, parent, tmp_path, ClassWeights(1.0, 1.0, 1.0))
    labels = [batch["label"].tolist() for batch in trainer.get_train_dataloader()]
    assert len(labels) == 3 and all(set(batch) == {True, False} for batch in labels)


def test_the_weights_of_the_classes_act_as_computed_by_hand(kto_recipe: Recipe, parent: Path, tmp_path: Path) -> None:
    """Eq. 7 and 8 of the paper on one batch, with a policy that has moved away from the reference (case C03)."""
    import torch

    found: dict[tuple[float, float], float] = {}
    for weights in ((1.0, 1.0), (1.0, 2.5), (3.0, 1.0)):
        trainer, _ = bare(kto_recipe, parent, tmp_path, ClassWeights(*weights, 1.0))
        torch.manual_seed(0)
        with torch.no_grad():
            for value in trainer.model.parameters():
                value.add_(0.02 * torch.randn_like(value))
        batch = next(iter(trainer.get_train_dataloader()))
        trainer.model.eval()
        with torch.no_grad():
            found[weights] = float(trainer.compute_loss(trainer.model, batch))
        assert found[weights] == pytest.approx(by_hand(trainer.model, batch, *weights, beta=0.1), abs=1e-5)
    assert len(set(found.values())) == 3


def by_hand(model: Any, batch: Mapping[str, Any], desirable: float, undesirable: float, *, beta: float) -> float:
    """The KTO loss of a batch from its definition."""
    import torch

    def logp(prefix: str) -> Any:
        ids = batch[f"{prefix}input_ids"]
        logits = model(input_ids=ids, attention_mask=batch[f"{prefix}attention_mask"]).logits
        each = torch.log_softmax(logits[:, :-1].double(), -1).gather(-1, ids[:, 1:, None])[..., 0]
        return (each * batch[f"{prefix}completion_mask"][:, 1:]).sum(-1)

    with torch.no_grad():
        ratio = logp("") - batch["ref_logps"]
        kl = (logp("KL_") - batch["ref_KL_logps"]).mean().clamp(min=0)
        good = desirable * (1 - torch.sigmoid(beta * (ratio - kl)))
        bad = undesirable * (1 - torch.sigmoid(beta * (kl - ratio)))
        return float(torch.where(batch["label"].bool(), good, bad).mean())


def test_precomputed_references_give_the_result_of_a_second_model(
    kto_recipe: Recipe, parent: Path, tmp_path: Path
) -> None:
    weights = ClassWeights(1.0, 1.5, 1.0)
    before, _ = bare(kto_recipe, parent, tmp_path / "a", weights)
    beside, _ = bare(
        kto_recipe, parent, tmp_path / "b", weights, precompute_ref_log_probs=False, ref_model=load(parent)[0]
    )
    for trainer in (before, beside):
        trainer.train()
    losses = [[entry["loss"] for entry in t.state.log_history if "loss" in entry] for t in (before, beside)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    pairs = zip(before.model.parameters(), beside.model.parameters(), strict=True)
    assert max(float((first - second).detach().abs().max()) for first, second in pairs) < 1e-5


def test_training_records_what_it_did(trained: Trained) -> None:
    metrics, told = trained.metrics, trained.report
    assert metrics["steps"] == metrics["drawn_turns"] / 4 and metrics["drawn_undesirable"] > 0
    assert 1 <= metrics["weighted_ratio"] <= 4 / 3
    assert told["trained_tokens"]["tool"] == 0 < told["trained_tokens"]["assistant"]
    assert told["desirable_turns"] and told["blamed_for"]["wrong_end"]
    for entry in trained.history:
        assert {"loss", "kl", "rewards/chosen", "rewards/rejected", "rewards/margins", "grad_norm"} <= set(entry)
    assert {role for _, role in trained.times} == {"desirable", "undesirable"}
    assert sum(trained.times.values()) == pytest.approx(metrics["drawn_turns"])
    assert trained.loss_mask is not None and trained.loss_mask["label"] is False


def test_it_moves_the_classes_apart(kto_recipe: Recipe, parent: Path, tmp_path: Path) -> None:
    longer = train(changed(kto_recipe, amount__epochs=6, optimiser__learning_rate=0.003), parent, tmp_path / "long")
    margins = [entry["rewards/margins"] for entry in longer.history]
    assert abs(margins[0]) < 0.5 < margins[-1]
    assert longer.history[-1]["loss"] < longer.history[0]["loss"]


def test_the_same_job_gives_the_same_weights(
    trained: Trained, kto_recipe: Recipe, parent: Path, tmp_path: Path
) -> None:
    again = train(kto_recipe, parent, tmp_path / "again", made.mixed_rows()[::-1])
    assert weights_of(again.model) == weights_of(trained.model)
    assert again.metrics == trained.metrics and again.times == trained.times


def test_micro_batches_are_accumulated(kto_recipe: Recipe, parent: Path, tmp_path: Path) -> None:
    small = changed(kto_recipe, amount__batch=8, amount__micro_batch=4)
    found = train(small, parent, tmp_path / "small")
    assert found.metrics["steps"] * 8 == found.metrics["drawn_turns"]


def test_an_adapter_is_trained_and_merged(kto_recipe: Recipe, parent: Path, tmp_path: Path) -> None:
    import torch

    adapted = changed(kto_recipe, adapter={"rank": 4, "alpha": 8.0})
    found = train(adapted, parent, tmp_path / "lora")
    before = load(parent)[0].state_dict()
    after = found.model.state_dict()
    assert set(after) == set(before)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all(any(part in name for part in ("q_proj", "k_proj", "v_proj", "o_proj")) for name in moved)
    assert found.history[0]["rewards/margins"] == pytest.approx(0, abs=1e-3)


def test_one_class_is_refused_with_a_reason(kto_recipe: Recipe, parent: Path, tmp_path: Path) -> None:
    rows = [row for row in made.mixed_rows() if row.role == "desirable"]
    with pytest.raises(FailPartition, match="one_class"):
        train(kto_recipe, parent, tmp_path / "one", rows)


def test_weights_outside_the_band_are_refused(kto_recipe: Recipe, parent: Path, tmp_path: Path) -> None:
    with pytest.raises(FailPartition, match="class_weights_out_of_band"):
        train(changed(kto_recipe, desirable_weight=1.0, undesirable_weight=1.0), parent, tmp_path / "band")


def test_a_number_that_is_not_finite_stops_the_run(kto_recipe: Recipe, parent: Path, tmp_path: Path) -> None:
    import torch

    model, tokenizer = load(parent)
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    broken = tmp_path / "broken"
    model.save_pretrained(broken)
    tokenizer.save_pretrained(broken)
    with pytest.raises(FailPartition, match="not finite"):
        train(kto_recipe, broken, tmp_path / "nan")


def test_copies_share_a_draw() -> None:
    from trajectory_platform.training.preference import times_of

    sources = (Source("a", "c", 0, 3.0), Source("b", "c", 0, 1.0))
    examples = [TurnExample(sources, True, [1], [2]), TurnExample((Source("x", "d", 0, 1.0),), False, [1], [3])]
    times = times_of(examples, TurnPlan([[0, 1], [0, 1]], (2, 2)))
    assert times == {("a", "desirable"): 1.5, ("b", "desirable"): 0.5, ("x", "undesirable"): 2.0}


@pytest.mark.parametrize("adapter", [None, {"rank": 4, "alpha": 8.0}], ids=["full", "lora"])
def test_from_a_saved_step_it_ends_where_it_would_have_ended(
    adapter: dict[str, Any] | None, kto_recipe: Recipe, parent: Path, tmp_path: Path
) -> None:
    recipe = changed(kto_recipe, save_every=2, adapter=adapter)
    whole = train(recipe, parent, tmp_path)
    saved = sorted((tmp_path / "trainer").iterdir())
    shutil.rmtree(saved[-1])  # as if the process had died before its last save
    resumed = train(recipe, parent, tmp_path)
    assert 0 < resumed.run["resumed_at"] < resumed.metrics["steps"]
    assert weights_of(resumed.model) == weights_of(whole.model)
    assert resumed.history == whole.history and resumed.metrics == whole.metrics


def test_what_another_run_left_is_not_resumed(kto_recipe: Recipe, parent: Path, tmp_path: Path) -> None:
    train(changed(kto_recipe, save_every=2), parent, tmp_path)
    other = train(changed(kto_recipe, save_every=2, beta=0.2), parent, tmp_path)
    assert other.run["resumed_at"] == 0


KILLED = """
import sys
from pathlib import Path
from trajectory_platform_tests.training import judged_traces as made
from trajectory_platform.training.preference import train_kto
from trajectory_platform.training.recipe import Recipe
from trajectory_platform.training.trained import Rows
recipe = Recipe.model_validate_json(Path(sys.argv[1]).read_text())
train_kto(Rows(made.mixed_rows(), []), recipe, "kto", parent=Path(sys.argv[2]), folder=Path(sys.argv[3]), files={},
          report=lambda text: print(text, flush=True))
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_same_weights(kto_recipe: Recipe, parent: Path, tmp_path: Path) -> None:
    recipe = changed(kto_recipe, amount__epochs=3, save_every=2)
    whole = train(recipe, parent, tmp_path / "whole")
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    folder = tmp_path / "killed"
    folder.mkdir()
    command = [sys.executable, "-c", textwrap.dedent(KILLED), *map(str, (tmp_path / "recipe.json", parent, folder))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("step 5/"):
                child.send_signal(signal.SIGKILL)
    lines: list[str] = []
    rows = Rows(made.mixed_rows(), [])
    resumed = train_kto(rows, recipe, "kto", parent=parent, folder=folder, files={}, report=lines.append)
    assert any(line.startswith("going on from step 4") for line in lines), lines
    assert weights_of(resumed.model) == weights_of(whole.model)
    assert resumed.history == whole.history and resumed.metrics == whole.metrics
