"""What an evaluation takes from the lake and the raw days: the problems of a pool, the guard, the world, the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.lake import ledger, tables
from trajectory_platform.stages.checkpoints import traced_rows
from trajectory_platform.stages.context import StageContext

if TYPE_CHECKING:
    from trajectory_platform.evaluation.eval_problems import EvalProblem
    from trajectory_platform.lake.publish import Lake
    from trajectory_platform.sandbox.products import ProductCatalogue

POOLS = ("dev", "sealed", "all")


def pool_problems(
    ctx: StageContext, day: str, suite_days: Sequence[str], pool: str, checkpoint_id: str | None
) -> list[EvalProblem]:
    """The problems of a pool (``all``: of every pool) as of a day; a checkpoint has seen none of them.

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
        eval_problems.assert_unseen(problems, traced_rows(ctx, day, checkpoint_id).to_pylist(), clusters)
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
