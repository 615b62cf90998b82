"""Bytes behind signed links: only from allowed hosts, capped, tried again, and never a secret in a message."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from trajectory_platform.errors import RejectRow, RetryLater
from trajectory_platform.sources.artifact_download import Downloader, ExpiredLink, damage_of, gzip_damage
from trajectory_platform_tests.sources.oro_fake import FakeOro, Fault, World, serving

GOOD = gzip.compress(b'[{"completion": 1}]')
HOSTS = (".amazonaws.com", "store.example.com", "127.0.0.1")
PUBLIC = "93.184.216.34"


@pytest.fixture
def fake() -> Iterator[FakeOro]:
    with serving(World(artifacts={("r", "p"): GOOD})) as server:
        yield server


def downloader(**more: Any) -> Downloader:
    options: dict[str, Any] = {
        "max_bytes": 10_000,
        "max_inflated": 100_000,
        "clock": lambda: datetime.now(UTC),
        "sleep": lambda seconds: None,
        "timeout_s": 5,
    }
    return Downloader(more.pop("hosts", HOSTS), **{**options, **more})


def recorded(seen: list[httpx.Request], answer: Callable[[httpx.Request], httpx.Response]) -> httpx.MockTransport:
    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer(request)

    return httpx.MockTransport(handle)


def test_bytes_come_as_stored(fake: FakeOro) -> None:
    get = downloader()
    assert get.get(f"{fake.url}/store/r/p?X-Amz-Signature=s") == (GOOD, None)
    assert get.requests == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.com/x",
        "https://amazonaws.com.evil.com/x",
        "https://evilamazonaws.com/x",
        "https://store.example.com.evil.com/x",
        "https://sub.store.example.com/x",
        "http://store.example.com/x",
        "http://localhost/x",
        "https://[::1]/x",
        "file:///etc/passwd",
        "ftp://store.example.com/x",
        "//store.example.com/x",
        "https://store.example.com@evil.com/x",
        "https://169.254.169.254/latest/meta-data",
        "https://store.example.com:99999/x",
        "",
        "https://",
    ],
)
def test_links_that_are_not_followed(url: str) -> None:
    seen: list[httpx.Request] = []
    get = downloader(transport=recorded(seen, lambda _: httpx.Response(200)), resolve=lambda host, port: [PUBLIC])
    with pytest.raises(RejectRow) as refused:
        get.get(url)
    assert refused.value.reason in ("host_not_allowed", "bad_link")
    assert seen == []


@pytest.mark.parametrize(
    "addresses",
    [["10.0.0.1"], ["127.0.0.1"], ["169.254.169.254"], ["::1"], ["fd00::1"], ["192.168.1.1"], [PUBLIC, "10.0.0.1"], []],
)
def test_an_allowed_name_with_a_private_address_is_refused(addresses: list[str]) -> None:
    seen: list[httpx.Request] = []
    get = downloader(transport=recorded(seen, lambda _: httpx.Response(200)), resolve=lambda host, port: addresses)
    with pytest.raises(RejectRow, match="not public"):
        get.get("https://bucket.s3.amazonaws.com/x")
    assert seen == []


def test_the_connection_goes_to_the_address_that_was_tested_under_the_name_of_the_host() -> None:
    seen: list[httpx.Request] = []
    answers = iter([[PUBLIC], ["10.0.0.1"]])  # a name that changes its address after the test
    get = downloader(
        transport=recorded(seen, lambda _: httpx.Response(200, content=iter([GOOD]))),
        resolve=lambda host, port: next(answers),
    )
    assert get.get("https://bucket.s3.amazonaws.com/a/b?sig=1").data == GOOD
    assert seen[0].url.host == PUBLIC
    assert seen[0].url.raw_path == b"/a/b?sig=1"
    assert seen[0].headers["host"] == "bucket.s3.amazonaws.com"
    assert seen[0].extensions["sni_hostname"] == "bucket.s3.amazonaws.com"
    assert "authorization" not in seen[0].headers
    assert "cookie" not in seen[0].headers


def test_redirects_are_links_too(fake: FakeOro) -> None:
    fake.faults = [Fault("/store/r/p", 302, headers={"Location": "/store/r/p?again=1"})]
    assert downloader().get(f"{fake.url}/store/r/p").data == GOOD
    fake.faults = [Fault("/store/r/p", 302, headers={"Location": "https://169.254.169.254/latest"})]
    with pytest.raises(RejectRow, match="host_not_allowed"):
        downloader().get(f"{fake.url}/store/r/p")
    fake.faults = [Fault("/store/r/p", 302, headers={"Location": "/store/r/p"}, times=99)]
    with pytest.raises(RejectRow, match="redirects"):
        downloader().get(f"{fake.url}/store/r/p")


def test_loopback_only_where_it_is_named(fake: FakeOro) -> None:
    with pytest.raises(RejectRow, match="host_not_allowed"):
        downloader(hosts=(".amazonaws.com", "")).get(f"{fake.url}/store/r/p")
    port = fake.url.rpartition(":")[2]
    assert downloader(hosts=(f"127.0.0.1:{port}",)).get(f"{fake.url}/store/r/p").data == GOOD
    with pytest.raises(RejectRow, match="host_not_allowed"):
        downloader(hosts=("127.0.0.1:1",)).get(f"{fake.url}/store/r/p")


@pytest.mark.parametrize("status", [403, 401, 410, 400])
def test_a_refused_link_is_the_callers_to_renew(fake: FakeOro, status: int) -> None:
    fake.faults = [Fault("/store/", status, b"<Code>AccessDenied</Code>")]
    with pytest.raises(ExpiredLink):
        downloader().get(f"{fake.url}/store/r/p")


def test_clock_skew_is_named_and_not_tried_again(fake: FakeOro) -> None:
    fake.faults = [Fault("/store/", 403, b"<Error><Code>RequestTimeTooSkewed</Code></Error>", times=9)]
    get = downloader(clock=lambda: datetime.now(UTC) - timedelta(minutes=40))
    with pytest.raises(RetryLater) as refused:
        get.get(f"{fake.url}/store/r/p")
    assert refused.value.reason == "clock_skew"
    assert get.requests == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault("/store/", 500),
        Fault("/store/", 503, headers={"Retry-After": "1"}),
        Fault("/store/", 429),
        Fault("/store/", drop=True),
        Fault("/store/", cut=5),
        Fault("/store/", 200, GOOD[:-6]),
        Fault("/store/", 200, GOOD[:12] + b"\x00\xff" + GOOD[14:]),
    ],
    ids=["500", "503", "429", "reset", "cut", "no-trailer", "garbled"],
)
def test_what_may_pass_is_tried_again(fake: FakeOro, fault: Fault) -> None:
    fault.times = 2
    fake.faults = [fault]
    assert downloader().get(f"{fake.url}/store/r/p") == (GOOD, None)


def test_a_file_that_stays_damaged_is_kept_as_it_is(fake: FakeOro) -> None:
    fake.world.artifacts[("r", "p")] = GOOD[:-6]
    assert downloader().get(f"{fake.url}/store/r/p") == (GOOD[:-6], "truncated_gzip")


def test_tries_end_and_no_message_or_log_holds_the_signature(fake: FakeOro, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.INFO)
    get = downloader()
    for fault in (Fault("/store/", 500, b"sig=topsecret"), Fault("/store/", drop=True), Fault("/store/", 403)):
        fault.times = 9
        fake.faults = [fault]
        with pytest.raises((RetryLater, ExpiredLink)) as refused:
            get.get(f"{fake.url}/store/r/p?X-Amz-Signature=topsecret")
        assert "topsecret" not in f"{refused.value}{refused.value.args}"
    assert get.requests == 7
    assert "topsecret" not in caplog.text


def test_sizes_are_capped_while_streaming(fake: FakeOro) -> None:
    fake.world.artifacts[("r", "p")] = b"x" * 10_001
    with pytest.raises(RejectRow, match="too_large"):
        downloader().get(f"{fake.url}/store/r/p")


def test_what_the_store_does_not_have(fake: FakeOro) -> None:
    with pytest.raises(RejectRow, match="artifact_not_found"):
        downloader().get(f"{fake.url}/store/r/other")


def test_gzip_files_are_tested_to_their_end_within_bounds() -> None:
    assert gzip_damage(b"[]", 100) is None
    assert gzip_damage(b"", 100) is None
    assert gzip_damage(GOOD + GOOD, 1000) is None
    assert gzip_damage(GOOD + b"\x00\x00trailing", 1000) is None
    assert gzip_damage(gzip.compress(b"a" * 10_000_000), 1000) is None  # a bomb is not inflated; the reader caps it
    assert gzip_damage(GOOD[:-1], 1000) == "truncated_gzip"
    assert gzip_damage(GOOD[:3], 1000) == "truncated_gzip"
    assert gzip_damage(GOOD[:-5] + b"\x00" + GOOD[-4:], 1000) == "bad_gzip"


def test_plain_text_that_does_not_end_is_damaged_whatever_length_the_store_said() -> None:
    lines = b'{"step": 1, "calls": [{}]}\n{"step": 2, "calls": [{}]}\n'
    assert damage_of(lines, 100) is None
    assert damage_of(lines + b"\x00\x00", 100) is None  # trailing NULs are no part of it
    assert damage_of(b'[\n {"a": 1},\n {"b": [2]}\n]\n', 100) is None
    assert damage_of(b"", 100) is None
    assert damage_of(b"<html>not found</html>", 100) is None  # no damage: the reader says that it is no trace
    assert damage_of(b'[\n {"a": 1},\n {"b": [2]}\n', 100) == "truncated_json"
    assert damage_of(b'[{"a": 1}, {"b": [2]}', 100) == "truncated_json"
    first = lines.index(b"\n") + 1
    cut = [number for number in range(1, len(lines)) if damage_of(lines[:number], 100) is None]
    assert cut == [first - 1, first, len(lines) - 1]  # only between two lines, where nothing shows it


def test_after_a_failed_try_a_damaged_file_is_not_taken_for_what_the_store_holds(fake: FakeOro) -> None:
    tries = iter([200, 503, 200])

    class Store(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            status = next(tries)
            return httpx.Response(status, stream=httpx.ByteStream(GOOD[:-6] if status == 200 else b""))

    with pytest.raises(RetryLater, match="503"):
        downloader(transport=Store()).get(f"{fake.url}/store/r/p")
