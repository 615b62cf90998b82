"""Which agent versions may have results of a day: qualifiers of its races, leaderboards, and what was seen before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from trajectory_platform.identity import safe_id
from trajectory_platform.sources.api_state import ApiState
from trajectory_platform.sources.fetch_report import UNSAFE_ID
from trajectory_platform.sources.oro_asking import Asking
from trajectory_platform.sources.oro_client import OroClient
from trajectory_platform.sources.oro_found import Found
from trajectory_platform.sources.oro_records import (
    ELIGIBLE_WITHIN,
    FACTS,
    Record,
    elsewhere,
    is_whole,
    race_began,
    race_touches,
)
from trajectory_platform.sources.records import id_text

_RUNNING_FOR = timedelta(days=2)  # after the end of a day what runs now may have begun on it
_RUN_AFTER_ELIGIBLE = timedelta(days=1)  # by which runs of another validator may end after a version became eligible


class Candidates:
    """Reads the lists that name agent versions of the day from ``begin`` to ``end``; races go to ``found.races``."""

    def __init__(
        self, client: OroClient, state: ApiState, asking: Asking, found: Found, begin: datetime, now: datetime
    ) -> None:
        self._client, self._state, self._asking, self._found = client, state, asking, found
        self._begin, self._end, self._now = begin, begin + timedelta(days=1), now
        self._candidates: dict[str, tuple[Record, bool]] = {}

    def find(self) -> dict[str, tuple[Record, bool]]:
        """Agent version -> (what lists say of it, whether it surely took part in the day).

        Raises:
            RetryLater: a list cannot be read now.
        """
        on_day: set[int] = set()
        raced: set[int] = set()
        for race in self._races(raced):
            if is_whole(race.get("suite_id")):
                on_day.add(race["suite_id"])
            for qualifier in race["qualifiers"]:
                self._add(qualifier, sure=True)
        for version in self._state.judged_on(self._begin.date()):
            self._add({"agent_version_id": version}, sure=True)
        for entry in self._listed(on_day, raced):
            self._add(entry, sure=False)
        if self._now - self._end < _RUNNING_FOR:
            for evaluation in self._asking.needed("running", self._client.running):
                self._add(evaluation, sure=True)
        return self._candidates

    def _add(self, record: Record, *, sure: bool) -> None:
        version = id_text(record.get("agent_version_id"))
        if version is None or safe_id(version) != version:
            self._found.oddities["agent_version_without_id"] += 1
            if version is not None and sure:  # its pairs are missing on this day
                self._found.hidden[f"version:{safe_id(version)}"] = UNSAFE_ID
            return
        facts, was_sure = self._candidates.get(version, ({}, False))
        merged = {**facts, **{name: record[name] for name in FACTS if record.get(name) is not None}}
        self._candidates[version] = (merged, was_sure or sure)

    # ------------------------------------------------------------------------------------------ races

    def _races(self, raced: set[int]) -> Iterator[Record]:
        """Races whose time touches the day, with qualifiers; suites that had a race by the day go to ``raced``."""
        current = self._asking.if_there("race:current", self._client.current_race, hold=True)
        over: set[str] = set()
        for race in self._asking.needed("races", self._client.races):
            race_id = id_text(race.get("race_id"))
            self._note_suite(race, raced)
            if race_id is None or safe_id(race_id) != race_id:
                self._found.oddities["race_without_id"] += 1
                continue
            over.add(race_id)
            if race_touches(race, self._begin, self._end, self._now, ended=True):
                self._found.races[race_id] = False
                ask = partial(self._client.race, race_id)
                detail = self._asking.if_there(f"race:{race_id}", ask, hold=True)
                known = race if detail is None else {**race, **detail}
                # Either may leave out the suite.
                yield {"qualifiers": [], **known, "suite_id": known.get("suite_id") or race.get("suite_id")}
        race_id = None if current is None else id_text(current.get("race_id"))
        if current is None or race_id is None or race_id in over:
            return
        self._note_suite(current, raced)
        if race_touches(current, self._begin, self._end, self._now, ended=False):
            self._found.races[race_id] = True
            yield current

    def _note_suite(self, race: Record, raced: set[int]) -> None:
        if is_whole(race.get("suite_id")) and race_began(race, self._end):
            raced.add(race["suite_id"])

    # ------------------------------------------------------------------------------------------ leaderboards

    def _listed(self, on_day: set[int], raced: set[int]) -> Iterator[Record]:
        """Entries of the leaderboards of the day's suites.

        Those of the suites whose races touch it; on a day without a race, of all. Suites that had no race as yet have
        qualifying runs all the same: of their boards only who became eligible about the day, as each entry costs a
        request more.
        """
        every = self._suites(must=not on_day)
        for suite in sorted(on_day) or every:
            for score_type in ("qualifying", "race"):
                yield from self._board(suite, score_type)
        for suite in every if on_day else ():
            if suite not in raced | on_day:
                for entry in self._board_of_unraced(suite):
                    if not elsewhere(entry, self._begin - _RUN_AFTER_ELIGIBLE, self._end):
                        yield entry

    def _suites(self, *, must: bool) -> list[int]:
        if must:
            answer = self._asking.needed("suites", self._client.suites)
        else:
            answer = self._asking.if_there("suites", self._client.suites, hold=False) or []
        found = (suite.get("suite_id") for suite in answer)
        return sorted(number for number in found if is_whole(number))

    def _board(self, suite: int, score_type: str) -> list[Record]:
        ask = partial(self._client.leaderboard, suite, score_type)
        return self._asking.if_there(f"leaderboard:{suite}:{score_type}", ask, hold=False) or []

    def _board_of_unraced(self, suite: int) -> list[Record]:
        """Its qualifying board; one that was read when nobody of the day could become eligible any more says all."""
        held: Any = self._asking.held_since(f"leaderboard:{suite}:qualifying", self._end + ELIGIBLE_WITHIN)
        return self._board(suite, "qualifying") if held is None else held
