"""The first days of a subnet through a running Dagster."""

from __future__ import annotations

from typing import Annotated

import typer

from trajectory_platform.commands.interruption import said_when_interrupted
from trajectory_platform.commands.opened import JsonOption, settings
from trajectory_platform.output import print_json

app = typer.Typer()
_SHOWN = 5  # backfills that are named


@app.command()
def backfill(
    first: Annotated[str | None, typer.Option("--from", help="first day; default the first of the partitions")] = None,
    last: Annotated[str | None, typer.Option("--to", help="last day; default forty days from the first")] = None,
    server: Annotated[str, typer.Option(help="a Dagster webserver with a daemon")] = "http://127.0.0.1:3000",
    again: Annotated[bool, typer.Option("--again", help="also days that are current")] = False,
    as_json: JsonOption = False,
) -> None:
    """Days to the corpus as a Dagster backfill, several days a run; what is current is left out.

    Interrupted, it goes on: the daemon works without this command, and the same command joins what is in progress.
    """
    from datetime import UTC, datetime

    from trajectory_platform.stages import backfills
    from trajectory_platform.stages.plain import daily_assets

    chosen = settings()
    choice = backfills.chosen_days(chosen, first, last, datetime.now(UTC), again=again)
    ask = backfills.graphql(server)
    going: list[str] = []
    with said_when_interrupted(lambda: _goes_on(going, server)):
        facts = backfills.run_backfill(
            chosen,
            choice,
            assets=daily_assets(chosen),
            ask=ask,
            tell=lambda text: typer.echo(text, err=as_json),
            going=going,
        )
    print_json(facts) if as_json else typer.echo(backfills.backfill_text(facts))
    if facts["incomplete"]:
        raise typer.Exit(1)


def _goes_on(going: list[str], server: str) -> str:
    """What Ctrl-C leaves: Dagster knows nothing of it."""
    if not going:
        return "interrupted; no backfill of this command is in progress"
    shown = going[:_SHOWN] + ([f"{len(going) - _SHOWN} more"] if len(going) > _SHOWN else [])
    place = f"{server.rstrip('/')}/runs/b/{going[0]}" if len(going) == 1 else f"{server.rstrip('/')}/runs"
    name, verb = ("backfill", "goes") if len(going) == 1 else ("backfills", "go")
    return (
        f"{name} {', '.join(shown)} {verb} on in Dagster without this command: give it again to follow, or see and "
        f"cancel at {place}"
    )
