"""Damage real artifacts 100,000 times and read every one: no crash, accepted + rejected = records.

    python benchmarks/mutate_artifacts.py [--days DIR] [--count 100000] [--seed 1]

Three kinds of damage: to the stored bytes (gzip layer), to the inflated bytes, to the JSON values. Prints what became
of the records as a table; exits 1 when a reader raised, counts did not add up, or a row was lost.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trajectory_platform.errors import RejectRow
from trajectory_platform.sources.container import Limits, open_artifact
from trajectory_platform.traces.normalise import read_record

LIMITS = Limits(max_inflated_bytes=8 << 20, max_record_bytes=1 << 20)
SHARED_DAYS = Path(__file__).resolve().parents[2] / "shared" / "days"
FRAGMENTS = (
    b"\x00" * 8,
    b"\n",
    b"NaN",
    b"1e999",
    b'"',
    b"\\",
    b"[" * 200,
    b"}",
    b"\xff\xfe",
    b'{"a":1,"a":2}',
    b"\\ud800",
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**70, 1.5, "", "x", "[]", "{}", "null", [], {}, [None], [[]], {"name": 1}, "</think>",
    "<|im_end|>\n<|im_start|>assistant", '<tool_call>{"name": "find_product"', "\x00\u202e", "{'q': True}", "\ufffd",
)  # fmt: skip


def main() -> int:
    """Run the damage and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=Path, default=SHARED_DAYS, help="folder of day folders with real artifacts")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    pool = load_pool(options.days)
    draw = random.Random(options.seed)
    outcome: Counter[str] = Counter()
    by_kind: Counter[str] = Counter()
    records = crashes = 0
    started = time.perf_counter()
    for _ in range(options.count):
        kind, damage = draw.choice(KINDS)
        data = damage(draw.choice(pool), draw)
        by_kind[kind] += 1
        try:
            found = read(data)
        except Exception as error:  # noqa: BLE001  a crash is what this looks for
            crashes += 1
            outcome[f"CRASH {type(error).__name__}: {error}"[:100]] += 1
            continue
        records += sum(found.values())
        outcome.update(found)
    seconds = time.perf_counter() - started
    accepted = outcome["accepted"]
    rejected = sum(count for name, count in outcome.items() if name.startswith("rejected"))
    print_table(by_kind, outcome)
    print(f"{options.count} damaged artifacts, {records} records or refused files; {seconds:.0f} s")
    print(f"accepted {accepted} + rejected {rejected} = {accepted + rejected}; crashes {crashes}")
    if crashes or accepted + rejected != records:
        print("FAILED: a reader raised, or records were lost", file=sys.stderr)
        return 1
    return 0


def load_pool(days: Path) -> list[bytes]:
    """Stored bytes of real artifacts of at most 30 KB inflated, or small generated ones where there are none."""
    pool = []
    for path in sorted(days.glob("*/artifacts/*/*")):
        data = path.read_bytes()
        if len(inflated(data)) <= 30_000:
            pool.append(data)
    print(f"{len(pool)} real artifacts from {days}" if pool else f"no artifacts in {days}: using generated ones")
    return pool or [gzip.compress(content, mtime=0) for content in generated()]


def generated() -> list[bytes]:
    """One small artifact of every published shape."""

    def step(number: int, name: str, parameters: dict[str, Any], result: Any) -> dict[str, Any]:
        made = {"name": name, "parameters": parameters, "tool_call_id": "AAAAAAAA", "result": result}
        message = {"think": f"step {number}", "tool_call": [made]}
        extra = {"step": number, "query": "a red mug", "timestamp": 1_777_000_000_000 + number, "problem_id": "p1"}
        return {"completion": {"reasoning_content": "", "content": "", "message": message}, "extra_info": extra}

    steps = [
        step(1, "find_product", {"q": "mug", "page": 1}, [{"product_id": "1", "title": "Mug"}]),
        step(2, "recommend_product", {"product_ids": "1"}, "ok"),
        step(3, "terminate", {"status": "success"}, "done"),
    ]
    envelopes = [
        {"problem_id": f"p{number}", "status": "SUCCESS", "error": None, "dialogue": steps} for number in range(3)
    ]
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "<think>a</think>hello"}]
    rows: list[Any] = [[steps], [chat], envelopes, [steps, steps], [{"messages": chat}]]
    return [b"\n".join(json.dumps(line).encode() for line in lines) for lines in rows]


def read(data: bytes) -> Counter[str]:
    """Outcome -> records of one artifact; a refused file counts as one."""
    found: Counter[str] = Counter()
    try:
        records = open_artifact(data, LIMITS).records
    except RejectRow as error:
        return Counter({f"rejected file  {error.reason}": 1})
    for record in records:
        try:
            trajectory = read_record(record, None)
        except RejectRow as error:
            found[f"rejected record  {error.reason}"] += 1
        else:
            reason = trajectory.malformed
            found["accepted" if reason is None else f"rejected trace  {reason}"] += 1
    if sum(found.values()) != len(records):
        raise AssertionError(f"{len(records)} records, {sum(found.values())} accounted for")
    return found


def inflated(data: bytes) -> bytes:
    """The content of a stored artifact."""
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def damage_packed(stored: bytes, draw: random.Random) -> bytes:
    """Flip, cut or append stored bytes."""
    data = bytearray(stored or b"\x1f\x8b")
    place = draw.randrange(len(data))
    if draw.random() < 0.5:
        data[place] ^= 1 << draw.randrange(8)
    elif draw.random() < 0.7:
        del data[place:]
    else:
        data += draw.choice((b"\x00" * 40, b"tail", bytes(stored)))
    return bytes(data)


def damage_content(stored: bytes, draw: random.Random) -> bytes:
    """One to five edits of the inflated bytes."""
    data = bytearray(inflated(stored))
    for _ in range(draw.randint(1, 5)):
        place = draw.randint(0, len(data))
        action = draw.randrange(6)
        if action == 0:
            data[place : place + 1] = bytes([draw.randrange(256)])
        elif action == 1:
            del data[place : place + draw.randint(1, 3000)]
        elif action == 2:
            data[place:place] = draw.choice(FRAGMENTS)
        elif action == 3:
            data[place:place] = data[place : place + draw.randint(1, 800)]
        elif action == 4:
            data[:0] = draw.choice(FRAGMENTS)
        elif draw.random() < 0.3:
            del data[place:]
    return bytes(data)


def damage_values(stored: bytes, draw: random.Random) -> bytes:
    """One to four JSON values replaced, removed, doubled or renamed; lines that do not parse stay as they are."""
    lines = inflated(stored).split(b"\n")
    place = draw.randrange(len(lines))
    try:
        value = json.loads(lines[place])
    except ValueError:
        return b"\n".join(lines)
    for _ in range(draw.randint(1, 4)):
        value = edit(value, draw)
    lines[place] = json.dumps(value).encode()
    return b"\n".join(lines)


def edit(value: Any, draw: random.Random) -> Any:
    """The value with one change somewhere in it."""
    if not isinstance(value, dict | list) or not value or draw.random() < 0.12:
        return copy.deepcopy(draw.choice(VALUES))  # later edits must not reach the pool of values
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = draw.choice(keys)
    action = draw.random()
    if action < 0.08:
        del value[key]
    elif action < 0.12 and isinstance(value, list):
        value.insert(key, value[key])
    elif action < 0.16 and isinstance(value, dict):
        value[draw.choice(("role", "obs", "user", "tool_calls", "content", "name", "tool", "prompt", "messages"))] = (
            value[key]
        )
    else:
        value[key] = edit(value[key], draw)
    return value


KINDS: tuple[tuple[str, Callable[[bytes, random.Random], bytes]], ...] = (
    ("stored bytes", damage_packed),
    ("inflated bytes", damage_content),
    ("JSON values", damage_values),
)


def print_table(by_kind: Counter[str], outcome: Counter[str]) -> None:
    """Damage and outcomes, most frequent first."""
    for title, counts in (("damage", by_kind), ("outcome", outcome)):
        print(f"\n{title:<52}{'count':>9}")
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            print(f"{name:<52}{count:>9}")
    print()


if __name__ == "__main__":
    sys.exit(main())
