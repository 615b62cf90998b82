"""Runs, problem entries and results of the API as plain records: whose day they are, and what there is to ask for."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from trajectory_platform.identity import parse_utc, safe_id, utc_day
from trajectory_platform.sources.fetch_report import UNSAFE_ID
from trajectory_platform.sources.records import id_text
from trajectory_platform.sources.wanted import UNUSED, Pair

Record = dict[str, Any]
OPEN_RUN = ("CLAIMED", "RUNNING")
OPEN_PROBLEM = ("PENDING", "RUNNING")
SLACK = timedelta(hours=6)  # by which a result may be updated after its run or race has ended
ELIGIBLE_WITHIN = timedelta(days=7)  # after its runs a version becomes eligible
FACTS = ("agent_name", "miner_hotkey", "version_number", "eligible_at")  # of a version, as lists tell them
_LEGACY = "legacy_shoppingbench"
_RACE_STARTS = ("created_at", "race_started_at", "qualifying_closes_at")
UNUSED_RUN = ("STALE", "CANCELLED", "FAILED", "TIMED_OUT")


def results_of(entry: Record) -> list[Record]:
    results = entry.get("validator_results")
    return [result for result in results if isinstance(result, dict)] if isinstance(results, list) else []


def runs_of(entries: list[Record]) -> set[str]:
    """Runs that results of these entries name."""
    return {str(result["eval_run_id"]) for entry in entries for result in results_of(entry) if "eval_run_id" in result}


def union(left: list[Record], right: list[Record]) -> list[Record]:
    return left + [result for result in right if result not in left]


def entry_order(entry: Record) -> tuple[str, str, str, str]:
    version, problem, phase, race = (
        str(entry.get(name)) for name in ("agent_version_id", "problem_id", "phase", "race_id")
    )
    return version, problem, phase, race


def run_day(run: Record) -> date | None:
    return next((day for name in ("completed_at", "claimed_at") if (day := utc_day(run.get(name))) is not None), None)


def pairs_of(version: str, facts: Record, entries: list[Record], runs: dict[str, Record]) -> list[Pair]:
    """One pair per (run, problem); what cannot be asked for is among them, with the reason."""
    pairs: dict[tuple[str, str], Pair] = {}
    for entry in entries:
        problem = id_text(entry.get("problem_id"))
        for result in entry["validator_results"]:
            name = str(result["eval_run_id"])
            key = pair_key(entry, result)
            run = runs.get(key[0], {})
            race = id_text(run.get("race_id")) or id_text(entry.get("race_id"))
            pair = Pair(
                *key,
                version,
                str(facts.get("miner_hotkey") or ""),
                race,
                UNUSED if _unused(run) else 0,
                _not_asked(name, problem, run, result),
            )
            pairs[key] = pair
    return list(pairs.values())


def pair_key(entry: Record, result: Record) -> tuple[str, str]:
    """(run, problem) of a result as safe ids; ``@`` for a problem without an id."""
    problem = id_text(entry.get("problem_id"))
    return safe_id(str(result["eval_run_id"])), "@" if problem is None else safe_id(problem)


def places_of(entries: list[Record], days: list[list[date | None]]) -> dict[tuple[str, str], date]:
    """The one day of every pair: of several results of a pair the last counts, or two days would both have it.

    Args:
        days: of each entry the days of its results (``results_of``), None for one that has no day.
    """
    places: dict[tuple[str, str], date] = {}
    for entry, at in zip(entries, days, strict=True):
        for result, day in zip(results_of(entry), at, strict=True):
            if day is not None:
                key = pair_key(entry, result)
                places[key] = max(day, places.get(key, day))
    return places


def _not_asked(run_id: str, problem: str | None, run: Record, result: Record) -> str | None:
    """Why there is nothing to ask for: by status, or because an id is none that may be used."""
    if problem is None:
        return "no_problem_id"
    if safe_id(run_id) != run_id or safe_id(problem) != problem:
        return UNSAFE_ID
    if upper(run.get("status")) in OPEN_RUN or upper(result.get("status")) in OPEN_PROBLEM:
        return None if _ended(run) else "not_final"
    return "skipped" if upper(result.get("status")) == "SKIPPED" else None


def _ended(run: Record) -> bool:
    """Whether a run is over although a problem of it never became final (stale, cancelled)."""
    return upper(run.get("status")) in UNUSED_RUN


def _unused(run: Record) -> bool:
    """Runs that are not used for training: nothing depends on their artifacts (design 3)."""
    return (
        upper(run.get("status")) in UNUSED_RUN
        or run.get("is_included") is False
        or run.get("invalidated_at") is not None
    )


def verdict_of(run: Record) -> tuple[str, bool, bool]:
    """What decides over the use of a run and may change after it has ended."""
    return upper(run.get("status")), run.get("is_included") is False, run.get("invalidated_at") is not None


def with_copies(pairs: list[Pair], problems: list[Record]) -> list[Pair]:
    """Of several usable runs of one (agent version, problem) the first by id is rank 0, the others are copies."""
    seen: set[tuple[str, str]] = set()
    ranked = []
    for pair in sorted(pairs):
        key = (pair.agent_version_id, pair.problem_id)
        if pair.rank == 0 and pair.not_asked is None:
            ranked.append(pair._replace(rank=1) if key in seen else pair)
            seen.add(key)
        else:
            ranked.append(pair)
    return ranked


def race_touches(race: Record, begin: datetime, end: datetime, now: datetime, *, ended: bool) -> bool:
    """Whether results of a race may have been judged from ``begin`` to ``end``; one without times may always have."""
    starts = _starts(race)
    last = parse_utc(race.get("race_completed_at"))
    slack = SLACK  # taken from the day, not added to times of others: those may lie at the end of the calendar
    if last is None and ended:
        last, slack = max(starts, default=now), SLACK + timedelta(days=1)
    return min(starts, default=begin) < end and (last or now) > begin - slack


def race_began(race: Record, moment: datetime) -> bool:
    """Whether a race was there before a moment; one without times may have been."""
    return min(_starts(race), default=moment - SLACK) < moment


def _starts(race: Record) -> list[datetime]:
    return [moment for name in _RACE_STARTS if (moment := parse_utc(race.get(name))) is not None]


def run_touches(run: Record, begin: datetime, end: datetime, now: datetime) -> bool:
    """Whether results of a run may have been judged from ``begin`` to ``end``."""
    first = parse_utc(run.get("claimed_at"))
    ends = [parse_utc(run.get(name)) for name in ("completed_at", "invalidated_at", "last_heartbeat_at")]
    known = [moment for moment in ends if moment is not None]
    last = now if upper(run.get("status")) in OPEN_RUN or not known else max(known)
    return (first is None or first < end) and last > begin - SLACK


def suite_record(answers: list[Record]) -> Record:
    """``suite.json`` of a day: the problems of all its suites, the head of the newest, and all heads if several."""
    problems = [problem for answer in answers for problem in answer["problems"]]
    heads = [answer["suite"] for answer in answers]
    record = {"suite": heads[-1], "problems": sorted(problems, key=lambda problem: str(problem.get("problem_id")))}
    return record if len(heads) == 1 else {**record, "suites": heads}


def other_kinds(answers: list[Record]) -> list[str]:
    """Kinds of suites that no reader of this platform is made for (envpack episodes)."""
    return sorted({str((answer["suite"] or {}).get("execution_kind") or _LEGACY) for answer in answers} - {_LEGACY})


def generated_runs(answers: list[Record], day: date) -> set[str]:
    """Runs of a day whose results are of generated environments (envpack), as the answers on problems name them.

    Their identity and items carry no artifact that the public API hands out (``docs/operations.md``); one that has not
    ended is of no day as yet.
    """
    found = [one for answer in answers for one in answer.get("generated_results") or () if isinstance(one, dict)]
    heads = [head for one in found if isinstance(head := one.get("identity"), dict)]
    return {str(head.get("eval_run_id")) for head in heads if utc_day(head.get("completed_at")) == day}


def elsewhere(facts: Record, begin: datetime, end: datetime) -> bool:
    """Whether a version of a leaderboard became eligible so long before or after a day that its runs were not on it."""
    moment = parse_utc(facts.get("eligible_at"))
    return moment is not None and not begin <= moment < end + ELIGIBLE_WITHIN


def upper(value: Any) -> str:
    return value.upper() if isinstance(value, str) else ""


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_usable_id(value: Any) -> bool:
    return isinstance(value, str) and safe_id(value) == value
