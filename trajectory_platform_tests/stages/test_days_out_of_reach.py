"""A day that cannot be whole is not taken: not over, before the first, or without a folder and without pairs."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages import daily, fetching
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.plain import ingest_days
from trajectory_platform_tests.stages.arena_days import DAYS, FIRST, make_days, settings_for

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def api_settings(root: Path) -> Settings:
    return Settings(
        source="oro_api", api_base="http://127.0.0.1:9", api_state=str(root / "state"), data_root=str(root / "raw"),
        lake_uri=str(root / "lake"), first_day=FIRST,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("2026-12-15", None, None), "2026-12-15 is not over: it is 2026-05-04"),
        (("2026-05-04", None, None), "2026-05-04 is not over"),
        (("2026-05-01", None, None), "before the first day 2026-05-02"),
        ((None, "2026-05-03", "2026-05-04"), "2026-05-04 is not over"),
        ((None, "2026-04-30", "2026-05-03"), "before the first day"),
    ],
)
@pytest.mark.parametrize("source", ["files", "oro_api"])
def test_a_day_that_is_not_over_or_before_the_first_is_not_ingested(
    tmp_path: Path, words: tuple[str | None, str | None, str | None], said: str, source: str
) -> None:
    settings = api_settings(tmp_path).model_copy(update={"source": source})
    (tmp_path / "raw" / "2026-05-04").mkdir(parents=True)
    with pytest.raises(Abort, match=said):
        list(ingest_days(settings, *words, clock=lambda: NOON))
    assert StageContext(settings).lake.days(tables.RAW_TRACES) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("2026-05-05", None, None), "2026-05-05 has not begun: it is 2026-05-04"),
        ((None, "2026-05-03", "2026-05-05"), "2026-05-05 has not begun"),
        (("2026-05-01", None, None), "before the first day 2026-05-02"),
        ((None, "2026-05-01", "2026-05-03"), "before the first day"),
    ],
)
def test_a_day_that_has_not_begun_is_not_fetched(
    tmp_path: Path, words: tuple[str | None, str | None, str | None], said: str
) -> None:
    with pytest.raises(Abort, match=said):
        list(fetching.fetch_days(api_settings(tmp_path), *words, clock=lambda: NOON))
    assert not (tmp_path / "raw").exists()


def test_the_day_of_today_may_be_fetched_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(fetching, "_look", lambda _, day, *args, **more: looked.append(day) or {"state": "open"})
    list(fetching.fetch_days(api_settings(tmp_path), None, DAYS[0], None, clock=lambda: NOON))
    assert looked == DAYS[:3], "a range ends with today"


def test_folders_of_days_out_of_reach_are_left_out_with_a_word(tmp_path: Path) -> None:
    settings = settings_for(make_days(tmp_path / "days", days=3, traces=30), tmp_path / "lake")
    later = settings.model_copy(update={"first_day": date.fromisoformat(DAYS[1])})
    facts = list(ingest_days(later, None, None, None, clock=lambda: NOON))
    assert {fact["day"]: fact["text"] for fact in facts if fact["state"] == "left out"} == {
        DAYS[0]: "before the first day 2026-05-03 (TRAJECTORY_PLATFORM_FIRST_DAY)",
        DAYS[2]: "not over: it is 2026-05-04 (UTC)",
    }
    assert StageContext(later).lake.days(tables.AXIS_A_CORPUS) == [DAYS[1]]


def test_a_day_without_folder_and_pairs_is_no_day_and_one_with_pairs_is(tmp_path: Path) -> None:
    """The arena's last folder holds pairs judged on the day after; none was judged on the day before the first."""
    settings = settings_for(make_days(tmp_path / "days", days=2, traces=60), tmp_path / "lake")
    early = settings.model_copy(update={"first_day": date(2026, 4, 1)})
    lake = StageContext(settings).lake
    (fact,) = ingest_days(early, "2026-05-01", None, None)
    assert fact["state"] == "failed" and "no pair in the folders beside it was judged on 2026-05-01" in fact["text"]
    facts = list(ingest_days(early, None, "2026-05-01", DAYS[0]))
    assert [fact["day"] for fact in facts if fact["state"] == "left out"] == ["2026-05-01"]
    assert lake.days(tables.RAW_TRACES) == [DAYS[0]], "nothing is published of a day that is not there"
    facts = list(ingest_days(settings, DAYS[2], None, None))
    assert {fact["state"] for fact in facts} == {"published"}
    manifest = lake.manifest(tables.RAW_TRACES, DAYS[2])
    assert manifest is not None and manifest.complete and manifest.summary["raw_rows"] > 0


def test_what_dagster_publishes_of_a_day_that_is_not_there_is_incomplete(tmp_path: Path) -> None:
    settings = settings_for(make_days(tmp_path / "days", days=2, traces=30), tmp_path / "lake")
    ctx = StageContext(settings)
    daily.raw_traces(ctx, "2026-05-01")
    manifest = ctx.lake.manifest(tables.RAW_TRACES, "2026-05-01")
    assert manifest is not None and not manifest.complete
