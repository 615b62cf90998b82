"""The backfill command over a real webserver and daemon: complete after everything was killed, and nothing twice."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from trajectory_platform.stages.backfills import chosen_days
from trajectory_platform_tests.defs.killed_backfill import run
from trajectory_platform_tests.stages.arena_days import DAYS, make_days, settings_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_killed_backfill_is_completed_by_the_same_command(tmp_path: Path) -> None:
    settings = settings_for(make_days(tmp_path / "days", traces=8), tmp_path / "lake")
    facts = run(tmp_path / "home", settings, DAYS)
    assert facts["code"] == 0 and facts["incomplete"] == {}
    assert sorted(facts["per_day"]) == DAYS and facts["duplicates"] == 0
    assert facts["killed_after"] < len(DAYS) and facts["peak_memory_mb"] > 50
    again = chosen_days(settings, DAYS[0], DAYS[-1], datetime.now(UTC), again=False)
    assert again.wanted == [] and again.current == DAYS
