"""A small scripted server for faults that the client must survive; the full local server is ``arena.oro_server``.

It answers on a real socket of 127.0.0.1. ``World`` is what the API knows; ``FakeOro.faults`` are taken one by one by
the first request whose path matches.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = Any


@dataclass
class Fault:
    """What happens instead of the answer: a status with body and headers, or ``cut`` bytes, or ``drop`` the line."""

    path: str
    status: int = 200
    body: bytes | Json = b""
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    cut: int | None = None
    drop: bool = False


@dataclass
class World:
    """What the API knows."""

    races: list[Json] = field(default_factory=list)
    current: Json = None
    qualifiers: dict[str, list[Json]] = field(default_factory=dict)
    versions: dict[str, Json] = field(default_factory=dict)
    runs: dict[str, list[Json]] = field(default_factory=dict)
    problems: dict[str, list[Json]] = field(default_factory=dict)
    suites: dict[int, Json] = field(default_factory=dict)
    history: Json = field(default_factory=lambda: {"series": [], "total": None})
    artifacts: dict[tuple[str, str], bytes] = field(default_factory=dict)
    boards: dict[int, list[Json]] = field(default_factory=dict)
    generated: dict[str, list[Json]] = field(default_factory=dict)
    hidden_versions: set[str] = field(default_factory=set)
    refusals: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)


def error(code: str) -> Json:
    return {"detail": "no", "error_code": code}


class FakeOro:
    """The server; ``requests`` are the paths asked for, in order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.before: Callable[[str], None] = lambda path: None
        self.before_refusal: Callable[[], object] = lambda: None  # without the lock: requests may wait for each other
        self.lock = threading.Lock()
        self.url = ""

    def count(self, pattern: str) -> int:
        return sum(re.search(pattern, path) is not None for path in self.requests)

    def downloads(self) -> Counter[str]:
        return Counter(path for path in self.requests if path.startswith("GET /store/"))

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes, Fault | None]:
        with self.lock:
            self.requests.append(f"{method} {path}")
            self.before(f"{method} {path}")
            fault = next((one for one in self.faults if one.times and re.search(one.path, f"{method} {path}")), None)
            if fault is not None:
                fault.times -= 1
                if fault.cut is None and not fault.drop:
                    data = fault.body if isinstance(fault.body, bytes) else json.dumps(fault.body).encode()
                    return fault.status, fault.headers, data, fault
        parts = urlsplit(path)
        if parts.path.startswith("/store/"):
            run, problem = parts.path.removeprefix("/store/").split("/")
            stored = self.world.artifacts.get((run, problem))
            return (404, {}, b"<Code>NoSuchKey</Code>", fault) if stored is None else (200, {}, stored, fault)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        status, value = self._api(parts.path.removeprefix("/v1/public/"), query, body)
        return status, {"Content-Type": "application/json"}, json.dumps(value).encode(), fault

    def _api(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, Json]:
        world = self.world
        limit, offset = int(query.get("limit", 20)), int(query.get("offset", 0))
        if path == "races/current":
            if world.current is None:
                return 200, {"race": None, "qualifiers": []}
            return 200, {"race": world.current, "qualifiers": world.qualifiers.get(world.current["race_id"], [])}
        if path == "races/history":
            rows = world.races[offset : offset + limit]
            return 200, {"total": len(world.races), "limit": limit, "offset": offset, "races": rows}
        if path == "suites":
            return 200, [answer["suite"] for answer in world.suites.values()]
        if path == "leaderboard":
            board = world.boards.get(int(query["suite_id"]), []) if "suite_id" in query else []
            entries = board[offset : offset + limit]
            page = {"total": len(board), "limit": limit, "offset": offset, "entries": entries}
            return 200, {**page, "unique_miners": 0, "suite": {}}
        if path == "trajectories/history":
            return 200, world.history
        if path == "evaluations/running":
            return 200, []
        if path == "artifacts/download-url":
            return self._link(json.loads(body))
        head, name, *rest = [*path.split("/"), ""]
        if head == "races":
            race = next((race for race in world.races if race["race_id"] == name), None)
            if race is None:
                return 404, error("RACE_NOT_FOUND")
            return 200, {"race": race, "qualifiers": world.qualifiers.get(name, [])}
        if head == "suites":
            return 200, world.suites[int(name)]
        if head == "agent-versions":
            return self._version(name, rest[0], query)
        return 404, {"detail": "Not Found"}

    def _version(self, name: str, what: str, query: dict[str, str]) -> tuple[int, Json]:
        if name in self.world.hidden_versions or name not in self.world.versions:
            return 404, error("AGENT_VERSION_NOT_FOUND")
        if what == "runs":
            return 200, self.world.runs.get(name, [])
        if what == "problems":
            entries = [
                entry
                for entry in self.world.problems.get(name, [])
                if "race_id" not in query or entry.get("race_id") == query["race_id"]
            ]
            suite = self.world.versions[name].get("suite_id")
            answer = {"agent_version_id": name, "suite_id": suite, "problems": entries}
            return 200, {**answer, "generated_results": self.world.generated.get(name, [])}
        return 200, self.world.versions[name]

    def _link(self, wanted: Json) -> tuple[int, Json]:
        key = (wanted["eval_run_id"], wanted["problem_id"])
        if key in self.world.refusals:
            self.before_refusal()
            status, code = self.world.refusals[key]
            return status, error(code)
        if key not in self.world.artifacts:
            return 404, error("ARTIFACT_NOT_FOUND")
        url = f"{self.url}/store/{key[0]}/{key[1]}?X-Amz-Signature=secret{len(self.requests)}"
        return 200, {"download_url": url, "expires_at": "2099-01-01T00:00:00Z"}


@contextmanager
def serving(world: World) -> Iterator[FakeOro]:
    """The server on a free port of 127.0.0.1."""
    fake = FakeOro(world)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.reply("GET", b"")

        def do_POST(self) -> None:
            self.reply("POST", self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def reply(self, method: str, body: bytes) -> None:
            status, headers, data, fault = fake.answer(method, self.path, body)
            if fault is not None and fault.drop:
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if fault is not None and fault.cut is not None:
                self.wfile.write(data[: fault.cut])
                self.wfile.flush()
                self.close_connection = True
                return
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Quiet."""

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (OSError, ValueError):
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def world_of_day(folder: Path) -> World:
    """A raw day folder as the API would show it: one race that touches the day, in which every version takes part."""

    def lines(name: str) -> list[Json]:
        return [json.loads(line) for line in (folder / name).read_text().splitlines()]

    world = World()
    day = folder.name
    world.versions = {version["agent_version_id"]: version for version in lines("agent_versions.jsonl")}
    for run in lines("runs.jsonl"):
        world.runs.setdefault(run["agent_version_id"], []).append(run)
    for entry in lines("problems.jsonl"):
        known = {name: value for name, value in entry.items() if name not in ("agent_version_id", "suite_id")}
        world.problems.setdefault(entry["agent_version_id"], []).append(known)
    suite = json.loads((folder / "suite.json").read_text())
    world.suites = {suite["suite"]["suite_id"]: suite}
    race = next(run["race_id"] for runs in world.runs.values() for run in runs if run["race_id"])
    world.races = [a_race(race, day, suite["suite"]["suite_id"])]
    world.qualifiers = {race: [a_qualifier(version) for version in world.versions.values()]}
    for path in folder.glob("artifacts/*/*.json.gz"):
        world.artifacts[(path.parent.name, path.name.removesuffix(".json.gz"))] = path.read_bytes()
    return world


def a_race(race_id: str, day: str, suite: int = 1) -> Json:
    return {
        "race_id": race_id,
        "suite_id": suite,
        "status": "RACE_COMPLETE",
        "created_at": f"{day}T00:00:00Z",
        "race_started_at": f"{day}T19:00:00Z",
        "race_completed_at": f"{day}T22:00:00Z",
    }


def a_qualifier(version: Json) -> Json:
    return {
        "agent_version_id": version["agent_version_id"],
        "qualification_type": "SCORED",
        "agent_name": version["agent_name"],
        "miner_hotkey": version["miner_hotkey"],
        "version_number": version["version_number"],
    }
