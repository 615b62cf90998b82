"""Days of the arena in the raw-day layout (design 5), with a truth file. Deterministic per seed, byte for byte.

{out}/catalogue/products.jsonl      once
{out}/{day}/runs.jsonl, problems.jsonl, agent_versions.jsonl, suite.json, artifacts/{run}/{problem}.json.gz
{out}/truth.jsonl                   one row per executed (run, problem)
{out}/problem_clusters.jsonl        one row per problem and day
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TextIO

from trajectory_platform.arena.catalogue import generate_products
from trajectory_platform.arena.day import DayWriter, Progress, write_lines
from trajectory_platform.arena.plan import miners, plan_day, run_size
from trajectory_platform.arena.problems import ProblemMaker
from trajectory_platform.arena.rows import cluster_row
from trajectory_platform.errors import Abort
from trajectory_platform.sandbox.products import load_products
from trajectory_platform.sandbox.search import SearchIndex
from trajectory_platform.sandbox.tools import World


@dataclass(frozen=True)
class SimulationReport:
    """What was written.

    Attributes:
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
    days: int,
    traces_per_day: int,
    seed: int,
    first_day: date = date(2026, 5, 2),
    problems_per_day: int | None = None,
    products: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> SimulationReport:
    """Write ``days`` simulated days under ``out``.

    Args:
        traces_per_day: (run, problem) pairs a day, a few never executed ones included.
        problems_per_day: different problems a day; default a quarter of the traces, at least 30.
        products: size of the catalogue; default as large as the fresh problems need, at least 3,000.
        overwrite: replace what an earlier simulation left in the same place.

    Raises:
        Abort: wrong numbers, or files that are in the way.
    """
    if days < 1 or traces_per_day < 1:
        raise Abort("arena simulate needs at least one day and one trace a day")
    problems_per_day = problems_per_day or max(30, traces_per_day // 4)
    products = products or max(3_000, problems_per_day * days * 3)
    dates = [first_day + timedelta(days=offset) for offset in range(days)]
    _clear(out, dates, overwrite)
    documents = list(generate_products(seed, products))
    write_lines(out / "catalogue" / "products.jsonl", documents)
    world = _world(documents)
    maker = ProblemMaker(documents, seed)
    versions = max(12, traces_per_day * 17 // (20 * run_size(traces_per_day)))  # some are run by several validators
    agents = miners(seed, versions)
    counts: dict[str, dict[str, int]] = {"kind": {}, "outcome": {}, "axis": {}}
    pairs = executed = 0
    with _open(out / "truth.jsonl") as truth_file, _open(out / "problem_clusters.jsonl") as cluster_file:
        for day in dates:
            problems = maker.day(problems_per_day)
            plans = plan_day(day, problems, agents, traces_per_day, seed)
            rows = DayWriter(world, out, day, problems, plans, seed, progress).write()
            for row in rows:
                truth_file.write(json.dumps(row) + "\n")
                for name, tally in counts.items():
                    tally[row[name]] = tally.get(row[name], 0) + 1
            for problem in problems:
                cluster_file.write(json.dumps(cluster_row(day, problem)) + "\n")
            pairs += sum(len(plan.problems) for plan in plans)
            executed += len(rows)
    tallies = {name: dict(sorted(tally.items())) for name, tally in counts.items()}
    return SimulationReport(
        out,
        dates,
        products,
        problems_per_day * days,
        pairs,
        executed,
        tallies["kind"],
        tallies["outcome"],
        tallies["axis"],
    )


def _world(documents: list[dict[str, Any]]) -> World:
    catalogue = load_products(documents)
    return World(catalogue, SearchIndex(catalogue))


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


def _open(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="\n")
