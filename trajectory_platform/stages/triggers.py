"""When a day is to be ingested, asked again or reported: the rules behind the schedule, the sensors and the checks.

Plain functions of the settings, the lake, the raw folders and a given time; all times are UTC. Whether code or settings
changed is deliberately not looked at: forty days are rebuilt when a person says so, never by a deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.identity import digest_lines
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext, neighbours
from trajectory_platform.stages.retraction import day_inputs

if TYPE_CHECKING:
    from trajectory_platform.lake.manifests import Manifest

CHAIN = (
    tables.RAW_TRACES.name,
    tables.PROBLEM_SUITES.name,
    tables.TRAJECTORIES.name,
    tables.JUDGED_TRACES.name,
    tables.AXIS_A_CORPUS.name,
)
"""The tables of a day, in the order in which they are made."""
_RETRACTABLE = CHAIN[2:]

MISSING, FOLDER, INPUTS, RETRACTED, INCOMPLETE = (
    "missing",
    "folder_changed",
    "inputs_changed",
    "retracted",
    "incomplete",
)
HOUR = 3600
_WEEK = 7
_MAX_KNOWN = 5000  # days of which is remembered what of them is retracted
_MIN_DAYS = 3  # days before this many cannot tell what is usual
WARN_LAG, ERROR_LAG = 1, 3  # days


class Behind(NamedTuple):
    """Why the published tables of a day are not the last word: the first table that is not, and the kind of reason."""

    table: str
    kind: str
    text: str


Manifests = Mapping[str, Mapping[str, "Manifest"]]


def follows(settings: Settings) -> bool:
    """Whether schedules and sensors start switched on: as the settings say, else where days come from the API.

    A folder of days on a laptop is ingested when its owner says so; a source that is fetched is there to be followed.
    """
    return settings.source == "oro_api" if settings.unattended is None else settings.unattended


def due_at(settings: Settings, day: str) -> datetime:
    """When the daily ingestion takes a day: on the next day at ``ingest_at_utc``."""
    hour, minute = settings.ingest_at_utc.split(":")
    return datetime.combine(date.fromisoformat(day) + timedelta(days=1), time(int(hour), int(minute)), UTC)


def published(ctx: StageContext) -> Manifests:
    """Table -> day -> what is published of it; read once, asked for many days."""
    return {name: {one.day: one for one in ctx.lake.manifests(name)} for name in (*CHAIN, tables.RETRACTIONS.name)}


def behind(
    ctx: StageContext, day: str, chain: Manifests, folder_digest: Callable[[str], str] | None = None
) -> Behind | None:
    """Why a day is to be run again, or None.

    Args:
        folder_digest: day -> content digest of its folder now; without it the folders are not looked at.
    """
    for name in CHAIN:
        manifest = chain[name].get(day)
        if manifest is None:
            return Behind(name, MISSING, f"{name} of {day} is not published")
        if name in _RETRACTABLE and manifest.inputs.get("retracted") != _retracted(ctx, day, chain):
            return Behind(name, RETRACTED, f"traces of {day} were retracted since {name} was made")
        for source, digest in manifest.inputs.items():
            table, _, other = source.partition("/")
            if table == "folder" and folder_digest is not None and folder_digest(other) != digest:
                return Behind(name, FOLDER, f"the folder {other} changed since {name} of {day} was made")
            if table in chain and _digest(chain, table, other) != digest:
                return Behind(name, INPUTS, f"{table} of {other} changed since {name} of {day} was made")
    if broken := [name for name in CHAIN if not chain[name][day].complete]:
        return Behind(broken[0], INCOMPLETE, f"{', '.join(broken)} of {day} is incomplete: part of it can be had later")
    return None


_known: dict[tuple[str, ...], str | None] = {}


def _retracted(ctx: StageContext, day: str, chain: Manifests) -> str | None:
    """The ``retracted`` input of a day. To find it the day's rows are read, which a sensor cannot do for every day of
    every tick: it is found once for what is retracted and what the day's rows are. Without retractions there is none.
    """
    stones = chain[tables.RETRACTIONS.name]
    if not stones:
        return None
    said = digest_lines(text for one in sorted(stones) for text in (one, stones[one].content_digest))
    key = (ctx.settings.lake_uri, said, day, _digest(chain, tables.RAW_TRACES.name, day))
    if key not in _known:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[key] = day_inputs(ctx, day).get("retracted")
    return _known[key]


def _digest(chain: Manifests, table: str, day: str) -> str:
    manifest = chain[table].get(day)
    return "absent" if manifest is None else manifest.content_digest


def near_source(days: Iterable[date], complete: Sequence[str]) -> list[str]:
    """The complete days that can have rows of the folders ``days``: a folder's own day and the two beside it."""
    known = set(complete)
    return sorted({near for day in days for near in neighbours(day.isoformat()) if near in known})


def version_of(day: str, versions: Mapping[str, str]) -> str:
    """One version of all that a day reads, of the versions of the folders beside and of it; a missing one counts."""
    return digest_lines(versions.get(near, "") for near in neighbours(day))[:16]


def local_digest(ctx: StageContext) -> Callable[[str], str] | None:
    """Day -> content digest of its folder, asked once each; None on an object store, where a day of many thousand
    objects takes longer than a tick may: there a run looks, and ends at once where nothing changed."""
    if ctx.settings.data_root.startswith("s3://"):
        return None
    return lru_cache(None)(lambda day: ctx.source.digest(date.fromisoformat(day)))


class Freshness(NamedTuple):
    """How far the newest complete day of the corpus lies behind the newest day that should be there.

    Attributes:
        lag: days; None when nothing was ingested yet.
        severity: ``ok`` | ``warn`` | ``error``.
    """

    newest: str | None
    expected: str | None
    lag: int | None
    severity: str
    text: str


def freshness(ctx: StageContext, complete: Sequence[str], now: datetime, grace_h: int = 6) -> Freshness:
    """The age of the corpus in days, counted from the newest day whose ingestion was due ``grace_h`` hours ago.

    A day of which part comes later (embargo, a judge that could not be asked) is there.
    """
    due = [day for day in complete if due_at(ctx.settings, day) + timedelta(hours=grace_h) <= now]
    if not due:
        return Freshness(None, None, None, "ok", "no day is due yet")
    chain = published(ctx)
    found = {day: behind(ctx, day, chain) for day in chain[CHAIN[-1]]}
    whole = [day for day, why in found.items() if why is None or why.kind == INCOMPLETE]
    if not whole:
        return Freshness(None, due[-1], None, "error", f"{due[-1]} is due and no day is complete")
    newest = max(whole)
    lag = max(0, (date.fromisoformat(due[-1]) - date.fromisoformat(newest)).days)
    severity = "error" if lag >= ERROR_LAG else "warn" if lag >= WARN_LAG else "ok"
    return Freshness(
        newest, due[-1], lag, severity, f"newest complete day {newest}, due {due[-1]}: {lag} day(s) behind"
    )


def volume(ctx: StageContext, day: str) -> dict[str, Any]:
    """The traces of a day against the median of the week before.

    Returns:
        ``traces``, ``median`` (None with fewer than three days before), ``share``, ``severity`` (``ok`` | ``warn``
        below ``volume_min_share`` | ``error`` for none at all where some are usual), ``days`` compared with.
    """
    first = date.fromisoformat(day)
    before = [(first - timedelta(days=back)).isoformat() for back in range(1, _WEEK + 1)]
    rows = ctx.lake.read(tables.DAY_SUMMARIES, [day, *before], columns=["day", "raw_rows"]).to_pylist()
    counts = {row["day"]: int(row["raw_rows"]) for row in rows}
    traces, earlier = counts.pop(day, 0), sorted(counts.values())
    usual = float(median(earlier)) if len(earlier) >= _MIN_DAYS else None
    share = traces / usual if usual else None
    severity = "ok"
    if share is not None:
        severity = "error" if traces == 0 else "warn" if share < ctx.settings.volume_min_share else "ok"
    return {"traces": traces, "median": usual, "share": share, "severity": severity, "days": len(earlier)}


class Look(NamedTuple):
    """A day that is to be run again.

    Attributes:
        at_source: the source said when; else the lake shows that the day is not the last word.
    """

    day: str
    reason: str
    at_source: bool

    def every_s(self, runs: int, failed: int) -> int:
        """Seconds between two runs for this day, from one hour to one day.

        Args:
            runs: how many runs there were for it.
            failed: how many of the newest of them failed in a row.
        """
        return int(min(HOUR * 2 ** min(failed if self.at_source else runs, 5), 24 * HOUR))

    def key(self, now: datetime, every_s: int) -> str:
        """The same within ``every_s``: what a second daemon, or a tick after a crash, asks for again."""
        return f"repoll:{self.day}:{every_s}:{int(now.timestamp()) // every_s}"


class AtSource(NamedTuple):
    """A fetched day that is not final: ``due`` is when a look may bring something (None: now)."""

    day: str
    due: datetime | None
    reason: str
    looked: bool


def open_days(
    ctx: StageContext, complete: Sequence[str], now: datetime, at_source: Iterable[AtSource] = ()
) -> tuple[list[Look], dict[str, str]]:
    """The days that are to be run again now, oldest first, and those that are not final but wait, with the reason.

    A day is not final while a published table of it is incomplete (an answer to be had later), made of what was
    replaced since, or holds retracted traces; where days are fetched, also while the source has not said its last word:
    artifacts come late, code is released, runs are invalidated. A day that was never looked at is fetched up to
    ``api_final_after_days`` back: older history is a backfill, which a person starts.

    Args:
        complete: the partitions that are over.
        at_source: the fetched days that are not final.
    """
    chain = published(ctx)
    known = set(complete)
    young = date.fromordinal(now.date().toordinal() - ctx.settings.api_final_after_days).isoformat()
    looks: dict[str, Look] = {}
    waiting: dict[str, str] = {}
    for one in at_source:
        if one.day not in known or not (one.looked or one.day >= young):
            continue
        if one.due is not None and now < one.due:
            waiting[one.day] = f"{one.reason}, next look {one.due:%Y-%m-%d %H:%M}"
        else:
            looks[one.day] = Look(one.day, one.reason, at_source=True)
    for day in sorted({name for table in CHAIN for name in chain[table]} & known - set(looks)):
        why = behind(ctx, day, chain)
        if why is not None and not (why.kind == INCOMPLETE and day in waiting):
            looks[day] = Look(day, why.text, at_source=False)
    early = [day for day in looks if now < due_at(ctx.settings, day) + timedelta(hours=1)]
    waiting |= dict.fromkeys(early, "the daily ingestion goes first")
    return [looks[day] for day in sorted(set(looks) - set(early))], waiting


def days_at_source(settings: Settings, complete: Sequence[str], now: datetime) -> list[AtSource]:
    """What the fetching of days says of those that are not final; nothing where days are not fetched."""
    if settings.source != "oro_api" or not complete:
        return []
    from trajectory_platform.sources.oro_api import ApiAccess
    from trajectory_platform.sources.oro_api import open_days as not_final

    first, last = (date.fromisoformat(day) for day in (complete[0], complete[-1]))
    found = not_final(ApiAccess.of(settings), first=first, last=last, clock=lambda: now)
    return [AtSource(one.day.isoformat(), one.due, one.reason, one.state != "never_looked") for one in found]


def unreconciled(
    ctx: StageContext, complete: Sequence[str], folder_digest: Callable[[str], str] | None, deep: int = 3
) -> dict[str, str]:
    """``not_as_listed`` in words, for the days of which part comes later as well."""
    return {day: why.text for day, why in not_as_listed(ctx, complete, folder_digest, deep).items()}


def not_as_listed(
    ctx: StageContext, complete: Sequence[str], folder_digest: Callable[[str], str] | None = None, deep: int = 3
) -> dict[str, Behind]:
    """Day -> why, for every day that the source lists and the lake does not hold as it is listed.

    Args:
        folder_digest: content digest of a folder now, asked for the newest ``deep`` days only: it reads every file.
    """
    chain = published(ctx)
    days = near_source(ctx.source.days(), complete)
    newest = set(days[-deep:]) if deep else set()
    found = {day: behind(ctx, day, chain, folder_digest if day in newest else None) for day in days}
    return {day: why for day, why in found.items() if why is not None}
