"""The preference stage: TRL's ``KTOTrainer`` on single turns that are already tokenised, labelled and in order.

KTO: Ethayarajh et al. 2024, arXiv:2402.01306. The reference is the parent; its log-probabilities are computed once
before the first step, from the same batches, so no second model is kept.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import Report
from trajectory_platform.identity import digest_json, digest_lines
from trajectory_platform.training.arguments import (
    HISTORY,
    callbacks,
    history_of,
    optimizers,
    plan_steps,
    resume_facts,
    trainer_arguments,
)
from trajectory_platform.training.class_weights import ClassWeights, class_weights
from trajectory_platform.training.datasets import check_lost_share
from trajectory_platform.training.loss_mask import kto_mask
from trajectory_platform.training.model import starting_model
from trajectory_platform.training.preference_order import TurnPlan, plan_turns
from trajectory_platform.training.recipe import Recipe
from trajectory_platform.training.resume import resume_point, step_of
from trajectory_platform.training.stage_recipes import KtoStage
from trajectory_platform.training.trained import Rows, Trained, final_weights
from trajectory_platform.training.turn_examples import (
    DESIRABLE,
    UNDESIRABLE,
    TurnExample,
    build_turns,
    limited,
    preflight_turns,
)
from trajectory_platform.training.turn_faults import TURN_FAULTS_VERSION

METRICS = (
    "kl", "rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected", "entropy",
)  # fmt: skip
LINEAGE = ("trace_id", "leak_cluster", "turn", "label")


def train_kto(
    rows: Rows,
    recipe: Recipe,
    stage: str,
    *,
    parent: Path | None,
    folder: Path,
    files: Mapping[str, Path],
    report: Report,
) -> Trained:
    """Train one model on judged traces; a ``Trainer`` of ``training.trained``.

    Raises:
        FailPartition: one class is missing (``one_class``), weights outside the band of the paper
            (``class_weights_out_of_band``), too many rows lost, a preflight that fails, or a number that is not finite.
    """
    import torch

    part = recipe.stage(stage)
    assert isinstance(part, KtoStage)
    torch.set_num_threads(recipe.threads)
    seed = recipe.fixed_seed
    model, tokenizer = starting_model(recipe, part, parent)
    examples, told = _examples(rows, recipe, part, tokenizer, seed)
    steps = plan_steps(part.amount, recipe.hardware, part.amount.batch)
    plan = plan_turns(examples, part.amount, seed, micro_batch=steps.micro_batch)
    weights = class_weights(*plan.counts, part.desirable_weight, part.undesirable_weight)
    report(
        f"{told['rows_used']} of {told['rows']} traces; {plan.counts[0]} desirable and {plan.counts[1]} undesirable "
        f"turns drawn, weights {weights.desirable:g} and {weights.undesirable:g}"
    )
    dataset = turn_dataset(examples, plan)
    arguments = kto_arguments(recipe, part, plan, weights, folder=folder, seed=seed)
    trainer = kto_trainer(model, tokenizer, dataset, arguments, part=part, report=report)
    _check_rows(trainer, dataset)
    begun = _resume_point(folder, _facts(examples, plan, resume_facts(arguments, recipe.hardware)), report)
    run = _fit(trainer, begun, plan, examples, report)
    history = history_of(trainer, (*HISTORY, *METRICS))
    _check_finite(history)
    told |= {"left_out_turns": len(examples) - len(set(plan.order)), "turn_faults": TURN_FAULTS_VERSION}
    trained, state = final_weights(trainer, recipe.hardware.precision)
    return Trained(
        model=trained,
        tokenizer=tokenizer,
        times=times_of(examples, plan),
        report=told,
        metrics=_metrics(examples, plan, weights, history, trainer.state.global_step),
        history=history,
        run=run,
        state=state,
        loss_mask=kto_mask(examples, tokenizer),
    )


def _examples(
    rows: Rows, recipe: Recipe, part: KtoStage, tokenizer: Any, seed: int
) -> tuple[list[TurnExample], dict[str, Any]]:
    built = build_turns(rows.rows, tokenizer, recipe.context, blame=part.blame)
    told = built.report
    told["dropped_rows"] = [*rows.dropped, *told["dropped_rows"]]
    told["rows"] = len(rows.rows) + len(rows.dropped)
    check_lost_share(told, told["rows"], recipe.max_lost_share)
    examples = limited(built.examples, part.max_rows, seed)
    told["turns_over_max_rows"] = len(built.examples) - len(examples)
    told.update(preflight_turns(examples, rows.rows, tokenizer, recipe.context))
    return examples, told


def turn_dataset(examples: Sequence[TurnExample], plan: TurnPlan) -> Any:
    """The rows of a run in their order, with their lineage (case C11).

    The KL term is estimated from completions under the prompt of another row of the same micro-batch: each row carries
    the completion of the row before it, the first that of the last, as TRL pairs them.
    """
    from datasets import Dataset

    order = [examples[at] for at in plan.order]
    before = [examples[batch[place - 1]] for batch in plan.batches for place in range(len(batch))]
    return Dataset.from_dict(
        {
            "trace_id": [example.sources[0].trace_id for example in order],
            "leak_cluster": [example.sources[0].leak_cluster for example in order],
            "turn": [example.sources[0].turn for example in order],
            "prompt_ids": [example.prompt_ids for example in order],
            "completion_ids": [example.completion_ids for example in order],
            "KL_completion_ids": [example.completion_ids for example in before],
            "label": [example.label for example in order],
        }
    )


def kto_arguments(
    recipe: Recipe, part: KtoStage, plan: TurnPlan, weights: ClassWeights, *, folder: Path, seed: int
) -> dict[str, Any]:
    """Keyword arguments of ``KTOConfig``. Rows are cut by ``evaluation.context``, never by the trainer."""
    steps = plan_steps(part.amount, recipe.hardware, len(plan.order))
    return {
        **trainer_arguments(
            recipe,
            part,
            folder=folder,
            steps=steps.steps,
            seed=seed,
            micro_batch=len(plan.batches[0]),
            accumulation=steps.accumulation,
        ),
        "beta": part.beta,
        "loss_type": part.loss,
        "desirable_weight": weights.desirable,
        "undesirable_weight": weights.undesirable,
        "precompute_ref_log_probs": True,
        "max_length": None,
        "train_sampling_strategy": "sequential",
        "logging_nan_inf_filter": False,  # a loss that is no number is to be seen, not averaged away
    }


def kto_trainer(
    model: Any,
    tokenizer: Any,
    dataset: Any,
    arguments: Mapping[str, Any],
    *,
    part: KtoStage,
    report: Report,
    ref_model: Any = None,
) -> Any:
    """A ``KTOTrainer`` over rows that are tokenised and paired already.

    TRL tokenises conversations itself; it would render histories whole, without what ``evaluation.context`` leaves
    out. Only that step is replaced: that it would make the same ids of the same messages is a test.
    """
    from transformers import PrinterCallback, set_seed
    from trl import KTOConfig, KTOTrainer

    class TurnTrainer(KTOTrainer):  # type: ignore[misc, unused-ignore]
        """Takes the rows as they are."""

        def _prepare_dataset(self, dataset: Any, processing_class: Any, args: Any, dataset_name: str) -> Any:
            return dataset

    set_seed(int(arguments["seed"]))
    steps = -(-len(dataset) // (arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"]))
    trainer = TurnTrainer(
        model=model,
        ref_model=ref_model,
        args=KTOConfig(**arguments),
        train_dataset=dataset,
        processing_class=tokenizer,
        callbacks=callbacks(report, steps),
        optimizers=optimizers(model, part.optimiser),
    )
    trainer.remove_callback(PrinterCallback)
    if arguments["precompute_ref_log_probs"] and "ref" in getattr(trainer.model, "peft_config", {}):
        # TRL's frozen copy of the adapter has given its log-probabilities. Beside a second adapter transformers 5.17
        # would restore that one when a run goes on, and leave the trained one as it was at the start.
        trainer.model.delete_adapter("ref")
    return trainer


def times_of(examples: Sequence[TurnExample], plan: TurnPlan) -> dict[tuple[str, str], float]:
    """(trace_id, role) -> turns of the trace that were drawn; exact copies share a draw in proportion to weight."""
    times: dict[tuple[str, str], float] = {}
    for at in plan.order:
        example = examples[at]
        role, whole = (DESIRABLE if example.label else UNDESIRABLE), example.weight
        for source in example.sources:
            share = source.weight / whole if whole > 0 else 1 / len(example.sources)
            key = (source.trace_id, role)
            times[key] = times.get(key, 0.0) + share
    return {key: round(value, 6) for key, value in sorted(times.items())}


def _facts(examples: Sequence[TurnExample], plan: TurnPlan, shared: Mapping[str, Any]) -> dict[str, Any]:
    rows = [[example.key, example.label, example.prompt_ids, example.completion_ids] for example in examples]
    return {"rows": digest_json(rows), "order": digest_json(plan.batches), **shared}


def _check_rows(trainer: Any, dataset: Any) -> None:
    """The trainer kept every row with its lineage, and the reference gave a number for each."""
    prepared = trainer.train_dataset
    for name in (*LINEAGE, "prompt_ids", "completion_ids", "KL_completion_ids"):
        if name not in prepared.column_names or prepared[name][:] != dataset[name][:]:
            raise FailPartition(f"the trainer changed the column {name}; nothing was trained")
    for name in ("ref_logps", "ref_KL_logps"):
        values = prepared[name][:] if name in prepared.column_names else [0.0]
        if not all(value == value and abs(value) != float("inf") for value in values):
            raise FailPartition("a log-probability of the reference is not finite; nothing was trained")


def _resume_point(folder: Path, facts: Mapping[str, Any], report: Report) -> Path | None:
    """Where an earlier process of this very run stopped, or None."""
    begun = resume_point(folder, facts)
    if begun is not None:
        report(f"going on from step {step_of(begun)} of an earlier process")
    return begun


def _fit(
    trainer: Any, begun: Path | None, plan: TurnPlan, examples: Sequence[TurnExample], report: Report
) -> dict[str, Any]:
    started, cpu = time.perf_counter(), time.process_time()
    trainer.train(resume_from_checkpoint=str(begun) if begun is not None else None)
    seconds = time.perf_counter() - started
    tokens = sum(examples[at].tokens for at in plan.order)
    share = 1 - step_of(begun) / max(1, trainer.state.global_step)
    report(f"trained {trainer.state.global_step} steps in {seconds:.0f} s")
    return {
        "resumed_at": step_of(begun),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "tokens": tokens,
        "tokens_per_second": round(tokens * share / seconds),
    }


def _check_finite(history: Sequence[Mapping[str, float]]) -> None:
    for entry in history:
        wrong = [name for name, value in entry.items() if value != value or abs(value) == float("inf")]
        if wrong:
            raise FailPartition(f"step {entry['step']:.0f}: {', '.join(wrong)} is not finite")


def _metrics(
    examples: Sequence[TurnExample],
    plan: TurnPlan,
    weights: ClassWeights,
    history: Sequence[Mapping[str, float]],
    steps: int,
) -> dict[str, Any]:
    last = history[-1] if history else {}
    return {
        "steps": steps,
        "first_loss": history[0]["loss"] if history else None,
        "last_loss": last.get("loss"),
        **{f"last_{name.replace('/', '_')}": last.get(name) for name in METRICS},
        "drawn_turns": len(plan.order),
        "drawn_desirable": plan.counts[0],
        "drawn_undesirable": plan.counts[1],
        "desirable_weight": weights.desirable,
        "undesirable_weight": weights.undesirable,
        "weighted_ratio": round(weights.ratio, 6),
        "order_digest": digest_lines(f"{examples[at].key[0]}/{examples[at].key[1]}" for at in plan.order),
    }
