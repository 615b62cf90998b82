"""``trajectory-platform demo``: a simulated arena through the same Dagster assets that run in production.

Simulates days, runs the two jobs in process, trains and scores the tiny model, and ends with a funnel, the
scores, the lineage of one trace and ``report.html``. Only the command line calls it.
"""

from __future__ import annotations

import time
from datetime import date, timedelta
from pathlib import Path

import typer

from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.defs.in_process import own_instance, progress_logger, quiet, run_job, say
from trajectory_platform.settings import Settings
from trajectory_platform.stages.checkpoints import example_trace
from trajectory_platform.stages.context import StageContext
from trajectory_platform.training.recipe import load_recipe
from trajectory_platform.training.stage_recipes import STAGES

FIRST_DAY = date(2026, 5, 2)  # the first era in which the validators' gate values are comparable
TRACES_PER_DAY = {False: 640, True: 120}
RECIPE = {False: "smoke", True: "fast"}


def run_demo(out: Path, *, days: int, fast: bool, seed: int) -> None:
    """Run the whole flow below ``out`` (which may hold an earlier demo: what is current is skipped).

    Raises:
        FailPartition: naming the job and the days that failed.
    """
    started = time.monotonic()
    quiet()
    settings = demo_settings(out, fast=fast, seed=seed)
    last_day = FIRST_DAY + timedelta(days=days - 1)
    say(started, f"simulating {days} days of the arena into {settings.data_root}")
    simulate_days(Path(settings.data_root), days=days, fast=fast, seed=seed)

    definitions = build_definitions(settings, last_day, loggers={"console": progress_logger(started)})
    with own_instance() as instance:
        say(started, "assets: raw day -> messages -> verdicts -> axis-A corpus")
        run_job(definitions, instance, "ingest_and_curate", FIRST_DAY, last_day)
        say(started, f"assets: leak clusters -> splits -> training of a tiny Qwen3 -> scores; {_stages(settings)}")
        run_job(definitions, instance, "train_as_of", last_day, last_day)

    ctx = StageContext(settings)
    say(started, "done; what came out:")
    for block in closing_blocks(ctx, last_day.isoformat()):
        typer.echo(f"\n{block}")
    typer.echo(f"\nreport      {write_demo_report(settings, out, last_day.isoformat())}")
    typer.echo(f"took        {time.monotonic() - started:.0f} s")
    typer.echo("next        make ui   (the same assets in the Dagster UI)")


def demo_settings(out: Path, *, fast: bool, seed: int) -> Settings:
    """Settings of the demo: everything below ``out``, partitions from the first simulated day on."""
    return Settings(
        data_root=str(out / "days"),
        lake_uri=str(out / "lake"),
        checkpoint_root=str(out / "checkpoints"),
        index_root=str(out / "index"),
        first_day=FIRST_DAY,
        seed=seed,
        recipe=RECIPE[fast],
    )


def _stages(settings: Settings) -> str:
    """Which stages the recipe trains, and which it does not have."""
    recipe = load_recipe(settings.recipe)
    without = [stage for stage in STAGES if stage not in recipe.names()]
    left = f", not {', '.join(without)} ('make miniature' trains all)" if without else ""
    return f"its recipe trains {', '.join(recipe.names())}{left}"


def simulate_days(root: Path, *, days: int, fast: bool, seed: int) -> None:
    """Write the demo's days; the same seed gives the same bytes, so a second demo changes nothing."""
    from trajectory_platform.arena.simulate import simulate
    from trajectory_platform.stages.progress import day_bars

    per_day = TRACES_PER_DAY[fast]
    with day_bars("simulating") as advance:
        simulate(
            root,
            days=days,
            traces_per_day=per_day,
            seed=seed,
            first_day=FIRST_DAY,
            problems_per_day=per_day // 2,  # many problems, few traces each: intervals rest on dev clusters
            overwrite=True,
            progress=advance,
        )


def closing_blocks(ctx: StageContext, day: str) -> list[str]:
    """The texts the demo ends with: funnel per day, scores, lineage of one trained trace."""
    from trajectory_platform.lineage import questions, words
    from trajectory_platform.stages import closing

    blocks = [closing.funnel_text(ctx), closing.splits_text(ctx, day), closing.scores_text(ctx, day)]
    first = example_trace(ctx, day)
    if first is not None:
        facts = questions.about_trace(ctx.lake, first)
        assert facts is not None, f"{first} was trained on a moment ago"
        blocks.append(f"lineage of one trained trace\n{words.trace_text(facts)}")
    return blocks


def write_demo_report(settings: Settings, out: Path, day: str) -> Path:
    """``report.html`` below ``out``."""
    from trajectory_platform.stages.report import write_report

    return write_report(settings, out / "report.html", day)
