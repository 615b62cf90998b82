"""Train one checkpoint in this process: ``python -m trajectory_platform.training.process JOB.json``.

The job names the stage, a Parquet file of rows (see ``launch.ROW_COLUMNS``), the resolved recipe, the parent, the id
and place of the checkpoint, what it is made of, and what is held out. Without the guard's lists nothing is trained.
Killed and started again, it goes on from its last own trainer checkpoint (``training.resume``).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajectory_platform.errors import FailPartition
from trajectory_platform.evaluation.child import Report, Reporter, rank, run_child, wait_for_ranks

if TYPE_CHECKING:
    from trajectory_platform.training.tracking import Mirror

LISTS = ("dropped_rows", "cut_rows", "duplicate_rows")


def work(job: dict[str, Any], report: Report) -> dict[str, Any]:
    """Train, write the checkpoint, move it into place; returns {"checkpoint": name, "mlflow_run": id or None}.

    Of several ranks the first holds the claim, writes and reports; all of them train.

    Raises:
        RetryLater: another process is training this checkpoint.
    """
    from trajectory_platform.training.checkpoints import verify_checkpoint
    from trajectory_platform.training.resume import PROGRESS, claim, finished

    root, name = Path(job["checkpoint_root"]), job["checkpoint_id"]
    if rank() > 0:
        if not (root / name).exists():
            _train(job, root / PROGRESS / name, report)
        return {"checkpoint": name, "mlflow_run": None}
    with claim(root, name) as folder:
        if (root / name).exists():  # another process finished it while this one was starting
            verify_checkpoint(root / name)
            run_id = None
        else:
            run_id = _tracked(job, root, folder, report)
        finished(folder)
    report(f"checkpoint {name}")
    return {"checkpoint": name, "mlflow_run": run_id}


def _tracked(job: dict[str, Any], root: Path, folder: Path, report: Report) -> str | None:
    """Train and publish, mirrored to MLflow; returns the id of the run there."""
    from trajectory_platform.training.checkpoints import publish_checkpoint

    scratch = Path(job["scratch"])
    mirror = _mirror(job, root, report)
    report("loading torch and trl")
    try:
        rows, trained = _train(job, folder, report)
        digest = _write(scratch / "checkpoint", job, rows, trained)
        publish_checkpoint(scratch / "checkpoint", root, job["checkpoint_id"])
    except BaseException:
        mirror.close(finished=False)
        raise
    mirror.close(finished=True, history=trained.history, numbers=trained.metrics, traces_digest=digest)
    return mirror.run_id


def _mirror(job: dict[str, Any], root: Path, report: Report) -> Mirror:
    from trajectory_platform.training import tracking
    from trajectory_platform.training.checkpoints import list_checkpoints
    from trajectory_platform.training.recipe import Recipe

    facts = tracking.Facts(
        checkpoint_id=job["checkpoint_id"],
        stage=job["stage"],
        day=job["day"],
        identity=job["identity"],
        parent=job["parent"]["checkpoint_id"] if job["parent"] else None,
        params=_flat(job["recipe"]),
        inputs=job["inputs"],
        long={"recipe.yaml": Recipe.model_validate(job["recipe"]).recorded().to_yaml()},
    )
    # MLflow's own variable, read where the process starts: a URI may hold a password and stays out of job and lake
    uri = job.get("tracking_uri") or os.environ.get("MLFLOW_TRACKING_URI")
    mirror = tracking.open_mirror(uri, facts, finished=lambda: list_checkpoints(root), report=report)
    if isinstance(report, Reporter):
        report.listeners.append(mirror.log)
    return mirror


def _train(job: dict[str, Any], folder: Path, report: Report) -> tuple[Any, Any]:
    """(rows, what the stage's trainer made of them)."""
    import pyarrow.parquet as parquet

    from trajectory_platform.training.datasets import rows_of
    from trajectory_platform.training.recipe import Recipe
    from trajectory_platform.training.trained import Rows, trainer_of

    table = parquet.read_table(job["rows"])
    _check_guard(job, table.column("leak_cluster").to_pylist(), table.column("trace_id").to_pylist())
    rows = Rows(*rows_of(table))
    parent = job["parent"]
    trained = trainer_of(job["stage"])(
        rows,
        Recipe.model_validate(job["recipe"]),
        job["stage"],
        parent=Path(parent["folder"]) if parent else None,
        folder=folder,
        files={name: Path(path) for name, path in job["files"].items()},
        report=report,
    )
    wait_for_ranks()  # a rank that died on the way publishes nothing
    return rows, trained


def _check_guard(job: dict[str, Any], clusters: list[str], traces: list[str]) -> None:
    """Neither a leak cluster nor a row of the held-out pools is among the training rows (case C14)."""
    if "held_out_clusters" not in job or "held_out_traces" not in job:
        raise FailPartition("the job has no list of held-out clusters; without the leak guard nothing is trained")
    leaked = sorted({*clusters, *traces} & {*job["held_out_clusters"], *job["held_out_traces"]})
    if leaked:
        raise FailPartition(f"leak: training rows of held-out clusters {', '.join(leaked[:20])}; nothing was trained")


def _write(folder: Path, job: dict[str, Any], rows: Any, trained: Any) -> str:
    """Write the checkpoint; returns the digest of its trace list."""
    from trajectory_platform.training.checkpoints import package_versions, trace_list_digest, write_checkpoint
    from trajectory_platform.training.recipe import Recipe

    recipe = Recipe.model_validate(job["recipe"]).recorded()
    traces = traces_of(rows.rows, trained.times)
    counts = {key: value for key, value in trained.report.items() if key not in LISTS}
    manifest = {
        "checkpoint_id": job["checkpoint_id"],
        "stage": job["stage"],
        "day": job["day"],
        "parent": job["parent"]["checkpoint_id"] if job["parent"] else None,
        "ancestors": job["ancestors"],
        "base": job["base"],
        "identity": job["identity"],
        "code_version": job["code_version"],
        "inputs": job["inputs"],
        "recipe": recipe.model_dump(mode="json"),
        "recipe_digest": job["recipe_digest"],
        "seeds": {"training": recipe.seed},
        "packages": package_versions(),
        "trace_list_digest": trace_list_digest(traces),
        "traces": len({row["trace_id"] for row in traces}),
        "roles": _counted(traces),
        "offered_traces": job["offered_traces"],
        "held_out_clusters": len(job["held_out_clusters"]),
        "rows": {**counts, **{key: len(trained.report.get(key, [])) for key in LISTS}},
        "metrics": trained.metrics,
    }
    times: dict[str, float] = {}
    for row in traces:
        times[row["trace_id"]] = times.get(row["trace_id"], 0.0) + row["weight"]
    write_checkpoint(
        folder,
        model=trained.model,
        tokenizer=trained.tokenizer,
        recipe_yaml=recipe.to_yaml(),
        manifest=manifest,
        rows_report={
            "rows": trained.report,
            "traces": traces,
            "times": times,
            "history": trained.history,
            "run": trained.run,
        },
        state=trained.state,
        loss_mask=trained.loss_mask,
    )
    return str(manifest["trace_list_digest"])


def traces_of(rows: Any, times: dict[tuple[str, str], float]) -> list[dict[str, Any]]:
    """The rows that were used, each with its role, weight and origin, as ``checkpoint_traces`` wants them.

    Raises:
        FailPartition: the trainer used what it was not given; no origin is made up.
    """
    given = {row.key: row for row in rows}
    strange = sorted(set(times) - set(given))
    if strange:
        raise FailPartition(f"trained on rows that were not given: {', '.join(map(str, strange[:20]))}")
    return [
        {
            "trace_id": trace_id,
            "role": role,
            "weight": float(times[trace_id, role]),
            "trace_day": given[trace_id, role].trace_day,
            "problem_key": given[trace_id, role].problem_key,
            "cluster_id": given[trace_id, role].leak_cluster,
        }
        for trace_id, role in sorted(times)
    ]


def _counted(traces: list[dict[str, Any]]) -> dict[str, int]:
    roles = sorted({row["role"] for row in traces})
    return {role: sum(row["role"] == role for row in traces) for role in roles}


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
