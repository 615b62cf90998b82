"""``contamination``: what every checkpoint of the lake has seen of the problems it is measured on, as of a day.

A checkpoint has seen what its ancestors saw, and a row of them counts as its own. The stage looks at all checkpoints up
to the day, not at the day's own: a merge, a late reward, a retracted run or a new benchmark changes what an old
checkpoint may be credited with, and each of them changes an input of the stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import Abort
from trajectory_platform.lake import tables
from trajectory_platform.lineage import ledger
from trajectory_platform.lineage.retractions import RETRACTED, tombstones
from trajectory_platform.stages.benchmark_pool import benchmark_cost as benchmark_cost
from trajectory_platform.stages.benchmark_pool import benchmark_text as benchmark_text
from trajectory_platform.stages.benchmark_pool import newly_sealed as newly_sealed
from trajectory_platform.stages.context import Output, Produced, StageContext, StageResult, input_digests, run_stage
from trajectory_platform.stages.retraction import retraction_inputs
from trajectory_platform.stages.splits import days_up_to
from trajectory_platform.stages.text import shown
from trajectory_platform.stages.traced_texts import Pieces
from trajectory_platform.training.stage_recipes import STAGES

if TYPE_CHECKING:
    import pyarrow as pa

    from trajectory_platform.lake.tables import Table
    from trajectory_platform.settings import Settings
    from trajectory_platform.splits.clusters import BenchmarkProblems
    from trajectory_platform.splits.contamination import Asked

USES = {"train": "sft", "desirable": "kto_desirable", "undesirable": "kto_undesirable"}  # role -> use it must have
_OF_THE_CORPUS = (*USES, "reference")  # roles whose rows are accepted traces of miners (or generated ones)
EVALUATED = "benchmark_evaluated"
"""Pool of a benchmark problem under its own key, where a checkpoint was evaluated on it."""
_NAMED = 20


def contamination(ctx: StageContext, day: str) -> StageResult:
    """Status of every (checkpoint, problem) as of ``day``, for the checkpoints of all stages of training.

    Problems: those of the dev and sealed pools, those of registered benchmarks, and whatever a checkpoint was evaluated
    on. The summary names the flagged checkpoints, also those whose training rows were withdrawn since. A stage that
    never made a checkpoint has no slot, but the first one, which says that there is nothing.
    """
    made = {
        manifest.part["stage"]
        for manifest in ctx.lake.manifests(tables.CHECKPOINT_TRACES, days_up_to(ctx, tables.CHECKPOINT_TRACES, day))
        if manifest.rows
    }
    pieces = Pieces(ctx, day)
    results = [_of_one_stage(ctx, day, stage, pieces) for stage in STAGES if stage in made or stage == STAGES[0]]
    skipped = all(result.skipped for result in results)
    return StageResult("contamination", day, skipped, results[0].manifests, _merged(results))


def _merged(results: Sequence[StageResult]) -> dict[str, Any]:
    """Counts in sum, what is told per checkpoint side by side."""
    merged: dict[str, Any] = {}
    for result in results:
        for name, value in result.summary.items():
            held = merged.get(name)
            merged[name] = value if held is None else held | value if isinstance(value, dict) else held + value
    return merged


def _of_one_stage(ctx: StageContext, day: str, stage: str, pieces: Pieces) -> StageResult:
    from trajectory_platform.splits import benchmarks, contamination

    part = {"stage": stage}
    files = benchmarks.registered(ctx.settings.benchmarks)
    days = {
        table.name: days_up_to(ctx, table, day)
        for table in (tables.PROBLEM_SUITES, tables.JUDGED_TRACES, tables.RAW_TRACES, tables.AXIS_A_CORPUS)
    }
    as_of = {"leak_clusters": [day], "leak_edges": [day], "leak_hints": [day]}

    def body() -> Produced:
        traced = seen_table(ctx, day, stage)
        rows = _rows(ctx, day, stage, traced, benchmarks.load(ctx.settings.benchmarks, files), pieces)
        return Produced(
            [Output(tables.CONTAMINATION, rows, part=part)], _summary(traced, rows, _stale(ctx, days, traced))
        )

    inputs = [input_digests(ctx, {**days, **as_of})]
    for name in STAGES[: STAGES.index(stage) + 1]:  # an ancestor may be of any earlier stage
        fed = days_up_to(ctx, tables.CHECKPOINT_TRACES, day)
        found = input_digests(ctx, {"checkpoint_traces": fed}, {"stage": name})
        inputs.append({f"{key}/{name}": value for key, value in found.items()})
    inputs.append(input_digests(ctx, {"eval_scores": days_up_to(ctx, tables.EVAL_SCORES, day)}, part))
    inputs.append(retraction_inputs(ctx))
    return run_stage(
        ctx,
        stage="contamination",
        day=day,
        code_version=f"{contamination.VERSION},ancestors-1",
        tables=(tables.CONTAMINATION,),
        inputs={name: value for found in (*inputs, files) for name, value in found.items()},
        body=body,
        part=part,
    )


def seen_table(ctx: StageContext, day: str, stage: str) -> pa.Table:
    """``checkpoint_traces`` of one stage's checkpoints up to a day, with the rows of their ancestors as their own."""
    import pyarrow as pa

    own = _of_stage(ctx, tables.CHECKPOINT_TRACES, day, stage)
    names = sorted(set(own["checkpoint_id"].to_pylist()))
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for name, rows in ledger.seen_rows(ctx.lake, names).items():
        for row in rows:
            found.setdefault((name, row["trace_id"], row["role"]), {**row, "checkpoint_id": name, "stage": stage})
    return pa.Table.from_pylist(list(found.values()), schema=tables.CHECKPOINT_TRACES.schema())


def _stale(ctx: StageContext, days: Mapping[str, Sequence[str]], traced: pa.Table) -> list[dict[str, Any]]:
    """Training rows that would not be chosen today. What was generated has no listing and is not asked about; rows of
    the unfiltered control were never accepted, so only their listings count."""
    from trajectory_platform.splits import contamination

    raw = ctx.lake.read(tables.RAW_TRACES, days["raw_traces"], columns=["trace_id", "day", "state"])
    corpus = ctx.lake.read(tables.AXIS_A_CORPUS, days["axis_a_corpus"], columns=["trace_id", "day", "uses"])
    generated = set(ctx.lake.read(tables.GENERATED_TRACES, columns=["trace_id"]).column("trace_id").to_pylist())
    control = {row["checkpoint_id"] for row in ctx.lake.read(tables.CHECKPOINTS).to_pylist() if ledger.is_control(row)}
    listed = [row for row in traced.to_pylist() if row["role"] in _OF_THE_CORPUS and row["trace_id"] not in generated]
    found: list[dict[str, Any]] = []
    for role in _OF_THE_CORPUS:
        rows = [row for row in listed if row["role"] == role and row["checkpoint_id"] not in control]
        found += contamination.stale_training_rows(rows, raw, corpus, use=USES.get(role))
    streamed = [row for row in listed if row["checkpoint_id"] in control]
    if streamed:
        everything = raw.select(["trace_id", "day"]).append_column("uses", _empty_lists(raw.num_rows))
        found += contamination.stale_training_rows(streamed, raw, everything)
    return _with_retracted(ctx, traced.to_pylist(), found)


def _with_retracted(
    ctx: StageContext, traced: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What is stale, with the rows that fall under a retraction as ``retracted``, generated ones included."""
    stones = tombstones(ctx.lake)
    gone = stones.among(ctx.lake, {row["trace_id"] for row in traced}) if stones else {}
    rows = [dict(row) for row in found if row["trace_id"] not in gone]
    told: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in traced:
        if row["trace_id"] in gone:
            named = {name: row[name] for name in ("checkpoint_id", "trace_id", "trace_day")}
            since = gone[row["trace_id"]]["day"]
            told.setdefault(
                (row["checkpoint_id"], row["trace_id"], row["trace_day"]),
                {**named, "reason": RETRACTED, "since": since},
            )
    return sorted([*rows, *told.values()], key=lambda one: (one["checkpoint_id"], one["trace_id"], one["trace_day"]))


def _empty_lists(count: int) -> Any:
    import pyarrow as pa

    return pa.array([[]] * count, pa.list_(pa.string()))


def _rows(
    ctx: StageContext, day: str, stage: str, traced: pa.Table, files: Sequence[BenchmarkProblems], pieces: Pieces
) -> pa.Table:
    from trajectory_platform.splits import contamination

    clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [day])
    hints = ctx.lake.read(tables.LEAK_HINTS, [day])
    scores = _of_stage(ctx, tables.EVAL_SCORES, day, stage, ["checkpoint_id", "problem_key"])
    evaluated: dict[str, set[str]] = {}
    for name, key in zip(scores["checkpoint_id"].to_pylist(), scores["problem_key"].to_pylist(), strict=True):
        evaluated.setdefault(name, set()).add(key)
    seen = contamination.seen_by(traced.to_pylist(), clusters, pieces.of(traced, files))
    of_benchmarks = _of_benchmarks(ctx, day, clusters, files)
    common = _held_out(clusters) + of_benchmarks
    tied = _by_own_key(of_benchmarks)
    asked = {one.checkpoint_id: _asked(common, clusters, tied, evaluated.get(one.checkpoint_id, set())) for one in seen}
    return contamination.contamination_rows(
        seen, asked, contamination.near_clusters(hints, clusters), day=day, stage=stage
    )


def _of_stage(ctx: StageContext, table: Table, day: str, stage: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Rows of one stage of training of all days up to ``day``."""
    import pyarrow.compute as pc

    days = days_up_to(ctx, table, day)
    return ctx.lake.read(table, days, columns=columns, filter=pc.field("stage") == stage)


def _held_out(clusters: pa.Table) -> list[Asked]:
    from trajectory_platform.splits.contamination import Asked

    names = ("problem_key", "pool", "cluster_id")
    rows = zip(*(clusters[name].to_pylist() for name in names), strict=True)
    return [Asked(key, pool, (cluster,)) for key, pool, cluster in rows if pool != "train"]


def _by_own_key(of_benchmarks: Iterable[Asked]) -> dict[str, tuple[str, ...]]:
    """Problem key of a benchmark problem, as scores have it -> the clusters it is tied to."""
    found: dict[str, set[str]] = {}
    for one in of_benchmarks:
        found.setdefault(one.problem_key.rpartition(":")[2], set()).update(one.cluster_ids)
    return {key: tuple(sorted(clusters)) for key, clusters in found.items()}


def _asked(
    common: Sequence[Asked], clusters: pa.Table, tied: Mapping[str, tuple[str, ...]], evaluated: set[str]
) -> list[Asked]:
    """The common problems, and those that a checkpoint was evaluated on and that are of the train pool, of a benchmark
    (under their own key too, as in its scores) or of no cluster."""
    from trajectory_platform.splits.contamination import Asked

    further = evaluated - {one.problem_key for one in common}
    if not further:
        return list(common)
    names = ("problem_key", "pool", "cluster_id")
    facts = {row["problem_key"]: row for row in clusters.select(names).to_pylist() if row["problem_key"] in further}
    known = [Asked(key, row["pool"], (row["cluster_id"],)) for key, row in facts.items()]
    strange = sorted(further - facts.keys())
    return [*common, *known, *(Asked(key, EVALUATED if key in tied else "", tied.get(key, ())) for key in strange)]


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

    ``flags`` are the reasons of the summary in words; the others ``contamination.clean_and_dirty_scores``, each with
    the number of its ``clusters``.
    """
    from trajectory_platform.splits.contamination import clean_and_dirty_scores

    rows = ctx.lake.read(tables.CONTAMINATION, [day]).to_pylist()
    flagged: dict[str, dict[str, int]] = {}
    for manifest in ctx.lake.manifests(tables.CONTAMINATION, [day]):
        flagged |= dict((manifest.summary or {}).get("flagged", {}))
    columns = ["checkpoint_id", "problem_key", "outcome", "success", "cluster_id"]
    scores = ctx.lake.read(tables.EVAL_SCORES, days_up_to(ctx, tables.EVAL_SCORES, day), columns=columns).to_pylist()
    measured = clean_and_dirty_scores(scores, rows)
    inside = _clusters_of(scores, rows)
    names = sorted({row["checkpoint_id"] for row in rows} | flagged.keys())
    nothing: dict[str, Any] = {"problems": 0, "attempts": 0, "success": None}
    return [
        {
            "checkpoint_id": name,
            "flags": [f"{count} {reason.replace('_', ' ')}" for reason, count in flagged.get(name, {}).items()],
            **{
                group: {**measured.get(name, {}).get(group, nothing), "clusters": len(inside.get((name, group), ()))}
                for group in _GROUPS
            },
        }
        for name in names
    ]


_GROUPS = ("all", "clean", "contaminated", "near")


def _clusters_of(
    scores: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, str], set[str]]:
    """(checkpoint, group of ``clean_and_dirty_scores``) -> the clusters of its scored problems."""
    status = {(row["checkpoint_id"], row["problem_key"]): row["status"] for row in rows}
    within = {"clean": ("all", "clean"), "near": ("all", "clean", "near"), "same_cluster": ("all", "contaminated")}
    found: dict[tuple[str, str], set[str]] = {}
    for row in scores:
        if row["outcome"] != "no_reward":
            told = status.get((row["checkpoint_id"], row["problem_key"]), "")
            for group in within.get(told, ("all",)):
                found.setdefault((row["checkpoint_id"], group), set()).add(row["cluster_id"])
    return found


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
    return f"{measured['success']:.1%} of {measured['problems']} in {measured['clusters']} clusters"


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
