"""From what a look at a day found to its report: what is missing, whether it may still come, and when to look again."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from trajectory_platform.identity import parse_utc
from trajectory_platform.sources.fetch_report import FINAL, NO_USABLE_ID, OPEN, UNSAFE_ID, WITH_HOLES, FetchReport
from trajectory_platform.sources.oro_client import MAX_SKEW_S
from trajectory_platform.sources.oro_found import Found
from trajectory_platform.sources.run_labels import run_labels
from trajectory_platform.sources.wanted import IN_WHOLE_FILE, UNUSED, Row

PAUSE = timedelta(minutes=10)  # before what failed, or a look that ended early, is tried again
_LOOKS_WHEN_SHORT = 3  # the subnet counts pairs of agents that its public lists do not show: no reason to look for ever
PATIENCE = timedelta(hours=12)  # from the first look at a day that is old until what is missing is given up
_FINAL_LOOKS = (timedelta(days=3), timedelta(days=7))  # after a day's end; one more when it is old
_RELIST = timedelta(hours=6)  # after which runs that were not final, and hidden versions, are looked at again


class Look(NamedTuple):
    """One look, as its report needs it: ``rows`` are all pairs of the day afterwards, ``memory`` is of all looks.

    ``spent`` are the requests sent for the day on the UTC day of the look, ``resumes`` is when the ``budget`` has room
    for another look (None: now).
    """

    day: date
    now: datetime
    rows: list[Row]
    requests: dict[str, int]
    memory: dict[str, Any]
    sampling: dict[str, Any] | None
    stopped: str | None
    fetched_now: int
    adopted: int
    clock_skew_s: float | None
    oddities: dict[str, int]
    budget: int | None = None
    spent: int = 0
    resumes: datetime | None = None


def waiting(look: Look, found: Found, *, settled: datetime, last: datetime, given_up: bool) -> dict[str, datetime]:
    """Why the day is not final, and from when on a look may change that; empty when nothing more can come.

    Args:
        look, found: the look and what the API listed.
        settled: before this a day is not final: runs may still be added or invalidated.
        last: when the day is old: a look at once then.
        given_up: whether what is hidden is no longer waited for.
    """
    end = datetime.combine(look.day, time(), tzinfo=UTC) + timedelta(days=1)
    states = Counter(row.state for row in look.rows)
    waits: dict[str, datetime] = {}
    if look.now < min(settled, last):
        waits["settling"] = end if look.now < end else min(settled, last)
    if states["wanted"]:
        waits["wanted"] = look.now + (PAUSE if look.stopped else timedelta(0))
    if states["later"]:
        times = [parse_utc(row.until) or look.now for row in look.rows if row.state == "later"]
        waits["later"] = max(min(times), look.now + PAUSE) if look.stopped else min(times)
    relist = look.now + _RELIST if look.now >= last else min(look.now + _RELIST, last)
    if any(row.state == "not_asked" and row.reason == "not_final" for row in look.rows):
        waits["not_final"] = relist
    if any(reason != UNSAFE_ID for reason in found.hidden.values()) and not given_up:
        waits["hidden"] = relist
    if look.memory["looks"] < _LOOKS_WHEN_SHORT:
        if _reconcile(found.expected, found.distinct()) == "short":
            waits["short"] = look.now + timedelta(days=1)  # by then every remembered answer is asked for anew
        elif found.expected_state == "unreadable":
            waits["uncounted"] = look.now + _RELIST
    resumes = look.resumes
    return waits if resumes is None else {why: max(moment, resumes) for why, moment in waits.items()}


def next_check(day: date, last_look: datetime, final_after: timedelta) -> datetime | None:
    """When a final day is looked at once more: runs are invalidated after ingestion as well (domain 1.10).

    Args:
        final_after: from the end of a day until it is old; after a look at the old day there is none.
    """
    end = datetime.combine(day, time(), tzinfo=UTC) + timedelta(days=1)
    return next(
        (end + after for after in sorted({*_FINAL_LOOKS, final_after}) if last_look < end + after <= end + final_after),
        None,
    )


def make_report(look: Look, found: Found, waits: dict[str, datetime]) -> FetchReport:
    """The report of a look; ``waits`` as ``waiting`` gives it."""
    fetched = [row for row in look.rows if row.state == "fetched"]
    distinct = found.distinct()
    not_sampled = _reasons(look.rows, "not_sampled").total()
    reconciliation = _reconcile(found.expected, distinct)
    holes = sum(map(_is_hole, look.rows)) + not_sampled + len(found.hidden) + (reconciliation == "short")
    return FetchReport(
        day=look.day,
        state=OPEN if waits else WITH_HOLES if holes else FINAL,
        first_look=parse_utc(look.memory["first_look"]) or look.now,
        last_look=look.now,
        looks=look.memory["looks"],
        next_look=min(waits.values()) if waits else None,
        open_because=", ".join(sorted(waits)),
        pairs=len(look.rows),
        distinct=distinct,
        runs=len(found.runs),
        agent_versions=len(found.agent_versions),
        races=len(found.races),
        suite_problems=0 if found.suite is None else len(found.suite["problems"]),
        run_labels=run_labels(found.runs),
        fetched=len(fetched),
        fetched_now=look.fetched_now,
        adopted=look.adopted,
        bytes=sum(row.size or 0 for row in fetched),
        damaged=sum(row.reason is not None for row in fetched),
        wanted=_reasons(look.rows, "wanted").total(),
        later=dict(_reasons(look.rows, "later")),
        gone=dict(_reasons(look.rows, "gone")),
        not_sampled=not_sampled,
        not_asked=dict(_reasons(look.rows, "not_asked")),
        hidden_versions=dict(sorted(Counter(found.hidden.values()).items())),
        expected=found.expected,
        expected_state=found.expected_state,
        reconciliation=reconciliation,
        requests=look.requests,
        requests_total=look.memory["requests"],
        clock_skew_s=look.clock_skew_s,
        warnings=_warnings(look, found, distinct),
        oddities=dict(sorted((found.oddities + Counter(look.oddities)).items())),
        sampling=look.sampling,
        stopped=look.stopped,
    )


def _reasons(rows: list[Row], state: str) -> Counter[str]:
    counts = Counter(row.reason or "" for row in rows if row.state == state)
    return Counter({reason: counts[reason] for reason in sorted(counts)})


def _is_hole(row: Row) -> bool:
    """Whether something is missing for good that could be used, or that was given up while it might still have come."""
    if row.state == "not_asked":
        return row.reason in NO_USABLE_ID
    if row.state != "gone" or row.reason == IN_WHOLE_FILE:
        return False
    return row.rank < UNUSED or str(row.reason).startswith("given_up")


def _warnings(look: Look, found: Found, distinct: int) -> list[str]:
    words = []
    skew = look.clock_skew_s
    if skew is not None and abs(skew) > MAX_SKEW_S:
        side = "behind" if skew > 0 else "ahead of"
        words.append(f"clock skew: this machine's clock is {abs(round(skew))} s {side} the API's; set the clock")
    if found.expected is not None and distinct < found.expected:
        words.append(f"the subnet counted {found.expected} distinct pairs for this day, {distinct} were found")
    if found.expected is None:
        words.append(f"completeness cannot be reconciled: {found.expected_state}")
    words += _of_budget(look)
    unread = found.oddities["envpack_results_not_read"]
    if unread:
        words.append(
            f"{unread} runs of generated environments (envpack) are not fetched: the public API hands out no "
            "trajectory of them"
        )
    refused = _reasons(look.rows, "later")["host_not_allowed"]
    if refused:
        words.append(f"{refused} links lead to hosts that api_artifact_hosts does not name; they were not followed")
    return words


def _of_budget(look: Look) -> list[str]:
    listing = look.memory.get("listing", 0)
    if look.budget is None:
        return []
    if listing >= look.budget or (look.sampling is not None and not look.sampling["places"]):
        return [
            f"a budget of {look.budget} requests leaves none for artifacts: the listing alone takes {listing}; "
            "raise api_requests_per_day"
        ]
    if look.spent > look.budget:
        return [
            f"{look.spent} requests were sent for this day today, {look.budget} are allowed (api_requests_per_day): it "
            "was listed again before the budget had room for it, or its listing had to be tried more than once"
        ]
    return []


def _reconcile(expected: int | None, distinct: int) -> str:
    if expected is None:
        return "unknown"
    return "match" if distinct == expected else "short" if distinct < expected else "over"
