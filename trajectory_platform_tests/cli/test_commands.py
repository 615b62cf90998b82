"""The command line keeps its contract: stable rows, pure JSON with --json, exit codes, one-line errors."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trajectory_platform.arena.simulate import simulate
from trajectory_platform.cli import main

DAY = "2026-05-02"


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("arena")
    simulate(root / "days", days=2, traces_per_day=80, seed=11, first_day=date(2026, 5, 2))
    return root


@pytest.fixture
def run(arena: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("TRAJECTORY_PLATFORM_DATA_ROOT", str(arena / "days"))
    monkeypatch.setenv("TRAJECTORY_PLATFORM_LAKE_URI", str(arena / "lake"))
    monkeypatch.setenv("TRAJECTORY_PLATFORM_CHECKPOINT_ROOT", str(arena / "checkpoints"))

    def call(*words: str) -> Answer:
        monkeypatch.setattr("sys.argv", ["trajectory-platform", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        return Answer(int(stop.value.code or 0), printed.out, printed.err)

    return call


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_normalise_names_every_pair_of_the_folder_once(run: Any, arena: Path, tmp_path: Path) -> None:
    answer = run("normalise", "--in", str(arena / "days" / DAY), "--out", str(tmp_path / "n.jsonl"), "--json")
    assert answer.code == 0 and json.loads(answer.out)["rows"] == 80
    rows = _rows(tmp_path / "n.jsonl")
    assert len({row["trace_id"] for row in rows}) == 80
    for row in rows:
        assert {"trace_id", "day", "content_hash", "messages", "tools", "axis", "repairs", "source"} <= set(row)
        assert row["axis"]["label"] in ("A", "B", "mixed", "unknown")
        assert row["readable"] == bool(row["messages"]) == bool(row["content_hash"])


def test_axis_labels_agree_with_the_arena_s_own_truth(run: Any, arena: Path, tmp_path: Path) -> None:
    run("normalise", "--in", str(arena / "days" / DAY), "--out", str(tmp_path / "n.jsonl"))
    got = {row["trace_id"]: row["axis"]["label"] for row in _rows(tmp_path / "n.jsonl")}
    truth = {
        f"{row['eval_run_id']}:{row['problem_id']}": row["axis"]
        for row in _rows(arena / "days" / "truth.jsonl")
        if row["day"] == DAY
    }
    wrong = {name: (label, got.get(name)) for name, label in truth.items() if got.get(name) != label}
    assert len(truth) > 60 and len(wrong) <= 0.01 * len(truth), wrong


def test_curate_conserves_and_counts(run: Any, arena: Path, tmp_path: Path) -> None:
    answer = run("curate", "--in", str(arena / "days" / DAY), "--out", str(tmp_path), "--json")
    summary = json.loads(answer.out)
    accepted, rejected = _rows(tmp_path / "accepted.jsonl"), _rows(tmp_path / "rejected.jsonl")
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert (summary["input"], summary["accepted"], summary["rejected"]) == (80, len(accepted), len(rejected))
    assert summary["input"] == summary["accepted"] + summary["rejected"]
    assert summary["by_reason"] == dict(sorted(Counter(row["reason"] for row in rejected).items()))
    assert all(row["uses"] and row["axis"]["label"] == "A" for row in accepted)
    assert all(row["stage"] and row["reason"] for row in rejected)


def test_score_and_judge_rows(run: Any, arena: Path, tmp_path: Path) -> None:
    assert run("score", "--in", str(arena / "days" / DAY), "--out", str(tmp_path / "s.jsonl")).code == 0
    assert {row["outcome"] for row in _rows(tmp_path / "s.jsonl")} <= {
        "success",
        "failure",
        "unscorable",
        "no_trace",
        "not_final",
    }
    for row in _rows(tmp_path / "s.jsonl"):
        known = {"success": True, "failure": False, "no_trace": False, "not_final": None}
        if row["outcome"] in known:
            assert row["success"] is known[row["outcome"]]
        else:  # the reference scorer raises: a failure; a hidden reward or a damaged file: nobody knows
            assert row["success"] is (False if row["reason"].startswith("scorer_raised") else None)
    assert run("judge", "--in", str(arena / "days" / DAY), "--out", str(tmp_path / "j.jsonl")).code == 0
    for row in _rows(tmp_path / "j.jsonl"):
        assert row["reasoning_quality"] is None or 0 <= row["reasoning_quality"] <= 1
        assert row["judge_kind"] in ("validator", "rules")


def test_ingest_then_status_sql_show_and_report(run: Any, arena: Path, tmp_path: Path) -> None:
    first = run("ingest")
    assert first.code == 0 and "failed" not in first.out
    again = run("ingest", "--json")
    states = {json.loads(line)["state"] for line in again.out.splitlines()}
    assert states == {"current"}
    status = json.loads(run("status", "--json").out)
    assert [day["state"] for day in status["days"]] == ["complete", "complete"]
    counted = json.loads(run("sql", "select count(*) as n from raw_traces", "--json").out)
    assert counted["n"] > 100
    trace = json.loads(run("sql", "select trace_id from axis_a_corpus order by 1 limit 1", "--json").out)["trace_id"]
    shown = run("traces", "show", trace)
    assert shown.code == 0 and trace in shown.out and "accepted for" in shown.out
    lineage = run("lineage", "trace", trace)
    assert lineage.code == 0 and "fed no checkpoint" in lineage.out
    report = run("report", "--out", str(tmp_path / "r.html"))
    assert report.code == 0 and "<html" in (tmp_path / "r.html").read_text("utf-8")[:200]
    assert run("lake", "verify").code == 0
    assert run("lake", "vacuum", "--json").code == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("normalise", "--in", "nowhere/2026-05-02", "--out", "x"), 2, "no such folder"),
        (("normalise", "--in", "nowhere/today", "--out", "x"), 2, "YYYY-MM-DD"),
        (("ingest", "--day", "yesterday"), 2, "YYYY-MM-DD"),
        (("train", "kto"), 2, "kto"),
        (("lineage", "trace", "nobody:nothing"), 2, "nobody:nothing"),
        (("lineage", "checkpoint", "sft-x"), 2, "sft-x"),
        (("traces", "show", "[red]x"), 2, "no trace"),
        (("sql", "copy raw_traces to '/tmp/x'"), 2, "SELECT"),
        (("sql", "select * from read_csv('/etc/passwd')"), 2, ""),
        (("ingest", "--from", "2026-05-03", "--to", "2026-05-01"), 2, "empty range"),
        (("judge", "--in", "{days}/2026-05-02", "--out", "{tmp}/x", "--judge", "gpt-9"), 2, "gpt-9"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    run: Any, arena: Path, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    answer = run(*(word.format(days=arena / "days", tmp=tmp_path) for word in words))
    assert answer.code == code
    assert answer.err.startswith("error: ") and answer.err.count("\n") == 1
    assert said in answer.err


def test_a_wrong_setting_names_its_variable(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAJECTORY_PLATFORM_REASONING_GATE", "7")
    answer = run("status")
    assert answer.code == 2 and "TRAJECTORY_PLATFORM_REASONING_GATE" in answer.err


def test_split_of_plain_suite_files(run: Any, tmp_path: Path) -> None:
    problems = [
        {"query": "a red pot", "category": "Product", "reward": {"product_id": "1"}},
        {"query": "crimson pot, cheap", "category": "Product", "reward": {"product_id": "1"}},
        {"query": "a blue lamp", "category": "Product", "reward": {"product_id": "2"}},
    ]
    (tmp_path / "suite.json").write_text(json.dumps(problems))
    answer = run("split", "--suites", str(tmp_path / "suite.json"), "--out", str(tmp_path / "o.jsonl"), "--json")
    assert answer.code == 0
    rows = _rows(tmp_path / "o.jsonl")
    assert [row["problem_id"] for row in rows] == ["suite:0", "suite:1", "suite:2"]
    assert rows[0]["cluster_id"] == rows[1]["cluster_id"] != rows[2]["cluster_id"]
    assert rows[0]["pool"] == rows[1]["pool"]
