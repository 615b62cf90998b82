"""A published file whose bytes rot: it is found, made not current, and built anew with the same content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trajectory_platform.cli import app
from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, settings_for


def test_a_rotten_day_is_found_and_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_for(make_days(tmp_path / "days", days=2, traces=6), tmp_path / "lake")
    ingest(settings, DAYS[:2])
    lake, run = StageContext(settings).lake, CliRunner().invoke
    monkeypatch.setenv("TRAJECTORY_PLATFORM_LAKE_URI", lake.uri)
    assert run(app, ["lake", "verify"]).exit_code == 0
    before = lake.manifest("trajectories", DAYS[0])
    assert before is not None
    path = lake.root / "trajectories" / next(iter(before.files))
    data = path.read_bytes()
    path.write_bytes(data[:200] + bytes(byte ^ 0xFF for byte in data[200:264]) + data[264:])  # of the same size
    assert "published" not in ingest(settings, DAYS[:2]).values()  # a run looks at sizes only, and leaves it
    found = run(app, ["lake", "verify", "--json"])
    assert found.exit_code == 1 and "--invalidate" in found.stderr
    assert [(one["table"], one["day"]) for one in json.loads(found.stdout)["damaged"]] == [("trajectories", DAYS[0])]
    assert run(app, ["lake", "verify", "--invalidate"]).exit_code == 1
    done = ingest(settings, DAYS[:2])
    assert {key for key, state in done.items() if state == "published"} == {(DAYS[0], "trajectories")}
    assert run(app, ["lake", "verify"]).exit_code == 0
    after = lake.manifest("trajectories", DAYS[0])
    assert after is not None and after.content_digest == before.content_digest
