"""One rule for all commands: what was asked for is not there, so nothing was answered: exit code 2 and one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajectory_platform.cli import main

ASKED = [
    "report --out {out}",
    "report --day 2026-05-01 --out {out}",
    "report --checkpoint nobody --out {out}",
    "ingest",
    "train sft",
    "train sft --dry-run",
    "lineage checkpoint nobody",
    "lineage trace no:body",
    "lineage retract nobody",
    "export --format hf --out {out}",
    "import {out} --out {out}.jsonl",
    "release build --out {out}",
    "release verify {out}",
    "evaluate --policy script:search_and_check --out {out}",
    "judge-calibration",
    "leaks contamination",
    "leaks pools",
    "leaks benchmark nobody",
    "leaks explain a b",
    "lake verify",
    "lake verify --json",
    "traces show no:body",
]


@pytest.mark.parametrize("words", ASKED, ids=[words.partition(" --")[0].replace(" ", "_") for words in ASKED])
def test_nothing_there_is_wrong_use(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("lake_uri", "data_root", "checkpoint_root"):
        monkeypatch.setenv(f"TRAJECTORY_PLATFORM_{name.upper()}", str(tmp_path / name))
    out = str(tmp_path / "out")
    monkeypatch.setattr("sys.argv", ["trajectory-platform", *(word.format(out=out) for word in words.split())])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == ""
    assert said.err.startswith("error: ") and said.err.count("\n") == 1


@pytest.mark.parametrize("words", ["status", "lake purge", "lake vacuum"])
def test_asking_how_an_empty_lake_is_has_an_answer(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("lake_uri", "data_root", "checkpoint_root"):
        monkeypatch.setenv(f"TRAJECTORY_PLATFORM_{name.upper()}", str(tmp_path / name))
    monkeypatch.setattr("sys.argv", ["trajectory-platform", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None) and capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [("API_ARTIFACT_HOSTS", "[x", "commas"), ("HOLD_OUTS", "abc", "JSON"), ("BENCHMARKS", "{", "JSON")],
)
def test_a_list_that_cannot_be_read_is_one_line(
    name: str, value: str, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"TRAJECTORY_PLATFORM_{name}", value)
    monkeypatch.setattr("sys.argv", ["trajectory-platform", "status"])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1
    assert f"TRAJECTORY_PLATFORM_{name}" in said and word in said


@pytest.mark.parametrize("value", ["a.example.com, 127.0.0.1", '["a.example.com", "127.0.0.1"]'])
def test_a_list_of_words_may_be_written_with_commas(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from trajectory_platform.settings import Settings

    monkeypatch.setenv("TRAJECTORY_PLATFORM_API_ARTIFACT_HOSTS", value)
    assert Settings().api_artifact_hosts == ("a.example.com", "127.0.0.1")
