"""What the stages generate for themselves: the parent's rollouts for re-SFT, a teacher's for teacher SFT.

Both attempt problems of the train pool that have a public reward, one of each leak cluster first, and publish every
attempt to ``generated_traces`` with the reason why it is a training row or not. The rows of other parents and teachers
stay in the slot, so that what an older checkpoint was fed can always be answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort
from trajectory_platform.identity import digest_json
from trajectory_platform.lake import tables
from trajectory_platform.stages.attempted_problems import chosen_problems, market, rules_of
from trajectory_platform.stages.catalogue import day_catalogue
from trajectory_platform.stages.checkpoints import NO_PARENT, NOT_IN_RECIPE, beside_others, folder_of, parent_of, verify
from trajectory_platform.stages.context import (
    Output,
    Produced,
    StageContext,
    StageResult,
    input_digests,
    run_stage,
)
from trajectory_platform.stages.generated_slots import SLOTS_VERSION, accepted_digest, beside_sources
from trajectory_platform.stages.splits import days_up_to, published_window
from trajectory_platform.stages.training_guard import HeldOut

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.evaluation.child import Runner
    from trajectory_platform.evaluation.eval_problems import EvalProblem
    from trajectory_platform.evaluation.rollout_launch import Subject
    from trajectory_platform.sandbox.products import ProductCatalogue
    from trajectory_platform.training.recipe import Recipe
    from trajectory_platform.training.rejection import Judge
    from trajectory_platform.training.teacher import Teacher

RESFT, TEACHER_SFT = "resft", "teacher_sft"
ROLLOUTS_STAGE = "resft_rollouts"  # the partition of ``rollouts`` that holds the attempts for re-SFT
LOGS = ".rollouts"  # below checkpoint_root: the logs of attempts that are not published yet
HELD_OUT_TEXT = "held_out_text"
_TEACHER_JOURNALS = "_teacher_journal"  # below the lake: what a teacher was paid for is kept
_CORPUS = ("trace_id", "problem_key", "content_hash", "strategy_signature")


@dataclass(frozen=True)
class _Run:
    """One stage on one day, with something to attempt.

    Attributes:
        source: who acts, as ``generated_traces.source`` names it.
    """

    ctx: StageContext
    day: str
    stage: str
    recipe: Recipe
    source: str

    @property
    def part(self) -> Any:
        """The stage's part of the recipe."""
        return self.recipe.stage(self.stage)

    @property
    def seed(self) -> int:
        return int(self.recipe.seed or 0)


def resft_rollouts(ctx: StageContext, day: str, *, run: Runner | None) -> StageResult:
    """Attempts of re-SFT's parent at train problems, in a process of its own; a killed one goes on where it was.

    Attempts are published to ``rollouts`` too: another rule of acceptance attempts nothing again.

    Raises:
        FailPartition: a held-out problem, a damaged parent, or the process died.
    """
    from trajectory_platform.evaluation import rollout_launch
    from trajectory_platform.training.recipe import load_recipe

    recipe = load_recipe(ctx.settings.recipe).resolved(ctx.settings.seed)
    part = {"stage": RESFT}
    if RESFT not in recipe.names():
        return _left_out(ctx, day, part, "resft_rollouts", (tables.GENERATED_TRACES,))
    parent, lacking = parent_of(ctx, day, recipe, RESFT)
    if parent is None and recipe.model.base is None:
        lacking = NO_PARENT  # a new model has no tokenizer yet, and nothing to succeed with
    subject = _subject(ctx, recipe, parent) if lacking is None else None
    one = _Run(ctx, day, RESFT, recipe, subject.name if subject else "")
    logs: list[Path] = []

    def body() -> Produced:
        if subject is None:
            return _nothing(ctx, day, RESFT, NO_PARENT)
        if parent is not None:
            verify(ctx, parent)
        return _attempted(one, lambda chosen, place: _rolled_out(one, subject, chosen, place, run, logs))

    done = _run(one, "resft_rollouts", body, rollout_launch.versions())
    for log in logs:  # what it held is published now
        log.unlink(missing_ok=True)
    return done


def teacher_traces(ctx: StageContext, day: str) -> StageResult:
    """A teacher's attempts at train problems. Where its budget or its endpoint ends, the rest is asked next time.

    Raises:
        Abort: the teacher cannot be asked (unknown, no key). FailPartition: a held-out problem.
    """
    from trajectory_platform.evaluation import rollout_launch
    from trajectory_platform.training.recipe import load_recipe

    recipe = load_recipe(ctx.settings.recipe).resolved(ctx.settings.seed)
    if TEACHER_SFT not in recipe.names():
        return _left_out(ctx, day, {"stage": TEACHER_SFT}, "teacher_traces", (tables.GENERATED_TRACES,))
    teacher = teacher_of(ctx, recipe)
    one = _Run(ctx, day, TEACHER_SFT, recipe, teacher.name)
    return _run(
        one,
        "teacher_traces",
        lambda: _attempted(one, lambda chosen, place: _taught(one, teacher, chosen, place)),
        rollout_launch.versions(),
    )


@dataclass(frozen=True)
class _Made:
    """Attempts, what was planned and not made, and what cost nothing now."""

    rollouts: pa.Table
    source: str
    plan: str
    unmade: Mapping[tuple[str, int], str]
    cached: frozenset[str]
    summary: Mapping[str, Any]
    publish: Sequence[Output] = ()


def _run(one: _Run, asset: str, body: Callable[[], Produced], version: str) -> StageResult:
    from trajectory_platform.evaluation import conduct
    from trajectory_platform.judging import outcome
    from trajectory_platform.training import generated_rows

    ctx, day = one.ctx, one.day
    suites = days_up_to(ctx, tables.PROBLEM_SUITES, day)
    window = published_window(ctx, tables.AXIS_A_CORPUS, day)
    rules, judged = rules_of(ctx), _judge_identity(ctx)
    part = one.part
    plan = {
        "rollouts": part.rollouts.model_dump(mode="json", exclude={"concurrency"}),
        "accept": part.accept.model_dump(mode="json"),
        "source": one.source,
        "seed": one.seed,
        "llm": judged,
        "rules": list(rules),
    }
    return run_stage(
        ctx,
        stage=asset,
        day=day,
        code_version=" ".join(
            (SLOTS_VERSION, version, generated_rows.code_version(), conduct.CONDUCT_VERSION, outcome.SCORER_VERSION)
        ),
        tables=(tables.GENERATED_TRACES,),
        inputs={
            **input_digests(ctx, {"leak_clusters": [day], "problem_suites": suites, "axis_a_corpus": window}),
            "catalogue": day_catalogue(ctx, day)[0],
        },
        body=body,
        part={"stage": one.stage},
        extra_settings=plan,
    )


def _attempted(one: _Run, attempt: Callable[[list[EvalProblem], tuple[ProductCatalogue, Path]], _Made]) -> Produced:
    """Choose problems, attempt them, decide about every attempt."""
    from trajectory_platform.training.generated_rows import Origin, generated

    ctx, day, part = one.ctx, one.day, one.part
    held_out = HeldOut(ctx, day)
    place = market(ctx, day)
    if place is None:
        return _nothing(ctx, day, one.stage, "no_catalogue")
    selection, restating = chosen_problems(ctx, day, held_out, limit=part.rollouts.problems, seed=one.seed)
    if not selection.chosen:
        return _nothing(ctx, day, one.stage, "no_train_problems")
    done = attempt(selection.chosen, place)
    made = generated(
        done.rollouts,
        selection.chosen,
        place[0],
        rules_of(ctx),
        part.accept,
        origin=Origin(day, one.stage, done.source, done.plan),
        samples=part.rollouts.samples,
        clusters=held_out.clusters.to_pylist(),
        corpus=_window_corpus(ctx, day),
        judge=_judge(ctx, f"generated-{one.stage}-{day}"),
        unmade=done.unmade,
        cached=done.cached,
    )
    rows = _without_held_out_text(held_out, made.table.to_pylist())
    summary = {
        **made.summary,
        **_recounted(rows),
        "state": "ok",
        "source": done.source,
        "available_problems": selection.available,
        "restating_problems": restating,
        "accepted_digest": accepted_digest(rows.to_pylist()),
        **done.summary,
    }
    return Produced(
        [*done.publish, beside_sources(ctx, day, one.stage, done.source, rows)], summary, complete=made.complete
    )


def _rolled_out(
    one: _Run,
    subject: Subject,
    chosen: list[EvalProblem],
    place: tuple[ProductCatalogue, Path],
    run: Runner | None,
    logs: list[Path],
) -> _Made:
    """Attempts of the parent; those of the very same plan that were published before are taken again."""
    from trajectory_platform.evaluation import rollout_launch
    from trajectory_platform.training.generated_rows import plan_of

    ctx, day = one.ctx, one.day
    where = rollout_launch.Place(str(place[1]), place[0].digest)
    plan = plan_of(one.part.rollouts)
    identity = rollout_launch.attempts_identity(subject, chosen, plan, one.seed, where)
    attempts = _published_attempts(ctx, day, subject.name, identity)
    if attempts is None:
        logs.append(Path(ctx.settings.checkpoint_root) / LOGS / f"{ROLLOUTS_STAGE}-{day}-{identity[:16]}.jsonl")
        attempts = rollout_launch.roll_out(
            subject, chosen, plan, one.seed, where, log=logs[-1], day=day, stage=ROLLOUTS_STAGE, runner=run
        ).rollouts
    kept = beside_others(ctx, tables.ROLLOUTS, day, subject.name, attempts, {"stage": ROLLOUTS_STAGE})
    said = {"attempts_identity": identity[:16]}
    return _Made(attempts, subject.name, identity, {}, frozenset(), said, (kept,))


def _published_attempts(ctx: StageContext, day: str, name: str, identity: str) -> pa.Table | None:
    import pyarrow.compute as pc

    manifest = ctx.lake.manifest(tables.ROLLOUTS, day, {"stage": ROLLOUTS_STAGE})
    if manifest is None or manifest.summary.get("attempts_identity") != identity[:16]:
        return None
    own = (pc.field("stage") == ROLLOUTS_STAGE) & (pc.field("checkpoint_id") == name)
    return ctx.lake.read(tables.ROLLOUTS, [day], filter=own)


def _taught(one: _Run, teacher: Teacher, chosen: list[EvalProblem], place: tuple[ProductCatalogue, Path]) -> _Made:
    from trajectory_platform.sandbox.catalogue_index import open_world
    from trajectory_platform.training.teacher import teach

    journal = one.ctx.lake.workspace / _TEACHER_JOURNALS
    done = teach(teacher, one.part, chosen, open_world(place[1]), day=one.day, seed=one.seed, journal=journal)
    plan = digest_json([one.seed, one.part.rollouts.model_dump(mode="json", exclude={"concurrency"})])
    told = {f"teacher_{name}": value for name, value in done.summary.items()}
    return _Made(done.rollouts, teacher.name, plan, done.unmade, frozenset(done.cached), told)


def teacher_of(ctx: StageContext, recipe: Recipe) -> Teacher:
    """Who the recipe's teacher is; nobody is asked.

    Raises:
        Abort: it cannot be asked: no such script, no model's name, no key; one line.
    """
    from trajectory_platform.training.teacher import find_teacher

    part: Any = recipe.stage(TEACHER_SFT)
    seed = int(recipe.seed or 0)
    if part.teacher.startswith("script:"):
        return find_teacher(part, seed=seed)
    if "/" not in part.teacher and not part.teacher.endswith((".yaml", ".yml", ".json")):
        raise Abort(
            f"stages.teacher_sft.teacher {part.teacher!r}: write script:NAME, a model as PROVIDER/NAME "
            "(openai/NAME for any OpenAI-compatible endpoint) or a YAML file with one model"
        )
    chosen = ctx.settings
    return find_teacher(
        part,
        seed=seed,
        api_base=chosen.judge_api_base,
        api_key_env=chosen.judge_api_key_env,
        usd_per_million_input=chosen.judge_usd_per_million_input,
        usd_per_million_output=chosen.judge_usd_per_million_output,
    )


def _subject(ctx: StageContext, recipe: Recipe, parent: Mapping[str, Any] | None) -> Subject:
    """Who attempts: the parent checkpoint, or the base folder where re-SFT comes first."""
    from trajectory_platform.evaluation import rollout_launch
    from trajectory_platform.stages.base_model import base_subject

    if parent is None:
        return base_subject(ctx, recipe)
    return rollout_launch.trained(parent["checkpoint_id"], folder_of(ctx, parent), recipe.threads)


def _judge_identity(ctx: StageContext) -> str | None:
    from trajectory_platform.judging.judge_models import is_llm
    from trajectory_platform.stages.llm_judging import configured_judge

    return configured_judge(ctx.settings).identity() if is_llm(ctx.settings.judge) else None


def _judge(ctx: StageContext, name: str) -> Judge | None:
    """The configured LLM judge; None for the rules, which also stand in for the validators: nobody else saw these."""
    from trajectory_platform.judging.judge_models import is_llm
    from trajectory_platform.stages.llm_judging import configured_judge, journal_folder
    from trajectory_platform.training.grounding import llm_judge

    if not is_llm(ctx.settings.judge):
        return None
    judge = configured_judge(ctx.settings)
    return llm_judge(judge.config, judge.endpoint, journal_folder(ctx.lake.workspace), name, judge.tell)


def _window_corpus(ctx: StageContext, day: str) -> list[dict[str, Any]]:
    days = published_window(ctx, tables.AXIS_A_CORPUS, day)
    rows: list[dict[str, Any]] = ctx.lake.read(tables.AXIS_A_CORPUS, days, columns=list(_CORPUS)).to_pylist()
    return rows


def _without_held_out_text(held_out: HeldOut, rows: list[dict[str, Any]]) -> pa.Table:
    """The rows by id; an accepted one that holds the query of a held-out problem is accepted no more."""
    import pyarrow as pa

    rows = sorted(rows, key=lambda row: str(row["trace_id"]))
    for row in rows:
        told = held_out.restated(row["trace_id"], row["messages"]) if row["accepted"] else None
        if told is not None:
            row |= {"accepted": False, "reason": HELD_OUT_TEXT, "detail": told}
    return pa.Table.from_pylist(rows, schema=tables.GENERATED_TRACES.schema())


def _recounted(rows: pa.Table) -> dict[str, Any]:
    accepted = rows.column("accepted").to_pylist().count(True)
    reasons = Counter(str(reason) for reason in rows.column("reason").to_pylist() if reason is not None)
    return {"accepted": accepted, "rejected": rows.num_rows - accepted, "reasons": dict(sorted(reasons.items()))}


def _nothing(ctx: StageContext, day: str, stage: str, state: str) -> Produced:
    empty = tables.GENERATED_TRACES.schema().empty_table()
    summary = {"state": state, "source": "", "attempts": 0, "accepted": 0, "accepted_digest": "none"}
    return Produced([beside_sources(ctx, day, stage, None, empty)], summary)


def _left_out(
    ctx: StageContext, day: str, part: dict[str, str], asset: str, publishes: Sequence[tables.Table]
) -> StageResult:
    """The empty slot of a stage that the recipe does not have."""
    return run_stage(
        ctx,
        stage=asset,
        day=day,
        code_version=NOT_IN_RECIPE,
        tables=publishes,
        inputs={},
        body=lambda: _nothing(ctx, day, part["stage"], NOT_IN_RECIPE),
        part=part,
        extra_settings={"recipe": None},
    )
