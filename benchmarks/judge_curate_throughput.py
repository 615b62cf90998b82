"""How many traces a second one core judges and curates.

    python benchmarks/judge_curate_throughput.py [--traces 2000] [--json]

Small synthetic axis-A traces (five steps, two full search pages, about 6 KB of messages), each with its own thoughts
and queries; only product texts repeat, as they do in production. CPU seconds of this process, reading excluded. Exit
code 1 when the combined rate is below ``--target`` (2,000 traces per CPU second).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from trajectory_platform import jsontext
from trajectory_platform.curation.config import FilterConfig
from trajectory_platform.curation.filter import curate_day
from trajectory_platform.judging.day import judge_day
from trajectory_platform.lake.tables import RAW_TRACES, TRAJECTORIES
from trajectory_platform.sandbox.problems import parse_problem, to_table
from trajectory_platform.traces.sn15 import read_dialogue

DAY = "2026-05-02"
ROWS_PER_PAGE = 10
WORDS = ("steel", "clay", "bamboo", "canvas", "glass", "rubber", "leather", "cotton", "oak", "silicone")
JSON_COLUMNS = ("messages", "tools", "source_steps", "evidence", "repairs")
Json = dict[str, Any]


def product(number: int) -> Json:
    """One catalogue document; 997 different ones."""
    name = f"{WORDS[number % 10]} {WORDS[number // 10 % 10]} kettle {number} with free gift box packaging"
    return {
        "product_id": str(5_100_000_000 + number),
        "shop_id": str(9_000 + number % 40),
        "title": name.title(),
        "price": 100.0 + number,
        "service": ["COD", "freeShipping"],
        "sold_count": number % 7,
        "description": f"Welcome to our store! {name}. We ship within 24 hours. " * 2,
        "sku_options": {"1": {"colour": WORDS[number % 10]}, "2": {"size": f"{number % 9}l"}},
        "attributes": {"material": [WORDS[number // 10 % 10]], "brand": [f"brand {number % 50}"]},
    }


CATALOGUE = {row["product_id"]: row for row in map(product, range(997))}
IDS = sorted(CATALOGUE)


def trace(number: int) -> tuple[Json, Json]:
    """(raw row, dialogue steps with their request log) of one trace: two searches, a page, an answer."""
    first = number * 7 % (len(IDS) - 2 * ROWS_PER_PAGE)
    pages = [[CATALOGUE[name] for name in IDS[first + shift : first + shift + ROWS_PER_PAGE]] for shift in (0, 5)]
    best, other = pages[1][0]["product_id"], pages[1][1]["product_id"]
    turns = [
        (f"I look for kettle {number}.", "find_product", {"q": f"kettle {number}", "page": 1}, pages[0]),
        (f"10 results, {other} at {pages[1][1]['price']} PHP leads; I narrow the search for {number}.", "find_product",
         {"q": f"steel kettle {number}", "page": 1, "price": "100-900"}, pages[1]),
        ("Two fit; I open both.", "view_product_information", {"product_ids": f"{best},{other}"}, pages[1][:2]),
        (f"{best} is better than {other} because it is made of the asked material.", "recommend_product",
         {"product_ids": best}, f"Having recommended the products to the user: {best}."),
        ("Done.", "terminate", {"status": "success"}, "The interaction has been completed with status: success"),
    ]  # fmt: skip
    run = f"run-{number:06d}"
    raw: Json = dict.fromkeys(RAW_TRACES.columns)
    raw.update(
        trace_id=f"{run}:p{number % 30}", day=DAY, eval_run_id=run, problem_id=f"p{number % 30}", suite_id="7",
        agent_version_id=f"agent-{number % 200}", state="trace", folder_day=DAY, problem_status="SUCCESS",
        judged_at=datetime(2026, 5, 2, 10, tzinfo=UTC), reasoning_score=0.9 if number % 10 else None,
        reasoning_model="judge", duplicate_lines=0, duplicates_differ=False, inference_total=len(turns),
    )  # fmt: skip
    return raw, {"steps": [_step(number, place, *turn) for place, turn in enumerate(turns)]}


def _step(number: int, place: int, think: str, name: str, arguments: Json, result: Any) -> Json:
    shown = result
    if isinstance(result, list):
        keys = ("product_id", "shop_id", "title", "price", "service", "sold_count")
        pages = ("product_id", "description", "sku_options", "attributes")
        shown = [{key: row[key] for key in (keys if name == "find_product" else pages)} for row in result]
    stamp = 1_777_700_000_000 + number * 100_000 + place * 10_000
    call = {
        "id": f"n{place}",
        "type": "function",
        "function": {"name": name, "arguments": jsontext.canonical(arguments)},
    }
    reply = {
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"content": think, "tool_calls": [call]}}]
    }
    log = [
        _entry(
            "POST", "/inference/chat/completions", stamp + 2000, response={**reply, "usage": {"completion_tokens": 60}}
        )
    ]
    if isinstance(result, list):
        log.append(_entry("GET", f"/search/{name}", stamp + 3000, params=arguments, response=shown))
    message = {
        "think": think,
        "tool_call": [{"name": name, "parameters": arguments, "tool_call_id": "x", "result": shown}],
    }
    extra = {
        "step": place + 1,
        "query": f"a kettle for problem {number % 30}",
        "timestamp": stamp + 4000,
        "proxy_calls": log,
    }
    return {"completion": {"reasoning_content": "", "content": "", "message": message}, "extra_info": extra}


def _entry(method: str, path: str, end: int, **body: Any) -> Json:
    return {
        "kind": "summary",
        "method": method,
        "path": path,
        "timestamp": end,
        "duration_ms": 500.0,
        "status_code": 200,
        **body,
    }


def trajectory(raw: Json, steps: list[Any]) -> Json:
    """The TRAJECTORIES row the platform's reader makes of the steps."""
    read = read_dialogue(steps, binding=raw)
    return {
        **{name: raw.get(name) for name in TRAJECTORIES.columns},
        "readable": read.malformed is None, "malformed": read.malformed, "malformed_detail": read.malformed_detail,
        "content_hash": read.content_hash, "query": read.query, "flags": read.flags, "steps": read.steps,
        "tool_calls": read.tool_calls, "reader": read.reader, "reader_version": read.reader_version,
        **{name: jsontext.dumps(getattr(read, name)) for name in JSON_COLUMNS},
    }  # fmt: skip


def measure(traces: int) -> Json:
    """Build the day, then time judging and curating it."""
    raws, rows = [], []
    for number in range(traces):
        raw, made = trace(number)
        raws.append(raw)
        rows.append(trajectory(raw, made["steps"]))
    raw_table = pa.Table.from_pylist(raws, schema=RAW_TRACES.schema())
    batches = pa.Table.from_pylist(rows, schema=TRAJECTORIES.schema()).to_batches(max_chunksize=256)
    reward = {"product_id": "1", "title": ["Steel Kettle"], "price": [{"less than": [None, 900]}]}
    problems = to_table(
        (
            parse_problem(
                {
                    "problem_id": f"p{n}",
                    "suite_id": 7,
                    "category": "product",
                    "query": f"a kettle for problem {n}",
                    "reward": reward,
                },
                suite_id="7",
            )
            for n in range(30)
        ),
        DAY,
    )
    start = time.process_time()
    judged, verdicts = judge_day(
        raw_table,
        iter(batches),
        problems,
        CATALOGUE,
        judge="rules",
        title_regime="normalised",  # type: ignore[arg-type]
    )
    middle = time.process_time()
    result = curate_day(raw_table, lambda: iter(batches), judged, verdicts, config=FilterConfig())
    accepted = sum(batch.num_rows for batch in result.accepted)
    end = time.process_time()
    return {
        "traces": traces,
        "messages_kb": round(sum(len(row["messages"]) for row in rows) / traces / 1000, 1),
        "judge_per_s": round(traces / (middle - start)),
        "curate_per_s": round(traces / (end - middle)),
        "combined_per_s": round(traces / (end - start)),
        "accepted": accepted,
        "rejected": result.rejected.num_rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=2000)
    parser.add_argument("--target", type=float, default=2000.0, help="combined traces per CPU second")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.traces)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:>16}  {value:,}")
    return 0 if found["combined_per_s"] >= options.target else 1


if __name__ == "__main__":
    sys.exit(main())
