"""Processes that meet: two runs of one day, workers that die of memory; and a clock that jumps under a run."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from trajectory_platform.lake.publish import Lake
from trajectory_platform_tests.faults import oracle, traps
from trajectory_platform_tests.faults.bench import TWO, bench, chance, ended, scratch, settled, watching, world
from trajectory_platform_tests.faults.killed import BOTH, digests_of
from trajectory_platform_tests.faults.oracle import Outcome, Reader
from trajectory_platform_tests.faults.stores import store
from trajectory_platform_tests.faults.traps import Trap
from trajectory_platform_tests.lake import children
from trajectory_platform_tests.lake.rows import DAY, put


def two_runs(seed: int) -> Outcome:
    """Two or three ``ingest`` of the same days at once, begun a moment apart: one content, whoever wins."""
    draw, outcome = chance("two-runs", seed), Outcome()
    with bench("two-runs", seed) as made:
        with watching(made) as reader:
            started = []
            for words in [("--day", TWO[0]), ("--day", TWO[0]), ("--from", TWO[0], "--to", TWO[1])][: 2 + seed % 2]:
                started.append(made.start("ingest", *words))
                time.sleep(draw.uniform(0, 0.3))
            said = [ended(*one) for one in started]
        reader.count(outcome)
        for code, text in said:
            outcome.expect(code in (0, 1), f"exit code {code}")
            if code:
                outcome.say(text, "by another process meanwhile|is being written by process", "failed")
        outcome.at = f"codes {[one.code for one in said]}"
        return settled(made, outcome)


def two_writers(uri: str, kind: str, seed: int) -> Outcome:
    """Two publishes of other rows of one day that meet before their commit: one is told that it lost."""
    draw, outcome = chance(kind, seed), Outcome()
    table = BOTH[seed % 2]
    ids = {name: children.OLD[start : start + draw.randint(20, 200)] for name, start in (("a", 0), ("b", 300))}
    lake, slot = Lake(uri), (table.name, DAY)
    put(lake, table, children.rows(table, children.OLD), identity="old")
    scratch_lake = Lake(tempfile.mkdtemp(prefix="one-", dir=scratch()))
    digests = {
        name: put(scratch_lake, table, children.rows(table, some), identity=name).content_digest
        for name, some in ids.items()
    }
    allowed = {slot: {*digests.values(), digests_of(table.name)["old"]}}
    folder = Path(tempfile.mkdtemp(prefix=kind, dir=scratch()))
    with Reader(uri, allowed, [slot]) as reader:
        meet = children.PROCESSES.Barrier(2)
        started = [
            children.start(children.publish_day, uri, table.name, DAY, some, name, meet, str(folder / name))
            for name, some in ids.items()
        ]
        codes = [children.finish(one) for one in started]
    reader.count(outcome)
    said: list[dict[str, Any]] = [json.loads((folder / name).read_text()) for name in ids]
    refusals = [one["refused"] for one in said if "refused" in one]
    outcome.expect(codes == [0, 0] and len(refusals) == 1, f"{codes} {said}")
    outcome.say(" ".join(refusals), "published by another process meanwhile", table.name, DAY)
    (winner,) = [name for name, one in zip(ids, said, strict=True) if "published" in one]
    outcome.at = f"{table.name}: {winner} won"
    oracle.compare(lake, {slot: digests[winner]}, outcome)
    (loser,) = set(ids) - {winner}
    put(lake, table, children.rows(table, ids[loser]), identity=loser)
    outcome.completes = lake.is_current(table, DAY, loser)
    oracle.compare(lake, {slot: digests[loser]}, outcome)
    return outcome


def two_writers_local(seed: int) -> Outcome:
    """On a local disk."""
    return two_writers(tempfile.mkdtemp(prefix="lake-", dir=scratch()), "two-writers", seed)


def two_writers_s3(seed: int) -> Outcome:
    """On S3, where a lease may expire and only conditional puts hold."""
    return two_writers(store()[1], "two-writers-s3", seed)


def clock(seed: int) -> Outcome:
    """The clock of a run jumps back or forth by seconds to years: nothing of what it makes depends on it."""
    draw, outcome = chance("clock", seed), Outcome()
    seconds = draw.choice([-1, 1]) * draw.choice([2, 3600, 86_400 * 3, 86_400 * 800])
    with bench("clock", seed) as made:
        trap = traps.drawn(world().points, draw, "clock", seconds)
        outcome.at = f"{seconds} s {trap}"
        with watching(made) as reader:
            code, text = made.run("ingest", trap=trap)
        reader.count(outcome)
        outcome.expect(code == 0, f"ended with {code}: {text[-300:]}")
        outcome.expect(oracle.contents(made.lake) == world().reference, "other content than by an honest clock")
        return settled(made, outcome)


def worker(seed: int) -> Outcome:
    """A worker process that the kernel kills for its memory, or whose allocations fail: the day fails alone."""
    draw, outcome = chance("worker", seed), Outcome()
    starve = seed % 2 == 1
    with bench("worker", seed) as made:
        made.more = {"workers": "2", "batch_rows": "2"}
        trap = Trap("traces.normalise:_parts", draw.randint(3, 4), "call", "kill_worker")
        if starve:
            trap = Trap(trap.name, trap.nth, trap.when, "starve_worker", value=1 << 20)
        outcome.at = f"{trap.action} at batch {trap.nth}"
        with watching(made) as reader:
            code, text = made.run("ingest", trap=trap)
        reader.count(outcome)
        outcome.kills += not starve
        outcome.expect(code == 1, f"exit code {code}")
        lines = [line for line in text.splitlines() if line.startswith("2026-")]  # the worker's own last words aside
        outcome.say(
            "\n".join(lines),
            "trajectories",
            "failed",
            "memory|worker",
            "TRAJECTORY_PLATFORM_WORKERS|workers|batch_rows",
        )
        return settled(made, outcome)
