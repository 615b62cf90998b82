"""Calibration from the lake and from a day folder, as facts and as text; and its figure and rows for the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.judging.calibration import calibrate
from trajectory_platform.judging.reasoning import RulesVerdict
from trajectory_platform.judging.verdicts import rules_verdict, validator_verdict
from trajectory_platform.lake import tables
from trajectory_platform.reports.calibration import COLUMNS, calibration_figure, calibration_rows
from trajectory_platform.settings import Settings
from trajectory_platform.stages.calibration import calibrate_folder, calibration_facts, calibration_text
from trajectory_platform.stages.context import StageContext
from trajectory_platform_tests.conftest import shared_folder
from trajectory_platform_tests.judging.dialogues import raw_row, table

DAYS = ("2026-05-02", "2026-05-03")
GRID = (0.1, 0.3, 0.5, 0.7, 0.9)


def day_rows(day: str) -> tuple[pa.Table, pa.Table]:
    """Forty traces of eight agents with a verdict of either kind, two of them without a value."""
    raws, verdicts = [], []
    for number in range(40):
        quality = GRID[number % 5]
        raw = raw_row(
            f"run{number}-{day}:p{number}", day=day, agent_version_id=f"agent-{number % 8}", reasoning_score=quality
        )
        told = RulesVerdict(None, None, "no_log", "") if number < 2 else RulesVerdict(quality, None, None, "")
        raws.append(raw)
        verdicts += [validator_verdict(raw), rules_verdict(raw, told)]
    return table(raws, tables.RAW_TRACES), table(verdicts, tables.VERDICTS)


@pytest.fixture
def ctx(tmp_path: Path) -> StageContext:
    """A lake with two judged days."""
    made = StageContext(Settings(lake_uri=str(tmp_path / "lake")))
    for day in DAYS:
        raw, verdicts = day_rows(day)
        for declared, rows in ((tables.RAW_TRACES, raw), (tables.VERDICTS, verdicts)):
            ordered = rows.sort_by([(name, "ascending") for name in declared.key])
            made.lake.publish(declared, day, ordered, identity=f"test-{day}", inputs={}, code_version="1", settings={})
    return made


def test_the_days_of_the_lake_are_added_up(ctx: StageContext) -> None:
    facts = calibration_facts(ctx)
    assert facts["days"] == list(DAYS) and facts["gate"] == ctx.settings.reasoning_gate
    (found,) = facts["comparisons"]
    assert (found["traces"], found["pairs"], found["clusters"]) == (80, 76, 8)
    assert found["nulls"]["judge"] == {"no_log": 4}
    assert found["agreement"]["exact"]["value"] == 1.0
    json.dumps(facts, allow_nan=False)


def test_a_range_of_days_is_kept_and_an_empty_one_refused(ctx: StageContext, tmp_path: Path) -> None:
    assert calibration_facts(ctx, DAYS[1], None)["days"] == [DAYS[1]]
    assert calibration_facts(ctx, None, DAYS[0])["comparisons"][0]["traces"] == 40
    with pytest.raises(Abort, match="no judged day between 2027"):
        calibration_facts(ctx, "2027-01-01", None)
    with pytest.raises(Abort, match="YYYY-MM-DD"):
        calibration_facts(ctx, "yesterday", None)
    with pytest.raises(Abort, match="no judged day at all"):
        calibration_facts(StageContext(Settings(lake_uri=str(tmp_path / "empty"))))


def test_the_text_says_the_reading_with_counts_beside_the_numbers(ctx: StageContext) -> None:
    text = calibration_facts(ctx)["text"]
    assert "against discrete scores: USE WITH CARE" in text  # 76 pairs are too few to trust
    assert "trust needs 100" in text and "no_log 4" in text and "kappa, quadratic: 1.000" in text
    assert "validator \\ judge" in text and "at the gate of 0.7" in text
    nothing = calibration_text({"days": ["2026-05-02"], "gate": 0.7, "comparisons": []})
    assert "No trace has a verdict" in nothing


def hostile() -> list[dict[str, Any]]:
    """A comparison whose names are third-party text."""
    name = "<img src=x onerror=alert(1)>\x1b[31m"
    rows = day_rows(DAYS[0])[1].to_pylist()
    for row in rows:
        row["judge_model"] = name
    return calibrate(rows, resamples=20)


def test_names_of_models_cannot_leave_their_place() -> None:
    facts = {"days": [DAYS[0]], "gate": 0.7, "comparisons": hostile()}
    assert "\x1b" not in calibration_text(facts)
    spec = json.dumps(calibration_figure(hostile()))
    assert "<img" not in spec and "\\u001b" not in spec


def test_the_figure_is_one_plotly_accepts_with_a_panel_a_judge() -> None:
    import plotly.graph_objects as go

    comparisons = hostile()
    two = [*comparisons, {**comparisons[0], "judge_model": "other"}]
    for shown in ([], comparisons, two):
        spec = calibration_figure(shown)
        colours = json.loads(json.dumps(spec).replace("var(--heat0)", "#000").replace("var(--heat1)", "#fff"))
        colours = json.loads(json.dumps(colours).replace("var(--text)", "#000").replace("var(--card)", "#000"))
        go.Figure(json.loads(json.dumps(colours).replace("var(--line)", "#000")))
        assert len(spec["data"]) == len(shown)
    trace = calibration_figure(comparisons)["data"][0]
    assert trace["text"][4][4] == "8" and trace["z"][4] == [0.0, 0.0, 0.0, 0.0, 1.0]


def test_rows_of_the_table_have_the_columns_and_the_eras_apart() -> None:
    rows = day_rows(DAYS[0])[1].to_pylist()
    for row in rows:
        if row["judge_kind"] == "validator":
            row["score_regime"] = "continuous"
    made = calibration_rows([*hostile(), *calibrate(rows, resamples=20)])
    assert all(set(row) == {key for key, _, _ in COLUMNS} for row in made)
    assert made[0]["agreement"].startswith("quadratic kappa 1.00")
    assert made[1]["agreement"].startswith("Spearman 1.00") and made[1]["gate"] is None


def test_a_day_folder_is_calibrated_without_a_lake() -> None:
    folder = shared_folder() / "days" / "2026-05-02"
    if not folder.is_dir():
        pytest.skip("shared/days is not present")
    from trajectory_platform.stages.folder import open_folder

    facts = calibrate_folder(open_folder(Settings(), str(folder)))
    (found,) = facts["comparisons"]
    assert found["regime"] == "discrete" and found["pairs"] > 100
    assert found["agreement"]["quadratic_kappa"]["value"] > 0.7
    assert found["reading"] != "do not use"
