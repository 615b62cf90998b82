"""What goes into a stage's trainer and what comes out of it; the same for all five stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import Report
from trajectory_platform.training.datasets import TraceRow
from trajectory_platform.training.recipe import Recipe


class Rows(NamedTuple):
    """The rows of a job, sorted by trace id and role, and those that could not be read, with reason."""

    rows: list[TraceRow]
    dropped: list[dict[str, str]]


class Trained(NamedTuple):
    """A trained model with everything its checkpoint records.

    Attributes:
        times: (trace_id, role) -> how often it was used; what was never used is absent.
        report: counts and lists (``dropped_rows``, ``cut_rows``, ``duplicate_rows``) of what became of the rows.
        metrics: deterministic numbers; ``run``: seconds and speed (not).
        state: the weights where ``model`` does not hold them whole (sharded over processes), else None.
        loss_mask: the picture of one row (``training.loss_mask``), or None.
    """

    model: Any
    tokenizer: Any
    times: dict[tuple[str, str], float]
    report: dict[str, Any]
    metrics: dict[str, Any]
    history: list[dict[str, float]]
    run: dict[str, Any]
    state: dict[str, Any] | None = None
    loss_mask: dict[str, Any] | None = None


class Trainer(Protocol):
    """A stage's trainer.

    ``parent``: folder of the checkpoint it starts from; None is the base model of the recipe. ``folder``: its place
    for trainer checkpoints (``training.resume``). ``files``: further inputs by name.
    """

    def __call__(
        self,
        rows: Rows,
        recipe: Recipe,
        stage: str,
        *,
        parent: Path | None,
        folder: Path,
        files: Mapping[str, Path],
        report: Report,
    ) -> Trained: ...


def trainer_of(stage: str) -> Trainer:
    """The trainer of a stage; importing it costs torch and TRL only when it is called.

    Raises:
        FailPartition: no such stage.
    """
    if stage in ("sft", "resft", "teacher_sft"):
        from trajectory_platform.training.sft import train_sft

        return train_sft
    if stage == "kto":
        from trajectory_platform.training.preference import train_kto

        return train_kto
    if stage == "dr_grpo":
        from trajectory_platform.training.reinforcement import train_dr_grpo

        return train_dr_grpo
    raise FailPartition(f"no trainer for the stage {stage!r}")


def final_weights(trainer: Any, precision: str) -> tuple[Any, dict[str, Any] | None]:
    """(model to be saved, its whole weights or None when they are in it) after training.

    An adapter is merged, so that a checkpoint is always one model. Weights that were sharded (ZeRO 3) are gathered;
    every process must call this, and only the first gets them.

    Raises:
        FailPartition: a weight is not finite: a last step may break what no logged loss shows any more.
    """
    import torch

    model = trainer.accelerator.unwrap_model(trainer.model)
    sharded = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    state = None
    if sharded is not None and sharded.zero_stage == 3:
        state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
        if hasattr(model, "merge_and_unload"):
            raise FailPartition("an adapter cannot be merged while its weights are sharded; use zero 2 with adapters")
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    for name, value in (model.state_dict() if state is None else state).items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise FailPartition(f"the trained weights are not finite ({name}); nothing was published")
    if precision == "bf16":
        if state is not None:
            state = {name: value.to(torch.bfloat16) for name, value in state.items()}
        else:
            model = model.to(torch.bfloat16)
        model.config.dtype = torch.bfloat16
    return model, state
