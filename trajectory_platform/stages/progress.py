"""Progress for people, on stderr, only for what takes over a second and only on a terminal."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import FailPartition

if TYPE_CHECKING:
    from trajectory_platform.evaluation.child import Runner

# lines of ``training.arguments``, ``training.pretraining``, ``evaluation.rollout_process`` and ``evaluation.actions``
_STEP = re.compile(r"step (?P<done>\d+)/(?P<total>\d+) loss (?P<loss>\S+)")
_PART = re.compile(r"(?:scored )?(?P<done>\d+) of (?P<total>\d+) (?:attempts|turns)\b")
_EVERY_S = 5.0  # between two lines of steps where nobody watches a bar move
_TAIL = 5  # last lines that stand in the error of a process that failed


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


class Step(NamedTuple):
    """How far the process of a stage is: ``done`` of ``total``, with the loss where it trains."""

    done: int
    total: int
    loss: str | None = None


def step_of(line: str) -> Step | None:
    """The step that a line of a process tells; None where it tells something else."""
    found = _STEP.match(line) or _PART.match(line)
    if found is None or int(found["total"]) == 0:
        return None
    return Step(int(found["done"]), int(found["total"]), found.groupdict().get("loss"))


class Watch:
    """Shows on stderr which stage of a training runs and how far it is: a bar on a terminal, else a line now and then.

    Nothing is written to stdout. One stage runs at a time.
    """

    def __init__(self, *, bar: bool | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._bar = sys.stderr.isatty() if bar is None else bar
        self._clock = clock
        self._name = ""
        self._progress: Any = None
        self._task: Any = None
        self._first: tuple[float, int] | None = None  # when the first step came, and which it was
        self._shown_at: float | None = None

    def runner(self) -> Runner:
        """Starts a process as ``child.plain_runner`` does, and shows its lines.

        It raises FailPartition with the last lines of a process that fails.
        """
        from trajectory_platform.evaluation.process_group import run_group

        def run(command: Sequence[str], env: Mapping[str, str]) -> None:
            last: deque[str] = deque(maxlen=_TAIL)

            def follow(line: str) -> None:
                last.append(line)
                self.line(line)

            code = run_group(command, env, on_line=follow)
            if code != 0:
                raise FailPartition(f"exit code {code}; it last printed: {' | '.join(last)}")

        return run

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """The stage that lines belong to until the block ends; its bar is taken away then."""
        self._name, self._first, self._shown_at = name, None, None
        try:
            yield
        finally:
            if self._progress is not None:
                self._progress.stop()
            self._progress = self._task = None

    def line(self, line: str) -> None:
        """Show a line of the stage's process."""
        step = step_of(line)
        if self._bar:
            self._draw(line, step)
        elif step is None or self._due(step):
            left = "" if step is None else self._left(step)
            sys.stderr.write(f"{self._name}  {_safe(line)}{left}\n")
            sys.stderr.flush()

    def _draw(self, line: str, step: Step | None) -> None:
        from rich.text import Text

        if self._progress is None:
            self._progress = _bars()
            self._progress.start()
            self._task = self._progress.add_task(self._name, total=None, words="")
        if step is None:
            self._progress.console.print(Text(f"{self._name}  {_safe(line)}"), highlight=False)
        else:
            words = "" if step.loss is None else f"loss {_safe(step.loss)}"
            self._progress.update(self._task, completed=step.done, total=step.total, words=words)

    def _due(self, step: Step) -> bool:
        now = self._clock()
        if self._shown_at is not None and step.done < step.total and now - self._shown_at < _EVERY_S:
            return False
        self._shown_at = now
        return True

    def _left(self, step: Step) -> str:
        """About how long it will go on, from the time between the first step that was told and this one."""
        now = self._clock()
        if self._first is None or step.done <= self._first[1]:
            self._first = now, step.done
            return ""
        began, first = self._first
        left = (now - began) / (step.done - first) * (step.total - step.done)
        return f", about {left:.0f} s left" if step.done < step.total else ""


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[words]}", markup=False), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    # stdout stays what it is: facts of the stages go there, and with --json nothing else
    return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)


def _safe(line: str) -> str:
    from trajectory_platform.escaping import escaped

    return escaped(line)[:500]
