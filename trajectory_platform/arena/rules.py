"""The rules of the daily cycle, each a constant or a small pure function. Times are UTC milliseconds.

Sources:

    docs     the subnet's own pages below oroagents.com/docs: resources/faq, architecture, miners/evaluation-lifecycle
    sdk      field descriptions of its public client, oro-sdk 7.0.2 (RacePublic, RaceQualifierPublic, TopAgentResponse,
             MinerAgentsResponse, AgentVersionPublic, CooldownActiveError)
    domain   the domain report of this project, by section
    issue 3  the specification of this arena, point 7
    assumed  no number was published where we could read it; the value is a default of ours

Rules that depend on the date (proxy log, judge, upload format) are in ``artifacts.era_of`` (domain 1.11).
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

LAUNCH = date(2026, 3, 26)
"""First day, with suite v1 (domain 1.11)."""
EARLY_SUITES = (LAUNCH, date(2026, 4, 7), date(2026, 4, 13))
"""First days of the suites v1, v2 and v3 (domain 1.11, 4.2)."""
BACKEND_SUITES = date(2026, 4, 20)
"""First day with suites from the backend; they follow v3 (domain 4.2), the day itself is assumed: a week after v3."""
EARLY_SUITE_PROBLEMS = 30
"""Problems of a suite v1 to v3 (domain 4.2)."""
HIDDEN_BANK = date(2026, 4, 14)
"""From here on races draw from a hidden bank, before that from the public suite (domain 1.1, 1.11)."""

PROBLEMS_PER_RUN = 30
"""Problems of a qualifying run (domain 1.1)."""
VALIDATORS_PER_ENTRY = (2, 3)
"""How many validators run one entry, each on its own: other rollouts of the same version (domain 1.1, issue 3)."""
SUBMISSION_COOLDOWN_MS = 12 * HOUR_MS
"""Per hotkey, from the submission on, not from the end of the evaluation (docs: FAQ, architecture)."""
QUALIFYING_SHARE = 0.95
"""Share of the leader's qualifying score that admits to the race (issue 3)."""
CHALLENGE_MARGIN = 0.04
"""Margin a fresh incumbent is protected by, as a fraction of its score (sdk: ``margin``; the size is assumed)."""
MARGIN_HALF_LIFE_DAYS = 4.0
"""In this time the margin halves (that it decays: issue 3; the speed is assumed)."""
RACE_START_HOUR = 19
"""UTC hour of the daily race, inside its window of 18 to 22 (domain 1.10, "Days")."""
QUALIFYING_CLOSES_HOUR = 18
"""Scores that are there by this UTC hour count for the day's race (start of the race window, domain 1.10)."""
LEASE_MS = 40 * MINUTE_MS
"""Lease of a run at its claim (days/: ``lease_expires_at`` minus ``claimed_at``); without heartbeats it is stale."""

RUNNING, COMPLETED, CANCELLED = "RACE_RUNNING", "COMPLETED", "CANCELLED"
"""Values of ``race.status``, a free text: the first is named by the sdk, the others by domain 1.10."""
INCUMBENT, SCORED = "INCUMBENT", "SCORED"
"""How a version came into a race (sdk, domain 1.10)."""
HIDDEN, RELEASED = "HIDDEN", "RELEASED"
"""Release states of a version's code (domain 1.10)."""


def midnight(day: date) -> int:
    """First millisecond of a UTC day."""
    return int(datetime.combine(day, time(), UTC).timestamp() * 1000)


def utc_day(moment: int) -> date:
    """The UTC day of a moment; a trace counts on the day it was judged (domain 1.10, "Days")."""
    return datetime.fromtimestamp(moment / 1000, tz=UTC).date()


def next_allowed_at(last_submitted: int | None) -> int:
    """When a hotkey may submit (again): 12 hours after its last submission; any time before its first."""
    return 0 if last_submitted is None else last_submitted + SUBMISSION_COOLDOWN_MS


def may_submit(last_submitted: int | None, moment: int) -> bool:
    """Whether the cooldown is over (docs: FAQ; the sdk answers 429 ``COOLDOWN_ACTIVE`` else)."""
    return moment >= next_allowed_at(last_submitted)


def final_score(success_rate: float, coefficient: float | None) -> float:
    """Score of a run: success rate times the reasoning coefficient, which did not exist before 04-12 (domain 2.6)."""
    return round(success_rate * (1.0 if coefficient is None else coefficient), 4)


def qualifying_threshold(leader_score: float) -> float:
    """The qualifying score from which a version races (issue 3: within 95 % of the leader)."""
    return QUALIFYING_SHARE * leader_score


def margin(days_held: float) -> float:
    """The current challenge margin as a fraction of the incumbent's score; decays from its promotion on."""
    return CHALLENGE_MARGIN * float(0.5 ** (max(0.0, days_held) / MARGIN_HALF_LIFE_DAYS))


def challenge_threshold(incumbent_score: float, days_held: float) -> float:
    """The race score required to dethrone the incumbent (sdk: ``challenge_threshold``)."""
    return incumbent_score * (1.0 + margin(days_held))


def dethrones(challenger_score: float, incumbent_score: float, days_held: float) -> bool:
    """Whether a challenger is promoted: both scores are of the same race, the margin is what protects the incumbent."""
    return challenger_score > challenge_threshold(incumbent_score, days_held)


def code_public_at(eligible_at: int) -> int:
    """When a version's source becomes public: midnight UTC of the next weekday, Monday to Friday (issue 3)."""
    day = utc_day(eligible_at) + timedelta(days=1)
    while day.weekday() >= 5:
        day += timedelta(days=1)
    return midnight(day)


def release_state(public_at: int, moment: int) -> str:
    """``HIDDEN`` until the embargo ends, then ``RELEASED`` (domain 1.10)."""
    return RELEASED if moment >= public_at else HIDDEN


def suite_started(day: date, period: int | None = None) -> date:
    """First day of the suite that is active on a day.

    Args:
        period: days per suite, counted from the launch; None rotates as the subnet did: v1, v2 and v3 after 12 and 6
            days (domain 4.2), from ``BACKEND_SUITES`` on a new draw from the backend every day (assumed).
    """
    if period is not None:
        return day - timedelta(days=(day - LAUNCH).days % period)
    if day >= BACKEND_SUITES:
        return day
    return max((first for first in EARLY_SUITES if first <= day), default=day)


def suite_id(started: date) -> int:
    """A number per suite that grows with time and does not depend on where a simulation begins."""
    return max(1, 10 + (started - LAUNCH).days)


def race_number(day: date) -> int:
    """Number of a day's race; one race a day, the first after a first week of qualifying (as in ``days/``)."""
    return max(1, (day - LAUNCH).days + 9)
