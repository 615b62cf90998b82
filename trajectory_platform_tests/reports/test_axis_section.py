"""Who made the calls: eras by date, days beside one another, the share of a day with what it rests on."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from trajectory_platform.curation import corpus
from trajectory_platform.curation.corpus import ERAS, era_of
from trajectory_platform.reports.axis_figures import MANY_DAYS, axis_days_figure
from trajectory_platform.reports.axis_section import axis_section, by_era
from trajectory_platform.reports.escape import html_text
from trajectory_platform.reports.figure_svg import svg
from trajectory_platform.reports.page import Figures


@pytest.mark.parametrize(
    ("day", "name"),
    [
        ("2026-03-25", "before the launch"),
        ("2026-03-26", "bare lists"),
        ("2026-04-18", "bare lists"),
        ("2026-04-19", "log, judged on step 0"),
        ("2026-04-23", "log, judged on step 0"),
        ("2026-04-24", "log on every step"),
        ("2026-04-29", "envelopes"),
        ("2026-04-30", "discrete gate"),
        ("2026-07-01", "nonces, full logs"),
        ("2031-01-01", "nonces, full logs"),
    ],
)
def test_a_day_has_the_era_of_the_drift_table(day: str, name: str) -> None:
    assert era_of(day).name == name


def test_eras_are_in_order_and_one_without_a_date_is_never_a_day_s() -> None:
    dated = [era.first for era in ERAS if era.first]
    assert dated == sorted(set(dated)) and [era.name for era in ERAS if not era.first] == ["envpack"]


def test_days_of_an_era_are_counted_together() -> None:
    axis = {
        "2026-04-01": {"A": 0, "unknown": 50},
        "2026-05-01": {"A": 10, "B": 90},
        "2026-05-02": {"A": 90, "B": 10},
    }
    first, last = by_era(axis)
    assert (first["era"], first["a"], first["days"]) == ("bare lists", 0, 1)
    assert (last["a"], last["n"], last["low_day"], last["high_day"]) == (0.5, 200, 0.1, 0.9)


def test_every_era_is_listed_whether_there_is_a_day_of_it() -> None:
    html = axis_section({"2026-05-01": {"A": 1, "B": 1}}, Figures())
    assert all(era.name in html for era in ERAS) and "not dated" in html


def test_the_filter_and_the_reports_know_one_list_of_eras() -> None:
    assert corpus.ERAS is ERAS and corpus.era_of("2026-05-03") is era_of("2026-05-03")


def test_what_changed_stands_below_the_name_of_the_era() -> None:
    html = axis_section({"2026-05-01": {"A": 1, "B": 1}}, Figures())
    for era in ERAS:
        assert f'<td class="text">{html_text(era.name)}<br><span class="muted">{html_text(era.change)}</span>' in html


def test_the_share_of_a_day_has_its_interval_and_its_n() -> None:
    share = {"day": "2026-05-01", "a": 0.5, "a_low": 0.25, "a_high": 0.75, "n": 40, "agents": 6}
    html = axis_section({"2026-05-01": {"A": 20, "B": 20}}, Figures(), share)
    assert "50.0% (25.0% to 75.0%) of 40 readable traces of 6 agent versions" in html
    assert "*" not in html


def test_an_asterisk_stands_with_its_footnote_or_not_at_all() -> None:
    share = {"day": "2026-05-01", "a": 1.0, "a_low": 0.6, "a_high": 1.0, "a_note": "all clusters agree", "n": 4}
    html = axis_section({"2026-05-01": {"A": 4}}, Figures(), {**share, "agents": 4})
    assert "100.0% (60.0% to 100.0%)*" in html and "* all clusters agree" in html
    without = axis_section({"2026-05-01": {"A": 4}}, Figures(), {**share, "agents": 1, "a_low": None, "a_high": None})
    assert "*" not in without and "agree" not in without


def test_many_days_stand_side_by_side_with_the_borders_of_the_eras() -> None:
    start = date(2026, 4, 10)
    axis = {(start + timedelta(days=number)).isoformat(): {"A": 3, "B": 1} for number in range(MANY_DAYS + 10)}
    figure = axis_days_figure(axis)
    assert figure["data"][0]["x"] == sorted(axis) and set(figure["data"][0]["y"]) == {0.75}
    borders = [shape["x0"] for shape in figure["layout"]["shapes"]]
    days = sorted(axis)
    assert [days[int(place + 0.5)] for place in borders] == ["2026-04-19", "2026-04-24", "2026-04-27", "2026-04-30"]
    assert svg(figure, title="t").startswith("<svg")


def test_unreadable_days_are_no_bar_and_no_crash() -> None:
    drawn = Figures()
    html = axis_section({"2026-05-01": {"A": 0}, "2026-05-02": {}}, drawn, {"day": "2026-05-02", "a": None})
    assert "no trace was readable" in html and len(drawn) == 0
