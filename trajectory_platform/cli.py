"""The command line, assembled from ``commands/``.

Results for people go to stdout as plain text; ``--json`` prints JSON and nothing else. Exit code 0: done,
1: a problem with the data, 2: wrong use, 130: interrupted. An error is one line that says what, where and what to do.
Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from trajectory_platform.commands import (
    arena,
    backfill,
    evaluation,
    export,
    fetch,
    flow,
    folder,
    lake,
    leaks,
    miniature,
    questions,
    sandbox,
    traces,
)
from trajectory_platform.errors import Abort, PlatformError

app = typer.Typer(
    name="trajectory-platform",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
)
app.add_typer(flow.app)
app.add_typer(fetch.app)
app.add_typer(backfill.app)
app.add_typer(folder.app)
app.add_typer(evaluation.app)
app.add_typer(miniature.app)
app.add_typer(export.app)
app.add_typer(questions.app)
app.add_typer(arena.app, name="arena")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(traces.app, name="traces")
app.add_typer(leaks.app, name="leaks")
app.add_typer(questions.lineage_app, name="lineage")
app.add_typer(lake.app, name="lake")
app.add_typer(export.release_app, name="release")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(version("trajectory-platform"))
        except PackageNotFoundError:
            typer.echo("not installed: run from a source tree")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    """From the daily stream of agent traces to a leak-safe corpus, checkpoints and their lineage."""


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
