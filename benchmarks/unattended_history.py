"""Forty days of the subnet, by backfill and schedule, with faults, into a lake on S3 with Postgres: unattended.

    python benchmarks/unattended_history.py [--days 40] [--traces 40] [--scheduled 12] [--at-once] [--keep DIR]

The services of docker/compose.yaml run as processes of this machine (Postgres real, moto for the object store), the
local API server plays every fault of its kinds, and one clock moves all of them. A person
gives one command: the backfill of the days that are over. The last ``--scheduled`` days and everything that comes late
are left to the daemon's schedule and sensors. Meanwhile services are killed, Postgres restarts, the store answers 503.

Exit code 1 unless in the end every day is there, nothing stands twice, every verdict of the history is accounted for
byte by byte, ``day_reconciled`` holds for every day, nothing was refused by the API's limit, and a lake
made in one go of the same raw days holds the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trajectory_platform.arena.oro_server_faults import script_of
from trajectory_platform.arena.oro_server_history import load_history
from trajectory_platform.arena.simulate import simulate
from trajectory_platform_tests.deploy.stack import Stack, stores
from trajectory_platform_tests.deploy.unattended import SERVICES, Clock, Unattended, asked, served
from trajectory_platform_tests.stages.served_history import FAULTS, account

FIRST = date(2026, 4, 20)
AFTERWARDS = (2, 15)  # days after the last one on which the clock stops again
RATE = 6000  # requests a minute: the clock jumps, requests do not, so the limit is raised, and kept
_ROWS = (
    "select (select count(*) from raw_traces) as raw, (select count(distinct trace_id) from raw_traces) as ids,"
    " (select count(*) from axis_a_corpus) as accepted, (select count(*) from rejected_traces) as rejected"
)
_RECONCILED = """
import json, sys
from trajectory_platform.settings import Settings
from trajectory_platform.stages import fetching
from trajectory_platform.stages.context import StageContext
context = StageContext(Settings())
print(json.dumps({day: fetching.reconciled(context, day) for day in sys.argv[1:]}))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--traces", type=int, default=40)
    parser.add_argument("--scheduled", type=int, default=12, help="days left to the schedule")
    parser.add_argument(
        "--at-once", action="store_true", help="the machine sleeps through these days and wakes on the last morning"
    )
    parser.add_argument("--no-trouble", action="store_true", help="faults of the API only")
    parser.add_argument("--keep", type=Path, help="folder for what was simulated and fetched")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unattended-", dir="/tmp") as scratch:
        out = args.keep or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        out.chmod(0o755)
        return run(args, out)


def run(args: argparse.Namespace, out: Path) -> int:
    """The whole history; the exit code."""
    first = FIRST
    timed = Stopwatch()
    simulate(out / "days", days=args.days, traces_per_day=args.traces, first_day=first, seed=8)
    timed.told(f"simulated {args.days} days of {args.traces} pairs from {first}")
    begun = args.days - args.scheduled
    clock = Clock(out, morning(first, begun))
    with served(out / "days", FAULTS, rate=RATE, environment=clock.environment) as url:
        extra = {
            **clock.environment,
            "TRAJECTORY_PLATFORM_API_BASE": url,
            "TRAJECTORY_PLATFORM_API_ARTIFACT_HOSTS": '["127.0.0.1"]',
            "TRAJECTORY_PLATFORM_API_REQUESTS_PER_MINUTE": str(RATE * 9 // 10),
        }
        with stores(extra=extra, FIRST_DAY=first.isoformat()) as stack:
            found = history(args, Unattended(stack, clock), out, first, begun, timed)
        facts = asked(f"{url}/_arena/facts")
    print(f"API: {facts['counted']} requests, busiest minute {facts['busiest_minute']} of {RATE}, by status "
          f"{facts['by_status']}, refused by the limit {facts['refused']}")  # fmt: skip
    print(f"faults played {facts['hits']}")
    timed.told("all of it", timed.begun)
    problems = [*found, *([f"{facts['refused']} requests refused"] if facts["refused"] else [])]
    print("complete and reconciled" if not problems else "NOT as promised:\n  " + "\n  ".join(problems))
    return 1 if problems else 0


class Stopwatch:
    def __init__(self) -> None:
        self.begun = self.last = time.monotonic()

    def told(self, what: str, since: float | None = None) -> None:
        now = time.monotonic()
        print(f"{what}: {now - (self.last if since is None else since):.0f} s", flush=True)
        self.last = now


def morning(first: date, number: int) -> datetime:
    """Shortly after the daily ingestion of the day before ``number`` was due."""
    return datetime.combine(first + timedelta(days=number), datetime.min.time(), UTC) + timedelta(hours=3, minutes=31)


def history(
    args: argparse.Namespace, left: Unattended, out: Path, first: date, begun: int, timed: Stopwatch
) -> list[str]:
    """Backfill, then day by day; what is not as promised."""
    stack = left.stack
    stack.up(SERVICES)
    for service in SERVICES:
        stack.wait(service)
    put_catalogue(stack, out)
    # After a jump of a day Dagster makes up for five of its hours: as many runs as the history has days, of checks only
    stopped = stack.run("code", "dagster", "schedule", "stop", "health_checks", "-w", "workspace.yaml")
    assert stopped.returncode == 0, stopped.stderr[-2000:]
    timed.told("services up")

    def trouble() -> None:
        left.killed("daemon")
        left.killed("code")
        left.database_restarted()

    last = first + timedelta(days=begun - 1)
    facts = left.backfill(first, last, None if args.no_trouble else trouble)
    timed.told(f"backfill of {begun} days: {len(facts['complete'])} complete, {len(facts['incomplete'])} not, "
               f"runs so far {sum(left.runs().values())}")  # fmt: skip
    left.settle()
    timed.told(f"what the sensors asked for after it; {left.materialised('axis_a_corpus')} days")
    faults = trouble_of(left)
    mornings = [args.days] if args.at_once else range(begun + 1, args.days + 1)
    for number in [*mornings, *(args.days + more for more in AFTERWARDS)]:
        left.clock.set(morning(first, number))
        if not args.no_trouble and number <= args.days:
            next(faults)
        asked_for = left.settle()
        timed.told(f"{left.clock.now():%m-%d}: {asked_for} runs, {left.materialised('axis_a_corpus')} days")
    print("runs:", ", ".join(f"{who} {status} {runs}" for (who, status), runs in sorted(left.runs().items())))
    print("done to the services:", "; ".join(left.told) or "nothing")
    return [*account_of(stack, out, first + timedelta(days=args.days)), *verified(args, stack, out, first)]


def trouble_of(left: Unattended) -> Iterator[None]:
    """One fault of a service a day, in turn."""
    for number in count():
        kind = number % 4
        if kind == 0:
            left.store_fails(12)
        elif kind == 1:
            left.killed("code")
        elif kind == 2:
            left.database_restarted()
        else:
            left.killed("daemon")
        yield


def put_catalogue(stack: Stack, out: Path) -> None:
    """The product documents, which the API does not serve."""
    store = stack.s3()
    for file in sorted((out / "days" / "catalogue").iterdir()):
        store.put_object(Bucket="raw", Key=f"days/catalogue/{file.name}", Body=file.read_bytes())


def account_of(stack: Stack, out: Path, end: date) -> list[str]:
    """The raw days as they lie in the bucket, pair by pair against the history."""
    store, raw = stack.s3(), out / "raw"
    for page in store.get_paginator("list_objects_v2").paginate(Bucket="raw", Prefix="days/"):
        for item in page.get("Contents", []):
            place = raw / item["Key"].removeprefix("days/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(store.get_object(Bucket="raw", Key=item["Key"])["Body"].read())
    found = account(load_history(out / "days", script_of(FAULTS).twists), raw)
    print("pairs:", {name: len(value) if isinstance(value, list) else value for name, value in found.items()})
    reports = [json.loads(file.read_bytes()) for file in sorted(raw.glob("2*/fetch.json"))]
    reports = [one for one in reports if one["day"] < end.isoformat()]  # of the empty days after it the last is young
    print(f"days at the source: {dict(Counter(one['state'] for one in reports))}, "
          f"reconciliation {dict(Counter(one['reconciliation'] for one in reports))}")  # fmt: skip
    problems = [f"{name}: {line}" for name in ("wrong", "not_listed") for line in found[name]]
    problems += [f"{found['listed_twice']} pairs stand in two places"] if found["listed_twice"] else []
    return problems + [
        f"{one['day']} is {one['state']}, {one['reconciliation']}: {one['open_because'] or one['warnings']}"
        for one in reports
        if one["state"] == "open" or one["reconciliation"] in ("short", "over")
    ]


def verified(args: argparse.Namespace, stack: Stack, out: Path, first: date) -> list[str]:
    """The lake on S3: whole, conserved, checked, and equal to one made in one go."""
    problems = []
    lake = stack.run("code", "trajectory-platform", "lake", "verify", "--json")
    if lake.returncode != 0 or json.loads(lake.stdout)["damaged"]:
        problems.append(f"lake verify: {lake.stdout[-500:]} {lake.stderr[-500:]}")
    days = content(stack.environment("code"))
    rows = json.loads(stack.run("code", "trajectory-platform", "sql", _ROWS, "--json").stdout)
    print(f"lake: {len(days)} days, {rows}")
    wanted = [(first + timedelta(days=number)).isoformat() for number in range(args.days)]
    problems += [f"{day} is not in the corpus" for day in wanted if day not in days]
    if not rows["raw"] == rows["ids"] == rows["accepted"] + rows["rejected"]:
        problems.append(f"rows do not add up: {rows}")
    done = stack.run("code", "python", "-W", "ignore", "-c", _RECONCILED, *wanted)
    assert done.returncode == 0, done.stderr[-2000:]
    reconciled = json.loads(done.stdout.splitlines()[-1])
    told = stack.sql(
        "select execution_status, count(*) from asset_check_executions "
        "where check_name = 'day_reconciled' and execution_status <> 'PLANNED' group by 1 order by 1"
    )
    held = sum(one["passed"] for one in reconciled.values())
    print(f"day_reconciled: holds for {held} of {len(wanted)} days; while the history went on: {dict(told)}")
    problems += [f"day_reconciled of {day}: {one['words']}" for day, one in reconciled.items() if not one["passed"]]
    again = content(ingested(out, first, max(days)))
    other = sorted(day for day in {*days, *again} if days.get(day) != again.get(day))
    print(f"made in one go of the same raw days: {len({*days, *again}) - len(other)} days equal, {len(other)} other")
    return problems + [f"{day} holds other rows than when it is made in one go" for day in other]


def ingested(out: Path, first: date, last: str) -> dict[str, str]:
    """The raw days of the bucket into a fresh local lake, up to ``last``; the environment that leads there."""
    settings = {
        "SOURCE": "files", "DATA_ROOT": str(out / "raw"), "LAKE_URI": str(out / "lake"),
        "FIRST_DAY": first.isoformat(),
    }  # fmt: skip
    environment = {**os.environ, **{f"TRAJECTORY_PLATFORM_{name}": value for name, value in settings.items()}}
    command = ["ingest", "--from", first.isoformat(), "--to", last]
    subprocess.run([sys.executable, "-m", "trajectory_platform.cli", *command], env=environment, check=False,
                   capture_output=True, cwd=Path(__file__).resolve().parents[1])  # fmt: skip
    return environment


_CONTENT = """
import json
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext
lake = StageContext(Settings()).lake
tables = ("raw_traces", "trajectories", "judged_traces", "axis_a_corpus")
print(json.dumps({one.day: [lake.manifest(name, one.day).content_digest for name in tables]
                  for one in lake.manifests("axis_a_corpus")}))
"""


def content(environment: dict[str, str]) -> dict[str, Any]:
    """Day -> content digests of its tables."""
    root = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-W", "ignore", "-c", _CONTENT]
    done = subprocess.run(command, env={**environment, "PYTHONPATH": root}, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
