"""The texts behind ``checkpoint_traces``, wherever they lie: corpus, generated traces, trajectories, problems; and the
pieces of problems' queries that are in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from trajectory_platform.lake import tables
from trajectory_platform.stages.context import StageContext
from trajectory_platform.stages.splits import days_up_to, held_out_index

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.splits.clusters import BenchmarkProblems
    from trajectory_platform.splits.ngrams import NgramIndex, Overlap

Key = tuple[str, str]
Text = tuple[str, str, list[dict[str, Any]]]
_ROWS = 256
_LEAST_OVERLAP = 0.2  # smaller shares of a query are ordinary phrases and are not reported


class Pieces:
    """Queries of held-out, evaluated and benchmark problems of which rows hold a piece, as of a day.

    A row is read once, however many checkpoints of however many stages were trained on it.
    """

    def __init__(self, ctx: StageContext, day: str) -> None:
        self._ctx, self._day = ctx, day
        self._indexes: list[NgramIndex] | None = None
        self._found: dict[Key, list[Overlap]] = {}

    def of(self, traced: pa.Table, files: Sequence[BenchmarkProblems]) -> Mapping[Key, list[Overlap]]:
        """(trace id, trace day) -> queries that the row holds a piece of; a row whose text is gone holds none.

        Args:
            files: the registered benchmarks, the same ones at every call.
        """
        import pyarrow as pa

        keys = list(zip(traced["trace_id"].to_pylist(), traced["trace_day"].to_pylist(), strict=True))
        fresh = [key not in self._found for key in keys]
        for key in keys:
            self._found.setdefault(key, [])
        if any(fresh):
            indexes = self._read_indexes(files)
            for trace_id, trace_day, messages in traced_texts(self._ctx, traced.filter(pa.array(fresh))):
                self._found[trace_id, trace_day] = [
                    piece for index in indexes for piece in index.overlaps(messages, least=_LEAST_OVERLAP)
                ]
        return {key: self._found[key] for key in keys if self._found[key]}

    def _read_indexes(self, files: Sequence[BenchmarkProblems]) -> list[NgramIndex]:
        from trajectory_platform.splits.clusters import BENCHMARK_KEY
        from trajectory_platform.splits.ngrams import Known, NgramIndex

        if self._indexes is None:
            ctx = self._ctx
            days = days_up_to(ctx, tables.EVAL_SCORES, self._day)
            evaluated = set(ctx.lake.read(tables.EVAL_SCORES, days, columns=["problem_key"])["problem_key"].to_pylist())
            clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [self._day])
            texts = [
                Known(f"{BENCHMARK_KEY}{one.name}:{row['problem_key']}", "", row["query"])
                for one in files
                for row in one.problems.select(["problem_key", "query"]).to_pylist()
                if row["query"]
            ]
            self._indexes = [held_out_index(ctx, self._day, clusters, evaluated)]
            self._indexes += [NgramIndex(texts, background=texts)] if texts else []
        return self._indexes


def traced_texts(ctx: StageContext, traced: pa.Table) -> Iterator[Text]:
    """(trace id, trace day, messages) of each distinct row once; of a problem that was attempted its query. A row whose
    text is gone has none."""
    names = ("trace_id", "trace_day", "role", "problem_key")
    attempted: dict[str, Key] = {}
    open_rows: set[Key] = set()
    for trace_id, day, role, key in zip(*(traced[name].to_pylist() for name in names), strict=True):
        if role == "prompt":
            attempted[key] = trace_id, day
        else:
            open_rows.add((trace_id, day))
    for table in (tables.AXIS_A_CORPUS, tables.GENERATED_TRACES, tables.TRAJECTORIES):
        for key, messages in _texts(ctx, table, frozenset(open_rows)):
            if key in open_rows:
                open_rows.discard(key)
                yield (*key, messages)
    yield from _queries(ctx, attempted)


def _texts(
    ctx: StageContext, table: tables.Table, wanted: Collection[Key]
) -> Iterator[tuple[Key, list[dict[str, Any]]]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = ["trace_id", "day", "messages"]
    own = pc.field("trace_id").isin(pa.array(sorted({name for name, _ in wanted}), pa.string()))
    for day in sorted({day for _, day in wanted}):
        if table.partition == ("day",):
            batches = ctx.lake.batches(table, day, columns=columns, batch_rows=_ROWS)
        else:  # several stages have files of one day
            batches = iter(ctx.lake.read(table, [day], columns=columns, filter=own).to_batches(max_chunksize=_ROWS))
        for batch in batches:
            for row in batch.to_pylist():
                if (row["trace_id"], row["day"]) in wanted:
                    yield (row["trace_id"], row["day"]), orjson.loads(row["messages"])


def _queries(ctx: StageContext, attempted: Mapping[str, Key]) -> Iterator[Text]:
    """The words of attempted problems (problem key -> row): the newest public ones of each."""
    if not attempted:
        return
    rows: Sequence[dict[str, Any]] = ctx.lake.read(
        tables.PROBLEM_SUITES, columns=["problem_key", "day", "query", "reward_state"]
    ).to_pylist()
    best: dict[str, tuple[bool, str, str]] = {}
    for row in rows:
        if row["query"] and row["problem_key"] in attempted:
            told = (row["reward_state"] == "public", row["day"], row["query"])
            best[row["problem_key"]] = max(best.get(row["problem_key"], told), told)
    for key, (_, _, query) in sorted(best.items()):
        yield (*attempted[key], [{"role": "user", "content": query}])
