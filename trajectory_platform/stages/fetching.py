"""Days fetched from the subnet's API into ``data_root``, where the file source reads them like any other day.

A day is looked at until it is final (``sources.oro_api``): what is embargoed, not judged yet or not published yet is
asked for again, what the request budget leaves out is listed with the reason. Nothing is published to the lake here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort, PlatformError, RetryLater
from trajectory_platform.lake import tables
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext, StageResult, assert_in_reach, given_days, some_days, window

if TYPE_CHECKING:
    from trajectory_platform.sources.oro_api import FetchReport, OpenDay
    from trajectory_platform.sources.oro_client import OroClient

STAGE = "fetched_day"
IN_PROGRESS = "fetch_in_progress"
HISTORY_DAYS = 14  # published days before a day from which the axis history of a miner is taken
Progress = Callable[[date, int, int], None]
Fact = dict[str, Any]


def utc_now() -> datetime:
    """The moment as of which days are fetched."""
    return datetime.now(UTC)


@contextmanager
def connected(settings: Settings) -> Iterator[OroClient]:
    """A client of the API that the settings name; one serves any number of days. It goes by the machine's clock.

    Raises:
        Abort: oro-sdk is not installed, or the settings are wrong.
    """
    from trajectory_platform.sources.oro_api import ApiAccess, open_client

    with open_client(ApiAccess.of(settings)) as client:
        yield client


def fetch(
    ctx: StageContext,
    day: str,
    *,
    client: OroClient | None = None,
    clock: Callable[[], datetime] = utc_now,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    anew: bool = False,
) -> FetchReport:
    """One look at a UTC day of judgment: list it, fetch what is there and not here yet, write down what is missing.

    Safe to call at any time and any number of times; an interrupted look goes on where it ended.

    Args:
        client: as from ``connected``; None opens one for this day.
        clock: the moment as of which the day is looked at: what is due, what is final.
        progress: called with (day, artifacts done, artifacts wanted).
        stop: asked between artifacts; true ends the look early.
        anew: a person asks for the day: links to hosts that were not allowed are tried now.

    Raises:
        RetryLater: another process fetches this day (``fetch_in_progress``), or the day could not be listed.
        Abort: wrong settings.
    """
    from trajectory_platform.sources.oro_api import ApiAccess, fetch_day

    if client is None:
        with connected(ctx.settings) as opened:
            return fetch(ctx, day, client=opened, clock=clock, progress=progress, stop=stop, anew=anew)
    which = date.fromisoformat(day)

    def moved(what: str, done: int, of: int | None) -> None:
        if progress is not None and what == "artifacts" and of:
            progress(which, done, of)

    return fetch_day(
        which,
        access=ApiAccess.of(ctx.settings),
        client=client,
        clock=clock,
        axis_history=axis_history(ctx, day) if ctx.settings.api_requests_per_day is not None else None,
        progress=moved,
        stop=stop,
        anew=anew,
    )


def fetched_day(ctx: StageContext, day: str) -> StageResult:
    """``fetch`` as a stage: the first of the day's stages where the source is the API. It publishes no table."""
    report = fetch(ctx, day)
    return StageResult(STAGE, day, False, {}, summary_of(report))


def summary_of(report: FetchReport) -> dict[str, Any]:
    """What a look found, for people and for event metadata: state and holes first."""
    waiting = report.wanted + sum(report.later.values())
    return {
        "state": report.state,
        "pairs": report.pairs,
        "fetched": report.fetched,
        "fetched_now": report.fetched_now,
        "waiting": waiting,
        "gone": sum(report.gone.values()),
        "not_sampled": report.not_sampled,
        "not_asked": sum(report.not_asked.values()),
        "holes": report.holes(),
        "expected": report.expected,
        "distinct": report.distinct,
        "reconciliation": report.reconciliation,
        "looks": report.looks,
        "next_look": None if report.next_look is None else report.next_look.isoformat(),
        "requests": sum(report.requests.values()),
        "bytes": report.bytes,
        "clock_skew_s": report.clock_skew_s,
        "warnings": list(report.warnings),
        "stopped": report.stopped,
    }


def axis_history(ctx: StageContext, day: str) -> Mapping[str, float]:
    """Share of axis-A traces per miner on the ``HISTORY_DAYS`` published days before ``day``.

    Of the traces that got as far as the axis stage of the filter; miners without one are not in it.
    """
    import polars as pl

    before = (date.fromisoformat(day) - timedelta(days=1)).isoformat()
    days = [one for one in window(before, HISTORY_DAYS) if one in set(ctx.lake.days(tables.AXIS_A_CORPUS))]
    if not days:
        return {}
    labels = [
        ctx.lake.read(table, days, columns=["trace_id", "day", "axis_label"], ordered=False)
        for table in (tables.AXIS_A_CORPUS, tables.REJECTED_TRACES)
    ]
    miners = pl.DataFrame(
        ctx.lake.read(tables.RAW_TRACES, days, columns=["trace_id", "day", "miner_hotkey"], ordered=False)
    )
    labelled = pl.concat([pl.DataFrame(one) for one in labels]).drop_nulls("axis_label")
    joined = labelled.join(miners, on=["trace_id", "day"]).drop_nulls("miner_hotkey")
    shares = joined.group_by("miner_hotkey").agg((pl.col("axis_label") == "A").mean().alias("share"))
    return dict(sorted(shares.select("miner_hotkey", "share").iter_rows()))


# ---------------------------------------------------------------------------------------------- the command


def fetch_days(
    settings: Settings,
    day: str | None,
    first: str | None,
    last: str | None,
    *,
    only_open: bool = False,
    clock: Callable[[], datetime] = utc_now,
    progress: Progress | None = None,
) -> Iterator[Fact]:
    """Fetch one day, a range, or every day that is not final and due; one fact per day, as ``ingest`` reports them.

    A day that another process is fetching is tried once more when the others are done. When nobody can be reached the
    days behind are left: each would only wait for the same.

    Raises:
        Abort: wrong settings or days, or nothing is named.
    """
    ctx = StageContext(settings)
    days = _open_days(settings, clock) if only_open else _named_days(settings, day, first, last, clock)
    with connected(settings) as client:
        busy: list[str] = []
        for number, one in enumerate(days):
            fact = _look(ctx, one, client, clock, progress, anew=not only_open)
            if fact["state"] == "busy":
                busy.append(one)
                continue
            place = fact.pop("unreachable", None)
            if place is not None:
                left = len(days) - number - 1 + len(busy)
                rest = f"; {left} more {'days are' if left > 1 else 'day is'} left for later" if left else ""
                yield fact | {"text": f"{fact['text']}; tried {place}{rest}"}
                return
            yield fact
        for one in busy:
            fact = _look(ctx, one, client, clock, progress, anew=not only_open)
            fact.pop("unreachable", None)
            yield fact


def _look(
    ctx: StageContext,
    day: str,
    client: OroClient,
    clock: Callable[[], datetime],
    progress: Progress | None,
    *,
    anew: bool,
) -> Fact:
    """One day's fact; ``unreachable`` is in it where another day cannot fare better: what could not be reached."""
    from trajectory_platform.stages.result_words import told

    try:
        summary = summary_of(fetch(ctx, day, client=client, clock=clock, progress=progress, anew=anew))
    except Abort:
        raise
    except RetryLater as error:
        state = "busy" if error.reason == IN_PROGRESS else "failed"
        fact = {"day": day, "stage": STAGE, "state": state, "summary": {}, "text": str(error)}
        place = _unreachable(ctx.settings, error)
        return fact if place is None else fact | {"unreachable": place}
    except PlatformError as error:
        return {"day": day, "stage": STAGE, "state": "failed", "summary": {}, "text": str(error)}
    except Exception as error:
        # the boundary of a day: an unknown fault fails this day and names itself
        logging.getLogger(__name__).exception("%s %s", STAGE, day)
        return {
            "day": day,
            "stage": STAGE,
            "state": "failed",
            "summary": {},
            "text": f"{type(error).__name__}: {error}",
        }
    state = "stopped" if summary["stopped"] else "final" if summary["state"].startswith("final") else "open"
    return {"day": day, "stage": STAGE, "state": state, "summary": summary, "text": told(summary)}


def _unreachable(settings: Settings, error: RetryLater) -> str | None:
    """What could not be reached at all; None for an answer that broke off, which another day need not share."""
    # httpx.ConnectError and ConnectTimeout, as ``OroClient`` names them in the detail
    if error.reason in ("connection", "timeout") and re.search(r"\bConnect(Error|Timeout)\b", error.detail):
        return f"{settings.api_base} (TRAJECTORY_PLATFORM_API_BASE)"
    if error.reason == "storage_unavailable":
        return f"{settings.data_root} (TRAJECTORY_PLATFORM_DATA_ROOT)"
    return None


def nothing_due(settings: Settings, clock: Callable[[], datetime] = utc_now) -> str:
    """What is told where ``--open`` found no day to look at: when the next one is."""
    looks = sorted((one.due, one.day) for one in _to_look_at(settings, clock) if one.due is not None)
    if not looks:
        return "nothing is due: every day that is over is final"
    return f"nothing is due: the next look is at {looks[0][1]}, from {looks[0][0]:%Y-%m-%d %H:%M} UTC on"


def _open_days(settings: Settings, clock: Callable[[], datetime]) -> list[str]:
    from trajectory_platform.sources.oro_api import is_due

    return [one.day.isoformat() for one in _to_look_at(settings, clock) if is_due(one, clock())]


def _to_look_at(settings: Settings, clock: Callable[[], datetime]) -> list[OpenDay]:
    """The days that are over and not final, now or later."""
    from trajectory_platform.sources.oro_api import ApiAccess, open_days

    yesterday = clock().date() - timedelta(days=1)
    return open_days(ApiAccess.of(settings), first=settings.first_day, last=yesterday, clock=clock)


def _named_days(
    settings: Settings, day: str | None, first: str | None, last: str | None, clock: Callable[[], datetime]
) -> list[str]:
    """The days that somebody names. That of today may be looked at while it runs: it stays open, and is asked again."""
    given = given_days(day, first, last)
    if given[0] is not None:
        assert_in_reach(settings, [given[0]], clock().date(), running=True)
        return [given[0].isoformat()]
    if given[1] is None and given[2] is None:
        raise Abort("name a day (--day), a range (--from, --to), or --open for every day that is not final")
    days = some_days(given[1] or settings.first_day, given[2] or clock().date())
    assert_in_reach(settings, (days[0], days[-1]), clock().date(), running=True)
    return [one.isoformat() for one in days]


# ------------------------------------------------------------------------------------------------- the check


def newest_fetched(ctx: StageContext) -> list[str]:
    """The newest day with a look, for a check that is started without one; empty when there is none."""
    from trajectory_platform.sources.oro_api import read_report

    days = reversed(ctx.source.days())
    return next(([day.isoformat()] for day in days if read_report(ctx.settings.data_root, day) is not None), [])


def reconciled(ctx: StageContext, day: str) -> dict[str, Any]:
    """Whether what was found on a day is what the subnet says it judged that day (``trajectories/history``).

    Returns:
        ``passed``: the numbers agree and every pair is accounted for. ``broken``: pairs are not accounted for, which no
        state of the API explains. ``words``: what a person should know; an unknown number is never taken for zero.
    """
    from trajectory_platform.sources.oro_api import read_report

    report = read_report(ctx.settings.data_root, date.fromisoformat(day))
    if report is None:
        return {"passed": False, "broken": False, "words": "never fetched"}
    parts = {
        "fetched": report.fetched,
        "waiting": report.wanted + sum(report.later.values()),
        "gone": sum(report.gone.values()),
        "not_sampled": report.not_sampled,
        "not_asked": sum(report.not_asked.values()),
    }
    broken = sum(parts.values()) != report.pairs
    told = {
        "match": f"{report.distinct} distinct pairs, as the subnet counts them",
        "over": f"{report.distinct} distinct pairs found, the subnet counts {report.expected}",
        "short": f"{report.distinct} distinct pairs found, the subnet counts {report.expected}",
        "unknown": f"{report.distinct} distinct pairs found; the subnet's count is not known yet",
    }
    words = [told.get(report.reconciliation, report.reconciliation)]
    holes = {name: count for name, count in sorted(report.holes().items()) if count}
    if holes:
        words.append("not here: " + ", ".join(f"{name} {count}" for name, count in holes.items()))
    if broken:
        words.append(f"{sum(parts.values())} of {report.pairs} pairs are accounted for")
    return {
        "passed": report.reconciliation in ("match", "over") and not broken,
        "broken": broken,
        "words": "; ".join(words),
        "state": report.state,
        "pairs": report.pairs,
        "expected": report.expected,
        **parts,
        "holes": holes,
    }
