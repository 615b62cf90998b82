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


def test_ctrl_c_says_what_goes_on_and_where_to_cancel_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place(make_days(tmp_path / "made", days=2, traces=6), tmp_path)
    when: list[str] = ["query Open"]

    def ask(query: str, _: dict[str, Any]) -> dict[str, Any]:
        if query.startswith(when[0]):
            raise KeyboardInterrupt
        return {"backfillId": "b1"} if query.startswith("mutation") else {"results": []}

    monkeypatch.setattr(backfills, "graphql", lambda _: ask)
    assert _run(monkeypatch, "--to", DAYS[1]) == 130
    assert capsys.readouterr().err == "interrupted; no backfill of this command is in progress\n"
    when[:] = ["query Backfill"]
    assert _run(monkeypatch, "--to", DAYS[1], "--server", "http://dagster:3000/") == 130
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("backfill b1 goes on in Dagster without this command")
    assert said.rstrip().endswith("cancel at http://dagster:3000/runs/b/b1")


@pytest.mark.parametrize("command", ["fetch", "ingest"])
def test_ctrl_c_of_fetch_and_ingest_says_that_the_same_command_goes_on(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("trajectory_platform.stages.fetching.fetch_days", interrupted)
    monkeypatch.setattr("trajectory_platform.stages.plain.ingest_days", interrupted)
    monkeypatch.setenv("TRAJECTORY_PLATFORM_SOURCE", "oro_api")
    monkeypatch.setattr("sys.argv", ["trajectory-platform", command, "--day", DAYS[0]])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().err
    assert stop.value.code == 130
    assert said == f"{command} stopped: what is done is kept, and the same command goes on where it stopped\n"
