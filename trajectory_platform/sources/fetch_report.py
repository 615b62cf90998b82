"""What became of a day's fetch: ``fetch.json`` and ``fetch_pairs.jsonl`` of the day folder.

``fetch.json`` tells times and numbers of the looks; it is no input of anything. ``fetch_pairs.jsonl`` names every pair
whose artifact is not there, and why, and the probability with which a sampled pair was chosen. It holds no time that
changes from look to look, so a day on which nothing has changed keeps its digest.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from datetime import date, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.identity import parse_utc
from trajectory_platform.sources.files import FETCH_FILE, PAIRS_FILE
from trajectory_platform.sources.wanted import Row

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["FETCH_FILE", "PAIRS_FILE", "FetchReport", "as_report", "pair_line", "parse_report", "report_text"]
UNSAFE_ID = "unsafe_id"
NO_USABLE_ID = (UNSAFE_ID, "no_problem_id")  # of pairs that were judged and cannot be asked for
VERSION = "fetch-1"
OPEN, FINAL, WITH_HOLES = "open", "final", "final_with_holes"
_TIMES = ("first_look", "last_look", "next_look")


@dataclass(frozen=True)
class FetchReport:
    """The state of one day after a look.

    ``pairs == fetched + wanted + sum(later) + sum(gone) + not_sampled + sum(not_asked)``, always.

    Attributes:
        day: UTC day of judgment.
        state: ``open``, ``final``, ``final_with_holes``.
        first_look, last_look: of the API, aware UTC.
        looks: how many.
        next_look: when a look may bring something; None when final.
        open_because: what keeps the day open, or "".
        pairs: (run, problem) results judged on the day, in every state.
        distinct: distinct (agent version, problem) of them that are judged (problem not pending or running).
        runs, agent_versions, races, suite_problems: records written.
        run_labels: what the runs may be used for (``sources.run_labels``) -> number of runs.
        fetched, fetched_now, adopted: artifacts in the folder; by this look; found there without being asked for.
        bytes: stored bytes of ``fetched``.
        damaged: fetched artifacts whose gzip cannot be read to its end; kept for the reader to reject.
        wanted: to be asked for still.
        later, gone, not_asked: reason -> number of pairs.
        not_sampled: left out by the sampling policy.
        hidden_versions: reason -> agent versions (races, suites) whose listing cannot be read as yet.
        expected: distinct pairs the subnet counted for the day; None when it does not say (never 0 for a cold cache).
        expected_state: ``counted``, ``cold_cache``, ``day_not_listed``, ``unreadable``.
        reconciliation: ``match``, ``short`` (fewer found than counted), ``over``, ``unknown``.
        requests: of this look, by kind: ``listing``, ``links``, ``downloads``.
        requests_total: of all looks.
        clock_skew_s: by which the API's clock was ahead.
        warnings: sentences for people.
        oddities: what was kept though odd: name -> count.
        sampling: the allocation of places, or None when everything is fetched.
        stopped: why the look ended early, or None.
    """

    day: date
    state: str
    first_look: datetime
    last_look: datetime
    looks: int
    next_look: datetime | None
    open_because: str
    pairs: int
    distinct: int
    runs: int
    agent_versions: int
    races: int
    suite_problems: int
    run_labels: dict[str, int]
    fetched: int
    fetched_now: int
    adopted: int
    bytes: int
    damaged: int
    wanted: int
    later: dict[str, int]
    gone: dict[str, int]
    not_sampled: int
    not_asked: dict[str, int]
    hidden_versions: dict[str, int]
    expected: int | None
    expected_state: str
    reconciliation: str
    requests: dict[str, int]
    requests_total: dict[str, int]
    clock_skew_s: float | None = None
    warnings: list[str] = field(default_factory=list)
    oddities: dict[str, int] = field(default_factory=dict)
    sampling: dict[str, Any] | None = None
    stopped: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The content of ``fetch.json``."""
        values = asdict(self)
        for name in _TIMES:
            values[name] = None if values[name] is None else values[name].isoformat()
        return {"version": VERSION, **values, "day": self.day.isoformat()}

    def holes(self) -> dict[str, int]:
        """What is not there and was to be: reason -> number of pairs (agent versions for ``hidden:``)."""
        holes = {f"later:{name}": count for name, count in self.later.items()}
        holes |= {f"gone:{name}": count for name, count in self.gone.items()}
        holes |= {f"hidden:{name}": count for name, count in self.hidden_versions.items()}
        holes |= {
            "wanted": self.wanted,
            "not_sampled": self.not_sampled,
            **{name: self.not_asked.get(name, 0) for name in ("not_final", *NO_USABLE_ID)},
        }
        return {name: count for name, count in sorted(holes.items()) if count}


@cache
def _schema() -> TypeAdapter[FetchReport]:
    from pydantic import TypeAdapter

    return TypeAdapter(FetchReport)


def as_report(value: Any) -> FetchReport | None:
    """``fetch.json`` as a report; None for anything that is none (unknown fields are left out).

    Days may come from elsewhere, and what is read here decides which days are looked at: a report with a field of
    another type or an unknown state is none.
    """
    if not isinstance(value, dict):
        return None
    known = {entry.name for entry in fields(FetchReport)}
    values = {name: item for name, item in value.items() if name in known}
    for name in _TIMES:
        values[name] = parse_utc(values.get(name))
    try:
        report = _schema().validate_python(values)
    except ValueError:  # pydantic's is one
        return None
    return report if report.state in (OPEN, FINAL, WITH_HOLES) else None


def parse_report(data: bytes) -> dict[str, Any] | None:
    """The object of ``fetch.json``; None when it cannot be read."""
    try:
        value = jsontext.parse(data).value
    except RejectRow:
        return None
    return value if isinstance(value, dict) else None


def report_text(report: FetchReport) -> bytes:
    """The bytes of ``fetch.json``."""
    return (jsontext.dumps(report.to_dict()) + "\n").encode()


def pair_line(row: Row) -> dict[str, Any] | None:
    """One line of ``fetch_pairs.jsonl``; None for a pair that was fetched without sampling."""
    if row.state == "fetched" and row.probability is None and row.reason is None:
        return None
    line: dict[str, Any] = {"eval_run_id": row.eval_run_id, "problem_id": row.problem_id, "state": row.state}
    if row.reason is not None:
        line["reason"] = row.reason
    if row.probability is not None:
        line |= {"stratum": row.stratum, "probability": row.probability}
        if row.state == "fetched" and row.probability > 0:
            line["weight"] = round(1 / row.probability, 6)
    return line
