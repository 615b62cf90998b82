"""``trajectory-platform demo``: a simulated arena through the same Dagster assets that run in production.

Simulates days, runs the two jobs in process, trains and scores the tiny model, and ends with a funnel, the
scores, the lineage of one trace and ``report.html``. Only the command line calls it.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import warnings
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import typer

from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.defs.sensors import RANGE_END, RANGE_START
from trajectory_platform.errors import FailPartition
from trajectory_platform.settings import Settings
from trajectory_platform.stages.checkpoints import example_trace
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.text import shown

FIRST_DAY = date(2026, 5, 2)  # the first era in which the validators' gate values are comparable
TRACES_PER_DAY = {False: 640, True: 120}
RECIPE = {False: "smoke", True: "fast"}


def run_demo(out: Path, *, days: int, fast: bool, seed: int) -> None:
    """Run the whole flow below ``out`` (which may hold an earlier demo: what is current is skipped).

    Raises:
        FailPartition: naming the job and the days that failed.
    """
    started = time.monotonic()
    for noise in (dg.PreviewWarning, dg.BetaWarning):  # features this project pins and tests
        warnings.filterwarnings("ignore", category=noise)
    settings = demo_settings(out, fast=fast, seed=seed)
    last_day = FIRST_DAY + timedelta(days=days - 1)
    _say(started, f"simulating {days} days of the arena into {settings.data_root}")
    simulate_days(Path(settings.data_root), days=days, fast=fast, seed=seed)

    definitions = build_definitions(settings, last_day, loggers={"console": _progress_logger(started)})
    with _instance() as instance:
        _say(started, "assets: raw day -> messages -> verdicts -> axis-A corpus")
        _run(definitions, instance, "ingest_and_curate", FIRST_DAY, last_day)
        _say(started, "assets: leak clusters -> splits -> SFT of a tiny Qwen3 -> scores -> lineage")
        _run(definitions, instance, "train_as_of", last_day, last_day)

    ctx = StageContext(settings)
    _say(started, "done; what came out:")
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
    from trajectory_platform.lineage import questions
    from trajectory_platform.stages import closing

    blocks = [closing.funnel_text(ctx), closing.splits_text(ctx, day), closing.scores_text(ctx, day)]
    first = example_trace(ctx, day)
    if first is not None:
        facts = questions.about_trace(ctx.lake, first)
        assert facts is not None, f"{first} was trained on a moment ago"
        blocks.append(f"lineage of one trained trace\n{questions.trace_text(facts)}")
    return blocks


def write_demo_report(settings: Settings, out: Path, day: str) -> Path:
    """``report.html`` below ``out``."""
    from trajectory_platform.stages.report import write_report

    return write_report(settings, out / "report.html", day)


def _run(definitions: dg.Definitions, instance: dg.DagsterInstance, job: str, first: date, last: date) -> Any:
    result = definitions.resolve_job_def(job).execute_in_process(
        instance=instance,
        tags={RANGE_START: first.isoformat(), RANGE_END: last.isoformat()},
        run_config={"loggers": {"console": {}}},  # named, or Dagster adds its own console logger
        raise_on_error=False,
    )
    failures = [event for event in result.all_events if event.is_step_failure]
    if failures:
        raise FailPartition(f"{job} {first}..{last}: {failures[0].step_key}: {_cause(failures[0])}")
    return result


def _cause(failure: dg.DagsterEvent) -> str:
    """The innermost reason of a failed step: Dagster's own message says only that the step failed."""
    error = failure.step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    if error is None:
        return str(failure.message)
    if error.cls_name in ("DagsterExecutionInterruptedError", "KeyboardInterrupt"):
        return "interrupted; start the same command again, what is complete is kept"
    return error.message.strip()


def _instance() -> Any:
    """The user's Dagster instance where DAGSTER_HOME names one (make demo does), else one for this process."""
    from contextlib import nullcontext

    logging.getLogger("dagster").setLevel(logging.WARNING)
    if os.environ.get("DAGSTER_HOME"):
        return nullcontext(dg.DagsterInstance.get())
    return dg.DagsterInstance.ephemeral()


def _progress_logger(started: float) -> dg.LoggerDefinition:
    """Shows what the assets and the training process say, without Dagster's own events."""

    room = max(40, shutil.get_terminal_size((192, 24)).columns - 46)  # one line per message on a terminal

    class Progress(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "dagster_meta", {}).get("dagster_event") is None:
                words = getattr(record, "dagster_meta", {})
                step = words.get("step_key") or ""
                text = words.get("orig_message") or record.getMessage()
                if not text.startswith("[pipes]"):  # Dagster's word that the training process is up
                    _say(started, f"  {step:<33} {shown(text, room)}")

    @dg.logger(None, description="one line per message of an asset")
    def console(_context: dg.InitLoggerContext) -> logging.Logger:
        made = logging.Logger("trajectory_platform.demo", level=logging.INFO)
        made.addHandler(Progress())
        return made

    return console


def _say(started: float, text: str) -> None:
    typer.echo(f"[{time.monotonic() - started:4.0f} s] {text}")
