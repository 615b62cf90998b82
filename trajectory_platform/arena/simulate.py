"""Days of the arena in the raw-day layout (design 5), with a truth file. Deterministic per seed, byte for byte.

{out}/catalogue/products.jsonl      once
{out}/{day}/runs.jsonl, problems.jsonl, agent_versions.jsonl, suite.json, artifacts/{run}/{problem}.json.gz
{out}/{day}/races.jsonl             the races of the day, with their qualifiers; no reader of days needs it
{out}/truth.jsonl                   one row per executed (run, problem)
{out}/problem_clusters.jsonl        one row per problem, on the day it was opened

Memory depends on the catalogue and on one day, not on the number of days.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TextIO

from trajectory_platform.arena.catalogue import generate_products
from trajectory_platform.arena.cycle import ArenaState, open_problems
from trajectory_platform.arena.day import DayWriter, Progress
from trajectory_platform.arena.entry import check_policies
from trajectory_platform.arena.knobs import Knobs, load_knobs
from trajectory_platform.arena.problems import ProblemMaker
from trajectory_platform.arena.rows import cluster_row
from trajectory_platform.arena.workers import runner
from trajectory_platform.errors import Abort

_FIRST_YEAR, _LAST_YEAR = 1970, 9998
_PAIRS_WORTH_PROCESSES = 4_000  # below this a worker's start costs more than it saves


@dataclass(frozen=True)
class SimulationReport:
    """What was written.

    Attributes:
        problems: different problems over all days.
        pairs: (run, problem) pairs named in problems.jsonl, over all days.
        executed: pairs with a truth row.
        by_kind / by_outcome / by_axis: counts over the executed pairs.
    """

    out: Path
    days: list[date]
    products: int
    problems: int
    pairs: int
    executed: int
    by_kind: dict[str, int] = field(default_factory=dict)
    by_outcome: dict[str, int] = field(default_factory=dict)
    by_axis: dict[str, int] = field(default_factory=dict)


def simulate(
    out: Path,
    *,
    seed: int,
    days: int | None = None,
    traces_per_day: int | None = None,
    first_day: date = date(2026, 5, 2),
    problems_per_day: int | None = None,
    products: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    knobs: Knobs | None = None,
    workers: int | None = None,
) -> SimulationReport:
    """Write simulated days under ``out``.

    Args:
        days, traces_per_day, problems_per_day: as in ``Knobs``, and stronger than what ``knobs`` says.
            ``traces_per_day`` counts (run, problem) pairs, a few never executed ones included.
        first_day: first folder; its date decides the era (``Knobs.era`` overrides).
        products: size of the catalogue; default as large as the fresh problems need, at least 3,000.
        overwrite: replace what an earlier simulation left in the same place.
        workers: processes; default one per CPU for large simulations. They do not change a byte.

    Raises:
        Abort: wrong numbers, or files that are in the way.
    """
    given = {"days": days, "traces_per_day": traces_per_day, "problems_per_day": problems_per_day}
    knobs = load_knobs(options=(knobs or Knobs()).model_dump() | {k: v for k, v in given.items() if v is not None})
    dates = _dates(first_day, knobs.days)
    check_policies(knobs.entries)
    products = products or max(3_000, 3 * fresh_problems(knobs, dates))
    _clear(out, dates, overwrite)
    catalogue = out / "catalogue" / "products.jsonl"
    catalogue.parent.mkdir()
    with _open(catalogue) as product_file:
        maker = ProblemMaker(_written(product_file, generate_products(seed, products)), seed)
    state = ArenaState(knobs, maker, seed)
    tally = _Tally()
    with (
        _open(out / "truth.jsonl") as truth_file,
        _open(out / "problem_clusters.jsonl") as cluster_file,
        runner(catalogue, _workers(workers, knobs), knobs.entries) as run,
    ):
        for day in dates:
            rows = DayWriter(state, run, out, day, progress).write()
            _append(truth_file, rows)
            _append(cluster_file, (cluster_row(day, problem) for problem in state.fresh))
            tally.add(rows, len(state.fresh))
    pairs = knobs.traces_per_day * knobs.days
    counts = [dict(sorted(counted.items())) for counted in (tally.kind, tally.outcome, tally.axis)]
    return SimulationReport(out, dates, products, tally.problems, pairs, tally.executed, *counts)


def _dates(first_day: date, days: int) -> list[date]:
    """The days, all of them in years in which a time can be written and has a day before and after it."""
    try:
        last = first_day + timedelta(days=days - 1)
    except OverflowError:
        last = date.max
    if first_day.year < _FIRST_YEAR or last.year > _LAST_YEAR:
        raise Abort(f"{days} days from {first_day} on: days are from {_FIRST_YEAR} to {_LAST_YEAR}")
    return [first_day + timedelta(days=offset) for offset in range(days)]


def fresh_problems(knobs: Knobs, dates: Sequence[date]) -> int:
    """Problems that are opened over the days: each suite once, hidden ones every day."""
    started: set[date] = set()
    count = 0
    for day in dates:
        first, public, hidden = open_problems(knobs, day)
        count += hidden + (0 if first in started else public)
        started.add(first)
    return count


@dataclass
class _Tally:
    """Counts over the days."""

    problems: int = 0
    executed: int = 0
    kind: dict[str, int] = field(default_factory=dict)
    outcome: dict[str, int] = field(default_factory=dict)
    axis: dict[str, int] = field(default_factory=dict)

    def add(self, rows: Sequence[dict[str, Any]], problems: int) -> None:
        self.problems += problems
        self.executed += len(rows)
        for name, counts in (("kind", self.kind), ("outcome", self.outcome), ("axis", self.axis)):
            for row in rows:
                counts[row[name]] = counts.get(row[name], 0) + 1


def _workers(asked: int | None, knobs: Knobs) -> int:
    if asked is not None:
        return asked
    return (os.cpu_count() or 1) if knobs.days * knobs.traces_per_day >= _PAIRS_WORTH_PROCESSES else 1


def _clear(out: Path, dates: Sequence[date], overwrite: bool) -> None:
    """Make room: refuses to touch anything unless told to, and then only what this simulation writes."""
    targets = [out / day.isoformat() for day in dates] + [
        out / "catalogue",
        out / "truth.jsonl",
        out / "problem_clusters.jsonl",
    ]
    existing = [target for target in targets if target.exists()]
    if existing and not overwrite:
        raise Abort(f"{existing[0]} exists already; choose another folder or remove it")
    for target in existing:
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()
    for day in dates:
        (out / day.isoformat() / "artifacts").mkdir(parents=True)


def _written(file: TextIO, documents: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The documents, each written on its way: the whole catalogue is never held."""
    for document in documents:
        file.write(json.dumps(document, ensure_ascii=False) + "\n")
        yield document


def _append(file: TextIO, rows: Iterable[Any]) -> None:
    for row in rows:
        file.write(json.dumps(row) + "\n")


def _open(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="\n")
