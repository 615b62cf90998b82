"""Where the time of a long run goes: wall and processor seconds per part, kept in a file so that a resumed run adds up.

Processor seconds are those of this process and of the children it has waited for. What a part had used when the whole
run was killed is not counted.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKS = "asset checks"
_CHECK_ENDS = ("_checkpoint_intact", "_pools_disjoint", "_splits_digest")


class Budget:
    """The parts of one run, in the order in which they first began."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.parts = self._kept()
        self._begun: dict[str, tuple[float, float]] = {}

    def _kept(self) -> dict[str, dict[str, float]]:
        kept: dict[str, dict[str, float]] = json.loads(self._path.read_text("utf-8")) if self._path.is_file() else {}
        return kept

    def add(self, name: str, *, wall: float, cpu: float) -> None:
        """Add to a part and keep it, beside what a run of a variant may have added meanwhile."""
        self.parts = self._kept()
        part = self.parts.setdefault(name, {"wall": 0.0, "cpu": 0.0})
        part["wall"] += wall
        part["cpu"] += cpu
        waiting = self._path.with_suffix(".part")
        waiting.write_text(json.dumps(self.parts, indent=1), "utf-8")
        os.replace(waiting, self._path)

    @contextmanager
    def part(self, name: str, *, children: bool = True) -> Iterator[None]:
        """Measure what happens inside, failed or not; without ``children`` only this process."""
        wall, cpu = time.monotonic(), cpu_seconds(children)
        try:
            yield
        finally:
            self.add(name, wall=time.monotonic() - wall, cpu=cpu_seconds(children) - cpu)

    def step(self, name: str, begins: bool) -> None:
        """The same for something that says when it begins and ends (``in_process.OnStep``); checks are one part."""
        name = CHECKS if name.endswith(_CHECK_ENDS) else name
        if begins:
            self._begun[name] = time.monotonic(), cpu_seconds()
        elif name in self._begun:
            wall, cpu = self._begun.pop(name)
            self.add(name, wall=time.monotonic() - wall, cpu=cpu_seconds() - cpu)


def cpu_seconds(children: bool = True, own: bool = True) -> float:
    """User and system seconds of this process (``own``) and of its children that have ended (``children``)."""
    who = [*([resource.RUSAGE_SELF] if own else []), *([resource.RUSAGE_CHILDREN] if children else [])]
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, who))
