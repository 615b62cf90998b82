"""``traces page`` and ``traces mlflow`` on the command line: what they print, refuse and leave behind."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.arena.simulate import simulate
from trajectory_platform.commands.traces import _logged
from trajectory_platform.lake import tables
from trajectory_platform.lake.publish import Lake
from trajectory_platform.settings import Settings
from trajectory_platform.stages import daily
from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.cli.test_commands import Answer
from trajectory_platform_tests.lake.sealed_lake import MARK, TRACES, sealed_lake

DAY = "2026-05-02"


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("arena")
    simulate(root / "days", days=1, traces_per_day=60, seed=11, first_day=date(2026, 5, 2))
    ctx = StageContext(Settings(data_root=str(root / "days"), lake_uri=str(root / "lake")))
    for stage in (daily.raw_traces, daily.problem_suites, daily.trajectories, daily.judged_traces, daily.axis_a_corpus):
        stage(ctx, DAY)
    return root


@pytest.fixture
def run(arena: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    from trajectory_platform.cli import main

    monkeypatch.setenv("TRAJECTORY_PLATFORM_DATA_ROOT", str(arena / "days"))
    monkeypatch.setenv("TRAJECTORY_PLATFORM_LAKE_URI", str(arena / "lake"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def call(*words: str, **variables: str) -> Answer:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.argv", ["trajectory-platform", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        return Answer(int(stop.value.code or 0), printed.out, printed.err)

    return call


def some(arena: Path, count: int) -> list[str]:
    rows = Lake(str(arena / "lake")).read(tables.TRAJECTORIES, [DAY], columns=["trace_id"])
    names: list[str] = rows["trace_id"].to_pylist()[:count]
    return names


def test_a_page_is_written_and_named(run: Any, arena: Path, tmp_path: Path) -> None:
    one, other = some(arena, 2)
    answer = run("traces", "page", one, "--out", str(tmp_path / "one.html"))
    assert answer == (0, f"{tmp_path / 'one.html'}\n", "")
    assert one in (tmp_path / "one.html").read_text("utf-8")
    answer = run("traces", "page", one, other, "--out", str(tmp_path / "two.html"), "--json")
    assert json.loads(answer.out)["traces"] == [one, other]
    assert "Side by side" in (tmp_path / "two.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["page", "r1:none", "--out", "x.html"], "no trace 'r1:none'"),
        (["page", "--out", "x.html"], "name traces, or a problem"),
        (["page", "--problem", "none", "--out", "x.html"], "no trace of a problem 'none'"),
        (["mlflow", "--day", DAY], "MLFLOW_TRACKING_URI is not set"),
    ],
    ids=["unknown", "nothing", "no-such-problem", "no-store"],
)
def test_a_wrong_question_is_one_line(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run("traces", *words)
    assert answer.code == 2 and said in answer.err and answer.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--day", DAY, "--only", "brilliant"], "is 'brilliant'"),
        (["--only", "accepted", "--checkpoint", "sft-1"], "--only chooses among the traces of a day"),
        (["r1:none"], "no trace 'r1:none'"),
        ([], "name traces, or one of --day"),
        (["--checkpoint", "sft-1"], "no trace of 'sft-1'"),
    ],
    ids=["no-such-kind", "only-without-day", "unknown", "nothing", "no-such-checkpoint"],
)
def test_a_wrong_question_opens_no_store(run: Any, tmp_path: Path, words: list[str], said: str) -> None:
    answer = run("traces", "mlflow", *words, MLFLOW_TRACKING_URI=f"sqlite:///{tmp_path}/mlflow.db")
    assert answer.code == 2 and said in answer.err
    assert not (tmp_path / "mlflow.db").exists()


def test_a_day_goes_into_mlflow_once(run: Any, tmp_path: Path) -> None:
    words = ("traces", "mlflow", "--day", DAY, "--only", "accepted", "--limit", "3", "--json")
    store = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    first, again = (json.loads(run(*words, **store).out) for _ in range(2))
    assert (first["written"], first["known"]) == (3, 0) and (again["written"], again["known"]) == (0, 3)
    assert first["page"].startswith("#/experiments/") and first["address"] is None


def test_where_logged_traces_are_to_be_seen_is_a_whole_address(run: Any, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    said = run("traces", "mlflow", "--day", DAY, "--only", "accepted", "--limit", "2", MLFLOW_TRACKING_URI=uri).out
    assert said.startswith("2 traces written, 0 were there already")
    assert f"make mlflow-ui MLFLOW_TRACKING_URI={uri}" in said and "http://127.0.0.1:5000/#/experiments/" in said


def test_the_address_of_a_server_is_told_without_its_password() -> None:
    done = dict.fromkeys(("written", "known", "replaced", "sealed", "retracted", "removed", "chosen_from"), 1)
    said = list(_logged(done | {"page": "#/experiments/1/traces"}, "https://me:secret@flow.example:8443/base/"))
    assert said[-1] == "see    https://flow.example:8443/base/#/experiments/1/traces"
    assert "secret" not in " ".join(said) and "sealed" in said[1]


def test_sealed_traces_do_not_leave_without_a_reason(run: Any, tmp_path: Path) -> None:
    sealed_lake(tmp_path / "lake")
    store = {
        "TRAJECTORY_PLATFORM_LAKE_URI": str(tmp_path / "lake"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }
    answer = run("traces", "page", TRACES["sealed"], "--out", str(tmp_path / "x.html"), **store)
    assert answer.code == 2 and "--sealed REASON" in answer.err and not (tmp_path / "x.html").exists()
    answer = run("traces", "mlflow", TRACES["sealed"], TRACES["race"], "--json", **store)
    assert json.loads(answer.out) | {"page": "", "address": None} == {
        **dict.fromkeys(("written", "known", "replaced", "removed", "retracted"), 0),
        **{"sealed": 2, "chosen_from": 2, "page": "", "address": None},
    }
    assert MARK not in answer.out + answer.err
    assert not (tmp_path / "lake" / "_sealed_reads.jsonl").exists()
