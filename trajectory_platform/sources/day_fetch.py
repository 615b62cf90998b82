"""One look at a day: listing files first, then artifacts, then the report; each step can be repeated."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from trajectory_platform.errors import PlatformError, RejectRow, RetryLater
from trajectory_platform.identity import parse_utc, sha256_hex
from trajectory_platform.sources.api_state import ApiState, DayState
from trajectory_platform.sources.artifact_download import Downloaded, Downloader, ExpiredLink, damage_of
from trajectory_platform.sources.container import Limits as ArtifactLimits
from trajectory_platform.sources.day_report import PATIENCE, PAUSE, Look, make_report, next_check, waiting
from trajectory_platform.sources.fetch_report import (
    FETCH_FILE,
    OPEN,
    PAIRS_FILE,
    FetchReport,
    as_report,
    pair_line,
    parse_report,
    report_text,
)
from trajectory_platform.sources.oro_answers import EMBARGO, NOT_THERE
from trajectory_platform.sources.oro_client import OroClient
from trajectory_platform.sources.oro_discovery import Discovery
from trajectory_platform.sources.oro_found import Found
from trajectory_platform.sources.raw_day_writer import ARTIFACT_SUFFIX, RawDayWriter
from trajectory_platform.sources.request_budget import BUDGET_SPENT, Spending
from trajectory_platform.sources.sampling import choose, places
from trajectory_platform.sources.unread_versions import LISTING_FILES, keep_unread
from trajectory_platform.sources.wanted import IN_WHOLE_FILE, Row, WantedQueue
from trajectory_platform.sources.whole_run_files import days_that_miss, problems_inside, readable, settle

MAX_FAILURES = 5  # in a row: then the API or the store is down, and the rest of the day is left for the next look


class Limits(NamedTuple):
    """What bounds a fetch: see ``oro_api.ApiAccess``."""

    requests: int | None
    final_after: timedelta
    settle: timedelta
    sampling_key: str
    workers: int
    listing_max_age_s: float
    artifact_hosts: tuple[str, ...]
    anew: bool
    artifact: ArtifactLimits


class DayFetch:
    """One look at one day."""

    def __init__(
        self,
        day: date,
        client: OroClient,
        downloader: Downloader,
        state: ApiState,
        writer: RawDayWriter,
        limits: Limits,
        clock: Callable[[], datetime],
    ) -> None:
        self._day, self._client, self._downloader, self._state = day, client, downloader, state
        self._writer, self._limits, self._clock = writer, limits, clock
        self._queue = WantedQueue(state)
        self._end = datetime.combine(day, time(), tzinfo=UTC) + timedelta(days=1)
        self._lock = threading.Lock()
        self._failures = self._done = self._fetched_now = self._adopted = 0
        self._stopped: str | None = None
        self._stop: Callable[[], bool] = lambda: False
        self._closed_races: set[str] = set()
        self._inside: set[tuple[str, str]] = set()

    def run(
        self,
        *,
        axis_history: Mapping[str, float],
        progress: Callable[[str, int, int | None], None],
        stop: Callable[[], bool],
    ) -> FetchReport:
        """See ``oro_api.fetch_day``."""
        now, before, asked = self._clock(), Counter(self._client.requests), self._client.questions["listing"]
        self._stop = stop
        self._writer.clean()
        spending = Spending(self._state, self._day, self._limits.requests, now)

        def requests() -> Counter[str]:
            return Counter(self._client.requests) - before

        try:
            memory, found = self._list(now, progress)
            # Without what was tried again: one bad hour must not count against the artifacts of every later look.
            memory["listing"] = max(self._client.questions["listing"] - asked, memory.get("listing", 0))
            spending.sent(requests().total())
            sampling = self._sample(axis_history, memory["listing"])
            with self._client.budget.at_most(spending.left):
                self._fetch_all(progress)
        finally:
            spending.sent(requests().total())
        return self._close(found, memory, sampling, requests(), spending)

    # ------------------------------------------------------------------------------------------ listing

    def _list(self, now: datetime, progress: Callable[[str, int, int | None], None]) -> tuple[dict[str, Any], Found]:
        """Read the listing, write its files, and bring the queue and the folder in line with it."""
        memory = self._memory(now)
        hosts = list(self._limits.artifact_hosts)
        if self._limits.anew or memory.get("hosts", hosts) != hosts:
            self._queue.ask_again(self._day, "host_not_allowed")
        memory["hosts"] = hosts
        discovery = Discovery(
            self._client,
            self._state,
            self._day,
            now,
            max_age_s=self._limits.listing_max_age_s,
            progress=lambda done, of: progress("listing", done, of),
        )
        found = keep_unread(discovery.find(), self._writer, self._queue, self._day)
        self._write_listing(found)
        for row in self._queue.put(self._day, found.pairs, unread=found.hidden):
            self._move(row)
        for other in self._queue.missed(found.elsewhere):
            self._state.reopen(other, "judged_again")
        self._adopt()
        for race_id, in_flight in found.races.items():
            if in_flight:
                self._queue.race_in_flight(self._day, race_id, now, None)
        return memory, found

    def _write_listing(self, found: Found) -> None:
        folder = self._day.isoformat()
        for name, records in zip(LISTING_FILES, (found.runs, found.problems, found.agent_versions), strict=True):
            self._writer.write_lines(f"{folder}/{name}", records)
        uri = f"{folder}/suite.json"
        if found.suite is not None and (found.suite_complete or self._writer.read(uri) is None):
            self._writer.write_lines(uri, [found.suite])

    def _move(self, row: Row) -> None:
        """A pair was judged anew on this day: its file moves here, and the day it was on is looked at again."""
        if row.state == "fetched":
            source = self._writer.artifact_uri(date.fromisoformat(row.day), row.eval_run_id, row.problem_id)
            self._move_file(source, self._writer.artifact_uri(self._day, row.eval_run_id, row.problem_id))

    def _move_file(self, source: str, target: str) -> None:
        """Copied before it is removed: whoever is killed between the two leaves it twice, never not at all."""
        data = self._writer.read(source)
        if data is None:
            return
        if self._writer.read(target) is None:
            self._writer.write(target, data)
        self._writer.remove(source)

    def _adopt(self) -> None:
        """What lies in the folder need not be fetched; what was fetched and has vanished is wanted again.

        Last of all what lies inside the file of another pair, which need not be fetched either.
        """
        present = self._writer.artifacts(self._day)
        for row in self._queue.rows(self._day):
            uri = self._writer.artifact_uri(self._day, row.eval_run_id, row.problem_id)
            if row.state == "fetched":
                if uri not in present:
                    self._queue.want_again(row)
            elif uri in present and row.problem_id != "@":
                data = self._writer.read(uri)
                if data is not None:
                    self._keep(row, data, damage_of(data, self._limits.artifact.max_inflated_bytes))
                    self._adopted += 1
            present.pop(uri, None)
        for uri in present:  # of no pair of this day: what a killed look should have moved to the pair's new day
            run, _, name = uri.removeprefix(f"{self._day.isoformat()}/artifacts/").partition("/")
            away = self._queue.on_another_day(self._day, (run, name.removesuffix(ARTIFACT_SUFFIX)))
            if away is not None:
                self._move_file(uri, self._writer.artifact_uri(date.fromisoformat(away.day), run, away.problem_id))
                if away.state != "fetched":  # its look may have found nothing meanwhile
                    self._state.reopen(date.fromisoformat(away.day), "judged_again")
        settle(self._queue, self._day)

    def _sample(self, axis_history: Mapping[str, float], listing: int) -> dict[str, Any] | None:
        """Choose what is asked for where the day has more than its budget allows."""
        rows = self._queue.rows(self._day, ("wanted", "later", "fetched", "gone", "not_sampled"))
        budget = self._limits.requests
        count = len(rows) if budget is None else places(budget, listing)
        if count >= len(rows):
            self._queue.sample_everything(self._day)
            return None
        choice = choose(rows, count=count, key=self._limits.sampling_key, axis_history=axis_history)
        self._queue.choose(choice.pairs)
        return {"budget": budget, "listing_requests": listing, **choice.summary}

    # ------------------------------------------------------------------------------------------ artifacts

    def _fetch_all(self, progress: Callable[[str, int, int | None], None]) -> None:
        rows = self._queue.due(self._day, self._clock())

        def one(row: Row) -> None:
            if self._stopped is None and self._stop():
                self._stopped = "asked_to_stop"
            if self._stopped is None:
                self._fetch_one(row)
            with self._lock:
                self._done += 1
                progress("artifacts", self._done, len(rows))

        with ThreadPoolExecutor(max(self._limits.workers, 1)) as pool:
            try:
                for _ in pool.map(one, rows):
                    pass
            except BaseException:
                self._stopped = "interrupted"  # what is still in the pool returns at once
                raise

    def _fetch_one(self, row: Row) -> None:
        if (row.eval_run_id, row.problem_id) in self._inside:
            self._queue.gone(row, IN_WHOLE_FILE)
            return
        if row.race_id in self._closed_races:
            return
        try:
            got = self._bytes(row)
        except PlatformError as error:
            self._refused(row, error, self._clock())
            return
        except Exception as error:  # noqa: BLE001 - of one artifact: it must not cost the others, nor the report
            self._refused(row, RetryLater("unexpected_error", type(error).__name__), self._clock())
            return
        self._writer.write(self._writer.artifact_uri(self._day, row.eval_run_id, row.problem_id), got.data)
        self._keep(row, got.data, got.damage)
        with self._lock:
            self._failures = 0
            self._fetched_now += 1

    def _bytes(self, row: Row) -> Downloaded:
        """A link just before the download, and a new one once when the store refuses it (case I05)."""
        for _ in range(2):
            link = self._client.download_url(row.agent_version_id, row.eval_run_id, row.problem_id)
            try:
                return self._downloader.get(link["download_url"])
            except ExpiredLink as error:
                refused = str(error)
        raise RetryLater("link_refused", f"the store refused two links: {refused}")

    def _refused(self, row: Row, error: PlatformError, now: datetime) -> None:
        """What a refusal means for the row, and whether the look goes on."""
        if isinstance(error, RetryLater) and error.reason == BUDGET_SPENT:  # nothing was asked
            self._stopped = BUDGET_SPENT
            return
        if isinstance(error, RejectRow):
            if error.reason in NOT_THERE:
                self._queue.not_there(row, error.reason, now)
            elif error.reason == "too_large":
                self._queue.gone(row, error.reason)
            else:  # a link that must not be followed: a fault of the settings, or of the server, that may be mended
                self._queue.later(row, error.reason, now, timedelta(days=1).total_seconds())
        elif isinstance(error, RetryLater):
            hidden = error.reason in EMBARGO
            if error.reason == "race_in_flight" and row.race_id is not None:
                with self._lock:
                    first = row.race_id not in self._closed_races
                    self._closed_races.add(row.race_id)
                if first:  # the other workers ask for the same race meanwhile: a look is one try
                    self._queue.race_in_flight(self._day, row.race_id, now, error.after_s)
            else:
                self._queue.later(row, error.reason, now, error.after_s if hidden else PAUSE.total_seconds())
        else:
            raise error
        with self._lock:
            known = isinstance(error, RejectRow) or error.reason in (*EMBARGO, "refused", "link_refused")
            self._failures = 0 if known else self._failures + 1
            if not known and (error.reason in ("rate_limited", "clock_skew") or self._failures >= MAX_FAILURES):
                self._stopped = f"{error.reason}: {error.detail}"[:300]

    def _keep(self, row: Row, data: bytes, damage: str | None) -> None:
        """The bytes of a pair lie in the folder. What else of its run they hold need not be asked for."""
        inside = problems_inside(data, self._limits.artifact)
        with self._state.transaction():
            self._queue.holds(row, inside)
            self._queue.fetched(row, sha256_hex(data), len(data), damage)
            others = self._queue.of_run(row.eval_run_id) if inside else []
            for day in days_that_miss(others, self._day, inside):
                self._state.reopen(day, IN_WHOLE_FILE)
        with self._lock:
            self._inside |= {(row.eval_run_id, problem_id) for problem_id in readable(inside)}

    # ------------------------------------------------------------------------------------------ the report

    def _memory(self, now: datetime) -> dict[str, Any]:
        """What earlier looks left: from the state folder, else from ``fetch.json``."""
        known = self._state.day(self._day)
        memory = dict(known.memory) if known is not None else {}
        if not isinstance(memory.get("looks"), int):
            report = stored_report(self._writer, self._day)
            memory = {
                "first_look": (now if report is None else report.first_look).isoformat(),
                "looks": 0 if report is None else report.looks,
                "requests": {} if report is None else report.requests_total,
            }
        memory["looks"] += 1
        return memory

    def _is_given_up(self, now: datetime, last: datetime, memory: dict[str, Any]) -> bool:
        """Whether what is missing is no longer waited for: the day is old, and was looked at again long enough after it
        was first looked at as an old one. A backfill comes to a day when it is; and a look that was stopped has not
        asked for what was due."""
        if now < last or self._stopped is not None:
            return False
        since = parse_utc(memory.get("old_since"))
        if since is None or since > now:  # never, or by a clock that was ahead
            memory["old_since"] = now.isoformat()
            return False
        return now - since >= PATIENCE

    def _close(
        self,
        found: Found,
        memory: dict[str, Any],
        sampling: dict[str, Any] | None,
        requests: Counter[str],
        spending: Spending,
    ) -> FetchReport:
        now = self._clock()
        settle(self._queue, self._day)
        last = self._end + self._limits.final_after
        given_up = self._is_given_up(now, last, memory)
        if given_up:
            self._queue.give_up(self._day)
        requests["downloads"] = self._downloader.requests
        memory["requests"] = dict(sorted((Counter(memory["requests"]) + requests).items()))
        look = Look(
            day=self._day,
            now=now,
            rows=self._queue.rows(self._day),
            requests=dict(sorted(requests.items())),
            memory=memory,
            sampling=sampling,
            stopped=self._stopped,
            fetched_now=self._fetched_now,
            adopted=self._adopted,
            clock_skew_s=self._client.clock_skew_s,
            oddities=dict(self._client.oddities),
            budget=spending.budget,
            spent=spending.spent,
            resumes=spending.resumes(memory["listing"]),
        )
        waits = waiting(look, found, settled=self._end + self._limits.settle, last=last, given_up=given_up)
        report = make_report(look, found, waits)
        lines = [line for row in sorted(look.rows) if (line := pair_line(row)) is not None]
        folder = self._day.isoformat()
        self._writer.write_lines(f"{folder}/{PAIRS_FILE}", lines)
        self._writer.write(f"{folder}/{FETCH_FILE}", report_text(report))
        due = report.next_look or next_check(self._day, now, self._limits.final_after)
        state = DayState(report.state, due, report.open_because, memory)
        with self._state.transaction():
            if self._queue.on_other_days(self._day, found.pairs):  # another process read newer entries meanwhile
                state = DayState(OPEN, None, "judged_again", memory)
            self._state.set_day(self._day, state)
        return report


def stored_report(writer: RawDayWriter, day: date) -> FetchReport | None:
    """The report of the last look at a day as it lies in the day's folder; None when there is none."""
    data = writer.read(f"{day.isoformat()}/{FETCH_FILE}")
    report = None if data is None else as_report(parse_report(data))
    return report if report is not None and report.day == day else None
