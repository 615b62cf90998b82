"""``backfill`` on the command line: one line for what is wrong, JSON and nothing else where it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.cli import main
from trajectory_platform.stages import backfills
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, place


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lake_uri", "data_root", "checkpoint_root", "index_root"):
        folder = {"lake_uri": "lake", "data_root": "days"}.get(name, name)
        monkeypatch.setenv(f"TRAJECTORY_PLATFORM_{name.upper()}", str(tmp_path / folder))
    monkeypatch.setenv("TRAJECTORY_PLATFORM_FIRST_DAY", DAYS[0])


def _run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["trajectory-platform", "backfill", *words])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_no_webserver_and_no_day_are_wrong_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backfills, "_TRIES", 1)
    make_days(tmp_path / "days", days=1, traces=6)
    assert _run(monkeypatch, "--server", "http://127.0.0.1:1") == 2
    assert _run(monkeypatch, "--from", "2100-01-01") == 2
    assert _run(monkeypatch, "--server", "ftp://x") == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 3 and "no Dagster webserver" in lines[0] and "is over" in lines[1]


def test_json_is_one_object_and_exit_1_names_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = place(make_days(tmp_path / "made", days=2, traces=6), tmp_path)
    launched: list[str] = []

    def ask(query: str, variables: dict[str, Any]) -> dict[str, Any]:
        if query.startswith("mutation"):
            launched.append(variables["params"]["title"])
            return {"backfillId": "b"}
        return {"results": []} if "results" in query else {"status": "COMPLETED_FAILED", "error": None}

    monkeypatch.setattr(backfills, "graphql", lambda _: ask)
    assert _run(monkeypatch, "--to", DAYS[1], "--json") == 1
    told = capsys.readouterr()
    assert sorted(json.loads(told.out)["incomplete"]) == DAYS[:2] and "launched 2 day(s)" in told.err
    ingest(settings, DAYS[:2])
    launched.clear()
    assert _run(monkeypatch, "--to", DAYS[1]) == 0 and launched == []
    assert "2 were current before" in capsys.readouterr().out
