"""Around the local server of the public API: the rate limit, the log of requests, and the faults of a script.

The limit is a sliding window per address (domain 1.10: about 100 requests a minute), applied to the API and not to the
storage behind it. The log keeps every request, so that a test can say how many came in any minute.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.arena.oro_server_faults import ANSWERS, Rule, Script, changed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

API, STORAGE, CONTROL = "/v1/public/", "/storage/", "/_arena/"
_WINDOW_S = 60.0
_MAX_BODY = 65_536
_NO_LINGER = struct.pack("ii", 1, 0)
_WORDS = {
    "artifact_not_found": (404, "Artifact not found", "ARTIFACT_NOT_FOUND"),
    "artifact_not_released": (404, "Artifact not released", "ARTIFACT_NOT_RELEASED"),
    "race_in_flight": (403, "Race is in flight", "RACE_IN_FLIGHT"),
}


class Logged(NamedTuple):
    """One request: seconds on the limit's clock, whether it counted for the limit, what it was answered with."""

    at: float
    address: str
    method: str
    path: str
    status: int
    counted: bool
    faults: tuple[str, ...]


class RequestLog:
    """Every request in the order in which it arrived. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: list[Logged] = []

    def add(self, row: Logged) -> None:
        with self._lock:
            self._rows.append(row)

    def rows(self) -> list[Logged]:
        with self._lock:
            return list(self._rows)

    def busiest(self, window_s: float = _WINDOW_S) -> int:
        """The most API requests that arrived in any window of this length, refused ones included."""
        times = sorted(row.at for row in self.rows() if row.counted)
        best = start = 0
        for end, moment in enumerate(times):
            while times[start] <= moment - window_s:
                start += 1
            best = max(best, end - start + 1)
        return best

    def facts(self) -> dict[str, Any]:
        """Counts for people and tests."""
        rows = self.rows()
        return {
            "requests": len(rows),
            "counted": sum(row.counted for row in rows),
            "busiest_minute": self.busiest(),
            "refused": sum(row.counted and row.status == 429 and not row.faults for row in rows),
            "by_status": dict(sorted(Counter(str(row.status) for row in rows).items())),
            "by_path": dict(sorted(Counter(_kind(row.path) for row in rows).items())),
            "faults": dict(sorted(Counter(fault for row in rows for fault in row.faults).items())),
        }


def _kind(path: str) -> str:
    """A path without its ids."""
    parts = path.strip("/").split("/")
    return "/".join("{id}" if len(part) > 30 or part.isdigit() else part for part in parts[:5])


class SlidingLimit:
    """At most ``per_minute`` requests of one address in any 60 s of ``clock``."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._times: dict[str, deque[float]] = {}

    def refused_for(self, address: str) -> float | None:
        """Seconds to wait, or None when the request is admitted."""
        with self._lock:
            now = self._clock()
            times = self._times.setdefault(address, deque())
            while times and times[0] <= now - _WINDOW_S:
                times.popleft()
            if len(times) >= self.per_minute:
                return times[0] + _WINDOW_S - now
            times.append(now)
            return None


class Gate:
    """The ASGI application around the endpoints; ``endpoints`` finds the rules for it in ``scope["oro_rules"]``."""

    def __init__(
        self, endpoints: ASGIApp, *, script: Script, limit: SlidingLimit, log: RequestLog, clock: Callable[[], float]
    ) -> None:
        self.endpoints = endpoints
        self.script = script
        self.limit = limit
        self.log = log
        self.clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(CONTROL):
            await self.endpoints(scope, receive, send)
            return
        path = scope["path"]
        address = scope["client"][0] if scope.get("client") else "?"
        counted, at = path.startswith(API), self.clock()
        body = await _read(receive)
        wait = self.limit.refused_for(address) if counted else None
        rules: list[Rule] = []
        if wait is not None:
            status = await _answer(send, 429, *_limited(math.ceil(wait)))
        else:
            short = path.removeprefix(API) if counted else path.lstrip("/")
            rules = self.script.pick(short, f"{scope['method']} {path}?{_query(scope)} {body.decode('latin-1')}")
            status = await self._serve(scope, body, send, rules)
        faults = tuple(rule.fault for rule in rules)
        self.log.add(Logged(at, address, scope["method"], path, status, counted, faults))

    async def _serve(self, scope: Scope, body: bytes, send: Send, rules: list[Rule]) -> int:
        """Answer with the first fault that needs no endpoint, else with the endpoint's answer, changed."""
        slow = next((rule for rule in rules if rule.fault == "slow"), None)
        if slow is not None and slow.parameters["pieces"] <= 1:
            await asyncio.sleep(slow.parameters["seconds"])
        for rule in rules:
            if rule.fault in ANSWERS:
                return await _fault(send, rule)
        scope["oro_rules"] = rules
        status, headers, answer = await _captured(self.endpoints, scope, body)
        if headers.get(b"content-type", b"").startswith(b"application/json"):
            answer = changed(answer, rules)
        headers.pop(b"content-length", None)
        for rule in rules:
            if rule.fault == "date_skew":
                moment = datetime.now(UTC) + timedelta(seconds=rule.parameters["seconds"])
                headers[b"date"] = format_datetime(moment, usegmt=True).encode()
        cut = next((rule for rule in rules if rule.fault == "truncated"), None)
        if cut is not None:
            kept = answer[: int(len(answer) * cut.parameters["keep"])]
            length = len(answer) if cut.parameters["declared"] == "whole" else len(kept)
            return await _send(send, status, headers, [kept], length)
        pieces = 1 if slow is None else max(1, slow.parameters["pieces"])
        size = max(1, math.ceil(len(answer) / pieces))
        parts = [answer[start : start + size] for start in range(0, len(answer), size)] or [b""]
        pause = slow.parameters["seconds"] / pieces if slow is not None and pieces > 1 else 0.0
        return await _send(send, status, headers, parts, len(answer), pause)


def _query(scope: Scope) -> str:
    """The query string of the key of a request. The signature of a link is no part of it: a new link to the same
    object is the same request."""
    return "" if scope["path"].startswith(STORAGE) else str(scope["query_string"].decode("latin-1"))


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body") or len(body) > _MAX_BODY:
            return bytes(body)


async def _captured(app: ASGIApp, scope: Scope, body: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body an application answers with."""
    status, headers, answer = 500, {}, bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], dict(message["headers"])
        elif message["type"] == "http.response.body":
            answer.extend(message.get("body", b""))

    await app(scope, receive, send)
    return status, headers, bytes(answer)


async def _fault(send: Send, rule: Rule) -> int:
    """The answer of a fault that needs no endpoint."""
    given = rule.parameters
    if rule.fault == "reset":
        return _reset(send)
    if rule.fault == "rate_limited":
        return await _answer(send, 429, *_limited(given["retry_after"]))
    if rule.fault == "server_error":
        headers = {} if given["retry_after"] is None else {b"retry-after": str(given["retry_after"]).encode()}
        return await _answer(send, given["status"], b"<html><body>upstream error</body></html>", headers, b"text/html")
    if rule.fault == "redirect":
        return await _answer(send, 302, b"", {b"location": given["to"].encode()})
    if rule.fault == "html":
        return await _answer(send, 200, b"<html><body>please log in</body></html>", {}, b"text/html")
    if rule.fault == "link_refused":
        return await _answer(send, 403, expired_xml(), {}, b"application/xml")
    if rule.fault == "oversized":
        return await _oversized(send, given["bytes"])
    status, detail, code = _WORDS[rule.fault]
    return await _answer(send, status, json.dumps({"detail": detail, "error_code": code}).encode(), {})


def _limited(retry_after: Any) -> tuple[bytes, dict[bytes, bytes]]:
    body = {"detail": "Rate limit exceeded", "error_code": "RATE_LIMIT_EXCEEDED"}
    return json.dumps(body).encode(), {} if retry_after is None else {b"retry-after": str(retry_after).encode()}


def expired_xml() -> bytes:
    """What an object store says of a link that is too old."""
    return (
        b'<?xml version="1.0" encoding="UTF-8"?>\n'
        b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
    )


def _reset(send: Send) -> int:
    """Close the connection without an answer, with a TCP reset. uvicorn hands a bound method of the connection's cycle
    to the application; another server answers 500 by itself because nothing was sent."""
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is not None:
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()
    return 0


async def _oversized(send: Send, size: int) -> int:
    start: Message = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", b"application/gzip"), (b"transfer-encoding", b"chunked")],
    }
    await send(start)
    chunk = bytes(1 << 16)
    for begin in range(0, size, len(chunk)):
        await send({"type": "http.response.body", "body": chunk[: size - begin], "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    return 200


async def _answer(
    send: Send, status: int, body: bytes, headers: dict[bytes, bytes], kind: bytes = b"application/json"
) -> int:
    return await _send(send, status, {b"content-type": kind, **headers}, [body], len(body))


async def _send(
    send: Send, status: int, headers: dict[bytes, bytes], parts: list[bytes], length: int, pause: float = 0.0
) -> int:
    """Send an answer; where ``length`` is more than the parts, the server closes the connection too early."""
    dated = {b"date": format_datetime(datetime.now(UTC), usegmt=True).encode(), **headers}
    listed = [*dated.items(), (b"content-length", str(length).encode())]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    for number, part in enumerate(parts, 1):
        if pause:
            await asyncio.sleep(pause)
        more = number < len(parts) or sum(map(len, parts)) < length
        await send({"type": "http.response.body", "body": part, "more_body": more})
    return status
