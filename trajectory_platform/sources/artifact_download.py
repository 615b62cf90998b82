"""The bytes behind a signed link: streamed, size-capped, and only from where artifacts may come from.

The link is text from a server. Its host must be allowed (``settings.api_artifact_hosts``), every address its name
resolves to must be public, and the connection goes to the address that was tested. Redirects are links too. Signed
links are secrets for as long as they live: neither they nor what follows the ``?`` is ever put into a message.
"""

from __future__ import annotations

import ipaddress
import socket
import time
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

import orjson

from trajectory_platform.errors import RejectRow, RetryLater
from trajectory_platform.sources.oro_answers import clock_offset, retry_after

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 3
TRIES = 3
_SKEW_WORDS = (b"RequestTimeTooSkewed", b"RequestInTheFuture")
_BLANK = b" \t\r\n\x00"
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Downloaded(NamedTuple):
    """The stored bytes as they came, and why they cannot be whole (None: nothing speaks against it)."""

    data: bytes
    damage: str | None


class ExpiredLink(Exception):
    """The store refuses the link: it has expired, or was never good. A new one may be."""


class Downloader:
    """Downloads from allowed hosts; may be used by several threads.

    Args:
        hosts: allowed hosts. ``.example.com`` admits what ends so; ``example.com`` or ``127.0.0.1:9000`` is that host.
            Only a loopback host that is named here is allowed although its address is not public, and may use http.
        max_bytes: stored size above which an artifact is ``too_large``.
        max_inflated: how far a gzip file is inflated to test its trailer; a longer one is not damaged for that.
        clock: aware UTC, to name clock skew.
        sleep: waits seconds between tries.
        timeout_s: of connecting and every read; ten times this for a whole file.
        resolve: host, port -> addresses.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        max_bytes: int,
        max_inflated: int,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None] = time.sleep,
        timeout_s: float = 60.0,
        resolve: Callable[[str, int], list[str]] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        import httpx

        self._hosts = tuple(host.lower() for host in hosts)
        self._max, self._max_inflated, self._clock, self._sleep = max_bytes, max_inflated, clock, sleep
        self._total_s = 10 * timeout_s
        self._resolve = resolve or _addresses
        # The transport itself, not an httpx client: that logs every URL, signature and all, at level INFO.
        self._http = transport or httpx.HTTPTransport(trust_env=False)
        self._timeouts = httpx.Timeout(timeout_s).as_dict()
        self.requests = 0

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, url: str) -> Downloaded:
        """The bytes of a link. A damaged file is read again, and handed over as it is, for the reader to reject, only
        when every try brought a damaged one: after a failed try nobody knows whether the store holds it whole.

        Raises:
            ExpiredLink: the store answers 403 (or 401, 410): ask for a new link.
            RejectRow: ``host_not_allowed``, ``too_large``, ``artifact_not_found`` (404 of the store), ``bad_link``.
            RetryLater: ``clock_skew``, ``rate_limited``, ``storage_unavailable``, after ``TRIES`` tries.
        """
        import httpx

        damaged: Downloaded | None = None
        failure: RetryLater | None = None
        for number in range(TRIES):
            try:
                data = self._follow(url)
            except (httpx.HTTPError, RetryLater) as error:
                failure = _transient(error)
                if failure.reason == "clock_skew":
                    raise failure from error
                if number + 1 < TRIES:
                    self._sleep(min(failure.after_s if failure.after_s is not None else 2.0**number, 60.0))
                continue
            found = Downloaded(data, damage_of(data, self._max_inflated))
            if found.damage is None:
                return found
            damaged = found
        if failure is not None:
            raise failure
        assert damaged is not None
        return damaged

    def _follow(self, url: str) -> bytes:
        for _ in range(MAX_REDIRECTS + 1):
            request = self._checked(url)
            self.requests += 1
            response = self._http.handle_request(request)
            response.request = request
            try:
                location = response.headers.get("location")
                if not response.is_redirect or not location:
                    return self._body(response)
            finally:
                response.close()
            try:
                url = urljoin(url, location)
            except ValueError as error:
                raise RejectRow("bad_link", "redirected to no URL") from error
        raise RejectRow("bad_link", f"more than {MAX_REDIRECTS} redirects")

    def _body(self, response: httpx.Response) -> bytes:
        import httpx

        status = response.status_code
        if status != 200:
            raise self._refusal(response)
        parts: list[bytes] = []
        size, end = 0, time.monotonic() + self._total_s
        for chunk in response.iter_raw(1 << 16):
            size += len(chunk)
            if size > self._max:
                raise RejectRow("too_large", f"more than {self._max} stored bytes")
            if time.monotonic() > end:
                raise httpx.ReadTimeout("the download takes too long", request=response.request)
            parts.append(chunk)
        return b"".join(parts)

    def _refusal(self, response: httpx.Response) -> Exception:
        """What the store's answer means. Its body is read a little, and never shown: it may repeat the signature."""
        status = response.status_code
        start = b""
        for chunk in response.iter_raw(1 << 12):
            start += chunk
            if len(start) >= 1 << 13:
                break
        if status in (400, 401, 403, 410):
            if any(word in start for word in _SKEW_WORDS):
                offset = clock_offset(response.headers, self._clock())
                words = "" if offset is None else f" by {round(offset)} s"
                return RetryLater("clock_skew", f"the store's clock differs{words}: set this machine's clock")
            return ExpiredLink(f"HTTP {status}")
        if status == 404:
            return RejectRow("artifact_not_found", "HTTP 404 of the store")
        if status == 429 or status == 503:
            return RetryLater("rate_limited", f"HTTP {status}", retry_after(response.headers, self._clock()))
        if status >= 500 or status == 408:
            return RetryLater("storage_unavailable", f"HTTP {status}")
        return RejectRow("bad_link", f"HTTP {status}")

    def _checked(self, url: str) -> httpx.Request:
        """A request to the address that was tested, with the host's name in ``Host`` and TLS."""
        import httpx

        try:
            return self._request(url)
        except (ValueError, httpx.InvalidURL) as error:  # also text that cannot be encoded
            raise RejectRow("bad_link", f"no URL: {type(error).__name__}") from error

    def _request(self, url: str) -> httpx.Request:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower().rstrip("."), parts.port
        named = host in self._hosts or f"{host}:{port}" in self._hosts
        if not host or not (named or any(entry[0] == "." and host.endswith(entry) for entry in self._hosts if entry)):
            raise RejectRow("host_not_allowed", f"{host[:100]!a} is not among api_artifact_hosts")
        loopback = named and host in _LOOPBACK_NAMES
        if parts.scheme != "https" and not (parts.scheme == "http" and loopback):
            raise RejectRow("host_not_allowed", f"{host[:100]!a} by {parts.scheme[:10]!a}: only https is allowed")
        default = 443 if parts.scheme == "https" else 80
        addresses = self._resolve(host, port or default)
        allowed = [address for address in addresses if loopback or ipaddress.ip_address(address).is_global]
        if len(allowed) != len(addresses) or not allowed:
            raise RejectRow("host_not_allowed", f"{host[:100]!a} has an address that is not public")
        return _pinned(parts, allowed[0], host, port, self._timeouts)


def damage_of(data: bytes, max_inflated: int) -> str | None:
    """Why stored bytes cannot be whole, whatever length the store said: see ``gzip_damage``; ``truncated_json`` for
    plain text whose last line is no JSON. A cut between two lines cannot be seen."""

    if data[:2] == b"\x1f\x8b":
        return gzip_damage(data, max_inflated)
    text = data.strip(_BLANK)
    if text[:1] not in (b"[", b"{"):
        return None  # of another kind: the reader says what it is
    last = text[text.rfind(b"\n") + 1 :]
    if _parses(text) or (_parses(text[: text.find(b"\n")]) and _parses(last)):  # one value, or lines of JSON
        return None
    return "truncated_json"


def _parses(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def gzip_damage(data: bytes, max_inflated: int) -> str | None:
    """Why a gzip file cannot be read to its end (``truncated_gzip``, ``bad_gzip``); None when it can, or is no gzip."""
    if data[:2] != b"\x1f\x8b":
        return None
    size = 0
    try:
        while data:
            inflate = zlib.decompressobj(31)
            pending = data
            while not inflate.eof:
                part = inflate.decompress(pending, 1 << 20)
                size += len(part)
                if size > max_inflated:
                    return None  # not damaged as far as one may look; the reader caps it by its own rules
                pending = inflate.unconsumed_tail
                if not part and not pending and not inflate.eof:
                    return "truncated_gzip"
            data = inflate.unused_data.lstrip(b"\x00")
            if data[:2] != b"\x1f\x8b":
                return None  # trailing bytes are no part of the archive
    except zlib.error:
        return "bad_gzip"
    return None


def _pinned(
    parts: SplitResult, address: str, host: str, port: int | None, timeouts: dict[str, float | None]
) -> httpx.Request:
    import httpx

    at = f"[{address}]" if ":" in address else address
    named = f"[{host}]" if ":" in host else host
    suffix = f":{port}" if port else ""
    return httpx.Request(
        "GET",
        parts._replace(netloc=f"{at}{suffix}", fragment="").geturl(),
        headers={"Host": f"{named}{suffix}", "Accept-Encoding": "identity", "User-Agent": "trajectory-platform"},
        extensions={"sni_hostname": host, "timeout": timeouts},
    )


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RetryLater("storage_unavailable", f"{host[:100]!a} cannot be resolved") from error
    return [str(entry[4][0]).partition("%")[0] for entry in found]


def _transient(error: Exception) -> RetryLater:
    """A failed try, without its URL."""
    if isinstance(error, RetryLater):
        return error
    return RetryLater("storage_unavailable", type(error).__name__)
