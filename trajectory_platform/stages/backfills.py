"""A backfill through a running Dagster: launched by GraphQL, watched to its end, begun again where it stopped.

Only days that the lake does not hold as they are now are asked for, so the same command may be started at any time,
also while an earlier one still runs: it is joined, not doubled. Days that are not complete after that (a bad day fails
the run it shares with four others) are asked for again, each in a run of its own, as long as that changes something.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from trajectory_platform.errors import Abort, RetryLater
from trajectory_platform.escaping import escaped
from trajectory_platform.identity import day_ranges, days_between
from trajectory_platform.settings import Settings
from trajectory_platform.stages.context import StageContext, some_days
from trajectory_platform.stages.run_causes import causes
from trajectory_platform.stages.triggers import INCOMPLETE, behind, local_digest, near_source, published

TAG = "trajectory_platform/backfill"
PEAK_MEMORY = "trajectory_platform/peak_memory_mb"
FIRST_DAYS = 40
MAX_RUNTIME_S = 6 * 3600
MAX_ROUNDS = 4
_ENDED = ("COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED")
_CANCELLED = "CANCELED"  # of a backfill: by a person; one that the daemon gives up is FAILED
_RUN_ENDED = ("SUCCESS", "FAILURE", "CANCELED")
_TRIES, _PATIENT_TRIES, _LONGEST_PAUSE_S, _TIMEOUT_S = 5, 15, 15.0, 30.0  # patience: about three minutes

_LAUNCH = """mutation Launch($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  ... on UnauthorizedError { message } ... on PartitionKeysNotFoundError { message } } }"""
_BACKFILL = """query Backfill($id: String!) { partitionBackfillOrError(backfillId: $id) {
  __typename ... on PartitionBackfill { id status error { message } } ... on PythonError { message } } }"""
_OPEN = """query Open { partitionBackfillsOrError(status: REQUESTED, limit: 100) { __typename
  ... on PartitionBackfills { results { id tags { key value } } } ... on PythonError { message } } }"""
_RUNS = """query Runs($filter: RunsFilter!) { runsOrError(filter: $filter, limit: 1000) { __typename
  ... on Runs { results { runId status startTime endTime tags { key value } } } ... on PythonError { message } } }"""

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""(query, variables) -> ``data`` of the answer."""


class Choice(NamedTuple):
    """The days of a backfill: to be run, already as they should be, and those that no folder leads to."""

    wanted: list[str]
    current: list[str]
    absent: list[str]


def chosen_days(settings: Settings, first: str | None, last: str | None, now: datetime, *, again: bool) -> Choice:
    """What of a range is to be run; by default the first forty days.

    Args:
        again: also the days that are current.

    Raises:
        Abort: the range is empty, no day of it is over, or a word is no day.
    """
    try:
        low = date.fromisoformat(first) if first else settings.first_day
        high = date.fromisoformat(last) if last else low + timedelta(days=FIRST_DAYS - 1)
    except ValueError as error:
        raise Abort(f"{error}: write days as YYYY-MM-DD") from None
    some_days(low, high)
    over = now.astimezone(UTC).date() - timedelta(days=1)
    days = [day.isoformat() for day in days_between(max(low, settings.first_day), min(high, over))]
    if not days:
        raise Abort(f"no day from {low} to {high} is over and in the partitions, which begin on {settings.first_day}")
    ctx = StageContext(settings)
    there = set(days) if settings.source == "oro_api" else set(near_source(ctx.source.days(), days))
    chain = published(ctx)
    digest = local_digest(ctx) if settings.source == "files" else None
    absent = [day for day in days if day not in there and day not in chain["raw_traces"]]
    known = [day for day in days if day not in absent]
    wanted = known if again else [day for day in known if behind(ctx, day, chain, digest) is not None]
    return Choice(wanted, [day for day in known if day not in wanted], absent)


def graphql(server: str, sleep: Callable[[float], None] = time.sleep) -> Ask:
    """A client of the webserver at ``server``.

    A question that only reads is asked again while the server, or the database behind it, restarts: patiently once
    there was an answer, briefly before, when the address may be wrong. A launch is sent once, because an answer that is
    lost does not say that nothing was launched.

    Raises:
        Abort: no web address; from the client, when no answer comes, or a launch was refused.
    """
    from urllib import parse

    if parse.urlsplit(server).scheme not in ("http", "https"):
        raise Abort(f"--server {server}: write http://HOST:PORT of a Dagster webserver")
    url = server.rstrip("/") + "/graphql"
    answered = False

    def ask(query: str, variables: dict[str, Any]) -> dict[str, Any]:
        nonlocal answered
        body = json.dumps({"query": query, "variables": variables}).encode()
        tries = 1 if query.startswith("mutation") else _PATIENT_TRIES if answered else _TRIES
        for number in range(tries):
            try:
                found = _asked_once(server, url, body)
                answered = True
                return found
            except RetryLater as failed:
                if number + 1 == tries:
                    raise Abort(failed.detail) from None
                sleep(min(2.0**number, _LONGEST_PAUSE_S))
        raise AssertionError("unreachable: the last try returns or raises")

    return ask


def _asked_once(server: str, url: str, body: bytes) -> dict[str, Any]:
    """``data`` of one answer. Raises RetryLater for what passes: nobody there, 5xx, an error of the database."""
    from urllib import error, request

    asked = request.Request(url, data=body, headers={"Content-Type": "application/json"})
    try:
        with request.urlopen(asked, timeout=_TIMEOUT_S) as answer:
            return _data(json.loads(answer.read()), url)
    except error.HTTPError as refused:
        if refused.code < 500:
            raise Abort(f"{url} answered HTTP {refused.code}: is this a Dagster webserver?") from None
        words = f"{url} answers HTTP {refused.code}: see the webserver's log, its database may be down"
        raise RetryLater("server_error", f"{words}; what was launched goes on, give the command again") from None
    except (OSError, ValueError) as failed:
        why = getattr(failed, "reason", failed)
        raise RetryLater(
            "no_server", f"no Dagster webserver at {server} ({why}): start 'make ui' or name one"
        ) from None


def _data(answer: Any, url: str) -> dict[str, Any]:
    """Raises RetryLater for an answer that is an error: a launch is not repeated, a question is."""
    if not isinstance(answer, dict) or answer.get("errors") or not isinstance(answer.get("data"), dict):
        errors = answer.get("errors") if isinstance(answer, dict) else None
        raise RetryLater("graphql_error", f"{url}: {errors[0].get('message') if errors else 'no GraphQL answer'}")
    [(name, value)] = answer["data"].items()
    if isinstance(value, dict) and "message" in value:
        raise RetryLater("graphql_error", f"Dagster refused {name}: {value['message']}")
    return value if isinstance(value, dict) else {}


def run_backfill(
    settings: Settings,
    choice: Choice,
    *,
    assets: Sequence[str],
    ask: Ask,
    tell: Callable[[str], None],
    going: list[str] | None = None,
    poll_s: float = 5.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Run the chosen days to their end and say what came of it.

    Args:
        going: holds at every moment the ids of the backfills in progress: who is interrupted knows what goes on.

    Returns:
        ``backfills`` (ids), ``days``, ``complete``, ``incomplete`` (day -> why), ``causes`` (of those, day -> what
        failed in it and why), ``later`` (complete days of which part can be had later -> why), ``current_before``,
        ``absent``, ``runs``, ``runs_failed``, ``run_s`` (sum), ``wall_s``, ``peak_memory_mb`` of the largest run (None:
        not told).
    """
    began = clock()
    going = [] if going is None else going
    joined = _in_progress(ask, choice.wanted)
    ids = list(joined)
    going += joined
    for name in joined:
        tell(f"joins backfill {name}, which is in progress")
    _watch(joined, going, ask=ask, tell=tell, poll_s=poll_s, sleep=sleep)
    known = sorted({*choice.wanted, *choice.current})  # what is run can leave a day beside it behind
    left, later = _left(settings, known) if joined else (dict.fromkeys(choice.wanted, ""), {})
    before: dict[str, str] | None = None
    launched: list[str] = []
    for number in range(MAX_ROUNDS):
        if not left or left == before:
            break
        before = left if number else None
        alone = bool(number) and _has_failed(ask, launched)
        launched = []
        for days in [[day] for day in left] if alone else [list(left)]:
            launched.append(_launch(ask, assets, days))
            going.append(launched[-1])
        again = " and each in a run of its own" if alone else ""
        told = f", again{again}: not complete after the run before" if number else ""
        tell(f"launched {len(left)} day(s), {_span(list(left))}{told}")
        ids += launched
        ended = _watch(launched, going, ask=ask, tell=tell, poll_s=poll_s, sleep=sleep)
        left, later = _left(settings, known)
        if left and _CANCELLED in ended.values():
            tell("the backfill was cancelled by somebody: give the command again to go on")
            break
    runs = [run for name in reversed(ids) for run in _runs(ask, name)]  # newest first
    why = causes(ask, runs) if left else {}
    return {
        "backfills": ids,
        "days": choice.wanted,
        "complete": [day for day in choice.wanted if day not in left],
        "incomplete": left,
        "causes": {day: why[day] for day in left if day in why},
        "later": later,
        "current_before": choice.current,
        "absent": choice.absent,
        **_measured(runs),
        "wall_s": round(clock() - began, 1),
    }


def _has_failed(ask: Ask, ids: Sequence[str]) -> bool:
    """Whether a day may have failed the run that it shared. Where the daemon gave up a backfill (it restarted while the
    code server was away), runs were cancelled and none of them failed: these days may share runs again."""
    return any(run["status"] == "FAILURE" for name in ids for run in _runs(ask, name))


def _in_progress(ask: Ask, days: Sequence[str]) -> list[str]:
    """Backfills of ours in progress whose range holds one of the days."""
    found: list[str] = []
    for one in ask(_OPEN, {}).get("results", []):
        first, _, last = next((tag["value"] for tag in one["tags"] if tag["key"] == TAG), "").partition("..")
        if any(first <= day <= last for day in days):
            found.append(one["id"])
    return found


def _launch(ask: Ask, assets: Sequence[str], days: Sequence[str]) -> str:
    """Launch a backfill of these days of every asset, and of no others.

    Dagster would go on from the days of the first assets to all that depend on them: the day after the last reads the
    problems of its neighbour, and would be judged before it was ever read.
    """
    ranges = [{"start": first, "end": last} for first, last in day_ranges(days)]
    tags = {TAG: f"{days[0]}..{days[-1]}", "dagster/max_runtime": str(MAX_RUNTIME_S)}
    params = {
        "partitionsByAssets": [{"assetKey": {"path": [name]}, "partitions": {"ranges": ranges}} for name in assets],
        "tags": [{"key": key, "value": value} for key, value in tags.items()],
        "title": f"{len(days)} day(s) from {days[0]} to {days[-1]}",
    }
    return str(ask(_LAUNCH, {"params": params})["backfillId"])


def _watch(
    ids: Sequence[str],
    going: list[str],
    *,
    ask: Ask,
    tell: Callable[[str], None],
    poll_s: float,
    sleep: Callable[[float], None],
) -> dict[str, str]:
    """Wait until all of some backfills have ended, telling when a count changes; how each ended.

    Args:
        going: loses those that ended.
    """
    waiting, told, how = list(ids), "", dict[str, str]()
    while waiting:
        states = {name: ask(_BACKFILL, {"id": name}) for name in waiting}
        counted: dict[str, int] = {}
        for name in ids:
            for run in _runs(ask, name):
                counted[run["status"]] = counted.get(run["status"], 0) + 1
        text = ", ".join(f"{count} {state.lower()}" for state, count in sorted(counted.items()))
        if text and text != told:
            tell(f"runs: {text}")
            told = text
        for name, state in states.items():
            if state.get("error"):
                tell(f"backfill {name}: {state['error']['message'].strip().splitlines()[-1]}")
        how |= {name: state["status"] for name, state in states.items() if state.get("status") in _ENDED}
        waiting = [name for name in waiting if name not in how]
        going[:] = [name for name in going if name not in how]
        if waiting:
            sleep(poll_s)
    return how


def _runs(ask: Ask, name: str) -> list[dict[str, Any]]:
    found = ask(_RUNS, {"filter": {"tags": [{"key": "dagster/backfill", "value": name}]}})
    return list(found.get("results", []))


def _left(settings: Settings, days: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Day -> why, of those that are to be run again now, and of those of which part can be had later.

    Raises:
        RetryLater: the lake cannot be read now.
    """
    ctx = StageContext(settings)
    chain = published(ctx)
    digest = local_digest(ctx) if settings.source == "files" else None
    try:
        found = {day: behind(ctx, day, chain, digest) for day in days}
    except OSError as error:
        raise RetryLater("lake_unreadable", str(error)) from error
    now = {day: why.text for day, why in found.items() if why is not None and why.kind != INCOMPLETE}
    return now, {day: why.text for day, why in found.items() if why is not None and why.kind == INCOMPLETE}


def _measured(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts, seconds and memory of the runs that ended."""
    ended = [run for run in runs if run["status"] in _RUN_ENDED]
    seconds = [run["endTime"] - run["startTime"] for run in ended if run["endTime"] and run["startTime"]]
    peaks = [int(tag["value"]) for run in ended for tag in run["tags"] if tag["key"] == PEAK_MEMORY]
    return {
        "runs": len(runs),
        "runs_failed": sum(1 for run in ended if run["status"] != "SUCCESS"),
        "run_s": round(sum(seconds), 1),
        "peak_memory_mb": max(peaks, default=None),
    }


def backfill_text(facts: dict[str, Any]) -> str:
    """What came of it, for people."""
    lines = [
        f"days      {len(facts['complete'])} complete of {len(facts['days'])}, {len(facts['current_before'])} were "
        f"current before, {len(facts['absent'])} have no folder",
        f"runs      {facts['runs']}, {facts['runs_failed']} failed; {facts['run_s']:.0f} s in all",
        f"took      {facts['wall_s']:.0f} s",
    ]
    if facts["peak_memory_mb"] is not None:
        lines.append(f"memory    {facts['peak_memory_mb']} MiB in the largest run")
    # what is only behind because another day failed comes after that day
    said = {**facts["causes"], **{day: why for day, why in facts["incomplete"].items() if day not in facts["causes"]}}
    lines += [f"{day}  {escaped(why)}" for day, why in {**said, **facts["later"]}.items()]
    return "\n".join(lines)


def _span(days: Sequence[str]) -> str:
    """Days for people: all of a few, else the first and the last."""
    return ", ".join(days) if len(days) <= 5 else f"{days[0]} to {days[-1]}"
