"""A client of the subnet's public API over oro-sdk 7.0.2 that loses no record (domain 1.10).

Paths, parameters and models are the SDK's. What it does not do is done here: one limiter for all processes, retries of
GET *and* of ``POST artifacts/download-url`` (which only asks for a link, so asking twice is harmless), sizes and depth
capped, answers told apart by status and error code, clock skew named, and records kept as the API sent them. The SDK
raises on an enum value it does not know; such a record is kept and counted in ``OroClient.oddities``. A field of the
SDK's model that an answer leaves out (``Unset``) is None in the record.
"""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from trajectory_platform.errors import RejectRow, RetryLater
from trajectory_platform.sources.oro_answers import (
    TRANSIENT,
    Received,
    TooLarge,
    clock_offset,
    read_json,
    refusal,
)
from trajectory_platform.sources.oro_paging import Page, read_all
from trajectory_platform.sources.oro_transport import sdk_client
from trajectory_platform.sources.records import keep_score_texts
from trajectory_platform.sources.request_budget import Limiter, RequestBudget

if TYPE_CHECKING:
    import httpx

Record = dict[str, Any]
BASE_DELAY_S = 1.0
MAX_DELAY_S = 30.0
MAX_SKEW_S = 300.0  # signed links allow 15 minutes; from 5 on it is worth a word
TRAJECTORY = "EVAL_PROBLEM_LOGS"


def utc_now() -> datetime:
    """The wall clock, aware UTC."""
    return datetime.now(UTC)


class OroClient:
    """Every public endpoint that ingestion needs; answers are plain JSON records.

    Methods raise ``RetryLater`` (``race_in_flight``, ``not_released``, ``agent_version_not_found``: hidden as yet;
    ``rate_limited``, ``server_error``, ``timeout``, ``connection``, ``unreadable_answer``: after ``tries`` tries;
    ``refused``) or ``RejectRow`` (``artifact_not_found``, ``eval_run_not_found``, ``race_not_found``,
    ``suite_not_found``, ``not_found``, ``request_refused``).

    Args:
        base_url: the API, https, or http on loopback.
        limiter: asked before every request.
        clock: aware UTC, compared with the server's ``Date``.
        sleep: waits seconds between tries.
        seed: of the jitter.
        timeout_s: of connecting and of every read; four times this for a whole answer.
        tries: of one request.
        max_wait_s: a longer ``Retry-After`` is not waited for but raised (all processes are held all the same).
        transport: instead of the network, for tests.

    Attributes:
        budget: bounds the requests for a while: ``with client.budget.at_most(1000): ...``.
        requests: requests sent, by kind (``listing``, ``links``).
        questions: what was asked, by kind: a request that is tried again counts once, unlike in ``requests``.
        oddities: what was kept though odd, e.g. ``unknown_value:EvaluationRunPublic``.
        clock_skew_s: seconds by which the server's clock was ahead at the last answer; None before one.
    """

    def __init__(
        self,
        base_url: str,
        *,
        limiter: Limiter,
        clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], None] = time.sleep,
        seed: int = 0,
        timeout_s: float = 60.0,
        tries: int = 5,
        max_wait_s: float = 120.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.budget = RequestBudget(limiter)
        self._clock, self._sleep = clock, sleep
        self._random, self._tries, self._max_wait = random.Random(seed), tries, max_wait_s
        self._seen = threading.local()
        self._lock = threading.Lock()
        self._sdk = sdk_client(base_url, timeout_s, transport, self._note)
        self.requests: Counter[str] = Counter()
        self.questions: Counter[str] = Counter()
        self.oddities: Counter[str] = Counter()
        self.clock_skew_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and the limiter where it can be closed."""
        self._sdk.get_httpx_client().close()
        self.budget.close()

    # ------------------------------------------------------------------------------------------ endpoints

    def races(self) -> list[Record]:
        """Completed and cancelled races, every one once."""
        from oro_sdk.api.public import get_race_history
        from oro_sdk.models import RacePublic

        return self._paged(get_race_history, "races", RacePublic, "race_id", limit=50)

    def current_race(self) -> Record | None:
        """The race that runs or is next, with its ``qualifiers``; None when there is none."""
        from oro_sdk.api.public import get_current_race

        value = self._object(get_current_race)
        race = value.get("race")
        return {**self._race(race), "qualifiers": self._qualifiers(value)} if isinstance(race, dict) else None

    def race(self, race_id: str) -> Record:
        """One race with its ``qualifiers``."""
        from oro_sdk.api.public import get_race_detail

        value = self._object(get_race_detail, race_id=race_id)
        race = value.get("race")
        return {**self._race(race if isinstance(race, dict) else {}), "qualifiers": self._qualifiers(value)}

    def agent_version(self, agent_version_id: str) -> Record:
        """One agent version; ``RetryLater`` (agent_version_not_found, not_released) while it is hidden."""
        from oro_sdk.api.public import get_agent_version
        from oro_sdk.models import AgentVersionPublic

        return self._record(AgentVersionPublic, self._object(get_agent_version, agent_version_id=agent_version_id))

    def runs(self, agent_version_id: str) -> list[Record]:
        """Every evaluation run of an agent version, whatever its status."""
        from oro_sdk.api.public import get_agent_version_runs
        from oro_sdk.models import EvaluationRunPublic

        value = self._ask(get_agent_version_runs, "listing", agent_version_id=agent_version_id)
        return self._records(EvaluationRunPublic, _items(value, "runs"))

    def run(self, eval_run_id: str) -> Record:
        """One evaluation run in detail, with ``items``."""
        from oro_sdk.api.public import get_evaluation_run
        from oro_sdk.models import EvaluationRunDetail

        return self._record(EvaluationRunDetail, self._object(get_evaluation_run, eval_run_id=eval_run_id))

    def problems(self, agent_version_id: str, race_id: str | None = None) -> Record:
        """``{agent_version_id, suite_id, problems, generated_results, qualifying_tasks}`` of an agent version."""
        from oro_sdk.api.public import get_agent_version_problems
        from oro_sdk.models import AgentVersionProblemsResponse, ProblemProgressEntry, ValidatorProblemResult

        value = self._object(get_agent_version_problems, agent_version_id=agent_version_id, race_id=race_id)
        answer = _completed(AgentVersionProblemsResponse, value)
        answer["problems"] = self._records(ProblemProgressEntry, _items(value, "problems"))
        for entry in answer["problems"]:
            if isinstance(entry.get("validator_results"), list):
                entry["validator_results"] = [
                    _completed(ValidatorProblemResult, result) if isinstance(result, dict) else result
                    for result in entry["validator_results"]
                ]
        return answer

    def leaderboard(self, suite_id: int | None, score_type: str = "qualifying") -> list[Record]:
        """Every entry of a suite's leaderboard (None: the current suite)."""
        from oro_sdk.api.public import get_leaderboard
        from oro_sdk.models import LeaderboardEntry

        return self._paged(
            get_leaderboard,
            "entries",
            LeaderboardEntry,
            "agent_version_id",
            limit=100,
            suite_id=suite_id,
            score_type=score_type,
        )

    def running(self) -> list[Record]:
        """Evaluations that run now."""
        from oro_sdk.api.public import get_running_evaluations
        from oro_sdk.models import RunningEvaluation

        return self._records(RunningEvaluation, _items(self._ask(get_running_evaluations, "listing"), "evaluations"))

    def suites(self) -> list[Record]:
        """All suites."""
        from oro_sdk.api.public import list_suites
        from oro_sdk.models import SuitePublic

        return self._records(SuitePublic, _items(self._ask(list_suites, "listing"), "suites"))

    def suite_problems(self, suite_id: int) -> Record:
        """``{suite, problems, qualifying_tasks}`` of one suite, without embeddings."""
        from oro_sdk.api.public import get_suite_problems
        from oro_sdk.models import ProblemPublic, SuitePublic, SuiteWithProblemsResponse

        value = self._object(get_suite_problems, suite_id=suite_id)
        answer = _completed(SuiteWithProblemsResponse, value)
        suite = value.get("suite")
        answer["suite"] = self._record(SuitePublic, suite) if isinstance(suite, dict) else None
        answer["problems"] = self._records(ProblemPublic, _items(value, "problems"))
        return answer

    def trajectory_history(self) -> Record:
        """``{series, total, daily_rate, weekly_rate, updated_at}``; ``total`` None: the cache is cold, not zero."""
        from oro_sdk.api.public import get_trajectory_history
        from oro_sdk.models import TrajectoryHistoryResponse

        return self._record(TrajectoryHistoryResponse, self._object(get_trajectory_history))

    def download_url(self, agent_version_id: str, eval_run_id: str, problem_id: str) -> Record:
        """A signed link ``{download_url, expires_at}`` to one trajectory; asked for just before downloading."""
        from oro_sdk.api.public import get_artifact_download_url
        from oro_sdk.models import ArtifactDownloadRequest, ArtifactDownloadResponse, ArtifactType

        # The SDK only writes the ids as text; ids of another form than UUID are the server's to judge.
        wanted: Any = {"agent_version_id": agent_version_id, "eval_run_id": eval_run_id, "problem_id": problem_id}
        body = ArtifactDownloadRequest(artifact_type=ArtifactType(TRAJECTORY), **wanted)
        value = self._ask(get_artifact_download_url, "links", body=body)
        if not isinstance(value, dict) or not isinstance(value.get("download_url"), str):
            raise RetryLater("unreadable_answer", "an answer without a download_url")
        return self._record(ArtifactDownloadResponse, value)

    # ------------------------------------------------------------------------------------------ records

    def _race(self, value: Record) -> Record:
        from oro_sdk.models import RacePublic

        return self._record(RacePublic, value)

    def _qualifiers(self, value: Record) -> list[Record]:
        from oro_sdk.models import RaceQualifierPublic

        return self._records(RaceQualifierPublic, _items(value, "qualifiers"))

    def _object(self, endpoint: Any, **arguments: Any) -> Record:
        value = self._ask(endpoint, "listing", **{name: item for name, item in arguments.items() if item is not None})
        if not isinstance(value, dict):
            raise RetryLater("unreadable_answer", f"an object was expected, not {type(value).__name__}")
        return value

    def _paged(self, endpoint: Any, name: str, model: Any, key: str, *, limit: int, **arguments: Any) -> list[Record]:
        def page(offset: int, size: int) -> Page:
            value = self._object(endpoint, limit=size, offset=offset, **arguments)
            total = value.get("total")
            known = total if isinstance(total, int) and not isinstance(total, bool) else None
            return Page(self._records(model, _items(value, name)), known)

        def name_of(item: Record) -> str | None:
            return item[key] if isinstance(item.get(key), str) else None

        try:
            return read_all(page, key=name_of, limit=limit)
        except RejectRow as error:
            if error.reason != "request_refused":
                raise
        return read_all(page, key=name_of, limit=20)  # the API's own page size, where a larger one is refused

    def _records(self, model: Any, values: Iterable[Any]) -> list[Record]:
        records = []
        for value in values:
            if isinstance(value, dict):
                records.append(self._record(model, value))
            else:
                self._odd(f"not_an_object:{model.__name__}")
        return records

    def _record(self, model: Any, value: Record) -> Record:
        """The record as sent, with the fields it leaves out as None; counted when the SDK cannot read it."""
        try:
            model.from_dict(value)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            self._odd(f"unknown_value:{model.__name__}")
        return _completed(model, value)

    def _odd(self, name: str, count: int = 1) -> None:
        with self._lock:
            self.oddities[name] += count

    # ------------------------------------------------------------------------------------------ requests

    def _ask(self, endpoint: Any, kind: str, **arguments: Any) -> Any:
        """One endpoint of the SDK, tried a bounded number of times; the body as JSON."""
        with self._lock:
            self.questions[kind] += 1
        for number in range(self._tries):
            self.budget.acquire()
            with self._lock:
                self.requests[kind] += 1
            try:
                return self._once(endpoint, arguments)
            except RetryLater as error:
                if error.reason == "rate_limited":
                    self.budget.hold(self._delay(number) if error.after_s is None else error.after_s)
                if error.reason not in TRANSIENT:
                    raise
                if number + 1 == self._tries:
                    asked = endpoint.__name__.rpartition(".")[2]
                    words = f"{asked}: {error.detail} ({self._tries} tries; what came is kept: fetch again later)"
                    raise RetryLater(error.reason, words, error.after_s) from error
                if error.after_s is not None and error.after_s > self._max_wait:
                    raise
                if error.reason != "rate_limited":  # the limiter waits then
                    self._sleep(self._delay(number) if error.after_s is None else error.after_s)
        raise AssertionError("unreachable: the last try returns or raises")

    def _once(self, endpoint: Any, arguments: Record) -> Any:
        import httpx

        self._seen.received = None
        try:
            endpoint.sync_detailed(client=self._sdk, **arguments)
        except httpx.TimeoutException as error:
            raise RetryLater("timeout", type(error).__name__) from error
        except httpx.HTTPError as error:
            raise RetryLater("connection", f"{type(error).__name__}: {str(error)[:200]}") from error
        except (TooLarge, zlib.error) as error:
            raise RetryLater("unreadable_answer", str(error)[:200]) from error
        except Exception:
            # The SDK could not read the answer (an unknown enum, a status without a name, no JSON). What was received
            # is read below; without anything received it is a fault of ours.
            if self._seen.received is None:
                raise
        received: Received = self._seen.received
        answer = refusal(received, self._clock())
        if answer is not None:
            raise answer
        value, repairs = read_json(received.body)
        for name, count in repairs.items():
            self._odd(name, count)
        if "non_finite_number" in repairs:
            keep_score_texts(value, received.body)
        return value

    def _note(self, received: Received) -> None:
        self._seen.received = received
        offset = clock_offset(received.headers, self._clock())
        if offset is not None:
            self.clock_skew_s = round(offset, 1)

    def _delay(self, number: int) -> float:
        with self._lock:
            return float(min(BASE_DELAY_S * 2**number, MAX_DELAY_S) * (0.5 + 0.5 * self._random.random()))


def _items(value: Any, name: str) -> list[Any]:
    """The list of an answer, bare or under its name; anything else is no list (an answer to be asked for again)."""
    found = value.get(name) if isinstance(value, dict) else value
    if found is None and isinstance(value, dict):
        return []
    if not isinstance(found, list):
        raise RetryLater("unreadable_answer", f"a list of {name} was expected, not {type(found).__name__}")
    return found


def _completed(model: Any, value: Record) -> Record:
    """A record with every field of the SDK's model; what was not sent is None, what is unknown stays."""
    missing = [field.name for field in model.__attrs_attrs__ if field.init and field.name not in value]
    return {**value, **dict.fromkeys(missing)} if missing else value
