"""The product index at the size of the marketplace, next to bm25s on the same documents and queries.

    python benchmarks/search_index.py [--documents 1000000] [--queries 400] [--seed 1] [--work FOLDER] [--no-rival]

Generates documents (the arena's, with more words: about 1.5 KB each, one word in every title), parses them once with
orjson as the yardstick, builds the index, and asks both engines the same questions with every memory of earlier
answers switched off. Each part runs in a process of its own, so that its peak memory is its own. Prints two tables and
one JSON object. bm25s has no rank-order walk: its filtered answers are the 50 best that pass (``weight_mask``).
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from trajectory_platform.arena.catalogue import generate_products
from trajectory_platform.sandbox.catalogue_index import WORDS, build_index, open_world
from trajectory_platform.sandbox.products import search_text
from trajectory_platform.sandbox.ranking import open_ranking
from trajectory_platform.sandbox.search import MAX_SURVIVORS, SearchIndex, parse_price
from trajectory_platform.sandbox.store import columns_of, service_bits, shop_key

COMMON = "original"  # stands in every title
VOCABULARY = 60_000
_SYLLABLES = ("ba", "ko", "li", "mu", "ne", "ra", "ti", "so", "vu", "pa", "de", "gi")
_WORDS_EACH = 110
Request = dict[str, Any]


def documents(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Arena products with words of a Zipf-distributed vocabulary in title, attributes and description."""
    rng = np.random.default_rng(seed)
    words = np.array([_word(number) for number in range(VOCABULARY)], object)
    share = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
    drawn: Iterator[list[str]] = iter(())
    for document in generate_products(seed, count):
        extra = next(drawn, None)
        if extra is None:
            block = np.searchsorted(share, rng.random((8192, _WORDS_EACH)) * share[-1])
            drawn = iter(words[block].tolist())
            extra = next(drawn)
        document["title"] = f"{COMMON} {document['title']} {' '.join(extra[:6])}"
        document["attributes"]["detail"] = [" ".join(extra[6:9]), extra[9]]
        document["description"] += " " + " ".join(extra[10:])
        yield document


def _word(number: int) -> str:
    number += 200  # no word of less than three syllables
    text = ""
    while number:
        number, syllable = divmod(number, len(_SYLLABLES))
        text += _SYLLABLES[syllable]
    return text


def questions(samples: list[dict[str, Any]], count: int, seed: int) -> dict[str, list[Request]]:
    """Kinds of requests -> requests, made from products that exist, as agents make them from what they read."""
    draw = random.Random(seed)

    def words(document: dict[str, Any]) -> str:
        title = [word for word in document["title"].split() if word != COMMON]
        return " ".join(draw.sample(title, draw.randint(2, 5)))

    def around(price: float) -> str:
        return f"{int(price * 0.7)}-{int(price * 1.3) + 1}"

    kinds: dict[str, Callable[[dict[str, Any]], Request]] = {
        "no filter": lambda document: {"q": words(document)},
        "price": lambda document: {"q": words(document), "price": around(document["price"])},
        "price + service": lambda document: {
            "q": words(document),
            "price": around(document["price"]),
            "service": ",".join(document["service"]),
            "sort": "priceasc",
        },
        "shop": lambda document: {"q": words(document), "shop_id": document["shop_id"]},
        "word in all, no filter": lambda document: {"q": COMMON},
        "word in all + words, price": lambda document: {
            "q": f"{COMMON} {words(document)}",
            "price": around(document["price"]),
        },
    }
    return {kind: [{**make(draw.choice(samples)), "page": 1} for _ in range(count)] for kind, make in kinds.items()}


def generate(file: Path, asked: Path, count: int, queries: int, seed: int) -> dict[str, Any]:
    """Write the catalogue and the questions."""
    started = time.perf_counter()
    samples = []
    with file.open("wb", buffering=1 << 20) as stream:
        for number, document in enumerate(documents(count, seed)):
            stream.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
            if number % max(1, count // 2000) == 0:
                samples.append(document)
    asked.write_bytes(orjson.dumps(questions(samples, queries, seed)))
    return {"seconds": time.perf_counter() - started, "megabytes": file.stat().st_size / 1e6}


def parse(file: Path) -> dict[str, Any]:
    """The yardstick: orjson over every line, nothing kept; the second of two passes."""
    for _ in range(2):
        started = time.perf_counter()
        with file.open("rb", buffering=1 << 20) as stream:
            count = sum(1 for line in stream if orjson.loads(line))
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "documents": count}


def build(file: Path, root: Path) -> dict[str, Any]:
    """Our index."""
    started = time.perf_counter()
    folder = build_index(file, root)
    seconds = time.perf_counter() - started
    sizes = {path.name: path.stat().st_size / 1e6 for path in folder.iterdir() if path.is_file()}
    words = sum(path.stat().st_size for path in (folder / WORDS).iterdir()) / 1e6
    return {"seconds": seconds, "megabytes": sum(sizes.values()) + words, "words_megabytes": words}


def ask(asked: Path, root: Path) -> dict[str, Any]:
    """Our answers: opening, the first one, then every kind of question."""
    folder = next(path for path in root.iterdir() if path.is_dir())
    started = time.perf_counter()
    store = open_world(folder).catalogue
    index = SearchIndex(store, open_ranking(folder / WORDS), remembered=0)
    opened = time.perf_counter() - started
    requests = orjson.loads(asked.read_bytes())
    first = _milliseconds(index.find, requests["price"][:1])[0][0]
    kinds = {kind: _milliseconds(index.find, made) for kind, made in requests.items()}
    return {"open_ms": opened * 1e3, "first_ms": first, "kinds": kinds, "anonymous": _anonymous_megabytes()}


def rival(file: Path, asked: Path) -> dict[str, Any]:
    """bm25s over the same texts, the filters as a mask over all documents."""
    bm25s = importlib.import_module("bm25s")  # has no types

    started = time.perf_counter()
    texts: list[str] = []

    def read_documents() -> Iterator[dict[str, Any]]:
        with file.open("rb", buffering=1 << 20) as stream:
            for line in stream:
                document = orjson.loads(line)
                texts.append(search_text(document))
                yield document

    columns = columns_of(read_documents())
    read = time.perf_counter() - started
    started = time.perf_counter()
    engine = bm25s.BM25(method="lucene")
    engine.index(bm25s.tokenize(texts, stopwords=None, show_progress=False), show_progress=False)
    seconds = time.perf_counter() - started

    def find(request: Request) -> Any:
        mask = None
        price, wanted = parse_price(request.get("price")), service_bits(request.get("service", "").split(","))
        if price.low is not None or wanted or "shop_id" in request:
            passes = columns.services & wanted == wanted
            if price.low is not None and price.high is not None:
                passes &= (columns.price >= price.low) & (columns.price <= price.high)
            if "shop_id" in request:
                passes &= columns.shop == shop_key(request["shop_id"])
            mask = passes.astype(np.float32)
        tokens = bm25s.tokenize([request["q"]], stopwords=None, show_progress=False, return_ids=False)
        return engine.retrieve(tokens, k=MAX_SURVIVORS, show_progress=False, weight_mask=mask)

    requests = orjson.loads(asked.read_bytes())
    kinds = {kind: _milliseconds(find, made[:100]) for kind, made in requests.items()}
    return {"read_seconds": read, "seconds": seconds, "kinds": kinds}


def _milliseconds(find: Callable[[Request], Any], requests: list[Request]) -> list[list[float]]:
    """Wall and CPU time of each request; on a busy machine only the second says what the engine costs."""
    taken = []
    for request in requests:
        wall, cpu = time.perf_counter(), time.thread_time()
        find(request)
        taken.append([(time.perf_counter() - wall) * 1e3, (time.thread_time() - cpu) * 1e3])
    return taken


def _anonymous_megabytes() -> float:
    """Memory of this process that is no mapped file: what is left when the system needs its page cache."""
    status = Path("/proc/self/status").read_text()
    return next(float(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("RssAnon"))


PARTS: dict[str, Callable[..., dict[str, Any]]] = {"parse": parse, "build": build, "ask": ask, "rival": rival}


def run_part(name: str, *places: Path) -> dict[str, Any]:
    """One part in a process of its own; adds its peak memory in MB and its CPU seconds."""
    command = [sys.executable, __file__, "--part", name, *map(str, places)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(told)
    return found


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def report(count: int, parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Print the tables; the same numbers as a JSON value."""
    built, parsed = parts["build"], parts["parse"]
    result: dict[str, Any] = {
        "documents": count,
        "catalogue_megabytes": round(parts["generate"]["megabytes"]),
        "orjson_parse_seconds": round(parsed["seconds"], 1),
        "build_seconds": round(built["seconds"], 1),
        "build_cpu_seconds": round(built["cpu_seconds"], 1),
        "build_documents_per_second": round(count / built["seconds"]),
        "build_to_orjson_parse": round(built["seconds"] / parsed["seconds"], 1),
        "index_megabytes": round(built["megabytes"]),
        "index_words_megabytes": round(built["words_megabytes"]),
        "build_peak_megabytes": round(built["peak_megabytes"]),
        "open_ms": round(parts["ask"]["open_ms"]),
        "first_query_ms": round(parts["ask"]["first_ms"], 1),
        "serve_anonymous_megabytes": round(parts["ask"]["anonymous"]),
        "serve_peak_megabytes": round(parts["ask"]["peak_megabytes"]),  # mapped pages of the documents included
    }
    if "rival" in parts:
        result |= {
            "bm25s_build_seconds": round(parts["rival"]["seconds"] + parts["rival"]["read_seconds"], 1),
            "bm25s_peak_megabytes": round(parts["rival"]["peak_megabytes"]),
        }
    for name, value in result.items():
        print(f"{name:30} {value:>12}")
    columns = ("p50", "p99", "p50 cpu")
    engines = {"ours": parts["ask"]} | ({"bm25s": parts["rival"]} if "rival" in parts else {})
    print(f"\n{'query, ms':30}" + "".join(f"{f'{engine} {name}':>15}" for engine in engines for name in columns))
    result["queries"] = {}
    for kind in parts["ask"]["kinds"]:
        row = []
        for engine in engines.values():
            wall, cpu = zip(*engine["kinds"][kind], strict=True)
            row += [_quantile(wall, 0.5), _quantile(wall, 0.99), _quantile(cpu, 0.5)]
        result["queries"][kind] = [round(value, 2) for value in row]
        print(f"{kind:30}" + "".join(f"{value:15.2f}" for value in row))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help="folder for catalogue and index; a temporary one by default")
    parser.add_argument("--no-rival", action="store_true")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("places", type=Path, nargs="*", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.part:
        found = PARTS[chosen.part](*chosen.places)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(found | {"peak_megabytes": peak, "cpu_seconds": time.process_time()}))
        return
    with tempfile.TemporaryDirectory(dir=chosen.work) as folder:
        file, asked, root = Path(folder) / "products.jsonl", Path(folder) / "asked.json", Path(folder) / "index"
        parts = {"generate": generate(file, asked, chosen.documents, chosen.queries, chosen.seed)}
        parts["parse"] = run_part("parse", file)
        parts["build"] = run_part("build", file, root)
        parts["ask"] = run_part("ask", asked, root)
        if not chosen.no_rival:
            parts["rival"] = run_part("rival", file, asked)
        print("\n" + json.dumps(report(chosen.documents, parts)))


if __name__ == "__main__":
    main()
