"""The single steps on plain files, without a lake or an orchestrator: normalise, score, judge, curate, split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trajectory_platform.commands.opened import DayDir, JsonOption, OutFile, settings
from trajectory_platform.output import counts_text, print_json, write_lines, write_rows

app = typer.Typer()

JudgeOption = Annotated[
    str | None,
    typer.Option(help="rules | validator | PROVIDER/MODEL | YAML file of models; default from the settings"),
]


@app.command()
def normalise(day_dir: DayDir, out: OutFile, as_json: JsonOption = False) -> None:
    """Canonical trajectories of one day folder as JSON lines, one row per (run, problem)."""
    from trajectory_platform.stages import folder

    listed = folder.open_folder(settings(), day_dir)
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

    listed = folder.open_folder(settings(), day_dir)
    rows = folder.score_rows(listed, suite or [])
    write_rows(out, rows, as_json, count_by=("outcome", "reason"), faults=listed.faults)


@app.command()
def judge(
    day_dir: DayDir,
    out: OutFile,
    judge: JudgeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The reasoning verdict per trace that the gate of curate reads, with its source.

    An LLM judge is asked only about traces that the rest of the filter would keep; replies are kept beside the output,
    so that a repeated or interrupted call pays only for what is new.
    """
    from trajectory_platform.stages import folder

    chosen = settings()
    listed = folder.open_folder(chosen, day_dir)
    rows = folder.judge_rows(listed, judge or chosen.judge, journal_beside=out.parent, tell=_to_stderr)
    write_rows(out, rows, as_json, count_by=("judge_kind", "score_regime", "null_reason"), faults=listed.faults)


@app.command()
def curate(
    day_dir: DayDir,
    out: Annotated[Path, typer.Option(help="folder for accepted.jsonl, rejected.jsonl, summary.json")],
    judge: JudgeOption = None,
    filter_file: Annotated[
        Path | None, typer.Option("--filter", help="YAML file of the filter; default settings")
    ] = None,
    all_reasons: Annotated[
        bool, typer.Option("--all-reasons", help="name every stage that objects, not only the first")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """The structural filter on its own: what is accepted, what is rejected and why."""
    from trajectory_platform.stages import folder

    chosen = settings()
    if filter_file is not None:
        chosen = chosen.model_copy(update={"filter": str(filter_file)})
    listed = folder.open_folder(chosen, day_dir)
    result = folder.curate_folder(
        listed, judge or chosen.judge, all_reasons=all_reasons, journal_beside=out, tell=_to_stderr
    )
    summary = {**result.summary, "faults": listed.faults}
    out.mkdir(parents=True, exist_ok=True)
    accepted = (folder.accepted_row(row) for batch in result.accepted for row in batch.to_pylist())
    rejected = (
        folder.rejected_row(row, result.all_reasons.get(row["trace_id"], []) if all_reasons else None)
        for row in result.rejected.to_pylist()
    )
    write_lines(out / "accepted.jsonl", accepted)
    write_lines(out / "rejected.jsonl", rejected)
    write_lines(out / "summary.json", [summary])
    print_json(summary) if as_json else typer.echo(counts_text(summary))


@app.command()
def split(
    suites: Annotated[list[Path], typer.Option(help="suite or benchmark file; repeat it for more")],
    out: OutFile,
    as_json: JsonOption = False,
) -> None:
    """Leak cluster and pool of every problem in the given files."""
    from trajectory_platform.stages.splits import place_files

    rows = place_files(settings(), suites)
    write_rows(out, iter(rows), as_json, count_by=("pool", "error"))


def _to_stderr(line: str) -> None:
    typer.echo(line, err=True)
