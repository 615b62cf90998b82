"""What the subnet's public API knows of a UTC day of judgment: races -> agent versions -> runs -> problem entries.

A result belongs to the UTC day of its ``updated_at`` (domain 1.10); one without a time to the day its run ended, else
began. Every result goes to exactly one day, so that the folders of two days never both name one pair. All runs are
kept, whatever became of them. What is hidden as yet is in ``Found.hidden`` and is looked for again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any

from trajectory_platform.errors import RejectRow, RetryLater
from trajectory_platform.identity import parse_utc, safe_id, utc_day
from trajectory_platform.sources.api_state import ApiState
from trajectory_platform.sources.fetch_report import UNSAFE_ID
from trajectory_platform.sources.oro_answers import EMBARGO
from trajectory_platform.sources.oro_client import OroClient
from trajectory_platform.sources.oro_records import (
    SLACK,
    Record,
    elsewhere,
    entry_order,
    is_usable_id,
    is_whole,
    other_kinds,
    pairs_of,
    race_touches,
    results_of,
    run_day,
    run_touches,
    suite_record,
    union,
    with_copies,
)
from trajectory_platform.sources.records import id_text, naive_time
from trajectory_platform.sources.wanted import Pair

MAX_FAILURES = 3  # in a row: then it is not this agent version, but the API
LONG_S = 30 * 86400.0  # a released agent version changes no more
DAY_S = 86400.0
_FACTS = ("agent_name", "miner_hotkey", "version_number", "eligible_at")


@dataclass
class Found:
    """What was found for one day; lists are sorted by id.

    Attributes:
        runs, problems, agent_versions, suite: records of the raw day's listing files (design 5).
        pairs: every (run, problem) result judged on the day.
        races: races whose time touches the day: race id -> whether it is in flight.
        suite_complete: whether every suite of the day could be read.
        hidden: agent version (or ``race:{id}``, ``suite:{id}``) -> why its listing cannot be read as yet.
        oddities: what was kept though odd, and what could not be placed: name -> count.
        expected: distinct (agent version, problem) pairs the subnet counted that day; None where it does not say.
        expected_state: ``counted``, ``cold_cache``, ``day_not_listed`` or ``unreadable``.
    """

    runs: list[Record] = field(default_factory=list)
    problems: list[Record] = field(default_factory=list)
    agent_versions: list[Record] = field(default_factory=list)
    suite: Record | None = None
    suite_complete: bool = True
    pairs: list[Pair] = field(default_factory=list)
    races: dict[str, bool] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    oddities: Counter[str] = field(default_factory=Counter)
    expected: int | None = None
    expected_state: str = "unreadable"


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
        self._age = max(max_age_s, DAY_S) if max_age_s and now - self._end >= timedelta(days=2) else max_age_s
        self._progress = progress or (lambda done, of: None)
        self._found = Found()

    def find(self) -> Found:
        """Everything of the day."""
        found = self._found
        candidates = self._candidates()
        suites: set[int] = set()
        failures = 0
        for number, (version, (facts, sure)) in enumerate(sorted(candidates.items())):
            self._progress(number, len(candidates))
            try:
                self._version(version, facts, sure=sure, suites=suites)
                failures = 0
            except RetryLater as error:
                failures += 1
                if error.reason == "rate_limited" or failures >= MAX_FAILURES:
                    raise
                found.hidden[version] = error.reason  # one answer that never comes must not hold up all others
        self._progress(len(candidates), len(candidates))
        found.suite = self._suite(sorted(suites))
        found.runs.sort(key=lambda run: str(run.get("eval_run_id")))
        found.problems.sort(key=entry_order)
        found.agent_versions.sort(key=lambda version: str(version.get("agent_version_id")))
        found.pairs = with_copies(found.pairs, found.problems)
        self._count()
        return found

    # ------------------------------------------------------------------------------------------ agent versions

    def _candidates(self) -> dict[str, tuple[Record, bool]]:
        """agent version -> (what lists say of it, whether it surely took part in the day)."""
        candidates: dict[str, tuple[Record, bool]] = {}

        def add(record: Record, *, sure: bool) -> None:
            version = id_text(record.get("agent_version_id"))
            if version is None or safe_id(version) != version:
                self._found.oddities["agent_version_without_id"] += 1
                if version is not None and sure:  # its pairs are missing on this day
                    self._found.hidden[f"version:{safe_id(version)}"] = UNSAFE_ID
                return
            facts, was_sure = candidates.get(version, ({}, False))
            merged = {**facts, **{name: record[name] for name in _FACTS if record.get(name) is not None}}
            candidates[version] = (merged, was_sure or sure)

        suites: set[int] = set()
        for race in self._races():
            if isinstance(race.get("suite_id"), int):
                suites.add(race["suite_id"])
            for qualifier in race["qualifiers"]:
                add(qualifier, sure=True)
        for version in self._state.judged_on(self._day):
            add({"agent_version_id": version}, sure=True)
        for suite in sorted(suites) or self._all_suites():
            for score_type in ("qualifying", "race"):
                for entry in self._leaderboard(suite, score_type):
                    add(entry, sure=False)
        if self._now - self._end < timedelta(days=2):
            for evaluation in self._needed("running", self._client.running):
                add(evaluation, sure=True)
        return candidates

    def _races(self) -> Iterator[Record]:
        """Races whose time touches the day, with qualifiers."""
        current = self._if_there("race:current", self._client.current_race, hold=True)
        over: set[str] = set()
        for race in self._needed("races", self._client.races):
            race_id = id_text(race.get("race_id"))
            if race_id is None or safe_id(race_id) != race_id:
                self._found.oddities["race_without_id"] += 1
                continue
            over.add(race_id)
            if race_touches(race, self._begin, self._end, self._now, ended=True):
                self._found.races[race_id] = False
                detail = self._if_there(f"race:{race_id}", partial(self._client.race, race_id), hold=True)
                yield {**race, "qualifiers": []} if detail is None else {**race, **detail}
        race_id = None if current is None else id_text(current.get("race_id"))
        if current is None or race_id is None or race_id in over:
            return
        if race_touches(current, self._begin, self._end, self._now, ended=False):
            self._found.races[race_id] = True
            yield current

    def _if_there(self, key: str, ask: Callable[[], Any], *, hold: bool) -> Any:
        """An answer; None when what is asked for is not there, which holds the day open where it must be there."""
        try:
            return self._remembered(key, ask)
        except RejectRow as error:
            self._found.oddities[f"{key.partition(':')[0]}:{error.reason}"] += 1
            if hold:
                self._found.hidden[key] = error.reason
            return None

    def _all_suites(self) -> list[int]:
        found = (suite.get("suite_id") for suite in self._needed("suites", self._client.suites))
        return sorted(number for number in found if isinstance(number, int))

    def _leaderboard(self, suite: int, score_type: str) -> list[Record]:
        return (
            self._if_there(
                f"leaderboard:{suite}:{score_type}", partial(self._client.leaderboard, suite, score_type), hold=False
            )
            or []
        )

    # ------------------------------------------------------------------------------------------ one agent version

    def _version(self, version: str, facts: Record, *, sure: bool, suites: set[int]) -> None:
        runs, hidden = self._runs(version, sure=sure)
        if hidden:
            self._found.hidden[version] = hidden
        elif not any(map(self._run_touches, runs)) and version not in self._state.judged_on(self._day):
            return
        entries, suite = self._entries(version, runs)
        by_id = {safe_id(run["eval_run_id"]): run for run in runs if id_text(run.get("eval_run_id")) is not None}
        if hidden:
            by_id = self._runs_one_by_one(entries)
            if not sure and not entries and elsewhere(facts, self._begin, self._end):
                del self._found.hidden[version]
        kept: list[Record] = []
        judged: set[date] = set()
        named: set[str] = set()
        for entry in entries:
            mine = [result for result in results_of(entry) if self._place(result, by_id, judged, named)]
            if mine:
                kept.append({**entry, "agent_version_id": version, "suite_id": suite, "validator_results": mine})
        for day in self._state.note_judged(version, judged):
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
        self._found.pairs += pairs_of(version, facts, kept, by_id)
        self._found.agent_versions.append(self._agent(version, facts))
        numbers: list[Any] = [suite, *(run.get("suite_id") for run in records)]
        suites.update(number for number in numbers if is_whole(number))

    def _runs(self, version: str, *, sure: bool) -> tuple[list[Record], str | None]:
        """The runs of a version, and why they are hidden. An answer of after the day says all where none touches it."""
        key = f"runs:{version}"
        held = self._state.answer(key)
        said_all = held is not None and not sure and held[0] >= self._end + SLACK
        if held is not None and said_all and not any(map(self._run_touches, held[1])):
            return held[1], None
        try:
            return self._remembered(key, lambda: self._client.runs(version)), None
        except RetryLater as error:
            if error.reason not in EMBARGO:
                raise
            return [], error.reason
        except RejectRow as error:
            return [], error.reason

    def _entries(self, version: str, runs: list[Record]) -> tuple[list[Record], int | None]:
        """Problem entries of a version, and its suite. A race whose entries are not among them is asked for itself."""
        answers = [self._problems(version, None)]
        named = {entry.get("race_id") for answer in answers for entry in answer["problems"]}
        races = {str(run["race_id"]) for run in runs if is_usable_id(run.get("race_id")) and self._run_touches(run)}
        answers += [self._problems(version, race) for race in sorted(races - named)]
        merged: dict[tuple[str, str, str], Record] = {}
        for answer in answers:
            if answer.get("generated_results"):
                self._found.oddities["envpack_results_not_read"] += len(answer["generated_results"])
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

    def _problems(self, version: str, race: str | None) -> Record:
        key = f"problems:{version}:{race or ''}"
        nothing: Record = {"problems": [], "suite_id": None}
        try:
            answer = self._remembered(key, lambda: self._client.problems(version, race))
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
            detail = self._if_there(f"run:{name}", partial(self._client.run, name), hold=False)
            if detail is not None:
                # The detail calls the score of a run ``score``; ``EvaluationRunPublic`` calls it ``validator_score``.
                runs[name] = {"validator_score": detail.get("score"), **detail, "record_source": "evaluation_run"}
        return runs

    def _place(self, result: Record, runs: dict[str, Record], judged: set[date], named: set[str]) -> bool:
        """Whether a result belongs to this day; notes the days of all."""
        name = id_text(result.get("eval_run_id"))
        if name is None:
            self._found.oddities["result_without_run"] += 1
            return False
        named.add(safe_id(name))
        if self._time(result.get("updated_at")) is not None:
            place = utc_day(result["updated_at"])
        else:
            place = run_day(runs.get(safe_id(name), {}))
        if place is None:
            self._found.oddities["result_without_time"] += 1
            return False
        judged.add(place)
        return place == self._day

    def _run_touches(self, run: Record) -> bool:
        return run_touches(run, self._begin, self._end, self._now)

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
            listed = {name: facts[name] for name in _FACTS if name in facts and name != "eligible_at"}
            return {"agent_version_id": version, **listed, "record_source": "listed"}

    # ------------------------------------------------------------------------------------------ the day

    def _suite(self, numbers: list[int]) -> Record | None:
        """``suite.json`` of the suites of the day: the problems of all, the head of the newest, and all heads."""
        answers = []
        for number in numbers:
            answer = self._if_there(f"suite:{number}", partial(self._client.suite_problems, number), hold=True)
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
        held = self._state.answer("history")
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

    def _needed(self, key: str, ask: Callable[[], Any]) -> Any:
        """An answer without which there is no listing of the day; that it is not there cannot be meant."""
        try:
            return self._remembered(key, ask)
        except RejectRow as error:
            raise RetryLater("listing_refused", f"{key}: {error}") from error

    def _remembered(self, key: str, ask: Callable[[], Any]) -> Any:
        return self._state.remembered(key, ask, self._now, self._age)

    def _time(self, value: Any) -> datetime | None:
        if naive_time(value):
            self._found.oddities["time_without_zone"] += 1
        return parse_utc(value)
