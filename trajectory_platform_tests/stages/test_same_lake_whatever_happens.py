"""The same days give the same lake: in any process, in any order of days, side by side, and after kill -9."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trajectory_platform.lake.publish import Lake
from trajectory_platform.lake.tables import TABLES
from trajectory_platform.lake.verification import verify
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, settings_for, split

TWO = DAYS[:2]
EVERYTHING = """
import sys
from trajectory_platform.settings import Settings
from trajectory_platform.stages import plain, splits
from trajectory_platform.stages.context import StageContext
ctx, days = StageContext(Settings()), sys.argv[1].split(",")
for _, stage in plain.DAILY_STAGES:
    for day in days:
        stage(ctx, day)
for day in days:
    splits.leak_clusters(ctx, day)
    splits.leak_guarded_splits(ctx, day)
"""
INGEST = "import sys; from trajectory_platform.cli import main; sys.argv[:1] = ['tp', 'ingest']; main()"


def _start(script: str, *words: str, days: Path, lake: Path, **env: str) -> subprocess.Popen[str]:
    places = {"TRAJECTORY_PLATFORM_DATA_ROOT": str(days), "TRAJECTORY_PLATFORM_LAKE_URI": str(lake)}
    return subprocess.Popen(
        [sys.executable, "-c", script, *words],
        env={**os.environ, **places, **env},
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _contents(lake: Path) -> dict[tuple[str, str], tuple[str, str]]:
    found = {}
    for name in TABLES:
        for one in Lake(str(lake)).manifests(name):
            found[(name, one.day)] = (one.identity, one.content_digest)
    return found


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_days(tmp_path_factory.mktemp("arena") / "days", days=2)


@pytest.fixture(scope="module")
def undisturbed(days: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[str, str]]:
    lake = tmp_path_factory.mktemp("undisturbed") / "lake"
    settings = settings_for(days, lake)
    ingest(settings, TWO)
    for day in TWO:
        split(settings, day)
    return _contents(lake)


def test_hash_seed_order_of_days_batches_and_workers_change_nothing(
    days: Path, tmp_path: Path, undisturbed: dict[tuple[str, str], tuple[str, str]]
) -> None:
    more = {"TRAJECTORY_PLATFORM_BATCH_ROWS": "7", "TRAJECTORY_PLATFORM_WORKERS": "2", "PYTHONHASHSEED": "77"}
    run = _start(EVERYTHING, ",".join(reversed(TWO)), days=days, lake=tmp_path / "lake", **more)
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 0, said
    assert _contents(tmp_path / "lake") == undisturbed


@pytest.mark.slow
def test_kill_9_at_any_time_then_a_rerun(
    days: Path, tmp_path: Path, undisturbed: dict[tuple[str, str], tuple[str, str]]
) -> None:
    chance = random.Random(5)
    for _ in range(6):
        run = _start(INGEST, days=days, lake=tmp_path / "lake")
        time.sleep(chance.uniform(0.4, 3.0))
        run.kill()
        run.communicate()
    settings = settings_for(days, tmp_path / "lake")
    assert set(ingest(settings, TWO).values()) <= {"published", "current"}
    for day in TWO:
        split(settings, day)
    assert _contents(tmp_path / "lake") == undisturbed
    lake = Lake(str(tmp_path / "lake"))
    assert verify(lake) == []
    lake.vacuum()
    assert lake.vacuum(dry_run=True).removed == [] and verify(lake) == []


@pytest.mark.slow
def test_the_same_and_other_days_at_once(
    days: Path, tmp_path: Path, undisturbed: dict[tuple[str, str], tuple[str, str]]
) -> None:
    runs = [_start(INGEST, "--day", day, days=days, lake=tmp_path / "lake") for day in (TWO[0], TWO[0], TWO[1])]
    said = [run.communicate(timeout=120)[0] for run in runs]
    assert all("Traceback" not in text for text in said), said
    settings = settings_for(days, tmp_path / "lake")
    ingest(settings, TWO)
    for day in TWO:
        split(settings, day)
    assert _contents(tmp_path / "lake") == undisturbed and verify(Lake(str(tmp_path / "lake"))) == []
