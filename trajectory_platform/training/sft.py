"""The supervised stages: TRL's ``SFTTrainer`` on rows that are already tokenised, masked and in order.

``sft`` trains on the corpus, ``resft`` and ``teacher_sft`` on rows of their own mixed with it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import Report
from trajectory_platform.identity import digest_json, digest_lines
from trajectory_platform.traces.rendering import chat_messages
from trajectory_platform.training.arguments import (
    Steps,
    callbacks,
    history_of,
    optimizers,
    plan_steps,
    resume_facts,
    trainer_arguments,
)
from trajectory_platform.training.datasets import (
    Built,
    TraceRow,
    build_examples,
    check_lost_share,
    preflight,
    renderable,
)
from trajectory_platform.training.loss_mask import sft_mask
from trajectory_platform.training.packing import pack_rows
from trajectory_platform.training.recipe import Recipe
from trajectory_platform.training.resume import resume_point, step_of
from trajectory_platform.training.sampling import Item, plan_order, times_of
from trajectory_platform.training.stage_recipes import ResftStage, SftStage, TeacherStage
from trajectory_platform.training.trained import Rows, Trained, final_weights

SftPart = SftStage | ResftStage | TeacherStage


def train_sft(
    rows: Rows,
    recipe: Recipe,
    stage: str,
    *,
    parent: Path | None,
    folder: Path,
    files: Mapping[str, Path],
    report: Report,
) -> Trained:
    """Train a supervised stage. Rows that could not be read count as lost.

    Raises:
        FailPartition: preflight failed, too many rows were lost, or the loss is not finite.
    """
    import torch

    torch.set_num_threads(recipe.threads)
    part = _part(recipe, stage)
    seed = recipe.fixed_seed
    good, unrenderable = renderable(rows.rows, recipe.context)
    _one_role_each(good)
    model, tokenizer = _start(good, recipe, part, parent, report)
    built = _build(rows, good, unrenderable, tokenizer, recipe)
    laid = _lay_out(built, good, recipe, part, seed)
    report(
        f"{built.report['rows_used']} of {built.report['rows']} traces, {len(laid.order)} contexts to train, "
        f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f} M parameters, "
        f"{len(tokenizer)} tokens in the vocabulary"
    )
    trainer, history, run = _fit(model, tokenizer, laid, recipe, part, seed, folder, report)
    roles = {row.trace_id: row.role for row in good}
    times = {(trace_id, roles[trace_id]): float(count) for trace_id, count in times_of(laid.order).items()}
    model, state = final_weights(trainer, recipe.hardware.precision)
    return Trained(
        model=model,
        tokenizer=tokenizer,
        times=times,
        report=built.report,
        metrics=_metrics(laid, times, history),
        history=history,
        run=run,
        state=state,
        loss_mask=sft_mask((one for group in built.examples.values() for one in group), tokenizer),
    )


def _part(recipe: Recipe, stage: str) -> SftPart:
    part = recipe.stage(stage)
    if not isinstance(part, SftPart):
        raise FailPartition(f"{stage} is no supervised stage")
    return part


def _one_role_each(rows: Sequence[TraceRow]) -> None:
    twice = sorted(trace_id for trace_id, count in Counter(row.trace_id for row in rows).items() if count > 1)
    if twice:
        raise FailPartition(f"traces in two roles of one stage: {', '.join(twice[:20])}")


def _start(
    rows: Sequence[TraceRow], recipe: Recipe, part: SftPart, parent: Path | None, report: Report
) -> tuple[Any, Any]:
    from trajectory_platform.training.model import starting_model
    from trajectory_platform.training.tokenizer import build_tokenizer

    def new_tokenizer() -> Any:
        report("training the tokenizer")
        cap = recipe.context.max_result_chars
        chat = [(chat_messages(row.messages, max_result_chars=cap).messages, row.tools) for row in rows]
        return build_tokenizer(chat, recipe)

    return starting_model(recipe, part, parent, new_tokenizer)


def _build(
    rows: Rows, good: list[TraceRow], unrenderable: list[dict[str, str]], tokenizer: Any, recipe: Recipe
) -> Built:
    built = build_examples(good, tokenizer, recipe.context, max_lost_share=1.0)
    built.report["dropped_rows"] = [*rows.dropped, *unrenderable, *built.report["dropped_rows"]]
    built.report["rows"] = len(rows.rows) + len(rows.dropped)
    check_lost_share(built.report, built.report["rows"], recipe.max_lost_share)
    built.report.update(preflight(built, good, tokenizer, recipe.context))
    return built


class _Laid(NamedTuple):
    """Rows as the trainer takes them, and the contexts in them in order."""

    dataset: Any
    order: list[tuple[str, int]]
    steps: Steps
    tokens: int


def _lay_out(built: Built, rows: Sequence[TraceRow], recipe: Recipe, part: SftPart, seed: int) -> _Laid:
    """Draw, order, and pack if asked; ``max_steps`` counts the rows that the trainer sees."""
    amount = part.amount
    items = [
        Item(row.trace_id, row.weight, tuple(len(one.input_ids) for one in built.examples[row.trace_id]), row.role)
        for row in rows
        if row.trace_id in built.examples
    ]
    share = None if isinstance(part, SftStage) else part.corpus_share
    drawn = amount.model_copy(update={"max_steps": None}) if amount.packing else amount
    order = plan_order(items, drawn, seed, corpus_share=share).order
    if not order:
        raise FailPartition("the recipe's epochs and token_budget leave no row to train on")
    dataset = _dataset(built, order)
    if amount.packing:
        dataset = pack_rows(dataset, recipe.context.max_length, seed)
        if amount.max_steps is not None:
            dataset = dataset.select(range(min(len(dataset), amount.max_steps * amount.batch)))
        packs = zip(dataset["trace_id"], dataset["context"], strict=True)
        order = [slot for ids, numbers in packs for slot in zip(ids, numbers, strict=True)]
    tokens = sum(len(built.examples[trace_id][number].input_ids) for trace_id, number in order)
    return _Laid(dataset, order, plan_steps(amount, recipe.hardware, len(dataset)), tokens)


def _dataset(built: Built, order: Sequence[tuple[str, int]]) -> Any:
    from datasets import Dataset

    keys = [(trace_id, number) for trace_id, group in sorted(built.examples.items()) for number in range(len(group))]
    flat = [built.examples[trace_id][number] for trace_id, number in keys]
    position = {key: at for at, key in enumerate(keys)}
    dataset = Dataset.from_dict(
        {
            "trace_id": [example.trace_id for example in flat],
            "leak_cluster": [example.leak_cluster for example in flat],
            "role": [example.role for example in flat],
            "context": [number for _, number in keys],
            "input_ids": [example.input_ids for example in flat],
            "labels": [example.labels for example in flat],
        }
    )
    return dataset.select([position[slot] for slot in order])


def _fit(
    model: Any,
    tokenizer: Any,
    laid: _Laid,
    recipe: Recipe,
    part: SftPart,
    seed: int,
    folder: Path,
    report: Report,
) -> tuple[Any, list[dict[str, float]], dict[str, Any]]:
    from transformers import PrinterCallback, set_seed
    from trl import SFTConfig, SFTTrainer

    set_seed(seed)
    steps, micro_batch, accumulation = laid.steps
    given = trainer_arguments(
        recipe, part, folder=folder, steps=steps, seed=seed, micro_batch=micro_batch, accumulation=accumulation
    )
    arguments = SFTConfig(
        **given,
        train_sampling_strategy="sequential",
        # rows are cut by evaluation.context, never by the trainer
        max_length=recipe.context.max_length if part.amount.packing else None,
        packing=part.amount.packing,
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=laid.dataset,
        processing_class=tokenizer,
        callbacks=callbacks(report, steps),
        optimizers=optimizers(model, part.optimiser),
    )
    trainer.remove_callback(PrinterCallback)
    prepared = trainer.train_dataset
    if prepared["trace_id"][:] != laid.dataset["trace_id"][:] or prepared["labels"][0] != laid.dataset["labels"][0]:
        raise FailPartition("the trainer changed the prepared rows; nothing was trained")
    begun = _resume_point(resume_facts(given, recipe.hardware), laid, folder, report)
    started, cpu = time.perf_counter(), time.process_time()
    trainer.train(resume_from_checkpoint=str(begun) if begun is not None else None)
    seconds = time.perf_counter() - started
    share = 1 - step_of(begun) / max(1, steps)
    run = {
        "steps": trainer.state.global_step,
        "resumed_at": step_of(begun),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "tokens": laid.tokens,
        "tokens_per_second": round(laid.tokens * share / seconds),
    }
    report(f"trained {run['steps']} steps in {seconds:.0f} s, {run['tokens_per_second']} tokens a second")
    return trainer, history_of(trainer), run


def _resume_point(shared: Mapping[str, Any], laid: _Laid, folder: Path, report: Report) -> Path | None:
    """Where an earlier process of this very run stopped, or None."""
    rows = (digest_json(row) for row in laid.dataset.select_columns(["trace_id", "context", "input_ids"]))
    facts = {"rows": digest_lines(rows), **shared}
    begun = resume_point(folder, facts)
    if begun is not None:
        report(f"going on from step {step_of(begun)} of an earlier process")
    return begun


def _metrics(
    laid: _Laid, times: Mapping[tuple[str, str], float], history: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    losses = [entry["loss"] for entry in history if "loss" in entry]
    drawn: Counter[str] = Counter()
    for (_, role), count in times.items():
        drawn[role] += round(count)
    return {
        "steps": laid.steps.steps,
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "drawn_traces": len(times),
        **{f"draws_{role}": count for role, count in sorted(drawn.items())},
        "order_digest": digest_lines(f"{trace_id}/{number}" for trace_id, number in laid.order),
    }
