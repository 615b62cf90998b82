"""From published splits and corpus rows to a checkpoint: choose, guard, write the job, run it, read the result."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.evaluation.child import Runner, run_job
from trajectory_platform.evaluation.guard import assert_no_overlap
from trajectory_platform.evaluation.texts import chosen_texts
from trajectory_platform.identity import identity_digest
from trajectory_platform.lake.tables import CHECKPOINT_TRACES, CHECKPOINTS
from trajectory_platform.splits.guard import assert_disjoint
from trajectory_platform.training import checkpoints
from trajectory_platform.training.recipe import Recipe

if TYPE_CHECKING:
    import pyarrow as pa

CODE_VERSION = "sft-1"  # raise it when the same inputs would give another model
TOO_FEW = "too_few_traces"
ROW_COLUMNS = ("trace_id", "leak_cluster", "problem_key", "trace_day", "weight", "messages", "tools")


class CheckpointResult(NamedTuple):
    """What a stage did for a day.

    Attributes:
        status: ``trained``, ``reused`` (the same checkpoint was there, verified) or ``skipped``.
        reason: why it was skipped (``too_few_traces``), else None.
        checkpoints: the row for the ``checkpoints`` table (no rows when skipped).
        traces: the rows for ``checkpoint_traces`` (no rows when skipped).
        metrics: losses, counts and speed for people.
    """

    checkpoint_id: str | None
    status: str
    reason: str | None
    path: Path | None
    manifest: dict[str, Any] | None
    checkpoints: pa.Table
    traces: pa.Table
    metrics: dict[str, Any]


def training_rows(splits: pa.Table, use: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rows of the train pool with this use, rows of the other pools), each sorted by trace id; the guard has passed.

    Raises:
        FailPartition: pools are not disjoint, or a training row shares anything with a held-out one (fault test 11).
    """
    assert_disjoint(splits)
    rows = sorted(splits.to_pylist(), key=lambda row: str(row["trace_id"]))
    held_out = [row for row in rows if row["pool"] != "train"]
    train = [row for row in rows if row["pool"] == "train" and use in row["uses"]]
    assert_no_overlap(train, held_out)
    return train, held_out


def checkpoint_identity(recipe: Recipe, inputs: Mapping[str, Mapping[str, Any]], parent: str | None) -> str:
    """Identity digest of a checkpoint: content digests of its input partitions, code version, resolved recipe.

    ``inputs`` maps a name (``axis_a_corpus/2026-05-02``) to at least ``content_digest``; table versions are recorded
    in the manifest and do not enter.
    """
    return identity_digest(
        stage=recipe.stage,
        code_version=CODE_VERSION,
        inputs={name: str(entry["content_digest"]) for name, entry in inputs.items()},
        settings={"recipe": recipe.identity(), "parent": parent},
    )


def train_checkpoint(
    *,
    day: str,
    splits: pa.Table,
    corpus: pa.Table | Iterable[pa.RecordBatch],
    recipe: Recipe,
    seed: int,
    inputs: Mapping[str, Mapping[str, Any]],
    checkpoint_root: str | Path,
    held_out_clusters: Iterable[str] = (),
    parent: str | None = None,
    runner: Runner | None = None,
    tracking_uri: str | None = None,
) -> CheckpointResult:
    """Train the stage of a recipe as of a day, or find that the very same checkpoint is already there.

    Args:
        splits: ``leak_guarded_splits`` as of the day.
        corpus: ``axis_a_corpus`` rows (table or batches) that contain the traces of the train pool.
        inputs: see :func:`checkpoint_identity`; stored in the manifest as given.
        held_out_clusters: dev and sealed clusters known beyond the window (``leak_clusters``); those of ``splits``
            are always added.
        runner: how the process is started (Dagster Pipes); plainly when None.

    Raises:
        FailPartition: a leak, a missing or damaged row, too many rows lost, or the process died.
    """
    recipe = recipe.resolved(seed)
    train, held_out = training_rows(splits, recipe.stage)
    clusters = sorted({*held_out_clusters, *(row["cluster_id"] for row in held_out)})
    if len(train) < recipe.min_traces:
        metrics = {"train_traces": len(train), "min_traces": recipe.min_traces}
        return _result(day, recipe, None, None, "skipped", TOO_FEW, {}, train, metrics)
    identity = checkpoint_identity(recipe, inputs, parent)
    name = checkpoints.checkpoint_id(recipe.stage, day, identity)
    root = Path(checkpoint_root)
    if (root / name).exists():
        return _finished(day, recipe, root / name, train, "reused")
    checkpoints.sweep_scratch(root)
    scratch = checkpoints.scratch_folder(root, name)
    try:
        write_rows(train, corpus, scratch / "rows.parquet")
        job = {
            "checkpoint_id": name,
            "checkpoint_root": str(root.resolve()),
            "scratch": str(scratch.resolve()),
            "rows": str((scratch / "rows.parquet").resolve()),
            "recipe": recipe.model_dump(mode="json"),
            "day": day,
            "parent": parent,
            "identity": identity,
            "code_version": CODE_VERSION,
            "inputs": {key: dict(value) for key, value in inputs.items()},
            "offered_traces": len(train),
            "held_out_clusters": clusters,
            "tracking_uri": tracking_uri,
        }
        done = run_job("trajectory_platform.training.process", job, scratch, threads=recipe.threads, runner=runner)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    result = _finished(day, recipe, root / name, train, "trained")
    return result._replace(metrics={**result.metrics, "mlflow_run": done["mlflow_run"] or ""})


def write_rows(train: list[dict[str, Any]], corpus: pa.Table | Iterable[pa.RecordBatch], path: Path) -> None:
    """The job's row file (``ROW_COLUMNS``): every training row once, text columns as they are in the lake.

    Batches are filtered as they come, so memory is bounded by the train pool. Raises ``FailPartition`` when the corpus
    lacks a row that the splits name.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rows = [
        {
            "trace_id": record["trace_id"],
            "leak_cluster": row["cluster_id"],
            "problem_key": row["problem_key"],
            "trace_day": row["trace_day"],
            "weight": row["quality"],
            "messages": record["messages"],
            "tools": record["tools"],
        }
        for row, record in chosen_texts(train, corpus)
    ]
    kinds = {name: pa.float64() if name == "weight" else pa.string() for name in ROW_COLUMNS}
    table = pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))
    parquet.write_table(table, path, compression="zstd")


def _finished(day: str, recipe: Recipe, folder: Path, train: list[dict[str, Any]], status: str) -> CheckpointResult:
    manifest = checkpoints.verify_checkpoint(folder)
    report = json.loads((folder / "rows_report.json").read_text("utf-8"))
    metrics = {
        **manifest["metrics"],
        **{f"rows_{key}": value for key, value in manifest["rows"].items()},
        "offered_traces": manifest["offered_traces"],
        "run": report["run"],
    }
    return _result(day, recipe, folder, manifest, status, None, report["times"], train, metrics)


def _result(
    day: str,
    recipe: Recipe,
    folder: Path | None,
    manifest: dict[str, Any] | None,
    status: str,
    reason: str | None,
    times: Mapping[str, int],
    train: list[dict[str, Any]],
    metrics: dict[str, Any],
) -> CheckpointResult:
    import pyarrow as pa

    name = folder.name if folder is not None else None
    rows: list[dict[str, Any]] = []
    if manifest is not None:
        text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
        rows = [
            {
                "checkpoint_id": name,
                "day": day,
                "stage": recipe.stage,
                "parent": manifest["parent"],
                "path": name,
                "manifest": text,
                "trace_list_digest": manifest["trace_list_digest"],
                "traces": manifest["traces"],
            }
        ]
    traces = [
        {
            "checkpoint_id": name,
            "day": day,
            "stage": recipe.stage,
            "trace_id": row["trace_id"],
            "role": "train",
            "weight": float(times[row["trace_id"]]),
            "trace_day": row["trace_day"],
            "problem_key": row["problem_key"],
            "cluster_id": row["cluster_id"],
        }
        for row in train
        if row["trace_id"] in times
    ]
    return CheckpointResult(
        checkpoint_id=name,
        status=status,
        reason=reason,
        path=folder,
        manifest=manifest,
        checkpoints=pa.Table.from_pylist(rows, schema=CHECKPOINTS.schema()),
        traces=pa.Table.from_pylist(traces, schema=CHECKPOINT_TRACES.schema()),
        metrics=metrics,
    )
