"""The daily race: its field, its runs in the evening and in the night, its ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from trajectory_platform.arena import rules
from trajectory_platform.arena.miners import Agent
from trajectory_platform.arena.plan import QUALIFYING, RACE, Deck, Entry, RaceRef, RunPlan, new_run, reach_over
from trajectory_platform.arena.problems import ArenaProblem, make_uuid

if TYPE_CHECKING:
    from trajectory_platform.arena.cycle import ArenaState, Finished

_FEWEST_PROBLEMS = 3  # a race run below this says nothing; rather fewer qualifiers race
_DROPOUT = 0.12  # share of races in which a qualifier's runs go stale


@dataclass(frozen=True)
class Standing:
    """A rated version: the mean score of its included qualifying runs.

    Attributes:
        eligible_at: when its last run ended (UTC milliseconds).
    """

    entry: Entry
    score: float
    eligible_at: int

    @property
    def agent(self) -> Agent:
        return self.entry.agent


@dataclass
class Qualifier:
    """A version in a race. ``race_score`` None: it did not finish (domain 1.10)."""

    standing: Standing
    how: str
    scores: list[float] = field(default_factory=list)
    race_score: float | None = None
    rank: int | None = None

    @property
    def version_id(self) -> str:
        return self.standing.agent.agent_version_id


@dataclass
class Race:
    """One race; ``evening`` runs belong to its own day, ``night`` runs to the next."""

    ref: RaceRef
    day: date
    suite_id: int
    threshold: float
    qualifiers: list[Qualifier]
    status: str = rules.RUNNING
    evening: list[RunPlan] = field(default_factory=list)
    night: list[RunPlan] = field(default_factory=list)
    winner: Qualifier | None = None
    completed_at: int = 0

    @property
    def started_at(self) -> int:
        return rules.midnight(self.day) + rules.RACE_START_HOUR * rules.HOUR_MS

    def incumbent(self) -> Qualifier | None:
        return next((one for one in self.qualifiers if one.how == rules.INCUMBENT), None)

    def book(self, results: Sequence[Finished]) -> None:
        """Take the scores of this race's runs."""
        by_version = {one.version_id: one for one in self.qualifiers}
        for result in results:
            if result.plan.race != self.ref:
                continue
            self.completed_at = max(self.completed_at, result.completed_at)
            if result.score is not None:
                by_version[result.plan.agent.agent_version_id].scores.append(result.score)

    def conclude(self) -> Qualifier | None:
        """Rank those that finished; the best of them, or None when nobody did."""
        self.status = rules.COMPLETED
        self.evening, self.night = [], []
        for one in self.qualifiers:
            one.race_score = round(sum(one.scores) / len(one.scores), 4) if one.scores else None
        finished = [one for one in self.qualifiers if one.race_score is not None]
        finished.sort(key=lambda one: (-(one.race_score or 0.0), one.standing.eligible_at, one.version_id))
        for rank, one in enumerate(finished, 1):
            one.rank = rank
        return finished[0] if finished else None


def standings_of(results: Sequence[Finished], suite_id: int) -> list[Standing]:
    """The versions with at least one included qualifying run on the suite, in order of their ids."""
    runs: dict[str, list[Finished]] = {}
    for result in results:
        if result.plan.phase == QUALIFYING and result.score is not None and result.plan.suite_id == suite_id:
            runs.setdefault(result.plan.agent.agent_version_id, []).append(result)
    found = []
    for _, own in sorted(runs.items()):
        scores = [result.score for result in own if result.score is not None]
        mean = round(sum(scores) / len(scores), 4)
        found.append(Standing(own[0].plan.entry, mean, max(result.completed_at for result in own)))
    return found


def night_of(race: Race) -> list[RunPlan]:
    """The runs of a race that are listed on the day after it."""
    return [] if race.status == rules.CANCELLED else race.night


def plan_race(
    state: ArenaState, rng: Random, problems: Sequence[ArenaProblem], *, evening: int, night: int
) -> Race | None:
    """The race of the day, or None when nobody qualified or there is nothing to race on.

    Args:
        evening, night: pairs of the two halves; the evening's number is met exactly.
    """
    threshold = state.threshold()
    if evening < 1 or threshold is None or not problems:
        return None
    low, high = state.knobs.validators_per_entry
    most = max(1, (evening + night) // (low * min(_FEWEST_PROBLEMS, len(problems))))
    qualifiers = _field(state, threshold, most)
    race = Race(
        RaceRef(make_uuid(rng), rules.race_number(state.day)),
        state.day,
        state.suite_id,
        round(threshold, 4),
        qualifiers,
    )
    share = int((evening + night) / (len(qualifiers) * (low + high) / 2))
    size = min(rules.PROBLEMS_PER_RUN, len(problems), max(1, share))
    common = Deck(rng, problems).draw(size)  # all qualifiers run the same problems
    entries = _pairings(state, rng, qualifiers)
    race.evening = _half(state, rng, race, entries, common, evening, race.started_at, state.day)
    done = len(race.evening)
    race.night = _half(
        state, rng, race, entries[done:], common, night, rules.midnight(state.day + timedelta(days=1)), None
    )
    _accidents(state, rng, race)
    return race


def _field(state: ArenaState, threshold: float, most: int) -> list[Qualifier]:
    """The incumbent and whoever is within reach of the leader, the best first, at most ``most``."""
    ranked = sorted(state.board.values(), key=lambda one: (-one.score, one.eligible_at, one.agent.agent_version_id))
    qualifiers = []
    held = state.incumbent
    if held is not None:
        qualifiers.append(Qualifier(held, rules.INCUMBENT))
    for standing in ranked:
        known = held is not None and standing.agent.hotkey == held.agent.hotkey
        if standing.score >= threshold and not known:
            qualifiers.append(Qualifier(standing, rules.SCORED))
    return qualifiers[: max(most, 2 if held is not None else 1)]


def _pairings(state: ArenaState, rng: Random, qualifiers: Sequence[Qualifier]) -> list[tuple[Qualifier, str]]:
    """(qualifier, validator) in the order in which they run.

    Everybody's first run comes before anybody's second: where the pairs run out, it is a further run that is missing.
    At the end stand the validators that an entry is not given to at first; they fill what is left of the race's pairs.
    """
    low, high = state.knobs.validators_per_entry
    chosen = {one.version_id: rng.sample(state.validators, rng.randint(low, high)) for one in qualifiers}
    rounds = [
        (one, chosen[one.version_id][turn])
        for turn in range(high)
        for one in qualifiers
        if turn < len(chosen[one.version_id])
    ]
    further = [(one, key) for one in qualifiers for key in state.validators if key not in chosen[one.version_id]]
    return rounds + rng.sample(further, len(further))


def _half(
    state: ArenaState,
    rng: Random,
    race: Race,
    entries: Sequence[tuple[Qualifier, str]],
    problems: Sequence[ArenaProblem],
    pairs: int,
    opens: int,
    day: date | None,
) -> list[RunPlan]:
    """Runs with ``pairs`` pairs in all; an evening repeats entries when all have run, a night ends with them."""
    plans: list[RunPlan] = []
    left, turn = pairs, 0
    while left > 0 and (turn < len(entries) or (day is not None and race.qualifiers)):
        if turn < len(entries):
            qualifier, key = entries[turn]
        else:
            qualifier, key = rng.choice(race.qualifiers), rng.choice(state.validators)
        part = list(problems[:left])
        start = opens + rng.randrange(5 * rules.MINUTE_MS, (170 if day else 90) * rules.MINUTE_MS)
        entry = qualifier.standing.entry
        plans.append(new_run(rng, entry, key, start, part, suite_id=race.suite_id, race=race.ref))
        left -= len(part)
        turn += 1
    if plans and day is not None:
        reach_over(plans[-1], rules.midnight(day + timedelta(days=1)))
    return plans


def _accidents(state: ArenaState, rng: Random, race: Race) -> None:
    """A cancelled race counts for nobody; now and then the runs of one qualifier go stale."""
    if rng.random() < state.knobs.cancelled_races:
        race.status = rules.CANCELLED
        for plan in race.evening:
            plan.fate = "not_included"
        for plan in race.night:
            plan.fate, plan.problems = "CANCELLED", []
        race.evening += race.night
        race.night = []
    elif len(race.qualifiers) > 2 and rng.random() < _DROPOUT:
        out = race.qualifiers[-1]
        for plan in race.night:
            if plan.agent.agent_version_id == out.version_id:
                plan.fate = "STALE"
                plan.problems = []
        for plan in race.evening:
            if plan.agent.agent_version_id == out.version_id:
                plan.fate = "not_included"


def race_row(race: Race, moment: int, iso: Any) -> dict[str, Any]:
    """One line of ``races.jsonl``: the fields of the API's race and its qualifiers, as known at a moment.

    Args:
        iso: turns (milliseconds, microseconds) into the API's text.
    """
    done = race.status == rules.COMPLETED and race.completed_at <= moment
    status = race.status if done or race.status == rules.CANCELLED else rules.RUNNING
    ended = race.completed_at if done else race.started_at + rules.HOUR_MS if status == rules.CANCELLED else None
    winner = race.winner if done else None
    return {
        "race_id": race.ref.race_id,
        "suite_id": race.suite_id,
        "status": status,
        "race_number": race.ref.number,
        "qualifying_closes_at": iso(rules.midnight(race.day) + rules.QUALIFYING_CLOSES_HOUR * rules.HOUR_MS, 0),
        "race_started_at": iso(race.started_at, 0),
        "race_completed_at": None if ended is None else iso(ended, 0),
        "winner_agent_version_id": winner.version_id if winner else None,
        "winner_score": winner.race_score if winner else None,
        "qualifying_threshold": race.threshold,
        "winner_agent_name": winner.standing.agent.name if winner else None,
        "qualifier_count": len(race.qualifiers),
        "qualifiers": [
            {
                "agent_version_id": one.version_id,
                "qualification_type": one.how,
                "agent_name": one.standing.agent.name,
                "miner_hotkey": one.standing.agent.hotkey,
                "version_number": one.standing.agent.version,
                "qualifying_score": one.standing.score,
                "race_score": one.race_score if done else None,
                "race_rank": one.rank if done else None,
                "eliminated_at": None,
                "is_discarded": False,
            }
            for one in race.qualifiers
        ],
    }


__all__ = ["RACE", "Qualifier", "Race", "Standing", "night_of", "plan_race", "race_row", "standings_of"]
