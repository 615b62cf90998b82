"""The SDK's client over an httpx client of our own: no redirects, no proxies, no ``.netrc``, capped answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trajectory_platform.errors import Abort
from trajectory_platform.sources.oro_answers import Received, read_capped

if TYPE_CHECKING:
    import httpx

MAX_BODY_BYTES = 32 << 20
_FRAMING = ("content-encoding", "content-length", "transfer-encoding")


def sdk_client(
    base_url: str, timeout_s: float, transport: httpx.BaseTransport | None, note: Callable[[Received], None]
) -> Any:
    """The SDK's client over an httpx client of our own: no redirects, no proxies, no ``.netrc``, capped answers."""
    import httpx
    import oro_sdk

    parts = urlsplit(base_url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")):
        raise Abort(f"api_base {base_url!a} must be https:// (http:// only on this machine)")
    if parts.username or parts.password:
        raise Abort("api_base must hold no credentials: the public part of the API needs none")
    client = oro_sdk.Client(base_url=base_url.rstrip("/"))
    inner = transport or httpx.HTTPTransport(trust_env=False)
    return client.set_httpx_client(
        httpx.Client(
            base_url=base_url.rstrip("/"),
            transport=_capped(inner, note, 4 * timeout_s),
            timeout=timeout_s,
            trust_env=False,
            headers={"Accept-Encoding": "gzip", "User-Agent": "trajectory-platform"},
        )
    )


def _capped(inner: httpx.BaseTransport, note: Callable[[Received], None], total_s: float) -> httpx.BaseTransport:
    """A transport that reads answers whole, within a size and a time, and notes them before the SDK parses them."""
    import httpx

    class Capped(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = inner.handle_request(request)
            response.request = request
            try:
                body = read_capped(response, MAX_BODY_BYTES, deadline_s=total_s)
            finally:
                response.close()
            headers = {name: value for name, value in response.headers.items() if name not in _FRAMING}
            note(Received(response.status_code, headers, body))
            return httpx.Response(response.status_code, headers=headers, content=body, request=request)

        def close(self) -> None:
            inner.close()

    return Capped()
