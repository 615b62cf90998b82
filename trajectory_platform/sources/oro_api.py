"""The subnet's API as a source: fetch a UTC day of judgment into the raw-day layout (design 5).

A look at a day reads its listing, writes the listing files, and fetches what is wanted and due. It may be interrupted
at any point and repeated at any time: what lies in the folder is not fetched again. A day stays open while something
may still come (embargo, runs that are not final, not found as yet) and is final afterwards, with or without holes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from trajectory_platform.identity import days_between
from trajectory_platform.settings import Settings
from trajectory_platform.sources.api_state import ApiState, DayState
from trajectory_platform.sources.artifact_download import Downloader
from trajectory_platform.sources.container import Limits as ArtifactLimits
from trajectory_platform.sources.day_fetch import DayFetch, Limits, stored_report
from trajectory_platform.sources.day_report import next_check
from trajectory_platform.sources.fetch_report import OPEN, FetchReport
from trajectory_platform.sources.files import FileSource
from trajectory_platform.sources.oro_client import OroClient, utc_now
from trajectory_platform.sources.raw_day_writer import RawDayWriter
from trajectory_platform.sources.request_limiter import RequestLimiter
from trajectory_platform.sources.wanted import LONGEST_WAIT

if TYPE_CHECKING:
    import httpx

NEVER = "never_looked"
_NO_REPORT_FOR = timedelta(hours=1)
__all__ = ["ApiAccess", "FetchReport", "OpenDay", "fetch_day", "is_due", "open_client", "open_days", "read_report"]


@dataclass(frozen=True)
class ApiAccess:
    """How the API is used, as plain values (``of`` takes them from the settings).

    Attributes:
        base_url: the API.
        data_root: raw days: folder or ``s3://bucket/prefix``.
        state: local folder of queue and limiter, shared by all processes of the machine.
        requests_per_minute: of all those processes.
        requests_per_day: requests for one subnet day on one UTC day, listing and links; above it a stratified sample is
            fetched, and what is left goes on the next UTC day. Only a listing that alone costs more goes beyond it.
        artifact_hosts: see ``artifact_download.Downloader``.
        final_after_days: days after the end of a day at which what is missing is given up.
        settle_days: a day is not final before this many days after its end.
        max_artifact_bytes, max_inflated_bytes: caps of one artifact.
        sampling_key: of the hash that orders pairs.
        seed: of the jitter between retries.
        workers: links and downloads in flight.
        listing_max_age_s: how old a remembered listing answer may be.
        timeout_s, tries, max_wait_s: see ``OroClient``.
    """

    base_url: str
    data_root: str
    state: str
    requests_per_minute: int = 90
    requests_per_day: int | None = None
    artifact_hosts: tuple[str, ...] = ()
    final_after_days: int = 14
    settle_days: int = 1
    max_artifact_bytes: int = 64 << 20
    max_inflated_bytes: int = 256 << 20
    sampling_key: str = "trajectory-platform"
    seed: int = 0
    workers: int = 4
    listing_max_age_s: float = 3600.0
    timeout_s: float = 60.0
    tries: int = 5
    max_wait_s: float = 120.0

    @property
    def owner(self) -> str:
        """Which API is fetched to where, however the two are written: what the queue of wanted artifacts belongs to."""
        remote = self.data_root.startswith("s3://")
        root = self.data_root.rstrip("/") if remote else os.path.realpath(os.path.expanduser(self.data_root))
        return f"{self.base_url.rstrip('/')} {root}"

    @classmethod
    def of(cls, settings: Settings) -> ApiAccess:
        """From the settings."""
        return cls(
            base_url=settings.api_base,
            data_root=settings.data_root,
            state=settings.api_state,
            requests_per_minute=settings.api_requests_per_minute,
            requests_per_day=settings.api_requests_per_day,
            artifact_hosts=settings.api_artifact_hosts,
            final_after_days=settings.api_final_after_days,
            max_artifact_bytes=settings.max_artifact_bytes,
            max_inflated_bytes=settings.max_inflated_bytes,
            sampling_key=settings.pool_key,
            seed=settings.seed,
        )


class OpenDay(NamedTuple):
    """A day to be looked at; ``due`` None means now.

    ``state`` is ``never_looked``, ``open``, or a final one where a check is due (``day_report.next_check``).
    """

    day: date
    state: str
    due: datetime | None
    reason: str


def open_client(
    access: ApiAccess,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], datetime] = utc_now,
    transport: httpx.BaseTransport | None = None,
) -> OroClient:
    """A client whose limiter is shared through ``access.state`` (and runs on real time). Use as a context manager.

    Raises:
        Abort: ``base_url`` is no https address.
    """
    limiter = RequestLimiter(
        access.state, per_window=access.requests_per_minute, address=access.base_url, max_wait_s=access.max_wait_s
    )
    return OroClient(
        access.base_url,
        limiter=limiter,
        clock=clock,
        sleep=sleep,
        seed=access.seed,
        timeout_s=access.timeout_s,
        tries=access.tries,
        max_wait_s=access.max_wait_s,
        transport=transport,
    )


def fetch_day(
    day: date,
    *,
    access: ApiAccess,
    client: OroClient,
    clock: Callable[[], datetime] = utc_now,
    sleep: Callable[[float], None] = time.sleep,
    axis_history: Mapping[str, float] | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
    stop: Callable[[], bool] | None = None,
    anew: bool = False,
    transport: httpx.BaseTransport | None = None,
) -> FetchReport:
    """One look at a day: list, write the listing files, fetch what is due, write ``fetch.json``.

    Args:
        day: half-open UTC day of judgment.
        access, client: where from and where to (``open_client``).
        clock: aware UTC; decides what is due and final.
        sleep: waits between tries of a download.
        axis_history: miner -> share of axis A among earlier traces, for the sampling policy.
        progress: told (``listing`` or ``artifacts``, done, of how many).
        stop: asked between artifacts; True ends the look, which is resumed by the next one.
        anew: links to hosts that were not allowed are tried now; else from the next day on, or once the hosts change.
        transport: of the downloads, for tests.

    Raises:
        RetryLater: ``fetch_in_progress`` (another process is at this day), or the listing cannot be read now. What an
            earlier look wrote is still there.
        Abort: wrong settings.
    """
    with ApiState(access.state, owner=access.owner) as state, state.only_one(day):
        downloader = Downloader(
            access.artifact_hosts,
            max_bytes=access.max_artifact_bytes,
            max_inflated=access.max_inflated_bytes,
            clock=clock,
            sleep=sleep,
            timeout_s=access.timeout_s,
            transport=transport,
        )
        try:
            limits = Limits(
                requests=access.requests_per_day,
                final_after=timedelta(days=access.final_after_days),
                settle=timedelta(days=access.settle_days),
                sampling_key=access.sampling_key,
                workers=access.workers,
                listing_max_age_s=access.listing_max_age_s,
                artifact_hosts=access.artifact_hosts,
                anew=anew,
                artifact=ArtifactLimits(access.max_artifact_bytes, access.max_inflated_bytes),
            )
            look = DayFetch(day, client, downloader, state, RawDayWriter(access.data_root), limits, clock)
            return look.run(
                axis_history=axis_history or {},
                progress=progress or (lambda what, done, of: None),
                stop=stop or (lambda: False),
            )
        finally:
            downloader.close()


def open_days(
    access: ApiAccess, *, first: date, last: date | None = None, clock: Callable[[], datetime] = utc_now
) -> list[OpenDay]:
    """Days from ``first`` to ``last`` (default: today in UTC) that are not final, or due once more, oldest first.

    Reads the state folder only; of days that are not known there, ``fetch.json`` of those that a listing of the data
    root names, and remembers it.
    """
    found = []
    now = clock()
    with ApiState(access.state, owner=access.owner) as state:
        days = list(days_between(first, last or now.astimezone(UTC).date()))
        _learn(access, state, [day for day in days if state.day(day) is None], now)
        for day in days:
            known = state.day(day)
            if known is None:
                found.append(OpenDay(day, NEVER, None, "no look yet"))
            elif known.state == OPEN:
                mended = "later" in known.reason.split(", ") and _other_hosts(known, access)
                ahead = known.due is not None and known.due - now > LONGEST_WAIT  # by a clock that was
                found.append(OpenDay(day, OPEN, None if mended or ahead else known.due, known.reason))
            elif known.due is not None and known.due <= now:
                found.append(OpenDay(day, known.state, None, "its runs are checked once more"))
    return found


def _learn(access: ApiAccess, state: ApiState, unknown: list[date], now: datetime) -> None:
    """Take what ``fetch.json`` says of days that the state folder does not know (it is new, or was lost).

    One listing of the data root, and one read for each such day that has a folder; a folder without a report (its first
    look was killed, or its files came from elsewhere) is read again after an hour.
    """
    there = set(FileSource(access.data_root).days()) if unknown else set()
    for day in sorted(there.intersection(unknown)):
        key = f"no_report:{day.isoformat()}"
        held = state.answer(key, now)
        if held is not None and now - held[0] < _NO_REPORT_FOR:
            continue
        report = read_report(access.data_root, day)
        if report is None:
            state.remember(key, True, now)
        elif state.judged_on(day):  # a look at another day since has read versions of this one: as ``reopen``
            state.set_day(day, DayState(OPEN, None, "judged_again", {}))
        else:  # without a memory, so that the next look takes it from the report
            due = report.next_look or next_check(day, report.last_look, timedelta(days=access.final_after_days))
            state.set_day(day, DayState(report.state, due, report.open_because, {}))


def _other_hosts(known: DayState, access: ApiAccess) -> bool:
    """Whether artifacts may come from other hosts than at the last look."""
    hosts = list(access.artifact_hosts)
    return bool(known.memory.get("hosts", hosts) != hosts)


def is_due(day: OpenDay, now: datetime) -> bool:
    """Whether a look at the day may bring something now."""
    return day.due is None or day.due <= now


def read_report(access: ApiAccess | str, day: date) -> FetchReport | None:
    """The report of the last look at a day; None when there is none."""
    return stored_report(RawDayWriter(access if isinstance(access, str) else access.data_root), day)
