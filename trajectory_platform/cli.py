"""The command line: every command a few lines over the packages below.

Results for people go to stdout as plain text; ``--json`` prints JSON and nothing else. Exit code 0: done,
1: a problem with the data, 2: wrong use. An error is one line that says what, where and what to do.
Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from trajectory_platform.errors import Abort, PlatformError
from trajectory_platform.output import counts_text, print_json, report_days, write_lines, write_rows

if TYPE_CHECKING:
    from trajectory_platform.settings import Settings

app = typer.Typer(
    name="trajectory-platform",
    help="From the daily stream of agent traces to a leak-safe corpus, a checkpoint and its lineage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
)
arena_app = typer.Typer(help="The simulated arena.", no_args_is_help=True)
traces_app = typer.Typer(help="Look at traces and raw artifacts.", no_args_is_help=True)
leaks_app = typer.Typer(help="Why problems leak into one another.", no_args_is_help=True)
lineage_app = typer.Typer(help="Which traces fed which checkpoint.", no_args_is_help=True)
lake_app = typer.Typer(help="Care of the lake.", no_args_is_help=True)
app.add_typer(arena_app, name="arena")
app.add_typer(traces_app, name="traces")
app.add_typer(leaks_app, name="leaks")
app.add_typer(lineage_app, name="lineage")
app.add_typer(lake_app, name="lake")

JsonOption = Annotated[bool, typer.Option("--json", help="print JSON to stdout and nothing else")]
DayDir = Annotated[str, typer.Option("--in", help="day folder, named YYYY-MM-DD (local or s3://)")]
OutFile = Annotated[Path, typer.Option("--out", help="file to write (JSON lines)")]


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

    facts = lake_status(_settings())
    print_json(facts) if as_json else typer.echo(render_status(facts))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """What is installed, reachable and configured."""
    from trajectory_platform.stages.doctor import examine, render_findings

    findings = examine(_settings())
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
    report_days(ingest_days(_settings(), day, first, last), as_json)


@app.command()
def train(
    stage: Annotated[str, typer.Argument(help="sft, the one stage so far")],
    as_of: Annotated[str | None, typer.Option("--as-of", help="UTC day; default the newest ingested")] = None,
    recipe: Annotated[str | None, typer.Option(help="shipped recipe or YAML file")] = None,
    as_json: JsonOption = False,
) -> None:
    """Clusters, splits, checkpoint, scores and lineage as of a day, as the job train_as_of does it."""
    from trajectory_platform.stages.plain import train_days

    settings = _settings()
    if recipe:
        settings = settings.model_copy(update={"recipe": recipe})
    report_days(train_days(settings, stage, _day(as_of).isoformat() if as_of else None), as_json)


@arena_app.command("simulate")
def arena_simulate(
    out: Annotated[Path, typer.Option(help="folder to write the days into")],
    days: Annotated[int, typer.Option(min=1)] = 3,
    traces_per_day: Annotated[int, typer.Option(min=1, help="(run, problem) pairs a day")] = 400,
    first_day: Annotated[
        str, typer.Option(help="UTC day of the first folder; the era decides the format")
    ] = "2026-05-02",
    seed: Annotated[int, typer.Option()] = 0,
    as_json: JsonOption = False,
) -> None:
    """Write days in the published layout with scripted miners, and the truth beside them."""
    from trajectory_platform.arena.simulate import simulate
    from trajectory_platform.stages.progress import day_bars

    with day_bars("simulating") as advance:
        report = simulate(
            out, days=days, traces_per_day=traces_per_day, seed=seed, first_day=_day(first_day), progress=advance
        )
    facts = {**report.__dict__, "out": str(out)} if hasattr(report, "__dict__") else {"out": str(out)}
    print_json(facts) if as_json else typer.echo(counts_text(facts))


@traces_app.command("show")
def traces_show(trace_id: str, as_json: JsonOption = False) -> None:
    """One trace of the lake as plain text, control characters escaped."""
    from trajectory_platform.stages.traces import find_trace, render_trace

    row = find_trace(_settings(), trace_id)
    print_json(row) if as_json else typer.echo(render_trace(row))


@traces_app.command("lint")
def traces_lint(files: list[Path], as_json: JsonOption = False) -> None:
    """What the readers find odd in raw artifact files: repairs, flags, rejections."""
    from trajectory_platform.stages.traces import lint_file

    worst = 0
    for file in files:
        for row in lint_file(_settings(), file):
            worst = max(worst, 1 if row["rejected"] else 0)
            print_json(row) if as_json else typer.echo(row["text"])
    if worst:
        raise typer.Exit(1)


@app.command()
def normalise(day_dir: DayDir, out: OutFile, as_json: JsonOption = False) -> None:
    """Canonical trajectories of one day folder as JSON lines, one row per (run, problem)."""
    from trajectory_platform.stages import folder

    listed = folder.open_folder(_settings(), day_dir)
    write_rows(out, folder.normalise_rows(listed), as_json, count_by=("readable", "reason"), faults=listed.faults)


@app.command()
def score(
    day_dir: DayDir,
    out: OutFile,
    suite: Annotated[
        list[Path] | None, typer.Option(help="suite file with further rewards; repeat it for more")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Outcome, format and length per (run, problem) of one day folder."""
    from trajectory_platform.stages import folder

    listed = folder.open_folder(_settings(), day_dir)
    rows = folder.score_rows(listed, suite or [])
    write_rows(out, rows, as_json, count_by=("outcome", "reason"), faults=listed.faults)


@app.command()
def judge(
    day_dir: DayDir,
    out: OutFile,
    judge: Annotated[str | None, typer.Option(help="rules or validator; default from the settings")] = None,
    as_json: JsonOption = False,
) -> None:
    """The reasoning verdict per trace that the gate of curate reads, with its source."""
    from trajectory_platform.stages import folder

    settings = _settings()
    listed = folder.open_folder(settings, day_dir)
    rows = folder.judge_rows(listed, judge or settings.judge)
    write_rows(out, rows, as_json, count_by=("judge_kind", "score_regime"), faults=listed.faults)


@app.command()
def curate(
    day_dir: DayDir,
    out: Annotated[Path, typer.Option(help="folder for accepted.jsonl, rejected.jsonl, summary.json")],
    judge: Annotated[str | None, typer.Option(help="rules or validator; default from the settings")] = None,
    as_json: JsonOption = False,
) -> None:
    """The structural filter on its own: what is accepted, what is rejected and why."""
    from trajectory_platform.stages import folder

    settings = _settings()
    listed = folder.open_folder(settings, day_dir)
    result = folder.curate_folder(listed, judge or settings.judge)
    summary = {**result.summary, "faults": listed.faults}
    out.mkdir(parents=True, exist_ok=True)
    accepted = (folder.accepted_row(row) for batch in result.accepted for row in batch.to_pylist())
    write_lines(out / "accepted.jsonl", accepted)
    write_lines(out / "rejected.jsonl", (folder.rejected_row(row) for row in result.rejected.to_pylist()))
    write_lines(out / "summary.json", [summary])
    print_json(summary) if as_json else typer.echo(counts_text(summary))


@app.command()
def split(
    suites: Annotated[list[Path], typer.Option(help="suite or benchmark file; repeat it for more")],
    out: OutFile,
    as_json: JsonOption = False,
) -> None:
    """Leak cluster and pool of every problem in the given files."""
    from trajectory_platform.splits.pools import Shares
    from trajectory_platform.splits.suite_files import split_files

    chosen = _settings()
    rows = split_files(
        suites,
        pool_key=chosen.pool_key,
        shares=Shares(chosen.pool_train, chosen.pool_dev, chosen.pool_sealed),
        hold_outs=chosen.hold_outs,
        max_cluster_share=chosen.max_cluster_share,
        min_problems_for_share=chosen.min_problems_for_share,
    )
    write_rows(out, iter(rows), as_json, count_by=("pool", "error"))


@leaks_app.command("explain")
def leaks_explain(left: str, right: str, as_json: JsonOption = False) -> None:
    """The chain of edges by which two problems of the lake are (or are not) variants of one another."""
    from trajectory_platform.stages.leaks import explain_problems

    facts = explain_problems(_settings(), left, right)
    print_json(facts) if as_json else typer.echo(facts["text"])


@lineage_app.command("checkpoint")
def lineage_checkpoint(checkpoint_id: str, as_json: JsonOption = False) -> None:
    """Days, miners, strategies, verdict sources, partitions and parents of a checkpoint."""
    from trajectory_platform.lineage import questions

    facts = questions.about_checkpoint(_lake(), checkpoint_id)
    if facts is None:
        raise Abort(f"no checkpoint {checkpoint_id!a} in the lake: 'trajectory-platform status' names the newest")
    print_json(facts) if as_json else typer.echo(questions.checkpoint_text(facts))


@lineage_app.command("trace")
def lineage_trace(trace_id: str, as_json: JsonOption = False) -> None:
    """Where a trace came from, what was decided and why, and every checkpoint it fed."""
    from trajectory_platform.lineage import questions

    facts = questions.about_trace(_lake(), trace_id)
    if facts is None:
        raise Abort(f"no trace {trace_id!a} in the lake: ids are {{eval_run_id}}:{{problem_id}}")
    print_json(facts) if as_json else typer.echo(questions.trace_text(facts))


@app.command()
def report(
    out: Annotated[Path, typer.Option(help="HTML file to write")] = Path("report.html"),
    day: Annotated[str | None, typer.Option(help="as-of day; default the newest")] = None,
) -> None:
    """One self-contained HTML page over the lake."""
    from trajectory_platform.stages.report import write_report

    typer.echo(f"wrote {write_report(_settings(), out, _day(day).isoformat() if day else None)}")


@app.command()
def sql(
    query: str,
    sealed: Annotated[str | None, typer.Option(help="reason for reading sealed problems; recorded")] = None,
    limit: Annotated[int, typer.Option(min=1, help="more result rows than this are an error")] = 10_000,
    as_json: JsonOption = False,
) -> None:
    """DuckDB over every table of the lake, locked down: no files, no network, no writes."""
    from datetime import UTC, datetime

    from trajectory_platform.lake.query import sql as run_sql

    table = run_sql(_lake(), query, sealed_reason=sealed, at=datetime.now(UTC), max_rows=limit)
    if as_json:
        for row in table.to_pylist():
            print_json(row)
    else:
        from trajectory_platform.stages.text import render_table

        typer.echo(render_table(table))
        if sealed is None:
            typer.echo("rows of sealed problems are left out; --sealed REASON reads them too", err=True)


@lake_app.command("vacuum")
def lake_vacuum(
    dry_run: Annotated[bool, typer.Option("--dry-run/--delete", help="only say what would go")] = True,
    checkpoints_only: Annotated[
        bool, typer.Option("--checkpoints-only", help="keep old versions only where a checkpoint names them")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove files that no table version named by a manifest needs, and leftovers of killed publishes."""
    from trajectory_platform.lake.retention import vacuum

    facts = vacuum(_lake(), dry_run=dry_run, partition_versions=not checkpoints_only).__dict__
    print_json(facts) if as_json else typer.echo(counts_text(facts))


@lake_app.command("verify")
def lake_verify(as_json: JsonOption = False) -> None:
    """Re-read every published day and compare it with its manifest."""
    from trajectory_platform.lake.verification import verify

    lake = _lake()
    damages = [damage.__dict__ for damage in verify(lake)]
    lines = [f"{one['table']} {one['day']}: {one['reason']}: {one['detail']}" for one in damages]
    print_json({"damaged": damages}) if as_json else typer.echo("\n".join(lines) or _sound(lake))
    if damages:
        raise typer.Exit(1)


def _settings() -> Settings:
    from pydantic import ValidationError

    from trajectory_platform.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "settings"
        raise Abort(f"TRAJECTORY_PLATFORM_{place.upper()}: {first['msg']}") from None


def _lake() -> Any:
    from trajectory_platform.stages.context import StageContext

    return StageContext(_settings()).lake


def _sound(lake: Any) -> str:
    from trajectory_platform.lake.tables import TABLES

    days = {day for table in TABLES for day in lake.days(table)}
    return f"every published day holds ({len(days)} days)" if days else f"nothing is published in {lake.root}"


def _day(text: str) -> Any:
    from datetime import date

    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Abort(f"{text!r} is not a day: write YYYY-MM-DD") from None


def main() -> None:
    """Entry point: one-line errors and the exit codes of the contract."""
    try:
        app(standalone_mode=True)
    except Abort as error:
        _fail(str(error), 2)
    except PlatformError as error:
        _fail(str(error), 1)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        _fail(f"{error.filename or 'file system'}: {error.strerror or error}", 2)


def _fail(words: str, code: int) -> NoReturn:
    from trajectory_platform.stages.text import shown

    typer.echo(f"error: {shown(words)}", err=True)  # one line, whatever the text in it tries
    sys.exit(code)


if __name__ == "__main__":
    main()
