"""Small simulated days that a test may change, and the stages run over them."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from trajectory_platform.arena.simulate import simulate
from trajectory_platform.evaluation.child import run_child
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages import splits
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.plain import ingest_days

FIRST = date(2026, 5, 2)
DAYS = ["2026-05-02", "2026-05-03", "2026-05-04", "2026-05-05"]
Row = dict[str, Any]


def here(command: Sequence[str], _env: Mapping[str, str]) -> None:
    """A runner that does a child's work in this process; the child's module is ``python -m``'s."""
    assert run_child(command[3], importlib.import_module(command[2]).work) == 0


def make_days(root: Path, *, days: int = 4, traces: int = 30, seed: int = 1) -> Path:
    """Simulated days below ``root``."""
    simulate(root, days=days, traces_per_day=traces, seed=seed, first_day=FIRST)
    return root


def place(days: Path, root: Path, **changes: Any) -> Settings:
    """A copy of the days that may be changed, and settings with a lake of their own."""
    shutil.copytree(days, root / "days")
    return settings_for(root / "days", root / "lake", **changes)


def settings_for(days: Path, lake: Path, **changes: Any) -> Settings:
    places = {"checkpoint_root": str(lake.parent / "c"), "index_root": str(lake.parent / "i")}
    return Settings(data_root=str(days), lake_uri=str(lake), first_day=FIRST, **(places | changes))


def ingest(settings: Settings, days: list[str] = DAYS) -> dict[tuple[str, str], str]:
    """(day, stage) -> ``published``, ``current`` or what failed."""
    facts = ingest_days(settings, None, days[0], days[-1])
    return {
        (fact["day"], fact["stage"]): fact["text"] if fact["state"] == "failed" else fact["state"] for fact in facts
    }


def split(settings: Settings, day: str) -> Row:
    """Clusters and splits as of a day; the summary of the splits."""
    ctx = StageContext(settings)
    splits.leak_clusters(ctx, day)
    return splits.leak_guarded_splits(ctx, day).summary


def raw_rows(settings: Settings, days: list[str] = DAYS) -> list[Row]:
    columns = ["trace_id", "day", "folder_day", "state", "state_reason"]
    rows: list[Row] = StageContext(settings).lake.read(tables.RAW_TRACES, days, columns=columns).to_pylist()
    return rows


def rewrite(path: Path, change: Callable[[Row], Row]) -> None:
    """Change every JSON line of a file."""
    lines = [json.dumps(change(json.loads(line))) for line in path.read_text("utf-8").splitlines()]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def deliver_again(
    settings: Settings, source: str, target: str, *, change: Callable[[bytes], bytes] | None = None
) -> int:
    """List the runs of one day folder in another too, judged on that day; returns the number of pairs."""
    root = Path(settings.data_root)
    entries = [json.loads(line) for line in (root / source / "problems.jsonl").read_text("utf-8").splitlines()]
    for entry in entries:
        for result in entry["validator_results"]:
            result["updated_at"] = f"{target}T12:00:00Z"
    for name, lines in (
        ("problems.jsonl", [json.dumps(entry) for entry in entries]),
        ("runs.jsonl", (root / source / "runs.jsonl").read_text("utf-8").splitlines()),
    ):
        with (root / target / name).open("a", encoding="utf-8") as stream:
            stream.write("".join(line + "\n" for line in lines))
    shutil.copytree(root / source / "artifacts", root / target / "artifacts", dirs_exist_ok=True)
    for path in (root / source / "artifacts").rglob("*.gz") if change else ():
        copied = root / target / "artifacts" / path.relative_to(root / source / "artifacts")
        copied.write_bytes(change(path.read_bytes()))  # type: ignore[misc]
    return sum(len(entry["validator_results"]) for entry in entries)
