"""A local S3 server in a process of its own: moto behind a front that makes it behave as S3 does, or misbehave.

moto tests the condition of a put and then stores, so two threads can both pass: the front lets one changing request in
at a time. The front also counts requests and plays faults: answers of an error, slow ones, cut ones, lost ones.

    python -m trajectory_platform_tests.s3_server      # prints its URL, serves until stdin closes
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_CONTROL = "/__front__/"
_ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>played</Message>{more}</Error>"


class Server:
    """The server as a test sees it; ``environment`` holds the variables that lead there."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.bucket_name = ""
        self.environment = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def bucket(self, name: str) -> None:
        """Make a bucket; it may be there."""
        self._ask(f"/{name}", "PUT")

    def play(self, method: str, key: str, times: int = 1, **what: Any) -> None:
        """Play a fault on the next ``times`` requests whose method and key (a regular expression) fit.

        Args:
            what: ``status`` and ``code`` of an error answer; ``delay`` seconds before an answer; ``cut`` the answer in
                the middle; ``lose`` the answer of a request that was carried out; ``ignore`` the condition of a put.
        """
        self._ask(
            _CONTROL + "play", "POST", json.dumps({"method": method, "key": key, "times": times, **what}).encode()
        )

    def requests(self) -> list[str]:
        """``METHOD key`` of every request since this was asked last."""
        answer: list[str] = json.loads(self._ask(_CONTROL + "requests", "POST"))
        return answer

    def calm(self) -> None:
        """End all faults."""
        self._ask(_CONTROL + "calm", "POST")

    def _ask(self, path: str, method: str, data: bytes | None = None) -> bytes:
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, method=method), timeout=60) as answer:
            return bytes(answer.read())


@contextmanager
def running() -> Iterator[Server]:
    """A server for a while."""
    root = str(Path(__file__).resolve().parents[1])
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": root, "PYTHONWARNINGS": "ignore"},
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        yield Server(process.stdout.readline().decode().strip())
    finally:
        process.stdin.close()  # it also ends when this process is killed
        process.wait(30)


class _Front:
    """The WSGI application before moto."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._one_change = threading.Lock()
        self._state = threading.Lock()
        self._faults: list[dict[str, Any]] = []
        self._requests: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith(_CONTROL):
            return self._control(path.removeprefix(_CONTROL), environ, start)
        with self._state:
            self._requests.append(f"{method} {path}{'?' if environ.get('QUERY_STRING') else ''}")
            fault = self._fault(method, path)
        time.sleep(fault.get("delay", 0))
        if "status" in fault:
            return _error(fault, start)
        if fault.get("ignore"):
            conditions = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")
            environ = {name: value for name, value in environ.items() if name not in conditions}
        if method == "GET" or method == "HEAD":
            return self._answer(environ, start, fault)
        length = int(environ.get("CONTENT_LENGTH") or 0)  # read before the lock: a slow client must not hold it
        if length:
            environ = {**environ, "wsgi.input": io.BytesIO(environ["wsgi.input"].read(length))}
        with self._one_change:
            return self._answer(environ, start, fault)

    def _answer(self, environ: dict[str, Any], start: Any, fault: dict[str, Any]) -> Iterable[bytes]:
        told: list[Any] = []
        body = b"".join(self._app(environ, lambda *arguments: told.append(arguments)))
        if fault.get("lose"):
            return _error({"status": 500, "code": "InternalError"}, start)
        start(*told[0][:2])
        return [body[: len(body) // 2]] if fault.get("cut") else [body]

    def _fault(self, method: str, path: str) -> dict[str, Any]:
        for fault in self._faults:
            if fault["times"] and fault["method"] in (method, "*") and re.search(fault["key"], path):
                fault["times"] -= 1
                return fault
        return {}

    def _control(self, what: str, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        data = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        answer: Any = None
        with self._state:
            if what == "play":
                self._faults.append(json.loads(data))
            elif what == "calm":
                self._faults.clear()
            else:
                answer, self._requests = self._requests, []
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]


def _error(fault: dict[str, Any], start: Any) -> Iterable[bytes]:
    body = _ERROR.format(code=fault.get("code", "InternalError"), more=fault.get("more", "")).encode()
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    start(f"{fault['status']} Played", headers)
    return [body]


def main() -> None:
    """Serve on a free port until stdin ends."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, _Front(DomainDispatcherApplication(create_backend_app)), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
