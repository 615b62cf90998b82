"""``arena serve`` and ``fetch`` as a user runs them: one speaks the API, the other reads it; wrong use is one line."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("oro_sdk", reason="the local server answers with oro-sdk's models")

from trajectory_platform.arena.simulate import simulate
from trajectory_platform.cli import main

DAY = "2026-05-02"
CLI = [sys.executable, "-m", "trajectory_platform.cli"]


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli_history")
    simulate(root, days=1, traces_per_day=40, first_day=date(2026, 5, 2), seed=3)
    return root


@pytest.fixture(scope="module")
def words_of_server(days: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """A served history: what the command prints, the address first."""
    script = tmp_path_factory.mktemp("script") / "faults.yaml"
    script.write_text("rules:\n  - {fault: server_error, path: suites, status: 503}\n")
    words = ["--days", str(days), "--port", "0", "--faults", str(script), "--at", "2026-05-20"]
    served = subprocess.Popen(
        [*CLI, "arena", "serve", *words, "--requests-per-minute", "6000"], stdout=subprocess.PIPE, text=True
    )
    assert served.stdout is not None
    yield [served.stdout.readline().strip() for _ in range(9)]
    served.send_signal(signal.SIGTERM)
    served.communicate(timeout=20)


@pytest.fixture(scope="module")
def address(words_of_server: list[str]) -> str:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", words_of_server[0])
    return words_of_server[0]


def test_the_lines_to_paste_are_the_settings_of_the_server(words_of_server: list[str]) -> None:
    exports = [line for line in words_of_server if line.startswith("export ")]
    show = "from trajectory_platform.settings import Settings as S; print(S().model_dump_json())"
    script = "\n".join([*exports, f"exec {shlex.quote(sys.executable)} -c {shlex.quote(show)}"])
    found = json.loads(subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout)
    assert (found["source"], found["api_base"]) == ("oro_api", words_of_server[0])
    assert found["api_artifact_hosts"] == ["127.0.0.1"] and len(exports) == 5
    assert found["first_day"] == DAY, "or fetch --open walks the empty days before it"
    assert found["api_requests_per_minute"] == 5400, "below the limit of the server"


def variables(address: str, root: Path) -> dict[str, str]:
    given = {
        "SOURCE": "oro_api",
        "API_BASE": address,
        "API_STATE": str(root / "state"),
        "API_ARTIFACT_HOSTS": '["127.0.0.1"]',
        "API_REQUESTS_PER_MINUTE": "6000",
        "DATA_ROOT": str(root / "raw"),
        "LAKE_URI": str(root / "lake"),
        "FIRST_DAY": DAY,
    }
    return {**os.environ, **{f"TRAJECTORY_PLATFORM_{name}": value for name, value in given.items()}}


def test_a_served_day_is_fetched_and_fetching_it_again_asks_for_no_artifact(address: str, tmp_path: Path) -> None:
    def fetched(*words: str) -> dict[str, Any]:
        done = subprocess.run(
            [*CLI, "fetch", *words, "--json"],
            env=variables(address, tmp_path),
            capture_output=True,
            text=True,
            check=True,
        )
        (fact,) = [json.loads(line) for line in done.stdout.splitlines()]
        assert fact["day"] == DAY and fact["state"] == "final"
        return dict(fact["summary"])

    first = fetched("--day", DAY, "--at", "2026-05-20T04:00:00Z")
    assert first["reconciliation"] == "match" and first["fetched_now"] == first["fetched"] > 0
    second = fetched("--from", DAY, "--to", DAY, "--at", "2026-05-20T04:10:00Z")
    assert second["fetched_now"] == 0 and second["fetched"] == first["fetched"]


def test_links_that_were_not_followed_and_who_is_asked_are_said(address: str, tmp_path: Path) -> None:
    given = variables(address, tmp_path)
    given |= {"TRAJECTORY_PLATFORM_SOURCE": "files", "TRAJECTORY_PLATFORM_API_ARTIFACT_HOSTS": '["elsewhere.example"]'}
    words = ["fetch", "--day", DAY, "--at", "2026-05-20T04:00:00Z"]
    done = subprocess.run([*CLI, *words], env=given, capture_output=True, text=True, check=True)
    assert "source is 'files'" in done.stderr and address in done.stderr
    assert re.search(rf"^{DAY}  warning +\d+ links lead to hosts that api_artifact_hosts", done.stdout, re.MULTILINE)
    given["TRAJECTORY_PLATFORM_API_ARTIFACT_HOSTS"] = '["127.0.0.1"]'
    again = subprocess.run([*CLI, *words], env=given, capture_output=True, text=True, check=True)
    assert "api_artifact_hosts" not in again.stdout and f"{DAY}  final: " in again.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fetch"], "--open"),
        (["fetch", "--day", DAY, "--open"], "one of the three"),
        (["fetch", "--day", "May 2"], "YYYY-MM-DD"),
        (["fetch", "--day", DAY, "--at", "noon"], "is not a time"),
        (["arena", "serve", "--days", "nowhere"], "arena simulate"),
        (["arena", "serve", "--days", "nowhere", "--at", "noon"], "is not a time"),
        (["arena", "serve", "--days", "nowhere", "--faults", "nothing.yaml"], "nothing.yaml"),
    ],
    ids=["nothing", "two", "day", "at", "no_days", "no_time", "no_script"],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in variables("http://127.0.0.1:9", tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["trajectory-platform", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert told in error and error.count("\n") == 1
