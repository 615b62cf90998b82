"""What the commands say to people: wrong days are refused, wide results stay readable, empty is said in words."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from trajectory_platform.cli import main
from trajectory_platform.output import counts_text
from trajectory_platform.reports.data import ReportData
from trajectory_platform.reports.html import build_report
from trajectory_platform.settings import Settings
from trajectory_platform.stages.closing import funnel_steps
from trajectory_platform.stages.doctor import examine
from trajectory_platform.stages.text import render_table


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--day", "foo"),
        ("train", "sft", "--as-of", "2026-5-2"),
        ("ingest", "--day", "2026-05-02", "--to", "2026-05-03"),
    ],
)
def test_a_wrong_day_is_wrong_use(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["trajectory-platform", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_verify_of_an_empty_lake_promises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["trajectory-platform", "lake", "verify"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.startswith("nothing is published in ")


def test_a_wide_result_is_shown_row_by_row() -> None:
    wide = pa.table({f"column_{number}": [f"\x1b{number}"] for number in range(13)})
    lines = render_table(wide).splitlines()
    assert lines[0] == "row 1" and lines[-1] == "(1 rows)"
    assert lines[13].split() == ["column_12", "\\x1b12"]


def test_empty_counts_are_words() -> None:
    assert counts_text({"faults": {}, "removed": []}).split() == ["faults", "none", "removed", "none"]


def test_doctor_names_a_misspelt_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAJECTORY_PLATFORM_REASONING_GAT", "0.9")
    told = [finding["text"] for finding in examine(Settings()) if finding["area"] == "settings"]
    assert "no such setting: TRAJECTORY_PLATFORM_REASONING_GAT" in told


def test_uses_overlap_and_lose_nothing_to_one_another() -> None:
    summary = {"input": 9, "by_stage": {}, "by_use": {"kto_desirable": 4, "kto_undesirable": 3, "sft": 4}}
    steps = funnel_steps(summary)
    assert [name for name, _ in steps][-3:] == ["use: sft", "use: kto_desirable", "use: kto_undesirable"]
    page = build_report(ReportData(title="t", funnels={"2026-05-02": steps}))
    row = page[page.index(">use: kto_undesirable</td>") :].split("</tr>")[0]
    assert ">3</td>" in row and "–" in row
