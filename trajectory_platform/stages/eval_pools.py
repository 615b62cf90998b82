"""What an evaluation takes from the lake and the raw days: the problems of a pool, the guard, the world, the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.identity import digest_lines
from trajectory_platform.lake import ledger, tables
from trajectory_platform.lineage import ledger as lineage
from trajectory_platform.stages.checkpoints import seen_rows
from trajectory_platform.stages.context import StageContext, input_digests
from trajectory_platform.stages.references import references_of

if TYPE_CHECKING:
    from trajectory_platform.evaluation.eval_problems import EvalProblem, Selection
    from trajectory_platform.evaluation.turn_rewards import Reference
    from trajectory_platform.lake.publish import Lake
    from trajectory_platform.sandbox.products import ProductCatalogue

FRESH = "fresh"
BENCHMARK = "benchmark"
"""Pool of the problems of a registered benchmark that the lake has not sealed; its name follows a colon."""
POOLS = ("dev", "sealed", FRESH, "all", f"{BENCHMARK}:NAME")
"""What may be named for an evaluation."""
CONTAMINATED, WITHHELD = "contaminated", "withheld"


class Evaluable(NamedTuple):
    """The problems of a pool that a checkpoint may be measured on, and how many of the pool it may not be.

    Attributes:
        contaminated: problems of which it has seen a variant.
        withheld: problems of a benchmark that the lake has sealed, where nobody said why they are looked at.
    """

    problems: list[EvalProblem]
    contaminated: int
    withheld: int = 0


def evaluable_clusters(problems: Iterable[EvalProblem]) -> int:
    """How many leak clusters can be evaluated: those of the problems with a query and a reward."""
    return len({one.cluster_id for one in problems if one.problem.reward is not None and one.problem.query})


def what_was_there(
    listed: Sequence[EvalProblem], selection: Selection, left_out: Mapping[str, int], pool: str
) -> dict[str, Any]:
    """What stands beside the metrics: what the choice was made from.

    Args:
        listed: the problems of the pool that may be evaluated. left_out: reason -> problems (rows) that may not be.

    Raises:
        Abort: nothing is chosen; the message says why.
    """
    contaminated, withheld = (left_out.get(name, 0) for name in (CONTAMINATED, WITHHELD))
    unreadable = {reason: count for reason, count in left_out.items() if reason not in (CONTAMINATED, WITHHELD)}
    if not selection.chosen:
        lacking = len(selection.no_reward)
        refused = ", ".join(f"{reason} {count}" for reason, count in unreadable.items())
        raise Abort(
            f"nothing to attempt: pool {pool} holds {lacking} problems, none with a query and a reward"
            + (f"; rows that cannot be read: {refused}" if refused else "")
            + (f"; {contaminated} were trained on" if contaminated else "")
            + (f"; {withheld} are sealed in the lake: --sealed REASON opens them" if withheld else "")
        )
    return {
        "pool": pool,
        "available_problems": selection.available,
        "available_clusters": evaluable_clusters(listed),
        "contaminated_problems": contaminated,
        **({"withheld_problems": withheld} if withheld else {}),
        "unreadable_problems": unreadable,
    }


def pool_line(told: Mapping[str, Any]) -> str:
    """``what_was_there``, or the summary of an evaluation, for people: what could be measured and what was left out."""
    left = [
        (told.get("contaminated_problems", 0), "of which a variant was trained on"),
        (told.get("withheld_problems", 0), "sealed in the lake"),
    ]
    out = ", ".join(f"{count} {why}" for count, why in left if count)
    clusters = told.get("available_clusters")
    inside = "" if clusters is None else f" in {clusters} clusters"
    can = f"pool {told['pool']}: {told['available_problems']} problems{inside} can be evaluated"
    return can + (f"; left out: {out}" if out else "")


def check_pool(ctx: StageContext, pool: str) -> None:
    """Raises Abort for a pool that nobody knows, or a benchmark that is not registered."""
    name = benchmark_of(pool)
    if name is None and pool not in POOLS:
        raise Abort(f"pool {pool!a}: choose one of {', '.join(POOLS)}")
    known = [one.name for one in ctx.settings.benchmarks]
    if name is not None and name not in known:
        raise Abort(f"benchmark {name!a} is not registered in the settings; registered: {', '.join(known) or 'none'}")


def benchmark_of(pool: str) -> str | None:
    """The name of the benchmark that a pool stands for; None for the other pools."""
    kind, _, name = pool.partition(":")
    return name if kind == BENCHMARK and name else None


def evaluable(
    ctx: StageContext,
    day: str,
    suite_days: Sequence[str],
    pool: str,
    checkpoint_id: str | None,
    *,
    sealed_too: bool = False,
) -> Evaluable:
    """``pool_problems``, without those that a merge or a hold-out has joined to training rows since the training.

    Such problems are counted, not fatal: when the checkpoint was trained they were not known to be alike. Where the
    leak clusters are still those of the training, an overlap is a leak and stops the evaluation. Of a benchmark
    (``benchmark:NAME``) every problem counts that the checkpoint and its ancestors have seen no variant of: variants of
    it may be training data unless the settings seal it.

    Args:
        sealed_too: of ``fresh`` and of benchmarks also the sealed ones.

    Raises:
        Abort: the benchmark is not registered.
        FailPartition: as ``pool_problems``; or the clusters were made without the benchmark.
    """
    name = benchmark_of(pool)
    if name is not None:
        from trajectory_platform.stages.benchmark_pool import benchmark_problems

        check_pool(ctx, pool)
        whole = benchmark_problems(ctx, day, name)
        able = [one for one in whole if sealed_too or one.problem.pool != "sealed"]
        trained = [] if checkpoint_id is None else seen_rows(ctx, checkpoint_id)
        keys, clusters = _seen(ctx, day, trained)
        clean = [one.problem for one in able if not (one.keys & keys or one.clusters & clusters)]
        return Evaluable(clean, len(able) - len(clean), len(whole) - len(able))
    if pool == FRESH:
        listed = pool_problems(ctx, day, suite_days, "dev", None)
        listed += pool_problems(ctx, day, suite_days, "sealed", None) if sealed_too else []
        newest, suites = newest_suite(ctx, day, suite_days), _suites(ctx, day)
        found = [one for one in listed if suites[one.problem.problem_key] == [newest]]
        rows: Iterable[Mapping[str, Any]] = _seen_by_any(ctx, day)
    elif checkpoint_id is None or pool == "all" or not _clusters_moved(ctx, day, checkpoint_id):
        return Evaluable(pool_problems(ctx, day, suite_days, pool, checkpoint_id), 0)
    else:
        found = pool_problems(ctx, day, suite_days, pool, None)
        rows = seen_rows(ctx, checkpoint_id)
    left = _unseen(ctx, day, found, rows)
    return Evaluable(left, len(found) - len(left))


def pool_inputs(ctx: StageContext, day: str, suite_days: Sequence[str], pool: str) -> dict[str, str]:
    """What a pool depends on besides clusters and suites: ``fresh`` on what any checkpoint has seen, a benchmark on its
    file and on why problems are variants of its own.

    Raises:
        Abort: the benchmark is not registered, or its file cannot be read.
    """
    name = benchmark_of(pool)
    if name is not None:
        from trajectory_platform.splits.benchmarks import registered

        check_pool(ctx, pool)
        edges = input_digests(ctx, {tables.LEAK_EDGES.name: [day]})
        return edges | registered(one for one in ctx.settings.benchmarks if one.name == name)
    if pool != FRESH:
        return {}
    found = evaluable(ctx, day, suite_days, FRESH, None, sealed_too=True)
    return {FRESH: digest_lines(sorted(one.problem.problem_key for one in found.problems))}


def newest_suite(ctx: StageContext, day: str, suite_days: Sequence[str]) -> str | None:
    """The suite whose first day is the latest, the last by id among several; None when no suite is known."""
    from trajectory_platform.splits.pools import suite_first_days

    listed = ctx.lake.read(tables.PROBLEM_SUITES, list(suite_days), columns=["suite_id", "day"])
    first = suite_first_days([listed], date.fromisoformat(day))
    return max(first, key=lambda suite: (first[suite], suite), default=None)


def _suites(ctx: StageContext, day: str) -> dict[str, list[str]]:
    """Problem key -> the suites it was ever in."""
    rows = ctx.lake.read(tables.LEAK_CLUSTERS, [day], columns=["problem_key", "suite_ids"]).to_pylist()
    return {row["problem_key"]: row["suite_ids"] for row in rows}


def _seen_by_any(ctx: StageContext, day: str) -> list[dict[str, Any]]:
    """(problem_key, cluster_id) of whatever any checkpoint up to a day was trained on."""
    import pyarrow.compute as pc

    columns = ["problem_key", "cluster_id"]
    rows = ctx.lake.read(
        tables.CHECKPOINT_TRACES, columns=columns, filter=(pc.field("day") <= day) & (pc.field("role") != "dev"),
        ordered=False,
    )  # fmt: skip
    seen: list[dict[str, Any]] = rows.group_by(columns).aggregate([]).to_pylist()
    return seen


def _unseen(
    ctx: StageContext, day: str, problems: Sequence[EvalProblem], rows: Iterable[Mapping[str, Any]]
) -> list[EvalProblem]:
    """The problems in none of the clusters that were trained on."""
    keys, clusters = _seen(ctx, day, rows)
    return [one for one in problems if one.cluster_id not in clusters and one.problem.problem_key not in keys]


def _seen(ctx: StageContext, day: str, rows: Iterable[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
    """Problem keys and clusters of rows that were trained on, clusters as recorded then and as they are now."""
    listed = ctx.lake.read(tables.LEAK_CLUSTERS, [day], columns=["problem_key", "cluster_id"]).to_pylist()
    present = {row["problem_key"]: row["cluster_id"] for row in listed}
    keys: set[str] = set()
    clusters: set[str] = set()
    for row in rows:
        keys.add(row["problem_key"])
        clusters |= {row["cluster_id"], present.get(row["problem_key"], row["cluster_id"])}
    return keys, clusters


def references_for(ctx: StageContext, day: str, chosen: Sequence[EvalProblem]) -> dict[str, Reference]:
    """``references_of`` the problems to be attempted, each from its own pool; of a benchmark from the open ones."""
    wanted: dict[str, set[str]] = {}
    for one in chosen:
        for pool in ("train", "dev") if one.pool == BENCHMARK else (one.pool,):
            wanted.setdefault(pool, set()).add(one.problem.problem_key)
    found: dict[str, Reference] = {}
    for pool, keys in sorted(wanted.items()):
        found |= references_of(ctx, day, keys, pool=pool)
    return found


def _clusters_moved(ctx: StageContext, day: str, checkpoint_id: str) -> bool:
    """Are the leak clusters of a day others than those that a checkpoint or an ancestor was trained under?"""
    manifest = ctx.lake.manifest(tables.LEAK_CLUSTERS, day)
    family = lineage.family(ctx.lake)
    for name in (checkpoint_id, *lineage.ancestors(family, checkpoint_id)):
        row = lineage.checkpoint_row(ctx.lake, name, [family[name]["day"]]) if name in family else None
        inputs = row["manifest"]["inputs"] if row is not None else {}
        recorded = {entry["content_digest"] for key, entry in inputs.items() if key.startswith("leak_clusters/")}
        if manifest is not None and recorded and recorded != {manifest.content_digest}:
            return True
    return False


def pool_problems(
    ctx: StageContext, day: str, suite_days: Sequence[str], pool: str, checkpoint_id: str | None
) -> list[EvalProblem]:
    """The problems of a pool (``all``: of every pool) as of a day; neither a checkpoint nor any of its ancestors has
    seen one of them.

    Raises:
        FailPartition: the clusters are not published, or a problem of the pool, attempted later or not, or a variant
            of one, was trained on. ``all`` holds the train pool by its name and is not tested.
    """
    from trajectory_platform.evaluation import eval_problems

    if ctx.lake.manifest(tables.LEAK_CLUSTERS, day) is None:
        raise FailPartition(f"eval_set_missing: the leak clusters of {day} are not published")
    clusters = ctx.lake.read(tables.LEAK_CLUSTERS, [day]).to_pylist()
    suites = ctx.lake.read(tables.PROBLEM_SUITES, list(suite_days)).to_pylist()
    wanted = ("train", "dev", "sealed") if pool == "all" else (pool,)
    problems = [one for name in wanted for one in eval_problems.lake_problems(clusters, suites, pool=name)]
    if checkpoint_id is not None and pool != "all":
        eval_problems.assert_unseen(problems, seen_rows(ctx, checkpoint_id), clusters)
    return problems


def index_folder(ctx: StageContext, day: str, catalogue: ProductCatalogue) -> Path:
    """The index folder that a process maps: a small catalogue, which this process holds in memory, gets one too."""
    from trajectory_platform.sandbox.catalogue_index import build_index
    from trajectory_platform.sandbox.store import CatalogueStore

    if isinstance(catalogue, CatalogueStore):
        return Path(catalogue.folder).resolve()
    uri = ctx.source.open_day(date.fromisoformat(day)).catalogue_uri
    assert uri is not None, "a catalogue was loaded a moment ago"
    folder = build_index(ctx.source.read(uri), ctx.settings.index_root)
    if not folder.name.startswith(catalogue.digest):
        raise FailPartition(f"{day}: the catalogue {uri} changed while it was read; run the day again")
    return folder.resolve()


def record_sealed(
    lake: Lake, *, checkpoint_id: str, problems: Sequence[EvalProblem], detail: str, reason: str | None, at: datetime
) -> None:
    """One line in the ledger for the sealed ones among problems about to be attempted; none where there is none.

    Args:
        checkpoint_id: who attempts them, as ``eval_scores`` will name it. ``detail``: which evaluation of which day.

    Raises:
        Abort: no reason. FailPartition: it cannot be recorded.
    """
    keys = [one.problem.problem_key for one in problems if one.pool == "sealed"]
    if not keys:
        return
    if not (reason or "").strip():
        raise Abort("sealed problems are attempted only with a reason: it is recorded in the lake's ledger")
    what = ledger.EVALUATION
    ledger.record(lake, what=what, reason=reason, at=at, keys=keys, checkpoint_id=checkpoint_id, detail=detail)
