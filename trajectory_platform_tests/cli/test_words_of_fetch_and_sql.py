"""`fetch`, `sql` and the README say what is so: nothing due, a busy day, rows left out, commands without --json."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from typer import Exit
from typer.main import get_command
from typer.testing import CliRunner

from trajectory_platform.cli import app
from trajectory_platform.output import report_days
from trajectory_platform.settings import Settings
from trajectory_platform.sources import oro_api
from trajectory_platform.sources.oro_api import OpenDay
from trajectory_platform.stages.fetching import nothing_due
from trajectory_platform_tests.lake.sealed_lake import sealed_lake


def test_the_readme_names_the_commands_without_json() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    (told,) = re.findall(r"`--json` \(everywhere but ([^)]*)\)", readme)

    def without(command: Any, words: tuple[str, ...] = ()) -> set[str]:
        inner = getattr(command, "commands", None)
        if inner is not None:
            return {name for word, one in inner.items() for name in without(one, (*words, word))}
        return set() if any("--json" in option.opts for option in command.params) else {" ".join(words)}

    assert set(re.findall(r"`([^`]+)`", " ".join(told.split()))) == without(get_command(app))


@pytest.mark.parametrize(("state", "code"), [("busy", 1), ("failed", 1), ("open", None), ("left out", None)])
def test_a_day_that_another_process_fetches_is_told_by_the_exit_code(state: str, code: int | None) -> None:
    fact = {"day": "2026-05-02", "stage": "fetched_day", "state": state, "summary": {}, "text": "why"}
    if code is None:
        report_days([fact], as_json=False)
        return
    with pytest.raises(Exit) as ended:
        report_days([fact], as_json=False)
    assert ended.value.exit_code == code


def test_where_nothing_is_due_the_next_look_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(api_state=str(tmp_path), data_root=str(tmp_path / "raw"), first_day=date(2026, 5, 2))
    now = datetime(2026, 5, 4, 12, tzinfo=UTC)
    due = OpenDay(date(2026, 5, 3), "open", datetime(2026, 5, 4, 15, tzinfo=UTC), "embargoed")
    for found, said in (([], "every day that is over is final"), ([due], "at 2026-05-03, from 2026-05-04 15:00 UTC")):
        monkeypatch.setattr(oro_api, "open_days", lambda *_, found=found, **__: found)
        assert said in nothing_due(settings, lambda: now)
        monkeypatch.setenv("TRAJECTORY_PLATFORM_API_STATE", str(tmp_path))
        told = CliRunner().invoke(app, ["fetch", "--open", "--at", "2026-05-04T12:00:00Z"])
        assert told.exit_code == 0 and said in told.stdout
        assert CliRunner().invoke(app, ["fetch", "--open", "--at", "2026-05-04T12:00:00Z", "--json"]).stdout == ""


def test_sql_says_what_it_left_out_only_where_something_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAJECTORY_PLATFORM_LAKE_URI", str(tmp_path / "lake"))
    query = ["sql", "select count(*) n from raw_traces"]
    assert CliRunner().invoke(app, query).stderr.startswith("nothing is left out")
    monkeypatch.setenv("TRAJECTORY_PLATFORM_LAKE_URI", str(tmp_path / "sealed"))
    sealed_lake(tmp_path / "sealed")
    assert "rows of sealed problems" in CliRunner().invoke(app, query).stderr
