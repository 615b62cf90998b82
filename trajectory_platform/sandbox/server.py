"""The benchmark's search server over HTTP (domain 1.5, 1.6, 3), so that the subnet's own agents can be pointed at it.

| Request | Answer |
|---|---|
| ``GET /find_product`` q, page, shop_id, price, sort, service | list of at most 10 rows |
| ``GET /view_product_information`` product_ids | list of details |
| ``GET /get_product_raw`` product_ids | list of whole documents, as the reference scorer reads them |
| ``POST /TOOL`` with its arguments as a JSON object | what the tool answers an agent (the five catalogue tools) |
| ``GET /health``, ``GET /metrics``, ``GET /`` | state, counters in Prometheus text, list of endpoints |

Every path also works below ``/search``, where the sandbox proxy shows it, but for ``get_product_raw``: the proxy keeps
whole documents from agents, and so does this prefix (403). What the reference answers with status 500 is 500 here
(``ServerError``). Every error is ``{"error": text}``; a fault of one request ends that request only. Bodies depend on
nothing but catalogue and request. How processes are run, and how a new catalogue gets in, is in ``serving``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from trajectory_platform import jsontext
from trajectory_platform.errors import RejectRow
from trajectory_platform.escaping import escaped
from trajectory_platform.sandbox.search import ServerError
from trajectory_platform.sandbox.server_metrics import Metrics
from trajectory_platform.sandbox.tools import World, call_tool

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PREFIX = "/search"
DISPATCHED = (
    "find_product",
    "view_product_information",
    "check_product_match",
    "find_products_in_same_shop",
    "calculate_voucher",
)
_SEARCHED = ("q", "page", "shop_id", "price", "sort", "service")
_MAX_PARAMETERS = 50
_RETRY_AFTER_S = "1"


@dataclass(frozen=True)
class ServerLimits:
    """What one request, and all of them together, may ask for. The reference server has no such limits; real requests
    stay far below them.

    Attributes:
        max_url_bytes: path and query string as sent; longer is 414.
        max_body_bytes: of a POST; larger is 413.
        max_ids: product ids in one request; more is 400.
        max_query_chars: length of ``q``; longer is 400.
        max_connections: open connections of one worker; a request on a further one is 503.
        max_in_flight: requests of one worker that have begun and not ended; a further one is 503.
        body_timeout_s: seconds for a POST body to arrive; slower is 408.
        head_timeout_s: seconds after which a connection on which no request has come is closed, at the latest after
            twice as many.
    """

    max_url_bytes: int = 16_384
    max_body_bytes: int = 65_536
    max_ids: int = 500
    max_query_chars: int = 4_000
    max_connections: int = 1_000
    max_in_flight: int = 500
    body_timeout_s: float = 10.0
    head_timeout_s: float = 10.0


class _Refused(Exception):
    """A request that is answered with an error status; the text is shown to the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def create_app(
    world: World | Callable[[], World],
    *,
    limits: ServerLimits | None = None,
    metrics: Metrics | None = None,
    connections: Callable[[], int] | None = None,
) -> ASGIApp:
    """The ASGI application.

    Args:
        world: what is served, or a function that gives it; it is asked once for each request, so that the world may be
            replaced while requests are being answered.
        connections: how many connections the server has open; without it that limit is not applied.
    """
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    bounds = limits or ServerLimits()
    counters = metrics or Metrics()
    endpoints = _Endpoints((lambda: world) if isinstance(world, World) else world, bounds, counters)
    routes = [
        Route(prefix + path, endpoint, methods=methods)
        for prefix in ("", PREFIX)
        for path, endpoint, methods in endpoints.table(prefix)
    ]
    app: Starlette = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: _http_error,
            _Refused: _refused,
            ServerError: _server_error,
            Exception: _fault,
        },
    )
    app.router.redirect_slashes = False
    return _Gate(app, bounds, counters, connections)


def serve(catalogue: Path, index_root: Path, *, host: str = "127.0.0.1", port: int, **options: Any) -> None:
    """Serve a product file until SIGTERM or SIGINT; see ``serving.serve`` for all options."""
    from trajectory_platform.sandbox import serving

    serving.serve(catalogue, index_root, host=host, port=port, **options)


class _Endpoints:
    """What each path answers. The work is done on the event loop: a search takes less than handing it to a thread and
    back under the interpreter's lock, and a world need not be safe for several threads."""

    def __init__(self, world: Callable[[], World], limits: ServerLimits, metrics: Metrics) -> None:
        self.world = world
        self.limits = limits
        self.metrics = metrics

    def table(self, prefix: str) -> list[tuple[str, Callable[[Request], Awaitable[Response]], list[str]]]:
        """(path, endpoint, methods) below a prefix."""
        read: dict[str, Callable[[Request], Response]] = {
            "find_product": self.find_product,
            "view_product_information": self.view_product_information,
        }
        rows = [
            (f"/{name}", self._tool(name, read.get(name)), ["GET", "POST"] if name in read else ["POST"])
            for name in DISPATCHED
        ]
        rows.append(("/get_product_raw", self.forbidden if prefix else self.get_product_raw, ["GET"]))
        rows.append(("/health", self.health, ["GET"]))
        if not prefix:
            rows += [("/metrics", self.show_metrics, ["GET"]), ("/", self.usage, ["GET"])]
        return rows

    def find_product(self, request: Request) -> Response:
        sent = _parameters(request)
        self._check_query(sent.get("q"))
        return _json(self.world().index.find({name: sent[name] for name in _SEARCHED if name in sent}))

    def view_product_information(self, request: Request) -> Response:
        ids = _parameters(request).get("product_ids")
        self._check_ids(ids)
        return _json(self.world().index.view({} if ids is None else {"product_ids": ids}))

    async def get_product_raw(self, request: Request) -> Response:
        ids = _parameters(request).get("product_ids", "")
        self._check_ids(ids)
        catalogue = self.world().catalogue
        documents = (catalogue.get(product_id) for product_id in ids.split(","))
        return _json([document for document in documents if document is not None])

    async def forbidden(self, request: Request) -> Response:
        return _error(403, "forbidden")

    async def health(self, request: Request) -> Response:
        return _json({"status": "healthy", "service": "search-server"})

    async def usage(self, request: Request) -> Response:
        shown = {"/find_product": ",".join(_SEARCHED), "/view_product_information": "product_ids"}
        return _json(shown | {"/get_product_raw": "product_ids", "/health": "", "/metrics": ""})

    async def show_metrics(self, request: Request) -> Response:
        from starlette.responses import Response

        catalogue = self.world().catalogue
        self.metrics.serving(len(catalogue))
        digest = getattr(catalogue, "digest", None)
        text = self.metrics.text(digest if isinstance(digest, str) and digest.isalnum() else None)
        return Response(text, media_type="text/plain; version=0.0.4")

    def _tool(self, name: str, read: Callable[[Request], Response] | None) -> Callable[[Request], Awaitable[Response]]:
        """One catalogue tool: GET as the search server answers it, POST as agents of the later builds dispatch it:
        the arguments as the model wrote them, answered like ``call_tool``, its error results with status 200."""

        async def endpoint(request: Request) -> Response:
            if read is not None and request.method != "POST":
                return read(request)
            arguments = await self._arguments(request)
            for query in _queries_in(arguments):
                self._check_query(query)
            self._check_ids(arguments.get("product_ids"))
            self._check_ids(arguments.get("product_id"))  # a csv too: the tool hands it to the view
            return _json(call_tool(self.world(), name, arguments))

        return endpoint

    async def _arguments(self, request: Request) -> Mapping[str, Any]:
        """The JSON object in a body; an empty body is an empty object (case A01)."""
        from starlette.requests import ClientDisconnect

        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_timeout_s):
                async for part in request.stream():
                    body += part
                    if len(body) > self.limits.max_body_bytes:
                        raise _Refused(413, f"the body has more than {self.limits.max_body_bytes} bytes")
        except TimeoutError as error:
            raise _Refused(408, "the body did not arrive in time") from error
        except ClientDisconnect as error:  # nobody reads this answer; it is no fault of ours
            raise _Refused(400, "the body ended early") from error
        if not body.strip():
            return {}
        try:
            value = jsontext.parse(bytes(body)).value
        except RejectRow as error:
            raise _Refused(400, f"the body is not readable JSON: {error.reason}") from error
        if not isinstance(value, dict):
            raise _Refused(400, "the body must be a JSON object")
        return value

    def _check_query(self, query: Any) -> None:
        if isinstance(query, str) and len(query) > self.limits.max_query_chars:
            raise _Refused(400, f"q has more than {self.limits.max_query_chars} characters")

    def _check_ids(self, ids: Any) -> None:
        if isinstance(ids, str) and ids.count(",") >= self.limits.max_ids:
            raise _Refused(400, f"more than {self.limits.max_ids} product ids")


class _Gate:
    """Around the application: limits that need no parsing, counters, and the end of a request whatever happens."""

    def __init__(
        self, app: ASGIApp, limits: ServerLimits, metrics: Metrics, connections: Callable[[], int] | None
    ) -> None:
        self.app = app
        self.limits = limits
        self.metrics = metrics
        self.connections = connections
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.running += 1
        self.metrics.in_flight(1)
        try:
            refusal = self._refusal(scope)
            await (refusal or self.app)(scope, receive, counted)
        finally:
            self.running -= 1
            self.metrics.in_flight(-1)
            path = scope["path"].removeprefix(PREFIX + "/").removeprefix("/")
            self.metrics.observe(path, status, time.perf_counter() - started)

    def _refusal(self, scope: Scope) -> Response | None:
        limits = self.limits
        if len(scope["raw_path"]) + len(scope["query_string"]) > limits.max_url_bytes:
            return _error(414, f"the URL has more than {limits.max_url_bytes} bytes")
        too_many = self.running > limits.max_in_flight
        if too_many or (self.connections is not None and self.connections() > limits.max_connections):
            response = _error(503, "too many requests at once; try again later")
            response.headers["retry-after"] = _RETRY_AFTER_S
            response.headers["connection"] = "close"
            return response
        return None


def _parameters(request: Request) -> dict[str, str]:
    """The query parameters, the first of each name as in the reference server; blank ones are there."""
    try:
        pairs = parse_qsl(
            request.scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_PARAMETERS
        )
    except ValueError as error:
        raise _Refused(400, f"more than {_MAX_PARAMETERS} parameters") from error
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def _queries_in(arguments: Mapping[str, Any]) -> list[Any]:
    """Every text of search words in the arguments of a tool; the list of queries may itself be JSON text."""
    listed = arguments.get("product_queries")
    inner = listed if isinstance(listed, list) else [listed]
    return [arguments.get("q"), *(query.get("q") if isinstance(query, dict) else query for query in inner)]


def _json(value: Any, status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(jsontext.dumps(value).encode(), status, media_type="application/json")


def _error(status: int, text: str) -> Response:
    """``{"error": text}``; control and invisible characters of the request are shown escaped."""
    return _json({"error": escaped(text)}, status)


async def _http_error(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    text = {404: "not found", 405: f"{request.method} is not allowed here"}.get(status, "the request was refused")
    response = _error(status, text)
    response.headers.update(getattr(error, "headers", None) or {})
    return response


async def _refused(request: Request, error: Exception) -> Response:
    return _error(error.status if isinstance(error, _Refused) else 400, str(error))


async def _server_error(request: Request, error: Exception) -> Response:
    return _error(500, str(error)[:200])


async def _fault(request: Request, error: Exception) -> Response:
    """A fault of ours: the client learns its kind, the log has the rest."""
    return _error(500, f"internal error ({type(error).__name__})")
