"""The reinforcement stage: Dr. GRPO on attempts at train problems in the sandbox (domain 5.2).

The order of problems is laid out before the first step and every draw is seeded by (seed, place in that order, problem,
number of the attempt, turn), so a run that is killed goes on at its last saved generation batch with the same problems
and the same draws.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import Report, report_metrics
from trajectory_platform.evaluation.eval_rows import Rules
from trajectory_platform.evaluation.turn_rewards import TURN_REWARD_VERSION
from trajectory_platform.identity import digest_json, digest_lines, sha256_hex
from trajectory_platform.training.arguments import (
    callbacks,
    history_of,
    optimizers,
    plan_steps,
    resume_facts,
    trainer_arguments,
)
from trajectory_platform.training.grpo_report import NUMBERS, step_line, verdict, warnings
from trajectory_platform.training.grpo_rollouts import Asked, asked_of
from trajectory_platform.training.grpo_trainer import Task, turn_grpo
from trajectory_platform.training.model import starting_model
from trajectory_platform.training.recipe import Recipe
from trajectory_platform.training.resume import resume_point, step_of
from trajectory_platform.training.stage_recipes import GrpoStage
from trajectory_platform.training.trained import Rows, Trained, final_weights

VERSION = f"dr-grpo-2,{TURN_REWARD_VERSION}"  # raise it when the same rows would train another model
PROMPT, REFERENCE = "prompt", "reference"


def train_dr_grpo(
    rows: Rows,
    recipe: Recipe,
    stage: str,
    *,
    parent: Path | None,
    folder: Path,
    files: Mapping[str, Path],
    report: Report,
) -> Trained:
    """Train one model on its own attempts; a ``Trainer`` of ``training.trained``.

    Args:
        rows: one of the role ``prompt`` per problem (``grpo_rollouts.asked_of`` says what its ``extra`` holds), and one
            of the role ``reference`` per teacher's trace, which only says that it was used.
        files: ``world``, the folder of a catalogue's index; ``rules``, a JSON object of ``eval_rows.Rules``, or none.

    Raises:
        FailPartition: no problem that can be attempted, attempts that were all cut (``all_rollouts_truncated``), or a
            number that is not finite.
    """
    import torch

    part = recipe.stage(stage)
    assert isinstance(part, GrpoStage)
    torch.set_num_threads(recipe.threads)
    seed = recipe.fixed_seed
    asked = asked_problems(rows)
    model, tokenizer = starting_model(recipe, part, parent)
    steps, batches = _amount(part, len(asked))
    order = problem_order([one.key for one in asked], seed, batches * part.problems_per_step)
    arguments = grpo_arguments(recipe, part, folder=folder, steps=steps, seed=seed)
    rules = _rules(files)
    begun = resume_point(folder, _facts(asked, order, resume_facts(arguments, recipe.hardware), rules))
    grounded = sum(one.reference is not None for one in asked)
    report(
        f"{len(asked)} problems, {grounded} with a reference (the others: outcome only); {steps} steps of "
        f"{part.problems_per_step} problems with {part.group} attempts each"
    )
    world = _world(files)
    task = Task(part, recipe.context, seed, asked, world, _scorer(world, rules))
    trainer = _trainer(model, tokenizer, task, order, arguments, part, report, steps)
    run = _fit(trainer, begun, report)
    numbers = sorted({name for entry in trainer.state.log_history for name in entry} - {"epoch"})
    history = [
        {name: value for name, value in entry.items() if name not in _MEASURED}
        for entry in history_of(trainer, tuple(name for name in numbers if _numeric(trainer, name)))
    ]
    # the mean of an attempt, logged once per generation batch; the attempts before a resume count too
    drawn = sum(entry.get("tokens") or 0.0 for entry in history) * part.problems_per_step * part.group
    trained, state = final_weights(trainer, recipe.hardware.precision)
    stopped = verdict(history, part)
    done = order[: trainer.state.global_step // part.iterations * part.problems_per_step]
    return Trained(
        model=trained,
        tokenizer=tokenizer,
        times=times_of(asked, done, part.group),
        report=_told(rows, asked, done, history, part),
        metrics={
            "steps": trainer.state.global_step,
            "first_loss": history[0]["loss"] if history else None,
            "last_loss": history[-1]["loss"] if history else None,
            **{f"last_{name}": history[-1].get(name) for name in _SHOWN if history},
            "attempts": len(done) * part.group,
            "stopped": None if stopped is None else f"{stopped.reason} at step {stopped.step}",
            "order_digest": digest_lines(asked[at].key for at in order),
        },
        history=history,
        run={**run, "tokens": round(drawn)},
        state=state,
    )


_MEASURED = ("step_time",)
_SHOWN = ("success", "solved_groups", "zero_variance", "clipped", "hallucinated", "process", "sampled_entropy")


def asked_problems(rows: Rows) -> list[Asked]:
    """The problems of the ``prompt`` rows, sorted by key.

    Raises:
        FailPartition: none, or a row that brings another problem than it says.
    """
    prompts = [row for row in rows.rows if row.role == PROMPT]
    asked = [asked_of(row.extra, row.problem_key, row.leak_cluster) for row in prompts]
    if not asked:
        raise FailPartition("no problem to attempt: the stage got no row of the role prompt")
    return sorted(asked, key=lambda one: one.key)


def problem_order(keys: Sequence[str], seed: int, count: int) -> list[int]:
    """Which problem is attempted when: pass after pass over all of them, each in an order of its own."""
    order: list[int] = []
    lap = 0
    while len(order) < count:
        drawn = sorted(range(len(keys)), key=lambda at: sha256_hex(f"{seed}:{lap}:{keys[at]}".encode()))
        order += drawn
        lap += 1
    return order[:count]


def _amount(part: GrpoStage, problems: int) -> tuple[int, int]:
    """(optimiser steps, generation batches): each batch is passed over ``iterations`` times."""
    amount = part.amount
    wanted = amount.max_steps
    if wanted is None:
        wanted = max(1, round(amount.epochs * problems / part.problems_per_step)) * part.iterations
    batches = max(1, wanted // part.iterations)
    return batches * part.iterations, batches


def grpo_arguments(recipe: Recipe, part: GrpoStage, *, folder: Path, steps: int, seed: int) -> dict[str, Any]:
    """Keyword arguments of ``GRPOConfig``. Every step is logged; a save falls on the end of a generation batch."""
    plan = plan_steps(part.amount, recipe.hardware, part.amount.batch)
    shared = trainer_arguments(
        recipe,
        part,
        folder=folder,
        steps=steps,
        seed=seed,
        micro_batch=plan.micro_batch,
        accumulation=plan.accumulation,
    )
    saving = -(-shared["save_steps"] // part.iterations) * part.iterations
    arguments = {
        **shared,
        "logging_steps": 1,
        "save_steps": saving,
        "max_steps": steps,
        "loss_type": "dr_grpo",
        "scale_rewards": "none",
        "beta": part.beta,
        "num_generations": part.group,
        "num_iterations": part.iterations,
        "steps_per_generation": plan.accumulation,
        "max_completion_length": part.loss_length or recipe.context.max_length,
        "mask_truncated_completions": False,  # an attempt is cut by our limits, not by its last token
        "temperature": part.temperature,
        "top_p": part.top_p,
        "epsilon": part.epsilon,
        "epsilon_high": part.epsilon_high,
        "entropy_coef": part.entropy_coef,
        "shuffle_dataset": False,
        "logging_nan_inf_filter": False,
    }
    if recipe.hardware.vllm != "off":
        arguments |= {
            "use_vllm": True,
            "vllm_mode": recipe.hardware.vllm,
            "vllm_enable_sleep_mode": recipe.hardware.vllm
            == "colocate",  # its share is free while the model is trained
            "vllm_gpu_memory_utilization": recipe.hardware.vllm_memory,
            "vllm_max_model_length": recipe.context.max_length,
            # one reply, where TRL's own limit is that of a whole attempt
            "generation_kwargs": {"max_tokens": min(recipe.context.reply_tokens, part.limits.reply_tokens)},
        }
    return arguments


def _trainer(
    model: Any,
    tokenizer: Any,
    task: Task,
    order: Sequence[int],
    arguments: Mapping[str, Any],
    part: GrpoStage,
    report: Report,
    steps: int,
) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback, set_seed
    from trl import GRPOConfig

    set_seed(int(arguments["seed"]))
    dataset = Dataset.from_dict({"prompt": [""] * len(order), "slot": list(range(len(order))), "asked": list(order)})
    trainer = turn_grpo(
        task,
        model=model,
        args=GRPOConfig(**arguments),
        train_dataset=dataset,
        processing_class=tokenizer,
        callbacks=[*callbacks(report, steps), _watch(part, report)],
        optimizers=optimizers(model, part.optimiser),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _watch(part: GrpoStage, report: Report) -> Any:
    """Reports every step and ends the training where the recipe's limits say so."""
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        """Looks at the numbers of each step."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
            if not logs or "zero_variance" not in logs:
                return
            if state.is_world_process_zero:
                told = {name: float(logs[name]) for name in (*NUMBERS, "entropy") if logs.get(name) is not None}
                report(f"step {state.global_step}: {step_line(told)}")
                report_metrics(report, state.global_step, told)
            stop = verdict(state.log_history, part)
            if stop is not None:
                report(f"stopped at step {stop.step}: {stop.reason}")
                control.should_training_stop = True

    return Watch()


def _fit(trainer: Any, saved: Path | None, report: Report) -> dict[str, Any]:
    if saved is not None:
        report(f"going on at {saved.name}")
    started, cpu = time.perf_counter(), time.process_time()
    trainer.train(resume_from_checkpoint=str(saved) if saved is not None else None)
    seconds = time.perf_counter() - started
    report(f"trained {trainer.state.global_step} steps in {seconds:.0f} s")
    return {
        "steps": trainer.state.global_step,
        "resumed_at": step_of(saved),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
    }


def _numeric(trainer: Any, name: str) -> bool:
    values = [entry[name] for entry in trainer.state.log_history if entry.get(name) is not None]
    return bool(values) and all(isinstance(value, int | float) for value in values)


def _world(files: Mapping[str, Path]) -> Any:
    from trajectory_platform.sandbox.catalogue_index import open_world

    if "world" not in files:
        raise FailPartition("no catalogue: the job names no folder of an index, so nothing can be attempted")
    return open_world(files["world"])


def _scorer(world: Any, rules: Rules) -> Any:
    from trajectory_platform.judging.matching import find_rules
    from trajectory_platform.judging.outcome import Scorer

    return Scorer(world.catalogue, find_rules(*rules))


def _rules(files: Mapping[str, Path]) -> Rules:
    import orjson

    return Rules(**orjson.loads(files["rules"].read_bytes())) if "rules" in files else Rules()


def _facts(asked: Sequence[Asked], order: Sequence[int], shared: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    told = [[one.key, None if one.reference is None else one.reference.trace_id] for one in asked]
    return {
        "version": VERSION,
        "problems": digest_json(told),
        "order": digest_json(list(order)),
        "rules": list(rules),
        **shared,
    }


def times_of(asked: Sequence[Asked], done: Sequence[int], group: int) -> dict[tuple[str, str], float]:
    """(id, role) -> attempts: of each problem that was attempted, and of the reference its attempts were held to."""
    times: dict[tuple[str, str], float] = {}
    for at, visits in Counter(done).items():
        one = asked[at]
        times[f"prompt:{one.key}", PROMPT] = float(visits * group)
        if one.reference is not None:
            key = (one.reference.trace_id, REFERENCE)
            times[key] = times.get(key, 0.0) + visits * group
    return dict(sorted(times.items()))


def _told(
    rows: Rows, asked: Sequence[Asked], done: Sequence[int], history: Sequence[Mapping[str, Any]], part: GrpoStage
) -> dict[str, Any]:
    """What became of the rows, and of the attempts over all steps."""
    attempts = part.amount.batch
    new = history[:: part.iterations]
    counted = ("clipped", "dropped", "masked", "unscorable", "hallucinated")
    return {
        "rows": len(rows.rows) + len(rows.dropped),
        "rows_used": len(set(done)),
        "dropped_rows": list(rows.dropped),
        "cut_rows": [],
        "duplicate_rows": [],
        "problems": len(asked),
        "problems_without_reference": sum(one.reference is None for one in asked),
        "attempts": len(done) * part.group,
        **{f"attempts_{name}": round(sum(entry.get(name, 0.0) for entry in new) * attempts) for name in counted},
        "replies_left_out": round(sum(entry.get("replies_left_out", 0.0) for entry in new)),
        "steps_at_a_limit": warnings(new, part),
        "turn_reward_version": TURN_REWARD_VERSION,
    }
