"""The evaluations by rollouts: what a checkpoint achieves in the sandbox on problems it cannot have seen.

One function for all of them; a stage of training is a row of :data:`EVALUATIONS`. Each publishes its attempts
(``rollouts``, canonical traces with their proxy log) and their strict scores (``eval_scores``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform import jsontext
from trajectory_platform.lake import sealed_scores, tables
from trajectory_platform.stages.base_model import base_subject
from trajectory_platform.stages.checkpoints import (
    beside_others,
    current_checkpoint,
    first_checkpoint,
    folder_of,
    named,
    verify,
)
from trajectory_platform.stages.context import Produced, StageContext, StageResult, input_digests, run_stage
from trajectory_platform.stages.eval_pools import (
    evaluable,
    evaluable_clusters,
    index_folder,
    pool_inputs,
    record_sealed,
    references_for,
)
from trajectory_platform.stages.evaluation_files import compare_files as compare_files
from trajectory_platform.stages.evaluation_files import evaluate_files as evaluate_files
from trajectory_platform.stages.references import reference_inputs
from trajectory_platform.stages.splits import days_up_to

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.evaluation.child import Runner
    from trajectory_platform.evaluation.eval_problems import Selection
    from trajectory_platform.evaluation.eval_rows import Rules
    from trajectory_platform.evaluation.plan import ActionPlan
    from trajectory_platform.evaluation.rollout_launch import Subject
    from trajectory_platform.sandbox.products import ProductCatalogue
    from trajectory_platform.training.recipe import Recipe

LOGS = ".rollouts"  # below checkpoint_root: the logs of evaluations that are not published yet


@dataclass(frozen=True)
class Evaluation:
    """One evaluation.

    Attributes:
        asset: its name in the graph and in ``STAGE_SETTINGS``.
        stage: its partition of ``rollouts`` and ``eval_scores``.
        description: for people.
        untrained: measure the model that the run started from, not the checkpoint of ``stage``.
    """

    asset: str
    stage: str
    description: str
    untrained: bool = False

    @property
    def checkpoint_asset(self) -> str:
        """The checkpoint it measures; an untrained model has the shape of the first one of the run."""
        return f"{self.stage}_checkpoint"

    @property
    def part(self) -> dict[str, str]:
        return {"stage": self.stage}


def _evaluation_of(stage: str, words: str) -> Evaluation:
    return Evaluation(asset=f"{stage}_eval", stage=stage, description=f"{words}, on the same problems as all others.")


EVALUATIONS = (
    Evaluation(
        asset="base_eval",
        stage="base",
        description="The model **before** training (same tokenizer, template and limits) in the sandbox, on the same "
        "problems as `sft_eval`: what training is compared with. With `model.base` the base folder itself.",
        untrained=True,
    ),
    Evaluation(
        asset="sft_eval",
        stage="sft",
        description="The day's SFT checkpoint in the sandbox on dev problems, one of each leak cluster first: strict "
        "success, pass@k, hallucinated ids, what was cut. Crashes and timeouts are failures; problems without a "
        "reward are counted apart. A killed run resumes.",
    ),
    _evaluation_of("resft", "The rejection-sampled re-SFT checkpoint in the sandbox"),
    _evaluation_of("teacher_sft", "The checkpoint after the teacher's traces in the sandbox"),
    _evaluation_of("kto", "The KTO checkpoint in the sandbox"),
    _evaluation_of("dr_grpo", "The Dr. GRPO checkpoint, the last of a run, in the sandbox"),
)


def utc_now() -> datetime:
    """The time a look at sealed problems is recorded with."""
    return datetime.now(UTC)


def evaluate_stage(
    ctx: StageContext, day: str, *, row: Evaluation, run: Runner | None, now: Callable[[], datetime] = utc_now
) -> StageResult:
    """Attempts and strict scores of one checkpoint on the plan's pool as of ``day``.

    A day without a checkpoint, a catalogue or a problem to attempt publishes empty with a ``state`` that says which.
    A look at the sealed pool is in the ledger before anything is attempted, or nothing is published.

    Raises:
        FailPartition: a problem of the pool was trained on, a damaged checkpoint, or the process died.
    """
    from trajectory_platform.evaluation.eval_rows import Rules
    from trajectory_platform.stages.catalogue import day_catalogue
    from trajectory_platform.training.recipe import load_recipe

    chosen = ctx.settings
    recipe = load_recipe(chosen.recipe)
    rules = Rules(chosen.title_regime, chosen.title_encoder, chosen.attribute_rule)
    seed = recipe.resolved(chosen.seed).seed if row.untrained else None
    checkpoint = first_checkpoint(ctx, day) if row.untrained else current_checkpoint(ctx, day, row.stage)
    subject: Subject | None = None
    if row.untrained and recipe.model.base is not None:
        checkpoint, subject = None, base_subject(ctx, recipe)
    elif checkpoint is not None:
        subject = _subject(ctx, checkpoint, day, seed, recipe)
    suite_days = days_up_to(ctx, tables.PROBLEM_SUITES, day)
    catalogue_digest, load = day_catalogue(ctx, day)
    logs: list[Path] = []

    def body() -> Produced:
        if subject is None:
            return _nothing(ctx, row, day, None, "no_checkpoint")
        catalogue = load()
        if catalogue is None:
            return _nothing(ctx, row, day, subject.name, "no_catalogue")
        one = _Measurement(ctx, row, day, checkpoint, subject, recipe.evaluation)
        selection, beside = one.selection(suite_days, now())
        made = one.produced(selection, catalogue, rules, run, logs)
        return replace(made, summary=made.summary | beside)

    result = run_stage(
        ctx,
        stage=row.asset,
        day=day,
        code_version=code_version(),
        tables=(tables.ROLLOUTS, tables.EVAL_SCORES),
        inputs={
            **input_digests(ctx, {"leak_clusters": [day], "problem_suites": suite_days, **reference_inputs(ctx, day)}),
            "checkpoint": named(checkpoint),
            "subject": subject.name if subject else "none",
            "catalogue": catalogue_digest,
            **pool_inputs(ctx, day, suite_days, recipe.evaluation.rollouts.pool),
        },
        body=body,
        part=row.part,
        extra_settings={"plan": recipe.evaluation.rollouts.identity(), "plan_seed": recipe.evaluation.seed},
    )
    for log in logs:  # what it held is published now
        log.unlink(missing_ok=True)
    return result


def evaluated_rows(ctx: StageContext, day: str, row: Evaluation) -> list[dict[str, Any]]:
    """The ``eval_scores`` rows that the present settings made of a day; rows of other recipes are left out.

    Raises:
        FailPartition: sealed scores that the ledger knows no look of.
    """
    import pyarrow.compute as pc

    manifest = ctx.lake.manifest(tables.EVAL_SCORES, day, row.part)
    if manifest is None or not manifest.summary["checkpoint_id"]:
        return []
    own = (pc.field("stage") == row.stage) & (pc.field("checkpoint_id") == manifest.summary["checkpoint_id"])
    rows: list[dict[str, Any]] = ctx.lake.read(tables.EVAL_SCORES, [day], filter=own).to_pylist()
    sealed_scores.assert_scores_looked(ctx.lake, rows)
    return rows


def looks_line(ctx: StageContext, rows: list[dict[str, Any]]) -> str:
    """How often sealed problems were looked at, for beside the scores of one policy; "" where no row is sealed."""
    scored = {row["checkpoint_id"] for row in rows if row["pool"] == "sealed"}
    return " ".join(sealed_scores.looks_text(sealed_scores.looks(ctx.lake, name)) for name in sorted(scored))


@dataclass(frozen=True)
class _Measurement:
    """One evaluation that has something to measure; a base folder is no checkpoint."""

    ctx: StageContext
    row: Evaluation
    day: str
    checkpoint: dict[str, Any] | None
    subject: Subject
    plan: ActionPlan

    def selection(self, suite_days: list[str], at: datetime) -> tuple[Selection, dict[str, int]]:
        """The problems of the plan's pool, and what the choice was made from; the checkpoint is whole and has seen none
        of them, or it fails here.

        A look at sealed ones is recorded as of ``at``, whether the attempts are made now or taken from before.
        """
        from trajectory_platform.evaluation.eval_problems import select

        ctx, plan = self.ctx, self.plan.rollouts
        if self.checkpoint is not None:
            verify(ctx, self.checkpoint)
        trained = None if self.checkpoint is None else self.checkpoint["checkpoint_id"]
        sealed_too = plan.sealed_reason is not None
        found = evaluable(ctx, self.day, suite_days, plan.pool, trained, sealed_too=sealed_too)
        selection = select(found.problems, limit=plan.problems, seed=self.plan.seed)
        selection = selection._replace(contaminated=found.contaminated)
        record_sealed(
            ctx.lake,
            checkpoint_id=self.subject.name,
            problems=selection.chosen,
            detail=f"{self.row.asset} {self.day}",
            reason=plan.sealed_reason,
            at=at,
        )
        beside = {"available_clusters": evaluable_clusters(found.problems)}
        return selection, beside | ({"withheld_problems": found.withheld} if found.withheld else {})

    def produced(
        self, selection: Selection, catalogue: ProductCatalogue, rules: Rules, run: Runner | None, logs: list[Path]
    ) -> Produced:
        """Attempt, score, and say what came out; the log of unpublished attempts is added to ``logs``."""
        from trajectory_platform.evaluation import eval_rows, rollout_launch

        place = rollout_launch.Place(str(index_folder(self.ctx, self.day, catalogue)), catalogue.digest)
        identity = rollout_launch.attempts_identity(
            self.subject, selection.chosen, self.plan.rollouts, self.plan.seed, place
        )
        attempts = self._published(identity)
        if not selection.chosen:
            attempts = tables.ROLLOUTS.schema().empty_table()
        elif attempts is None:
            root = Path(self.ctx.settings.checkpoint_root) / LOGS
            logs.append(root / f"{self.row.stage}-{self.day}-{identity[:16]}.jsonl")
            attempts = rollout_launch.roll_out(
                subject=self.subject,
                chosen=selection.chosen,
                plan=self.plan.rollouts,
                seed=self.plan.seed,
                place=place,
                log=logs[-1],
                day=self.day,
                stage=self.row.stage,
                runner=run,
            ).rollouts
        measured = eval_rows.Measured(self.subject.name, self.day, self.row.stage)
        scores = eval_rows.score_table(
            attempts,
            selection,
            catalogue,
            rules,
            samples=self.plan.rollouts.samples,
            measured=measured,
            references=references_for(self.ctx, self.day, selection.chosen),
        )
        sealed_scores.assert_scores_looked(self.ctx.lake, scores.to_pylist())
        name, pool = self.subject.name, self.plan.rollouts.pool
        summary = {**_summary(selection, attempts, scores, name, pool), "attempts_identity": identity[:16]}
        if any(one.pool == "sealed" for one in selection.chosen):
            counted = sealed_scores.looks(self.ctx.lake, name)
            summary |= {"sealed_looks": counted.own, "sealed_looks_of_all": counted.evaluations}
        return _outputs(self.ctx, self.row, self.day, name, attempts, scores, summary)

    def _published(self, identity: str) -> pa.Table | None:
        """The published attempts where they are these very ones: other rules of scoring attempt nothing again."""
        import pyarrow.compute as pc

        manifest = self.ctx.lake.manifest(tables.ROLLOUTS, self.day, self.row.part)
        if manifest is None or manifest.summary.get("attempts_identity") != identity[:16]:
            return None
        own = (pc.field("stage") == self.row.stage) & (pc.field("checkpoint_id") == self.subject.name)
        return self.ctx.lake.read(tables.ROLLOUTS, [self.day], filter=own)


def code_version() -> str:
    """Everything whose change may change an attempt or its score."""
    from trajectory_platform.evaluation import conduct, eval_rows, rollout_launch
    from trajectory_platform.judging import outcome

    return " ".join((rollout_launch.versions(), eval_rows.VERSION, conduct.CONDUCT_VERSION, outcome.SCORER_VERSION))


def _subject(ctx: StageContext, checkpoint: dict[str, Any], day: str, seed: int | None, recipe: Recipe) -> Subject:
    """The checkpoint itself, or with a seed the model it started from."""
    from trajectory_platform.evaluation import rollout_launch

    if seed is None:
        return rollout_launch.trained(checkpoint["checkpoint_id"], folder_of(ctx, checkpoint), recipe.threads)
    manifest = jsontext.parse(checkpoint["manifest"].encode()).value
    return rollout_launch.untrained(manifest, folder_of(ctx, checkpoint), seed, recipe.threads, day)


def _nothing(ctx: StageContext, row: Evaluation, day: str, name: str | None, state: str) -> Produced:
    summary = {"state": state, "checkpoint_id": name or "", "problems": 0, "attempts": 0}
    empty = tables.ROLLOUTS.schema().empty_table(), tables.EVAL_SCORES.schema().empty_table()
    return _outputs(ctx, row, day, name, *empty, summary)


def _outputs(
    ctx: StageContext,
    row: Evaluation,
    day: str,
    name: str | None,
    attempts: pa.Table,
    scores: pa.Table,
    summary: dict[str, Any],
) -> Produced:
    """Beside those of other recipes, as the checkpoints themselves are."""
    listed = ((tables.ROLLOUTS, attempts), (tables.EVAL_SCORES, scores))
    return Produced([beside_others(ctx, table, day, name, rows, row.part) for table, rows in listed], summary)


def _summary(selection: Selection, attempts: pa.Table, scores: pa.Table, name: str, pool: str) -> dict[str, Any]:
    outcomes = Counter(scores.column("outcome").to_pylist())
    evaluated = scores.num_rows - outcomes["no_reward"]
    counts: dict[str, Any] = {
        "state": "ok" if selection.chosen else f"no_{pool}_problems",
        "checkpoint_id": name,
        "pool": pool,
        "problems": len(selection.chosen),
        "available_problems": selection.available,
        "contaminated_problems": selection.contaminated,
        "clusters": len({one.cluster_id for one in selection.chosen}),
        "attempts": attempts.num_rows,
        **{f"outcome_{outcome}": count for outcome, count in sorted(outcomes.items())},
        "truncated": sum(scores.column("truncated").to_pylist()),
    }
    return counts | ({"success_share": outcomes["success"] / evaluated} if evaluated else {})
