"""How fast the arena writes a simulated day, and how fast the sandbox answers its searches.

    python benchmarks/simulate_throughput.py [--traces 20000] [--days 1] [--seed 1] [--workers N] [--out DIR]

Prints traces/s by the clock and per CPU second, peak memory of this process and of its largest worker, bytes a trace,
and the cost of one search that is not in the cache. Without ``--out`` the days are written to a temporary folder
and removed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    """Measure and print."""
    from trajectory_platform.arena.simulate import simulate

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=20_000, help="pairs a day")
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=None, help="processes; default one per CPU")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch) / "days"
        started = time.perf_counter()
        report = simulate(
            out,
            days=options.days,
            traces_per_day=options.traces,
            seed=options.seed,
            workers=options.workers,
            overwrite=True,
        )
        wall = time.perf_counter() - started
        own, workers = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = own.ru_utime + own.ru_stime + workers.ru_utime + workers.ru_stime
        stored = sum(path.stat().st_size for path in out.rglob("*.json.gz"))
        print(f"{report.pairs} pairs, {report.products} products, {report.problems} problems")
        print(f"simulate      {wall:8.1f} s          {report.pairs / wall:8.0f} traces/s")
        print(f"CPU           {cpu:8.1f} s          {report.pairs / cpu:8.0f} traces/s of one core")
        print(f"peak          {own.ru_maxrss / 1024:8.0f} MiB here  {workers.ru_maxrss / 1024:8.0f} MiB in a worker")
        print(f"artifacts     {stored / 2**20:8.1f} MiB      {stored / report.executed:8.0f} bytes/trace (gzip)")
        print(f"search        {fresh_search_ms(out):8.2f} ms per search that is not cached")
        for name, counts in (("axis", report.by_axis), ("outcome", report.by_outcome), ("kind", report.by_kind)):
            print(f"{name:13} " + ", ".join(f"{key} {count}" for key, count in counts.items()))
    return 0


def fresh_search_ms(out: Path, count: int = 300) -> float:
    """Mean CPU milliseconds of a filtered two-word search that no cache holds."""
    from trajectory_platform.sandbox.products import load_products
    from trajectory_platform.sandbox.search import SearchIndex

    catalogue = load_products(out / "catalogue" / "products.jsonl")
    index = SearchIndex(catalogue)
    titles = [str(document["title"]).split() for document in catalogue][:count]
    queries = [" ".join(words[2:4]) for words in titles]
    started = time.process_time()
    for number, query in enumerate(queries):
        index.find({"q": query, "page": 1, "price": f"{number}-90000"})
    return (time.process_time() - started) / len(queries) * 1000


if __name__ == "__main__":
    sys.exit(main())
