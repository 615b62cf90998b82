"""Running the sandbox server: processes, signals, and a new catalogue version without a restart.

One process answers on its own; with several workers each listens on the port by itself (the kernel spreads
connections over them), and a parent watches them, replaces one that dies, and passes signals on.

The catalogue file is looked at every few seconds, and at once on SIGHUP. When its content has changed, a new index is
built beside the old one (``catalogue_index.build_index``), and each worker switches to it between two requests. A
build that fails leaves the old version in place. Replace the file by renaming a complete one onto it.

SIGTERM and SIGINT end the server: no new connection is taken, requests that have begun are answered, then it returns.
"""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort, PlatformError
from trajectory_platform.escaping import escaped
from trajectory_platform.sandbox.catalogue_watch import CatalogueWatch, built
from trajectory_platform.sandbox.idle_connections import IdleConnections
from trajectory_platform.sandbox.server import ServerLimits, create_app
from trajectory_platform.sandbox.server_log import LOGGER, log_config
from trajectory_platform.sandbox.server_metrics import CELLS, Metrics

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from types import FrameType

    from trajectory_platform.sandbox.tools import World

REFERENCE_PORT = 5632
MAX_WORKERS = 64
_BACKLOG = 2048
_TICK_S = 0.5
_START_TICK_S = 0.05
_EARLY_DEATHS = 3  # workers that die before they ever answered: the server gives up


class Options(NamedTuple):
    """What every worker needs to know; it is sent to it as it starts."""

    host: str
    port: int
    limits: ServerLimits
    grace_s: float
    access_log: bool


def serve(
    catalogue: Path,
    index_root: Path,
    *,
    host: str = "127.0.0.1",
    port: int = REFERENCE_PORT,
    workers: int = 1,
    limits: ServerLimits | None = None,
    watch_s: float = 5.0,
    grace_s: float = 10.0,
    access_log: bool = False,
    say: Callable[[str], None] | None = None,
) -> None:
    """Serve a product file until SIGTERM or SIGINT. Must be called from the main thread.

    Args:
        catalogue: product documents, JSON lines, plain or compressed.
        index_root: folder of the built indexes.
        port: 0 takes a free one; the first line said names it.
        watch_s: seconds between two looks at the catalogue file; 0 means only on SIGHUP.
        grace_s: seconds that requests which have begun get to end.
        say: where lines for people go; standard error by default.

    Raises:
        Abort: the catalogue cannot be read or is empty, the port is taken, or workers die as they start.
        FailPartition: the catalogue file is damaged.
    """
    tell = say or _say
    if not 1 <= workers <= MAX_WORKERS:
        raise Abort(f"workers must be from 1 to {MAX_WORKERS}, not {workers}")
    folder = built(catalogue, index_root)
    with _bound(host, port, shared=workers > 1) as listener:
        options = Options(host, listener.getsockname()[1], limits or ServerLimits(), grace_s, access_log)
        watch = CatalogueWatch(catalogue, index_root, folder, watch_s, tell)
        shown = f"[{host}]" if ":" in host else host
        line = f"serving {catalogue} on http://{shown}:{options.port} with {workers} worker(s)"

        def announce() -> None:
            if not _is_loopback(host):
                tell(f"WARNING: {escaped(host)} is no loopback address: everyone who reaches it can use this server")
            tell(escaped(line))

        if workers == 1:
            _serve_here(listener, folder, options, watch, announce)
        else:
            _supervise(workers, folder, options, watch, tell, announce)
    tell("stopped")


# ---------------------------------------------------------------------------------------------- one worker


class _Slot:
    """The world that is being served; assigning another one is the switch."""

    def __init__(self, folder: Path, metrics: Metrics) -> None:
        self.metrics = metrics
        self.world = self._open(folder)

    def switch(self, folder: Path) -> None:
        """Serve another version from the next request on."""
        self.world = self._open(folder)
        self.metrics.reloaded()

    def _open(self, folder: Path) -> World:
        from trajectory_platform.sandbox.catalogue_index import open_world

        world = open_world(folder)
        self.metrics.serving(len(world.catalogue))
        return world


def _serve_here(
    listener: socket.socket, folder: Path, options: Options, watch: CatalogueWatch, announce: Callable[[], None]
) -> None:
    """The server in this process, with the watch beside it."""
    slot = _Slot(folder, Metrics())
    ending = threading.Event()

    def end(*_: Any) -> None:
        ending.set()

    with _handlers({signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: lambda *_: watch.look()}):
        watch.start(slot.switch)
        listener.listen(_BACKLOG)  # who connects from here on is answered
        announce()
        _answer(listener, slot, options, ending)
        watch.stop()


def _answer(listener: socket.socket, slot: _Slot, options: Options, ending: threading.Event) -> None:
    """Answer requests until SIGTERM or SIGINT; then end those that have begun and return. ``ending`` says that the
    signal came before the server took them over."""
    import uvicorn

    state: list[uvicorn.Server] = []
    app = create_app(
        lambda: slot.world,
        limits=options.limits,
        metrics=slot.metrics,
        connections=lambda: len(state[0].server_state.connections),
    )
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        # the fast parser does not bound the size of a request's head; on a host that others reach, the strict one
        http="auto" if _is_loopback(options.host) else "h11",
        h11_max_incomplete_event_size=options.limits.max_url_bytes + 16_384,
        ws="none",
        lifespan="off",
        log_config=log_config(options.access_log),
        access_log=options.access_log,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        callback_notify=IdleConnections(lambda: state[0].server_state.connections),
        timeout_notify=max(1, round(options.limits.head_timeout_s)),
        timeout_graceful_shutdown=max(1, round(options.grace_s)),
    )
    state.append(uvicorn.Server(config))
    state[0].should_exit = ending.is_set()
    state[0].run(sockets=[listener])


# ---------------------------------------------------------------------------------------------- several workers


def _supervise(
    count: int,
    folder: Path,
    options: Options,
    watch: CatalogueWatch,
    tell: Callable[[str], None],
    announce: Callable[[], None],
) -> None:
    """Start workers, replace those that die, pass a new version on, and end them on SIGTERM or SIGINT.

    Raises:
        Abort: workers die before they answer.
    """
    ending = threading.Event()

    def end(*_: Any) -> None:
        ending.set()

    workers = _Workers(count, folder, options, tell)
    announced = False
    try:
        with _handlers({signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: lambda *_: watch.look()}):
            watch.start(workers.switch)
            while not ending.wait(_TICK_S if announced else _START_TICK_S):
                workers.look()
                if not announced and workers.all_ready:
                    announced = True
                    announce()
    finally:
        watch.stop()
        workers.end()


class _Worker(NamedTuple):
    """One child and the pipe that tells it which version to serve."""

    process: SpawnProcess
    pipe: Connection


class _Workers:
    """The children of one server, and the version that they and their successors serve."""

    def __init__(self, count: int, folder: Path, options: Options, tell: Callable[[str], None]) -> None:
        import multiprocessing

        self._context = multiprocessing.get_context("spawn")
        self._cells = self._context.RawArray("d", CELLS * count)
        self._folder = folder
        self._options = options
        self._tell = tell
        self._ready: set[int] = set()
        self._early_deaths = 0
        self._workers = [self._start(number) for number in range(count)]

    @property
    def all_ready(self) -> bool:
        """Every worker has said that it listens."""
        return len(self._ready) == len(self._workers)

    def switch(self, folder: Path) -> None:
        """Serve another version. Who is gone is replaced at the next look, and then serves this one."""
        self._folder = folder
        for worker in list(self._workers):
            try:
                worker.pipe.send_bytes(str(folder).encode())
            except OSError as error:
                logging.getLogger(LOGGER).warning("worker %s not told: %s", worker.process.pid, error)

    def look(self) -> None:
        """Replace dead workers.

        Raises:
            Abort: several died before they ever listened.
        """
        for number, worker in enumerate(self._workers):
            if number not in self._ready and _says_ready(worker.pipe):
                self._ready.add(number)
            if worker.process.is_alive():
                continue
            self._tell(f"worker {number} ended with code {worker.process.exitcode}")
            self._early_deaths += number not in self._ready
            if self._early_deaths >= _EARLY_DEATHS:
                raise Abort("the workers of the sandbox server die as they start; see the lines above")
            worker.pipe.close()
            self._ready.discard(number)
            self._workers[number] = self._start(number)

    def end(self) -> None:
        """SIGTERM to all, and SIGKILL to one that is still there when the grace is over."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(self._options.grace_s + 2)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()

    def _start(self, number: int) -> _Worker:
        ours, theirs = self._context.Pipe()
        arguments = (number, str(self._folder), self._options, self._cells, theirs)
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)


def _says_ready(pipe: Connection) -> bool:
    """Whether the worker's one message has come; a pipe that ended has none."""
    try:
        return pipe.poll() and bool(pipe.recv_bytes())
    except (EOFError, OSError):
        return False


def _work(number: int, folder: str, options: Options, cells: Any, pipe: Connection) -> None:
    """The body of a worker process. It ends with its parent: a pipe that closes is a SIGTERM."""
    ending = threading.Event()

    def end(*_: Any) -> None:
        ending.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    slot = _Slot(Path(folder), Metrics(cells, number))
    threading.Thread(target=_follow, args=(slot, pipe, number), name="catalogue", daemon=True).start()
    with _bound(options.host, options.port, shared=True) as listener:
        listener.listen(_BACKLOG)
        pipe.send_bytes(b"ready")
        _answer(listener, slot, options, ending)


def _follow(slot: _Slot, pipe: Connection, number: int) -> None:
    """Switch to each version the parent names; when the parent is gone, end this process as SIGTERM does."""
    while True:
        try:
            folder = Path(pipe.recv_bytes().decode())
        except (EOFError, OSError):
            signal.raise_signal(signal.SIGTERM)
            return
        try:
            slot.switch(folder)
        except (PlatformError, OSError, ValueError) as error:
            logging.getLogger(LOGGER).warning("worker %d keeps its catalogue: %s", number, error)


# ---------------------------------------------------------------------------------------------- sockets, signals, log


@contextmanager
def _bound(host: str, port: int, *, shared: bool) -> Iterator[socket.socket]:
    """A socket bound to the port, not listening yet; ``shared`` lets the workers bind it too.

    Raises:
        Abort: the host is unknown or the port is taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Abort(f"cannot serve on {escaped(host)}: {error}") from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise Abort(f"cannot serve on {escaped(host)}:{port}: {error.strerror}") from error
        yield listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def _handlers(handlers: dict[signal.Signals, Callable[[int, FrameType | None], Any]]) -> Iterator[None]:
    """Signal handlers for the time of the block. uvicorn raises a signal once more after it has ended on it: it must
    then find a handler that lets the caller return."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
