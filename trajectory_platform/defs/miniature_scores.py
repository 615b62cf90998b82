"""What the stages of a miniature achieved, from the lake; and the attempts that the table needs besides.

The evaluations of the graph are greedy. Attempts at temperature 1 and the one look at sealed problems are evaluations
of their own (``stages.evaluation_files``), in folders named by the checkpoint, so that a second start makes none again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.evaluation.child import plain_runner
from trajectory_platform.evaluation.eval_problems import EvalProblem, select
from trajectory_platform.lake import sealed_scores, tables
from trajectory_platform.miniature import miners, rates
from trajectory_platform.miniature.plan import MiniaturePlan
from trajectory_platform.miniature.results import Guesses, StageScores
from trajectory_platform.stages.attempted_problems import market, rules_of
from trajectory_platform.stages.base_model import base_subject
from trajectory_platform.stages.checkpoints import current_checkpoint, folder_of
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.eval_pools import pool_problems
from trajectory_platform.stages.evaluation_files import evaluate_files
from trajectory_platform.stages.evaluations import EVALUATIONS, evaluated_rows
from trajectory_platform.stages.references import references_of
from trajectory_platform.stages.splits import days_up_to

if TYPE_CHECKING:
    from trajectory_platform.training.recipe import Recipe

SEALED_REASON = "miniature: the one look at the end of a run"
_SCORES = "scores.jsonl"
Say = Callable[[str], None]
Row = dict[str, Any]


class Model(NamedTuple):
    """Who acts: a stage's checkpoint or the base model, as ``evaluate_files`` opens it."""

    stage: str
    name: str
    folder: Path
    options: Mapping[str, Any] | None


def models_of(ctx: StageContext, day: str, recipe: Recipe) -> list[Model]:
    """The base model and the present checkpoint of every stage that made one."""
    base = base_subject(ctx, recipe)
    place = Path(str(base.policy["spec"]).removeprefix("checkpoint:"))
    found = [Model("base", base.name, place, base.policy["options"])]
    for stage in recipe.names():
        row = current_checkpoint(ctx, day, stage)
        if row is not None:
            found.append(Model(stage, row["checkpoint_id"], folder_of(ctx, row), None))
    return found


def sample(ctx: StageContext, day: str, model: Model, plan: MiniaturePlan, out: Path, recipe: Recipe, say: Say) -> Path:
    """Attempts at temperature 1 at the first of the greedy problems; a run that was cut short goes on."""
    folder = out / "sampled" / f"{model.stage}-{model.name}"
    _evaluate(ctx, day, model, folder, recipe, say, k=plan.samples, problems=plan.sampled_problems, temperature=1.0)
    return folder


def look_at_sealed(
    ctx: StageContext, day: str, model: Model, plan: MiniaturePlan, out: Path, recipe: Recipe, say: Say
) -> list[Row]:
    """Greedy attempts at sealed problems, recorded in the ledger. Where they were made before, nobody looks again.

    Raises:
        FailPartition: scores that the ledger knows no look of.
    """
    folder = out / "sealed" / f"{model.stage}-{model.name}"
    if not (folder / _SCORES).is_file():
        how = {"k": 1, "problems": plan.sealed_problems, "temperature": 0.0}
        _evaluate(ctx, day, model, folder, recipe, say, pool="sealed", sealed_reason=SEALED_REASON, **how)
    rows = read_rows(folder / _SCORES)
    sealed_scores.assert_scores_looked(ctx.lake, rows)
    return rows


def _evaluate(ctx: StageContext, day: str, model: Model, folder: Path, recipe: Recipe, say: Say, **how: Any) -> None:
    rollouts = recipe.evaluation.rollouts
    evaluate_files(
        ctx.settings,
        out=folder,
        day=day,
        checkpoint=model.folder,
        policy_options=model.options,
        concurrency=rollouts.concurrency,
        limits=rollouts.limits,
        seed=recipe.evaluation.seed,
        resume=True,
        runner=plain_runner(lambda line: say(f"{model.stage}: {line}")),
        **how,
    )


def read_rows(path: Path) -> list[Row]:
    """The JSON lines of a file."""
    return [jsontext.parse(line).value for line in path.read_bytes().split(b"\n") if line.strip()]


def stage_scores(ctx: StageContext, day: str, recipe: Recipe, out: Path) -> list[StageScores]:
    """The evaluations of the recipe's stages, the base model first."""
    wanted = ("base", *recipe.names())
    found = []
    for evaluation in (one for one in EVALUATIONS if one.stage in wanted):
        manifest = ctx.lake.manifest(tables.EVAL_SCORES, day, evaluation.part)
        state = manifest.summary["state"] if manifest is not None else "not_run"
        greedy = evaluated_rows(ctx, day, evaluation)
        name = greedy[0]["checkpoint_id"] if greedy else ""
        folder = out / "sampled" / f"{evaluation.stage}-{name}"
        sampled = read_rows(folder / _SCORES) if (folder / _SCORES).is_file() else []
        styles = _styles(_attempts(ctx, day, evaluation.stage, name)) if greedy else {}
        styles |= _styles(read_rows(folder / "rollouts.jsonl")) if sampled else {}
        found.append(StageScores(evaluation.stage, name, state, greedy, sampled, styles))
    return found


def _attempts(ctx: StageContext, day: str, stage: str, name: str) -> list[Row]:
    import pyarrow.compute as pc

    own = (pc.field("stage") == stage) & (pc.field("checkpoint_id") == name)
    rows: list[Row] = ctx.lake.read(
        tables.ROLLOUTS, [day], columns=["trace_id", "messages", "stage", "checkpoint_id"], filter=own
    ).to_pylist()
    return rows


def _styles(attempts: list[Row]) -> dict[str, str]:
    found = {}
    for row in attempts:
        messages = row["messages"]
        if isinstance(messages, str):
            messages = jsontext.parse(messages.encode()).value
        found[row["trace_id"]] = miners.style_of(messages)
    return found


def guesses(ctx: StageContext, day: str, recipe: Recipe, *, pool: str = "dev", limit: int | None = None) -> Guesses:
    """What guessing a row is worth on the problems of the evaluations; of the sealed pool only the exact rates."""
    from trajectory_platform.evaluation.eval_rows import Measured
    from trajectory_platform.judging.matching import find_rules
    from trajectory_platform.judging.outcome import Scorer
    from trajectory_platform.sandbox.catalogue_index import open_world

    found = market(ctx, day)
    assert found is not None, "the days of the miniature have a catalogue"
    world = open_world(found[1])
    limit = limit or recipe.evaluation.rollouts.problems
    chosen = chosen_problems(ctx, day, pool=pool, limit=limit, seed=recipe.evaluation.seed)
    shares = rates.row_shares(chosen, world, Scorer(world.catalogue, find_rules(*rules_of(ctx))))
    by_key = {one.problem.problem_key: share for one, share in zip(chosen, shares, strict=True)}
    if pool != "dev":
        return Guesses(by_key, [], [])
    references = references_of(ctx, day, by_key.keys(), pool=pool)
    script, good = (
        rates.script_scores(
            who,
            chosen,
            world,
            measured=Measured(f"script:{who.__name__}", day, "guess"),
            rules=rules_of(ctx),
            references=references,
        )
        for who in (miners.random_row, miners.scan)
    )
    return Guesses(by_key, script, good)


def chosen_problems(ctx: StageContext, day: str, *, pool: str, limit: int | None, seed: int) -> list[EvalProblem]:
    """The problems that an evaluation of this size attempts."""
    listed = pool_problems(ctx, day, days_up_to(ctx, tables.PROBLEM_SUITES, day), pool, None)
    return select(listed, limit=limit, seed=seed).chosen


def trained_facts(ctx: StageContext, day: str, stage: str) -> Row | None:
    """Of the present checkpoint of a stage: id, steps, tokens, traces and the history of its training."""
    row = current_checkpoint(ctx, day, stage)
    if row is None:
        return None
    folder = folder_of(ctx, row)
    manifest = jsontext.parse((folder / "manifest.json").read_bytes()).value
    report = jsontext.parse((folder / "rows_report.json").read_bytes()).value
    return {
        "checkpoint_id": row["checkpoint_id"],
        "steps": manifest["metrics"].get("steps"),
        "tokens": report["run"].get("tokens"),
        "traces": manifest["traces"],
        "history": report["history"],
    }
