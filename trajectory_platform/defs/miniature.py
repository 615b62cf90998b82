"""``trajectory-platform miniature``: small simulated days, a base model without shopping, and all five stages on them.

The jobs are those of production, run in process; only the world, the miners and the model are small. Started again, a
run does what is not current. ``run_variant`` trains SFT alone on other rows and compares it with the main run's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer

from trajectory_platform.defs import miniature_scores as scores
from trajectory_platform.defs.budget import Budget, cpu_seconds
from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.defs.in_process import own_instance, progress_logger, quiet, run_job, say
from trajectory_platform.evaluation.child import plain_runner
from trajectory_platform.identity import digest_json
from trajectory_platform.miniature import days, miners, results, world
from trajectory_platform.miniature.aims import aims
from trajectory_platform.miniature.base_model import make_base
from trajectory_platform.miniature.paired import control_comparison, control_text
from trajectory_platform.miniature.plan import (
    CONTROL,
    PLAIN_DAYS,
    MiniaturePlan,
    recipe_of,
    settings_of,
    simulate,
    variant_of,
)
from trajectory_platform.miniature.results_text import WHOLE, results_text
from trajectory_platform.settings import Settings
from trajectory_platform.stages.checkpoints import last_checkpoint
from trajectory_platform.stages.context import StageContext
from trajectory_platform.training.recipe import Recipe, load_recipe

_AT_ONCE = 2  # evaluations side by side: generating with a tiny model keeps one core busy
_UP_TO_SFT = ("leak_clusters", "leak_guarded_splits", "sft_checkpoint", "base_eval", "sft_eval")
_TITLES = {
    None: "The miniature",
    CONTROL: "The miniature's control: SFT on the unfiltered stream",
    PLAIN_DAYS: "The miniature without the row scan: SFT on days whose miners compare in silence",
}


@dataclass(frozen=True)
class _Run:
    """One start of the command."""

    out: Path
    plan: MiniaturePlan
    started: float
    budget: Budget

    def say(self, text: str) -> None:
        say(self.started, text)

    @property
    def day(self) -> str:
        return self.plan.last_day.isoformat()


def run_miniature(out: Path, *, plan: MiniaturePlan) -> dict[str, Any]:
    """The whole miniature below ``out``: days, base, five stages, the table, one look at sealed problems.

    Writes ``report.html``, ``checkpoint.html``, ``results.md`` and ``results.json``; returns what the last holds.

    Raises:
        FailPartition: naming the job and the step that failed.
    """
    run = _begin(out, plan)
    with run.budget.part(WHOLE):
        recipe, ctx = _prepared(run)
        run.say("stages: sft, re-SFT, teacher SFT, KTO, Dr. GRPO, each with its greedy evaluation")
        _job(run, ctx.settings, "train_as_of")
        _sampled(run, ctx, recipe, scores.models_of(ctx, run.day, recipe))
        with run.budget.part("random row and good miner, scored"):
            run.say("what guessing a row is worth on the same problems")
            guessed = scores.guesses(ctx, run.day, recipe)
        with run.budget.part("sealed problems"):
            sealed = _sealed(run, ctx, recipe)
    facts = _main_facts(run, ctx, recipe, guessed, sealed)
    _write(run, out, ctx, facts)
    return facts


def run_variant(out: Path, name: str, *, plan: MiniaturePlan) -> dict[str, Any]:
    """SFT of another corpus beside the SFT of the main run in ``out``: same base, problems and number of steps.

    Args:
        name: ``control``: the unfiltered stream of the same days. ``plain``: days without a row scan.

    What the main run lacks up to its SFT evaluation is made first. Results go to a folder of that name below ``out``.
    """
    run = _begin(out, plan)
    recipe, ctx = _prepared(run)
    _job(run, ctx.settings, "train_as_of", _UP_TO_SFT)
    main = scores.trained_facts(ctx, run.day, "sft")
    assert main is not None, "the job would have failed"
    own = _begin(out / name, replace(plan, scan_share=0.0) if name == PLAIN_DAYS else plan, run.started)
    with own.budget.part(WHOLE):
        if name == PLAIN_DAYS:
            _simulated(own)
        other = variant_of(recipe, name, steps=main["steps"])
        own_ctx = StageContext(
            settings_of(
                own.plan, own.out, recipe=_written(own, other), days=None if name == PLAIN_DAYS else out / "days"
            )
        )
        own.say(f"{name}: the same path with its own lake below {own.out}")
        with own.budget.part("ingest and curate"):
            _job(own, own_ctx.settings, "ingest_and_curate")
        _job(own, own_ctx.settings, "train_as_of", _UP_TO_SFT)
        mains = [one for one in scores.models_of(ctx, run.day, recipe) if one.stage in ("base", "sft")]
        _sampled(run, ctx, recipe, mains)
        others = [one for one in scores.models_of(own_ctx, own.day, other) if one.stage == "sft"]
        _sampled(own, own_ctx, other, others)
        guessed = scores.guesses(ctx, run.day, recipe)
    facts = _variant_facts(run, own, name, (ctx, recipe), (own_ctx, other), guessed)
    _write(own, own.out, own_ctx, facts)
    return facts


def _begin(out: Path, plan: MiniaturePlan, started: float | None = None) -> _Run:
    quiet()
    out.mkdir(parents=True, exist_ok=True)
    return _Run(out, plan, time.monotonic() if started is None else started, Budget(out / "budget.json"))


def _prepared(run: _Run) -> tuple[Recipe, StageContext]:
    """Days, base model and corpus; the base is trained in a process of its own while the days are made and read."""
    folder = run.out / "base" / run.plan.base.identity()  # another spec is another model, beside it
    recipe = recipe_of(run.plan, folder)
    settings = settings_of(run.plan, run.out, recipe=_written(run, recipe))
    with ThreadPoolExecutor(1) as pool:
        base = pool.submit(_based, run, folder)
        _simulated(run)
        with run.budget.part("ingest and curate", children=False):
            run.say("assets: raw day -> messages -> verdicts -> axis-A corpus")
            _job(run, settings, "ingest_and_curate")
        base.result()
    return recipe, StageContext(settings)


def _based(run: _Run, folder: Path) -> None:
    present, begun, cpu = folder.exists(), time.monotonic(), cpu_seconds(own=False)
    make_base(folder, run.plan.base, runner=plain_runner(lambda line: run.say(f"  base: {line}")))
    if not present:  # no other child runs beside it
        run.budget.add("base model", wall=time.monotonic() - begun, cpu=cpu_seconds(own=False) - cpu)


def _simulated(run: _Run) -> None:
    """The days of the plan; those that are there and made by the same code are left alone."""
    mark = run.out / "days" / "made_by.json"
    plan = run.plan
    made_by = {
        "versions": [world.VERSION, miners.VERSION, days.VERSION],
        "plan": [plan.days, plan.traces_per_day, plan.scan_share, plan.seed, plan.first_day.isoformat()],
    }
    if mark.is_file() and json.loads(mark.read_text("utf-8")) == made_by:
        return
    with run.budget.part("simulate", children=False):
        run.say(f"simulating {plan.days} days of {plan.traces_per_day} traces into {run.out / 'days'}")
        simulate(plan, run.out)
    mark.write_text(json.dumps(made_by), "utf-8")


def _written(run: _Run, recipe: Recipe) -> str:
    """The resolved recipe as a file; its place."""
    path = run.out / "recipe.yaml"
    path.write_text(recipe.to_yaml(), "utf-8")
    return str(path)


def _job(run: _Run, settings: Settings, job: str, assets: Sequence[str] | None = None) -> None:
    daily = job == "ingest_and_curate"
    logger = progress_logger(run.started, None if daily else run.budget.step)
    definitions = build_definitions(settings, run.plan.last_day, loggers={"console": logger})
    first = run.plan.first_day if daily else run.plan.last_day
    with own_instance() as instance:
        run_job(definitions, instance, job, first, run.plan.last_day, assets=assets)


def _sampled(run: _Run, ctx: StageContext, recipe: Recipe, models: Sequence[scores.Model]) -> None:
    """Attempts at temperature 1 of every model, two models at a time."""
    run.say(f"{run.plan.samples} attempts at temperature 1 at {run.plan.sampled_problems} problems, per stage")
    with run.budget.part("attempts at temperature 1"), ThreadPoolExecutor(_AT_ONCE) as pool:
        jobs = [
            pool.submit(
                scores.sample, ctx, run.day, model, run.plan, run.out, recipe, lambda line: run.say(f"  {line}")
            )
            for model in models
        ]
        for job in jobs:
            job.result()


def _sealed(run: _Run, ctx: StageContext, recipe: Recipe) -> dict[str, Any]:
    """SFT and the last stage on sealed problems: figures per stage."""
    run.say("sealed problems: one look at SFT and at the last stage")
    models = {one.stage: one for one in scores.models_of(ctx, run.day, recipe) if one.stage != "base"}
    chosen = {name: models[name] for name in ("sft", list(models)[-1])} if models else {}
    if not chosen:
        return {}
    exact = scores.guesses(ctx, run.day, recipe, pool="sealed", limit=run.plan.sealed_problems)
    how = _how(recipe)
    found: dict[str, Any] = {}
    for name, model in chosen.items():
        rows = scores.look_at_sealed(ctx, run.day, model, run.plan, run.out, recipe, lambda line: run.say(f"  {line}"))
        figures = results.measured(rows, how, ks=(1,))
        random = results.guess_figures(exact, rows, [], how, group=None)["greedy"]
        found[name] = {**figures, "random": random, "over_random": results.over_random(rows, exact.shares, how)}
    return found


def _how(recipe: Recipe) -> results.How:
    return results.How(recipe.evaluation.seed, recipe.evaluation.bootstrap)


def _main_facts(
    run: _Run, ctx: StageContext, recipe: Recipe, guessed: results.Guesses, sealed: dict[str, Any]
) -> dict[str, Any]:
    stages = scores.stage_scores(ctx, run.day, recipe, run.out)
    how = _how(recipe)
    group = recipe.stages.dr_grpo.group if recipe.stages.dr_grpo is not None else None
    last = next((one for one in reversed(stages) if one.greedy), stages[-1])
    rows = results.stage_results(stages, guessed, how)
    guess = results.guess_figures(guessed, last.greedy, last.sampled, how, group=group)
    reinforced = scores.trained_facts(ctx, run.day, "dr_grpo")
    minutes = run.budget.parts[WHOLE]["wall"] / 60
    facts = {
        **_common(run, None, ctx, recipe),
        "stages": rows,
        "guess": guess,
        "groups": None if reinforced is None else results.groups_of(reinforced["history"]),
        "sealed": sealed,
        "minutes": minutes,
    }
    found = aims(rows, guess, control=_control_found(run.out), minutes=minutes)
    return facts | {"aims": [one._asdict() for one in found], "text": results_text(facts, found)}


def _control_found(out: Path) -> dict[str, Any] | None:
    path = out / CONTROL / "results.json"
    return json.loads(path.read_text("utf-8"))["differences"] if path.is_file() else None


def _variant_facts(
    run: _Run,
    own: _Run,
    name: str,
    main: tuple[StageContext, Recipe],
    other: tuple[StageContext, Recipe],
    guessed: results.Guesses,
) -> dict[str, Any]:
    how = _how(main[1])
    mains = {one.stage: one for one in scores.stage_scores(main[0], run.day, main[1], run.out)}
    [theirs] = [one for one in scores.stage_scores(other[0], own.day, other[1], own.out) if one.stage == "sft"]
    theirs = theirs._replace(stage=f"sft, {'unfiltered' if name == CONTROL else 'no row scan'}")
    stages = [mains["base"], theirs, mains["sft"]]
    rows = results.stage_results(stages, guessed, how)
    ours, told = mains["sft"], theirs.stage
    filtered = {results.GREEDY: ours.greedy, results.SAMPLED: ours.sampled}
    against = {results.GREEDY: theirs.greedy, results.SAMPLED: theirs.sampled}
    compared = control_comparison(filtered, against, seed=how.seed, resamples=how.resamples)
    differences = {one.name: results.interval_of(one.compared["overall"]["difference"]) for one in compared}
    facts = {
        **_common(own, name, *other),
        "stages": rows,
        "guess": results.guess_figures(guessed, ours.greedy, ours.sampled, how, group=None),
        "differences": differences,
        "compared_title": f"The main run's SFT against {told}, paired",
        "compared": control_text(compared, names=(told, "sft, main run"), aim=name == CONTROL),
    }
    return facts | {"text": results_text(facts, [])}


def _common(run: _Run, variant: str | None, ctx: StageContext, recipe: Recipe) -> dict[str, Any]:
    """Title, and what made the run: command, seeds, sizes, what every stage was trained on."""
    plan = run.plan
    option = f" --{variant}" if variant else ""
    base = json.loads((Path(str(recipe.model.base)) / "base.json").read_text("utf-8"))
    lines = [
        f"command: `trajectory-platform miniature{option} --seed {plan.seed}{' --small' if plan.small else ''}`",
        f"seeds: {plan.seed} for world, days and training, {plan.base.seed} for the base, {recipe.evaluation.seed} for "
        "problems, attempts and intervals",
        f"days: {plan.days} of {plan.traces_per_day} traces, {100 * plan.scan_share:.0f} % of those that compare do it "
        f"in writing; {os.cpu_count()} cores",
        f"base: {base['parameters'] / 1e6:.2f} M parameters, {base['vocabulary']} tokens, {base['steps']} steps of "
        "drills, no shopping in any",
    ]
    for stage in recipe.names():
        made = scores.trained_facts(ctx, run.day, stage)
        if made is not None:
            tokens = "" if made["tokens"] is None else f", {made['tokens']:,} tokens"
            lines.append(f"{stage}: {made['steps']} steps{tokens}, {made['traces']} traces, {made['checkpoint_id']}")
    return {
        "title": _TITLES[variant],
        "made_by": lines,
        "plan": {**asdict(plan), "first_day": plan.first_day.isoformat(), "base": plan.base.model_dump(mode="json")},
        "recipe": recipe.recorded().model_dump(mode="json"),
        "recipe_digest": digest_json(recipe.recorded().model_dump(mode="json")),
        "budget": run.budget.parts,
    }


def _folders(run: _Run, ctx: StageContext) -> list[Path]:
    """The evaluations beside those of the graph: several attempts of every model, and the looks at sealed problems."""
    models = scores.models_of(ctx, run.day, load_recipe(ctx.settings.recipe))
    places = [run.out / part / f"{one.stage}-{one.name}" for part in ("sampled", "sealed") for one in models]
    return [place for place in places if (place / "metrics.json").is_file()]


def _write(run: _Run, out: Path, ctx: StageContext, facts: dict[str, Any]) -> None:
    from trajectory_platform.stages.checkpoint_report import write_checkpoint_report
    from trajectory_platform.stages.report import write_report

    text = facts.pop("text")
    (out / "results.md").write_text(text, "utf-8")
    (out / "results.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", "utf-8")
    typer.echo(f"\n{text}")
    typer.echo(f"report      {write_report(ctx.settings, out / 'report.html', run.day)}")
    last = last_checkpoint(ctx, run.day)
    if last is not None:
        page = write_checkpoint_report(
            ctx.settings, out / "checkpoint.html", last["checkpoint_id"], evaluations=_folders(run, ctx)
        )
        typer.echo(f"checkpoint  {page}")
    typer.echo(f"results     {out / 'results.md'}, {out / 'results.json'}")
