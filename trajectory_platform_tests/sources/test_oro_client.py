"""The client of the public API: nothing is lost, nothing is asked for ever, every refusal has a meaning."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from trajectory_platform.errors import Abort, PlatformError, RejectRow, RetryLater
from trajectory_platform.sources import oro_transport
from trajectory_platform.sources.oro_answers import Received, refusal, retry_after
from trajectory_platform.sources.oro_client import OroClient
from trajectory_platform_tests.sources.oro_fake import FakeOro, Fault, World, error, serving

NOW = datetime(2026, 5, 2, 12, tzinfo=UTC)
VERSION = "11111111-1111-4111-8111-111111111111"
RUN = {
    "eval_run_id": "22222222-2222-4222-8222-222222222222",
    "agent_version_id": VERSION,
    "suite_id": 1,
    "validator_hotkey": "5v",
    "status": "SUCCESS",
    "claimed_at": "2026-05-01T10:00:00Z",
    "lease_expires_at": "2026-05-01T11:00:00Z",
    "is_included": True,
}


class Waits:
    """A limiter and a sleep that only note what they were told."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.held: list[float] = []
        self.granted = 0

    def acquire(self) -> float:
        self.granted += 1
        return 0.0

    def hold(self, seconds: float) -> None:
        self.held.append(seconds)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def fake() -> Iterator[FakeOro]:
    world = World(
        versions={VERSION: {"agent_version_id": VERSION, "suite_id": 1}},
        runs={VERSION: [dict(RUN)]},
        artifacts={("r", "p"): b"[]"},
    )
    with serving(world) as server:
        yield server


def client(fake: FakeOro, waits: Waits, **more: Any) -> OroClient:
    more.setdefault("clock", lambda: datetime.now(UTC))
    return OroClient(fake.url, limiter=waits, sleep=waits.sleep, timeout_s=5, **more)


def refused(call: Callable[[], object]) -> PlatformError:
    with pytest.raises((RetryLater, RejectRow)) as caught:
        call()
    assert isinstance(caught.value, RetryLater | RejectRow)
    return caught.value


@pytest.mark.parametrize(
    ("status", "code", "reason", "later"),
    [
        (403, "RACE_IN_FLIGHT", "race_in_flight", True),
        (404, "ARTIFACT_NOT_RELEASED", "not_released", True),
        (404, "AGENT_VERSION_NOT_FOUND", "agent_version_not_found", True),
        (404, "ARTIFACT_NOT_FOUND", "artifact_not_found", False),
        (404, "EVAL_RUN_NOT_FOUND", "eval_run_not_found", False),
        (404, "SOMETHING_NEW", "not_found", False),
        (403, "SOMETHING_NEW", "refused", True),
        (403, None, "refused", True),
        (401, None, "refused", True),
        (400, "MISSING_PARAMETER", "request_refused", False),
        (422, None, "request_refused", False),
        (302, None, "unexpected_redirect", True),
    ],
)
def test_refusals_are_told_apart_by_status_and_code_and_not_repeated(
    fake: FakeOro, status: int, code: str | None, reason: str, later: bool
) -> None:
    body = {"detail": "no"} if code is None else error(code)
    fake.faults = [Fault("download-url", status, body)]
    waits = Waits()
    with client(fake, waits) as api:
        found = refused(lambda: api.download_url(VERSION, "r", "p"))
    assert found.reason == reason  # type: ignore[attr-defined]
    assert isinstance(found, RetryLater) is later
    assert (waits.granted, waits.slept) == (1, [])


@pytest.mark.parametrize(
    "fault",
    [
        Fault("download-url", 500, {"detail": "oops"}),
        Fault("download-url", 503, b"<html>busy</html>"),
        Fault("download-url", 429, error("RATE_LIMIT_EXCEEDED"), {"Retry-After": "1"}),
        Fault("download-url", 429),
        Fault("download-url", drop=True),
        Fault("download-url", cut=20),
        Fault("download-url", 200, b'{"download_url": "http'),
        Fault("download-url", 200, b"<html>welcome to the hotel</html>"),
        Fault("download-url", 200, {"unexpected": 1}),
        Fault("download-url", 599, {"detail": "a status without a name"}),
    ],
    ids=["500", "503", "429", "429-bare", "reset", "cut", "truncated-json", "html", "no-url", "599"],
)
def test_the_post_for_a_link_is_tried_again_as_the_sdk_would_not(fake: FakeOro, fault: Fault) -> None:
    fault.times = 2
    fake.faults = [fault]
    waits = Waits()
    with client(fake, waits) as api:
        if fault.body == {"unexpected": 1}:
            assert isinstance(refused(lambda: api.download_url(VERSION, "r", "p")), RetryLater)
            return
        assert api.download_url(VERSION, "r", "p")["download_url"].startswith(fake.url)
        assert api.requests == {"links": 3}
    assert waits.granted == 3  # every try counts against the limit
    assert len(waits.slept) + len(waits.held) == 2
    assert max(waits.slept + waits.held) <= 30


def test_tries_are_bounded_and_the_waits_between_them_follow_the_seed(fake: FakeOro) -> None:
    waits = []
    for seed in (1, 1, 2):
        fake.faults = [Fault("runs", 502, times=99)]
        seen = Waits()
        with client(fake, seen, seed=seed, tries=4) as api:
            found = refused(lambda: api.runs(VERSION))
        assert (found.reason, seen.granted) == ("server_error", 4)  # type: ignore[attr-defined]
        waits.append(seen.slept)
    assert waits[0] == waits[1] != waits[2]
    assert all(0.5 * 2**number <= wait <= 2**number for number, wait in enumerate(waits[0]))


def test_retry_after_holds_all_processes_and_a_long_one_is_raised_not_slept(fake: FakeOro) -> None:
    fake.faults = [Fault("runs", 429, error("RATE_LIMIT_EXCEEDED"), {"Retry-After": "7"})]
    waits = Waits()
    with client(fake, waits) as api:
        assert len(api.runs(VERSION)) == 1
        fake.faults = [Fault("runs", 429, error("RATE_LIMIT_EXCEEDED"), {"Retry-After": "4000"})]
        found = refused(lambda: api.runs(VERSION))
    assert waits.held == [7.0, 4000.0]
    assert waits.slept == []
    assert isinstance(found, RetryLater)
    assert found.after_s == 4000.0


def test_retry_after_as_a_date_is_compared_with_the_servers_own_clock() -> None:
    server = NOW + timedelta(hours=5)  # our clock is wrong: the wait is right all the same
    headers = {"retry-after": format_datetime(server + timedelta(seconds=42), usegmt=True)}
    assert retry_after({**headers, "date": format_datetime(server, usegmt=True)}, NOW) == 42.0
    assert retry_after({"retry-after": "12.5"}, NOW) == 12.5
    assert retry_after({"retry-after": "nonsense"}, NOW) is None
    assert retry_after({"retry-after": "nan"}, NOW) is None
    assert retry_after({"retry-after": "-3"}, NOW) is None


def test_a_time_in_the_error_says_until_when_it_is_later() -> None:
    body = json.dumps({**error("RACE_IN_FLIGHT"), "available_at": "2026-05-02T12:10:00Z"}).encode()
    found = refusal(Received(403, {}, body), NOW)
    assert isinstance(found, RetryLater)
    assert found.after_s == 600.0
    nested = json.dumps({"detail": {"error_code": "ARTIFACT_NOT_RELEASED", "detail": "wait"}}).encode()
    found = refusal(Received(404, {}, nested), NOW)
    assert isinstance(found, RetryLater)
    assert (found.reason, found.after_s) == ("not_released", None)


def test_unknown_values_missing_and_new_fields_cost_no_record(fake: FakeOro) -> None:
    odd = {**RUN, "status": "PAUSED_BY_ADMIN", "new_field": {"a": 1}}
    bare = {"eval_run_id": "no-uuid", "status": None}
    fake.world.runs[VERSION] = [dict(RUN), odd, bare]
    with client(fake, Waits()) as api:
        runs = api.runs(VERSION)
        assert api.oddities == {"unknown_value:EvaluationRunPublic": 2}
    assert [run["status"] for run in runs] == ["SUCCESS", "PAUSED_BY_ADMIN", None]
    assert runs[1]["new_field"] == {"a": 1}
    assert runs[0]["claimed_at"] == RUN["claimed_at"]  # text as it was sent
    assert "invalidated_at" in runs[0]  # Unset is None
    assert runs[0]["invalidated_at"] is None
    assert runs[2]["agent_version_id"] is None


def test_a_verdict_that_is_no_number_stays_told_from_none(fake: FakeOro) -> None:
    results = '[{"eval_run_id": "r", "reasoning_score": NaN}, {"eval_run_id": "s", "reasoning_score": null}]'
    body = f'{{"agent_version_id": "v", "problems": [{{"problem_id": "p", "validator_results": {results}}}]}}'
    fake.faults = [Fault("problems", 200, body.encode())]
    with client(fake, Waits()) as api:
        nan, none = api.problems(VERSION)["problems"][0]["validator_results"]
    assert (nan["reasoning_score"], nan["reasoning_score_text"]) == (None, "NaN")
    assert none["reasoning_score"] is None
    assert "reasoning_score_text" not in none


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b"\xff\xfe\x00",
        b"7" * 5000,
        gzip.compress(b" " * 3_000_000),
        b" " * 1_000_001,
    ],
    ids=["brackets", "deep", "no-utf8", "long-number", "bomb", "large"],
)
def test_hostile_answers_end_in_a_reason(fake: FakeOro, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(oro_transport, "MAX_BODY_BYTES", 1_000_000)
    headers = {"Content-Encoding": "gzip"} if body[:2] == b"\x1f\x8b" else {}
    fake.faults = [Fault("runs", 200, body, headers, times=9)]
    with client(fake, Waits(), tries=2) as api:
        found = refused(lambda: api.runs(VERSION))
    assert found.reason == "unreadable_answer"  # type: ignore[attr-defined]


def test_a_key_given_twice_does_not_cost_the_page(fake: FakeOro) -> None:
    record = json.dumps(RUN)[:-1] + ', "status": "FAILED"}'
    fake.faults = [Fault("runs", 200, f"[{record}]".encode())]
    with client(fake, Waits()) as api:
        assert [run["status"] for run in api.runs(VERSION)] == ["FAILED"]
        assert api.oddities["duplicate_key"] == 1


def test_compressed_answers_are_read(fake: FakeOro) -> None:
    fake.faults = [Fault("runs", 200, gzip.compress(json.dumps([RUN]).encode()), {"Content-Encoding": "gzip"})]
    with client(fake, Waits()) as api:
        assert api.runs(VERSION)[0]["eval_run_id"] == RUN["eval_run_id"]


def test_clock_skew_is_measured(fake: FakeOro) -> None:
    with client(fake, Waits(), clock=lambda: datetime.now(UTC) - timedelta(minutes=20)) as api:
        api.runs(VERSION)
        assert api.clock_skew_s == pytest.approx(1200, abs=3)


def test_a_page_size_that_is_refused_is_lowered(fake: FakeOro) -> None:
    fake.world.races = [{"race_id": f"race-{number}", "suite_id": 1, "status": "x"} for number in range(45)]
    fake.faults = [Fault("limit=50", 422, {"detail": [{"msg": "too large"}]}, times=99)]
    with client(fake, Waits()) as api:
        assert len(api.races()) == 45


@pytest.mark.parametrize("base", ["http://api.example.com", "ftp://127.0.0.1", "https://user:secret@api.example.com"])
def test_only_https_and_no_credentials(base: str) -> None:
    with pytest.raises(Abort) as refusal_:
        OroClient(base, limiter=Waits())
    assert "secret" not in str(refusal_.value)
