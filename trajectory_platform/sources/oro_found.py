"""What a look at a day found in the API's lists, before anything of it is fetched."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import date

from trajectory_platform.sources.oro_records import OPEN_PROBLEM, OPEN_RUN, Record, results_of, upper
from trajectory_platform.sources.records import id_text
from trajectory_platform.sources.wanted import Pair

_BROKEN_OFF = (*OPEN_RUN, "STALE", "CANCELLED", "TIMED_OUT")


@dataclass
class Found:
    """What was found for one day; lists are sorted by id.

    Attributes:
        runs, problems, agent_versions, suite: records of the raw day's listing files (design 5).
        pairs: every (run, problem) result judged on the day.
        elsewhere: (run, problem) -> the day it was judged on, of results of the versions read that are another day's.
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
    elsewhere: dict[tuple[str, str], date] = field(default_factory=dict)
    races: dict[str, bool] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    oddities: Counter[str] = field(default_factory=Counter)
    expected: int | None = None
    expected_state: str = "unreadable"

    def distinct(self) -> int:
        """(agent version, problem) pairs judged on the day, as the subnet counts them: by runs that came to an end."""
        runs = {id_text(run.get("eval_run_id")): upper(run.get("status")) for run in self.runs}
        return len(
            {
                (entry.get("agent_version_id"), id_text(entry.get("problem_id")))
                for entry in self.problems
                for result in results_of(entry)
                if upper(result.get("status")) not in (*OPEN_PROBLEM, "SKIPPED")
                and runs.get(id_text(result.get("eval_run_id"))) not in _BROKEN_OFF
            }
        )
