"""Strategy copies in one large group: the product against datasketch and rensa, recall against exact comparison.

python benchmarks/strategy_copies.py [--traces 20000] [--exact 4000] [--similarity 0.9] [--seed 0]

Every rival uses the product's bands, its exact verification and its rule (compare with what was kept, best first), so
that only finding the candidates differs. Three kinds of groups: families of copies with a few changed words, traces
that share little, and traces that are all rather alike without being copies (the worst case for any banding).
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trajectory_platform.curation.copies import Signed, near_copies
from trajectory_platform.curation.minhash import Bands, band_keys, bands_for
from trajectory_platform.curation.signatures import shingles, similarity

Sets = list[frozenset[int]]
_SHINGLES = 50


def made_group(kind: str, count: int, seed: int) -> list[Signed]:
    """Traces of one problem by 700 agents, 50 shingles each."""
    draw = random.Random(f"{kind} {seed}")
    core = [draw.getrandbits(32) for _ in range(_SHINGLES)]
    rows = []
    for number in range(count):
        family = random.Random(f"{kind} {seed} {number // 20}")
        if kind == "families":
            words = core[:15] + [family.getrandbits(32) for _ in range(_SHINGLES - 15)]
            for _ in range(draw.randrange(5)):
                words[draw.randrange(_SHINGLES)] = draw.getrandbits(32)
        elif kind == "unlike":
            words = core[:10] + [draw.getrandbits(32) for _ in range(_SHINGLES - 10)]
        else:
            words = core[: _SHINGLES - 4] + [draw.getrandbits(32) for _ in range(4)]
        data = b"".join(word.to_bytes(4, "big") for word in sorted(set(words)))
        signature = "2." + b64encode(data).decode()
        rows.append(Signed(f"t{number:06}", "problem", f"agent {number % 700}", draw.random(), signature))
    return rows


def by_rank(rows: list[Signed], threshold: float, candidates: Callable[[Sets], Callable[[int], set[int]]]) -> set[str]:
    """The product's rule over any source of candidates: ``candidates(sets)(place)`` gives places kept or not."""
    ranked = sorted(rows, key=lambda row: (-row.quality, row.name))
    sets = [shingles(row.signature) for row in ranked]
    find = candidates(sets)
    kept: set[int] = set()
    copies = set()
    for place, row in enumerate(ranked):
        for other in sorted(find(place) & kept):
            if ranked[other].agent != row.agent and similarity(sets[place], sets[other]) >= threshold - 1e-9:
                copies.add(row.name)
                break
        else:
            kept.add(place)
    return copies


def compared_with_all(sets: Sets) -> Callable[[int], set[int]]:
    """No bands at all: exact."""
    return lambda place: set(range(place))


def datasketch_bands(layout: Bands) -> Callable[[Sets], Callable[[int], set[int]]]:
    """datasketch's MinHash and LSH with our bands (its own choice misses 39 % near the threshold, case D02)."""

    def build(sets: Sets) -> Callable[[int], set[int]]:
        from datasketch import MinHash, MinHashLSH

        words = ([word.to_bytes(4, "big") for word in one] for one in sets)
        sketches = MinHash.bulk(words, num_perm=layout.bands * layout.rows)
        index = MinHashLSH(num_perm=layout.bands * layout.rows, params=(layout.bands, layout.rows))
        for place, sketch in enumerate(sketches):
            index.insert(place, sketch, check_duplication=False)
        return lambda place: set(index.query(sketches[place]))

    return build


def rensa_bands(layout: Bands) -> Callable[[Sets], Callable[[int], set[int]]]:
    """rensa's MinHash, our buckets."""

    def build(sets: Sets) -> Callable[[int], set[int]]:
        from rensa import RMinHash

        buckets: dict[tuple[int, tuple[int, ...]], set[int]] = {}
        keys = []
        for place, one in enumerate(sets):
            sketch = RMinHash(num_perm=layout.bands * layout.rows, seed=1)
            sketch.update([str(word) for word in one])
            digest = sketch.digest()
            keys.append([(at, tuple(digest[at : at + layout.rows])) for at in range(0, len(digest), layout.rows)])
            for key in keys[-1]:
                buckets.setdefault(key, set()).add(place)
        return lambda place: set().union(*(buckets[key] for key in keys[place]))

    return build


def timed(task: Callable[[], set[str]]) -> tuple[set[str], float]:
    started = time.process_time()
    found = task()
    return found, time.process_time() - started


def row(name: str, found: set[str], seconds: float, count: int) -> None:
    print(f"  {name:<22} {len(found):>7} copies {seconds:>8.2f} s CPU {count / max(seconds, 1e-9):>10.0f} traces/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--traces", type=int, default=20_000)
    parser.add_argument("--exact", type=int, default=4_000, help="traces of the comparison with exact answers")
    parser.add_argument("--similarity", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    layout = bands_for(given.similarity)
    if layout is None:
        parser.error("a similarity this low has no bands")
    print(f"similarity {given.similarity}: {layout}, recall by the formula {layout.recall(given.similarity):.4f}")
    for kind in ("families", "unlike", "alike"):
        rows = made_group(kind, given.exact, given.seed)
        print(f"{kind}, {given.exact} traces")
        exact, seconds = timed(lambda rows=rows: by_rank(rows, given.similarity, compared_with_all))
        row("compared with all", exact, seconds, len(rows))
        for name, task in (
            ("product", lambda rows=rows: set(near_copies(rows, similarity=given.similarity))),
            ("datasketch", lambda rows=rows: by_rank(rows, given.similarity, datasketch_bands(layout))),
            ("rensa", lambda rows=rows: by_rank(rows, given.similarity, rensa_bands(layout))),
        ):
            found, seconds = timed(task)
            row(name, found, seconds, len(rows))
            if exact:
                print(f"  {'':<22} recall {len(found & exact) / len(exact):.4f}, beyond it {len(found - exact)}")
    for kind in ("families", "unlike", "alike"):
        rows = made_group(kind, given.traces, given.seed)
        found, seconds = timed(lambda rows=rows: set(near_copies(rows, similarity=given.similarity)))
        print(f"{kind}, {given.traces} traces")
        row("product", found, seconds, len(rows))
    sets = [shingles(one.signature) for one in rows]
    started = time.process_time()
    band_keys(sets, layout)
    print(f"band keys of {len(sets)} sets of {_SHINGLES}: {time.process_time() - started:.2f} s CPU")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
