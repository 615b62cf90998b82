"""Small days, an undisturbed lake of them, an older lake, and processes that work on copies under a fault."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.storage import LOCAL_VARIABLE
from trajectory_platform.settings import Settings
from trajectory_platform_tests.faults import oracle, traps
from trajectory_platform_tests.faults.oracle import Contents, Outcome, Reader
from trajectory_platform_tests.faults.traps import Conditions, Points, Trap
from trajectory_platform_tests.lake import children
from trajectory_platform_tests.stages.arena_days import DAYS, make_days, settings_for

# what a day's flow imports is imported once, by the server that the children are forked from
children.PROCESSES.set_forkserver_preload(
    [
        *("deltalake", "hypothesis.strategies", "pandera.polars", "pyarrow.compute", "pyarrow.dataset"),
        *("pyarrow.parquet", children.__name__, traps.__name__),
        *("trajectory_platform.cli", "trajectory_platform.stages.plain", "trajectory_platform.judging.day"),
        *("trajectory_platform.curation.filter", "trajectory_platform.stages.audits"),
    ]
)

TWO = DAYS[:2]
TRACES = 8


class Said(NamedTuple):
    """How a process ended (negative: the signal), and what it printed."""

    code: int
    text: str

    @property
    def facts(self) -> list[dict[str, Any]]:
        """The JSON lines of what it printed."""
        return [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]


@dataclass(frozen=True)
class World:
    """What all seeds share, read only: ``days``, and by ``ingest`` of them ``lake``; ``old`` is a lake of less."""

    root: Path
    days: Path
    lake: Path
    old: Path
    reference: Contents
    before: Contents
    points: Points
    recording: Path


@cache
def scratch() -> Path:
    """A folder of this process, removed at its end."""
    folder = tempfile.TemporaryDirectory(prefix="faults-")
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: list[Any] = []


@cache
def world() -> World:
    """Made once in a process."""
    root = scratch() / "world"
    days = make_days(root / "days", days=2, traces=TRACES)
    shutil.copytree(days, root / "fewer")
    for day in TWO:  # an earlier look at the same days: their last problems were not there
        listing = root / "fewer" / day / "problems.jsonl"
        listing.write_text("".join(listing.read_text("utf-8").splitlines(keepends=True)[:-2]), "utf-8")
    new = Bench(root / "undisturbed", days)
    code, text = new.run("ingest", record=str(root / "points.json"))
    assert code == 0, text
    old = Bench(root / "earlier", root / "fewer")
    code, text = old.run("ingest")
    assert code == 0, text
    reference, before = oracle.contents(new.lake), oracle.contents(old.lake)
    assert sum(reference[slot] != before.get(slot) for slot in reference) >= 8, "the old lake is another"
    points = traps.recorded(root / "points.json", "")
    return World(root, days, Path(new.uri), Path(old.uri), reference, before, points, root / "points.json")


@dataclass
class Bench:
    """One lake under test and the processes on it."""

    folder: Path
    days: Path
    uri: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.uri = self.uri or str(self.folder / "lake")

    @property
    def lake(self) -> Lake:
        return Lake(self.uri)

    @property
    def settings(self) -> Settings:
        """As the processes have them."""
        return settings_for(self.days, Path(self.uri), **self.more)

    def env(self) -> dict[str, str]:
        named = ("data_root", "lake_uri", "checkpoint_root", "index_root", "first_day", *self.more)
        given = self.settings.model_dump(mode="json", include=set(named))
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
        return {f"TRAJECTORY_PLATFORM_{name.upper()}": text for name, text in texts.items()} | {
            LOCAL_VARIABLE: str(self.folder / "workspace")
        }

    def start(self, *words: str, trap: Trap | None = None, **how: Any) -> tuple[Any, Path]:
        """The command line in a process of its own, and the file of its words."""
        self.count += 1
        said = self.folder / f"said{self.count}"
        conditions = Conditions(self.env(), str(said), trap, **how)
        return children.start(traps.command, conditions, words), said

    def run(self, *words: str, trap: Trap | None = None, **how: Any) -> Said:
        """To its end."""
        return ended(*self.start(*words, trap=trap, **how))


def ended(process: Any, said: Path, timeout_s: float = 240) -> Said:
    """Wait for a child."""
    code = children.finish(process, timeout_s)
    return Said(code, said.read_text("utf-8", "replace") if said.exists() else "")


@contextmanager
def bench(kind: str, seed: int, *, old: bool = True, own_days: bool = False) -> Iterator[Bench]:
    """A bench whose lake is a copy of the old one (or is not there yet); removed where nothing went wrong."""
    shared = world()
    folder = Path(tempfile.mkdtemp(prefix=f"{kind}-{seed}-", dir=scratch()))
    days = shared.days
    if own_days:
        days = folder / "days"
        shutil.copytree(shared.days, days)
    made = Bench(folder, days)
    if old:
        shutil.copytree(shared.old, made.uri)
    try:
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def watching(made: Bench, *, days: Sequence[str] = TWO) -> Reader:
    """A reader that admits the old and the undisturbed content of each slot of some days."""
    shared = world()
    allowed = {slot: {digest, shared.before[slot]} for slot, digest in shared.reference.items() if slot[1] in days}
    return Reader(made.uri, allowed, allowed)


def settled(made: Bench, outcome: Outcome, *words: str) -> Outcome:
    """The rerun, and the lake after it against the undisturbed one."""
    code, text = made.run(*(words or ("ingest",)))
    outcome.completes = code == 0
    if code:
        outcome.notes.append(f"the rerun ended with {code}: {text[-600:]}")
    oracle.compare(made.lake, world().reference, outcome)
    oracle.conserved(made.settings, TWO, outcome)
    return outcome


def chance(kind: str, seed: int) -> random.Random:
    """The draws of a seed of a kind."""
    return random.Random(f"{kind}:{seed}")


Fault = Callable[[int], Outcome]
