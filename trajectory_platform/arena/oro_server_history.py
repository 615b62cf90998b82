"""The history that the local server of the public API unfolds: simulated day folders, read once and indexed.

Nothing here depends on a moment; what is visible when is ``oro_server_view``. A folder without ``races.jsonl`` (the
labelled days of another maker) gets its races from the runs that name them. What the API could not express (an id that
is no UUID) is counted in ``History.unservable`` and left out.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from trajectory_platform.arena import rules
from trajectory_platform.errors import Abort
from trajectory_platform.identity import parse_utc

Row = dict[str, Any]
ENDED = ("SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "STALE")
VERDICTS = ("SUCCESS", "FAILED", "TIMED_OUT")  # problem states that are judgments (domain 1.10)
# A race whose end was not simulated (it would lie on the day after the last one) is over this long after its last run.
_CLOSING = timedelta(minutes=5)


class Twists(NamedTuple):
    """What happens to the simulated history beside its folders.

    Attributes:
        late_judgments, late_by_hours: share of results that are judged so much later.
        late_invalidations, invalidated_after_days: share of good runs that are taken out so long after their end.
        reveal_hours: further embargo of a race's artifacts after its end.
        seed: of the draws.
    """

    late_judgments: float = 0.0
    late_by_hours: float = 30.0
    late_invalidations: float = 0.0
    invalidated_after_days: float = 3.0
    reveal_hours: float = 0.0
    seed: int = 0


@dataclass
class Run:
    """One evaluation run in its final state, with the moments at which it changes."""

    row: Row
    claimed_at: datetime
    ended_at: datetime
    invalidated_at: datetime | None

    @property
    def run_id(self) -> str:
        return str(self.row["eval_run_id"])

    @property
    def version_id(self) -> str:
        return str(self.row["agent_version_id"])

    @property
    def race_id(self) -> str | None:
        return self.row.get("race_id")


class Result(NamedTuple):
    """One validator's result for a problem: its line in ``problems.jsonl`` and when it was judged (None: never)."""

    entry: Row
    row: Row
    judged_at: datetime | None


@dataclass
class RaceRecord:
    """One race in its final state. ``qualifiers`` are the API's rows."""

    row: Row
    qualifiers: list[Row]
    opens_at: datetime
    closes_at: datetime
    starts_at: datetime
    ends_at: datetime

    @property
    def race_id(self) -> str:
        return str(self.row["race_id"])


@dataclass
class History:
    """Everything of some day folders.

    Attributes:
        suites: suite id -> (first day, head, problems).
        runs_of, results_of: agent version id -> its runs and results in order of time.
        artifacts: (run id, problem id) -> file.
        unservable: what the API has no form for, counted by reason.
    """

    days: list[date] = field(default_factory=list)
    twists: Twists = field(default_factory=Twists)
    races: dict[str, RaceRecord] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    versions: dict[str, Row] = field(default_factory=dict)
    suites: dict[int, tuple[date, Row, list[Row]]] = field(default_factory=dict)
    runs_of: dict[str, list[Run]] = field(default_factory=dict)
    results_of: dict[str, list[Result]] = field(default_factory=dict)
    artifacts: dict[tuple[str, str], Path] = field(default_factory=dict)
    unservable: Counter[str] = field(default_factory=Counter)


def load_history(root: Path, twists: Twists | None = None) -> History:
    """Read every day folder below ``root``.

    Raises:
        Abort: there is none, or a listing file is not JSON lines.
    """
    history = History(twists=twists or Twists())
    folders = sorted(path for path in root.iterdir() if _day_of(path.name)) if root.is_dir() else []
    if not folders:
        raise Abort(f"{root}: no day folder (YYYY-MM-DD); make some: 'trajectory-platform arena simulate --out DIR'")
    for folder in folders:
        day = date.fromisoformat(folder.name)
        history.days.append(day)
        _read_runs(history, folder)
        _read_results(history, folder)
        _read_versions(history, folder)
        _read_suite(history, folder, day)
        for file in sorted((folder / "artifacts").glob("*/*")):
            history.artifacts.setdefault((file.parent.name, file.name.partition(".")[0]), file)
    race_rows = {row["race_id"]: row for folder in folders for row in _lines(folder / "races.jsonl", optional=True)}
    for run in history.runs.values():
        history.runs_of.setdefault(run.version_id, []).append(run)
    for runs in history.runs_of.values():
        runs.sort(key=lambda run: (run.claimed_at, run.run_id))
    _add_races(history, race_rows)
    return history


def _day_of(name: str) -> date | None:
    try:
        return date.fromisoformat(name)
    except ValueError:
        return None


def _lines(path: Path, *, optional: bool = False) -> Iterator[Row]:
    if optional and not path.exists():
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise Abort(f"{path}:{number}: {error.msg}; the server serves days that can be read") from error


def is_uuid(value: Any) -> bool:
    """Whether the API could name this id."""
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value
    except ValueError:
        return False


def _read_runs(history: History, folder: Path) -> None:
    for row in _lines(folder / "runs.jsonl"):
        if not (is_uuid(row.get("eval_run_id")) and is_uuid(row.get("agent_version_id"))):
            history.unservable["run_id_no_uuid"] += 1
            continue
        claimed = parse_utc(row.get("claimed_at"))
        if claimed is None:
            history.unservable["run_without_claim"] += 1
            continue
        lease = parse_utc(row.get("lease_expires_at")) or claimed + timedelta(milliseconds=rules.LEASE_MS)
        ended = parse_utc(row.get("completed_at")) or lease
        if row.get("status") not in ENDED:
            # Nobody goes on with a run that the folders leave open: its lease expires.
            row = {**row, "status": "STALE", "is_included": False}
        invalidated = parse_utc(row.get("invalidated_at"))
        row, invalidated = _invalidated_late(history.twists, row, ended, invalidated)
        history.runs[row["eval_run_id"]] = Run(row, claimed, ended, invalidated)


def _invalidated_late(
    twists: Twists, row: Row, ended: datetime, invalidated: datetime | None
) -> tuple[Row, datetime | None]:
    good = row.get("status") == "SUCCESS" and row.get("is_included") is True and invalidated is None
    if not good or not _drawn(twists, "invalidation", row["eval_run_id"], twists.late_invalidations):
        return row, invalidated
    moment = ended + timedelta(days=twists.invalidated_after_days)
    marks = {
        "is_included": False,
        "invalidated_at": text_of(moment),
        "invalidated_by": "admin",
        "invalidation_reason": "agent version discarded",
    }
    return {**row, **marks}, moment


def _drawn(twists: Twists, what: str, key: str, share: float) -> bool:
    return share > 0 and Random(f"{what}|{twists.seed}|{key}").random() < share


def _read_results(history: History, folder: Path) -> None:
    twists = history.twists
    for entry in _lines(folder / "problems.jsonl"):
        if not (is_uuid(entry.get("problem_id")) and is_uuid(entry.get("agent_version_id"))):
            history.unservable["problem_id_no_uuid"] += 1
            continue
        for row in entry.get("validator_results") or ():
            judged = parse_utc(row.get("updated_at"))
            key = f"{row.get('eval_run_id')}:{entry['problem_id']}"
            if judged is not None and _drawn(twists, "judgment", key, twists.late_judgments):
                judged += timedelta(hours=twists.late_by_hours)
                row = {**row, "updated_at": text_of(judged)}
            if row.get("eval_run_id") not in history.runs:
                history.unservable["result_without_run"] += 1
                continue
            history.results_of.setdefault(entry["agent_version_id"], []).append(Result(entry, row, judged))


def _read_versions(history: History, folder: Path) -> None:
    for row in _lines(folder / "agent_versions.jsonl"):
        if is_uuid(row.get("agent_version_id")):
            # The newest row counts, but a version belongs to the suite it was submitted for.
            held = history.versions.get(row["agent_version_id"], row)
            history.versions[row["agent_version_id"]] = {**row, "suite_id": held.get("suite_id")}
        else:
            history.unservable["version_id_no_uuid"] += 1


def _read_suite(history: History, folder: Path, day: date) -> None:
    path = folder / "suite.json"
    if not path.exists():
        return
    value = json.loads(path.read_text(encoding="utf-8"))
    head, problems = dict(value.get("suite") or {}), value["problems"]
    number = head.get("suite_id") or (problems[0]["suite_id"] if problems else None)
    if isinstance(number, int):
        head = {"suite_version": number, "execution_kind": "legacy_shoppingbench", **head, "suite_id": number}
        history.suites.setdefault(number, (day, head, problems))


def _add_races(history: History, rows: Mapping[str, Row]) -> None:
    """The races in the order of their start; one whose end the folders do not know ends with its last run."""
    of_race: dict[str, list[Run]] = {}
    for run in history.runs.values():
        if run.race_id is not None:
            of_race.setdefault(run.race_id, []).append(run)
    records = []
    for race_id in {*rows, *of_race}:
        runs = of_race.get(race_id, [])
        row = dict(rows[race_id]) if race_id in rows else _row_of_runs(race_id, runs)
        starts = parse_utc(row.get("race_started_at")) or min(run.claimed_at for run in runs)
        ends = parse_utc(row.get("race_completed_at"))
        qualifiers = row.pop("qualifiers", None) or _qualifiers_of_runs(history, runs)
        if ends is None:
            ends = max((run.ended_at for run in runs), default=starts) + _CLOSING
            row |= {"status": rules.COMPLETED, "race_completed_at": text_of(ends)}
            qualifiers = _scored(qualifiers, runs)
        closes = parse_utc(row.get("qualifying_closes_at")) or starts - timedelta(hours=1)
        opens = closes.replace(hour=0, minute=0, second=0, microsecond=0)
        records.append(RaceRecord(row, qualifiers, opens, closes, starts, ends))
    history.races = {one.race_id: one for one in sorted(records, key=lambda one: (one.starts_at, one.race_id))}


def _row_of_runs(race_id: str, runs: list[Run]) -> Row:
    first = runs[0].row
    return {
        "race_id": race_id,
        "suite_id": first["suite_id"],
        "status": rules.RUNNING,
        "race_number": first.get("race_number"),
        "race_started_at": text_of(min(run.claimed_at for run in runs)),
        "race_completed_at": None,
        "qualifier_count": len({run.version_id for run in runs}),
    }


def _qualifiers_of_runs(history: History, runs: list[Run]) -> list[Row]:
    found = []
    for name in sorted({run.version_id for run in runs}):
        version = history.versions.get(name, {})
        found.append(
            {
                "agent_version_id": name,
                "qualification_type": rules.SCORED,
                "agent_name": version.get("agent_name"),
                "miner_hotkey": version.get("miner_hotkey"),
                "version_number": version.get("version_number", 0),
                "qualifying_score": version.get("latest_final_score"),
                "race_score": None,
                "race_rank": None,
            }
        )
    return found


def _scored(qualifiers: list[Row], runs: list[Run]) -> list[Row]:
    """Race score of each: the mean of its included runs; without one it did not finish (domain 1.10)."""
    scores: dict[str, list[float]] = {}
    for run in runs:
        if run.row.get("is_included") and isinstance(run.row.get("validator_score"), int | float):
            scores.setdefault(run.version_id, []).append(run.row["validator_score"])
    means = {name: round(sum(values) / len(values), 4) for name, values in scores.items()}
    ranked = sorted(means, key=lambda name: (-means[name], name))
    return [
        {
            **one,
            "race_score": means.get(one["agent_version_id"]),
            "race_rank": ranked.index(one["agent_version_id"]) + 1 if one["agent_version_id"] in means else None,
        }
        for one in qualifiers
    ]


def text_of(moment: datetime) -> str:
    """UTC text with microseconds, the way the API writes times."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
