"""The qualifying of one day: who submits when, which problems its validators run, and runs that never end."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from trajectory_platform.arena import rules
from trajectory_platform.arena.entry import own_entry
from trajectory_platform.arena.knobs import EntryKnobs, Knobs
from trajectory_platform.arena.plan import (
    GHOSTS,
    Deck,
    Entry,
    RunPlan,
    charge,
    ghost_pairs,
    kind_weights,
    new_run,
    next_kind,
    run_size,
    set_fates,
)
from trajectory_platform.arena.problems import ArenaProblem
from trajectory_platform.errors import Abort

if TYPE_CHECKING:
    from trajectory_platform.arena.cycle import ArenaState

_FIRST_MINUTE, _LAST_MINUTE = 10, 22 * 60  # of the day, for submissions


def first_debts(knobs: Knobs, seed: int) -> dict[str, float]:
    """Where the kinds start in the queue: by chance, so that the small ones do not all come last."""
    rng = Random(f"debts|{seed}")
    step = 2.0 * run_size(knobs.traces_per_day)
    return {kind: (rng.random() - 0.5) * step for kind in kind_weights(knobs)}


def plan_day(state: ArenaState, rng: Random, pairs: int, *, ghosts: bool = True) -> list[RunPlan]:
    """Qualifying runs with ``pairs`` executed pairs in all, then the day's ghosts.

    Raises:
        Abort: the miners the knobs allow cannot submit often enough for that many pairs.
    """
    day = _Day(state, rng, pairs)
    plans: list[RunPlan] = []
    left = pairs
    for knobs in state.knobs.entries if ghosts else ():
        plans += day.enter_own(knobs, min(left, knobs.pairs_per_day))
        left = pairs - sum(len(plan.problems) for plan in plans)
    scripted: list[RunPlan] = []
    while left > 0:
        runs = day.submission(left)
        left -= sum(len(plan.problems) for plan in runs)
        scripted += runs
    set_fates(rng, scripted, rules.midnight(state.day) + rules.DAY_MS)
    plans += scripted
    return plans + (day.ghosts() if ghosts and ghost_pairs(state.knobs.traces_per_day) else [])


class _Day:
    """One day's queue of submissions."""

    def __init__(self, state: ArenaState, rng: Random, pairs: int) -> None:
        self.state, self.rng, self.knobs = state, rng, state.knobs
        self.weights = kind_weights(state.knobs)
        self.deck = Deck(rng, state.suite)
        self.midnight = rules.midnight(state.day)
        self.busy: set[str] = set()
        self.of_group: dict[str, list[ArenaProblem]] = {}
        low, high = state.knobs.validators_per_entry
        self.size, self.submissions = _sizes(state.knobs, pairs, (low + high) / 2, len(state.suite))
        share = self.submissions * 1.5
        self.room = {kind: max(3, round(weight * share)) for kind, weight in self.weights.items()}

    def submission(self, left: int) -> list[RunPlan]:
        """One more submission and its runs, at most ``left`` pairs."""
        kind = next_kind(self.state.debts, self.weights)
        entry = self._entry(kind)
        problems = self.deck.draw(self.size)
        group = entry.agent.group
        if group is not None:
            problems = self.of_group.setdefault(group, problems)
        plans = self._runs(entry, problems, left)
        charge(self.state.debts, self.weights, entry.agent.kind, sum(len(plan.problems) for plan in plans))
        return plans

    def enter_own(self, knobs: EntryKnobs, pairs: int) -> list[RunPlan]:
        """The runs of one of our own policies; its version stays the same as long as its checkpoint does."""
        first = self.midnight + _FIRST_MINUTE * rules.MINUTE_MS
        entry = own_entry(knobs, self.state.own_submitted.setdefault(knobs.checkpoint_id, first))
        plans: list[RunPlan] = []
        while pairs > 0:
            runs = self._runs(entry, self.deck.draw(self.size), pairs)
            pairs -= sum(len(plan.problems) for plan in runs)
            plans += runs
        return plans

    def ghosts(self) -> list[RunPlan]:
        """Runs that were never finished; their agent versions have no other run that day."""
        found = []
        for status, entries in GHOSTS:
            entry = self._newcomer(next_kind(self.state.debts, self.weights))
            problems = self.rng.sample(self.state.suite, min(len(entries), len(self.state.suite)))
            key = self.rng.choice(self.state.validators)
            start = entry.submitted_at + self.rng.randrange(60_000, 600_000)
            found.append(new_run(self.rng, entry, key, start, problems, suite_id=self.state.suite_id, fate=status))
        return found

    def _runs(self, entry: Entry, problems: list[ArenaProblem], left: int) -> list[RunPlan]:
        """The runs of one entry: two to three validators, each on its own."""
        low, high = self.knobs.validators_per_entry
        keys = self.rng.sample(self.state.validators, self.rng.randint(low, high))
        plans = []
        queued = max(entry.submitted_at, self.midnight)  # an own version is run again every day
        for key in keys:
            part = problems[:left]
            if not part:
                break
            start = queued + self.rng.randrange(2 * rules.MINUTE_MS, 45 * rules.MINUTE_MS)
            plans.append(new_run(self.rng, entry, key, start, part, suite_id=self.state.suite_id))
            left -= len(part)
        return plans

    def _entry(self, kind: str) -> Entry:
        """A submission of this kind; once the miners of the day are all in, one of them submits a second time."""
        limit = self.knobs.miners
        if limit is None or len(self.busy) < limit:
            return self._newcomer(kind)
        kinds = sorted(self.weights, key=lambda name: (-self.state.debts[name], name))
        moment = self.midnight + _LAST_MINUTE * rules.MINUTE_MS
        entry = self.state.roster.again(self.rng, self.busy, kinds, moment)
        if entry is None:
            raise Abort(
                f"{self.knobs.traces_per_day} traces a day are too many for {limit} miners: each may submit every "
                f"{rules.SUBMISSION_COOLDOWN_MS // rules.HOUR_MS} hours; allow more miners"
            )
        return entry

    def _newcomer(self, kind: str) -> Entry:
        """A submission by a miner that has not submitted today."""
        last = 9 * 60 if self.knobs.miners is not None else _LAST_MINUTE  # leave time for a second submission
        moment = self.midnight + self.rng.randrange(_FIRST_MINUTE * rules.MINUTE_MS, last * rules.MINUTE_MS)
        entry = self.state.roster.enter(self.rng, kind, moment, room=self.room[kind], busy=self.busy)
        self.busy.add(entry.agent.hotkey)
        return entry


def _sizes(knobs: Knobs, pairs: int, validators: float, suite: int) -> tuple[int, float]:
    """(problems per run, expected submissions of the day)."""
    most = min(rules.PROBLEMS_PER_RUN, suite)
    size = min(run_size(knobs.traces_per_day), most)
    if knobs.miners is not None:
        size = max(1, min(most, round(pairs / (knobs.miners * validators))))
    return size, pairs / (size * validators)
