"""A local server that speaks the subnet's public API (domain 1.10) over simulated days.

Every answer is built from the models of oro-sdk 7.0.2, so that its client parses it. A clock of its own says what has
been judged, released and completed; the days therefore unfold as they did for whoever asked at the time. Faults come
by script (``oro_server_faults``), the limit of requests per address is enforced (``oro_server_gate``).

| path | answers |
|---|---|
| ``/v1/public/...`` | the public API |
| ``/storage/...`` | the object store behind its download links: signed, expiring |
| ``/_arena/facts``, ``/_arena/clock`` | for tests in another process: counts of requests; the clock, read and set |

Bound to 127.0.0.1. Expiry of links and the Date header go by the machine's clock, as they would in truth.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from trajectory_platform.arena.oro_server_answers import Endpoints
from trajectory_platform.arena.oro_server_clock import ServerClock
from trajectory_platform.arena.oro_server_faults import Script
from trajectory_platform.arena.oro_server_gate import Gate, RequestLog, SlidingLimit
from trajectory_platform.arena.oro_server_history import History, load_history
from trajectory_platform.errors import Abort

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

REQUESTS_PER_MINUTE = 100
"""Of one address (domain 1.10, case I05)."""
LINK_SECONDS = 300
HOST = "127.0.0.1"


def create_app(
    history: History,
    *,
    clock: ServerClock,
    script: Script | None = None,
    requests_per_minute: int = REQUESTS_PER_MINUTE,
    link_seconds: int = LINK_SECONDS,
    log: RequestLog | None = None,
    seconds: Callable[[], float] = time.monotonic,
) -> ASGIApp:
    """The ASGI application.

    Args:
        clock: the moment up to which the history has happened.
        requests_per_minute: of one address; more are 429.
        link_seconds: life of a download link.
        log: where requests are noted.
        seconds: clock of the limit and of the log.

    Raises:
        Abort: oro-sdk is not installed.
    """
    from starlette.applications import Starlette

    try:
        import oro_sdk.models  # noqa: F401  (answers are built from it; rather fail here than at the first request)
    except ImportError as error:
        raise Abort("the local API server needs oro-sdk: pip install 'trajectory-platform[api]'") from error
    kept, plan = log or RequestLog(), script or Script()
    endpoints = Endpoints(history, clock, kept, plan, link_seconds)
    app = Starlette(routes=endpoints.routes())
    app.router.redirect_slashes = False
    return Gate(app, script=plan, limit=SlidingLimit(requests_per_minute, seconds), log=kept, clock=seconds)


class LocalServer:
    """The server in a thread of this process, on a free port, for as long as the ``with`` block.

    Attributes:
        url: base address, without a slash at its end.
        clock, log, script, history: what it serves and what it noted.
    """

    def __init__(
        self, days: Path, *, clock: ServerClock, script: Script | None = None, port: int = 0, **options: Any
    ) -> None:
        self.script = script or Script()
        self.history = load_history(days, self.script.twists)
        self.clock = clock
        self.log = RequestLog()
        app = create_app(self.history, clock=clock, script=self.script, log=self.log, **options)
        self._socket = _bound(port)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        self._server = _server(app)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> LocalServer:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise Abort(f"the server at {self.url} did not start")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._socket.close()


def serve(
    days: Path,
    *,
    port: int,
    clock: ServerClock,
    script: Script,
    requests_per_minute: int = REQUESTS_PER_MINUTE,
    ready: Callable[[str, History], None],
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        ready: called with the address and the history once the port is bound.

    Raises:
        Abort: no days, or the port is taken.
    """
    history = load_history(days, script.twists)
    app = create_app(history, clock=clock, script=script, requests_per_minute=requests_per_minute)
    bound = _bound(port)
    ready(f"http://{HOST}:{bound.getsockname()[1]}", history)
    _server(app).run([bound])


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
        bound.listen(128)  # whoever is told the address may connect before the server takes over
    except OSError as error:
        bound.close()
        raise Abort(
            f"port {port} of {HOST}: {error.strerror}; choose another with --port, 0 takes a free one"
        ) from error
    return bound


def _server(app: ASGIApp) -> uvicorn.Server:
    import uvicorn

    config = uvicorn.Config(
        app,
        http="h11",
        lifespan="off",
        log_level="critical",
        access_log=False,
        date_header=False,  # the gate writes it, so that a fault can shift it
        server_header=False,
    )
    return uvicorn.Server(config)
