"""A real OpenAI-compatible HTTP server on this machine whose answers, and faults, are scripted by the test.

It runs on sockets in a thread of its own, so that clients meet what they meet in the field: refused keys, rate limits,
cut bodies, connections that hang, HTML in place of JSON.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """One HTTP answer.

    Attributes:
        body: an object is sent as JSON, text and bytes as they are.
        delay_s: seconds before the answer begins.
        cut: bytes of the body after which the connection is closed, although ``Content-Length`` promised more.
        drip_s: seconds between the bytes of the body.
        hang: the answer never comes; the connection stays open until the server stops.
    """

    body: Any = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    delay_s: float = 0.0
    cut: int | None = None
    drip_s: float = 0.0
    hang: bool = False

    @property
    def data(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


@dataclass(frozen=True)
class Received:
    """One request: path, headers (names in lower case), decoded body."""

    path: str
    headers: dict[str, str]
    body: Any


Script = Callable[[Received, int], Answer]
"""(request, its 0-based number) -> answer."""


def completion(
    content: Any = "",
    *,
    calls: list[tuple[str, Any]] | None = None,
    finish: str | None = None,
    usage: Any = (100, 20),
    **message: Any,
) -> dict[str, Any]:
    """The body of a chat completion; ``calls`` become native tool calls, ``usage`` None leaves it out."""
    said: dict[str, Any] = {"role": "assistant", "content": content, **message}
    if calls:
        said["tool_calls"] = [
            {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for number, (name, arguments) in enumerate(calls)
        ]
    made: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "test",
        "choices": [{"index": 0, "message": said, "finish_reason": finish or ("tool_calls" if calls else "stop")}],
    }
    if isinstance(usage, tuple):
        usage = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return made if usage is None else {**made, "usage": usage}


def refusal(status: int, message: str = "", *, code: str | None = None, **headers: str) -> Answer:
    """An error as the API states it; header names with ``_`` for ``-``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"error": {"message": message, "type": "test_error", "code": code}}
    return Answer(body, status, {"Content-Type": "application/json", **named})


class ChatServer:
    """The server: a context manager with what happened on it.

    Attributes:
        received: requests in the order in which they were complete.
        in_flight, most_in_flight: requests that are being answered, now and at most.

    Args:
        script: decides each answer; a list answers in its order, the last one for ever.
        together: the first answers wait until this many requests are in flight (or 10 s have passed).
    """

    def __init__(self, script: Script | list[Answer], *, together: int = 1) -> None:
        answers = script
        self._script: Script = (
            (lambda _request, number: answers[min(number, len(answers) - 1)]) if isinstance(answers, list) else answers
        )
        self._together = together
        self.received: list[Received] = []
        self.in_flight = self.most_in_flight = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> ChatServer:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        self._loop, self._stop, self._enough = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the server stops
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"null")
        number = len(self.received)
        self.received.append(Received(head[0].split()[1], headers, body))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.in_flight >= self._together:
                self._enough.set()
            await asyncio.wait_for(self._enough.wait(), 10)
            return await self._send(self._script(self.received[number], number), writer)
        finally:
            self.in_flight -= 1

    async def _send(self, answer: Answer, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(3600 if answer.hang else answer.delay_s)
        data = answer.data
        lines = [f"HTTP/1.1 {answer.status} X", f"Content-Length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        for piece in [data[: answer.cut]] if answer.drip_s == 0 else [data[at : at + 1] for at in range(len(data))]:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(answer.drip_s)
        return answer.cut is None
