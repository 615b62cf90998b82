"""``contamination``: what every checkpoint of the lake has seen of the problems it is measured on, as of a day.

The stage looks at all checkpoints up to the day, not at the day's own: a merge, a late reward, a retracted run or a new
benchmark changes what an old checkpoint may be credited with, and each of them changes an input of the stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort
from trajectory_platform.lake import tables
from trajectory_platform.stages.context import Output, Produced, StageContext, StageResult, input_digests, run_stage
from trajectory_platform.stages.splits import (
    corpus_messages,
    days_up_to,
    held_out_index,
)
from trajectory_platform.stages.text import shown

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.lake.tables import Table
    from trajectory_platform.settings import Settings
    from trajectory_platform.splits.clusters import BenchmarkProblems
    from trajectory_platform.splits.contamination import Asked
    from trajectory_platform.splits.ngrams import Overlap

STAGES = ("sft",)  # stages of training whose checkpoints are looked at
USES = {"sft": "sft"}  # stage of training -> the use its rows must have
_LEAST_OVERLAP = 0.2  # smaller shares of a query are ordinary phrases and are not reported
_NAMED = 20


def contamination(ctx: StageContext, day: str, *, stage: str = STAGES[0]) -> StageResult:
    """Status of every (checkpoint, problem) as of ``day``, for the checkpoints of one stage of training.

    Problems: those of the dev and sealed pools, those of registered benchmarks, and whatever a checkpoint was evaluated
    on. The summary names the flagged checkpoints, also those whose training rows were withdrawn since.
    """
    from trajectory_platform.splits import benchmarks, contamination

    part = {"stage": stage}
    files = benchmarks.registered(ctx.settings.benchmarks)
    days = {
        table.name: days_up_to(ctx, table, day)
        for table in (tables.PROBLEM_SUITES, tables.JUDGED_TRACES, tables.RAW_TRACES, tables.AXIS_A_CORPUS)
    }
    as_of = {"leak_clusters": [day], "leak_edges": [day], "leak_hints": [day]}

    def body() -> Produced:
        traced = _of_stage(ctx, tables.CHECKPOINT_TRACES, day, stage)
        rows = _rows(ctx, day, stage, traced, benchmarks.load(ctx.settings.benchmarks, files))
        stale = contamination.stale_training_rows(
            traced.to_pylist(),
            ctx.lake.read(tables.RAW_TRACES, days["raw_traces"], columns=["trace_id", "day", "state"]),
            ctx.lake.read(tables.AXIS_A_CORPUS, days["axis_a_corpus"], columns=["trace_id", "day", "uses"]),
            use=USES.get(stage),
        )
        return Produced([Output(tables.CONTAMINATION, rows, part=part)], _summary(traced, rows, stale))

    made = (tables.CHECKPOINT_TRACES, tables.EVAL_SCORES)
    inputs = [input_digests(ctx, {**days, **as_of})]
    inputs += [input_digests(ctx, {table.name: days_up_to(ctx, table, day)}, part) for table in made]
    return run_stage(
        ctx,
        stage="contamination",
        day=day,
        code_version=contamination.VERSION,
        tables=(tables.CONTAMINATION,),
        inputs={name: value for found in (*inputs, files) for name, value in found.items()},
        body=body,
        part=part,
    )


def _rows(ctx: StageContext, day: str, stage: str, traced: pa.Table, files: Sequence[BenchmarkProblems]) -> pa.Table:
    from trajectory_platform.splits import contamination
    from trajectory_platform.splits.clusters import BENCHMARK_KEY
    from trajectory_platform.splits.ngrams import Known

    clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [day])
    hints = ctx.lake.read(tables.LEAK_HINTS, [day])
    scores = _of_stage(ctx, tables.EVAL_SCORES, day, stage, ["checkpoint_id", "problem_key"])
    evaluated: dict[str, set[str]] = {}
    for name, key in zip(scores["checkpoint_id"].to_pylist(), scores["problem_key"].to_pylist(), strict=True):
        evaluated.setdefault(name, set()).add(key)
    texts = [
        Known(f"{BENCHMARK_KEY}{one.name}:{row['problem_key']}", "", row["query"])
        for one in files
        for row in one.problems.select(["problem_key", "query"]).to_pylist()
        if row["query"]
    ]
    overlaps = _overlaps(ctx, day, clusters, traced, set().union(*evaluated.values()), texts)
    seen = contamination.seen_by(traced.to_pylist(), clusters, overlaps)
    common = _held_out(clusters) + _of_benchmarks(ctx, day, clusters, files)
    asked = {one.checkpoint_id: _asked(common, clusters, evaluated.get(one.checkpoint_id, set())) for one in seen}
    return contamination.contamination_rows(
        seen, asked, contamination.near_clusters(hints, clusters), day=day, stage=stage
    )


def _of_stage(ctx: StageContext, table: Table, day: str, stage: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Rows of one stage of training of all days up to ``day``."""
    import pyarrow.compute as pc

    days = days_up_to(ctx, table, day)
    return ctx.lake.read(table, days, columns=columns, filter=pc.field("stage") == stage)


def _overlaps(
    ctx: StageContext,
    day: str,
    clusters: pa.Table,
    traced: pa.Table,
    evaluated: set[str],
    texts: Sequence[Any],
) -> dict[tuple[str, str], list[Overlap]]:
    """(trace id, trace day) -> queries that the row holds a piece of. A row whose text is gone has none."""
    from trajectory_platform.splits.ngrams import NgramIndex

    indexes = [held_out_index(ctx, day, clusters, evaluated)]
    if texts:
        indexes.append(NgramIndex(texts, background=texts))
    rows = set(zip(traced["trace_id"].to_pylist(), traced["trace_day"].to_pylist(), strict=True))
    days = sorted({trace_day for _, trace_day in rows})
    found = {}
    for trace_id, trace_day, _, messages in corpus_messages(ctx, days, rows):
        pieces = [piece for index in indexes for piece in index.overlaps(messages, least=_LEAST_OVERLAP)]
        if pieces:
            found[trace_id, trace_day] = pieces
    return found


def _held_out(clusters: pa.Table) -> list[Asked]:
    from trajectory_platform.splits.contamination import Asked

    names = ("problem_key", "pool", "cluster_id")
    rows = zip(*(clusters[name].to_pylist() for name in names), strict=True)
    return [Asked(key, pool, (cluster,)) for key, pool, cluster in rows if pool != "train"]


def _asked(common: Sequence[Asked], clusters: pa.Table, evaluated: set[str]) -> list[Asked]:
    """The common problems, and those of the train pool or of no cluster that a checkpoint was evaluated on."""
    from trajectory_platform.splits.contamination import Asked

    further = evaluated - {one.problem_key for one in common}
    if not further:
        return list(common)
    names = ("problem_key", "pool", "cluster_id")
    facts = {row["problem_key"]: row for row in clusters.select(names).to_pylist() if row["problem_key"] in further}
    known = [Asked(key, row["pool"], (row["cluster_id"],)) for key, row in facts.items()]
    return [*common, *known, *(Asked(key, "", ()) for key in further - facts.keys())]


def _of_benchmarks(ctx: StageContext, day: str, clusters: pa.Table, files: Sequence[BenchmarkProblems]) -> list[Asked]:
    from trajectory_platform.splits.benchmarks import ties
    from trajectory_platform.splits.clusters import BENCHMARK_KEY
    from trajectory_platform.splits.contamination import BENCHMARK_POOL, Asked

    if not files:
        return []
    rows = zip(clusters["problem_key"].to_pylist(), clusters["cluster_id"].to_pylist(), strict=True)
    cluster_of = dict(rows)
    tied = ties(ctx.lake.read(tables.LEAK_EDGES, [day]))
    found = []
    for one in files:
        for key in sorted(set(one.problems["problem_key"].to_pylist())):
            name = f"{BENCHMARK_KEY}{one.name}:{key}"
            joined = {cluster_of[own] for own in tied.get(name, ()) if own in cluster_of}
            found.append(Asked(name, BENCHMARK_POOL, tuple(sorted(joined))))
    return found


def _summary(traced: pa.Table, rows: pa.Table, stale: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts, and per flagged checkpoint why. A checkpoint is flagged for a variant or for withdrawn rows; hints only
    are counted."""
    statuses = Counter(rows["status"].to_pylist())
    names = ("checkpoint_id", "pool", "status")
    per = Counter(zip(*(rows[name].to_pylist() for name in names), strict=True))
    reasons = Counter((row["checkpoint_id"], row["reason"]) for row in stale)
    flagged: dict[str, dict[str, int]] = {}
    for (name, pool, status), count in sorted(per.items()):
        if status == "same_cluster":
            flagged.setdefault(name, {})[f"{pool or 'unplaced'}_problems"] = count
    for (name, reason), count in sorted(reasons.items()):
        flagged.setdefault(name, {})[f"traces_{reason}"] = count
    return {
        "checkpoints": len(set(traced["checkpoint_id"].to_pylist())),
        "flagged_checkpoints": len(flagged),
        "rows": rows.num_rows,
        **{status: statuses[status] for status in ("clean", "same_cluster", "near")},
        "stale_traces": len({(row["checkpoint_id"], row["trace_id"]) for row in stale}),
        "flagged": dict(sorted(flagged.items())),
    }


def contamination_report(ctx: StageContext, day: str) -> list[dict[str, Any]]:
    """Per checkpoint as of a day, for reports: rows {checkpoint_id, flags, all, clean, contaminated, near}.

    ``flags`` are the reasons of the summary in words; the others ``contamination.clean_and_dirty_scores``.
    """
    from trajectory_platform.splits.contamination import clean_and_dirty_scores

    rows = ctx.lake.read(tables.CONTAMINATION, [day]).to_pylist()
    flagged: dict[str, dict[str, int]] = {}
    for manifest in ctx.lake.manifests(tables.CONTAMINATION, [day]):
        flagged |= dict((manifest.summary or {}).get("flagged", {}))
    columns = ["checkpoint_id", "problem_key", "outcome", "success"]
    scores = ctx.lake.read(tables.EVAL_SCORES, days_up_to(ctx, tables.EVAL_SCORES, day), columns=columns)
    measured = clean_and_dirty_scores(scores.to_pylist(), rows)
    names = sorted({row["checkpoint_id"] for row in rows} | flagged.keys())
    nothing: dict[str, Any] = {"problems": 0, "attempts": 0, "success": None}
    return [
        {
            "checkpoint_id": name,
            "flags": [f"{count} {reason.replace('_', ' ')}" for reason, count in flagged.get(name, {}).items()],
            **{group: measured.get(name, {}).get(group, nothing) for group in ("all", "clean", "contaminated", "near")},
        }
        for name in names
    ]


def contamination_text(ctx: StageContext, day: str) -> str:
    """``contamination_report`` for people: the clean score, and what contaminated problems would make of it."""
    report = contamination_report(ctx, day)
    if not report:
        return f"contamination as of {day}: no checkpoints"
    lines = [f"contamination as of {day}"]
    for row in report:
        lines.append(f"  {row['checkpoint_id']}  {'; '.join(row['flags']) or 'nothing it was trained on is held out'}")
        if row["all"]["problems"]:
            told = (f"{group} {_share(row[group])}" for group in ("clean", "contaminated", "all"))
            lines.append(f"    success: {', '.join(told)}")
    return "\n".join(lines)


def _share(measured: Mapping[str, Any]) -> str:
    if measured["success"] is None:
        return "none"
    return f"{measured['success']:.1%} of {measured['problems']}"


def seen_of(
    settings: Settings, checkpoint_id: str, problems: Sequence[str] = (), *, as_of: str | None = None
) -> list[dict[str, Any]]:
    """``contamination`` rows of a checkpoint; of some problems (keys or unambiguous starts of them), or all that are
    not clean. Words of a problem that was sealed since the rows were written are withheld.

    Args:
        as_of: day of the rows; None takes the newest that has some.

    Raises:
        Abort: nothing published for this checkpoint, or a problem is unknown or ambiguous.
    """
    import pyarrow.compute as pc

    from trajectory_platform.lake.sealing import sealed
    from trajectory_platform.splits.ngrams import without_words

    ctx = StageContext(settings)
    own = pc.field("checkpoint_id") == checkpoint_id
    days = ctx.lake.days(tables.CONTAMINATION)
    for day in reversed(days) if as_of is None else [as_of] if as_of in days else []:
        rows: list[dict[str, Any]] = ctx.lake.read(tables.CONTAMINATION, [day], filter=own).to_pylist()
        if rows:
            break
    else:
        when = f" as of {as_of}" if as_of else ""
        raise Abort(
            f"no contamination rows of {shown(checkpoint_id)!a}{when}: run 'trajectory-platform train sft' first"
        )
    seal = sealed(ctx.lake)
    held = seal.keys if seal is not None else frozenset()
    rows = [row | {"detail": without_words(row["detail"])} if row["problem_key"] in held else row for row in rows]
    if not problems:
        return [row for row in rows if row["status"] != "clean"]
    return [_one(rows, start) for start in problems]


def _one(rows: Iterable[dict[str, Any]], start: str) -> dict[str, Any]:
    found = [row for row in rows if row["problem_key"].startswith(start)]
    if len(found) != 1:
        told = "is in no held-out pool and was not evaluated" if not found else f"fits {len(found)} problems"
        raise Abort(f"problem {shown(start, _NAMED)!a} {told}")
    return found[0]


def benchmark_cost(ctx: StageContext, name: str) -> list[dict[str, Any]]:
    """What training would lose if a registered benchmark were sealed: see ``benchmarks.cost_per_day``.

    Counted on the newest published window, whether the benchmark is sealed there already or not.

    Raises:
        Abort: no such benchmark, its file cannot be read, or no splits were published.
    """
    from trajectory_platform.splits import benchmarks

    chosen = [one for one in ctx.settings.benchmarks if one.name == name]
    if not chosen:
        known = ", ".join(one.name for one in ctx.settings.benchmarks) or "none"
        raise Abort(f"benchmark {shown(name)!a} is not registered; registered: {known}")
    days = ctx.lake.days(tables.LEAK_GUARDED_SPLITS)
    if not days:
        raise Abort(f"no splits in {ctx.settings.lake_uri}: run 'trajectory-platform train sft' first")
    day = days[-1]
    problems = ctx.lake.read(tables.PROBLEM_SUITES, days_up_to(ctx, tables.PROBLEM_SUITES, day))
    links = ctx.lake.read(tables.JUDGED_TRACES, days_up_to(ctx, tables.JUDGED_TRACES, day))
    clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [day])
    [file] = benchmarks.load(chosen, benchmarks.registered(chosen))
    hit = benchmarks.overlapping(problems, links, clusters, file)
    return benchmarks.cost_per_day(ctx.lake.read(tables.LEAK_GUARDED_SPLITS, [day]), hit)


def benchmark_text(ctx: StageContext, name: str) -> str:
    """``benchmark_cost`` for people."""
    rows = benchmark_cost(ctx, name)
    lost, train = sum(row["lost"] for row in rows), sum(row["train_traces"] for row in rows)
    lines = [f"sealing benchmark {shown(name)} takes {lost} of {train} training traces:"]
    lines += [f"  {row['day']}  {row['lost']:>6} of {row['train_traces']:>6}  {row['share']:>6.1%}" for row in rows]
    return "\n".join(lines)


def newly_sealed(ctx: StageContext, day: str) -> list[str]:
    """Benchmarks that the settings declare sealed and the newest clusters up to ``day`` do not: what they cost is to be
    shown (``benchmark_text``) before they are applied."""
    days = days_up_to(ctx, tables.LEAK_CLUSTERS, day)
    manifest = ctx.lake.manifest(tables.LEAK_CLUSTERS, days[-1]) if days else None
    then = manifest.inputs if manifest is not None else {}
    return [
        one.name
        for one in ctx.settings.benchmarks
        if one.sealed and not str(then.get(f"benchmark/{one.name}", "")).startswith("sealed:")
    ]
