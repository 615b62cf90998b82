"""The first days by ``trajectory-platform backfill`` over a real webserver and daemon, all killed in the middle.

    python benchmarks/backfill_days.py [--days 40] [--traces 12] [--no-kill] [--out DIR] [--json]

Simulates small days, starts webserver and daemon on the shipped ``dagster.yaml``, kills both and the command with
SIGKILL once half of the days have been read, starts all again, and gives the same command a second time. Exit code 1
unless every day is complete, no row stands twice, and a second look finds nothing to do.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from trajectory_platform.arena.simulate import simulate  # noqa: E402
from trajectory_platform.settings import Settings  # noqa: E402
from trajectory_platform.stages.backfills import backfill_text, chosen_days  # noqa: E402
from trajectory_platform_tests.defs.killed_backfill import run  # noqa: E402

FIRST = date(2026, 3, 26)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--traces", type=int, default=12)
    parser.add_argument("--no-kill", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = asked.out or Path(scratch)
        simulate(out / "days", days=asked.days, traces_per_day=asked.traces, seed=1, first_day=FIRST)
        settings = Settings(
            data_root=str(out / "days"),
            lake_uri=str(out / "lake"),
            checkpoint_root=str(out / "checkpoints"),
            index_root=str(out / "index"),
            first_day=FIRST,
        )
        days = [(FIRST + timedelta(days=number)).isoformat() for number in range(asked.days)]
        facts = run(out / "home", settings, days, kill=not asked.no_kill)
        again = chosen_days(settings, days[0], days[-1], datetime.now(UTC), again=False)
    facts["left"] = again.wanted
    if asked.json:
        print(json.dumps(facts))
    else:
        print(backfill_text(facts))
        print(f"killed    after {facts['killed_after']} complete days; in all {facts['total_s']:.0f} s")
        print(
            f"processes {facts['peak_memory_of_all_mb']} MiB at most, webserver, daemon, code servers and runs together"
        )
        repeated = sum(1 for count in facts["per_day"].values() if count > 1)
        print(f"days      {len(facts['per_day'])} materialised, {repeated} of them more than once")
        print(f"rows      {facts['duplicates']} twice; {len(again.wanted)} days left to do")
    whole = sorted(facts["per_day"]) == days and not again.wanted and not facts["duplicates"]
    return 0 if whole and facts["code"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
