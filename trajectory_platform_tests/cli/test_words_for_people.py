"""What the commands say to people: wrong days are refused, wide results stay readable, empty is said in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
from trajectory_platform_tests.sources.oro_fake import Fault, World, serving


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


def findings(**values: Any) -> dict[str, dict[str, Any]]:
    return {finding["area"]: finding for finding in examine(Settings(**values))}


def test_doctor_says_where_a_missing_catalogue_belongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = Path("days/2026-05-02"), Path("days/2026-05-03")
    for day in (first, second):
        day.mkdir(parents=True)
    told = findings(data_root="days")["catalogue"]
    assert told["level"] == "note" and "no_catalogue" in told["text"]
    assert "days/catalogue/products.jsonl" in told["todo"]
    (second / "catalogue").mkdir()
    (second / "catalogue" / "products.jsonl").touch()
    told = findings(data_root="days")["catalogue"]
    assert told["level"] == "note" and "2026-05-02" in told["text"]
    Path("days/catalogue").mkdir()
    Path("days/catalogue/products.jsonl").touch()
    assert findings(data_root="days")["catalogue"]["level"] == "ok"


def test_doctor_asks_the_api_where_days_come_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("oro_sdk", reason="the API is asked through oro-sdk")
    monkeypatch.chdir(tmp_path)
    assert "api" not in findings()
    with serving(World()) as server:
        address = server.url
        told = findings(source="oro_api", api_base=address)["api"]
        assert told["level"] == "ok" and f"{address} answers" in told["text"]
        server.faults.append(Fault("suites", status=503, times=9))
        told = findings(source="oro_api", api_base=address)["api"]
        assert told["level"] == "error" and "503" in told["text"]
        assert len(server.requests) == 2, "asked once, not again and again"
    told = findings(source="oro_api", api_base=address)["api"]
    assert told["level"] == "error" and address in told["text"]
    assert "https" in findings(source="oro_api", api_base="http://example.org")["api"]["text"]
    assert list(tmp_path.iterdir()) == [], "it reads and never writes"


def test_doctor_says_that_the_pool_key_is_public_and_shows_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert findings()["pool key"]["level"] == "note"
    own = findings(pool_key="tulip")["pool key"]
    assert own["level"] == "ok" and "tulip" not in str(own)


def test_uses_overlap_and_lose_nothing_to_one_another() -> None:
    summary = {"input": 9, "by_stage": {}, "by_use": {"kto_desirable": 4, "kto_undesirable": 3, "sft": 4}}
    steps = funnel_steps(summary)
    assert [name for name, _ in steps][-3:] == ["use: sft", "use: kto_desirable", "use: kto_undesirable"]
    page = build_report(ReportData(title="t", funnels={"2026-05-02": steps}))
    row = page[page.index(">use: kto_undesirable</td>") :].split("</tr>")[0]
    assert ">3</td>" in row and "–" in row
