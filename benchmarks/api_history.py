"""A simulated history served by the local API server with faults on, fetched by two processes, ingested, compared.

    python benchmarks/api_history.py [--days 40] [--traces 300] [--rate 6000] [--out DIR]

Claims: two processes on one address never ask more often than the limit says; after the last look every verdict is
accounted for, every published artifact of a usable run lies in ``data_root`` byte for byte, and the numbers agree with
the subnet's own, although fetchers are killed on the way. The clock of the history is set morning by
morning; requests run in real time, so the limit is raised (``--rate``) and what counts is that it is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trajectory_platform.arena.oro_server_faults import script_of
from trajectory_platform.arena.oro_server_history import load_history
from trajectory_platform.arena.simulate import simulate
from trajectory_platform_tests.stages.served_history import FAULTS, account

FIRST = date(2026, 4, 20)
REPOSITORY = str(Path(__file__).resolve().parents[1])
CLI = [sys.executable, "-m", "trajectory_platform.cli"]
AFTERWARDS = (1, 2, 3, 5, 8, 15, 22)  # days after the last one on which a further look is taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--traces", type=int, default=300)
    parser.add_argument("--rate", type=int, default=6000, help="requests a minute the server admits")
    parser.add_argument("--kill-every", type=int, default=6, help="mornings between two kill -9 of a fetcher")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(args, args.out or Path(folder))


def run(args: argparse.Namespace, out: Path) -> None:
    """The whole history: simulate, serve, fetch morning by morning, account, ingest."""
    began = time.monotonic()
    simulate(out / "days", days=args.days, traces_per_day=args.traces, first_day=FIRST, seed=8)
    (out / "faults.json").write_text(json.dumps(FAULTS))
    serve = [*CLI, "arena", "serve", "--days", str(out / "days"), "--port", "0", "--faults", str(out / "faults.json")]
    told(f"simulated {args.days} days of {args.traces} pairs", began)
    server = subprocess.Popen(
        [*serve, "--at", FIRST.isoformat(), "--requests-per-minute", str(args.rate)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        began = time.monotonic()
        states = fetch_all(args, out, url)
        told("fetched", began)
        facts = json.loads(urlopen(f"{url}/_arena/facts").read())
    finally:
        server.terminate()
        server.wait()
    report(args, out, facts, states)
    began = time.monotonic()
    ingest(args, out)
    told("ingested", began)
    print(f"peak memory of a child: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")


def told(what: str, began: float) -> None:
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


def environment(args: argparse.Namespace, out: Path, url: str) -> dict[str, str]:
    """The settings of all processes."""
    settings = {
        "SOURCE": "oro_api",
        "API_BASE": url,
        "API_STATE": str(out / "state"),
        "API_ARTIFACT_HOSTS": '["127.0.0.1"]',
        "API_REQUESTS_PER_MINUTE": str(args.rate * 9 // 10),
        "DATA_ROOT": str(out / "raw"),
        "LAKE_URI": str(out / "lake"),
        "FIRST_DAY": FIRST.isoformat(),
    }
    paths = {"PYTHONPATH": REPOSITORY}
    return {**os.environ, **paths, **{f"TRAJECTORY_PLATFORM_{name}": value for name, value in settings.items()}}


def fetch_all(args: argparse.Namespace, out: Path, url: str) -> dict[str, str]:
    """Two fetchers every morning, one of them killed now and then; the last state of every day."""
    env = environment(args, out, url)
    mornings = [*range(1, args.days + 1), *(args.days + more for more in AFTERWARDS)]
    states: dict[str, str] = {}
    for morning in mornings:
        at = datetime.combine(FIRST + timedelta(days=morning), datetime.min.time(), UTC) + timedelta(
            hours=3, minutes=30
        )
        body = json.dumps({"at": at.isoformat()}).encode()
        urlopen(Request(f"{url}/_arena/clock", data=body, headers={"content-type": "application/json"})).read()
        both = [fetcher(env, at) for _ in range(2)]
        if morning % args.kill_every == 0:
            time.sleep(3.0)
            both[0].send_signal(signal.SIGKILL)
        for one in both:
            lines, _ = one.communicate()
            for line in lines.splitlines():
                fact = json.loads(line) if line.endswith("}") else {}
                if fact and fact["state"] != "busy":
                    states[fact["day"]] = fact["state"]
                if fact and fact["state"] in ("failed", "stopped"):
                    print(f"  morning {morning}: {fact['day']} {fact['state']}: {fact['text'][:200]}", flush=True)
    return states


def fetcher(env: dict[str, str], at: datetime) -> subprocess.Popen[str]:
    command = [*CLI, "fetch", "--open", "--at", at.isoformat(), "--json"]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def report(args: argparse.Namespace, out: Path, facts: dict[str, Any], states: dict[str, str]) -> None:
    """Load, faults, and what became of every pair."""
    history = load_history(out / "days", script_of(FAULTS).twists)
    found = account(history, out / "raw")
    reports = [json.loads(file.read_bytes()) for file in sorted((out / "raw").glob("2*/fetch.json"))]
    print(f"requests: {facts['counted']} to the API, busiest minute {facts['busiest_minute']} of {args.rate}")
    print(f"answers {facts['by_status']}, refused by the limit {facts['refused']}")
    print(f"faults {facts['hits']}")
    print(
        f"days: {dict(Counter(states.values()))}; reconciled {dict(Counter(one['reconciliation'] for one in reports))}"
    )
    print({name: len(value) if isinstance(value, list) else value for name, value in found.items()})
    for name in ("wrong", "not_listed"):
        for line in found[name][:10]:
            print(f"  {name}: {line}")


def ingest(args: argparse.Namespace, out: Path) -> None:
    """The fetched days to the lake, and its conservation."""
    env = environment(args, out, "http://127.0.0.1:9") | {"TRAJECTORY_PLATFORM_SOURCE": "files"}
    catalogue = out / "raw" / "catalogue"
    if not catalogue.exists():
        shutil.copytree(out / "days" / "catalogue", catalogue)
    last = FIRST + timedelta(days=args.days + 2)
    command = [*CLI, "ingest", "--from", FIRST.isoformat(), "--to", last.isoformat(), "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    days = [json.loads(line) for line in done.stdout.splitlines()]
    print(f"stages {dict(Counter(fact['state'] for fact in days))}")
    raw = [fact["summary"] for fact in days if fact["stage"] == "raw_traces"]
    curated = [fact["summary"] for fact in days if fact["stage"] == "axis_a_corpus" and fact["state"] != "failed"]
    rows = sum(one["raw_rows"] for one in raw)
    kept = sum(one["accepted"] + one["rejected"] for one in curated)
    print(f"raw rows {rows} = accepted + rejected {kept}; awaited {sum(one.get('awaited', 0) for one in raw)}")


if __name__ == "__main__":
    main()
