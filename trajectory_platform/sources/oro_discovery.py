"""What the subnet's public API knows of a UTC day of judgment: races -> agent versions -> runs -> problem entries.

A result belongs to the UTC day of its ``updated_at`` (domain 1.10); one without a time to the day its run ended, else
began. Every result goes to exactly one day, so that the folders of two days never both name one pair. All runs are
kept, whatever became of them. What is hidden as yet is in ``Found.hidden`` and is looked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any

from trajectory_platform.errors import RejectRow, RetryLater
from trajectory_platform.identity import parse_utc, safe_id, utc_day
from trajectory_platform.sources.api_state import ApiState
from trajectory_platform.sources.oro_answers import EMBARGO
from trajectory_platform.sources.oro_asking import Asking
from trajectory_platform.sources.oro_candidates import Candidates
from trajectory_platform.sources.oro_client import OroClient
from trajectory_platform.sources.oro_found import Found
from trajectory_platform.sources.oro_records import (
    FACTS,
    SLACK,
    Record,
    elsewhere,
    entry_order,
    generated_runs,
    is_usable_id,
    is_whole,
    other_kinds,
    pair_key,
    pairs_of,
    places_of,
    results_of,
    run_day,
    run_touches,
    suite_record,
    union,
    verdict_of,
    with_copies,
)
from trajectory_platform.sources.records import id_text, naive_time
from trajectory_platform.sources.wanted import WantedQueue

MAX_FAILURES = 3  # in a row: then it is not this agent version, but the API
LONG_S = 30 * 86400.0  # a released agent version changes no more
DAY_S = 86400.0
LATE_DAYS = 7  # by which a result may be judged again after it was judged first, or after its run ended


class Discovery:
    """Reads the listing of one day. Answers younger than ``max_age_s`` are used again (a resumed or next day's look).

    Raises:
        RetryLater: from any method, when the API does not answer; nothing is lost, the answers so far are remembered.
    """

    def __init__(
        self,
        client: OroClient,
        state: ApiState,
        day: date,
        now: datetime,
        *,
        max_age_s: float,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._client, self._state, self._day, self._now = client, state, day, now
        self._begin = datetime.combine(day, time(), tzinfo=UTC)
        self._end = self._begin + timedelta(days=1)
        # What is over for two days changes rarely: an answer of the same day will do. 0 asks anew in any case.
        age = max(max_age_s, DAY_S) if max_age_s and now - self._end >= timedelta(days=2) else max_age_s
        self._progress = progress or (lambda done, of: None)
        self._found = Found()
        self._asking = Asking(state, self._found, now, age)
        self._age = age
        self._suites: set[int] = set()
        self._read: set[str] = set()  # agent versions whose entries were looked through
        self._idle: set[str] = set()  # those that ran shortly before the day, and not on it

    def find(self) -> Found:
        """Everything of the day."""
        found = self._found
        candidates = Candidates(self._client, self._state, self._asking, found, self._begin, self._now).find()
        failures = 0
        for number, (version, (facts, sure)) in enumerate(sorted(candidates.items())):
            self._progress(number, len(candidates))
            try:
                self._version(version, facts, sure=sure)
                failures = 0
            except RetryLater as error:
                failures += 1
                if error.reason == "rate_limited" or failures >= MAX_FAILURES:
                    raise
                found.hidden[version] = error.reason  # one answer that never comes must not hold up all others
        self._progress(len(candidates), len(candidates))
        self._count()
        self._judged_late({version: facts for version, (facts, _) in candidates.items()})
        found.suite = self._suite(sorted(self._suites))
        found.runs.sort(key=lambda run: str(run.get("eval_run_id")))
        found.problems.sort(key=entry_order)
        found.agent_versions.sort(key=lambda version: str(version.get("agent_version_id")))
        found.pairs = with_copies(found.pairs, found.problems)
        return found

    def _judged_late(self, facts: Mapping[str, Record]) -> None:
        """Look for what the subnet counted beyond what was found: results that were judged again on this day.

        A run keeps its times when a result of it is judged again, so no run tells. Asked are versions that ran, or had
        results, in the days before, until the count is reached; what was answered long enough after the day is not
        asked for again.
        """
        found = self._found
        if found.expected is None or self._now < self._end:
            return
        before = (self._day - timedelta(days=number) for number in range(1, LATE_DAYS + 1))
        names = {version for day in before for version in self._state.judged_on(day)} | self._idle
        seen, failures = -1, 0
        for version in sorted(names - self._read - set(found.hidden)):
            if len(found.problems) != seen and found.distinct() >= found.expected:
                return
            seen = len(found.problems)
            try:
                self._version(version, facts.get(version, {}), sure=False, late=True)
                reason = found.hidden.pop(version, None)
                failures = 0
            except RetryLater as error:
                failures += 1
                if error.reason == "rate_limited" or failures >= MAX_FAILURES:
                    raise
                reason = error.reason
            if reason is not None:  # it holds no day open: most likely there is nothing of this day
                found.oddities[f"judged_late_unread:{reason}"] += 1

    # ------------------------------------------------------------------------------------------ one agent version

    def _version(self, version: str, facts: Record, *, sure: bool, late: bool = False) -> None:
        runs, hidden = self._runs(version, sure=sure)
        if hidden:
            self._found.hidden[version] = hidden
        elif not (late or any(map(self._run_touches, runs)) or version in self._state.judged_on(self._day)):
            if any(map(self._ran_before, runs)):
                self._idle.add(version)
            return
        self._read.add(version)
        entries, suite = self._entries(version, runs, late=late)
        by_id = {safe_id(run["eval_run_id"]): run for run in runs if id_text(run.get("eval_run_id")) is not None}
        if hidden:
            by_id = self._runs_one_by_one(entries)
            if not sure and not entries and elsewhere(facts, self._begin, self._end):
                del self._found.hidden[version]
        named: set[str] = set()
        days = [[self._place(result, by_id, named) for result in results_of(entry)] for entry in entries]
        places = places_of(entries, days)
        kept: list[Record] = []
        for entry, at in zip(entries, days, strict=True):
            here = [result for result, day in zip(results_of(entry), at, strict=True) if day == self._day]
            mine = [result for result in here if places[pair_key(entry, result)] == self._day]
            if len(mine) < len(here):
                self._found.oddities["older_result_of_a_pair"] += len(here) - len(mine)
            if mine:
                kept.append({**entry, "agent_version_id": version, "suite_id": suite, "validator_results": mine})
        self._found.elsewhere |= {pair: day for pair, day in places.items() if day != self._day}
        for day in self._state.note_judged(version, set(places.values())):
            if day != self._day:
                self._state.reopen(day, "judged_again")
        used = {safe_id(result["eval_run_id"]) for entry in kept for result in entry["validator_results"]}
        records = [
            run
            for name, run in sorted(by_id.items())
            if name in used or (name not in named and run_day(run) == self._day)
        ]
        if not kept and not records:
            return
        self._found.problems += kept
        self._found.runs += records
        agent = self._agent(version, facts)
        self._found.pairs += pairs_of(version, {**agent, **facts}, kept, by_id)
        self._found.agent_versions.append(agent)
        numbers: list[Any] = [suite, *(run.get("suite_id") for run in records)]
        self._suites.update(number for number in numbers if is_whole(number))

    def _runs(self, version: str, *, sure: bool) -> tuple[list[Record], str | None]:
        """The runs of a version, and why they are hidden. An answer of after the day says all where none touches it."""
        key = f"runs:{version}"
        held = self._state.answer(key, self._now)
        said_all = held is not None and not sure and held[0] >= self._end + SLACK
        if held is not None and said_all and not any(map(self._run_touches, held[1])):
            return held[1], None
        try:
            return self._asking.remembered(key, lambda: self._compared(version, held and held[1])), None
        except RetryLater as error:
            if error.reason not in EMBARGO:
                raise
            return [], error.reason
        except RejectRow as error:
            return [], error.reason

    def _compared(self, version: str, before: list[Record] | None) -> list[Record]:
        """The runs of a version as they are now.

        A run may be invalidated, or included, after its days are final (domain 1.10): they are looked at again.
        """
        runs: list[Record] = self._client.runs(version)
        known = {str(run.get("eval_run_id")): verdict_of(run) for run in before or ()}
        now = {str(run.get("eval_run_id")): verdict_of(run) for run in runs}
        changed = [safe_id(name) for name, verdict in known.items() if name in now and now[name] != verdict]
        for day in WantedQueue(self._state).days_of(changed):
            if day != self._day:
                self._state.reopen(day, "run_changed")
        return runs

    def _entries(self, version: str, runs: list[Record], *, late: bool) -> tuple[list[Record], int | None]:
        """Problem entries of a version, and its suite. A race whose entries are not among them is asked for itself."""
        answers = [self._problems(version, None, late=late)]
        named = {entry.get("race_id") for answer in answers for entry in answer["problems"]}
        # A result may have been judged here long after its run, as on a day at which that was found by its count.
        before = late or version in self._state.judged_on(self._day)
        races = {
            str(run["race_id"])
            for run in runs
            if is_usable_id(run.get("race_id")) and (self._run_touches(run) or (before and self._ran_before(run)))
        }
        answers += [self._problems(version, race, late=late) for race in sorted(races - named)]
        merged: dict[tuple[str, str, str], Record] = {}
        generated = generated_runs(answers, self._day)
        if generated:
            self._found.oddities["envpack_results_not_read"] += len(generated)
        for answer in answers:
            for entry in answer["problems"]:
                key = entry_order(entry)[1:]
                held = merged.get(key)
                if held is not None:
                    entry = {**held, "validator_results": union(results_of(held), results_of(entry))}
                merged[key] = entry
        suite = next((answer["suite_id"] for answer in answers if is_whole(answer.get("suite_id"))), None)
        if suite is None:
            suite = next((run["suite_id"] for run in runs if is_whole(run.get("suite_id"))), None)
        return list(merged.values()), suite

    def _problems(self, version: str, race: str | None, *, late: bool) -> Record:
        key = f"problems:{version}:{race or ''}"
        nothing: Record = {"problems": [], "suite_id": None}
        held = self._asking.held_since(key, self._end + SLACK) if late else None
        if held is not None:  # whatever was judged on the day was judged by then
            return dict(held)
        try:
            answer = self._asking.remembered(key, lambda: self._client.problems(version, race))
        except RetryLater as error:
            if error.reason not in EMBARGO:
                raise
            self._found.hidden[version] = error.reason
            return nothing
        except RejectRow as error:
            self._found.oddities[f"problems:{error.reason}"] += 1
            self._found.hidden[version] = error.reason
            return nothing
        return dict(answer)

    def _runs_one_by_one(self, entries: list[Record]) -> dict[str, Record]:
        """Run records where the list of a version's runs is hidden: each run that a result of the day names."""
        names = {
            safe_id(result["eval_run_id"])
            for entry in entries
            for result in results_of(entry)
            if utc_day(result.get("updated_at")) in (None, self._day)
        }
        runs = {}
        for name in sorted(names):
            detail = self._asking.if_there(f"run:{name}", partial(self._client.run, name), hold=False)
            if detail is not None:
                # The detail calls the score of a run ``score``; ``EvaluationRunPublic`` calls it ``validator_score``.
                runs[name] = {"validator_score": detail.get("score"), **detail, "record_source": "evaluation_run"}
        return runs

    def _place(self, result: Record, runs: dict[str, Record], named: set[str]) -> date | None:
        """The day a result belongs to, where it has one; its run is added to ``named``."""
        name = id_text(result.get("eval_run_id"))
        if name is None:
            self._found.oddities["result_without_run"] += 1
            return None
        named.add(safe_id(name))
        if self._time(result.get("updated_at")) is not None:
            place = utc_day(result["updated_at"])
        else:
            place = run_day(runs.get(safe_id(name), {}))
        if place is None:
            self._found.oddities["result_without_time"] += 1
        return place

    def _run_touches(self, run: Record) -> bool:
        return run_touches(run, self._begin, self._end, self._now)

    def _ran_before(self, run: Record) -> bool:
        return run_touches(run, self._begin - timedelta(days=LATE_DAYS), self._begin, self._now)

    def _agent(self, version: str, facts: Record) -> Record:
        """The record of an agent version; of one that is hidden, what the lists say of it."""
        try:
            record: Record = self._state.remembered(
                f"agent:{version}", lambda: self._client.agent_version(version), self._now, LONG_S
            )
            return record
        except (RetryLater, RejectRow) as error:
            if isinstance(error, RetryLater) and error.reason not in EMBARGO:
                raise
            self._found.oddities[f"agent_version_hidden:{error.reason}"] += 1
            listed = {name: facts[name] for name in FACTS if name in facts and name != "eligible_at"}
            return {"agent_version_id": version, **listed, "record_source": "listed"}

    # ------------------------------------------------------------------------------------------ the day

    def _suite(self, numbers: list[int]) -> Record | None:
        """``suite.json`` of the suites of the day: the problems of all, the head of the newest, and all heads."""
        answers = []
        for number in numbers:
            answer = self._asking.if_there(f"suite:{number}", partial(self._client.suite_problems, number), hold=True)
            if answer is not None:
                answers.append(answer)
        if not answers:
            return None
        self._found.suite_complete = len(answers) == len(numbers)
        for kind in other_kinds(answers):
            self._found.oddities[f"suite_kind:{kind[:40]}"] += 1
        return suite_record(answers)

    def _count(self) -> None:
        """What the subnet counted for the day. A cold cache says nothing; it is never zero (domain 6: 54)."""
        found = self._found
        held = self._state.answer("history", self._now)
        old = None if held is None or held[0] < self._end else held[1]
        young = held is not None and (self._now - held[0]).total_seconds() < self._age
        try:
            history = old if old is not None and young else self._client.trajectory_history()
        except (RetryLater, RejectRow):
            if old is None:
                return
            history = old
        series = history.get("series")
        if history.get("total") is None or not isinstance(series, list) or not series:
            found.expected_state = "cold_cache"
            return
        if history is not old:
            self._state.remember("history", history, self._now)
        found.expected_state = "day_not_listed"
        for point in series:
            named = isinstance(point, dict) and point.get("date") == self._day.isoformat()
            if named and is_whole(point.get("distinct")):
                found.expected, found.expected_state = point["distinct"], "counted"

    def _time(self, value: Any) -> datetime | None:
        if naive_time(value):
            self._found.oddities["time_without_zone"] += 1
        return parse_utc(value)
