"""Leak clusters, the guarded window and the inventory at the size of years: seconds, rows per second, peak memory.

    python benchmarks/cluster_throughput.py [--problems 200000] [--links 200000] [--traces 400000] [--artifacts 20000]

Prints one JSON object. Inputs are generated, seeded, and shaped like domain 4.2: one to four products a problem with
titles, options, attributes, services and prices, queries in a few templates around their own words, vouchers, a few
problems that share a product, and one of fifty a relisted variant of another. 0 traces or artifacts: not measured.
``peak_rss_mb`` of the clusters holds the input tables too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from trajectory_platform.lake.tables import AXIS_A_CORPUS
from trajectory_platform.sandbox.problems import Problem, hidden_problem, parse_problem, to_table
from trajectory_platform.sources.container import Limits
from trajectory_platform.sources.files import FileSource
from trajectory_platform.splits.clusters import build_clusters
from trajectory_platform.splits.guard import CORPUS_COLUMNS, split_window
from trajectory_platform.traces.inventory import inventory_day

T = TypeVar("T")
DAY = date(2026, 12, 31)
FIRST = date(2026, 1, 1)


def timed(call: Callable[[], T]) -> tuple[T, dict[str, float]]:
    """The result, and the seconds it took by the CPU (all threads) and by the clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return result, {"cpu_s": round(time.process_time() - cpu, 2), "wall_s": round(time.perf_counter() - wall, 2)}


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


KEYS = {"color_family": 40, "material": 60, "brand": 5_000, "size": 30, "model": 20_000, "pattern": 25, "features": 300}
TEMPLATES = ("Find {}.", "I'm looking for {}. Can you help me find it?", "Show me {} please.", "I want to buy {}.")
TAIL = (
    "\n\nMy budget is only `{0}`, but I have a voucher with the following rules:\n1. The voucher applies to all "
    "products.\n2. It is valid only when the total price of the products exceeds `{1}`.\n3. It provides a fixed "
    "discount of `{2}`."
)


def some_words(draw: random.Random, count: int) -> str:
    """Words of a vocabulary of 40,000, the frequent ones more often."""
    return " ".join(f"w{int(40_000 * draw.random() ** 3)}" for _ in range(count))


def reward_of(draw: random.Random, product_id: str) -> dict[str, Any]:
    pairs = {key: f"v{draw.randrange(KEYS[key])}" for key in draw.sample(sorted(KEYS), draw.choice((0, 1, 1, 2, 3, 5)))}
    low = draw.randrange(1, 2_000)
    return {
        "product_id": product_id,
        "title": [some_words(draw, draw.randint(4, 14))],
        "sku_options": [{key: value} for key, value in pairs.items() if key in ("color_family", "size")],
        "attributes": [{key: [value]} for key, value in pairs.items() if key not in ("color_family", "size")],
        "service": ["freeShipping"] if draw.random() < 0.3 else [],
        "price": [{"between": [low, low + draw.randrange(1, 500)]}] if draw.random() < 0.5 else [],
    }


def problems_table(count: int, seed: int) -> pa.Table:
    """Years of problems: nine of ten public, one of ten hidden; each on two days."""
    draw = random.Random(seed)
    by_day: dict[str, list[Problem]] = {}
    last: list[dict[str, Any]] = []
    for number in range(count):
        if number % 10 == 0:
            problem = hidden_problem(f"race-{number}", suite_id=str(number // 100), category="shop")
        else:
            if number % 50 == 1 and last:  # the same request, relisted under other product ids and reworded
                products = [{**entry, "product_id": str(draw.randrange(50 * count))} for entry in reversed(last)]
            else:
                products = [reward_of(draw, str(draw.randrange(50 * count))) for _ in range(draw.randint(1, 4))]
            last = products
            text = draw.choice(TEMPLATES).format(some_words(draw, draw.randint(6, 40)))
            if number % 4 == 0:
                text += TAIL.format(*(draw.randrange(100, 5_000) for _ in range(3)))
            fields = {"problem_id": f"p-{number}", "category": "Shop", "query": text, "reward": products}
            problem = parse_problem(fields, suite_id=str(number // 100))
        first = FIRST + timedelta(days=draw.randrange(360))
        for day in (first, first + timedelta(days=1)):
            by_day.setdefault(day.isoformat(), []).append(problem)
    return pa.concat_tables([to_table(problems, day) for day, problems in sorted(by_day.items())])


def links_table(count: int, problems: int, seed: int) -> pa.Table:
    """Judged traces: half of them of hidden problems, a third of those successful."""
    draw = random.Random(seed)
    rows: dict[str, list[Any]] = {name: [] for name in ("day", "problem_id", "suite_id", "query", "query_verified")}
    rows |= {"category": [], "outcome_success": [], "recommended_ids": []}
    for number in range(count):
        problem = draw.randrange(problems)
        problem -= problem % 10 if number % 2 else 0
        hidden = problem % 10 == 0
        rows["day"].append((FIRST + timedelta(days=draw.randrange(360))).isoformat())
        rows["problem_id"].append(f"race-{problem}" if hidden else f"p-{problem}")
        rows["suite_id"].append(str(problem // 100))
        rows["query"].append(f"find hidden things {problem}" if hidden else f"find things {problem}")
        rows["query_verified"].append(not hidden)
        rows["category"].append("shop")
        rows["outcome_success"].append(number % 3 == 0)
        rows["recommended_ids"].append([str(problem), str(problem + 1), str(draw.randrange(10**9))])
    return pa.table(rows)


def corpus_table(count: int, keys: list[str], seed: int) -> pa.Table:
    """Accepted traces of a 40-day window, one of fifty a copy."""
    draw = random.Random(seed)
    schema = pa.schema([AXIS_A_CORPUS.schema().field(name) for name in CORPUS_COLUMNS])
    return pa.table(
        {
            "trace_id": [f"run-{number // 30}:problem-{number}" for number in range(count)],
            "day": [(DAY - timedelta(days=number % 40)).isoformat() for number in range(count)],
            "problem_id": [f"p-{number % 1000}" for number in range(count)],
            "suite_id": ["1"] * count,
            "problem_key": [draw.choice(keys) for _ in range(count)],
            "category": ["shop"] * count,
            "content_hash": [f"hash-{number - number % 50 if number % 50 == 1 else number}" for number in range(count)],
            "uses": [["sft", "kto_desirable"]] * count,
            "quality": [1.0] * count,
        },
        schema=schema,
    )


def write_day(root: Path, count: int) -> None:
    """A raw day of small artifacts, 30 to a run."""
    folder = root / "2026-05-01"
    steps = [
        {
            "completion": {
                "message": {"think": "word " * 200, "tool_call": [{"name": "find_product", "parameters": {}}]}
            },
            "extra_info": {"step": step, "query": "find a red mug", "timestamp": 1_777_600_000_000 + step},
        }
        for step in range(1, 9)
    ]
    body = gzip.compress(json.dumps(steps).encode(), mtime=0)
    folder.mkdir(parents=True)
    with (folder / "runs.jsonl").open("w") as runs, (folder / "problems.jsonl").open("w") as problems:
        for number in range(count):
            run, problem = f"run-{number // 30}", f"problem-{number}"
            if number % 30 == 0:
                (folder / "artifacts" / run).mkdir(parents=True)
                runs.write(json.dumps({"eval_run_id": run, "status": "SUCCESS", "is_included": True}) + "\n")
            result = {"eval_run_id": run, "status": "SUCCESS", "score": 1.0, "updated_at": "2026-05-01T10:00:00Z"}
            problems.write(json.dumps({"problem_id": problem, "suite_id": 1, "validator_results": [result]}) + "\n")
            (folder / "artifacts" / run / f"{problem}.json.gz").write_bytes(body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("problems", 200_000), ("links", 200_000), ("traces", 400_000), ("artifacts", 20_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    report: dict[str, Any] = {}
    problems = problems_table(options.problems, 1)
    links = links_table(options.links, options.problems, 2)
    before = peak_mb()
    found, seconds = timed(lambda: build_clusters(problems, links, day=DAY, pool_key="benchmark", near_similarity=0.6))
    report["clusters"] = {"problem_rows": problems.num_rows, "links": links.num_rows, **seconds}
    report["clusters"] |= {"problems": found.clusters.num_rows, "edges": found.edges.num_rows}
    report["clusters"] |= {"hints": found.hints.num_rows, "kinds": kinds_of(found.edges)}
    report["clusters"] |= {"peak_rss_mb_before": before, "peak_rss_mb": peak_mb()}
    if options.traces:
        corpus = corpus_table(options.traces, found.clusters["problem_key"].to_pylist(), 3)
        split, seconds = timed(lambda: split_window(corpus, found.clusters, day=DAY, window_days=40))
        report["guard"] = {"traces": corpus.num_rows, **seconds, "kept": split.splits.num_rows}
        report["guard"]["traces_per_s"] = round(corpus.num_rows / seconds["cpu_s"])
    if options.artifacts:
        with tempfile.TemporaryDirectory() as folder:
            write_day(Path(folder), options.artifacts)
            source = FileSource(folder)
            inventory, seconds = timed(lambda: inventory_day(source, date(2026, 5, 1), Limits()))
        report["inventory"] = {"pairs": inventory.rows.num_rows, **seconds}
        report["inventory"]["pairs_per_s"] = round(inventory.rows.num_rows / seconds["cpu_s"])
    report["peak_rss_mb"] = peak_mb()
    print(json.dumps(report, indent=1))


def kinds_of(edges: pa.Table) -> dict[str, int]:
    counts = edges.group_by("kind").aggregate([("kind", "count")]).to_pylist()
    return {row["kind"]: row["kind_count"] for row in sorted(counts, key=lambda row: str(row["kind"]))}


if __name__ == "__main__":
    main()
