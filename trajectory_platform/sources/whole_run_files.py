"""Files that hold a whole run (domain 1.3): the run's other pairs lie inside and have no file of their own.

The queue remembers of each such file what lies inside (``WantedQueue.holds``). A pair counts as inside for as long as
the file is there and within reach: in the folder of the pair's day, or in one beside it, where ingestion reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import date, timedelta

from trajectory_platform.errors import RejectRow
from trajectory_platform.identity import safe_id
from trajectory_platform.sources.container import Limits, inflate, read_records
from trajectory_platform.sources.oro_answers import NOT_THERE
from trajectory_platform.sources.wanted import IN_WHOLE_FILE, Row, WantedQueue

_DAY = timedelta(days=1)


def problems_inside(data: bytes, limits: Limits) -> dict[str, bool]:
    """Problem (as ``safe_id``) -> whether its trace can be read, of an artifact with several traces.

    Read as ingestion reads it. Empty for the file of one pair, and for a file whose bytes are damaged as a whole.
    """
    try:
        content, _ = inflate(data, limits)
        body = content.strip()
        if b"\n" not in body and b'"dialogue"' not in body and b'"messages"' not in body:
            return {}  # one dialogue, which need not be parsed for this
        records = read_records(data, limits)
    except RejectRow:
        return {}
    found: dict[str, bool] = {}
    count = 0
    for record in records:
        count += 1
        if record.problem_id is not None:
            name = safe_id(record.problem_id)
            found[name] = found.get(name, False) or (record.reject is None and record.steps is not None)
    return found if count > 1 else {}


def settle(queue: WantedQueue, day: date) -> None:
    """Bring the pairs of a day in line with the files they may lie in.

    What lies readable in a file of the day is not asked for. What lies there damaged is asked for first, as its own
    file may be whole; so is what lies in a file of a day beside, or the order of looks would decide what is fetched.
    What lay in a file that is gone, or out of reach by now, is wanted again.
    """
    inside = queue.inside_files(day)
    for row in queue.rows(day, ("wanted", "later", "gone")):
        sound = inside.get((row.eval_run_id, row.problem_id))
        if row.state == "gone" and row.reason == IN_WHOLE_FILE:
            if sound is None:
                queue.want_again(row, "whole_file_gone")
        elif sound or (sound is not None and _is_missed(row)):
            queue.gone(row, IN_WHOLE_FILE)


def days_that_miss(rows: Iterable[Row], day: date, inside: Collection[str]) -> list[date]:
    """The days beside ``day`` that miss pairs (of ``rows``) which lie in a file of ``day``, sorted."""
    days = {date.fromisoformat(row.day) for row in rows if row.problem_id in inside and _is_missed(row)}
    return sorted(days & {day - _DAY, day + _DAY})


def readable(inside: Mapping[str, bool]) -> set[str]:
    """The problems whose traces can be read."""
    return {problem_id for problem_id, sound in inside.items() if sound}


def _is_missed(row: Row) -> bool:
    return row.reason != IN_WHOLE_FILE if row.state == "gone" else row.state == "later" and row.reason in NOT_THERE
