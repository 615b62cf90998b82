"""The questions of lineage on a generated lake of 2.4 million traces and 200 checkpoints.

    python benchmarks/lineage_at_scale.py [--traces 60000] [--days 40] [--fed 20000] [--keep DIR] [--limit-s 2] [--json]

Claims: ``lineage checkpoint`` (of each stage of training), ``lineage trace`` (of a miner's trace and of one that a
checkpoint generated) and ``lineage retract --dry-run`` (of a trace, a run and a miner) answer in under 2 seconds each,
as a command of its own (cold) and in a process that has asked before (warm); the least of ``--repeat`` answers counts,
in wall and in processor seconds. The lake is written straight as Delta partitions in the layout of the platform (same
files, row groups and manifests), without any model; texts are one word, because no question reads them. The yardstick
is a plain DuckDB scan of the same files for the same rows in the same run, on one thread: no pruning by manifests,
nothing but the rows that name the subject. ``--days 4 --traces 2000 --fed 500`` is the size for CI.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

FIRST = date(2026, 3, 26)
PROBLEMS, PER_RUN, MINERS, ACCEPTED = 3000, 30, 200, 0.05
COMMAND = "from trajectory_platform.cli import main; main()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--traces", type=int, default=60_000, help="traces a day")
    parser.add_argument("--fed", type=int, default=20_000, help="rows of one checkpoint, at most")
    parser.add_argument("--repeat", type=int, default=5, help="the least of so many answers counts")
    parser.add_argument("--limit-s", type=float, default=2.0, help="exit 1 when an answer takes longer (CPU seconds)")
    parser.add_argument("--keep", type=Path, default=None, help="folder of the lake; one that is there is used again")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = (options.keep or Path(scratch)).resolve()
        if not (root / "subjects.json").is_file():
            build(root, options)
        rows = measure(root, options.repeat)
    if options.json:
        print(json.dumps(rows))
    else:
        names = "".join(f"{name:>10}" for name in ("cold wall", "cold CPU", "warm wall", "warm CPU"))
        print(f"{'question':<23}{names}{'DuckDB':>8}{'ratio':>7}")
        for row in rows:
            numbers = "".join(f"{row[name]:>10.2f}" for name in ("cold_s", "cold_cpu_s", "warm_s", "warm_cpu_s"))
            print(f"{row['question']:<23}{numbers}{row['duckdb_cpu_s']:>8.2f}{row['ratio']:>7.2f}")
    if any(row["cold_cpu_s"] > options.limit_s for row in rows):
        sys.exit(1)


# -- the lake --


def build(root: Path, options: argparse.Namespace) -> None:
    """Write the lake day by day; ``subjects.json`` names what is asked about."""
    from trajectory_platform.lake import tables
    from trajectory_platform.training.stage_recipes import STAGES

    started = time.perf_counter()
    days = [(FIRST + timedelta(days=number)).isoformat() for number in range(options.days)]
    keys = [_hex("key", number, 64) for number in range(PROBLEMS)]
    accepted: list[tuple[str, str, int]] = []  # trace id, day, problem
    lake = _Writer(root / "lake")
    for number, day in enumerate(days):
        rows = _day(number, options.traces)
        chosen = _write_day(lake, day, rows, keys)
        accepted += chosen
        _write_window(lake, day, accepted, keys)
        fed = _write_checkpoints(lake, day, accepted, keys, options.fed)
        print(f"{day}: {options.traces} traces, {len(accepted)} accepted so far", file=sys.stderr)
    lake.write(tables.PROBLEM_SUITES, days[-1], len(keys[:1]), problem_key=keys[:1], problem_id=["p"], suite_id="s")
    covered = {
        f"{table}/{day}": lake.digest(table, day) for table in ("judged_traces", "problem_suites") for day in days
    }
    _write_clusters(lake, days[-1], keys, {name: digest for name, digest in covered.items() if digest})
    trace = fed[len(fed) // 2]
    miner = f"miner-{int(hashlib.sha256(trace.partition(':')[0].encode()).hexdigest(), 16) % MINERS:04d}"
    subjects = {
        "checkpoints": {stage: f"{stage}-{days[-1]}-{_hex(stage, len(days) - 1, 12)}" for stage in STAGES},
        "trace": trace,
        "generated": _generated("resft", len(days) - 1, options.fed)[0][0],
        "run": trace.partition(":")[0],
        "miner": miner,
        "traces": options.days * options.traces,
    }
    (root / "subjects.json").write_text(json.dumps(subjects), "utf-8")
    size = sum(path.stat().st_size for path in (root / "lake").rglob("*") if path.is_file())
    print(f"built in {time.perf_counter() - started:.0f} s, {size / 2**30:.2f} GiB", file=sys.stderr)


def _hex(kind: str, number: int, digits: int) -> str:
    return hashlib.sha256(f"{kind}{number}".encode()).hexdigest()[:digits]


def _miner(run: str) -> str:
    return f"miner-{int(hashlib.sha256(run.encode()).hexdigest(), 16) % MINERS:04d}"


def _day(number: int, traces: int) -> list[tuple[str, str, int]]:
    """(run, miner, problem) of the day's traces, sorted by trace id."""
    rows = []
    for place in range(traces):
        run = _hex(f"run{number}-", place // PER_RUN, 32)
        rows.append((run, (place * 7919 + number) % PROBLEMS))
    miners = {run: _miner(run) for run in {run for run, _ in rows}}
    rows.sort(key=lambda row: (row[0], f"p{row[1]:05d}"))
    return [(run, miners[run], problem) for run, problem in rows]


class _Writer:
    """Delta partitions in the platform's layout, from columns; whatever is not given is a constant of its type."""

    def __init__(self, root: Path) -> None:
        from trajectory_platform.lake.publish import Lake

        root.mkdir(parents=True, exist_ok=True)
        self.lake = Lake(str(root))

    def write(
        self, table: Any, day: str, rows: int, part: dict[str, str] | None = None, facts: Any = None, **columns: Any
    ) -> None:
        """``columns``: a list of values, or one value for all rows. ``facts``: of the manifest."""
        from trajectory_platform.lake import manifests, snapshots, staging, value_index

        where = manifests.slot(table, day, part)
        data = _table(table, rows, {"day": day, **(part or {}), **columns})
        if table.big_text:
            with staging.staging_folder(self.lake.storage, table.name) as folder:
                after = snapshots.replace_files(
                    self.lake.storage, where, staging.stage(where, data.to_batches(max_chunksize=8192), folder)
                )
        else:
            after = snapshots.replace_rows(self.lake.storage, where, data)
        told = {"inputs": {}, "settings": {}, "summary": {}, **(facts or {})}
        manifest = manifests.Manifest(
            table=table.name, day=day, part=where.part, identity=f"{where}", content_digest=_hex(str(where), 0, 64),
            table_version=after.version, rows=rows, complete=True, code_version="1", files=after.of(where), **told,
        )  # fmt: skip
        manifests.save(self.lake.storage, where, manifest)
        value_index.write(self.lake.storage, table, manifest.files)

    def digest(self, table: str, day: str) -> str | None:
        found = self.lake.manifest(table, day)
        return None if found is None else found.content_digest


def _table(table: Any, rows: int, columns: dict[str, Any]) -> Any:
    import pyarrow as pa

    plain = {"text": "x", "int": 0, "float": 0.0, "bool": True, "texts": [], "time": None}
    arrays = []
    for field in table.schema():
        kind = table.columns[field.name]
        default = None if kind.endswith("?") else table.values.get(field.name, (plain[kind],))[0]
        value = columns.get(field.name, default)
        if isinstance(value, list) and not kind.startswith("texts"):
            arrays.append(pa.array(value, field.type))
        elif value is None:
            arrays.append(pa.nulls(rows, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), rows))
    return pa.table(arrays, schema=table.schema())


def _write_day(
    lake: _Writer, day: str, rows: list[tuple[str, str, int]], keys: list[str]
) -> list[tuple[str, str, int]]:
    from trajectory_platform.lake import tables

    ids = [f"{run}:p{problem:05d}" for run, _, problem in rows]
    runs, miners, problems = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    names = [f"p{problem:05d}" for problem in problems]
    common: dict[str, Any] = {"trace_id": ids, "problem_id": names, "category": "product"}
    who: dict[str, Any] = {"eval_run_id": runs, "miner_hotkey": miners, "suite_id": "s"}
    count = len(ids)
    hashes = [hashlib.sha256(one.encode()).hexdigest() for one in ids]
    lake.write(tables.RAW_TRACES, day, count, **common, **who, state="trace", folder_day=day)
    lake.write(
        tables.TRAJECTORIES, day, count, **common, **who, content_hash=hashes, messages="[]", tools="[]", repairs="[]",
        evidence="{}", source_steps="[]",
    )  # fmt: skip
    of_key = [keys[problem] for problem in problems]
    lake.write(tables.JUDGED_TRACES, day, count, **common, suite_id="s", problem_key=of_key, outcome_success=True)
    lake.write(
        tables.VERDICTS, day, count, trace_id=ids, judge_kind="rules", reasoning_quality=0.8, score_regime="rules"
    )
    kept = [place for place, one in enumerate(hashes) if int(one[:8], 16) < ACCEPTED * 2**32]
    left = sorted(set(range(count)) - set(kept))
    lake.write(tables.REJECTED_TRACES, day, len(left), trace_id=[ids[place] for place in left], reason="axis_b")
    chosen: dict[str, Any] = {
        "trace_id": [ids[place] for place in kept],
        "eval_run_id": [runs[place] for place in kept],
        "miner_hotkey": [miners[place] for place in kept],
        "problem_id": [names[place] for place in kept],
        "problem_key": [of_key[place] for place in kept],
        "content_hash": [hashes[place] for place in kept],
        "strategy_cluster": [f"strategy-{hashes[place][:2]}" for place in kept],
    }
    lake.write(
        tables.AXIS_A_CORPUS, day, len(kept), **chosen, axis_label="A", messages="[]", tools="[]", quality=1.0,
        judge_kind="rules", score_regime="rules", category="product",
    )  # fmt: skip
    return [(ids[place], day, problems[place]) for place in kept]


def _write_window(lake: _Writer, day: str, accepted: list[tuple[str, str, int]], keys: list[str]) -> None:
    from trajectory_platform.lake import tables

    rows = sorted(accepted)
    lake.write(
        tables.LEAK_GUARDED_SPLITS, day, len(rows), trace_id=[row[0] for row in rows],
        trace_day=[row[1] for row in rows], problem_key=[keys[row[2]] for row in rows],
        cluster_id=[f"c{row[2]}" for row in rows], pool="train",
    )  # fmt: skip
    lake.write(tables.SPLIT_EXCLUSIONS, day, 1, trace_id="none:none", trace_day=day, reason="no_cluster")


def _write_clusters(lake: _Writer, day: str, keys: list[str], inputs: dict[str, str]) -> None:
    import pyarrow as pa

    from trajectory_platform.lake import tables

    order = sorted(range(len(keys)), key=lambda place: keys[place])
    pools = ["sealed" if place % 10 == 0 else "train" for place in order]
    names = pa.array([[f"p{place:05d}" for place in (one,)] if one % 10 == 0 else [] for one in order])
    table = _table(
        tables.LEAK_CLUSTERS, len(keys), {"day": day, "problem_key": [keys[place] for place in order], "pool": pools,
        "cluster_id": [f"c{place}" for place in order]},
    )  # fmt: skip
    index = table.schema.get_field_index("problem_ids")
    table = table.set_column(index, table.schema.field(index), names.cast(table.schema.field(index).type))
    lake.lake.publish(
        tables.LEAK_CLUSTERS, day, table, identity="x", inputs=inputs, code_version="1", settings={"pool_sealed": 10}
    )


def _write_checkpoints(
    lake: _Writer, day: str, accepted: list[tuple[str, str, int]], keys: list[str], fed: int
) -> list[str]:
    """Five stages of a day, each the child of the one before; returns the traces of the last."""
    from trajectory_platform.lake import tables
    from trajectory_platform.training.checkpoints import trace_list_digest
    from trajectory_platform.training.stage_recipes import STAGES

    number = (date.fromisoformat(day) - FIRST).days
    parent = None
    usable = [row for row in accepted if row[2] % 10]
    for place, stage in enumerate(STAGES):
        name = f"{stage}-{day}-{_hex(stage, number, 12)}"
        rows = sorted(usable, key=lambda row: hashlib.md5(f"{place}{row[0]}".encode()).digest())[:fed]
        made: list[tuple[str, str, int]] = []
        if stage == "resft" and parent is not None:
            made = _write_generated(lake, day, stage, parent, keys, fed)
        listed = sorted([*((*row, "train") for row in rows), *((*row, "generated") for row in made)])
        ids, roles = [row[0] for row in listed], [row[3] for row in listed]
        digest = trace_list_digest([{"role": role, "trace_id": one} for one, role in zip(ids, roles, strict=True)])
        lake.write(
            tables.CHECKPOINT_TRACES, day, len(listed), {"stage": stage}, checkpoint_id=name, trace_id=ids, role=roles,
            weight=1.0, trace_day=[row[1] for row in listed], problem_key=[keys[row[2]] for row in listed],
            cluster_id=[f"c{row[2]}" for row in listed],
        )  # fmt: skip
        seen = sorted({row[1] for row in rows})
        inputs = {f"axis_a_corpus/{one}": {"content_digest": "x", "table_version": 1, "rows": 1} for one in seen}
        manifest = {
            "inputs": inputs, "recipe": {"name": "generated", "stages": {}}, "seeds": {"training": 0},
            "code_version": "1", "packages": {}, "rows": {}, "metrics": {"steps": 100}, "trace_list_digest": digest,
        }  # fmt: skip
        lake.write(
            tables.CHECKPOINTS, day, 1, {"stage": stage}, {"summary": {"checkpoint_id": name, "run_seconds": 100.0}},
            checkpoint_id=name, parent=parent, path=name, manifest=json.dumps(manifest), trace_list_digest=digest,
            traces=len(ids),
        )  # fmt: skip
        parent = name
    return [row[0] for row in rows]


def _generated(stage: str, number: int, fed: int) -> list[tuple[str, int]]:
    """(trace id, problem) of the attempts of a parent, sorted; every second one is accepted."""
    run = _hex(f"{stage}{number}-", 0, 32)
    return [(f"{run}:p{place % PROBLEMS:05d}#{place:05d}", place % PROBLEMS) for place in range(max(2, fed // 10))]


def _write_generated(
    lake: _Writer, day: str, stage: str, parent: str, keys: list[str], fed: int
) -> list[tuple[str, str, int]]:
    """What the parent made for a stage; returns the accepted ones as (trace id, day, problem)."""
    from trajectory_platform.lake import tables

    rows = sorted(_generated(stage, (date.fromisoformat(day) - FIRST).days, fed))
    accepted = [place % 2 == 0 for place in range(len(rows))]
    lake.write(
        tables.GENERATED_TRACES, day, len(rows), {"stage": stage}, trace_id=[row[0] for row in rows], source=parent,
        problem_id=[f"p{row[1]:05d}" for row in rows], problem_key=[keys[row[1]] for row in rows],
        cluster_id=[f"c{row[1]}" for row in rows], category="product", accepted=accepted, outcome="success",
        content_hash=[hashlib.sha256(row[0].encode()).hexdigest() for row in rows], messages="[]", tools="[]",
    )  # fmt: skip
    return [(row[0], day, row[1]) for row, kept in zip(rows, accepted, strict=True) if kept]


# -- the questions --


def measure(root: Path, repeat: int) -> list[dict[str, Any]]:
    """One row per question, the least seconds of ``repeat`` answers."""
    subjects = json.loads((root / "subjects.json").read_text("utf-8"))
    rows = []
    for question, words in _questions(subjects).items():
        cold = _least(repeat, partial(_cold, root, words))
        warm = _warm(root, words, repeat)
        plain = _least(repeat, partial(_duckdb, root, question, subjects))
        rows.append(
            {
                "question": question,
                **{"cold_s": cold[0], "cold_cpu_s": cold[1], "warm_s": warm[0], "warm_cpu_s": warm[1]},
                **{"duckdb_s": plain[0], "duckdb_cpu_s": plain[1], "ratio": warm[1] / max(plain[1], 1e-9)},
                "traces": subjects["traces"],
            }
        )
    return rows


def _questions(subjects: dict[str, Any]) -> dict[str, list[str]]:
    retract = ["lineage", "retract", "--dry-run", "--json"]
    checkpoints: dict[str, str] = subjects["checkpoints"]
    return {
        **{f"checkpoint {stage}": ["lineage", "checkpoint", name, "--json"] for stage, name in checkpoints.items()},
        "trace": ["lineage", "trace", subjects["trace"], "--json"],
        "trace generated": ["lineage", "trace", subjects["generated"], "--json"],
        "retract trace": [*retract, subjects["trace"]],
        "retract run": [*retract, subjects["run"]],
        "retract miner": [*retract, subjects["miner"]],
    }


def _least(repeat: int, once: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    found = [once() for _ in range(repeat)]
    return min(wall for wall, _ in found), min(cpu for _, cpu in found)


def _environment(root: Path) -> dict[str, str]:
    return {**os.environ, "TRAJECTORY_PLATFORM_LAKE_URI": str(root / "lake"), "OMP_NUM_THREADS": "1"}


def _cold(root: Path, words: list[str]) -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    command = [sys.executable, "-c", COMMAND, *words]
    subprocess.run(command, env=_environment(root), check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _warm(root: Path, words: list[str], repeat: int) -> tuple[float, float]:
    """In this process, after a first answer that does not count."""
    from datetime import UTC, datetime

    from trajectory_platform.lake.publish import Lake
    from trajectory_platform.lineage import questions, retraction_plan

    lake = Lake(str(root / "lake"))
    subject = words[-1] if words[1] == "retract" else words[2]
    ask: dict[str, Callable[[], Any]] = {
        "checkpoint": lambda: questions.about_checkpoint(lake, subject),
        "trace": lambda: questions.about_trace(lake, subject, at=datetime.now(UTC)),
        "retract": lambda: retraction_plan.plan(lake, subject),
    }
    answer = ask[words[1]]
    assert answer() is not None
    return _least(repeat, lambda: _timed(answer))


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    started, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - cpu


def _duckdb(root: Path, question: str, subjects: dict[str, Any]) -> tuple[float, float]:
    """The rows that name the subject, by plain scans of the tables that the question reads."""
    import duckdb

    def scan() -> None:
        with duckdb.connect(":memory:", config={"threads": "1"}) as connection:
            for query in _scans(root, question, subjects):
                connection.sql(query).fetchall()

    return _timed(scan)


def _scans(root: Path, question: str, subjects: dict[str, Any]) -> Iterator[str]:
    def files(table: str) -> str:
        return f"read_parquet('{root}/lake/{table}/day=*/**/*.parquet', hive_partitioning = true)"

    traced = f"select trace_id from {files('checkpoint_traces')}"
    if question.startswith("checkpoint"):
        name = subjects["checkpoints"][question.partition(" ")[2]]
        chain = f"checkpoint_id like '%-{name[-23:-13]}-%'"
        sums = "select checkpoint_id, role, count(*), sum(weight)"
        yield f"{sums} from {files('checkpoint_traces')} where {chain} group by all"
        yield (
            f"select miner_hotkey, day, strategy_cluster, judge_kind, count(*) from {files('axis_a_corpus')} "
            f"where trace_id in ({traced} where checkpoint_id = '{name}') group by all"
        )
        return
    name = question.removeprefix("retract ")
    if question == "trace generated":
        own = f"trace_id = '{subjects['generated']}'"
        yield f"select trace_id, source from {files('generated_traces')} where {own}"
        yield f"select checkpoint_id, role from {files('checkpoint_traces')} where {own}"
        return
    if question == "trace":
        for table in ("raw_traces", "trajectories", "judged_traces", "verdicts", "axis_a_corpus", "rejected_traces"):
            yield f"select trace_id, day from {files(table)} where trace_id = '{subjects['trace']}'"
        yield f"select trace_id, day from {files('leak_guarded_splits')} where trace_id = '{subjects['trace']}'"
    column = {"trace": "trace_id", "run": "eval_run_id", "miner": "miner_hotkey"}[name]
    ids = f"select trace_id from {files('raw_traces')} where {column} = '{subjects[name]}'"
    yield (
        f"select checkpoint_id, role, count(*), sum(weight) from {files('checkpoint_traces')} "
        f"where trace_id in ({ids}) group by all"
    )


if __name__ == "__main__":
    main()
