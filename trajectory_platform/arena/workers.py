"""Runs executed in this process or in several. The result is the same: a run depends on its plan and the day only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trajectory_platform.arena.entry import OwnPolicies
from trajectory_platform.arena.execution import Frame, RunResult, execute
from trajectory_platform.arena.knobs import EntryKnobs
from trajectory_platform.arena.plan import RunPlan
from trajectory_platform.sandbox.tools import World

Runner = Callable[[Frame, Sequence[RunPlan]], Iterator[RunResult]]
"""Executes runs and gives their results in the order of the plans."""
_PAIRS_PER_CHUNK = 120  # small enough that the last chunks of a day keep all workers busy
_held: dict[str, Any] = {}  # what a worker process keeps: it has one market for all its runs


def open_market(catalogue: Path) -> World:
    """The market the miners shop in."""
    from trajectory_platform.sandbox.products import load_products
    from trajectory_platform.sandbox.search import SearchIndex

    products = load_products(catalogue)
    return World(products, SearchIndex(products))


class InProcess:
    """Runs one after the other in this process."""

    def __init__(self, catalogue: Path) -> None:
        self.world = open_market(catalogue)

    def __call__(self, frame: Frame, plans: Sequence[RunPlan]) -> Iterator[RunResult]:
        for plan in plans:
            yield execute(self.world, plan, frame)


class InProcesses:
    """Chunks of runs in worker processes; at most a few chunks are in flight, so memory does not grow with the day."""

    def __init__(self, pool: ProcessPoolExecutor, workers: int) -> None:
        self.pool, self.workers = pool, workers

    def __call__(self, frame: Frame, plans: Sequence[RunPlan]) -> Iterator[RunResult]:
        pending: list[Future[list[RunResult]]] = []
        try:
            for chunk in chunks(plans):
                pending.append(self.pool.submit(_execute_chunk, frame, chunk))
                if len(pending) > 3 * self.workers:
                    yield from pending.pop(0).result()
            while pending:
                yield from pending.pop(0).result()
        finally:
            for future in pending:
                future.cancel()


class WithOwn:
    """Scripted runs go one way, runs of our own policies the other; the results keep the order of the plans."""

    def __init__(self, scripted: Runner, own: OwnPolicies) -> None:
        self.scripted, self.own = scripted, own

    def __call__(self, frame: Frame, plans: Sequence[RunPlan]) -> Iterator[RunResult]:
        own = self.own(frame, [plan for plan in plans if plan.entry.checkpoint_id is not None])
        scripted = self.scripted(frame, [plan for plan in plans if plan.entry.checkpoint_id is None])
        for plan in plans:
            yield next(scripted if plan.entry.checkpoint_id is None else own)


@contextmanager
def runner(catalogue: Path, workers: int, entries: Sequence[EntryKnobs] = ()) -> Iterator[Runner]:
    """What executes the runs of a simulation: ``workers`` processes, or this one; our own policies run here."""
    if workers <= 1:
        scripted = InProcess(catalogue)
        yield WithOwn(scripted, OwnPolicies(entries, scripted.world)) if entries else scripted
        return
    import multiprocessing

    # spawn: a forked child of a process with threads (Dagster, pyarrow) may hang
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(catalogue,)) as pool:
        processes = InProcesses(pool, workers)
        yield WithOwn(processes, OwnPolicies(entries, open_market(catalogue))) if entries else processes


def chunks(plans: Sequence[RunPlan]) -> Iterator[list[RunPlan]]:
    """The plans in order, some hundred pairs at a time."""
    chunk: list[RunPlan] = []
    pairs = 0
    for plan in plans:
        chunk.append(plan)
        pairs += len(plan.problems)
        if pairs >= _PAIRS_PER_CHUNK:
            yield chunk
            chunk, pairs = [], 0
    if chunk:
        yield chunk


def _start_worker(catalogue: Path) -> None:
    _held["world"] = open_market(catalogue)


def _execute_chunk(frame: Frame, plans: list[RunPlan]) -> list[RunResult]:
    return [execute(_held["world"], plan, frame) for plan in plans]
