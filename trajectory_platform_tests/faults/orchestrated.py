"""Under Dagster: a sensor evaluation killed, a poisoned day, Postgres restarted, webserver and daemon killed."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.defs.daemons import REPOSITORY, Home, home_of
from trajectory_platform_tests.faults import oracle
from trajectory_platform_tests.faults.bench import TWO, Bench, bench, chance, scratch, settled, watching, world
from trajectory_platform_tests.faults.oracle import NotHere, Outcome

POINTS = ("TICK_CREATED", "TICK_HELD", "RUN_CREATED", "RUN_LAUNCHED")


def sensor(seed: int) -> Outcome:
    """A sensor evaluation killed at one of Dagster's points: every requested run exists once after the next one."""
    draw, outcome = chance("sensor", seed), Outcome()
    point = draw.choice(POINTS)
    outcome.at = point
    with bench("sensor", seed, old=False, own_days=True) as made:
        for path in made.days.rglob("*"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
        made.more = {"unattended": "true"}
        home = home_of(made.folder / "home", made.settings, (REPOSITORY / "dagster.yaml").read_text("utf-8"))
        outcome.kills += _tick(home, 0, outcome, "new_raw_days", point) == -signal.SIGKILL
        before = _requests(home)
        outcome.completes = _tick(home, 10, outcome) == 0
        found = _requests(home)
        days = sorted(key.split(":")[1] for key in found)
        outcome.expect(days[:2] == TWO, f"requested: {days}")
        outcome.duplicates = sum(times - 1 for times in found.values())
        outcome.losses += len(set(before) - set(found))
        return outcome


def _tick(home: Home, minutes: int, outcome: Outcome, *crash: str) -> int:
    script = "trajectory_platform_tests.defs.one_tick"
    code, printed = home.run("-W", "ignore", "-m", script, str(home.folder), str(minutes), *crash)
    if code not in (0, -signal.SIGKILL):
        outcome.notes.append(printed[-600:])
    return code


def _requests(home: Home) -> Counter[str]:
    with home.instance() as instance:
        return Counter(run.tags["dagster/run_key"] for run in instance.get_runs())


def poisoned(seed: int) -> Outcome:
    """A day broken at the source, in a range: it keeps its old content and is named, the other day is new."""
    draw, outcome = chance("poisoned", seed), Outcome()
    with bench("poisoned", seed, own_days=True) as made:
        bad = draw.choice(TWO)
        path = made.days / bad / draw.choice(["problems.jsonl", "runs.jsonl"])
        kept = path.read_bytes()
        how = draw.choice(["garbage", "array", "utf16"])
        poison = {
            "garbage": draw.randbytes(len(kept)).replace(b"\n", b"x") + b"\n",
            "array": b"[" * 100_000,
            "utf16": kept.decode("utf-8").encode("utf-16"),
        }
        path.write_bytes(poison[how])
        outcome.at = f"{bad} {path.name} {how}"
        # beside a damaged neighbour a day is published as incomplete, with what can be read: a third content
        with watching(made, days=[bad]) as reader:
            code, text = made.run("ingest", "--json")
        reader.count(outcome)
        outcome.expect(code == 1, f"exit code {code}")
        outcome.say(text, bad, path.name, "failed")
        failed = {fact["day"] for fact in made_facts(text) if fact["state"] == "failed"}
        outcome.expect(failed == {bad}, f"failed days: {sorted(failed)}")
        slot = ("axis_a_corpus", bad)
        outcome.expect(oracle.contents(made.lake)[slot] == world().before[slot], "the bad day lost its old content")
        path.write_bytes(kept)
        return settled(made, outcome)


def made_facts(text: str) -> list[dict[str, str]]:
    """The facts of ``ingest --json``."""
    import json

    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


_RUN = """
import sys, dagster as dg
from trajectory_platform.defs.definitions import defs
job = defs().resolve_job_def("ingest_and_curate")
print("began", flush=True)
done = job.execute_in_process(instance=dg.DagsterInstance.get(), partition_key=sys.argv[1], raise_on_error=False)
sys.exit(0 if done.success else 3)
"""


def postgres(seed: int) -> Outcome:
    """The database of Dagster restarted in the middle of a run: the lake is whole, the next run completes."""
    import pytest

    from trajectory_platform_tests.defs.postgres_server import postgres_server

    draw, outcome = chance("postgres", seed), Outcome()
    how = draw.choice(["fast", "immediate"])
    try:
        with postgres_server() as server, bench("postgres", seed) as made:
            config = (REPOSITORY / "docker" / "dagster.yaml").read_text("utf-8")
            config = config[: config.index("compute_logs:")] if "compute_logs:" in config else config
            home = home_of(made.folder / "home", made.settings, config, **server.env)
            later = draw.uniform(0.0, 6.0)
            outcome.at = f"{how}, {later:.1f} s after the run began"
            with watching(made) as reader, home.started("-W", "ignore", "-c", _RUN, TWO[0]) as run:
                until = time.monotonic() + 240
                while "began" not in home.log() and time.monotonic() < until:
                    time.sleep(0.1)
                time.sleep(later)
                server.ctl("restart", "-m", how)
                code = run.wait(300)
            reader.count(outcome)
            outcome.at += f", run ended with {code}"
            if code:
                outcome.say(home.log().replace("Traceback", ""), "connection|Connection|terminat")
            codes = [home.run("-W", "ignore", "-c", _RUN, day)[0] for day in TWO]
            outcome.expect(codes == [0, 0], f"runs after it: {codes}")
            return settled(made, outcome)
    except pytest.skip.Exception as error:
        raise NotHere(str(error)) from error


def backfill(seed: int) -> Outcome:
    """Webserver, daemon and client of a backfill killed once half of the days are read; the same command again."""
    from trajectory_platform_tests.defs import killed_backfill

    outcome = Outcome(at="half of the days")
    folder = Path(tempfile.mkdtemp(prefix="backfill-", dir=scratch()))
    made = Bench(folder, world().days)
    try:
        found = killed_backfill.run(folder / "home", made.settings, TWO)
        outcome.kills = 3
        outcome.completes = found["code"] == 0
        outcome.duplicates += found["duplicates"]
        outcome.expect(StageContext(made.settings).lake.days("axis_a_corpus") == TWO, "days are missing")
        return settled(made, outcome)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
