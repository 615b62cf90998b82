"""The arena's state, advanced day by day: who submits, who qualifies, who races, who leads (rules: ``rules``).

A day in order:

    open_day    last night's half of yesterday's race, the day's submissions with their qualifying runs, ghosts
    start_race  closes the qualifying with its results; the evening half of the day's race
    close_day   books the evening's results; what became eligible is embargoed, then public

A race that starts at 19:00 UTC goes on after midnight: its evening runs are listed in the folder of its day, its
night runs in the next one. What is carried over is bounded by the number of miners; nothing is kept per day.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from random import Random
from typing import Protocol

from trajectory_platform.arena import qualifying, rules
from trajectory_platform.arena.knobs import Knobs
from trajectory_platform.arena.plan import RunPlan, charge, ghost_pairs, kind_weights, set_quirks, validator_keys
from trajectory_platform.arena.problems import ArenaProblem, ProblemMaker
from trajectory_platform.arena.races import Qualifier, Race, Standing, night_of, plan_race, standings_of
from trajectory_platform.arena.roster import Roster

_HIDDEN_SHARE = 0.1  # of the problems that are open on a day
_FORCED_EARLY_PERIOD = 6  # days per suite where an early era is forced: the shorter of the two that happened


def open_problems(knobs: Knobs, day: date) -> tuple[date, int, int]:
    """(first day of the active suite, its problems, hidden problems) of a day."""
    era, period = knobs.era_of_day(day), knobs.suite_days
    early = era < rules.BACKEND_SUITES
    if period is None and knobs.era is not None:
        period = _FORCED_EARLY_PERIOD if early else 1
    started = rules.suite_started(day, period)
    total = knobs.problems_per_day or max(30, knobs.traces_per_day // 4)
    hidden = max(1, round(total * _HIDDEN_SHARE))
    if early and knobs.problems_per_day is None and knobs.suite_days is None:
        return started, rules.EARLY_SUITE_PROBLEMS, hidden
    return started, total - hidden, hidden


class Finished(Protocol):
    """What the cycle needs to know of a finished run (``execution.RunResult`` has it)."""

    plan: RunPlan
    score: float | None
    completed_at: int


class ArenaState:
    """What one day leaves to the next.

    Attributes:
        day: the day that is open.
        suite_id, suite: the active public suite and its problems.
        hidden: hidden problems of the day's race.
        fresh: problems that were not open on the day before.
        board: hotkey -> its best standing on the active suite.
        incumbent: the promoted standing, or None before the first race; ``since``: promoted at (UTC milliseconds).
        own_submitted: checkpoint id of our own entries -> when it entered (UTC milliseconds).
        races: races that took place or went on this day.
    """

    def __init__(self, knobs: Knobs, maker: ProblemMaker, seed: int) -> None:
        self.knobs, self.maker, self.seed = knobs, maker, seed
        self.validators = validator_keys(seed, max(3, knobs.validators_per_entry[1]))
        self.roster = Roster(seed)
        self.debts = qualifying.first_debts(knobs, seed)
        self.suite_id = 0
        self.suite: list[ArenaProblem] = []
        self.hidden: list[ArenaProblem] = []
        self.fresh: list[ArenaProblem] = []
        self.board: dict[str, Standing] = {}
        self.standings: dict[str, Standing] = {}
        self.incumbent: Standing | None = None
        self.since = 0
        self.own_submitted: dict[str, int] = {}
        self.race: Race | None = None
        self.races: list[Race] = []
        self.day = rules.LAUNCH
        self._suite_started: date | None = None

    def open_day(self, day: date) -> list[RunPlan]:
        """The runs that go on before the day's race: the night half of yesterday's race first."""
        self.day = day
        rng = self._rng("open")
        self._renew_problems(day)
        self.races = [self.race] if self.race else []
        carried = self.race.qualifiers if self.race else []
        kept = {one.standing.agent.agent_version_id: one.standing for one in carried}
        kept |= {one.agent.agent_version_id: one for one in self.board.values()}
        self.standings = kept
        night = night_of(self.race) if self.race else []
        used = sum(len(plan.problems) for plan in night)
        self._charge(night)
        evening = self._race_quota() - self._race_quota() * 4 // 10
        plans = qualifying.plan_day(self, rng, max(0, self.executed_pairs() - used - evening))
        set_quirks(rng, [plan for plan in plans if plan.executed], self.knobs)
        set_quirks(rng, night, self.knobs)
        self._planned = used + sum(len(plan.problems) for plan in plans if plan.executed)
        return night + plans

    def start_race(self, results: Sequence[Finished]) -> list[RunPlan]:
        """Close the qualifying: conclude yesterday's race, plan today's and return its evening runs.

        Where nobody qualified, further qualifying runs take the place of the race.
        """
        if self.race is not None:
            self._conclude(self.race, results)
        closes = rules.midnight(self.day) + rules.QUALIFYING_CLOSES_HOUR * rules.HOUR_MS
        late = self._rate(results, closes)
        rng = self._rng("race")
        left = self.executed_pairs() - self._planned
        era = self.knobs.era_of_day(self.day)
        problems = self.hidden if era >= rules.HIDDEN_BANK else self.suite
        self.race = plan_race(self, rng, problems, evening=left, night=self._race_quota() - left)
        for standing in late:
            self._place(standing)
        if self.race is None:
            plans = qualifying.plan_day(self, rng, left, ghosts=False)
        else:
            self.races.append(self.race)
            plans = self.race.evening
            self._charge(plans)
        set_quirks(rng, [plan for plan in plans if plan.executed], self.knobs)
        return plans

    def close_day(self, results: Sequence[Finished]) -> None:
        """Book the evening's runs and let the embargo of the day's code begin."""
        if self.race is not None:
            self.race.book(results)
            if self.race.status == rules.CANCELLED:
                self.race = None
        for standing in sorted(self.standings.values(), key=lambda one: one.agent.agent_version_id):
            if rules.utc_day(standing.eligible_at) == self.day:
                self.roster.learn(standing.agent, standing.score, standing.eligible_at)
        self.roster.forget(rules.midnight(self.day + timedelta(days=1)))

    def executed_pairs(self) -> int:
        """Pairs of a day that have an execution behind them."""
        return self.knobs.traces_per_day - ghost_pairs(self.knobs.traces_per_day)

    def leader(self) -> float | None:
        """The best qualifying score on the active suite."""
        return max((standing.score for standing in self.board.values()), default=None)

    def threshold(self) -> float | None:
        """The qualifying score that admits to the race."""
        best = self.leader()
        return None if best is None else rules.qualifying_threshold(best)

    def _renew_problems(self, day: date) -> None:
        """Rotate the public suite when its time has come; the hidden problems are new for every race."""
        started, public, hidden = open_problems(self.knobs, day)
        self.fresh = []
        if started != self._suite_started:
            self._suite_started = started
            self.suite_id = rules.suite_id(started)
            self.suite = self.maker.public(public)
            self.board = {}
            self.fresh = list(self.suite)
        self.hidden = self.maker.hidden(hidden, self.suite, self.knobs.sealed_share)
        self.fresh += self.hidden

    def _rate(self, results: Sequence[Finished], closes: int) -> list[Standing]:
        """Put the versions that finished their qualifying on the board; returns those that came too late for today."""
        late = []
        for standing in standings_of(results, self.suite_id):
            self.standings[standing.agent.agent_version_id] = standing
            if standing.eligible_at <= closes:
                self._place(standing)
            else:
                late.append(standing)
        return late

    def _place(self, standing: Standing) -> None:
        """One version races per hotkey: its best on the suite (sdk, ``racing_agent_version_id``)."""
        held = self.board.get(standing.agent.hotkey)
        if held is None or standing.score > held.score:
            self.board[standing.agent.hotkey] = standing

    def _conclude(self, race: Race, results: Sequence[Finished]) -> None:
        """Rank the race; the best challenger is promoted if it beats the incumbent by the current margin."""
        race.book(results)
        best = race.conclude()
        held = race.incumbent()
        if best is None or best is held:
            race.winner = held
            return
        score, defended = best.race_score or 0.0, 0.0 if held is None else held.race_score or 0.0
        days_held = (race.completed_at - self.since) / rules.DAY_MS
        if held is None or rules.dethrones(score, defended, days_held):
            self.incumbent, self.since = best.standing, race.completed_at
            race.winner = best
        else:
            race.winner = held

    def _charge(self, plans: Sequence[RunPlan]) -> None:
        """Race pairs count for the shares of the kinds like all others: the next submissions make up for them."""
        weights = kind_weights(self.knobs)
        for plan in plans:
            if plan.executed and plan.agent.kind in weights:
                charge(self.debts, weights, plan.agent.kind, len(plan.problems))

    def _race_quota(self) -> int:
        return round(self.executed_pairs() * self.knobs.race_share)

    def _rng(self, what: str) -> Random:
        return Random(f"cycle|{what}|{self.seed}|{self.day.isoformat()}")


__all__ = ["ArenaState", "Finished", "Qualifier", "Race", "Standing"]
