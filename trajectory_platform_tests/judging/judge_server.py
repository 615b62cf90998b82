"""A real OpenAI-compatible HTTP server on the loopback whose every answer a test scripts, faults included.

It keeps the provider's side of the story: every request it saw, what it would bill for it, and how many it held at
once. It speaks HTTP itself, so that it can cut a body, drip it, lie about its type or never answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trajectory_platform.judging.judge_journal import Journal
from trajectory_platform.judging.judge_models import JudgeBudget, JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_prompt import JudgeInput
from trajectory_platform.judging.judge_router import JudgeRouter
from trajectory_platform.judging.judge_run import JudgeOutcome, JudgeRequest, JudgeRun
from trajectory_platform_tests.conftest import shared_folder

DAY = "2026-05-01"
USD_PER_MILLION_INPUT, USD_PER_MILLION_OUTPUT = 2.0, 8.0


class Asked(NamedTuple):
    """One request as it arrived. ``number`` counts from 0 over all models; ``at_s`` since the server started."""

    number: int
    model: str
    body: dict[str, Any]
    headers: dict[str, str]
    at_s: float

    @property
    def text(self) -> str:
        """The user message: the encoded trace."""
        return str(self.body["messages"][-1]["content"])


class Act(NamedTuple):
    """What the server does with one request.

    Attributes:
        text: content of the reply; None sends null.
        usage: whether the reply tells token counts.
        delay_s: how long the server thinks first.
        hang: never answer. cut: promise the whole body, send this many bytes, close the connection.
        drip: send bytes for ever, slowly. raw: send this body instead of a completion.
    """

    text: str | None = None
    finish_reason: str = "stop"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    usage: bool = True
    delay_s: float = 0.0
    hang: bool = False
    cut: int | None = None
    drip: bool = False
    raw: bytes | None = None
    content_type: str = "application/json"


Script = Callable[[Asked], Act]


class Bill(NamedTuple):
    """What the provider charges for one generated reply, delivered whole or not."""

    number: int
    model: str
    prompt_tokens: int
    completion_tokens: int

    @property
    def usd(self) -> float:
        return (
            self.prompt_tokens * USD_PER_MILLION_INPUT + self.completion_tokens * USD_PER_MILLION_OUTPUT
        ) / 1_000_000


def verdict(quality: Any = 0.7, **options: Any) -> Act:
    """A reply as asked for."""
    return Act(json.dumps({"reasoning_quality": quality, "explanation": "because"}), **options)


def fault(status: int, retry_after: str | None = None, body: dict[str, Any] | None = None) -> Act:
    """An HTTP error, as providers word it."""
    error = body or {"error": {"message": f"fault {status}", "type": "error", "code": str(status)}}
    headers = () if retry_after is None else (("Retry-After", retry_after),)
    return Act(status=status, headers=headers, raw=json.dumps(error).encode())


def obeying(asked: Asked) -> Act:
    """Answers the value that the trace names last, and 0.3 to a trace that names none."""
    named = [float(found) for found in re.findall(r"(?<![\d.])0\.[13579](?!\d)", asked.text)]
    return verdict(named[-1] if named else 0.3)


@dataclass
class JudgeServer:
    """A running server.

    Attributes:
        script: decides on each request; may be replaced while the server runs.
        log: every request in order of arrival. bills: every reply that was generated.
        peak: most requests held at once, by model.
    """

    script: Script
    log: list[Asked] = field(default_factory=list)
    bills: list[Bill] = field(default_factory=list)
    peak: Counter[str] = field(default_factory=Counter)
    port: int = 0
    _held: Counter[str] = field(default_factory=Counter)
    _started: float = 0.0
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def usd(self) -> float:
        """The provider's account."""
        return sum(bill.usd for bill in self.bills)

    def seen(self) -> Counter[str]:
        """How often each user message was asked."""
        return Counter(asked.text for asked in self.log)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while (request := await _read_request(reader)) is not None:
                headers, body = request
                model = str(body.get("model"))
                asked = Asked(len(self.log), model, body, headers, time.monotonic() - self._started)
                self.log.append(asked)
                self._held[model] += 1
                self.peak[model] = max(self.peak[model], self._held[model])
                try:
                    if not await self._answer(self.script(asked), asked, writer):
                        break
                finally:
                    self._held[model] -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, e.g. after its timeout, or the server stops
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, act: Act, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        """Send the answer; whether the connection may be used again."""
        if act.hang:
            await asyncio.sleep(3600)
        if act.delay_s:
            await asyncio.sleep(act.delay_s)
        body = act.raw if act.raw is not None else self._completion(act, asked)
        lines = [f"HTTP/1.1 {act.status} X", f"Content-Type: {act.content_type}"]
        lines += [f"{name}: {value}" for name, value in act.headers]
        if act.drip:
            writer.write("\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode())
            while True:
                writer.write(b"4\r\n{{{{\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode())
        writer.write(body if act.cut is None else body[: act.cut])
        await writer.drain()
        return act.cut is None

    def _completion(self, act: Act, asked: Asked) -> bytes:
        prompt = sum(len(message["content"]) for message in asked.body["messages"]) // 4
        bill = Bill(asked.number, asked.model, prompt, len(act.text or "") // 4 + 1)
        self.bills.append(bill)
        value: dict[str, Any] = {
            "id": f"c{asked.number}",
            "object": "chat.completion",
            "created": 0,
            "model": asked.model,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": act.finish_reason,
                    "message": {"role": "assistant", "content": act.text},
                }
            ],
        }
        if act.usage:
            value["usage"] = {
                "prompt_tokens": bill.prompt_tokens,
                "completion_tokens": bill.completion_tokens,
                "total_tokens": bill.prompt_tokens + bill.completion_tokens,
            }
        return json.dumps(value).encode()


async def _read_request(reader: asyncio.StreamReader) -> tuple[dict[str, str], dict[str, Any]] | None:
    """Headers (lower-case names) and JSON body; None at the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")[1:]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return headers, json.loads(body or b"{}")


@contextmanager
def serving(script: Script) -> Iterator[JudgeServer]:
    """A server in a thread of its own, stopped at the end with whatever it still holds."""
    server, loop, ready = JudgeServer(script), asyncio.new_event_loop(), threading.Event()
    server._started = time.monotonic()
    stop = asyncio.Event()

    async def run() -> None:
        listening = await asyncio.start_server(server._connection, "127.0.0.1", 0, limit=1 << 24)
        server.port = listening.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        listening.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(run())
        loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def asking(count: int, words: str = "", start: int = 0) -> list[JudgeRequest]:
    """Requests about traces that differ; ``words`` stand in the thinking of each."""
    return [
        JudgeRequest(
            f"t{number}",
            JudgeInput(
                f"a pot number {number}",
                True,
                {"present": True, "inference_calls": 2, "catalogue_calls": 1},
                [{"tool": "find_product", "arguments": "{}", "result_ids": ["12", "13"]}],
                [{"thinking": f"12 beats 13 for {number}. {words}", "tools": ["find_product"], "results": ["[]"]}],
            ),
        )
        for number in range(start, start + count)
    ]


def model_of(server: JudgeServer, name: str = "judge-1", **options: Any) -> JudgeModel:
    """A model of the server at the server's own prices."""
    prices = {"usd_per_million_input": USD_PER_MILLION_INPUT, "usd_per_million_output": USD_PER_MILLION_OUTPUT}
    settings: dict[str, Any] = {"api_base": server.url, "timeout_s": 20.0, **prices, **options}
    return JudgeModel(name=name, model=f"openai/{name}", **settings)


def config_of(*models: JudgeModel, budget: JudgeBudget | None = None, **options: Any) -> JudgeConfig:
    """Few canaries, so that the tests see the traces; more where a test is about them."""
    settings: dict[str, Any] = {"canaries": 1, "entrance_canaries": 1, **options}
    return JudgeConfig(models=models, budget=budget or JudgeBudget(), **settings)


class Judged(NamedTuple):
    """A run that is over."""

    outcomes: list[JudgeOutcome]
    rows: list[dict[str, Any]]
    run: JudgeRun


def judge_all(config: JudgeConfig, requests: list[JudgeRequest], folder: Path, **options: Any) -> Judged:
    """A whole run through litellm, and what its journal holds at the end."""
    with Journal(folder, DAY) as journal:
        run = JudgeRun(config, JudgeRouter(config), journal, day=DAY, total=len(requests), **options)
        outcomes = list(run.judge(requests))
        return Judged(outcomes, journal.rows, run)


def case(name: str) -> dict[str, Any]:
    """A shared case of bug reports; the test is skipped where they are missing."""
    found = [*shared_folder().glob(f"cases/**/{name}.json")]
    if not found:
        pytest.skip(f"case {name} is not here")
    return json.loads(found[0].read_text())  # type: ignore[no-any-return]
