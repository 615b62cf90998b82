"""``traces``: look at traces and raw artifacts."""

from __future__ import annotations

from pathlib import Path

import typer

from trajectory_platform.commands.opened import JsonOption, SealedOption, settings
from trajectory_platform.output import print_json

app = typer.Typer(help="Look at traces and raw artifacts.", no_args_is_help=True)


@app.command("show")
def traces_show(trace_id: str, sealed: SealedOption = None, as_json: JsonOption = False) -> None:
    """One trace of the lake as plain text, control characters escaped: what was decided about it, then what it says."""
    from datetime import UTC, datetime

    from trajectory_platform.stages.traces import find_trace, render_trace

    row = find_trace(settings(), trace_id, sealed_reason=sealed, at=datetime.now(UTC))
    print_json(row) if as_json else typer.echo(render_trace(row))


@app.command("lint")
def traces_lint(files: list[Path], as_json: JsonOption = False) -> None:
    """What the readers find odd in raw artifact files: repairs, flags, rejections."""
    from trajectory_platform.stages.traces import lint_file

    worst = 0
    for file in files:
        for row in lint_file(settings(), file):
            worst = max(worst, 1 if row["rejected"] else 0)
            print_json(row) if as_json else typer.echo(row["text"])
    if worst:
        raise typer.Exit(1)
