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
from trajectory_platform.stages.context import StageContext

if TYPE_CHECKING:
    from trajectory_platform.evaluation.eval_problems import EvalProblem
    from trajectory_platform.lake.publish import Lake
    from trajectory_platform.sandbox.products import ProductCatalogue

POOLS = ("dev", "sealed", "fresh", "all")
"""What may be named for an evaluation."""
FRESH = "fresh"


class Evaluable(NamedTuple):
    """The problems of a pool that a checkpoint may be measured on, and how many of the pool it may not be."""

    problems: list[EvalProblem]
    contaminated: int


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
    leak clusters are still those of the training, an overlap is a leak and stops the evaluation.

    Args:
        sealed_too: of ``fresh`` also the sealed ones.

    Raises:
        FailPartition: as ``pool_problems``.
    """
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


def fresh_inputs(ctx: StageContext, day: str, suite_days: Sequence[str], pool: str) -> dict[str, str]:
    """What ``fresh`` depends on besides clusters and suites: what any checkpoint has seen. Other pools do not."""
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
    """The problems in none of the clusters that were trained on, as recorded then and as they are now."""
    listed = ctx.lake.read(tables.LEAK_CLUSTERS, [day], columns=["problem_key", "cluster_id"]).to_pylist()
    present = {row["problem_key"]: row["cluster_id"] for row in listed}
    keys: set[str] = set()
    clusters: set[str] = set()
    for row in rows:
        keys.add(row["problem_key"])
        clusters |= {row["cluster_id"], present.get(row["problem_key"], row["cluster_id"])}
    return [one for one in problems if one.cluster_id not in clusters and one.problem.problem_key not in keys]


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
