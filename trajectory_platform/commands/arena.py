"""``arena``: the simulated arena."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trajectory_platform.commands.opened import JsonOption, day_of
from trajectory_platform.output import counts_text, print_json

app = typer.Typer(help="The simulated arena.", no_args_is_help=True)


@app.command("simulate")
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
            out, days=days, traces_per_day=traces_per_day, seed=seed, first_day=day_of(first_day), progress=advance
        )
    facts = {**report.__dict__, "out": str(out)} if hasattr(report, "__dict__") else {"out": str(out)}
    print_json(facts) if as_json else typer.echo(counts_text(facts))
