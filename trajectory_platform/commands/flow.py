"""The whole flow: demo, status, doctor, ingest, train, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trajectory_platform.commands.interruption import STOPPED, said_when_interrupted
from trajectory_platform.commands.opened import JsonOption, day_of, settings
from trajectory_platform.errors import Abort
from trajectory_platform.output import print_json, report_days

app = typer.Typer()


@app.command()
def demo(
    days: Annotated[int, typer.Option(min=1, help="days to simulate")] = 3,
    fast: Annotated[bool, typer.Option("--fast", help="fewer traces and training steps")] = False,
    out: Annotated[Path, typer.Option(help="folder for everything the demo makes")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="seed of the arena and of the training")] = 7,
) -> None:
    """The whole flow on a simulated arena: ends with a funnel, scores, a lineage and report.html."""
    from trajectory_platform.defs.demo import run_demo

    run_demo(out, days=days, fast=fast, seed=seed)


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Days complete, incomplete, partial and late; the newest checkpoint; what to do next."""
    from trajectory_platform.stages.status import lake_status, render_status

    facts = lake_status(settings())
    print_json(facts) if as_json else typer.echo(render_status(facts))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """What is installed, reachable and configured."""
    from trajectory_platform.stages.doctor import examine, render_findings

    findings = examine(settings())
    print_json(findings) if as_json else typer.echo(render_findings(findings))
    if any(finding["level"] == "error" for finding in findings):
        raise typer.Exit(1)


@app.command()
def ingest(
    day: Annotated[str | None, typer.Option(help="one UTC day, YYYY-MM-DD")] = None,
    first: Annotated[str | None, typer.Option("--from", help="first day of a range")] = None,
    last: Annotated[str | None, typer.Option("--to", help="last day of a range")] = None,
    as_json: JsonOption = False,
) -> None:
    """Raw days to the axis-A corpus in the lake, as the Dagster job ingest_and_curate does it."""
    from trajectory_platform.stages.plain import ingest_days

    if day and (first or last):
        raise Abort("--day names one day, --from and --to a range: give one of the two")
    with said_when_interrupted(lambda: STOPPED.format("ingest")):
        report_days(ingest_days(settings(), day, first, last), as_json)


@app.command()
def train(
    stage: Annotated[str, typer.Argument(help="sft | resft | teacher_sft | kto | dr_grpo | all")],
    as_of: Annotated[str | None, typer.Option("--as-of", help="UTC day; default the newest ingested")] = None,
    recipe: Annotated[str | None, typer.Option(help="shipped recipe or YAML file")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="resolve, build the data, count tokens and steps, estimate; train nothing")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="of a dry run: a100-80, h100-80, h200-141, l40s-48, rtx4090-24 or cpu-core")
    ] = None,
    show_recipe: Annotated[
        bool, typer.Option("--show-recipe", help="with --dry-run: print the resolved recipe too, as YAML")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Clusters, splits, checkpoints up to a stage with their evaluations and lineage, as the job train_as_of does it.

    What is current is skipped, so 'train kto' after 'train sft' goes on from there.
    """
    from trajectory_platform.stages.plain import train_days

    chosen = settings()
    if recipe:
        chosen = chosen.model_copy(update={"recipe": recipe})
    day = day_of(as_of).isoformat() if as_of else None
    if device is not None and not dry_run:
        raise Abort("--device is of a dry run; where a run trains is the hardware part of its recipe")
    if show_recipe and not dry_run:
        raise Abort(
            "--show-recipe is of a dry run; a checkpoint's recipe: 'trajectory-platform lineage checkpoint ID --recipe'"
        )
    if dry_run:
        from trajectory_platform.stages.dry_run import dry_run_text, rehearse

        facts = rehearse(chosen, stage, day, device=device)
        print_json(facts) if as_json else typer.echo(dry_run_text(facts, with_recipe=show_recipe))
        return
    from trajectory_platform.stages.progress import Watch

    report_days(train_days(chosen, stage, day, show=Watch()), as_json)
    if not as_json:
        from trajectory_platform.stages import closing
        from trajectory_platform.stages.context import StageContext
        from trajectory_platform.stages.plain import as_of_day

        ctx = StageContext(chosen)
        typer.echo(f"\n{closing.tasks_text(ctx, as_of_day(ctx, day))}\nnext  trajectory-platform report")


@app.command()
def report(
    day: Annotated[str | None, typer.Option(help="the page of this one subnet day, YYYY-MM-DD")] = None,
    checkpoint: Annotated[str | None, typer.Option(metavar="ID", help="the page of this one checkpoint")] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="of the overview: nothing after this day; default the newest")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write; default report.html, report-DAY.html or report-ID.html")
    ] = None,
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="with --checkpoint: a folder of 'evaluate' whose scores are shown too"),
    ] = None,
    traces: Annotated[
        bool, typer.Option("--traces", help="with --day: also a page of each trace that is named, in traces/ beside it")
    ] = False,
) -> None:
    """One self-contained HTML page: the overview of the lake, or with --day or --checkpoint that day or checkpoint."""
    if sum(option is not None for option in (day, checkpoint, as_of)) > 1:
        raise Abort("give one of --day, --checkpoint and --as-of: each names another page")
    if traces and day is None:
        raise Abort("--traces is of the page of one day: give --day")
    if evaluation and checkpoint is None:
        raise Abort("--evaluation is of the page of a checkpoint: give --checkpoint")
    if checkpoint is not None:
        from trajectory_platform.identity import safe_id
        from trajectory_platform.stages.checkpoint_report import write_checkpoint_report

        target = out or Path(f"report-{safe_id(checkpoint)}.html")
        written = write_checkpoint_report(settings(), target, checkpoint, evaluations=evaluation or ())
        typer.echo(f"wrote {written}")
    elif day is not None:
        from datetime import UTC, datetime

        from trajectory_platform.stages.day_report import write_day_report

        chosen = day_of(day).isoformat()
        target = out or Path(f"report-{chosen}.html")
        at = datetime.now(UTC) if traces else None
        written = write_day_report(settings(), target, chosen, traces_at=at)
        typer.echo(f"wrote {written}" + (f" and a page per example in {written.parent / 'traces'}/" if traces else ""))
    else:
        from trajectory_platform.stages.report import write_report

        last = day_of(as_of).isoformat() if as_of else None
        typer.echo(f"wrote {write_report(settings(), out or Path('report.html'), last)}")
