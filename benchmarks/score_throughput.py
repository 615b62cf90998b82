"""How many traces a second one core scores, against a plain per-trace scorer and against merely parsing.

    python benchmarks/score_throughput.py [--traces 4000] [--repeat 3] [--days-dir DIR] [--json]

Three ways over the same dialogue bytes of a simulated day, each in CPU seconds of this process, best of ``--repeat``:

* ``parse``: ``orjson.loads``, the lower bound of everything that starts from bytes;
* ``plain``: parse, re-render every message with its tags, find the tags again by regular expression, read the ids,
  compare product and reward, and search the results for the ids: domain 2.1 to 2.5 written down directly, trace by
  trace, without caches (below, no code of the platform);
* ``score_batch``: the platform's, from the same bytes; strict and lenient, discipline and provenance included.

The two scorers are compared field by field before anything is timed; a difference ends the run with exit code 1, as
does a speed below ``--target`` times the plain one. A second table gives the scoring alone, on parsed dialogues.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import re
import sys
import tempfile
import time
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from trajectory_platform.judging import outcome
from trajectory_platform.sandbox.problems import Problem, parse_problem
from trajectory_platform.sandbox.products import load_products

Json = dict[str, Any]
ROLES = ("think", "tool_call", "response")
FIELDS = ("title", "price", "service", "sku & attrs")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=4000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--target", type=float, default=1.0, help="times the plain scorer, from bytes")
    parser.add_argument("--days-dir", type=Path, help="a simulated root to use instead of writing one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.days_dir or _simulated(Path(scratch) / "days", options.traces)
        found = measure(root, options.repeat)
    if options.json:
        print(json.dumps(found))
    else:
        print(f"{found['traces']} traces, {found['kb']} KB each; equal scores: {found['equal']}")
        for name in ("parse", "plain", "score_batch", "plain_parsed", "score_batch_parsed"):
            print(f"{name:>20}  {found[name]:>8,} traces/s per core")
    good = found["equal"] == found["traces"] and found["score_batch"] >= options.target * found["plain"]
    return 0 if good else 1


def measure(root: Path, repeat: int) -> Json:
    """Compare, then time."""
    catalogue = load_products(root / "catalogue" / "products.jsonl")
    products = {product["product_id"]: product for product in catalogue}
    texts, problems = zip(*dialogues(root), strict=True)
    parsed = [orjson.loads(text) for text in texts]
    pairs = list(zip(parsed, problems, strict=True))
    mine = outcome.score_batch(list(texts), problems, catalogue)
    equal = sum(plain(steps, task, products) == compared(row) for (steps, task), row in zip(pairs, mine, strict=True))

    def timed(work: Callable[[], object]) -> int:
        best = float("inf")
        for _ in range(repeat):
            gc.collect()
            start = time.process_time()
            work()
            best = min(best, time.process_time() - start)
        return round(len(texts) / best)

    return {
        "traces": len(texts),
        "kb": round(sum(map(len, texts)) / len(texts) / 1000, 1),
        "equal": equal,
        "parse": timed(lambda: _drain(orjson.loads(text) for text in texts)),
        "plain": timed(
            lambda: _drain(plain(orjson.loads(t), task, products) for t, task in zip(texts, problems, strict=True))
        ),
        "score_batch": timed(lambda: outcome.score_batch(texts, problems, catalogue)),
        "plain_parsed": timed(lambda: _drain(plain(steps, task, products) for steps, task in pairs)),
        "score_batch_parsed": timed(lambda: outcome.score_batch(parsed, problems, catalogue)),
    }


def dialogues(root: Path) -> Iterator[tuple[bytes, Problem]]:
    """(bytes of a step array, its public problem), in the order of the files."""
    for day in sorted(path for path in root.iterdir() if (path / "suite.json").is_file()):
        suite = json.loads((day / "suite.json").read_text("utf-8"))["problems"]
        problems = {item["problem_id"]: parse_problem(item, suite_id=None) for item in suite}
        for path in sorted(day.rglob("*.json.gz")):
            task = problems.get(path.name.removesuffix(".json.gz"))
            if task is None or task.reward is None:
                continue
            try:
                text = gzip.decompress(path.read_bytes())
                steps = orjson.loads(text)
            except (OSError, EOFError, zlib.error, orjson.JSONDecodeError):
                continue  # damaged on purpose; reading is not what is measured
            if isinstance(steps, list) and steps and all(isinstance(s, dict) and "completion" in s for s in steps):
                yield text, task


def compared(row: outcome.OutcomeScore) -> tuple[Any, ...]:
    """What both scorers give."""
    return row.outcome, row.score, row.recommended_ids, row.hallucinated_ids


def _drain(items: Iterator[Any]) -> None:
    for _ in items:
        pass


def _simulated(out: Path, traces: int) -> Path:
    from trajectory_platform.arena.simulate import simulate

    simulate(out, days=1, traces_per_day=traces, seed=1)
    return out


# ------------------------------------------------------------------------- the plain scorer, straight from the domain


def plain(steps: list[Any], problem: Problem, products: dict[str, Json]) -> tuple[Any, ...]:
    """Outcome, score object, recommended ids, hallucinated ids of one trace."""
    ids = plain_ids(steps)
    text = json.dumps([results(step) for step in steps], ensure_ascii=False)
    hallucinated = [name for name in ids if re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", text) is None]
    try:
        score: Json = {"length": plain_length(steps), "format": plain_format(steps)}
        success = plain_decide(score, ids, problem, products)
    except (TypeError, KeyError, AttributeError, ValueError):
        return "unscorable", {}, ids, hallucinated
    return "success" if success else "failure", score, ids, hallucinated


def results(step: Json) -> list[Any]:
    """What tools answered in a step; confirmations repeat the agent's own words."""
    message = (step.get("completion") or {}).get("message") or {}
    calls = message.get("tool_call") if isinstance(message, dict) else None
    silent = ("recommend_product", "terminate", "calculate_voucher")
    return [
        call.get("result")
        for call in (calls if isinstance(calls, list) else [calls])
        if isinstance(call, dict) and call.get("name") not in silent
    ]


def plain_ids(steps: list[Any]) -> list[str]:
    chosen: Any = ""
    for step in steps:
        try:
            for call in step["completion"]["message"]["tool_call"]:
                if call["name"] == "recommend_product":
                    chosen = call["parameters"].get("product_ids", "")
        except (KeyError, TypeError, AttributeError):
            continue
    parts = [part.strip() for part in chosen.split(",")] if isinstance(chosen, str) else []
    return list(dict.fromkeys(part for part in parts if part))


def plain_length(steps: list[Any]) -> float:
    message = steps[-1]["completion"]["message"]
    calls = (message.get("tool_call") if message else None) or []
    return 1 / len(steps) if [call for call in calls if call["name"] == "terminate"] else 0.0


def plain_format(steps: list[Any]) -> float:
    return sum(plain_step(step) for step in steps) / len(steps)


def plain_step(step: Json) -> float:
    completion = step.get("completion")
    message = completion.get("message") if isinstance(completion, dict) else None
    if not isinstance(message, dict):
        return 0.0
    for name, kind in (("user", str), ("think", str), ("response", str), ("tool_call", list), ("obs", list)):
        if name in message and not isinstance(message[name], kind):
            raise ValueError(name)
    if not all(isinstance(call, dict) for name in ("tool_call", "obs") for call in message.get(name, [])):
        raise ValueError("call")
    rendered = []
    for role in ROLES:
        value = message.get(role)
        if value:
            text = json.dumps(value).replace("/", "\\/") if role == "tool_call" else value
            rendered.append(f"<{role}>{text}</{role}>")
    whole = "\n".join(rendered)
    spans = {}
    for role in ROLES:
        opened = [match.start() for match in re.finditer(f"<{role}>", whole)]
        closed = [match.start() for match in re.finditer(f"</{role}>", whole)]
        if opened or closed:
            if len(opened) != 1 or len(closed) != 1 or opened[0] >= closed[0]:
                return 0.0
            spans[role] = (opened[0], closed[0])
    if "think" not in spans or len(spans) < 2:
        return 0.0
    if "tool_call" in spans:
        calls = json.loads(whole[spans["tool_call"][0] + len("<tool_call>") : spans["tool_call"][1]])
        if any(not isinstance(c.get("name"), str) or not isinstance(c.get("parameters"), dict) for c in calls):
            return 0.0
    if any(a < edge < b for one, (a, b) in spans.items() for two in spans if two != one for edge in spans[two]):
        return 0.0
    extra = step.get("extra_info", {})
    if not isinstance(extra, dict):
        return 0.0
    stamp = extra.get("timestamp")
    return 0.5 if not isinstance(stamp, int | float) or stamp <= 0 else 1.0


def plain_decide(score: Json, ids: list[str], problem: Problem, products: dict[str, Json]) -> bool:
    several = problem.category in ("shop", "voucher")
    rewards = problem.reward or []
    if several:
        score.update(dict.fromkeys(("product", "gt", "rule", *FIELDS), 0.0))
    hits = []
    for name, reward in zip(ids if several else ids[:1], rewards, strict=False):
        product = products.get(name)
        if product is None:
            continue
        rule, exact, shares = plain_match(product, reward)
        for key, value in {"product": 1.0, "gt": exact, "rule": rule, **shares}.items():
            score[key] = score.get(key, 0.0) + value
        if rule > 0:
            hits.append(product)
    if not several:
        return bool(score.get("rule", 0) >= 1)
    for key in ("product", "gt", "rule", *FIELDS):
        score[key] /= len(rewards)
    whole = len(hits) == len(rewards)
    shops = {product["shop_id"] for product in hits}
    if problem.category == "shop":
        score["shop"] = 1 if whole and len(shops) == 1 else 0
        return bool(score["rule"] >= 1 and score["shop"] >= 1)
    score["budget"] = 1 if whole and plain_budget(hits, problem.voucher, len(shops)) else 0
    return bool(score["rule"] >= 1 and score["budget"] >= 1)


def plain_budget(hits: list[Json], voucher: Any, shops: int) -> bool:
    total = sum(product["price"] for product in hits)
    if total <= voucher["budget"]:
        return True
    if voucher["voucher_type"] != "platform" and shops != 1 or total < voucher["threshold"]:
        return False
    if voucher["discount_type"] == "fixed":
        return bool(total - voucher["face_value"] <= voucher["budget"])
    return bool(max(total * (1 - voucher["discount"]), total - voucher["cap"]) <= voucher["budget"])


def plain_match(product: Json, reward: Json) -> tuple[float, int, Json]:
    def folded(title: str) -> str:
        return " ".join(unicodedata.normalize("NFKC", title).casefold().split())

    same = product["product_id"] == reward["product_id"]
    hits = dict.fromkeys(FIELDS, 0)
    totals = dict.fromkeys(FIELDS, 0)
    for title in reward.get("title", []):
        totals["title"] += 1
        hits["title"] += same or folded(title) == folded(product["title"])
    for constraint in reward.get("price", []):
        for mode, (low, high) in constraint.items():
            totals["price"] += 1
            price = product["price"]
            hits["price"] += (
                (mode == "less than" and price <= high)
                or (mode == "greater than" and price >= low)
                or (mode == "between" and low <= price <= high)
            )
    for service in reward.get("service", []):
        totals["service"] += 1
        hits["service"] += service in product["service"]
    fixed = {(key, value) for key, values in (product.get("attributes") or {}).items() for value in values}
    skus = [set(option.items()) for option in (product.get("sku_options") or {}).values()]
    wanted = [pair for option in reward.get("sku_options", []) for pair in option.items()]
    wanted += [(k, value) for entry in reward.get("attributes", []) for k, values in entry.items() for value in values]
    totals["sku & attrs"] = len(wanted)
    hits["sku & attrs"] = max(sum(pair in sku or pair in fixed for pair in wanted) for sku in [set(), *skus])
    shares = {name: hits[name] / totals[name] if totals[name] else 0.0 for name in FIELDS}
    total = sum(totals.values())
    return (1.0 if same else sum(hits.values()) / total if total else 0.0), int(same), shares


if __name__ == "__main__":
    sys.exit(main())
