"""What Ctrl-C leaves behind, said in one sentence: without it nobody knows whether the work goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

INTERRUPTED = 130  # what a shell gives a command that Ctrl-C ended
STOPPED = "{} stopped: what is done is kept, and the same command goes on where it stopped"


@contextmanager
def said_when_interrupted(words: Callable[[], str]) -> Iterator[None]:
    """Say on stderr what Ctrl-C leaves behind, and end with 130.

    Args:
        words: asked when it comes, for what is known only then.
    """
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(words(), err=True)
        raise typer.Exit(INTERRUPTED) from None
