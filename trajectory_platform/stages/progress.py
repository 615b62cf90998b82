"""Progress for people, on stderr, only for what takes over a second and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date


@contextmanager
def day_bars(label: str) -> Iterator[Callable[[date, int, int], None]]:
    """One bar per day, moved by calls of the yielded function (day, done, total); silent without a terminal."""
    if not sys.stderr.isatty():
        yield lambda _day, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[date, TaskID] = {}

        def move(day: date, done: int, total: int) -> None:
            if day not in tasks:
                tasks[day] = bar.add_task(f"{label} {day}", total=total)
            bar.update(tasks[day], completed=done)

        yield move
