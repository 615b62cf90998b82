"""What an answer of the subnet's API means to us: a value, *later*, *not there*, or *try again* (domain 1.10).

The SDK's typed errors are no safe guide: it reads any 403 as RACE_IN_FLIGHT, and a 404 without a code as the first
type of its list. So the status and the ``error_code`` of the body decide, and a body is read by ``jsontext``, with
size and depth capped.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform import jsontext
from trajectory_platform.errors import PlatformError, RejectRow, RetryLater
from trajectory_platform.identity import parse_utc

if TYPE_CHECKING:
    import httpx

MAX_DEPTH = 64
EMBARGO = ("race_in_flight", "not_released", "agent_version_not_found")  # may be there on a later day
TRANSIENT = ("rate_limited", "server_error", "timeout", "connection", "unreadable_answer")  # tried again at once
NOT_THERE = ("artifact_not_found", "eval_run_not_found", "not_found", "request_refused")  # a few times, then for good

_LATER_CODES = {
    "RACE_IN_FLIGHT": "race_in_flight",
    "ARTIFACT_NOT_RELEASED": "not_released",
    "AGENT_VERSION_NOT_FOUND": "agent_version_not_found",
}
_GONE_CODES = {
    "ARTIFACT_NOT_FOUND": "artifact_not_found",
    "EVAL_RUN_NOT_FOUND": "eval_run_not_found",
    "RACE_NOT_FOUND": "race_not_found",
    "SUITE_NOT_FOUND": "suite_not_found",
}
_TIMES = ("available_at", "released_at", "code_available_at", "retry_at", "race_completed_at")


class Received(NamedTuple):
    """One complete HTTP answer: status, lower-case headers, and the body's bytes."""

    status: int
    headers: dict[str, str]
    body: bytes


class TooLarge(Exception):
    """An answer is larger than what is read."""


def read_capped(response: httpx.Response, limit: int, *, deadline_s: float) -> bytes:
    """The body of a streamed answer, inflated if it says so; both sizes and the time are capped.

    Raises:
        TooLarge: above ``limit`` bytes.
        zlib.error: a compressed body that is none.
        httpx.ReadTimeout: more than ``deadline_s`` seconds, however steadily the bytes trickle.
    """
    import httpx

    end = time.monotonic() + deadline_s
    encoding = response.headers.get("content-encoding", "identity").lower()
    inflate = zlib.decompressobj(47) if encoding in ("gzip", "x-gzip", "deflate") else None
    parts: list[bytes] = []
    stored = size = 0
    for chunk in response.iter_raw():
        if time.monotonic() > end:
            raise httpx.ReadTimeout("the answer takes too long", request=response.request)
        stored += len(chunk)
        part = chunk if inflate is None else inflate.decompress(chunk, limit + 1 - size)
        size += len(part)
        if max(stored, size) > limit or (inflate is not None and inflate.unconsumed_tail):
            raise TooLarge(f"more than {limit} bytes")
        parts.append(part)
    return b"".join(parts)


def read_json(body: bytes) -> tuple[Any, dict[str, int]]:
    """A body as JSON, and what was repaired or odd in it: reason -> count.

    A key given twice with different values, which the strict reader refuses, must not cost a whole page of records:
    the last value is taken, as every other reader of the API does, and counted as ``duplicate_key``.

    Raises:
        RetryLater: ``unreadable_answer``; a truncated or garbled answer may be whole at the next try.
    """
    try:
        parsed = jsontext.parse(body, max_depth=MAX_DEPTH)
        return parsed.value, dict(parsed.repairs)
    except RejectRow as error:
        if error.reason != "duplicate_key":
            raise RetryLater("unreadable_answer", f"{error.reason}: {error.detail}") from error
    try:
        return json.loads(body, parse_constant=lambda _: None), {"duplicate_key": 1}
    except (ValueError, RecursionError) as error:
        raise RetryLater("unreadable_answer", "duplicate_key, and no JSON behind it") from error


def refusal(received: Received, now: datetime) -> PlatformError | None:
    """What an answer without a value means; None for a 2xx one.

    Returns:
        ``RetryLater`` with ``race_in_flight``, ``not_released``, ``agent_version_not_found`` (hidden, may come),
        ``rate_limited``, ``server_error``, ``refused``, ``unexpected_redirect``; ``RejectRow`` with
        ``artifact_not_found``, ``eval_run_not_found``, ``race_not_found``, ``suite_not_found``, ``not_found``,
        ``request_refused``.
    """
    status = received.status
    if 200 <= status < 300:
        return None
    code, detail, until = _error_body(received.body)
    words = f"HTTP {status}" + (f" {code!a}" if code else "") + (f": {detail[:200]!a}" if detail else "")
    after = retry_after(received.headers, now)
    if after is None and until is not None:
        after = max((until - now).total_seconds(), 0.0)
    if code in _LATER_CODES:
        return RetryLater(_LATER_CODES[code], words, after)
    if status == 429 or code == "RATE_LIMIT_EXCEEDED":
        return RetryLater("rate_limited", words, after)
    if status >= 500 or status in (408, 425):
        return RetryLater("server_error", words, after)
    if code in _GONE_CODES:
        return RejectRow(_GONE_CODES[code], words)
    if status == 404:
        return RejectRow("not_found", words)
    if status in (401, 403):
        return RetryLater("refused", words, after)
    if status < 400:
        return RetryLater("unexpected_redirect", words)
    return RejectRow("request_refused", words)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds of ``Retry-After``: a number, or a date, which is compared with the server's own ``Date``."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
        return seconds if 0 <= seconds < float("inf") else None
    except ValueError:
        moment = http_date(value)
    if moment is None:
        return None
    return max((moment - (http_date(headers.get("date", "")) or now)).total_seconds(), 0.0)


def clock_offset(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds by which the server's clock is ahead of ours, by its ``Date``; None where it says none."""
    moment = http_date(headers.get("date", ""))
    return None if moment is None else (moment - now).total_seconds()


def http_date(text: str) -> datetime | None:
    """An HTTP date as aware UTC, or None."""
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (TypeError, ValueError, IndexError, OverflowError):  # the last also at the ends of the calendar
        return None


def _error_body(body: bytes) -> tuple[str | None, str, datetime | None]:
    """(error code, text, time until which it is later) of ``{detail, error_code}``, also nested in ``detail``."""
    try:
        value = jsontext.parse(body[: 1 << 16], max_depth=MAX_DEPTH).value if body else None
    except RejectRow:
        return None, body[:200].decode("utf-8", "replace"), None
    if not isinstance(value, dict):
        return None, str(value)[:200], None
    inner = value.get("detail")
    fields = {**value, **inner} if isinstance(inner, dict) else value
    code, detail = fields.get("error_code"), fields.get("detail")
    until = next((moment for name in _TIMES if (moment := parse_utc(fields.get(name))) is not None), None)
    text = detail if isinstance(detail, str) else "" if detail is None else jsontext.dumps(detail)
    return (code if isinstance(code, str) else None), text, until
