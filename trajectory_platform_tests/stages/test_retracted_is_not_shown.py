"""What was retracted is shown nowhere: not on pages, not as an example, not in MLflow, purged or not yet."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.lake import tables
from trajectory_platform.lake.ledger import LEDGER
from trajectory_platform.settings import Settings
from trajectory_platform.stages import report
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.day_report import day_report, named_traces, write_day_report
from trajectory_platform.stages.retraction import retract
from trajectory_platform.stages.trace_choice import traces_of_problem
from trajectory_platform.stages.trace_pages import log_to_mlflow, write_trace_pages
from trajectory_platform.stages.trace_seals import not_to_show
from trajectory_platform.stages.trace_views import trace_views
from trajectory_platform_tests.lake.sealed_lake import TRACES, sealed_lake
from trajectory_platform_tests.stages.arena_days import DAYS, ingest, make_days, place, split

DAY = DAYS[1]
NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("days")
    chosen = place(make_days(root / "made", days=2, traces=60), root)
    ingest(chosen, DAYS[:2])
    split(chosen, DAY)
    return chosen


@pytest.fixture(scope="module")
def gone(settings: Settings) -> str:
    """A trace that the day's page named, retracted now."""
    ctx = StageContext(settings)
    name = named_traces(day_report(ctx, DAY))[0]
    retract(ctx, name, reason="asked by its miner", at=NOW)
    return name


def test_a_view_tells_that_it_was_retracted_and_no_word_of_it(settings: Settings, gone: str) -> None:
    [view] = trace_views(StageContext(settings), [gone], sealed_reason="curious", at=NOW)
    assert view["retracted"]["reason"] == "asked by its miner" and view["withheld"] and not view["sealed"]
    assert (view["query"], view["turns"], view["verdicts"], view["wanted"]) == (None, [], [], None)
    assert not (Path(settings.lake_uri) / LEDGER).exists(), "nothing sealed was looked at"


def test_the_page_of_a_day_counts_it_and_names_it_no_more(settings: Settings, gone: str, tmp_path: Path) -> None:
    page = write_day_report(settings, tmp_path / "r.html", DAY, traces_at=NOW).read_text("utf-8")
    assert gone not in page and "1 traces retracted" in page
    found = day_report(StageContext(settings), DAY)
    assert found.flow is not None and found.flow.difference == 0
    pages = [file.read_text("utf-8") for file in (tmp_path / "traces").iterdir()]
    assert pages and not any(gone in text for text in pages)


def test_no_page_of_its_own_is_written(settings: Settings, gone: str, tmp_path: Path) -> None:
    with pytest.raises(Abort, match="1 of 1 traces were retracted"):
        write_trace_pages(settings, tmp_path / "t.html", [gone], sealed_reason="curious", at=NOW)
    assert not list(tmp_path.iterdir())
    ctx = StageContext(settings)
    problem = next(
        row["problem_key"]
        for row in ctx.lake.read(tables.JUDGED_TRACES, [DAY], columns=["trace_id", "problem_key"]).to_pylist()
        if row["trace_id"] == gone
    )
    try:
        assert gone not in traces_of_problem(ctx, problem, limit=50)
    except Abort as error:
        assert "was retracted" in str(error)


def test_what_was_logged_before_is_removed_from_mlflow(settings: Settings, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    ctx = StageContext(settings)
    name = named_traces(day_report(ctx, DAY))[0]
    assert log_to_mlflow(settings, uri, [name], at=NOW)["written"] == 1
    retract(ctx, name, reason="asked", at=NOW)
    again = log_to_mlflow(settings, uri, [name], at=NOW)
    assert (again["written"], again["known"], again["removed"], again["retracted"]) == (0, 0, 1, 1)
    assert log_to_mlflow(settings, uri, [name], at=NOW)["removed"] == 0


def test_the_picture_of_a_trained_row_loses_its_text(
    settings: Settings, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture lies in the checkpoint's folder, where no purge reaches it."""
    from trajectory_platform.reports.mask_section import mask_section
    from trajectory_platform.training import loss_mask

    ctx = StageContext(settings)
    kept = named_traces(day_report(ctx, DAY))[0]
    pieces = [{"role": "user", "tokens": 2, "trained": False, "pieces": ["secret", " words"]}]
    masks = {"sft": gone, "kto": kept}
    monkeypatch.setattr(report, "current_checkpoint", lambda ctx, day, stage: {"checkpoint_id": stage})
    monkeypatch.setattr(report, "folder_of", lambda ctx, checkpoint: Path(checkpoint["checkpoint_id"]))
    monkeypatch.setattr(
        loss_mask,
        "read_loss_mask",
        lambda folder: (
            {"trace_id": masks[folder.name], "tokens": 9, "trained_tokens": 3, "stretches": pieces}
            if folder.name in masks
            else None
        ),
    )
    found = report._loss_masks(ctx, DAY)
    assert [mask.get("withheld") for mask in found] == ["retracted", None]
    assert "secret" not in mask_section(found[:1]) and "9 tokens, 3 trained" in mask_section(found[:1])
    assert "secret" in mask_section(found[1:])


def test_a_sealed_trace_may_not_be_shown_either(tmp_path: Path) -> None:
    lake = sealed_lake(tmp_path / "lake")
    named = {TRACES[name]: "sealed" for name in ("sealed", "race", "replayed", "restating", "new")}
    assert not_to_show(lake, TRACES.values()) == named
    assert not_to_show(lake, []) == {}
