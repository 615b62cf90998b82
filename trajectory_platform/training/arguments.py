"""Arguments of every trainer, made in one place from a stage's part, the hardware and the seed.

They are keyword arguments that TRL's ``SFTConfig``, ``KTOConfig`` and ``GRPOConfig`` all take, so that precision,
devices, saving and logging never differ between stages by accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import Report, report_metrics
from trajectory_platform.training.checkpoints import package_versions
from trajectory_platform.training.recipe import Hardware, Recipe
from trajectory_platform.training.resume import completion_marks
from trajectory_platform.training.stage_recipes import Amount, AnyStage, Optimiser

HISTORY = ("step", "loss", "learning_rate", "grad_norm", "mean_token_accuracy")
LOGGED = 20  # points of the loss curve in a run, about
SAVED = 10  # trainer checkpoints made in a run, about


class Steps(NamedTuple):
    """``steps`` of the optimiser; ``micro_batch`` rows per device and pass, ``accumulation`` passes per step."""

    steps: int
    micro_batch: int
    accumulation: int


def plan_steps(amount: Amount, hardware: Hardware, rows: int) -> Steps:
    """How ``rows`` rows in their order become optimiser steps of ``amount.batch`` rows, all devices together."""
    each = amount.batch // hardware.processes
    micro = amount.micro_batch or each
    return Steps(-(-rows // amount.batch), micro, each // micro)


def trainer_arguments(
    recipe: Recipe, part: AnyStage, *, folder: Path, steps: int, seed: int, micro_batch: int, accumulation: int
) -> dict[str, Any]:
    """Keyword arguments of TRL's configurations. Trainer checkpoints go to ``folder/trainer``.

    Rows are taken in the order they are given (epochs are laid out in it). Every save falls on a step that is logged,
    so a resumed run has the history of an uninterrupted one.
    """
    optimiser, hardware = part.optimiser, recipe.hardware
    logging, saving = _intervals(steps, part.save_every)
    return {
        "output_dir": str(folder / "trainer"),
        "num_train_epochs": 1,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "learning_rate": optimiser.learning_rate,
        "weight_decay": optimiser.weight_decay,
        "adam_beta2": optimiser.beta2,
        "max_grad_norm": optimiser.max_grad_norm,
        "lr_scheduler_type": optimiser.schedule,
        "warmup_steps": round(optimiser.warmup_share * steps),
        "bf16": hardware.precision == "bf16",
        "use_cpu": hardware.profile == "cpu",
        "gradient_checkpointing": hardware.gradient_checkpointing,
        "report_to": [],
        "save_strategy": "steps",
        "save_steps": saving,
        "save_total_limit": 2,  # the one before stays until the new one is marked complete
        "logging_strategy": "steps",
        "logging_steps": logging,
        "logging_nan_inf_filter": False,  # it hides a loss that is no number behind the mean of those before
        "disable_tqdm": True,
        "seed": seed,
        "data_seed": seed,
        "dataloader_num_workers": 0,
        "ddp_find_unused_parameters": False,
        "eval_strategy": "no",  # no evaluation set is ever made up here (case C14)
    }


def resume_facts(arguments: Mapping[str, Any], hardware: Hardware) -> dict[str, Any]:
    """What every trainer's saved steps depend on besides its rows, for ``resume.agree``.

    The devices are among it: sharded and whole trainer checkpoints do not read each other's files, and one without its
    optimiser would be gone on from in silence.
    """
    return {
        "arguments": {name: value for name, value in arguments.items() if name != "output_dir"},
        "devices": hardware.model_dump(mode="json", include={"profile", "processes", "precision", "zero"}),
        "packages": package_versions(),
    }


def optimizers(model: Any, optimiser: Optimiser) -> tuple[Any, None]:
    """What a trainer takes as ``optimizers``: Muon, or nothing, from which it makes AdamW; the schedule is its own."""
    if optimiser.kind == "adamw":
        return None, None
    from trajectory_platform.training.muon import build_muon

    return build_muon(model, optimiser), None


def callbacks(report: Report, steps: int) -> list[Any]:
    """Progress lines (``step N/M loss ...``) and the marks by which a killed run goes on."""
    from transformers import TrainerCallback

    class Progress(TrainerCallback):
        """Prints the loss at every logging step."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
            if logs and "loss" in logs and state.is_world_process_zero:
                report(f"step {state.global_step}/{steps} loss {float(logs['loss']):.3f}")
                numbers = {key: float(value) for key, value in logs.items() if isinstance(value, int | float)}
                report_metrics(report, state.global_step, numbers)

    return [completion_marks(), Progress()]


def history_of(trainer: Any, keep: tuple[str, ...] = HISTORY) -> list[dict[str, float]]:
    """The logged numbers of a run, one entry per logging step.

    Raises:
        FailPartition: a loss that is not finite.
    """
    entries = [
        {key: float(entry[key]) for key in keep if entry.get(key) is not None} for entry in trainer.state.log_history
    ]
    for entry in entries:
        loss = entry.get("loss", 0.0)
        if loss != loss or abs(loss) == float("inf"):
            raise FailPartition("the training loss is not finite")
    return [entry for entry in entries if "loss" in entry]


def _intervals(steps: int, save_every: int | None) -> tuple[int, int]:
    """(steps between two logged losses, steps between two saves), the second a multiple of the first."""
    logging = max(1, steps // LOGGED)
    if save_every is None:
        return logging, logging * max(1, -(-steps // (logging * SAVED)))
    while save_every % logging:
        logging -= 1
    return logging, save_every
