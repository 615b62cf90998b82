"""The subnet's API as it fails, fetches that are killed, and a clock that jumps under a fetch."""

from __future__ import annotations

import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from trajectory_platform_tests.faults import traps
from trajectory_platform_tests.faults.bench import Bench, bench, chance, scratch, world
from trajectory_platform_tests.faults.oracle import NotHere, Outcome, conserved

RATE = 3000
MOMENTS = [datetime(2026, 5, day, 3, 30, tzinfo=UTC) for day in (4, 8, 28)]
LAST = "2026-05-06"


@dataclass
class Served:
    """A server of the two days, and a bench that fetches from it."""

    server: Any
    bench: Bench

    def fetch(self, moment: datetime, **how: Any) -> Any:
        self.server.clock.set(moment)
        last = min(LAST, moment.date().isoformat())  # days that have not begun are refused
        words = ("--from", "2026-05-02", "--to", last, "--at", moment.isoformat(), "--json")
        return self.bench.run("fetch", *words, **how)


@contextmanager
def served(kind: str, seed: int, script: dict[str, Any] | None = None) -> Iterator[Served]:
    """A local server of the world's days with faults by script."""
    try:
        from trajectory_platform.arena.oro_server import LocalServer
        from trajectory_platform.arena.oro_server_clock import ServerClock
        from trajectory_platform.arena.oro_server_faults import script_of
    except ImportError as error:
        raise NotHere(f"{error.name} is not installed") from error
    played = None if script is None else script_of(script)
    clock = ServerClock(MOMENTS[0])
    with (
        LocalServer(world().days, clock=clock, script=played, requests_per_minute=RATE * 10 // 9) as server,
        bench(kind, seed, old=False) as made,
    ):
        made.days = made.folder / "raw"
        made.more = {
            "source": "oro_api",
            "api_base": server.url,
            "api_state": str(made.folder / "state"),
            "api_artifact_hosts": ("127.0.0.1",),
            "api_requests_per_minute": RATE,
        }
        yield Served(server, made)


def _account(one: Served, outcome: Outcome) -> Outcome:
    """Everything judged lies in its folder byte for byte, once; the lake made of it conserves it."""
    from trajectory_platform_tests.stages.served_history import judged_pairs, listed_pairs

    history, raw = one.server.history, one.bench.days
    # a suite whose race was never held is on no list of its day: reported as short, not tested here
    raced = {run.row["suite_id"] for run in history.runs.values() if run.row["phase"] == "RACE"}
    listed = Counter(listed_pairs(raw))
    judged = 0
    for run, problem, day, file in judged_pairs(history):
        if history.runs[run].row["suite_id"] in raced:
            judged += 1
            held = raw / day / "artifacts" / run / f"{problem}.json.gz"
            same = not held.exists() if file is None else held.exists() and held.read_bytes() == file.read_bytes()
            outcome.expect(same and listed[(day, run, problem)] > 0, f"{day}/{run}/{problem} is not there as published")
    outcome.duplicates += sum(times - 1 for times in listed.values())
    outcome.expect(judged > 0, "nothing was judged")
    one.bench.more["source"] = "files"
    days = sorted(path.name for path in one.bench.days.iterdir() if path.name.startswith("2026"))
    code, text = one.bench.run("ingest", "--from", days[0], "--to", days[-1])
    outcome.completes = outcome.completes and code == 0
    outcome.notes += [text[-400:]] if code else []
    conserved(one.bench.settings, [day for day in days if day in one.bench.lake.days("raw_traces")], outcome)
    return outcome


@cache
def _points() -> traps.Points:
    """Points of an undisturbed fetch in the client and what it writes."""
    path = Path(tempfile.mkdtemp(prefix="fetch-", dir=scratch())) / "points.json"
    with served("recorded", 0) as one:
        code, text = one.fetch(MOMENTS[-1], record=str(path))
        assert code in (0, 1), text
    return traps.recorded(path, "sources.", "stages.fetch")


def killed(seed: int) -> Outcome:
    """``fetch`` killed at points a seed chooses, then run until the days are final."""
    draw, outcome = chance("fetch", seed), Outcome()
    with served("fetch", seed) as one:
        for _ in range(draw.randint(1, 2)):
            trap = traps.drawn(_points(), draw)
            outcome.kills += one.fetch(MOMENTS[-1], trap=trap).code == -signal.SIGKILL
            outcome.at += f"{trap}; "
        code, text = one.fetch(MOMENTS[-1])
        outcome.completes = code == 0
        outcome.notes += [text[-400:]] if code else []
        asked = [row.path for row in one.server.log.rows() if row.path.startswith("/storage/") and row.status == 200]
        outcome.expect(len(asked) - len(set(asked)) <= 8 * outcome.kills, "finished downloads were asked for again")
        return _account(one, outcome)


def api(seed: int) -> Outcome:
    """Every fault of the API by a script that a seed draws; looked at on three mornings."""
    from trajectory_platform_tests.stages.served_history import FAULTS

    outcome = Outcome()
    draw = chance("api", seed)
    rules = draw.sample(FAULTS["rules"], 12)
    outcome.at = ", ".join(sorted({rule["fault"] for rule in rules}))
    with served("api", seed, {**FAULTS, "seed": seed, "rules": rules}) as one:
        codes = []
        for moment in MOMENTS:
            code, text = one.fetch(moment)
            codes.append(code)
            outcome.expect(code in (0, 1), f"exit code {code}: {text[-300:]}")
        outcome.completes = codes[-1] == 0
        outcome.notes += [text[-400:]] if codes[-1] else []
        outcome.expect(one.server.log.busiest() <= RATE, "more requests than allowed")
        return _account(one, outcome)


def down(seed: int) -> Outcome:
    """The API does not answer at all, or refuses: what was fetched stays, the command says what to do."""
    draw, outcome = chance("down", seed), Outcome()
    status = draw.choice([500, 502, 503])
    times = draw.randint(5, 7)  # of each path; a look tries five times, so the first looks end without an answer
    outcome.at = f"{status} x {times}"
    rule = {"fault": "server_error", "path": "races/*", "status": status, "times": times}
    with served("down", seed, {"rules": [rule]}) as one:
        code, text = one.fetch(MOMENTS[1])
        outcome.expect(code == 1, f"exit code {code}")
        outcome.say(text, "server_error|listing_refused|connection", "later|again|retry|next")
        for moment in MOMENTS[1:]:
            code, text = one.fetch(moment)
        outcome.completes = code == 0
        outcome.notes += [text[-400:]] if code else []
        return _account(one, outcome)


def clock(seed: int) -> Outcome:
    """The clock of the machine jumps in the middle of a fetch: no artifact is lost, no limit broken, nothing hangs."""
    draw, outcome = chance("fetch-clock", seed), Outcome()
    seconds = draw.choice([-1, 1]) * draw.choice([90, 7200, 86_400 * 400])
    with served("fetch-clock", seed) as one:
        trap = traps.drawn(_points(), draw, "clock", seconds)
        outcome.at = f"{seconds} s {trap}"
        one.fetch(MOMENTS[-1], trap=trap)
        code, text = one.fetch(MOMENTS[-1])
        outcome.completes = code == 0
        outcome.notes += [text[-400:]] if code else []
        outcome.expect(one.server.log.busiest() <= RATE, "more requests than allowed")
        return _account(one, outcome)
