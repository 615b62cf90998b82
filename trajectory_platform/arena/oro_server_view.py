"""What the public API shows of a history at one moment (domain 1.10), as rows in its field names.

A run is there from its claim, its verdicts one by one when they were judged, its state when it ended, its invalidation
when that was decided. The code of a version is public after its embargo, the artifacts of a race when it is over.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from trajectory_platform.arena import rules
from trajectory_platform.arena.oro_server_fields import DETAIL, IN_PROGRESS, NOT_INVALIDATED, UNJUDGED, VERSION
from trajectory_platform.arena.oro_server_history import VERDICTS, History, RaceRecord, Result, Row, Run, text_of
from trajectory_platform.identity import parse_utc

QUALIFYING_OPEN, QUALIFYING_CLOSED = "QUALIFYING_OPEN", "QUALIFYING_CLOSED"
_CLAIMED_FOR = timedelta(minutes=1)  # a claimed run says RUNNING after its first heartbeat
_COUNTED_RUNS = ("SUCCESS", "FAILED")  # runs whose verdicts stand; those of a stale one are made again


class View:
    """A history as it is known at ``now`` (aware UTC)."""

    def __init__(self, history: History, now: datetime) -> None:
        self.history = history
        self.now = now

    # ------------------------------------------------------------------------------------------------ races

    def past_races(self, suite_id: int | None = None) -> list[Row]:
        """Completed and cancelled races, newest first."""
        found = [one for one in self.history.races.values() if one.ends_at <= self.now]
        found.sort(key=lambda one: (one.ends_at, one.race_id), reverse=True)
        return [self.race_row(one) for one in found if suite_id is None or one.row["suite_id"] == suite_id]

    def current_race(self) -> RaceRecord | None:
        """The race that is open, closed or running; the one that runs first."""
        found = [one for one in self.history.races.values() if one.opens_at <= self.now < one.ends_at]
        return min(found, key=lambda one: one.starts_at, default=None)

    def race(self, race_id: str) -> RaceRecord | None:
        """A race once it was created."""
        found = self.history.races.get(race_id)
        return found if found is not None and found.opens_at <= self.now else None

    def race_row(self, race: RaceRecord) -> Row:
        """The race; what its end decides is null before."""
        row = {**race.row, "created_at": text_of(race.opens_at), "scored_count": self._scored(race)}
        if race.ends_at <= self.now:
            return row
        unknown = ("race_completed_at", "winner_agent_version_id", "winner_score", "winner_agent_name")
        row |= dict.fromkeys(unknown) | {"status": self._race_status(race)}
        if self.now < race.starts_at:
            row["race_started_at"] = None
        if self.now < race.closes_at:
            row |= {"qualifier_count": 0, "qualifying_threshold": None}
        return row

    def qualifiers(self, race: RaceRecord) -> list[Row]:
        """Nobody before the qualifying closed; scores only once the race is over."""
        if self.now < race.closes_at:
            return []
        if race.ends_at <= self.now:
            return race.qualifiers
        return [{**one, "race_score": None, "race_rank": None} for one in race.qualifiers]

    def _race_status(self, race: RaceRecord) -> str:
        if self.now >= race.starts_at:
            return rules.RUNNING
        return QUALIFYING_CLOSED if self.now >= race.closes_at else QUALIFYING_OPEN

    def _scored(self, race: RaceRecord) -> int:
        names = (str(one["agent_version_id"]) for one in race.qualifiers)
        return sum(
            any(run.race_id == race.race_id and self._ended(run) for run in self.history.runs_of.get(name, ()))
            for name in names
        )

    # ------------------------------------------------------------------------------------------------- runs

    def run(self, run_id: str) -> Run | None:
        """A run from its claim on."""
        found = self.history.runs.get(run_id)
        return found if found is not None and found.claimed_at <= self.now else None

    def runs_of(self, version_id: str) -> list[Run]:
        return [run for run in self.history.runs_of.get(version_id, ()) if run.claimed_at <= self.now]

    def run_row(self, run: Run) -> Row:
        """``EvaluationRunPublic``."""
        if not self._ended(run):
            status = "CLAIMED" if self.now < run.claimed_at + _CLAIMED_FOR else "RUNNING"
            beat = text_of(min(self.now, run.ended_at))
            return {**run.row, **IN_PROGRESS, "status": status, "last_heartbeat_at": beat}
        if run.invalidated_at is not None and self.now < run.invalidated_at:
            return {**run.row, **NOT_INVALIDATED}
        return run.row

    def run_detail(self, run: Run) -> Row:
        """``EvaluationRunDetail``."""
        version = self.history.versions.get(run.version_id, {})
        row = self.run_row(run)
        return {
            **{name: row.get(name) for name in DETAIL},
            "agent_name": version.get("agent_name") or "",
            "version_number": version.get("version_number", 0),
            "score": row.get("validator_score"),
            "execution_kind": "legacy_shoppingbench",
            "environment": None,
            "items": None,
        }

    def running(self) -> list[Row]:
        """Runs that are claimed and have not ended."""
        rows = []
        for run in self.history.runs.values():
            if run.claimed_at <= self.now < run.ended_at:
                row = {name: run.row.get(name) for name in ("eval_run_id", "validator_hotkey", "phase", "race_id")}
                row |= self._named(run.version_id) | {"started_at": run.row["claimed_at"]}
                results = [
                    one
                    for one in self.history.results_of.get(run.version_id, ())
                    if one.row["eval_run_id"] == run.run_id
                ]
                done = sum(self._judged(one) for one in results)
                row["progress_percent"] = round(100 * done / len(results), 1) if results else 0.0
                rows.append(row | {"status": self.run_row(run)["status"]})
        return sorted(rows, key=lambda row: (row["started_at"], row["eval_run_id"]))

    def pending(self, suite_id: int | None = None) -> list[Row]:
        """Submitted versions for which a validator has still to claim a run."""
        rows = []
        for name, version in self.history.versions.items():
            runs = [run for run in self.history.runs_of.get(name, ()) if run.race_id is None]
            waiting = [run for run in runs if run.claimed_at > self.now]
            if not waiting or not self._submitted(version) or suite_id not in (None, version.get("suite_id")):
                continue
            done = sum(self._ended(run) and run.row["status"] == "SUCCESS" for run in runs)
            row = {
                "work_item_id": str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
                "suite_id": version.get("suite_id") or runs[0].row["suite_id"],
                "required_successes": len(runs),
                "completed_successes": done,
                "active_runs": sum(run.claimed_at <= self.now < run.ended_at for run in runs),
                "remaining": len(waiting),
                "queued_at": version["submitted_at"],
                "phase": "QUALIFYING",
                "race_id": None,
            }
            rows.append(self._named(name) | row)
        return sorted(rows, key=lambda row: (row["queued_at"], row["work_item_id"]))

    # --------------------------------------------------------------------------------------------- versions

    def version(self, version_id: str) -> Row | None:
        """The version's row once it was submitted."""
        row = self.history.versions.get(version_id)
        return row if row is not None and self._submitted(row) else None

    def released(self, version: Row) -> bool:
        """Whether the embargo of the version's code has ended."""
        moment = parse_utc(version.get("released_at"))
        return moment is not None and moment <= self.now

    def version_row(self, version: Row) -> Row:
        """``AgentVersionPublic``."""
        score = version.get("latest_final_score") if self._eligible(version) else None
        kept = {name: value for name, value in version.items() if name not in ("state", "release_state")}
        return {**kept, "latest_final_score": score}

    def version_status(self, version: Row) -> Row:
        """``AgentVersionStatus``."""
        runs = self.history.runs_of.get(str(version["agent_version_id"]), [])
        own = [run for run in runs if run.race_id is None]
        active = sum(run.claimed_at <= self.now < run.ended_at for run in own)
        closed = all(self._ended(run) for run in own)
        state = version.get("state") or ("ELIGIBLE" if version.get("latest_final_score") is not None else "DISCARDED")
        if not closed:
            state = "RUNNING" if any(run.claimed_at <= self.now for run in own) else "QUEUED"
        coefficients = [run.row.get("reasoning_coefficient") for run in own if self._ended(run)]
        given = [value for value in coefficients if isinstance(value, int | float)]
        return {
            **{name: version.get(name) for name in VERSION},
            "state": state,
            "required_successes": len(own),
            "success_count": sum(self._ended(run) and run.row["status"] == "SUCCESS" for run in own),
            "active_count": active,
            "is_closed": closed,
            "final_score": version.get("latest_final_score") if self._eligible(version) else None,
            "reasoning_coefficient": round(sum(given) / len(given), 4) if given else None,
            "release_state": rules.RELEASED if self.released(version) else rules.HIDDEN,
        }

    def problems(self, version_id: str, phase: str | None = None, race_id: str | None = None) -> list[Row]:
        """``ProblemProgressEntry`` of a version: every claimed run's results, judged or not yet."""
        lines: dict[tuple[str, str, str], Row] = {}
        for one in self.history.results_of.get(version_id, ()):
            entry, run = one.entry, self.history.runs[one.row["eval_run_id"]]
            wanted = phase in (None, entry.get("phase")) and race_id in (None, entry.get("race_id"))
            if run.claimed_at > self.now or not wanted:
                continue
            key = (str(entry["problem_id"]), str(entry.get("phase")), str(entry.get("race_id")))
            names = ("problem_id", "category", "phase", "race_id")
            line = lines.setdefault(key, {name: entry.get(name) for name in names} | {"validator_results": []})
            line["validator_results"].append(self._result_row(one, run))
        return [lines[key] for key in sorted(lines)]

    def leaderboard(self, suite_id: int, score_type: str = "qualifying", q: str = "") -> list[Row]:
        """Versions of a suite with a finished run; what was never included is discarded with the score 0."""
        rows = []
        top = self.top()
        for name, version in self.history.versions.items():
            runs = [run for run in self.history.runs_of.get(name, ()) if run.row.get("suite_id") == suite_id]
            ended = [run for run in runs if self._ended(run) and run.row["status"] in _COUNTED_RUNS]
            if not ended or not _named_like(version, q.strip().lower()):
                continue
            score = version.get("latest_final_score")
            row = {
                name: version.get(name) for name in ("agent_version_id", "agent_name", "miner_hotkey", "version_number")
            }
            row |= {"final_score": score or 0.0, "is_discarded": score is None, "race_score": self._race_score(name)}
            row |= {"eligible_at": text_of(max(run.ended_at for run in ended)), "is_current_top": name == top}
            rows.append(row)
        by = "race_score" if score_type == "race" else "final_score"
        rows.sort(key=lambda row: (-(row[by] or 0.0), row["eligible_at"], row["agent_version_id"]))
        return [{"rank": rank, **row} for rank, row in enumerate(rows, 1)]

    def top(self) -> str | None:
        """The winner of the last race that is over."""
        over = [
            one
            for one in self.history.races.values()
            if one.ends_at <= self.now and one.row.get("winner_agent_version_id")
        ]
        last = max(over, key=lambda one: one.ends_at, default=None)
        return None if last is None else str(last.row["winner_agent_version_id"])

    def _race_score(self, version_id: str) -> float | None:
        over = sorted(
            (one for one in self.history.races.values() if one.ends_at <= self.now), key=lambda one: one.ends_at
        )
        scores = [
            one["race_score"] for race in over for one in race.qualifiers if one["agent_version_id"] == version_id
        ]
        return next((score for score in reversed(scores) if score is not None), None)

    # ----------------------------------------------------------------------------- suites, validators, counts

    def suites(self) -> list[Row]:
        """Suites that have begun, newest first; the newest is the active one."""
        begun = sorted(
            (number for number, (day, _, _) in self.history.suites.items() if day <= self.now.date()), reverse=True
        )
        return [{**self.history.suites[number][1], "is_active": place == 0} for place, number in enumerate(begun)]

    def validators(self) -> list[Row]:
        """Validators that have claimed a run."""
        claims: dict[str, list[Run]] = {}
        for run in self.history.runs.values():
            if run.claimed_at <= self.now:
                claims.setdefault(str(run.row["validator_hotkey"]), []).append(run)
        first = datetime.combine(self.history.days[0], datetime.min.time(), UTC)
        return [
            {
                "hotkey": hotkey,
                "status": "evaluating" if any(not self._ended(run) for run in runs) else "available",
                "registered_at": text_of(first),
                "last_claim_at": text_of(max(run.claimed_at for run in runs)),
                "last_seen_at": text_of(self.now),
            }
            for hotkey, runs in sorted(claims.items())
        ]

    def trajectory_history(self) -> Row:
        """Distinct (version, problem) pairs judged per UTC day. Partial verdicts of a run that went stale are no
        judgments: nothing was reported for it."""
        days: dict[str, set[tuple[str, str]]] = {}
        for name, results in self.history.results_of.items():
            for one in results:
                run = self.history.runs[one.row["eval_run_id"]]
                if self._judged(one) and one.row.get("status") in VERDICTS and run.row["status"] in _COUNTED_RUNS:
                    assert one.judged_at is not None
                    days.setdefault(one.judged_at.date().isoformat(), set()).add((name, one.entry["problem_id"]))
        seen: set[tuple[str, str]] = set()
        series = []
        for day in sorted(days):
            seen |= days[day]
            series.append({"date": day, "distinct": len(days[day]), "cumulative": len(seen)})
        today = self.now.date().isoformat()
        finished = [len(days[day]) for day in sorted(days) if day < today]
        return {
            "series": series,
            "total": len(seen),
            "daily_rate": finished[-1] if finished else 0,
            "weekly_rate": sum(finished[-7:]),
            "updated_at": text_of(self.now),
        }

    # -------------------------------------------------------------------------------------------- artifacts

    def in_flight(self, run: Run) -> bool:
        """Whether the run's race is still going on, or its results are not revealed yet."""
        race = self.history.races.get(run.race_id) if run.race_id else None
        if race is None:
            return False
        return self.now < race.ends_at + timedelta(hours=self.history.twists.reveal_hours)

    def artifact_there(self, run: Run, problem_id: str) -> bool:
        """Whether the artifact of a pair has been uploaded; it is when its run ends."""
        return self._ended(run) and (run.run_id, problem_id) in self.history.artifacts

    # ------------------------------------------------------------------------------------------------ small

    def _ended(self, run: Run) -> bool:
        return run.ended_at <= self.now

    def _judged(self, one: Result) -> bool:
        return one.judged_at is not None and one.judged_at <= self.now

    def _submitted(self, version: Row) -> bool:
        moment = parse_utc(version.get("submitted_at"))
        return moment is not None and moment <= self.now

    def _eligible(self, version: Row) -> bool:
        runs = self.history.runs_of.get(str(version["agent_version_id"]), [])
        own = [run for run in runs if run.race_id is None]
        return bool(own) and all(self._ended(run) for run in own)

    def _result_row(self, one: Result, run: Run) -> Row:
        if self._judged(one) or one.judged_at is None:
            return one.row
        return {**one.row, **UNJUDGED, "status": "PENDING" if self._ended(run) else "RUNNING"}

    def _named(self, version_id: str) -> Row:
        version = self.history.versions.get(version_id, {})
        return {
            "agent_version_id": version_id,
            "agent_name": version.get("agent_name") or "",
            "version_number": version.get("version_number", 0),
            "miner_hotkey": version.get("miner_hotkey") or "",
        }


def _named_like(version: Row, q: str) -> bool:
    """The filter of the leaderboard: part of the agent's name, or the beginning of the miner's hotkey."""
    name, hotkey = str(version.get("agent_name") or "").lower(), str(version.get("miner_hotkey") or "").lower()
    return q in name or hotkey.startswith(q)


def page(rows: Iterable[Any], limit: int, offset: int) -> list[Any]:
    """One page of a list."""
    return list(rows)[offset : offset + limit]
