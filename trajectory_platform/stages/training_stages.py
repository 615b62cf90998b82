"""The training stages: one function for all of them; a stage of training is a row of :data:`TRAINING`.

A stage starts from the nearest earlier stage of the recipe that has a checkpoint of the same day. One that is not in
the recipe, has nothing to start from or too little to train on publishes an empty slot whose summary says why.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.lake import tables
from trajectory_platform.stages import attempted_problems, training_rows
from trajectory_platform.stages.catalogue import day_catalogue
from trajectory_platform.stages.checkpoints import (
    NOT_IN_RECIPE,
    beside_others,
    described_inputs,
    folder_of,
    forget_lost,
    parent_of,
    seen_rows,
    verify,
)
from trajectory_platform.stages.context import Produced, StageContext, StageResult, input_digests, run_stage
from trajectory_platform.stages.generated_slots import generated_input
from trajectory_platform.stages.retraction import generated_inputs
from trajectory_platform.stages.splits import check_trainable, days_up_to, published_window
from trajectory_platform.stages.training_rows import DESIRABLE, SFT_USE, UNDESIRABLE, Feed, Material

if TYPE_CHECKING:
    from trajectory_platform.evaluation.child import Runner
    from trajectory_platform.training.launch import CheckpointResult
    from trajectory_platform.training.recipe import Recipe

Described = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Training:
    """One stage of training.

    Attributes:
        stage: its name in a recipe and its partition of ``checkpoints`` and ``checkpoint_traces``.
        material: its rows and files from a feed; the folder is scratch that lives as long as the training.
        uses: of the accepted traces it is trained on, for the guard.
        generated: stages whose generated traces it reads.
        attempts: it acts in the sandbox while it trains: problems and catalogue are inputs too.
        description: for people.
    """

    stage: str
    material: Callable[[Feed, Path], Material]
    description: str
    uses: tuple[str, ...] = (SFT_USE,)
    generated: tuple[str, ...] = ()
    attempts: bool = False

    @property
    def asset(self) -> str:
        """Its name in the graph and in ``STAGE_SETTINGS``."""
        return f"{self.stage}_checkpoint"

    @property
    def part(self) -> dict[str, str]:
        return {"stage": self.stage}


TRAINING = (
    Training(
        "sft",
        training_rows.supervised,
        "Qwen3 fine-tuned on the train pool of the window, loss on what the model wrote only. Runs in its own process "
        "(Dagster Pipes). Refuses to start when a dev or sealed cluster is among its rows.",
    ),
    Training(
        "resft",
        training_rows.with_generated,
        "Rejection-sampled SFT: the parent's own strict successes on train problems (`resft_rollouts`), mixed with the "
        "corpus.",
        generated=("resft",),
    ),
    Training(
        "teacher_sft",
        training_rows.with_generated,
        "Continued SFT on a teacher's strict successes with grounded reasoning (`teacher_traces`), mixed with the "
        "corpus.",
        generated=("teacher_sft",),
    ),
    Training(
        "kto",
        training_rows.preferred,
        "KTO on single turns of judged traces: desirable or not by uses and verdicts.",
        uses=(DESIRABLE, UNDESIRABLE),
    ),
    Training(
        "dr_grpo",
        attempted_problems.attempted,
        "Dr. GRPO: attempts at train problems in the sandbox, each turn rewarded against the best strict success known "
        "for the problem, plus the outcome.",
        generated=("teacher_sft",),
        attempts=True,
    ),
)


def training_of(stage: str) -> Training:
    """The row of a stage."""
    return next(row for row in TRAINING if row.stage == stage)


def train_stage(ctx: StageContext, day: str, *, row: Training, run: Runner | None) -> StageResult:
    """One checkpoint as of a day, or an empty slot that says why there is none.

    Raises:
        FailPartition: a leak, a damaged row or parent, or a training process that died.
    """
    from trajectory_platform.training import launch
    from trajectory_platform.training.recipe import load_recipe

    recipe = load_recipe(ctx.settings.recipe).resolved(ctx.settings.seed)
    forget_lost(ctx, day, row.stage)
    if row.stage not in recipe.names():
        return _published(ctx, day, row, {}, {"recipe": None}, lambda: _nothing(ctx, day, row, NOT_IN_RECIPE))
    parent, lacking = parent_of(ctx, day, recipe, row.stage)
    base = launch.base_digest(recipe) if parent is None else None
    partitions = _partitions(ctx, day, row, recipe)
    further = _further_inputs(ctx, day, row)
    started = parent["checkpoint_id"] if parent else lacking
    said = {"recipe": recipe.identity(row.stage), "parent": started, "base": base}

    def body() -> Produced:
        check_trainable(ctx, day, row.uses)
        if lacking is not None:
            return _nothing(ctx, day, row, lacking)
        feed = Feed(ctx, day, recipe, row.stage)
        if parent is not None:
            feed.held_out.check_parent(parent["checkpoint_id"], seen_rows(ctx, parent["checkpoint_id"]))
            verify(ctx, parent)
        with tempfile.TemporaryDirectory(prefix=f"{row.stage}-") as scratch:
            material = row.material(feed, Path(scratch))
            result = launch.train_checkpoint(
                day=day,
                stage=row.stage,
                recipe=recipe,
                seed=ctx.settings.seed,
                splits=ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [day]),
                rows=material.rows,
                inputs={**described_inputs(ctx, partitions), **further},
                checkpoint_root=ctx.settings.checkpoint_root,
                held_out_clusters=feed.held_out.cluster_ids(),
                parent=launch.Parent(parent["checkpoint_id"], folder_of(ctx, parent)) if parent else None,
                files=material.files,
                runner=run,
            )
        return _made(ctx, day, row, result, feed.counts)

    digests = {
        **input_digests(ctx, partitions),
        **{name: str(entry["content_digest"]) for name, entry in further.items()},
    }
    return _published(ctx, day, row, digests, said, body, launch.code_version(row.stage))


def _partitions(ctx: StageContext, day: str, row: Training, recipe: Recipe) -> dict[str, Sequence[str]]:
    """The day partitions that the rows of a stage come from."""
    window = published_window(ctx, tables.AXIS_A_CORPUS, day)
    found: dict[str, Sequence[str]] = {"leak_guarded_splits": [day], "leak_clusters": [day], "axis_a_corpus": window}
    select = getattr(recipe.stage(row.stage), "select", None)
    control = select is not None and select.source == "unfiltered"
    if control:
        found["trajectories"] = published_window(ctx, tables.TRAJECTORIES, day)
    if control or DESIRABLE in row.uses:
        found["judged_traces"] = published_window(ctx, tables.JUDGED_TRACES, day)
    if row.attempts:
        found["problem_suites"] = days_up_to(ctx, tables.PROBLEM_SUITES, day)
    return found


def _further_inputs(ctx: StageContext, day: str, row: Training) -> Described:
    """What else a checkpoint is made of, named and digested like a partition."""
    found: Described = {"training_rows": {"content_digest": training_rows.ROWS_VERSION}}
    for stage in row.generated:
        found |= generated_input(ctx, day, stage)
        # a retracted corpus row is out of the splits; one that was generated is left out on the way
        found |= {name: {"content_digest": digest} for name, digest in generated_inputs(ctx, day, stage).items()}
    if row.attempts:
        found["product_catalogue"] = {"content_digest": day_catalogue(ctx, day)[0]}
        rules = attempted_problems.rules_of(ctx)
        found["rules_of_the_score"] = {"content_digest": "/".join(rules)}
    return found


def _published(
    ctx: StageContext,
    day: str,
    row: Training,
    inputs: dict[str, str],
    said: dict[str, Any],
    body: Callable[[], Produced],
    code_version: str = NOT_IN_RECIPE,
) -> StageResult:
    return run_stage(
        ctx,
        stage=row.asset,
        day=day,
        code_version=code_version,
        tables=(tables.CHECKPOINT_TRACES, tables.CHECKPOINTS),
        inputs=inputs,
        body=body,
        part=row.part,
        extra_settings=said,
    )


def _made(ctx: StageContext, day: str, row: Training, result: CheckpointResult, counts: dict[str, Any]) -> Produced:
    summary = {
        "checkpoint_id": result.checkpoint_id or "",
        "status": result.status,
        "reason": result.reason or "",
        "parent": (result.manifest or {}).get("parent") or "",
        "traces": result.traces.num_rows,
        **counts,
        **{key: value for key, value in result.metrics.items() if isinstance(value, int | float | str)},
    }
    run = result.metrics.get("run")  # measured, so in the summary only: what a retraction's cost is estimated from
    summary |= {f"run_{name}": run[name] for name in ("seconds", "tokens") if isinstance(run, dict) and name in run}
    listed = ((tables.CHECKPOINT_TRACES, result.traces), (tables.CHECKPOINTS, result.checkpoints))
    return Produced(
        [beside_others(ctx, table, day, result.checkpoint_id, rows, row.part) for table, rows in listed], summary
    )


def _nothing(ctx: StageContext, day: str, row: Training, reason: str) -> Produced:
    """An empty slot; checkpoints of other recipes stay in it."""
    summary = {"checkpoint_id": "", "status": "skipped", "reason": reason, "parent": "", "traces": 0}
    outputs = [
        beside_others(ctx, table, day, None, table.schema().empty_table(), row.part)
        for table in (tables.CHECKPOINT_TRACES, tables.CHECKPOINTS)
    ]
    return Produced(outputs, summary)
