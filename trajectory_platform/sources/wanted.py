"""The persistent queue of wanted artifacts: what each (run, problem) pair of a day still needs.

States: ``wanted`` (to be asked for), ``later`` (hidden as yet, or refused; not before ``until``), ``fetched``,
``gone`` (for good, with a reason), ``not_sampled`` (left out by the sampling policy), ``not_asked`` (nothing to ask
for: not final yet, skipped, or no usable id). A pair is on exactly one day: the one it was judged on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from trajectory_platform.identity import parse_utc
from trajectory_platform.sources.api_state import ApiState
from trajectory_platform.sources.oro_answers import NOT_THERE

FEWEST_TRIES = 3  # before anything is given up
NOT_FOUND_AFTER = timedelta(hours=1)
_FIRST_WAIT = timedelta(minutes=30)
_LAST_WAIT = timedelta(hours=24)
LONGEST_WAIT = timedelta(days=7)  # a server may name any time; we look again after a week at the latest
STATES = ("wanted", "later", "fetched", "gone", "not_sampled", "not_asked")
_COLUMNS = (
    "eval_run_id, problem_id, day, agent_version_id, miner, race_id, rank, state, reason, until, tries, first_try,"
    " sha256, size, stratum, probability, not_found"
)


UNUSED = 2  # rank of the pairs of a run that is not used for training
IN_WHOLE_FILE = "in_whole_file"  # why a pair is gone whose trace lies in the file of another pair of its run
_CHANGED = """(wanted.state = 'not_asked' OR (excluded.state = 'not_asked' AND
    wanted.state IN ('wanted', 'later', 'not_sampled')))"""
_MISSING = ", ".join(f"'{reason}'" for reason in NOT_THERE)
# What makes a pair that was given up one to ask for: it was judged on another day, or its run is used after all.
_AFRESH = f"""(wanted.state = 'gone' AND wanted.reason IS NOT '{IN_WHOLE_FILE}' AND (wanted.day <> excluded.day
    OR (wanted.rank >= {UNUSED} AND excluded.rank < {UNUSED} AND wanted.reason IN ({_MISSING}))))"""


class Pair(NamedTuple):
    """One (run, problem) as discovery sees it.

    Attributes:
        eval_run_id, problem_id, agent_version_id: safe ids (``identity.safe_id`` leaves them as they are).
        miner: hotkey, or "" where it is not known.
        race_id: the race, or None for a qualifying run.
        rank: order of asking and of sampling: 0 usable, 1 a further copy of the same (agent version, problem),
            2 a run that is not used for training (invalidated, not included, failed).
        not_asked: why there is nothing to ask for (yet), or None.
    """

    eval_run_id: str
    problem_id: str
    agent_version_id: str
    miner: str
    race_id: str | None
    rank: int
    not_asked: str | None


class Row(NamedTuple):
    """One row of the queue; times are ISO text in UTC.

    ``tries`` counts refusals of any kind, ``not_found`` those that say there is nothing, the first at ``first_try``.
    """

    eval_run_id: str
    problem_id: str
    day: str
    agent_version_id: str
    miner: str
    race_id: str | None
    rank: int
    state: str
    reason: str | None
    until: str | None
    tries: int
    first_try: str | None
    sha256: str | None
    size: int | None
    stratum: str | None
    probability: float | None
    not_found: int = 0


class WantedQueue:
    """The queue of one state folder."""

    def __init__(self, state: ApiState) -> None:
        self._state = state

    def put(self, day: date, pairs: Iterable[Pair], *, unread: Collection[str] = ()) -> list[Row]:
        """Record what was discovered for a day; what is known of a pair already is kept.

        A pair that becomes final is wanted from now on; one that was judged anew moves to this day, and is asked for
        again where it was given up; one of this day that is no longer listed is not asked for (where it was fetched, it
        stays).

        Args:
            day: the UTC day the pairs were judged on.
            pairs: all pairs of the day.
            unread: agent versions whose listing could not be read this time; their pairs stay as they are.

        Returns:
            Rows as they were before, of pairs that were on another day: what was fetched for them has to move.
        """
        pairs = list(pairs)
        listed = {(pair.eval_run_id, pair.problem_id) for pair in pairs}
        with self._state.transaction():
            moved = self.on_other_days(day, pairs)
            for row in self.rows(day, ("wanted", "later", "not_sampled", "not_asked")):
                if (row.eval_run_id, row.problem_id) not in listed and row.agent_version_id not in unread:
                    self._set(row, "not_asked", reason="no_longer_listed")
            self._state.write(
                f"""INSERT INTO wanted (eval_run_id, problem_id, day, agent_version_id, miner, race_id, rank, state,
                reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (eval_run_id, problem_id) DO UPDATE SET
                day = excluded.day, miner = excluded.miner, race_id = excluded.race_id, rank = excluded.rank,
                tries = CASE WHEN {_AFRESH} THEN 0 ELSE wanted.tries END,
                not_found = CASE WHEN {_AFRESH} THEN 0 ELSE wanted.not_found END,
                first_try = CASE WHEN {_AFRESH} THEN NULL ELSE wanted.first_try END,
                state = CASE WHEN {_AFRESH} OR {_CHANGED} THEN excluded.state ELSE wanted.state END,
                reason = CASE WHEN {_AFRESH} OR {_CHANGED} THEN excluded.reason ELSE wanted.reason END""",
                [
                    (
                        *pair[:2],
                        day.isoformat(),
                        *pair[2:6],
                        "not_asked" if pair.not_asked else "wanted",
                        pair.not_asked,
                    )
                    for pair in pairs
                ],
            )
            for other in sorted({row.day for row in moved}):  # with the move itself, or a killed look forgets it
                self._state.reopen(date.fromisoformat(other), "judged_again")
            self._let_go(row for row in moved if row.state == "fetched")
        return moved

    def on_another_day(self, day: date, run_and_problem: tuple[str, str]) -> Row | None:
        """The row of a pair that is another day's."""
        sql = f"SELECT {_COLUMNS} FROM wanted WHERE eval_run_id = ? AND problem_id = ? AND day <> ?"
        found = self._state.rows(sql, (*run_and_problem, day.isoformat()))
        return Row(*found[0]) if found else None

    def of_run(self, eval_run_id: str) -> list[Row]:
        """Rows of a run, whatever their day, sorted by problem."""
        return sorted(self._of_runs([eval_run_id]))

    def rows(self, day: date, states: Collection[str] = STATES) -> list[Row]:
        """Rows of a day, in the order in which they are asked for."""
        marks = ",".join("?" * len(states))
        sql = f"SELECT {_COLUMNS} FROM wanted WHERE day = ? AND state IN ({marks}) ORDER BY rank, tries, 1, 2"
        return [Row(*row) for row in self._state.rows(sql, (day.isoformat(), *states))]

    def due(self, day: date, now: datetime) -> list[Row]:
        """What may be asked for now: wanted, and later whose time has come."""
        return [row for row in self.rows(day, ("wanted", "later")) if row.state == "wanted" or _come(row.until, now)]

    def fetched(self, row: Row, sha256: str, size: int, note: str | None = None) -> None:
        """The bytes lie in the day's folder; ``note`` says what is odd about them."""
        self._set(row, "fetched", reason=note, sha256=sha256, size=size)

    def later(self, row: Row, reason: str, now: datetime, after_s: float | None = None) -> None:
        """Hidden as yet: not before the time the API named, else after a wait that doubles from 1 to 24 hours."""
        wait = _wait(after_s) if after_s is not None else min(_LAST_WAIT, timedelta(hours=2 ** min(row.tries, 5)))
        self._set(row, "later", reason=reason, until=now + wait, tries=row.tries + 1, first=row.first_try)

    def not_there(self, row: Row, reason: str, now: datetime) -> None:
        """Not found: gone after three such answers over an hour or more, whatever came between; later before that.

        For a run that is not used nothing is expected to be there, so one try is enough.
        """
        first = parse_utc(row.first_try)
        if row.not_found == 0 or first is None or first > now:  # or the clock was ahead then
            first = now
        times = row.not_found + 1
        gone = row.rank >= UNUSED or (times >= FEWEST_TRIES and now - first >= NOT_FOUND_AFTER)
        self._set(
            row,
            "gone" if gone else "later",
            reason=reason,
            until=None if gone else now + _FIRST_WAIT,
            tries=row.tries + 1,
            not_found=times,
            first=first,
        )

    def gone(self, row: Row, reason: str) -> None:
        """For good."""
        self._set(row, "gone", reason=reason)

    def want_again(self, row: Row, reason: str = "file_vanished") -> None:
        """Its file, or the one it lay in, is no longer there: asked for as if for the first time.

        Pairs of other days that lay in its file are to be looked at again.
        """
        with self._state.transaction():
            self._set(row, "wanted", reason=reason, tries=0, not_found=0)
            self._let_go([row])

    def holds(self, row: Row, inside: Mapping[str, bool]) -> None:
        """The file of a pair holds traces of several: problem -> whether its trace can be read."""
        with self._state.transaction():
            self._state.write(
                "DELETE FROM inside WHERE eval_run_id = ? AND holder = ?", [(row.eval_run_id, row.problem_id)]
            )
            self._state.write(
                "INSERT INTO inside VALUES (?, ?, ?, ?)",
                [(row.eval_run_id, row.problem_id, name, int(sound)) for name, sound in sorted(inside.items())],
            )

    def inside_files(self, day: date) -> dict[tuple[str, str], bool]:
        """Pairs of a day that lie in the file of another pair, of that day or of one beside it.

        Their value is whether they can be read in a file of the day itself.
        """
        found = self._state.rows(
            """SELECT mine.eval_run_id, mine.problem_id, max(inside.sound AND holder.day = mine.day) FROM wanted AS mine
            JOIN inside ON inside.eval_run_id = mine.eval_run_id AND inside.problem_id = mine.problem_id
            JOIN wanted AS holder ON holder.eval_run_id = inside.eval_run_id AND holder.problem_id = inside.holder
            WHERE mine.day = ? AND holder.state = 'fetched' AND holder.problem_id <> mine.problem_id
            AND holder.day IN (?, ?, ?) GROUP BY 1, 2""",
            (day.isoformat(), *((day + timedelta(days=number)).isoformat() for number in (-1, 0, 1))),
        )
        return {(run, problem): bool(sound) for run, problem, sound in found}

    def _let_go(self, holders: Iterable[Row]) -> None:
        """Files that have moved or vanished: the days of the pairs inside are to be looked at again."""
        runs = {row.eval_run_id for row in holders}
        inside = {row.day for row in self._of_runs(runs) if row.state == "gone" and row.reason == IN_WHOLE_FILE}
        for day in sorted(inside):
            self._state.reopen(date.fromisoformat(day), "whole_file_gone")

    def ask_again(self, day: date, reason: str) -> int:
        """What waits, or was given up, for a reason that may be mended now is due at once; the number of pairs."""
        return self._state.write(
            """UPDATE wanted SET state = 'later', reason = ?, until = NULL WHERE day = ? AND (
            (state = 'later' AND reason = ?) OR (state = 'gone' AND reason = 'given_up:' || ?))""",
            [(reason, day.isoformat(), reason, reason)],
        )

    def race_in_flight(self, day: date, race_id: str, now: datetime, after_s: float | None) -> int:
        """All pairs of a race that is in flight are later, a try each without asking for it; the number of them."""
        until = (now + _wait(3600.0 if after_s is None else after_s)).isoformat()
        return self._state.write(
            """UPDATE wanted SET state = 'later', reason = 'race_in_flight', until = ?, tries = tries + 1
            WHERE day = ? AND race_id = ? AND state IN ('wanted', 'later')""",
            [(until, day.isoformat(), race_id)],
        )

    def choose(self, chosen: Mapping[tuple[str, str], tuple[bool, str, float]]) -> None:
        """Record the choice of the sampling policy: (run, problem) -> (chosen, stratum, probability)."""
        self._state.write(
            """UPDATE wanted SET stratum = ?, probability = ?,
            reason = CASE WHEN ? = 0 AND state IN ('wanted', 'later') THEN 'request_budget' ELSE reason END,
            state = CASE WHEN ? = 0 AND state IN ('wanted', 'later') THEN 'not_sampled'
                WHEN ? = 1 AND state = 'not_sampled' THEN 'wanted' ELSE state END
            WHERE eval_run_id = ? AND problem_id = ?""",
            [
                (stratum, probability, int(taken), int(taken), int(taken), *key)
                for key, (taken, stratum, probability) in sorted(chosen.items())
            ],
        )

    def sample_everything(self, day: date) -> None:
        """Without a budget nothing is left out."""
        self._state.write(
            """UPDATE wanted SET stratum = NULL, probability = NULL,
            reason = CASE WHEN state = 'not_sampled' THEN NULL ELSE reason END,
            state = CASE WHEN state = 'not_sampled' THEN 'wanted' ELSE state END WHERE day = ?""",
            [(day.isoformat(),)],
        )

    def give_up(self, day: date) -> int:
        """What was hidden or failed again and again until now is given up with the reason; the number of pairs.

        Of what was asked for, what was asked for three times. What was not asked for yet stays wanted, and what was not
        found has its own rule (``not_there``).
        """
        return self._state.write(
            f"""UPDATE wanted SET state = 'gone', reason = 'given_up:' || reason, until = NULL WHERE day = ? AND (
            (state = 'later' AND tries >= ? AND reason NOT IN ({_MISSING}))
            OR (state = 'not_asked' AND reason = 'not_final'))""",
            [(day.isoformat(), FEWEST_TRIES)],
        )

    def on_other_days(self, day: date, pairs: Collection[Pair]) -> list[Row]:
        """Rows of these pairs that are another day's."""
        listed = {(pair.eval_run_id, pair.problem_id) for pair in pairs}
        rows = self._of_runs({pair.eval_run_id for pair in pairs})
        return [row for row in rows if row.day != day.isoformat() and (row.eval_run_id, row.problem_id) in listed]

    def missed(self, places: Mapping[tuple[str, str], date]) -> list[date]:
        """Days on which pairs are judged (``places``) that the queue still has on another day, sorted."""
        rows = self._of_runs({run for run, _ in places})
        keys = [((row.eval_run_id, row.problem_id), row.day) for row in rows]
        return sorted({places[key] for key, day in keys if key in places and places[key].isoformat() != day})

    def days_of(self, runs: Collection[str]) -> list[date]:
        """Days on which pairs of these runs are, sorted."""
        return sorted({date.fromisoformat(row.day) for row in self._of_runs(runs)})

    def _of_runs(self, runs: Collection[str]) -> list[Row]:
        """Rows of these runs, whatever their day."""
        ordered = sorted(runs)
        found: list[Row] = []
        for start in range(0, len(ordered), 500):
            part = ordered[start : start + 500]
            sql = f"SELECT {_COLUMNS} FROM wanted WHERE eval_run_id IN ({','.join('?' * len(part))})"
            found += (Row(*row) for row in self._state.rows(sql, part))
        return found

    def _set(
        self,
        row: Row,
        state: str,
        *,
        reason: str | None,
        until: datetime | None = None,
        tries: int | None = None,
        not_found: int | None = None,
        first: datetime | str | None = None,
        sha256: str | None = None,
        size: int | None = None,
    ) -> None:
        values: tuple[Any, ...] = (
            state,
            reason,
            None if until is None else until.isoformat(),
            row.tries if tries is None else tries,
            row.not_found if not_found is None else not_found,
            first.isoformat() if isinstance(first, datetime) else first,
            sha256,
            size,
            row.eval_run_id,
            row.problem_id,
        )
        self._state.write(
            """UPDATE wanted SET state = ?, reason = ?, until = ?, tries = ?, not_found = ?, first_try = ?, sha256 = ?,
            size = ? WHERE eval_run_id = ? AND problem_id = ?""",
            [values],
        )


def _wait(after_s: float) -> timedelta:
    """A wait that a server asked for, within what a queue should wait for one."""
    return timedelta(seconds=min(max(after_s, 0.0), LONGEST_WAIT.total_seconds()))


def _come(until: str | None, now: datetime) -> bool:
    """Whether a time has come; one further away than anything is ever put off was written by a clock that was ahead."""
    moment = parse_utc(until)
    return moment is None or moment <= now or moment - now > LONGEST_WAIT
