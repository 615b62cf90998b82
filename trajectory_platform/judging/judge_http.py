"""The HTTP client under litellm: exactly one request per call, a bounded reply, and what the wire really showed.

litellm folds a cut body, a refused connection and a server error into one exception, and asks twice on some answers.
Whether a reply may have been paid for is decided here instead, by what was seen of it. Connections belong to the event
loop that opened them and are closed with it, while litellm may keep its clients as long as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import httpx

MAX_BODY_BYTES = 1 << 20
MAX_KEPT_CONNECTIONS = 64


@dataclass
class Seen:
    """What the wire showed of one call.

    Attributes:
        requests: requests that were begun; a second one is refused.
        reached: whether a connection was made, so that the endpoint may have worked for us.
        status: of the answer; None where none came.
        retry_after: seconds the endpoint asked to wait; None where it did not.
        complete: whether the whole body arrived.
    """

    requests: int = 0
    reached: bool = False
    status: int | None = None
    retry_after: float | None = None
    complete: bool = False


SEEN: ContextVar[Seen | None] = ContextVar("judge_http_seen", default=None)
_INNER: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()


def watched_client() -> httpx.AsyncClient:
    """A client for litellm; what happens to the request of a context is noted in its ``SEEN``."""
    import httpx

    class Body(httpx.AsyncByteStream):
        """The bytes of an answer up to the limit."""

        def __init__(self, answer: httpx.Response, seen: Seen) -> None:
            self._answer, self._seen = answer, seen

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._answer.aiter_raw():
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise httpx.ReadError(f"the body is larger than {MAX_BODY_BYTES} bytes")
                yield chunk
            self._seen.complete = True

        async def aclose(self) -> None:
            await self._answer.aclose()

    class Watch(httpx.AsyncBaseTransport):
        """One request to the client of the running loop."""

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            seen = SEEN.get() or Seen()
            seen.requests += 1
            if seen.requests > 1:
                raise httpx.LocalProtocolError("one call makes one request")
            # A body that unpacks to a thousand times its size would pass the limit.
            request.headers["accept-encoding"] = "identity"
            try:
                answer = await _inner().send(request, stream=True, follow_redirects=False)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
                raise
            except BaseException:
                seen.reached = True
                raise
            seen.reached, seen.status = True, answer.status_code
            seen.retry_after = retry_after(answer.headers.get("retry-after"), answer.headers.get("date"))
            if answer.headers.get("content-encoding", "identity") != "identity":
                await answer.aclose()
                raise httpx.ReadError("a compressed body was not asked for")
            return httpx.Response(answer.status_code, headers=answer.headers, stream=Body(answer, seen))

    return httpx.AsyncClient(transport=Watch(), follow_redirects=False)


async def close_connections() -> None:
    """Close what the running loop opened."""
    inner = _INNER.pop(asyncio.get_running_loop(), None)
    if inner is not None:
        await inner.aclose()


def retry_after(value: str | None, date: str | None = None) -> float | None:
    """Seconds of a Retry-After header; a time is read against the answer's own Date header, never a local clock."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - parsedate_to_datetime(date or "")).total_seconds()
        except (TypeError, ValueError):
            return None
        return max(seconds, 0.0)
    return seconds if 0 <= seconds < float("inf") else None


def _inner() -> httpx.AsyncClient:
    """The running loop's client; it honours proxies and certificates of the environment."""
    from httpx import AsyncClient, Limits

    loop = asyncio.get_running_loop()
    client = _INNER.get(loop)
    if client is None:
        client = AsyncClient(limits=Limits(max_connections=None, max_keepalive_connections=MAX_KEPT_CONNECTIONS))
        _INNER[loop] = client
    return client
