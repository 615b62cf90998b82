"""The supervised stage: TRL's ``SFTTrainer`` on rows that are already tokenised, masked and in order."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import Report
from trajectory_platform.evaluation.context import ContextPolicy
from trajectory_platform.identity import digest_lines
from trajectory_platform.traces.rendering import chat_messages
from trajectory_platform.training.datasets import (
    Built,
    TraceRow,
    build_examples,
    check_lost_share,
    preflight,
    renderable,
)
from trajectory_platform.training.recipe import Recipe
from trajectory_platform.training.sampling import Item, Plan, plan_order


class Trained(NamedTuple):
    """A trained model with everything its checkpoint records.

    Attributes:
        times: trace_id -> how often it was drawn; traces never drawn are absent.
        report: counts and lists of what was dropped, cut, folded, trained by role.
        metrics: losses (deterministic); ``run``: seconds and speed (not).
    """

    model: Any
    tokenizer: Any
    times: dict[str, int]
    report: dict[str, Any]
    metrics: dict[str, Any]
    history: list[dict[str, float]]
    run: dict[str, Any]


def train_sft(
    rows: Sequence[TraceRow], dropped: Sequence[dict[str, str]], recipe: Recipe, *, scratch: Path, report: Report
) -> Trained:
    """Train one model. ``dropped`` are rows that could not even be read; they count as lost.

    Raises:
        FailPartition: preflight failed, too many rows were lost, or the loss is not finite.
    """
    import torch

    torch.set_num_threads(recipe.threads)
    seed = recipe.seed if recipe.seed is not None else 0
    good, unrenderable = renderable(rows, recipe.context)
    model, tokenizer = _model_and_tokenizer(good, recipe, seed, report)
    built = build_examples(good, tokenizer, recipe.context, max_lost_share=1.0)
    built.report["dropped_rows"] = [*dropped, *unrenderable, *built.report["dropped_rows"]]
    built.report["rows"] = len(rows) + len(dropped)
    check_lost_share(built.report, built.report["rows"], recipe.max_lost_share)
    built.report.update(preflight(built, good, tokenizer, recipe.context))
    plan = _plan(built, good, recipe, seed)
    report(
        f"{built.report['rows_used']} of {built.report['rows']} traces, {len(plan.order)} contexts to train, "
        f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f} M parameters, "
        f"{len(tokenizer)} tokens in the vocabulary"
    )
    history, run = _fit(model, tokenizer, built, plan, recipe, seed, scratch, report)
    losses = [entry["loss"] for entry in history if "loss" in entry]
    metrics = {
        "steps": run.pop("steps"),
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "drawn_traces": len(plan.times),
        "order_digest": digest_lines(f"{trace_id}/{number}" for trace_id, number in plan.order),
    }
    return Trained(model, tokenizer, plan.times, built.report, metrics, history, run)


def _model_and_tokenizer(rows: Sequence[TraceRow], recipe: Recipe, seed: int, report: Report) -> tuple[Any, Any]:
    from trajectory_platform.training.model import build_model, load_base
    from trajectory_platform.training.tokenizer import build_tokenizer, template_text

    if recipe.model.base is not None:
        return load_base(recipe.model.base, template_text(recipe.template))
    report("training the tokenizer")
    policy: ContextPolicy = recipe.context
    chat = [(chat_messages(row.messages, max_result_chars=policy.max_result_chars).messages, row.tools) for row in rows]
    tokenizer = build_tokenizer(chat, recipe)
    return build_model(recipe.model, tokenizer, max_length=policy.max_length, seed=seed), tokenizer


def _plan(built: Built, rows: Sequence[TraceRow], recipe: Recipe, seed: int) -> Plan:
    items = [
        Item(row.trace_id, row.weight, tuple(len(example.input_ids) for example in built.examples[row.trace_id]))
        for row in rows
        if row.trace_id in built.examples
    ]
    plan = plan_order(items, recipe, seed)
    if not plan.order:
        raise FailPartition("the recipe's epochs and token_budget leave no row to train on")
    return plan


def _fit(
    model: Any,
    tokenizer: Any,
    built: Built,
    plan: Plan,
    recipe: Recipe,
    seed: int,
    scratch: Path,
    report: Report,
) -> tuple[list[dict[str, float]], dict[str, Any]]:
    from transformers import PrinterCallback, set_seed
    from trl import SFTTrainer

    set_seed(seed)
    dataset = _dataset(built, plan)
    steps = -(-len(plan.order) // recipe.batch)
    trainer = SFTTrainer(
        model=model,
        args=_arguments(recipe, seed, steps, scratch),
        train_dataset=dataset,
        processing_class=tokenizer,
        callbacks=[_progress(report, steps)],
    )
    trainer.remove_callback(PrinterCallback)
    prepared = trainer.train_dataset
    if prepared["trace_id"][:] != dataset["trace_id"][:] or prepared["labels"][0] != dataset["labels"][0]:
        raise FailPartition("the trainer changed the prepared rows; nothing was trained")
    started, cpu = time.perf_counter(), time.process_time()
    trainer.train()
    seconds = time.perf_counter() - started
    history = [_numbers(entry) for entry in trainer.state.log_history]
    if any(entry.get("loss") is not None and not _finite(entry["loss"]) for entry in history):
        raise FailPartition("the training loss is not finite")
    tokens = sum(len(built.examples[trace_id][number].input_ids) for trace_id, number in plan.order)
    run = {
        "steps": trainer.state.global_step,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "tokens": tokens,
        "tokens_per_second": round(tokens / seconds),
    }
    report(f"trained {run['steps']} steps in {seconds:.0f} s, {run['tokens_per_second']} tokens a second")
    return history, run


def _dataset(built: Built, plan: Plan) -> Any:
    from datasets import Dataset

    keys = [(trace_id, number) for trace_id, group in sorted(built.examples.items()) for number in range(len(group))]
    flat = [built.examples[trace_id][number] for trace_id, number in keys]
    position = {key: at for at, key in enumerate(keys)}
    dataset = Dataset.from_dict(
        {
            "trace_id": [example.trace_id for example in flat],
            "leak_cluster": [example.leak_cluster for example in flat],
            "input_ids": [example.input_ids for example in flat],
            "labels": [example.labels for example in flat],
        }
    )
    return dataset.select([position[slot] for slot in plan.order])


def _arguments(recipe: Recipe, seed: int, steps: int, scratch: Path) -> Any:
    from trl import SFTConfig

    optimiser = recipe.optimiser
    return SFTConfig(
        output_dir=str(scratch / "trainer"),
        num_train_epochs=1,  # epochs are laid out in the order of the rows
        per_device_train_batch_size=recipe.batch,
        train_sampling_strategy="sequential",
        max_length=None,  # rows are cut by evaluation.context, never by the trainer
        dataset_kwargs={"skip_prepare_dataset": True},
        learning_rate=optimiser.learning_rate,
        weight_decay=optimiser.weight_decay,
        adam_beta2=optimiser.beta2,
        max_grad_norm=optimiser.max_grad_norm,
        lr_scheduler_type=optimiser.schedule,
        warmup_steps=round(optimiser.warmup_share * steps),
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_steps=max(1, steps // 20),
        disable_tqdm=True,
        seed=seed,
        data_seed=seed,
        dataloader_num_workers=0,
    )


def _progress(report: Report, steps: int) -> Any:
    from transformers import TrainerCallback

    class Progress(TrainerCallback):
        """Prints the loss at every logging step."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
            if logs and "loss" in logs:
                report(f"step {state.global_step}/{steps} loss {float(logs['loss']):.3f}")

    return Progress()


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    keep = ("step", "loss", "learning_rate", "grad_norm", "mean_token_accuracy")
    return {key: float(entry[key]) for key in keep if entry.get(key) is not None}


def _finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")
