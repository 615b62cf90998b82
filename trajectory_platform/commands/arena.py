"""``arena``: the simulated arena."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from trajectory_platform import jsontext
from trajectory_platform.commands.opened import JsonOption, day_of
from trajectory_platform.errors import Abort
from trajectory_platform.output import counts_text, print_json

if TYPE_CHECKING:
    from datetime import datetime

    from trajectory_platform.arena.oro_server_history import History

app = typer.Typer(help="The simulated arena.", no_args_is_help=True)


@app.command("simulate")
def arena_simulate(
    out: Annotated[Path, typer.Option(help="folder to write the days into")],
    days: Annotated[int | None, typer.Option(min=1, help="default 3")] = None,
    traces_per_day: Annotated[int | None, typer.Option(min=1, help="(run, problem) pairs a day; default 400")] = None,
    first_day: Annotated[
        str, typer.Option(help="UTC day of the first folder; the era decides the format")
    ] = "2026-05-02",
    seed: Annotated[int, typer.Option()] = 0,
    knobs: Annotated[Path | None, typer.Option(help="YAML file of knobs; the options here win over it")] = None,
    miners: Annotated[int | None, typer.Option(min=1, help="miners that submit on a day")] = None,
    axis_b: Annotated[float | None, typer.Option(min=0, max=1, help="share of pairs whose calls code makes")] = None,
    copying: Annotated[float | None, typer.Option(min=0, max=1, help="share of pairs by copied agents")] = None,
    adversaries: Annotated[
        float | None, typer.Option(min=0, max=1, help="share of pairs with injections, forged logs or staged calls")
    ] = None,
    noise: Annotated[float | None, typer.Option(min=0, max=1, help="share of pairs that are odd by accident")] = None,
    era: Annotated[str | None, typer.Option(help="day whose formats apply to all days")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="processes; they change no byte")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write days in the published layout with scripted miners, and the truth beside them."""
    from trajectory_platform.arena.knobs import load_knobs
    from trajectory_platform.arena.simulate import simulate
    from trajectory_platform.stages.progress import day_bars

    options = {
        "days": days,
        "traces_per_day": traces_per_day,
        "miners": miners,
        "axis_b": axis_b,
        "copying": copying,
        "adversaries": adversaries,
        "noise": noise,
        "era": None if era is None else day_of(era),
    }
    with day_bars("simulating") as advance:
        report = simulate(
            out,
            seed=seed,
            first_day=day_of(first_day),
            knobs=load_knobs(knobs, options),
            workers=workers,
            progress=advance,
        )
    facts = {**report.__dict__, "out": str(out)}
    print_json(facts) if as_json else typer.echo(counts_text(facts))


@app.command("serve")
def arena_serve(
    days: Annotated[Path, typer.Option(help="folder of day folders, as 'arena simulate' writes them")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="port on 127.0.0.1; 0 takes a free one")] = 8642,
    faults: Annotated[Path | None, typer.Option(help="YAML or JSON script of what goes wrong")] = None,
    at: Annotated[str | None, typer.Option(help="UTC moment up to which things have happened; default now")] = None,
    speed: Annotated[float, typer.Option(min=0, help="seconds of history per second, from --at on")] = 0.0,
    requests_per_minute: Annotated[int, typer.Option(min=1, help="limit of one address")] = 100,
) -> None:
    """Serve simulated days as the subnet's public API does, until interrupted (Ctrl-C)."""
    from trajectory_platform.arena.oro_server import serve
    from trajectory_platform.arena.oro_server_clock import ServerClock
    from trajectory_platform.arena.oro_server_faults import load_script

    def ready(url: str, history: History) -> None:
        shown = f"{history.days[0]} to {history.days[-1]}, {len(history.runs)} runs"
        lines = _exports(url, str(history.days[0]), requests_per_minute)
        typer.echo(f"{url}\nserves  {shown}\nstop    Ctrl-C\nto fetch from it, in another shell:\n{lines}")

    clock = ServerClock(None if at is None else _moment(at), speed)
    serve(
        days, port=port, clock=clock, script=load_script(faults), requests_per_minute=requests_per_minute, ready=ready
    )


def _exports(url: str, first_day: str, limit: int) -> str:
    """Lines for a shell after which ``fetch`` and ``ingest`` ask this server; its artifacts lie on the same host.

    Days begin with the first served one, and what is asked stays a tenth below the server's limit a minute.
    """
    hosts = jsontext.dumps([urlsplit(url).hostname])
    given = {"SOURCE": "oro_api", "API_BASE": url, "API_ARTIFACT_HOSTS": hosts, "FIRST_DAY": first_day}
    given["API_REQUESTS_PER_MINUTE"] = str(max(1, limit - -(-limit // 10)))
    return "\n".join(f"export TRAJECTORY_PLATFORM_{name}={shlex.quote(value)}" for name, value in given.items())


def _moment(text: str) -> datetime:
    """A UTC moment from ISO text; without a zone it is UTC."""
    from trajectory_platform.identity import parse_utc

    found = parse_utc(text)
    if found is None:
        raise Abort(f"{text!r} is not a time: write 2026-05-04T03:30:00Z")
    return found
