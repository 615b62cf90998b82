"""The rules of the cycle, each on its own: the numbers and edges that the sources state."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from trajectory_platform.arena import rules

HOUR = rules.HOUR_MS


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_a_hotkey_may_submit_again_after_exactly_twelve_hours() -> None:
    first = at("2026-05-02T09:00:00")
    assert rules.may_submit(None, 0)
    assert not rules.may_submit(first, first + 12 * HOUR - 1)
    assert rules.may_submit(first, first + 12 * HOUR)


def test_the_race_is_open_to_those_within_95_percent_of_the_leader() -> None:
    assert rules.qualifying_threshold(0.8) == pytest.approx(0.76)


def test_the_margin_halves_with_time_and_never_helps_a_weaker_challenger() -> None:
    fresh = rules.margin(0)
    assert rules.margin(rules.MARGIN_HALF_LIFE_DAYS) == pytest.approx(fresh / 2)
    margins = [rules.margin(day) for day in range(60)]
    assert margins == sorted(margins, reverse=True) and margins[-1] > 0
    assert rules.margin(-1) == fresh, "a promotion that is still in the future protects no more than a fresh one"
    assert not rules.dethrones(0.8, 0.8, 1_000)
    assert not rules.dethrones(0.81, 0.8, 0) and rules.dethrones(0.81, 0.8, 30)


@pytest.mark.parametrize(
    ("eligible", "public"),
    [
        ("2026-04-30T23:59:59", "2026-05-01"),  # Thursday -> Friday
        ("2026-05-01T00:00:00", "2026-05-04"),  # Friday -> Monday
        ("2026-05-02T12:00:00", "2026-05-04"),  # Saturday -> Monday
        ("2026-05-03T23:00:00", "2026-05-04"),  # Sunday -> Monday
    ],
    ids=["thursday", "friday", "saturday", "sunday"],
)
def test_source_is_embargoed_until_the_next_weekday(eligible: str, public: str) -> None:
    moment = rules.code_public_at(at(eligible))
    assert moment == at(f"{public}T00:00:00")
    assert rules.release_state(moment, moment - 1) == "HIDDEN" and rules.release_state(moment, moment) == "RELEASED"


def test_the_first_suites_rotate_after_twelve_and_six_days_and_then_daily() -> None:
    days = [rules.LAUNCH + timedelta(days=number) for number in range(40)]
    started = [rules.suite_started(day) for day in days]
    assert sorted({first for first in started if first < rules.BACKEND_SUITES}) == list(rules.EARLY_SUITES)
    assert [started.count(first) for first in rules.EARLY_SUITES] == [12, 6, 7]
    assert all(first == day for first, day in zip(started, days, strict=True) if day >= rules.BACKEND_SUITES)
    ids = [rules.suite_id(first) for first in sorted(set(started))]
    assert ids == sorted(set(ids)), "a later suite has a higher number"


def test_a_rotation_period_counts_from_the_launch_so_that_a_simulation_may_begin_anywhere() -> None:
    day = date(2026, 5, 9)
    assert rules.suite_started(day, 5) <= day < rules.suite_started(day, 5) + timedelta(days=5)
    assert rules.suite_started(rules.suite_started(day, 5), 5) == rules.suite_started(day, 5)


def test_a_trace_counts_on_the_utc_day_it_was_judged() -> None:
    midnight = rules.midnight(date(2026, 5, 3))
    assert (rules.utc_day(midnight - 1), rules.utc_day(midnight)) == (date(2026, 5, 2), date(2026, 5, 3))


def test_the_final_score_has_no_coefficient_before_there_was_a_judge() -> None:
    assert rules.final_score(0.6, None) == 0.6
    assert rules.final_score(0.6, 0.9125) == 0.5475
