"""``traces``: look at traces and raw artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from trajectory_platform.commands.opened import JsonOption, SealedOption, day_of, settings
from trajectory_platform.errors import Abort
from trajectory_platform.output import print_json

app = typer.Typer(help="Look at traces and raw artifacts.", no_args_is_help=True)


@app.command("show")
def traces_show(trace_id: str, sealed: SealedOption = None, as_json: JsonOption = False) -> None:
    """One trace of the lake as plain text, control characters escaped: what was decided about it, then what it says.

    'traces page' makes a page of it, 'traces mlflow' puts it into MLflow's trace view.
    """
    from datetime import UTC, datetime

    from trajectory_platform.stages.traces import find_trace, render_trace

    row = find_trace(settings(), trace_id, sealed_reason=sealed, at=datetime.now(UTC))
    print_json(row) if as_json else typer.echo(render_trace(row))


@app.command("page")
def traces_page(
    trace_ids: Annotated[list[str] | None, typer.Argument(metavar="[TRACE_ID]...")] = None,
    out: Annotated[
        Path, typer.Option(help="file ending in .html, or a folder for one page each; an older one is replaced")
    ] = Path("traces.html"),
    problem: Annotated[str | None, typer.Option(help="traces of this problem instead: its id or its key")] = None,
    limit: Annotated[int, typer.Option(min=1, help="with --problem: how many traces")] = 4,
    sealed: SealedOption = None,
    as_json: JsonOption = False,
) -> None:
    """A page to share: one trace from top to bottom, or several of one problem side by side; loads and sends nothing.

    Of a problem, traces that differ are taken: miners' and checkpoints' own, successes and failures.
    """
    from datetime import UTC, datetime

    from trajectory_platform.lake.arrays import without_pandas
    from trajectory_platform.stages.trace_pages import write_trace_pages

    without_pandas()
    done = write_trace_pages(
        settings(), out, trace_ids or (), problem=problem, limit=limit, sealed_reason=sealed, at=datetime.now(UTC)
    )
    print_json(done) if as_json else typer.echo("\n".join(done["files"]))


@app.command("mlflow")
def traces_mlflow(
    trace_ids: Annotated[list[str] | None, typer.Argument(metavar="[TRACE_ID]...")] = None,
    day: Annotated[str | None, typer.Option(help="traces of this UTC day")] = None,
    only: Annotated[
        str | None, typer.Option(help="with --day: accepted, rejected, success, failure, a use, a stage or a reason")
    ] = None,
    checkpoint: Annotated[str | None, typer.Option(help="what this checkpoint did")] = None,
    fed_to: Annotated[str | None, typer.Option(help="what this checkpoint was trained on")] = None,
    limit: Annotated[int, typer.Option(min=1, help="how many traces at most, drawn evenly")] = 100,
    sealed: SealedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Traces into MLflow's trace view (MLFLOW_TRACKING_URI), with spans, tool calls and verdicts; each once.

    Sealed ones are passed over unless a reason is given. 'make mlflow-ui' shows a local store.
    """
    import os
    from datetime import UTC, datetime

    from trajectory_platform.lake.arrays import without_pandas
    from trajectory_platform.stages.trace_pages import log_to_mlflow

    uri = os.environ.get("MLFLOW_TRACKING_URI", "").strip()
    if not uri:
        raise Abort("MLFLOW_TRACKING_URI is not set: a server's address, or sqlite:///FILE")
    without_pandas()
    done = log_to_mlflow(
        settings(),
        uri,
        trace_ids or (),
        day=None if day is None else day_of(day).isoformat(),
        only=only,
        checkpoint=checkpoint,
        fed_to=fed_to,
        limit=limit,
        sealed_reason=sealed,
        at=datetime.now(UTC),
    )
    print_json(done) if as_json else typer.echo("\n".join(_logged(done, uri)))


def _logged(done: Mapping[str, Any], uri: str) -> Iterator[str]:
    """What was logged, what was passed over, and where it is to be seen."""
    from shlex import quote
    from urllib.parse import urlsplit

    counts = f"{done['written']:,} traces written, {done['known']:,} were there already"
    replaced = f", {done['replaced']:,} replaced because their facts changed" if done["replaced"] else ""
    yield f"{counts}{replaced}; {done['chosen_from']:,} to choose from"
    told = {
        "sealed": "sealed ones passed over (--sealed REASON logs them)",
        "retracted": "retracted ones passed over",
        "removed": "retracted ones removed from the store",
    }
    if passed := [f"{done[name]:,} {words}" for name, words in told.items() if done[name]]:
        yield ", ".join(passed)
    if not done["page"]:
        return
    if uri.startswith(("http://", "https://")):
        place = urlsplit(uri)
        host = place.netloc.rpartition("@")[2]  # an address with a password is not printed
        yield f"see    {place.scheme}://{host}{place.path.rstrip('/')}/{done['page']}"
    elif uri.startswith("sqlite:///"):
        serving = f"make mlflow-ui MLFLOW_TRACKING_URI={quote(uri)}"
        yield f"see    http://127.0.0.1:5000/{done['page']} while '{serving}' runs"
    else:
        yield f"see    {done['page']} of an MLflow server over this store ('mlflow server --backend-store-uri ...')"


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
