"""The server as processes: signals, a new catalogue while it serves, workers that die. With real ports."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trajectory_platform.errors import Abort
from trajectory_platform.sandbox.serving import serve
from trajectory_platform_tests.sandbox.market import product

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
_SCRIPT = """
import json, sys
from pathlib import Path
from trajectory_platform.sandbox.server import ServerLimits, serve
def unpacked(options):
    return options | {"limits": ServerLimits(**options.get("limits", {}))}
if __name__ == "__main__":
    catalogue, root, options = sys.argv[1:]
    serve(Path(catalogue), Path(root), **unpacked(json.loads(options)))
"""


class Running:
    """A server process, the port it names, and the lines it has said."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log
        self.port = int(self.wait_for(r"serving .* on http://\S+?:(\d+) with")[1])

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in what the server has said."""
        return until(lambda: re.search(pattern, self.log.read_text()), f"{pattern} in {self.log}")

    def get(self, target: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", target)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, json.loads(body) if body[:1] in (b"[", b"{") else body.decode()

    def mugs(self) -> list[str]:
        return [row["product_id"] for row in self.get("/find_product?q=mug&page=1")[1]]

    def stop(self, signum: int = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        return self.process.wait(PATIENCE_S)


def until(probe: Callable[[], Any], what: str) -> Any:
    """What ``probe`` gives as soon as it is true."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := probe():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited in vain for {what}")


def write(path: Path, *ids: str) -> None:
    """A catalogue of mugs, put in place the way ``serving`` asks for."""
    new = path.with_suffix(".new")
    new.write_text("".join(json.dumps(product(one)) + "\n" for one in ids))
    os.replace(new, path)


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[Running]:
    catalogue, log, script = folder / "products.jsonl", folder / "log.txt", folder / "run.py"
    if not catalogue.exists():
        write(catalogue, "1", "2")
    script.write_text(_SCRIPT)
    arguments = [sys.executable, str(script), str(catalogue), str(folder / "index"), json.dumps({"port": 0} | options)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with log.open("w") as out:
        process = subprocess.Popen(arguments, stderr=out, stdout=out, env=environment, text=True)
    try:
        yield Running(process, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)


def children(pid: int) -> list[int]:
    """The worker processes of a server, by the kernel's own list."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
            command = (path.parent / "cmdline").read_text()
        except OSError:
            continue
        if fields[1] == str(pid) and fields[0] != "Z" and "spawn_main" in command:
            found.append(int(path.parent.name))
    return sorted(found)


def test_a_request_that_has_begun_is_answered_after_sigterm(tmp_path: Path) -> None:
    body = b'{"q": "mug"}'
    with running(tmp_path) as server:
        assert server.mugs() == ["1", "2"]
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as slow:
            head = f"POST /search/find_product HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            slow.sendall(head + body[:5])
            until(lambda: "sandbox_requests_in_flight 2\n" in server.get("/metrics")[1], "the request to begin")
            server.process.send_signal(signal.SIGTERM)
            until(lambda: _refuses(server.port), "the port to close")
            slow.sendall(body[5:])
            answer = http.client.HTTPResponse(slow)
            answer.begin()
            assert answer.status == 200
            assert [row["product_id"] for row in json.loads(answer.read())] == ["1", "2"]
        assert server.process.wait(PATIENCE_S) == 0
        assert server.log.read_text().splitlines()[-1] == "stopped"


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
    except ConnectionError:
        return True
    return False


def test_a_new_catalogue_is_served_without_a_restart_and_a_bad_one_is_not(tmp_path: Path) -> None:
    catalogue = tmp_path / "products.jsonl"
    with running(tmp_path, watch_s=0.1) as server:
        write(catalogue, "7")
        until(lambda: server.mugs() == ["7"], "the new catalogue")
        catalogue.write_bytes(b"\x1f\x8bno gzip")
        server.wait_for("the old catalogue stays: .*damaged")
        catalogue.write_bytes(b"{}\n")
        server.wait_for("the old catalogue stays: .*no usable product")
        assert server.mugs() == ["7"]
        write(catalogue, "8", "9")
        until(lambda: server.mugs() == ["8", "9"], "the next good catalogue")
        assert "sandbox_catalogue_reloads_total 2\n" in server.get("/metrics")[1]
        assert server.stop(signal.SIGINT) == 0


def test_sighup_looks_at_once(tmp_path: Path) -> None:
    with running(tmp_path, watch_s=0) as server:
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the catalogue is unchanged")
        write(tmp_path / "products.jsonl", "7")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: server.mugs() == ["7"], "the new catalogue")
        assert server.stop() == 0


def test_workers_are_replaced_follow_the_catalogue_and_end_with_their_parent(tmp_path: Path) -> None:
    with running(tmp_path, workers=2, watch_s=0.1) as server:
        first = until(lambda: (found := children(server.process.pid)) and len(found) == 2 and found, "two workers")
        os.kill(first[0], signal.SIGKILL)
        server.wait_for("worker [01] ended with code -9")
        write(tmp_path / "products.jsonl", "7")

        def both() -> bool:
            text = server.get("/metrics")[1]
            return all(f'sandbox_catalogue_products{{worker="{n}"}} 1\n' in text for n in (0, 1))

        until(both, "both workers on the new catalogue")
        assert {tuple(server.mugs()) for _ in range(20)} == {("7",)}
        now = children(server.process.pid)
        assert len(now) == 2 and now != first
        assert server.stop() == 0
        assert [pid for pid in now if _alive(pid)] == []


@pytest.mark.slow
def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, workers=2) as server:
        workers = until(lambda: (found := children(server.process.pid)) and len(found) == 2 and found, "two workers")
        server.process.kill()
        server.process.wait(PATIENCE_S)
        until(lambda: not any(map(_alive, workers)), "the workers to end")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_an_open_host_is_warned_about_and_bounds_the_head_of_a_request(tmp_path: Path) -> None:
    with running(tmp_path, host="0.0.0.0") as server:
        server.wait_for("WARNING: 0.0.0.0 is no loopback address")
        flood = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)
        with flood, pytest.raises(ConnectionError):
            flood.sendall(b"GET /health HTTP/1.1\r\nX: ")
            for _ in range(2_000):
                flood.sendall(b"x" * 65_536)
        assert server.get("/health")[0] == 200
        assert server.stop() == 0


def test_half_a_request_does_not_hold_a_connection_for_good(tmp_path: Path) -> None:
    with running(tmp_path, limits={"max_connections": 3, "head_timeout_s": 1.0}) as server:
        held = [socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) for _ in range(3)]
        for number, connection in enumerate(held):
            connection.sendall((b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" if number == 0 else b"") + b"GET /hea")
        until(lambda: server.get("/health")[0] == 503, "the limit of connections")
        until(lambda: server.get("/health")[0] == 200, "the end of what sends nothing")
        for number, connection in enumerate(held):
            told = connection.makefile("rb").read()
            assert (b"200 OK" in told) is (number == 0)
            connection.close()


def test_a_port_that_is_taken_and_a_missing_catalogue_are_said_in_words(tmp_path: Path) -> None:
    write(tmp_path / "products.jsonl", "1")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(Abort, match="cannot serve on 127.0.0.1"):
            serve(tmp_path / "products.jsonl", tmp_path / "index", port=other.getsockname()[1])
    with pytest.raises(Abort):
        serve(tmp_path / "none.jsonl", tmp_path / "index", port=0)
    with pytest.raises(Abort, match="workers"):
        serve(tmp_path / "products.jsonl", tmp_path / "index", port=0, workers=0)
