"""Files that hold a whole run (domain 1.3): the run's other pairs lie inside and have no file of their own."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from datetime import date, timedelta

from trajectory_platform.sources.oro_answers import NOT_THERE
from trajectory_platform.sources.raw_day_writer import RawDayWriter
from trajectory_platform.sources.wanted import IN_WHOLE_FILE, Row, WantedQueue

_PEEK = 4 << 20
_ID = re.compile(rb'"problem_id"\s*:\s*"([A-Za-z0-9_-]{1,64})"')  # ids of the queue are plain (``identity.safe_id``)
_DAY = timedelta(days=1)


def problems_inside(data: bytes, problem_ids: Collection[str]) -> set[str]:
    """The problems among these of which an artifact holds traces; none where it is the file of one pair.

    Only the first 4 MiB of its text are looked at.
    """
    if not problem_ids:
        return set()
    try:
        text = zlib.decompressobj(31).decompress(data, _PEEK) if data[:2] == b"\x1f\x8b" else data[:_PEEK]
    except zlib.error:
        return set()
    if not text.lstrip().startswith(b"{") and b"]\n[" not in text:
        return set()
    # Only beside the key: an id that is part of another, or that the text merely quotes, must not cost a pair its file.
    named = {found.decode() for found in _ID.findall(text)}
    return named.intersection(problem_ids)


def found_in_whole_files(queue: WantedQueue, writer: RawDayWriter, day: date) -> list[Row]:
    """Pairs of a day that were not to be had and lie in a file of their run: in this day's folder or in one beside it.

    Ingestion reads them there (``traces.inventory``); further away it does not look.
    """
    missing: dict[str, list[Row]] = {}
    for row in queue.rows(day, ("later", "gone")):
        if _is_missed(row):
            missing.setdefault(row.eval_run_id, []).append(row)
    return [row for run, rows in sorted(missing.items()) for row in _inside(queue, writer, day, run, rows)]


def days_that_miss(rows: Iterable[Row], day: date, inside: Collection[str]) -> list[date]:
    """The days beside ``day`` that miss pairs (of ``rows``) which lie in a file of ``day``, sorted."""
    days = {date.fromisoformat(row.day) for row in rows if row.problem_id in inside and _is_missed(row)}
    return sorted(days & {day - _DAY, day + _DAY})


def _is_missed(row: Row) -> bool:
    return row.reason != IN_WHOLE_FILE if row.state == "gone" else row.state == "later" and row.reason in NOT_THERE


def _inside(queue: WantedQueue, writer: RawDayWriter, day: date, run: str, rows: list[Row]) -> Iterator[Row]:
    waiting = {row.problem_id: row for row in rows}
    for other in queue.of_run(run):
        at = date.fromisoformat(other.day)
        if other.state != "fetched" or abs(at - day) > _DAY or not waiting:
            continue
        data = writer.read(writer.artifact_uri(at, run, other.problem_id))
        for problem_id in sorted(problems_inside(data, waiting) if data is not None else ()):
            yield waiting.pop(problem_id)
