"""kill -9 of a sensor evaluation at each of Dagster's points between request and cursor: no run twice, none lost."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from trajectory_platform_tests.defs.daemons import REPOSITORY, Home, home_of
from trajectory_platform_tests.stages.arena_days import make_days, settings_for

POINTS = ("TICK_CREATED", "TICK_HELD", "RUN_CREATED", "RUN_LAUNCHED")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    days = make_days(tmp_path / "days", days=1, traces=6)
    for path in days.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    settings = settings_for(days, tmp_path / "lake", unattended=True)
    return home_of(tmp_path / "home", settings, (REPOSITORY / "dagster.yaml").read_text("utf-8"))


def _tick(home: Home, minutes: int, *crash: str) -> int:
    script = "trajectory_platform_tests.defs.one_tick"
    code, printed = home.run("-W", "ignore", "-m", script, str(home.folder), str(minutes), *crash)
    assert code in (0, -signal.SIGKILL), printed[-3000:]
    return code


def _keys(home: Home) -> Counter[str]:
    with home.instance() as instance:
        return Counter(run.tags["dagster/run_key"] for run in instance.get_runs())


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=[] if point == "RUN_LAUNCHED" else pytest.mark.slow) for point in POINTS]
)
def test_a_killed_evaluation_neither_doubles_nor_loses_a_run(home: Home, point: str) -> None:
    assert _tick(home, 0, "new_raw_days", point) == -signal.SIGKILL
    begun = _keys(home)
    assert sum(begun.values()) == (1 if point.startswith("RUN") else 0), "killed at the first of two requests"
    assert _tick(home, 10) == 0
    found = _keys(home)
    assert sorted(key.rsplit(":", 2)[0] for key in found) == ["raw:2026-05-02", "raw:2026-05-03"]
    assert set(found.values()) == {1} and set(begun) <= set(found)
