"""The comparable stages of the filter written for datatrove and data-juicer, beside the platform, in one run.

    pip install --no-deps --target PEERS datatrove loguru humanize multiprocess dill            (datatrove)
    pip install --no-deps --target PEERS py-data-juicer loguru pillow zstandard wget emoji jsonargparse \
        beautifulsoup4 soupsieve multiprocess dill                                              (data-juicer)
    PYTHONPATH=.:PEERS python benchmarks/filter_peers.py [--traces 4000] [--days-dir DIR] [--json]

A peer that is not installed is a line of the table, not a failure; none is a dependency of the platform.

Input of all: one gzip file of JSON lines {id, text}, where text is the JSON of one published dialogue of a simulated
day. The stages that every engine can express: read the lines; the dialogue can be read (every step has a message);
a length and a format gate (a message thinks and acts, a call has a name and parameters, the last step terminates);
exact copies out; write what is kept. The checks are the same Python function everywhere, so the rows compare reading,
writing and what an engine does around a check.

Not comparable, because no peer has it: one reason for every rejected row (datatrove writes reasons with the dropped
rows, data-juicer drops rows silently), evidence from the request log and the axis, verdicts, uses, copies of
strategies, caps, and rows that are never lost without a word. ``platform`` does the first two of these and repairs
what it reads, on top of the same stages; it is expected to cost more per trace than any row of plain checks.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
from day_throughput import DAY, peak_mib

MAX_STEPS = 40
ENGINES = ("gunzip + orjson.loads", "plain checks", "platform", "datatrove", "data-juicer")
MODULES = {"datatrove": "datatrove", "data-juicer": "data_juicer"}
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=4_000)
    parser.add_argument("--days-dir", type=Path, help=f"simulated days that hold {DAY}, instead of writing them anew")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine:
        print("\n" + json.dumps(run_engine(args.engine, args.file)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "in" / "traces.jsonl.gz"
        file.parent.mkdir()
        count = write_input(file, args.days_dir or simulate(Path(folder) / "days", args.traces), args.traces)
        rows = [measured(engine, file) for engine in ENGINES]
    print(json.dumps(rows) if args.json else table(rows, count))
    return 0


def simulate(days: Path, traces: int) -> Path:
    from trajectory_platform.arena.simulate import simulate as write_days

    write_days(days, days=1, traces_per_day=traces, seed=1, first_day=DAY)
    return days


def write_input(file: Path, days: Path, most: int) -> int:
    """The dialogues of the day as JSON lines; returns how many. What holds no dialogue at all no engine is asked."""
    from trajectory_platform import jsontext
    from trajectory_platform.errors import RejectRow
    from trajectory_platform.sources.container import Limits, read_records

    count = 0
    with gzip.open(file, "wb", compresslevel=6) as out:
        for artifact in sorted((days / DAY.isoformat() / "artifacts").glob("*/*")):
            try:
                records = list(read_records(artifact.read_bytes(), Limits()))
            except RejectRow:
                continue
            for record in records:
                if record.steps is not None and count < most:
                    name = f"{artifact.parent.name}/{artifact.name}:{record.line}"
                    out.write(orjson.dumps({"id": name, "text": jsontext.dumps(record.steps)}) + b"\n")
                    count += 1
    return count


def measured(engine: str, file: Path) -> Row:
    """One engine in a process of its own."""
    module = MODULES.get(engine)
    if module is not None and find_spec(module) is None:
        return {"engine": engine, "missing": f"{module} is not installed (see the head of this file)"}
    command = [sys.executable, __file__, "--engine", engine, "--file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"engine": engine, "missing": "failed: " + " ".join(done.stderr.split()[-12:])}
    return {"engine": engine, **json.loads(done.stdout.splitlines()[-1])}


def run_engine(engine: str, file: Path) -> Row:
    """Kept rows, CPU seconds with workers, the clock, and peak memory; imports are not counted."""
    out = file.parent.parent / engine.replace(" ", "-")
    work = {
        "gunzip + orjson.loads": parse_only, "plain checks": plain_checks, "platform": platform,
        "datatrove": datatrove, "data-juicer": data_juicer,
    }[engine]  # fmt: skip
    run = work(file, out)
    next(run)  # its imports
    before, clock = cpu_seconds(), time.perf_counter()
    kept = next(run)
    return {
        "kept": kept,
        "cpu_s": cpu_seconds() - before,
        "wall_s": time.perf_counter() - clock,
        "peak_mib": peak_mib(),
    }


def cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def objection(text: str) -> str | None:
    """Why a dialogue is not kept, or None: the one function that every engine calls."""
    try:
        steps = orjson.loads(text)
    except ValueError:
        return "not_json"
    if not isinstance(steps, list) or not steps:
        return "no_dialogue"
    if len(steps) > MAX_STEPS:
        return "too_long"
    calls: list[Any] = []
    for step in steps:
        completion = step.get("completion") if isinstance(step, dict) else None
        message = completion.get("message") if isinstance(completion, dict) else None
        if not isinstance(message, dict):
            return "message_missing"
        calls = message.get("tool_call") or []
        if not isinstance(calls, list) or not (message.get("think") and (calls or message.get("response"))):
            return "bad_format"
        for call in calls:
            if not isinstance(call, dict) or not isinstance(call.get("name"), str):
                return "call_without_name"
            if not isinstance(call.get("parameters"), dict):
                return "parameters_not_object"
    return None if any(call["name"] == "terminate" for call in calls) else "not_terminated"


class Copies:
    """Texts seen before, by digest."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def again(self, text: str) -> bool:
        digest = hashlib.md5(text.strip().encode(), usedforsecurity=False).digest()
        if digest in self._seen:
            return True
        self._seen.add(digest)
        return False


def parse_only(file: Path, _out: Path) -> Iterator[int]:
    """The yardstick: inflate and parse lines and dialogues, nothing else."""
    yield 0
    count = 0
    for line in gzip.decompress(file.read_bytes()).splitlines():
        orjson.loads(orjson.loads(line)["text"])
        count += 1
    yield count


def plain_checks(file: Path, out: Path) -> Iterator[int]:
    """The same stages as a loop: what they cost without any engine."""
    yield 0
    out.mkdir()
    copies, kept = Copies(), 0
    with gzip.open(file, "rb") as lines, open(out / "kept.jsonl", "wb") as good, open(out / "no.jsonl", "wb") as bad:
        for line in lines:
            row = orjson.loads(line)
            reason = objection(row["text"]) or ("exact_copy" if copies.again(row["text"]) else None)
            if reason is None:
                kept += 1
                good.write(orjson.dumps(row) + b"\n")
            else:
                bad.write(orjson.dumps({**row, "reason": reason}) + b"\n")
    yield kept


def platform(file: Path, out: Path) -> Iterator[int]:
    """Canonical messages, repairs, evidence and axis of every trace on top: ``traces.sn15`` and ``curation.agency``."""
    from trajectory_platform import jsontext
    from trajectory_platform.curation.agency import decide
    from trajectory_platform.sources.container import Record
    from trajectory_platform.traces.garbage import collection_paused
    from trajectory_platform.traces.normalise import read_guarded

    yield 0
    out.mkdir()
    seen: set[str | None] = set()
    kept = 0
    with (
        collection_paused(),
        gzip.open(file, "rb") as lines,
        open(out / "kept.jsonl", "wb") as good,
        open(out / "no.jsonl", "wb") as bad,
    ):
        for line in lines:
            row = orjson.loads(line)
            parsed = jsontext.parse(row["text"].encode())
            record = Record(None, None, b"", parsed.value, None, None, parsed.repairs, False)
            trace = read_guarded(record, None)
            reason = trace.malformed or ("exact_copy" if trace.content_hash in seen else None)
            seen.add(trace.content_hash)
            axis = decide(trace.messages, trace.evidence, a_min_share=0.8, b_max_share=0.2)
            told = {"id": row["id"], "axis": axis.label, "why": axis.reason, "repairs": trace.repairs}
            kept += reason is None
            body = {"messages": jsontext.dumps(trace.messages)} if reason is None else {**row, "reason": reason}
            (bad if reason else good).write(jsontext.dumps({**told, **body}).encode() + b"\n")
    yield kept


def datatrove(file: Path, out: Path) -> Iterator[int]:
    """JsonlReader, two filters of our own with an exclusion writer each, JsonlWriter; one task in this process."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.filters.base_filter import BaseFilter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter
    from loguru import logger

    logger.remove()

    class Gate(BaseFilter):  # type: ignore[misc]
        def filter(self, doc: Any) -> bool | tuple[bool, str]:
            reason = objection(doc.text)
            return True if reason is None else (False, reason)

    class First(BaseFilter):  # type: ignore[misc]
        def filter(self, doc: Any) -> bool | tuple[bool, str]:
            return (False, "exact_copy") if copies.again(doc.text) else True

    yield 0
    copies = Copies()
    pipeline = [
        JsonlReader(str(file.parent), glob_pattern=file.name),
        Gate(exclusion_writer=JsonlWriter(str(out / "no"), compression=None)),
        First(exclusion_writer=JsonlWriter(str(out / "copies"), compression=None)),
        JsonlWriter(str(out / "kept"), compression=None),
    ]
    LocalPipelineExecutor(pipeline, tasks=1, workers=1, logging_dir=str(out / "logs")).run()
    with open(out / "kept" / "00000.jsonl", "rb") as lines:
        yield sum(1 for _ in lines)


def data_juicer(file: Path, out: Path) -> Iterator[int]:
    """A filter of our own, its document deduplicator, and JSON lines written by ``datasets``; one process."""
    from data_juicer.core.data import NestedDataset
    from data_juicer.ops.base_op import OPERATORS, Filter
    from data_juicer.ops.deduplicator.document_deduplicator import DocumentDeduplicator
    from data_juicer.utils.constant import Fields
    from datasets import disable_caching, load_dataset
    from loguru import logger

    logger.remove()
    disable_caching()

    @OPERATORS.register_module("dialogue_gate")  # type: ignore[untyped-decorator]
    class Gate(Filter):  # type: ignore[misc]
        def compute_stats_single(self, sample: Row, context: bool = False) -> Row:
            sample[Fields.stats]["objection"] = objection(sample["text"]) or ""
            return sample

        def process_single(self, sample: Row) -> bool:
            return not sample[Fields.stats]["objection"]

    yield 0
    loaded = load_dataset("json", data_files=str(file), split="train", cache_dir=str(out / "cache"))
    data = NestedDataset(loaded.add_column(Fields.stats, [{}] * len(loaded)))
    data = data.process([Gate(num_proc=1), DocumentDeduplicator(num_proc=1)], work_dir=str(out), open_monitor=False)
    data.select_columns(["id", "text"]).to_json(str(out / "kept.jsonl"), lines=True)
    yield len(data)


def table(rows: list[Row], count: int) -> str:
    yardstick = rows[0]
    lines = [
        f"{count} dialogues, one process each",
        f"{'':<24}{'kept':>7}{'CPU s':>8}{'per core/s':>12}{'clock s':>9}{'ratio':>7}{'MiB':>7}",
    ]
    for row in rows:
        if "missing" in row:
            lines.append(f"{row['engine']:<24}{row['missing']}")
            continue
        lines.append(
            f"{row['engine']:<24}{row['kept']:>7}{row['cpu_s']:>8.2f}{count / row['cpu_s']:>12.0f}"
            f"{row['wall_s']:>9.2f}{row['cpu_s'] / yardstick['cpu_s']:>7.1f}{row['peak_mib']:>7.0f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
