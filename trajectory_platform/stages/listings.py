"""Is what lies in the raw folders of a day fit to be published? Looked at before anything is read from them."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from trajectory_platform.errors import FailPartition
from trajectory_platform.identity import digest_lines
from trajectory_platform.lake import tables
from trajectory_platform.sources.records import RECORD_KEPT
from trajectory_platform.stages.context import StageContext, neighbours

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trajectory_platform.sources.files import FileSource, RawDay

# A listing file with more broken lines than this is a damaged download, not a day with a few odd rows.
MAX_FAULT_SHARE = 0.05
_NEEDED = ("runs.jsonl", "problems.jsonl")
_EMPTY = digest_lines([])  # digest of a folder without files, also of one that is not there


class Listings:
    """A source whose listings are parsed once, however often the body of a stage asks for them."""

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._opened: dict[date, RawDay] = {}

    @property
    def parallel_reads(self) -> int:
        return self._source.parallel_reads

    def open_day(self, day: date) -> RawDay:
        if day not in self._opened:
            self._opened[day] = self._source.open_day(day)
        return self._opened[day]

    def read(self, uri: str) -> bytes:
        return self._source.read(uri)


def check_folders(ctx: StageContext, day: str, listings: Listings, digests: Mapping[str, str]) -> list[str]:
    """Refuse a day whose own folder is damaged, or for which a folder that it was made of has gone.

    Args:
        digests: ``folder/{day}`` -> content digest now, of the day and the two beside it.

    Returns:
        What is wrong with the folders beside it: the day can be published without what they hold, as incomplete.

    Raises:
        FailPartition: a half download is not a day with a few odd rows, and a lost folder (an unmounted disk, an
            expired bucket) is not an empty day; the published day stays.
    """
    before = ctx.lake.manifest(tables.RAW_TRACES, day)
    for near, now in digests.items():
        if now == _EMPTY and before is not None and before.inputs.get(near, _EMPTY) != _EMPTY:
            raise FailPartition(
                f"{day}: {near} was there when the day was published and is gone or empty, the published day stays; "
                f"if it was removed on purpose, remove {ctx.settings.lake_uri}/_manifests/raw_traces/{day}.json"
            )
    opened = {near: listings.open_day(date.fromisoformat(near)) for near in neighbours(day)}
    if not any(listing.exists for listing in opened.values()):
        raise FailPartition(f"{day}: no day folder in {ctx.settings.data_root}, nor beside it")
    faults = {near: fault for near, listing in opened.items() if (fault := damage(listing)) is not None}
    if day in faults:
        raise FailPartition(f"{day}: {faults[day]}; fetch the day again")
    return [f"{near}: {fault}" for near, fault in faults.items()]


def damage(listing: RawDay) -> str | None:
    """Why the listing files of a folder cannot be trusted as a whole, or None."""
    if not listing.exists:
        return None
    missing = sorted({fault["file"] for fault in listing.faults if fault["reason"] == "missing_file"} & {*_NEEDED})
    if missing:
        return f"{' and '.join(missing)} missing from the day folder"
    broken = [
        fault
        for fault in listing.faults
        if fault["reason"] not in ("missing_file", *RECORD_KEPT) and not fault["file"].startswith("artifacts/")
    ]
    lines = len(listing.runs) + len(listing.problems) + len(listing.agent_versions) + len(broken)
    if len(broken) <= MAX_FAULT_SHARE * lines:
        return None
    first = broken[0]
    return (
        f"{len(broken)} of {lines} listing lines are unreadable, "
        f"first {first['file']}:{first['line']} ({first['reason']})"
    )
