"""Days that come, change, or are not final yet: two sensors that request ``ingest_and_curate``.

Their memory is the lake and the runs of the instance; the cursor only saves looking again. So a lost cursor, a second
daemon or a tick that died between its request and its cursor loses nothing and doubles nothing (cases F06, F07).
"""

# No `from __future__ import annotations` here: Dagster reads the context annotation of a body and refuses text.

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from trajectory_platform.defs.partitions import complete_days
from trajectory_platform.defs.resources import Platform
from trajectory_platform.defs.runs import (
    MAX_TAG,
    REASON,
    Earlier,
    earlier,
    in_hand,
    in_progress,
    read_cursor,
    read_tag,
    since,
)
from trajectory_platform.defs.schedules import Clock
from trajectory_platform.errors import PlatformError
from trajectory_platform.sources.listed import Listed, listed
from trajectory_platform.stages.context import StageContext, neighbours
from trajectory_platform.stages.plain import DAILY_ASSETS, daily_assets
from trajectory_platform.stages.triggers import (
    INCOMPLETE,
    behind,
    days_at_source,
    local_digest,
    near_source,
    open_days,
    published,
    version_of,
)

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

JOB = "ingest_and_curate"
RAW_VERSION = "trajectory_platform/raw_version"
REPOLLS = "trajectory_platform/repolls"
POLL_S = 60
SETTLED_S = 120  # a folder that changed less long ago is still being written
LOOK_S = 20.0  # of listing and reading in one tick; the rest waits for the next one
MAX_REQUESTS = 10
MAX_REPOLLS = 6  # at once; the daily run goes before them in the queue
TRIES = 3
_SHOWN = 8


def sensor_status(running: bool) -> dg.DefaultSensorStatus:
    return dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED


def new_raw_days(
    job: "UnresolvedAssetJobDefinition",
    partitions: dg.DailyPartitionsDefinition,
    *,
    assets: Sequence[str] | None,
    clock: Clock,
    running: bool,
) -> dg.SensorDefinition:
    """Request the days whose raw folders came or changed.

    Args:
        assets: what is run, None for the whole job: the fetching of a day has its own times.
    """

    @dg.sensor(
        name="new_raw_days",
        job=job,
        minimum_interval_seconds=POLL_S,
        default_status=sensor_status(running),
        description="Looks for day folders that came or changed, and requests the days that read them. A folder is "
        "left alone until nothing in it changed for two minutes.",
    )
    def sensor(context: dg.SensorEvaluationContext, platform: Platform) -> dg.SensorResult:
        now = clock()
        tick = _FolderTick(platform.context, context.instance, complete_days(partitions, now), now, context.cursor)
        try:
            requests, text = tick.requests(assets)
        except PlatformError as error:
            return dg.SensorResult(skip_reason=f"not looked at: {error}"[:MAX_TAG], cursor=context.cursor)
        if requests:
            context.log.info(text)
        skip = None if requests else text
        return dg.SensorResult(run_requests=requests, skip_reason=skip, cursor=tick.cursor())

    return sensor


class _FolderTick:
    """One look at the day folders: which changed, which days read them, which of those are to be run."""

    def __init__(
        self,
        ctx: StageContext,
        instance: dg.DagsterInstance,
        complete: Sequence[str],
        now: datetime,
        cursor: str | None,
    ) -> None:
        kept = read_cursor(cursor)
        self._ctx, self._instance, self._complete, self._now = ctx, instance, complete, now
        folders, undone, begin = kept.get("folders"), kept.get("open"), kept.get("next")
        self._versions: dict[str, str] = folders if isinstance(folders, dict) else {}  # as last seen
        self._open = set(undone if isinstance(undone, list) else []) & set(complete)  # days not known to be done
        self._next = begin if isinstance(begin, str) else ""  # where the look goes on
        self._ends = time.monotonic() + LOOK_S
        self._there: set[str] = set()  # the folders that are there
        self._looked: set[str] = set()  # of them those that were listed in this tick
        self._writing: set[str] = set()  # and those that are still being written
        self._told: list[str] = []

    def requests(self, assets: Sequence[str] | None) -> tuple[list[dg.RunRequest], str]:
        """What is to be run, and the whole of it in words."""
        self._look()
        chain, digest = published(self._ctx), local_digest(self._ctx)
        busy = in_hand(self._instance, JOB, DAILY_ASSETS, in_progress(self._instance, JOB))
        found: list[dg.RunRequest] = []
        for number, day in enumerate(sorted(self._open)):
            if len(found) == MAX_REQUESTS or (number and time.monotonic() > self._ends):
                self._told.append("the rest waits for the next tick")
                break
            if writing := self._still_written(day):
                if day not in writing:
                    self._told.append(f"{day} waits: it reads {', '.join(writing)} too, still being written")
                continue
            version = version_of(day, self._versions)
            why = behind(self._ctx, day, chain, digest)
            before = earlier(self._instance, RAW_VERSION, f"{day}@{version}")
            if why is None and (digest is not None or before.runs):
                self._done(day, "is ingested as its folders are now")
            elif day in busy or before.waits:
                self._told.append(f"{day} waits for {busy.get(day, 'the run requested before')}")
            elif (
                digest is None
                and not before.runs
                and (why is None or why.kind == INCOMPLETE)
                and earlier(self._instance, read_tag(day), version).runs
            ):
                self._done(day, "was read as its folders are now; what comes later is repoll_open_days'")
            elif before.runs and not before.failed:
                self._done(day, "was ingested of these folders; the rest is asked again by repoll_open_days")
            elif before.failed >= TRIES:
                self._done(day, f"failed {before.failed} times; correct the folder or run the day by hand")
            elif not _may_try(before, self._now):
                self._told.append(f"{day} failed {before.failed} time(s) and is tried again later")
            else:
                found.append(self._request(day, version, before, why.text if why else "its folders are new", assets))
        words = "; ".join([*(f"{one.partition_key}: {one.tags[REASON]}" for one in found), *self._told])
        return found, words[:1000] or f"{len(self._versions)} folders, none new or changed"

    def cursor(self) -> str:
        return json.dumps({"folders": self._versions, "open": sorted(self._open), "next": self._next})

    def _look(self) -> None:
        """List folders until the time of a tick is over: new ones first, then the newest, then the others in turn."""
        days = [day.isoformat() for day in self._ctx.source.days()]
        self._there = set(days)
        for day in sorted(set(self._versions) - set(days)):
            self._changed(day, None)
        strange = [day for day in days if day not in self._versions]
        recent = [day for day in reversed(days) if day in self._versions][:2]
        later = sorted(set(days) - set(strange) - set(recent))
        turned = [day for day in later if day >= self._next] + [day for day in later if day < self._next]
        for number, day in enumerate([*strange, *recent, *turned]):
            if number and time.monotonic() > self._ends:
                self._next = day if day in later else self._next
                return
            self._list(day)
        self._next = ""

    def _list(self, day: str) -> None:
        self._looked.add(day)
        self._changed(day, listed(self._ctx.settings.data_root, date.fromisoformat(day)))

    def _still_written(self, day: str) -> list[str]:
        """The folders a day reads that are still being written: run now, it would be run again for each of them.

        A day can be open from an earlier tick, or for a settled folder beside it: what this tick did not come to list
        is listed here.
        """
        near = neighbours(day)
        for one in near:
            if one in self._there and one not in self._looked:
                self._list(one)
        return [one for one in near if one in self._writing]

    def _changed(self, day: str, found: Listed | None) -> None:
        """Note a folder that came, changed or (``found`` is None) went; the days that read it are open from now on."""
        if not self._complete or day > self._complete[-1]:
            self._told.append(f"{day} is not over")
            return
        if found is None:
            self._versions.pop(day)
        elif found.version == self._versions.get(day):
            return
        else:
            age = self._now - datetime.fromtimestamp(found.newest_ns / 1e9, UTC)
            # a file of a moment that is still to come was written while this tick looked, or by a clock a little ahead
            if abs(age) < timedelta(seconds=SETTLED_S):
                self._writing.add(day)
                self._told.append(f"{day} is still being written")
                return
            self._versions[day] = found.version
        self._open |= set(near_source([date.fromisoformat(day)], self._complete))

    def _done(self, day: str, text: str) -> None:
        self._open.discard(day)
        self._told.append(f"{day} {text}")

    def _request(
        self, day: str, version: str, before: Earlier, why: str, assets: Sequence[str] | None
    ) -> dg.RunRequest:
        return dg.RunRequest(
            run_key=f"raw:{day}:{version}:{before.runs + 1}",
            partition_key=day,
            asset_selection=None if assets is None else [dg.AssetKey(name) for name in assets],
            tags={RAW_VERSION: f"{day}@{version}", REASON: why[:MAX_TAG]},
        )


def _may_try(before: Earlier, now: datetime) -> bool:
    """A failed day is tried again after half an hour, then after an hour."""
    return before.ended is None or since(before.ended, now) >= timedelta(minutes=30 * 2 ** max(0, before.failed - 1))


def repoll_open_days(
    job: "UnresolvedAssetJobDefinition", partitions: dg.DailyPartitionsDefinition, *, clock: Clock, running: bool
) -> dg.SensorDefinition:
    """Request the days that are not final, at most ``MAX_REPOLLS`` in progress at once."""

    @dg.sensor(
        name="repoll_open_days",
        job=job,
        minimum_interval_seconds=5 * POLL_S,
        default_status=sensor_status(running),
        description="Runs days again that are not final: late artifacts, released code, invalidated runs, verdicts to "
        "be had later, retracted traces, changed neighbours. A day that does not settle is asked ever more rarely.",
    )
    def sensor(context: dg.SensorEvaluationContext, platform: Platform) -> dg.SensorResult:
        now = clock()
        try:
            requests, text = _repolls(platform.context, context.instance, complete_days(partitions, now), now)
        except PlatformError as error:
            return dg.SensorResult(skip_reason=f"not looked at: {error}"[:MAX_TAG])
        return dg.SensorResult(run_requests=requests, skip_reason=None if requests else text, cursor=text)

    return sensor


def _repolls(
    ctx: StageContext, instance: dg.DagsterInstance, complete: Sequence[str], now: datetime
) -> tuple[list[dg.RunRequest], str]:
    looks, waiting = open_days(ctx, complete, now, days_at_source(ctx.settings, complete, now))
    running = in_progress(instance, JOB)
    busy = in_hand(instance, JOB, daily_assets(ctx.settings), running)
    room = MAX_REPOLLS - sum(1 for look in looks if look.day in running)
    found: list[dg.RunRequest] = []
    for look in looks:
        if look.day in busy:
            waiting[look.day] = f"{busy[look.day]} is on it"
            continue
        before = earlier(instance, REPOLLS, look.day)
        every = look.every_s(before.runs, before.failed)
        if before.waits or (before.ended is not None and since(before.ended, now) < timedelta(seconds=every)):
            waiting[look.day] = f"{look.reason}; looked {before.runs} time(s), next after {every // 3600} h"
        elif len(found) >= room:
            waiting[look.day] = "waits for its turn"
        else:
            tags = {REPOLLS: look.day, REASON: look.reason[:MAX_TAG]}
            found.append(dg.RunRequest(run_key=look.key(now, every), partition_key=look.day, tags=tags))
    return found, _repoll_words(found, waiting, len(complete))


def _repoll_words(found: Sequence[dg.RunRequest], waiting: Mapping[str, str], days: int) -> str:
    words = [f"{one.partition_key}: {one.tags[REASON]}" for one in found]
    words += [f"{day}: {text}" for day, text in sorted(waiting.items())[:_SHOWN]]
    more = len(waiting) - _SHOWN
    words += [f"and {more} more that wait"] if more > 0 else []
    return "; ".join(words)[:1000] or f"all of {days} days are final or were never begun"
