"""Calls a second and CPU a call through the judge's litellm router against plain httpx, and the memory of a large run.

    python benchmarks/llm_judge.py [--calls 400] [--concurrency 16] [--requests 20000] [--json]

Calls: the same prompts to the same local HTTP server (a process of its own, no delay), in turn through

* ``httpx``: one ``AsyncClient``, JSON in and out: the lower bound;
* ``router``: ``JudgeRouter.ask`` (litellm's Router above the watched client);
* ``run``: a whole ``JudgeRun`` with canaries, budget, strict parsing and the synced journal.

Memory: ``--requests`` judgments with an endpoint in this process, journal included; peak memory of a child process
that judges a tenth and of one that judges all. A run is bounded when the second is not much above the first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trajectory_platform.judging import judge_prompt
from trajectory_platform.judging.judge_journal import Journal
from trajectory_platform.judging.judge_models import JudgeBudget, JudgeConfig, JudgeModel
from trajectory_platform.judging.judge_prompt import JudgeInput
from trajectory_platform.judging.judge_reply import RESPONSE_SCHEMA
from trajectory_platform.judging.judge_router import JudgeRouter, RawReply
from trajectory_platform.judging.judge_run import JudgeRequest, JudgeRun

DAY = "2026-05-01"
_SERVER = """
import sys, time
from trajectory_platform_tests.judging.judge_server import serving, verdict
with serving(lambda _: verdict(0.7)) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(_many(options.child)))
        return 0
    calls, memory = _calls(options.calls, options.concurrency), _memory(options.requests)
    if options.json:
        print(json.dumps({"calls": calls, "memory": memory}))
        return 0
    for name, row in calls.items():
        print(f"{name:>8}  {row['per_second']:>7.1f} calls/s  {row['cpu_ms']:>6.2f} ms CPU a call")
    for row in memory:
        print(
            f"{row['requests']:>8} requests: {row['per_second']:,.0f}/s, {row['cpu_ms']:.2f} ms CPU each, "
            f"peak {row['peak_mb']:.0f} MB ({row['start_mb']:.0f} MB at start), journal {row['journal_mb']:.0f} MB"
        )
    return 0


def traces(count: int) -> Iterator[JudgeRequest]:
    """Prompts of the usual size: about 10 KB."""
    for number in range(count):
        steps = [
            {"thinking": f"step {at} of {number}: 12 beats 13 by its price. " * 12, "tools": ["find_product"]}
            | {"results": ['{"product_id": "12", "price": 86.5}' * 6]}
            for at in range(10)
        ]
        yield JudgeRequest(f"t{number}", JudgeInput(f"a pot {number}", True, {"present": True}, [], steps))


def _config(url: str, concurrency: int) -> JudgeConfig:
    model = JudgeModel(
        name="judge",
        model="openai/judge",
        api_base=url,
        usd_per_million_input=0.1,
        usd_per_million_output=0.4,
        concurrency=concurrency,
    )
    return JudgeConfig(models=(model,), concurrency=concurrency, budget=JudgeBudget(usd_per_run=1e6))


def _calls(count: int, concurrency: int) -> dict[str, dict[str, float]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert server.stdout is not None and server.stdin is not None
    try:
        config = _config(server.stdout.readline().strip(), concurrency)
        requests = list(traces(count))
        prompts = [judge_prompt.build(request.shown, nonce="0" * 20) for request in requests]
        router = JudgeRouter(config)
        asyncio.run(_through_router(router, config, prompts[:20], concurrency))  # the first call loads half of litellm
        return {
            "httpx": _timed(count, lambda: asyncio.run(_plain(config.models[0], prompts, concurrency))),
            "router": _timed(count, lambda: asyncio.run(_through_router(router, config, prompts, concurrency))),
            "run": _timed(count, lambda: _whole(config, router, requests)),
        }
    finally:
        server.stdin.close()
        server.wait(10)


def _timed(count: int, work: Any) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"per_second": count / wall, "cpu_ms": 1000 * cpu / count}


async def _plain(model: JudgeModel, prompts: Sequence[list[dict[str, str]]], concurrency: int) -> None:
    import httpx

    slots = asyncio.Semaphore(concurrency)
    async with httpx.AsyncClient(timeout=90, limits=httpx.Limits(max_connections=concurrency)) as client:

        async def one(messages: list[dict[str, str]]) -> None:
            body = {
                "model": "judge",
                "messages": messages,
                "temperature": 0.0,
                "max_tokens": model.max_tokens,
                "response_format": {"type": "json_schema", "json_schema": RESPONSE_SCHEMA},
            }
            async with slots:
                answer = await client.post(f"{model.api_base}/chat/completions", json=body)
            json.loads(answer.json()["choices"][0]["message"]["content"])

        await asyncio.gather(*map(one, prompts))


async def _through_router(
    router: JudgeRouter, config: JudgeConfig, prompts: Sequence[list[dict[str, str]]], concurrency: int
) -> None:
    slots = asyncio.Semaphore(concurrency)

    async def one(messages: list[dict[str, str]]) -> None:
        async with slots:
            await router.ask(config.models[0], messages)

    await asyncio.gather(*map(one, prompts))
    await router.close()


def _whole(config: JudgeConfig, endpoint: Any, requests: Sequence[JudgeRequest]) -> None:
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder), DAY) as journal:
        run = JudgeRun(config, endpoint, journal, day=DAY, total=len(requests))
        assert all(outcome.quality == 0.7 for outcome in run.judge(requests))


def _memory(requests: int) -> list[dict[str, float]]:
    rows = []
    for count in (requests // 10, requests):
        command = [sys.executable, __file__, "--child", str(count)]
        rows.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    return rows


def _many(count: int) -> dict[str, float]:
    """A run with an endpoint of this process that answers with long explanations; in a process of its own."""

    class Endpoint:
        async def ask(self, model: JudgeModel, messages: Sequence[dict[str, str]]) -> RawReply:
            await asyncio.sleep(0)
            text = json.dumps({"reasoning_quality": 0.7, "explanation": "because of this " * 60})
            return RawReply(text, "stop", 2500, 250)

    start_mb = _peak_mb()
    wall, cpu, judged = time.perf_counter(), time.process_time(), 0
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder), DAY) as journal:
        run = JudgeRun(_config("http://127.0.0.1:9/v1", 16), Endpoint(), journal, day=DAY, total=count)
        for outcome in run.judge(traces(count)):
            judged += outcome.quality == 0.7
        journal_mb = journal.path.stat().st_size / 1e6
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert judged == count
    return {
        "requests": count,
        "per_second": count / wall,
        "cpu_ms": 1000 * cpu / count,
        "start_mb": start_mb,
        "peak_mb": _peak_mb(),
        "journal_mb": journal_mb,
    }


def _peak_mb() -> float:
    """Peak resident memory of this process; ``ru_maxrss`` would be the parent's where that was larger."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError("no VmHWM in /proc/self/status")


if __name__ == "__main__":
    sys.exit(main())
