"""Records of an earlier look stay for agent versions whose listing cannot be read this time."""

from __future__ import annotations

from datetime import date

from trajectory_platform.sources.oro_found import Found
from trajectory_platform.sources.oro_records import Record, pair_key, results_of, runs_of
from trajectory_platform.sources.raw_day_writer import RawDayWriter
from trajectory_platform.sources.records import parse_lines
from trajectory_platform.sources.wanted import WantedQueue

LISTING_FILES = ("runs.jsonl", "problems.jsonl", "agent_versions.jsonl")


def keep_unread(found: Found, writer: RawDayWriter, queue: WantedQueue, day: date) -> Found:
    """``found`` with what the day's folder holds of the versions that are hidden now.

    Without the results that were judged again on another day since: a pair is listed on one day.
    """
    if not found.hidden:
        return found
    runs, problems, versions = (_held(writer, f"{day.isoformat()}/{name}") for name in LISTING_FILES)
    unread = set(found.hidden) - {_version(record) for record in found.problems + found.runs}
    old = [entry for entry in problems if _version(entry) in unread]
    kept = [
        {
            **entry,
            "validator_results": [
                result for result in results_of(entry) if queue.on_another_day(day, pair_key(entry, result)) is None
            ],
        }
        for entry in old
    ]
    moved = runs_of(old) - runs_of(kept)
    found.problems += [entry for entry in kept if results_of(entry)]
    found.runs += [run for run in runs if _version(run) in unread and str(run.get("eval_run_id")) not in moved]
    named = {_version(version) for version in found.agent_versions}
    found.agent_versions += [version for version in versions if _version(version) in unread - named]
    return found


def _held(writer: RawDayWriter, uri: str) -> list[Record]:
    data = writer.read(uri)
    return [] if data is None else parse_lines(data, uri.rpartition("/")[2])[0]


def _version(record: Record) -> str:
    return str(record.get("agent_version_id"))
