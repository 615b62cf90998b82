"""How fast the arena writes a simulated day, and how fast the sandbox answers its searches.

    python benchmarks/simulate_throughput.py [--traces 20000] [--days 1] [--seed 1] [--out DIR]

Prints traces/s and CPU seconds of one core, peak memory, bytes a trace, and the cost of one search that is not in
the cache. Without ``--out`` the days are written to a temporary folder and removed.
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
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch) / "days"
        started = time.process_time()
        report = simulate(out, days=options.days, traces_per_day=options.traces, seed=options.seed, overwrite=True)
        seconds = time.process_time() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        stored = sum(path.stat().st_size for path in out.rglob("*.json.gz"))
        print(f"{report.pairs} pairs, {report.products} products, {report.problems} problems")
        print(f"simulate      {seconds:8.1f} CPU s   {report.pairs / seconds:8.0f} traces/s   peak {peak:.0f} MiB")
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
