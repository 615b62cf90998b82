"""From a checkpoint and the dev pool to ``action_scores``: choose, guard, run the process, read the scores."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.action_metrics import action_metrics
from trajectory_platform.evaluation.child import Runner, run_job
from trajectory_platform.evaluation.guard import assert_no_overlap
from trajectory_platform.evaluation.plan import ActionPlan
from trajectory_platform.evaluation.texts import chosen_texts
from trajectory_platform.lake.tables import ACTION_SCORES

if TYPE_CHECKING:
    import pyarrow as pa


class ActionResult(NamedTuple):
    """``scores`` in the ``action_scores`` schema, ``metrics`` as of ``action_metrics``, counts of the run."""

    scores: pa.Table
    metrics: dict[str, Any]
    counts: dict[str, Any]


def dev_rows(splits: pa.Table, use: str = "sft") -> list[dict[str, Any]]:
    """Rows of the dev pool whose actions are worth imitating (they carry ``use``), sorted by trace id."""
    rows = [row for row in splits.to_pylist() if row["pool"] == "dev" and use in row["uses"]]
    return sorted(rows, key=lambda row: str(row["trace_id"]))


def evaluate_actions(
    *,
    checkpoint: str | Path,
    day: str,
    stage: str,
    splits: pa.Table | None,
    corpus: pa.Table | Iterable[pa.RecordBatch],
    trained: pa.Table,
    plan: ActionPlan,
    runner: Runner | None = None,
) -> ActionResult:
    """Score a checkpoint on the dev traces of a window. A day without any gives no rows and says ``no_dev_traces``.

    Args:
        splits: ``leak_guarded_splits``; None is an error, because an evaluation set is never taken from the training
            rows (case C14).
        corpus: ``axis_a_corpus`` rows with the messages of the dev traces.
        trained: ``checkpoint_traces`` rows of the checkpoint; nothing of them may be among the dev traces.

    Raises:
        FailPartition: ``eval_set_missing``, a leak, a missing row, or the process died.
    """
    if splits is None:
        raise FailPartition("eval_set_missing: pass the dev pool; none is ever cut from the training rows")
    chosen = dev_rows(splits)
    assert_no_overlap(trained.to_pylist(), chosen)
    if not chosen:
        return ActionResult(ACTION_SCORES.schema().empty_table(), action_metrics([], plan), {"dev_traces": 0})
    from trajectory_platform.evaluation.process import read_policy

    place = Path(checkpoint)
    _, threads = read_policy(place)
    folder = Path(tempfile.mkdtemp(prefix="action-scores-"))
    try:
        _write_rows(chosen, corpus, folder / "rows.parquet")
        job = {
            "checkpoint": str(place.resolve()),
            "checkpoint_id": place.name,
            "day": day,
            "stage": stage,
            "rows": str(folder / "rows.parquet"),
            "out": str(folder / "scores.parquet"),
            "plan": plan.model_dump(mode="json"),
        }
        result = run_job("trajectory_platform.evaluation.process", job, folder, threads=threads, runner=runner)
        import pyarrow.parquet as parquet

        scores = parquet.read_table(folder / "scores.parquet", schema=ACTION_SCORES.schema())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    counts = {"dev_traces": len(chosen), **result["counts"], "skipped_turns": result["skipped_turns"]}
    return ActionResult(scores, action_metrics(scores.to_pylist(), plan), counts)


def _write_rows(chosen: list[dict[str, Any]], corpus: pa.Table | Iterable[pa.RecordBatch], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    names = ("trace_id", "category", "cluster_id", "messages", "tools")
    rows = [{**row, **record} for row, record in chosen_texts(chosen, corpus)]
    schema = pa.schema([(name, pa.string()) for name in names])
    parquet.write_table(
        pa.Table.from_pylist([{name: row[name] for name in names} for row in rows], schema=schema), path
    )
