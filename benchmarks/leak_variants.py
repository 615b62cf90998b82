"""Do variants of a problem join its leak cluster, and do strangers with the same boilerplate stay out?

    python benchmarks/leak_variants.py [--seeds 1 2 3] [--samples DIR] [--simulated 600] [--strangers 1500]

The problems are the published test rows (where the folder is there) and problems of the arena's generator. Each is
varied in seven ways and under three conditions of what may give the variant away:

* ``ids``: the product ids are kept, the query is reworded (the everyday case);
* ``text``: the reward is hidden, the query is kept up to its form;
* ``constraints``: other product ids and another wording; only titles, pairs and prices are left. Problems that would
  leave less than the rule needs (``splits.constraints``) are not varied so; how many is printed as ``too_little``.

Strangers copy the services, price bounds, voucher and up to half of the pairs of a problem (none that names a model),
and its query template, but ask for another product. Everything is clustered together; pairs are counted against how
the problems were made. Prints one JSON object; exits with 1 when recall or precision is below 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]
DAY = date(2026, 5, 1)
KINDS = ("reorder", "subset", "whitespace", "unicode", "restated_price", "item_order", "voucher_added")
CONDITIONS = ("ids", "text", "constraints")
TAIL = (
    "\n\nMy budget is only `{budget}`, but I have a voucher with the following rules:\n1. The voucher applies to all "
    "products.\n2. It is valid only when the total price of the products exceeds `{threshold}`.\n3. It provides a "
    "fixed discount of `{face}`."
)
_WORDS = ("amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "hazel", "iris", "jasper", "kelp", "linden")


class Case(NamedTuple):
    """A problem, the cluster it was made for, and how."""

    item: Row
    cluster: str
    kind: str
    condition: str


def sample_cases(folder: Path) -> list[Case]:
    """The 900 test rows; rows that name a common product, and the two whose answer is 1977 (domain 4.4), are one."""
    rows = [
        (f"{path.stem}:{number}", json.loads(line))
        for path in sorted((folder / "shoppingbench").glob("*.jsonl"))
        for number, line in enumerate(path.read_text("utf-8").rstrip("\n").split("\n"))
    ]
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for name, row in rows:
        for entry in rewards_of(row):
            parent[root(f"product {entry['product_id']}")] = root(name)
        if row.get("Knowledge_Attribute") == 1977 or str(row.get("Knowledge_Attribute")).strip() == "1977":
            parent[root("answer 1977")] = root(name)
    return [Case({**row, "problem_id": name}, root(name), "source", "") for name, row in rows]


def simulated_cases(count: int, seed: int) -> list[Case]:
    from trajectory_platform.arena.catalogue import generate_products
    from trajectory_platform.arena.problems import ProblemMaker

    maker = ProblemMaker(generate_products(seed, max(2_000, 4 * count)), seed)
    made: list[Case] = []
    while len(made) < count:
        for problem in maker.public(50):
            item = problem.suite_item(1, "")
            flat = {"problem_id": problem.problem_id, **item["metadata"]}
            made.append(Case(flat, f"{seed}/{problem.leak_cluster}", "source", ""))
    return made[:count]


def rewards_of(row: Row) -> list[Row]:
    reward = row["reward"]
    return reward if isinstance(reward, list) else [reward]


def pair_count(entry: Row) -> int:
    attributes = entry.get("attributes")
    listed = attributes if isinstance(attributes, list) else []
    return sum(map(len, entry.get("sku_options") or ())) + sum(len(v) for part in listed for v in part.values())


def variant(rng: random.Random, source: Row, kind: str, condition: str) -> Row | None:
    """The changed problem; None where the kind does not apply, or where too little is left under the condition."""
    row = deepcopy(source)
    entries = rewards_of(row)
    web = "Knowledge_Attribute" in row
    if condition == "constraints" and (web or not enough_left(entries, kind)):
        return None
    if kind == "item_order" and len(entries) < 2:
        return None
    if kind == "restated_price" and not any(entry.get("price") for entry in entries if not web):
        return None
    if kind == "voucher_added" and (web or "voucher" in row):
        return None
    if condition == "text" and kind in ("reorder", "subset", "restated_price", "item_order"):
        return None  # these say something else in words: hidden rewards leave nothing exact to compare
    row["problem_id"] = f"{rng.getrandbits(64):016x}"
    if kind in ("whitespace", "unicode"):
        respell(rng, row, entries, kind)
    elif not web:
        change(rng, row, entries, kind)
    if condition == "text":
        row["reward"] = None
    else:
        row["query"] = reword(rng, row["query"]) + (row["query"][-400:] if kind == "voucher_added" else "")
    if condition == "constraints":
        for entry in entries:
            entry["product_id"] = str(rng.randrange(10**12, 10**13))
    return row


def enough_left(entries: Sequence[Row], kind: str) -> bool:
    """Whether a problem says more than the rule needs: titles of four words or more, and for subsets three pairs."""
    from trajectory_platform.splits.constraints import fold_title, tells

    if not all(tells(fold_title(entry["title"][0])) for entry in entries if isinstance(entry["title"], list)):
        return False
    return kind != "subset" or len({entry["title"][0] for entry in entries}) > 1 or pair_count(entries[0]) >= 3


def change(rng: random.Random, row: Row, entries: list[Row], kind: str) -> None:
    if kind == "reorder":
        for entry in entries:
            for name in ("sku_options", "attributes", "service"):
                rng.shuffle(entry.get(name) or [])
            entry["sku_options"] = [dict(sorted(o.items(), reverse=True)) for o in entry.get("sku_options") or ()]
    elif kind == "subset":
        drop_pair(rng, rng.choice(entries))
    elif kind == "restated_price":
        for entry in entries:
            restate(rng, entry)
    elif kind == "item_order":
        entries.reverse()
    elif kind == "voucher_added":
        numbers = {name: rng.randrange(100, 3000) for name in ("budget", "threshold", "face")}
        row["query"] += TAIL.format(**numbers)
        row["reward"] = entries
        row["voucher"] = {"voucher_type": "platform", "discount_type": "fixed", "face_value": numbers["face"]}
        row["category"] = "Voucher"
        for entry in entries:
            entry.pop("price", None)  # voucher rewards never have one (domain 4.1)


def drop_pair(rng: random.Random, entry: Row) -> None:
    parts = [(part, key) for name in ("sku_options", "attributes") for part in entry.get(name) or () for key in part]
    if parts:
        part, key = rng.choice(parts)
        del part[key]
    entry.pop("service", None)


def restate(rng: random.Random, entry: Row) -> None:
    """Other bounds around what was asked; now and then none."""
    for price in entry.get("price") or ():
        (mode, (low, high)), *_ = price.items()
        price.clear()
        widened = [max(0, int((low or 0) * rng.uniform(0.7, 0.99))), None if high is None else int(high * 1.2) + 1]
        price["between" if widened[1] is not None and mode != "less than" else mode] = widened
    if rng.random() < 0.2:
        entry.pop("price", None)


def respell(rng: random.Random, row: Row, entries: list[Row], kind: str) -> None:
    row["query"] = spelled(rng, row["query"], kind)
    for entry in entries:
        title = entry["title"]
        entry["title"] = [spelled(rng, title[0], kind)] if isinstance(title, list) else spelled(rng, title, kind)
        for name in ("sku_options", "attributes") if isinstance(title, list) else ():
            entry[name] = [
                {
                    spelled(rng, key, kind): [spelled(rng, one, kind) for one in value]
                    if isinstance(value, list)
                    else spelled(rng, value, kind)
                    for key, value in part.items()
                }
                for part in entry.get(name) or ()
            ]


def spelled(rng: random.Random, text: str, kind: str) -> str:
    how = rng.randrange(4)
    if kind == "whitespace":
        return (
            text.replace(" ", "\u00a0"),
            text.replace(" ", "  \n"),
            f"\t{text} ",
            text.replace(" ", "\u3000"),
        )[how]
    if how == 0:
        return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)  # full width
    if how == 1:
        return unicodedata.normalize("NFD", text).upper()
    if how == 2:
        return text.replace("'", "\u2019").replace("-", "\u2011").replace("`", "")
    return "\u200b".join(text.split("e", 1)).replace("\u200b", "\u200be", 1) if "e" in text else text + "\ufeff"


def reword(rng: random.Random, query: str) -> str:
    words = query.split()
    rng.shuffle(words)
    return f"Get {' '.join(words[: max(3, len(words) // 2)])} {rng.choice(_WORDS)} {rng.randrange(10**9)}"


def stranger(rng: random.Random, source: Row) -> Row:
    """The boilerplate of a problem around another product."""
    row = deepcopy(source)
    row["problem_id"] = f"{rng.getrandbits(64):016x}"
    row.pop("Knowledge_Attribute", None)
    name = f"{rng.choice(_WORDS)} {rng.randrange(10**9)}"
    row["query"] = f"{row['query'][:40]} {name} {row['query'][-260:] if row.get('voucher') else ''}"
    for entry in rewards_of(row):
        entry["product_id"] = str(rng.randrange(10**12, 10**13))
        old = entry["title"][0] if isinstance(entry["title"], list) else entry["title"]
        entry["title"] = [f"{' '.join(old.split()[:3])} {rng.choice(_WORDS)} {rng.randrange(10**9)} original"]
        keep = pair_count(entry) // 2 if isinstance(entry.get("attributes", []), list) else 0
        parts = [(n, part) for n in ("sku_options", "attributes") for part in split_parts(entry.get(n))]
        parts = [(n, part) for n, part in parts if not {"model", "compatibility_by_model"} & part.keys()]
        entry.pop("sku_options", None)
        entry.pop("attributes", None)
        for name_, part in rng.sample(parts, min(keep, len(parts))):
            entry.setdefault(name_, []).append(part)
    return row


def split_parts(parts: Any) -> Iterator[Row]:
    for part in parts if isinstance(parts, list) else ():
        yield from ({key: value} for key, value in part.items())


def all_cases(rng: random.Random, sources: Sequence[Case], strangers: int) -> tuple[list[Case], Counter[str]]:
    cases = list(sources)
    too_little: Counter[str] = Counter()
    for case in sources:
        for kind in KINDS:
            for condition in CONDITIONS:
                made = variant(rng, case.item, kind, condition)
                if made is not None:
                    cases.append(Case(made, case.cluster, kind, condition))
                elif condition == "constraints" and "Knowledge_Attribute" not in case.item:
                    too_little[kind] += not enough_left(rewards_of(case.item), kind)
    for number in range(strangers):
        cases.append(Case(stranger(rng, rng.choice(sources).item), f"stranger {number}", "stranger", ""))
    rng.shuffle(cases)
    return cases, too_little


def clustered(cases: Sequence[Case]) -> list[str]:
    """The leak cluster of each case."""
    from trajectory_platform.sandbox.problems import parse_problem, to_table
    from trajectory_platform.splits.clusters import build_clusters

    problems = [parse_problem(case.item, suite_id="variants") for case in cases]
    found = build_clusters(to_table(problems, DAY.isoformat()), None, day=DAY, pool_key="variants")
    by_key = dict(zip(found.clusters["problem_key"].to_pylist(), found.clusters["cluster_id"].to_pylist(), strict=True))
    return [by_key[problem.problem_key] for problem in problems]


def pairs_of(sizes: Counter[Any]) -> int:
    return sum(size * (size - 1) // 2 for size in sizes.values())


def measure(seed: int, samples: Path, simulated: int, strangers: int) -> tuple[Row, bool]:
    """The counts of one seed, and whether nothing was missed and nothing joined wrongly."""
    rng = random.Random(f"leak variants {seed}")
    sources = (sample_cases(samples) if samples.exists() else []) + simulated_cases(simulated, seed)
    cases, too_little = all_cases(rng, sources, strangers)
    found = clustered(cases)
    home: dict[str, set[str]] = defaultdict(set)
    for case, cluster in zip(cases, found, strict=True):
        if case.kind == "source":
            home[case.cluster].add(cluster)
    made: Counter[str] = Counter()
    joined: Counter[str] = Counter()
    for case, cluster in zip(cases, found, strict=True):
        if case.condition:
            name = f"{case.kind}/{case.condition}"
            made[name] += 1
            joined[name] += cluster in home[case.cluster]
            if cluster not in home[case.cluster] and made[name] - joined[name] <= 3:
                print(f"missed {name}: {json.dumps(case.item)[:1500]}", file=sys.stderr)
    wanted = Counter(case.cluster for case in cases)
    both = pairs_of(Counter(zip((case.cluster for case in cases), found, strict=True)))
    true_pairs, found_pairs = pairs_of(wanted), pairs_of(Counter(found))
    alone = Counter(found)
    lonely = sum(alone[cluster] > 1 for case, cluster in zip(cases, found, strict=True) if case.kind == "stranger")
    report = {
        "seed": seed,
        "sources": len(sources),
        "variants": sum(made.values()),
        "strangers": strangers,
        "strangers_joined": lonely,
        "variant_recall": round(sum(joined.values()) / max(1, sum(made.values())), 6),
        "pair_recall": round(both / max(1, true_pairs), 6),
        "pair_precision": round(both / max(1, found_pairs), 6),
        "pairs": {"true": true_pairs, "found": found_pairs, "both": both},
        "joined_of_made": {name: f"{joined[name]}/{made[name]}" for name in sorted(made)},
        "too_little": dict(sorted(too_little.items())),
    }
    return report, both == true_pairs == found_pairs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--samples", type=Path, default=Path(__file__).parents[2] / "shared" / "samples")
    parser.add_argument("--simulated", type=int, default=600)
    parser.add_argument("--strangers", type=int, default=1500)
    options = parser.parse_args()
    results = [measure(seed, options.samples, options.simulated, options.strangers) for seed in options.seeds]
    print(json.dumps([report for report, _ in results], indent=1))
    return 0 if all(exact for _, exact in results) else 1


if __name__ == "__main__":
    sys.exit(main())
