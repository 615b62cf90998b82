"""The sandbox server under load: requests per second, latency, errors and memory, beside a bare application.

    python benchmarks/sandbox_server.py [--catalogue FILE] [--documents 20000] [--workers 1] [--seconds 10]
        [--connections 32] [--client auto|wrk|builtin] [--index DIR]

Starts the server as a process of its own, and beside it an application that answers a constant of the same size, and
drives both with ``wrk`` where it is installed, else with an asyncio client of its own (slower: it then limits what is
seen). Both are measured in one run, so that the ratio holds on a busy machine. Two loads: ``fresh`` asks a different
thing each time (no cache helps), ``repeated`` goes round a small set. Without ``--catalogue`` one is generated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
_SERVER = """
import json, sys
from pathlib import Path
from trajectory_platform.sandbox.server import serve
if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]), **json.loads(sys.argv[3]))
"""
_BARE = """
import json, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

options = json.loads(sys.argv[1])
body = b"x" * options["size"]

async def constant(request):
    return Response(body, media_type="application/json")

app = Starlette(routes=[Route("/{path}", constant)])
uvicorn.run(app, port=options["port"], access_log=False, log_level="warning", lifespan="off", ws="none")
"""
_LUA = """
local paths = {}
for line in io.lines("%s") do paths[#paths + 1] = line end
local at = 0
request = function()
  at = at %% #paths + 1
  return wrk.format("GET", paths[at])
end
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('RESULT {"requests": %%d, "seconds": %%f, "p50_ms": %%f, "p99_ms": %%f, "errors": %%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""


class Measured(NamedTuple):
    """One load on one server."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    errors: int

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


def main() -> int:
    """Measure and print; 1 when a request failed."""
    options = _options()
    client = options.client if options.client != "auto" else "wrk" if shutil.which("wrk") else "builtin"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        catalogue = options.catalogue or generated(folder / "products.jsonl", options.documents)
        titles = _titles(catalogue)
        fresh, repeated = folder / "fresh.txt", folder / "repeated.txt"
        _write_paths(fresh, titles, 200_000, seed=1)
        _write_paths(repeated, titles, 200, seed=2)
        settings = json.dumps({"port": 0, "workers": options.workers})
        arguments = [str(catalogue), str(options.index or folder / "index"), settings]
        with _started(_SERVER, arguments, "server") as (process, port):
            size = _mean_answer(port, repeated.read_text().split()[:100])
            print(f"{len(titles)} titles, {options.workers} worker(s), client {client}, answers of {size} bytes")
            bare_port = _free_port()
            with _started(_BARE, [json.dumps({"port": bare_port, "size": size})], "bare", bare_port) as (bare, _):
                loads = {"fresh": fresh, "repeated": repeated}
                return _measure_all(client, (port, process.pid), (bare_port, bare.pid), loads, options)


def _measure_all(
    client: str, server: tuple[int, int], bare: tuple[int, int], loads: dict[str, Path], options: argparse.Namespace
) -> int:
    """Both loads on both servers, given as (port, process id); then memory over three more rounds."""
    port, pid = server
    _load(client, port, loads["repeated"], options.connections, 1.0)  # warm: imports, first searches
    rounds = [resident_mib(pid)]
    failed = 0
    for name, paths in loads.items():
        base = _line("  bare", client, *bare, paths, options.connections, options.seconds / 2)
        found = _line(name, client, port, pid, paths, options.connections, options.seconds)
        rounds.append(resident_mib(pid))
        failed += found.errors
        print(f"{name} / bare: {found.rate / base.rate:.2f} of its requests/s")
    for _ in range(3):
        failed += _load(client, port, loads["repeated"], options.connections, options.seconds / 2).errors
        rounds.append(resident_mib(pid))
    print(
        "RSS at the start, after each load, after three more rounds (MiB): " + " ".join(f"{mib:.1f}" for mib in rounds)
    )
    return 1 if failed else 0


def _line(name: str, client: str, port: int, pid: int, paths: Path, connections: int, seconds: float) -> Measured:
    """One load, printed: wall-clock figures, and the server's own CPU time, which other work does not change."""
    cpu = cpu_seconds(pid)
    found = _load(client, port, paths, connections, seconds)
    cpu = (cpu_seconds(pid) - cpu) / max(1, found.requests)
    print(
        f"{name:9} {found.rate:8.0f} requests/s  p50 {found.p50_ms:6.2f} ms  p99 {found.p99_ms:6.2f} ms  "
        f"errors {found.errors}  {found.requests} requests  {cpu * 1e6:.0f} us CPU a request"
    )
    return found


# ------------------------------------------------------------------------------------------- load


def _load(client: str, port: int, paths: Path, connections: int, seconds: float) -> Measured:
    if client == "wrk":
        return _wrk(port, paths, connections, seconds)
    return asyncio.run(_builtin(port, paths.read_text().split(), connections, seconds))


def _wrk(port: int, paths: Path, connections: int, seconds: float) -> Measured:
    script = paths.with_suffix(".lua")
    script.write_text(_LUA % paths)
    url = f"http://127.0.0.1:{port}"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(script), url]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    return Measured(**json.loads(line.removeprefix("RESULT ")))


async def _builtin(port: int, paths: list[str], connections: int, seconds: float) -> Measured:
    """Keep-alive connections that each ask one thing after the other."""
    end = time.perf_counter() + seconds
    taken: list[float] = []
    errors = 0

    async def connection(number: int) -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        at = number * 997
        while time.perf_counter() < end:
            at += 1
            begun = time.perf_counter()
            writer.write(f"GET {paths[at % len(paths)]} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            taken.append(time.perf_counter() - begun)
            errors += not head.startswith(b"HTTP/1.1 200")
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(connection(number) for number in range(connections)))
    ordered = sorted(taken)
    p50, p99 = (ordered[int(len(ordered) * share)] * 1000 for share in (0.5, 0.99))
    return Measured(len(ordered), time.perf_counter() - begun, p50, p99, errors)


# ------------------------------------------------------------------------------------------- inputs


def generated(path: Path, count: int) -> Path:
    """A catalogue of seeded documents whose words are as unevenly spread as those of real titles."""
    draw = random.Random(7)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9))) for _ in range(8_000)]
    weights = [1 / (rank + 5) for rank in range(len(words))]
    with path.open("w") as out:
        for number in range(count):
            drawn = draw.choices(words, weights, k=14)
            document = {
                "product_id": str(10_000_000 + number),
                "shop_id": str(draw.randrange(max(1, count // 20))),
                "title": " ".join(drawn[:9]),
                "price": round(draw.lognormvariate(5.5, 1.2), 2),
                "sold_count": draw.randrange(500),
                "service": [name for name in ("official", "freeShipping", "COD") if draw.random() < 0.3],
                "sku_options": {"1": {"color": drawn[9]}},
                "attributes": {"material": [drawn[10]], "brand": [drawn[11]]},
                "short_description": drawn[12],
                "description": " ".join(draw.choices(words, weights, k=60)),
            }
            out.write(json.dumps(document) + "\n")
    return path


def _titles(catalogue: Path) -> list[tuple[str, list[str]]]:
    from trajectory_platform.sandbox.products import load_products

    documents = load_products(catalogue)
    return [(str(one["product_id"]), str(one["title"]).split()) for one in documents if str(one["title"]).split()]


def _write_paths(path: Path, titles: list[tuple[str, list[str]]], count: int, seed: int) -> None:
    """Eight searches to one view and one raw document, as agents and scorer ask; a third of the searches filtered."""
    draw = random.Random(seed)
    with path.open("w") as out:
        for number in range(count):
            product_id, words = draw.choice(titles)
            if number % 10 == 8:
                ids = ",".join([product_id, *(draw.choice(titles)[0] for _ in range(2))])
                out.write("/view_product_information?" + urlencode({"product_ids": ids}) + "\n")
                continue
            if number % 10 == 9:
                out.write("/get_product_raw?" + urlencode({"product_ids": product_id}) + "\n")
                continue
            sent = {"q": " ".join(draw.sample(words, min(3, len(words)))), "page": "1"}
            if number % 3 == 0:
                low = draw.randrange(400)
                sent |= {"price": f"{low}-{low + 200}", "sort": draw.choice(["priceasc", "order"])}
            out.write("/find_product?" + urlencode(sent) + "\n")


# ------------------------------------------------------------------------------------------- processes


@contextmanager
def _started(
    script: str, arguments: list[str], name: str, port: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server process that answers, and its port."""
    with tempfile.TemporaryDirectory() as scratch:
        code, log = Path(scratch) / f"{name}.py", Path(scratch) / f"{name}.log"
        code.write_text(script)
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with log.open("w") as out:
            command = [sys.executable, str(code), *arguments]
            process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, text=True)
        try:
            found = port
            for _ in range(12_000):
                if process.poll() is not None:
                    raise SystemExit(f"the {name} ended: {log.read_text()}")
                text = log.read_text()
                if found is None and " with " in text:
                    found = int(text.split("http://")[1].split(" ")[0].rsplit(":", 1)[1])
                if found is not None and _answers(found):
                    break
                time.sleep(0.05)
            yield process, found or 0
        finally:
            process.terminate()
            process.wait(30)


def _answers(port: int) -> bool:
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _mean_answer(port: int, paths: list[str]) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    total = 0
    for path in paths:
        connection.request("GET", path)
        total += len(connection.getresponse().read())
    connection.close()
    return total // len(paths)


def resident_mib(pid: int) -> float:
    """Resident memory of a process and its children."""
    return sum(int(fields[21]) for fields in _family(pid)) * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children so far."""
    return sum(int(fields[11]) + int(fields[12]) for fields in _family(pid)) / os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> Iterator[list[str]]:
    """The fields after the name in ``/proc/*/stat``, of a process and its children."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(path.parent.name) == pid or fields[1] == str(pid):
            yield fields


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--catalogue", type=Path, default=None, help="product file; generated when not given")
    parser.add_argument("--documents", type=int, default=20_000, help="size of the generated catalogue")
    parser.add_argument("--index", type=Path, default=None, help="folder of built indexes; temporary by default")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--client", choices=("auto", "wrk", "builtin"), default="auto")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
