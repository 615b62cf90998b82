"""Train one checkpoint in this process: ``python -m trajectory_platform.training.process JOB.json``.

The job names a Parquet file of rows (see ``launch.ROW_COLUMNS``), the resolved recipe, the id and place of the
checkpoint, what it is made of, and the clusters that are held out. Without the guard's list nothing is trained.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import Report, run_child


def work(job: dict[str, Any], report: Report) -> dict[str, Any]:
    """Train, write the checkpoint, move it into place; returns {"checkpoint": name, "mlflow_run": id or None}."""
    import pyarrow.parquet as parquet

    from trajectory_platform.training import tracking
    from trajectory_platform.training.checkpoints import publish_checkpoint
    from trajectory_platform.training.datasets import rows_of
    from trajectory_platform.training.recipe import Recipe
    from trajectory_platform.training.sft import train_sft

    recipe = Recipe.model_validate(job["recipe"])
    table = parquet.read_table(job["rows"])
    _check_guard(job, table.column("leak_cluster").to_pylist())
    rows, dropped = rows_of(table)
    scratch, root, name = Path(job["scratch"]), Path(job["checkpoint_root"]), job["checkpoint_id"]
    # MLflow's own variable, read where the process starts: a URI may hold a password and stays out of job and lake
    uri = job.get("tracking_uri") or os.environ.get("MLFLOW_TRACKING_URI")
    tags = {"stage": recipe.stage, "day": job["day"], "identity": job["identity"]}
    run_id = tracking.open_run(uri, name=name, params=_flat(job["recipe"]), tags=tags, report=report)
    report("loading torch and trl")
    try:
        trained = train_sft(rows, dropped, recipe, scratch=scratch, report=report)
        _write(scratch / "checkpoint", job, recipe, trained)
        publish_checkpoint(scratch / "checkpoint", root, name)
    except BaseException:
        tracking.close_run(uri, run_id, history=[], finished=False, report=report)
        raise
    tracking.close_run(uri, run_id, history=trained.history, finished=True, report=report)
    shutil.rmtree(scratch / "trainer", ignore_errors=True)
    report(f"checkpoint {name}")
    return {"checkpoint": name, "mlflow_run": run_id}


def _check_guard(job: dict[str, Any], clusters: list[str]) -> None:
    if "held_out_clusters" not in job:
        raise FailPartition("the job has no list of held-out clusters; without the leak guard nothing is trained")
    leaked = sorted(set(clusters) & set(job["held_out_clusters"]))
    if leaked:
        raise FailPartition(f"leak: training rows of held-out clusters {', '.join(leaked[:20])}; nothing was trained")


def _write(folder: Path, job: dict[str, Any], recipe: Any, trained: Any) -> None:
    from trajectory_platform.training.checkpoints import package_versions, trace_list_digest, write_checkpoint

    lists = ("dropped_rows", "cut_rows", "duplicate_rows")
    counts = {key: value for key, value in trained.report.items() if key not in lists}
    manifest = {
        "checkpoint_id": job["checkpoint_id"],
        "stage": recipe.stage,
        "day": job["day"],
        "parent": job["parent"],
        "identity": job["identity"],
        "code_version": job["code_version"],
        "inputs": job["inputs"],
        "recipe": recipe.model_dump(mode="json"),
        "seeds": {"training": recipe.seed},
        "packages": package_versions(),
        "trace_list_digest": trace_list_digest(list(trained.times)),
        "traces": len(trained.times),
        "offered_traces": job["offered_traces"],
        "held_out_clusters": len(job["held_out_clusters"]),
        "rows": {**counts, **{key: len(trained.report[key]) for key in lists}},
        "metrics": trained.metrics,
    }
    write_checkpoint(
        folder,
        model=trained.model,
        tokenizer=trained.tokenizer,
        recipe_yaml=recipe.to_yaml(),
        manifest=manifest,
        rows_report={"rows": trained.report, "times": trained.times, "history": trained.history, "run": trained.run},
    )


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        if isinstance(entry, dict):
            flat |= _flat(entry, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = entry
    return flat


if __name__ == "__main__":
    sys.exit(run_child(sys.argv[1], work))
