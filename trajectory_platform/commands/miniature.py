"""``miniature``: the paper's recipe in miniature, from simulated days to a table of what every stage added."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trajectory_platform.errors import Abort

app = typer.Typer()


@app.command()
def miniature(
    out: Annotated[Path, typer.Option(help="folder for everything the run makes")] = Path("miniature"),
    control: Annotated[
        bool, typer.Option("--control", help="SFT on the unfiltered stream, compared pair by pair")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="SFT on days whose miners never write the comparison down")
    ] = False,
    seed: Annotated[int, typer.Option(help="seed of the world, the days, the base and the training")] = 11,
    small: Annotated[bool, typer.Option("--small", help="tiny amounts: shows the flow, learns nothing")] = False,
) -> None:
    """Train a tiny Qwen3 through all five stages on simulated days; ends with the table, its aims and report.html.

    Started again it does what is missing. --control and --plain need only the days, the base and the SFT of the main
    run, and make them where they are missing.
    """
    from trajectory_platform.defs.miniature import run_miniature, run_variant
    from trajectory_platform.miniature.plan import CONTROL, PLAIN_DAYS, plan_of

    if control and plain:
        raise Abort("--control and --plain are runs of their own: give one of the two")
    plan = plan_of(seed=seed, small=small)
    if control or plain:
        run_variant(out, CONTROL if control else PLAIN_DAYS, plan=plan)
    else:
        run_miniature(out, plan=plan)
