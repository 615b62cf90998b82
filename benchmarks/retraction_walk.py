"""A retraction walked from its cause to its end on a small simulated lake; each step prints command and answer.

    python benchmarks/retraction_walk.py [--out DIR] [--traces 150]

1. Three simulated days are ingested and two stages trained (tiny amounts: the models learn nothing of use).
2. A validator invalidates a run after ingestion: the listing of its day now says so. The next ingest sees it, the
   checkpoints that learnt from it are named, the sensor requests a training, and the new checkpoints are fed none of
   the run's traces.
3. A miner asks for the removal of everything of theirs: ``lineage retract`` says what it costs, then writes a
   tombstone; again the sensor asks, the new checkpoints are without them, and ``lake purge`` removes the text.

Claims, each checked at its step (exit code 1 where one does not hold): the sensor asks once per cause and names it; no
new checkpoint, nor an ancestor of it, was fed a withdrawn trace; the replaced ones are flagged and can still be asked
about; after the purge no data file of the lake holds the miner's words; every day keeps its count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

FIRST, DAYS = date(2026, 5, 2), 3
LAST = "2026-05-04"
COMMAND = "from trajectory_platform.cli import main; main()"
WIDTH = 116
_SINCE = ("checkpoint ", "CHANGED", "RETRACTED", "FLAGGED", "no longer")  # lines on what happened since it was made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=None, help="new folder for days, lake and checkpoints")
    parser.add_argument("--traces", type=int, default=150, help="traces a day")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="walk-") as scratch:
        walk = Walk((options.out or Path(scratch)).resolve(), options.traces)
        walk.begin()
        walk.invalidated_run()
        walk.retracted_miner()
    print(f"\nall {walk.checked} checks held")


class Walk:
    """The lake of the walk, and what is said of it on the way."""

    def __init__(self, root: Path, traces: int) -> None:
        self.root, self.traces, self.checked = root, traces, 0
        names = {"lake_uri": "lake", "data_root": "days", "checkpoint_root": "checkpoints", "index_root": "index"}
        places = {f"TRAJECTORY_PLATFORM_{name.upper()}": str(root / folder) for name, folder in names.items()}
        given = {"TRAJECTORY_PLATFORM_RECIPE": str(root / "recipe.yaml"), "OMP_NUM_THREADS": "1"}
        self.env = {**os.environ, **places, **given, "TRAJECTORY_PLATFORM_FIRST_DAY": FIRST.isoformat()}
        self.cursor: str | None = None

    # -- the three parts --

    def begin(self) -> None:
        """Days, lake and the first checkpoints."""
        from trajectory_platform.arena.simulate import simulate

        title("1. A lake with checkpoints")
        self.root.mkdir(parents=True, exist_ok=True)
        self._write_recipe()
        simulate(self.root / "days", days=DAYS, traces_per_day=self.traces, seed=11, first_day=FIRST)
        self.run("ingest", keep="axis_a_corpus")
        self.run("train", "all", "--as-of", LAST, keep="_checkpoint ")
        self.tick("the sensor, before anything happened")

    def invalidated_run(self) -> None:
        """A run that was good when it was ingested, and is not any more."""
        title("2. A validator invalidates a run after ingestion")
        before = self.checkpoints()
        run, fed = self._run_that_fed(before["sft"])
        say(f"run {run} fed {fed} traces to {before['sft']}; its listing now says invalidated_at")
        self._invalidate(run)
        self.run("ingest", keep="axis_a_corpus")
        asked = self.tick("the sensor")
        self.check(
            "the sensor asks for the newest as-of day and names the cause",
            asked is not None and "run_unusable" in asked[1],
        )
        self.run("train", "all", "--as-of", LAST, keep="_checkpoint ")
        after = self.checkpoints()
        self.check("every stage has a new checkpoint", all(after[stage] != before[stage] for stage in before))
        self.check("none of them was fed a trace of the run", not self._fed(after.values(), run_of=run))
        self.run("leaks", "contamination", keep="traces")
        self.run("lineage", "checkpoint", before["sft"], keep=_SINCE)
        again = self.tick("the sensor, after the training")
        self.check("the same cause is not asked for again", again is None)

    def retracted_miner(self) -> None:
        """Everything of one miner goes, text included."""
        title("3. A miner asks for the removal of everything of theirs")
        before = self.checkpoints()
        miner, words = self._miner_of(before["sft"])
        counts = self._counts()
        self.run("lineage", "retract", miner, "--dry-run")
        self.run("lineage", "retract", miner, "--reason", "asked for by the miner", keep=("tombstone", "purge"))
        asked = self.tick("the sensor")
        self.check("the sensor asks for it and names the retraction", asked is not None and "retracted" in asked[1])
        self.run("train", "all", "--as-of", LAST, keep="_checkpoint ")
        after = self.checkpoints()
        self.check("every stage has a new checkpoint", all(after[stage] != before[stage] for stage in before))
        gone = self._traces_of(miner)
        self.check("none of them was fed a trace of the miner", not self._fed(after.values(), ids=gone))
        self.run(
            "lineage",
            "trace",
            min(self._fed([before["sft"]], ids=gone)),
            keep=("retracted", "RETRACTED", "fed", "sft-"),
        )
        held = self._files_with(words)
        self.check(f"before the purge {held} data files hold words of the miner", held > 0)
        self.run("lake", "purge")
        self.check("after it none does", self._files_with(words) == 0)
        self.run("ingest", keep="axis_a_corpus")
        self.check("every day keeps its count", self._counts() == counts)
        again = self.tick("the sensor, after the training")
        self.check("the same cause is not asked for again", again is None)
        self.run("lake", "verify")

    # -- what happens --

    def run(self, *words: str, keep: str | tuple[str, ...] = ()) -> str:
        """A command as a person would type it; prints its answer, or only the lines that hold one of some words."""
        print(f"\n$ trajectory-platform {' '.join(words)}")
        command = [sys.executable, "-c", COMMAND, *words]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stdout, done.stderr, sep="\n")
            raise SystemExit(f"exit code {done.returncode}")
        wanted = (keep,) if isinstance(keep, str) else keep
        for line in done.stdout.splitlines():
            if not wanted or any(word in line for word in wanted):
                say(line)
        return done.stdout

    def tick(self, who: str) -> tuple[str, str] | None:
        """One evaluation of the sensor ``retrain_newest``: (partition, reason) of its request, or None."""
        command = [sys.executable, "-c", TICK, self.cursor or ""]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=True)
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        self.cursor = told["cursor"] or self.cursor
        print(f"\n[{who}]")
        say(f"requests train_as_of of {told['partition']}: {told['why']}" if told["partition"] else told["why"])
        return (told["partition"], told["why"]) if told["partition"] else None

    def check(self, claim: str, holds: bool) -> None:
        print(f"  {'ok' if holds else 'WRONG'}: {claim}")
        if not holds:
            raise SystemExit(1)
        self.checked += 1

    def _write_recipe(self) -> None:
        import yaml

        from trajectory_platform.training.recipe import load_recipe

        recipe = load_recipe("fast").model_dump(mode="json")
        recipe |= {"name": "walk", "min_traces": 1}
        recipe["stages"] |= dict.fromkeys(("resft", "teacher_sft", "dr_grpo"))
        for stage in ("sft", "kto"):
            recipe["stages"][stage]["amount"] |= {"max_steps": 12, "token_budget": None}
        recipe["evaluation"]["rollouts"] |= {"problems": 2}
        (self.root / "recipe.yaml").write_text(yaml.safe_dump(recipe), "utf-8")

    def _invalidate(self, run: str) -> None:
        for path in sorted((self.root / "days").glob("20*/runs.jsonl")):
            rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            for row in rows:
                if row["eval_run_id"] == run:
                    row["invalidated_at"] = f"{LAST}T23:00:00Z"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")

    # -- what the lake says --

    def lake(self) -> Any:
        from trajectory_platform.lake.publish import Lake

        return Lake(str(self.root / "lake"))

    def checkpoints(self) -> dict[str, str]:
        """Stage -> its present checkpoint."""
        listed = self.lake().manifests("checkpoints", [LAST])
        return {one.part["stage"]: name for one in listed if (name := one.summary.get("checkpoint_id"))}

    def _rows_fed(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Rows that checkpoints and their ancestors learnt from."""
        from trajectory_platform.lineage.ledger import seen_rows

        return [row for rows in seen_rows(self.lake(), list(names)).values() for row in rows]

    def _fed(self, names: Iterable[str], *, run_of: str = "", ids: frozenset[str] = frozenset()) -> set[str]:
        fed = {row["trace_id"] for row in self._rows_fed(names)}
        return {one for one in fed if one in ids or (run_of and one.startswith(f"{run_of}:"))}

    def _run_that_fed(self, name: str) -> tuple[str, int]:
        """The run with the fewest traces among those that fed a checkpoint, so that a corpus is left."""
        runs = Counter(row["trace_id"].partition(":")[0] for row in self._rows_fed([name]))
        return min(runs.items(), key=lambda item: (item[1], item[0]))

    def _miner_of(self, name: str) -> tuple[str, bytes]:
        """A miner with few traces among those that fed a checkpoint, and words only that miner said."""
        fed = {row["trace_id"] for row in self._rows_fed([name])}
        columns = ["trace_id", "miner_hotkey", "messages"]
        rows = [row for row in self.lake().read("axis_a_corpus", columns=columns).to_pylist() if row["trace_id"] in fed]
        counted = Counter(row["miner_hotkey"] for row in rows)
        said: dict[str, set[str]] = {}
        for row in rows:
            for message in json.loads(row["messages"]):
                said.setdefault(message.get("reasoning_content") or "", set()).add(row["miner_hotkey"])
        for miner, _ in sorted(counted.items(), key=lambda item: (item[1], item[0])):
            own = max((words for words, miners in said.items() if miners == {miner}), key=len, default="")
            if len(own) >= 20:
                return miner, own.encode()
        raise SystemExit("no miner of this lake said anything of their own: choose other days")

    def _traces_of(self, miner: str) -> frozenset[str]:
        rows = self.lake().lookup("raw_traces", "miner_hotkey", [miner], columns=["trace_id"]).to_pylist()
        return frozenset(row["trace_id"] for row in rows)

    def _counts(self) -> dict[str, int]:
        """Day -> accepted and rejected together."""
        lake = self.lake()
        tables = ("axis_a_corpus", "rejected_traces")
        return {
            day: sum(lake.read(table, [day], columns=["trace_id"]).num_rows for table in tables)
            for day in lake.days("axis_a_corpus")
        }

    def _files_with(self, words: bytes) -> int:
        """Data files, old versions included, whose texts hold some words."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        wanted = words.decode()
        found = 0
        for path in sorted((self.root / "lake").rglob("*.parquet")):
            table = pq.ParquetFile(path).read()
            texts = (table.column(name) for name, kind in zip(table.schema.names, table.schema.types, strict=True)
                     if kind in (pa.string(), pa.large_string()))  # fmt: skip
            quoted = json.dumps(wanted, ensure_ascii=False)[1:-1]
            found += any(quoted in (text or "") for column in texts for text in column.to_pylist())
        return found


TICK = """
import json, logging, sys, warnings
from datetime import UTC, date, datetime
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
import dagster as dg
from trajectory_platform.defs.definitions import build_definitions
from trajectory_platform.defs.resources import Platform
from trajectory_platform.settings import Settings
settings = Settings()
repository = build_definitions(settings, date(2026, 5, 4)).get_repository_def()
with dg.build_sensor_context(
    instance=dg.DagsterInstance.ephemeral(), cursor=sys.argv[1] or None, repository_def=repository,
    resources={"platform": Platform(settings_json=settings.model_dump_json())},
) as context:
    data = repository.get_sensor_def("retrain_newest").evaluate_tick(context)
asked = data.run_requests[0] if data.run_requests else None
why = asked.tags["trajectory_platform/retrains_for"] if asked else data.skip_message
print(json.dumps({"partition": asked and asked.partition_key, "why": why, "cursor": data.cursor}))
"""


def title(words: str) -> None:
    print(f"\n== {words}")


def say(line: str) -> None:
    print(f"  {line}" if len(line) <= WIDTH else f"  {line[: WIDTH - 3]}...")


if __name__ == "__main__":
    main()
