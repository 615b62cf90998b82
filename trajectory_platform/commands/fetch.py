"""``fetch``: days from the subnet's public API."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trajectory_platform.commands.interruption import STOPPED, said_when_interrupted
from trajectory_platform.commands.opened import JsonOption, settings
from trajectory_platform.errors import Abort
from trajectory_platform.output import report_days

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

app = typer.Typer()


@app.command()
def fetch(
    day: Annotated[str | None, typer.Option(help="one UTC day of judgment, YYYY-MM-DD")] = None,
    first: Annotated[str | None, typer.Option("--from", help="first day of a range")] = None,
    last: Annotated[str | None, typer.Option("--to", help="last day of a range; default today")] = None,
    only_open: Annotated[bool, typer.Option("--open", help="every day that is not final and due for a look")] = False,
    at: Annotated[str | None, typer.Option(help="as of this UTC moment (for a simulated API); default now")] = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch days from the subnet's API into data_root: what is new, and what was not there at the last look.

    Interrupted or run twice, it goes on where it ended. Days that are not final are looked at again by --open.
    """
    from trajectory_platform.stages.fetching import fetch_days, nothing_due
    from trajectory_platform.stages.progress import day_bars

    if sum((day is not None, first is not None or last is not None, only_open)) > 1:
        raise Abort("--day names one day, --from and --to a range, --open what is not final: give one of the three")
    chosen = settings()
    if chosen.source == "files":  # ingest and the schedules ask nobody then: who fetches by hand should know who is
        typer.echo(
            f"source is 'files'; this asks {chosen.api_base} all the same (TRAJECTORY_PLATFORM_API_BASE)", err=True
        )
    with said_when_interrupted(lambda: STOPPED.format("fetch")), day_bars("fetching") as advance:
        clock = _clock(at)
        found = iter(fetch_days(chosen, day, first, last, only_open=only_open, clock=clock, progress=advance))
        one = next(found, None)
        if one is not None:
            report_days(chain([one], found), as_json, _lines)
        elif not as_json:
            typer.echo(nothing_due(chosen, clock))


def _lines(fact: dict[str, Any]) -> Iterable[str]:
    """The state of a day, then what this look found, each on a line of its own."""
    from trajectory_platform.stages.result_words import fetch_lines

    summary = fact["summary"]
    state = summary["state"].replace("_", " ") if fact["state"] == "final" else fact["state"]
    first, *rest = fetch_lines(summary) if summary else [fact["text"]]
    yield f"{fact['day']}  {state}: {first}"
    yield from (f"{'':12}{line}" for line in rest)


def _clock(at: str | None) -> Callable[[], datetime]:
    from trajectory_platform.identity import parse_utc
    from trajectory_platform.stages.fetching import utc_now

    if at is None:
        return utc_now
    moment = parse_utc(at)
    if moment is None:
        raise Abort(f"{at!r} is not a time: write 2026-05-04T03:30:00Z")
    return lambda: moment
