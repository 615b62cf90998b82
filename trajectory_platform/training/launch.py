"""From guarded rows to a checkpoint of any stage: guard, write the job, run it, read the result."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajectory_platform.errors import Abort, FailPartition
from trajectory_platform.evaluation.child import Runner, run_job
from trajectory_platform.evaluation.guard import assert_no_overlap
from trajectory_platform.evaluation.texts import chosen_texts
from trajectory_platform.evaluation.turn_rewards import TURN_REWARD_VERSION
from trajectory_platform.identity import digest_json, digest_lines, identity_digest
from trajectory_platform.lake.tables import CHECKPOINT_TRACES, CHECKPOINTS
from trajectory_platform.splits.guard import assert_disjoint
from trajectory_platform.training import checkpoints, resume
from trajectory_platform.training.launching import start_of
from trajectory_platform.training.recipe import Recipe
from trajectory_platform.training.stage_recipes import GET_IT
from trajectory_platform.training.turn_faults import TURN_FAULTS_VERSION

if TYPE_CHECKING:
    import pyarrow as pa

MODULE = "trajectory_platform.training.process"
# Raise a number when the same inputs would give another model.
_VERSIONS = {
    "sft": "sft-2",
    "resft": "sft-2",
    "teacher_sft": "sft-2",
    "kto": f"kto-2,{TURN_FAULTS_VERSION}",
    "dr_grpo": f"grpo-3,{TURN_REWARD_VERSION}",
}
TOO_FEW, NO_GENERATED, ONE_CLASS = "too_few_traces", "no_generated_rows", "one_class"
_OWN_ROLES = {"resft": "generated", "teacher_sft": "teacher"}
RECORD = (
    "trace_id", "role", "trace_day", "problem_key", "cluster_id", "weight", "messages", "tools", "extra"
)  # fmt: skip
ROW_COLUMNS = tuple("leak_cluster" if name == "cluster_id" else name for name in RECORD)
_BATCH = 256  # records held while the row file is written


class Parent(NamedTuple):
    """The checkpoint a stage starts from."""

    checkpoint_id: str
    folder: Path


class CheckpointResult(NamedTuple):
    """What a stage did for a day.

    Attributes:
        status: ``trained``, ``reused`` (the same checkpoint was there, verified) or ``skipped``.
        reason: why it was skipped (``too_few_traces``, ``no_generated_rows``, ``one_class``), else None.
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


def corpus_records(
    train: list[dict[str, Any]],
    corpus: pa.Table | Iterable[pa.RecordBatch],
    *,
    role: str = "train",
    extra: Callable[[dict[str, Any], dict[str, Any]], str | None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Records (``RECORD``) of chosen rows of the splits with their texts as they are in the lake.

    Nothing is read before the first record is asked for; memory is bounded by the choice. ``extra`` makes the text of
    that field from the row of the splits and the record of the corpus.

    Raises:
        FailPartition: the corpus lacks a row that the splits name.
    """
    for row, record in chosen_texts(train, corpus):
        yield {
            "trace_id": record["trace_id"],
            "role": role,
            "trace_day": row["trace_day"],
            "problem_key": row["problem_key"],
            "cluster_id": row["cluster_id"],
            "weight": row["quality"],
            "messages": record["messages"],
            "tools": record["tools"],
            "extra": extra(row, record) if extra is not None else None,
        }


def code_version(stage: str) -> str:
    """Version of the code that makes a stage's checkpoint."""
    return _VERSIONS[stage]


def base_digest(recipe: Recipe) -> str | None:
    """Content digest of the folder ``model.base`` (names and bytes of its files), None where the model is new.

    Raises:
        Abort: the folder does not exist.
    """
    if recipe.model.base is None:
        return None
    folder = Path(recipe.model.base)
    if not folder.is_dir():
        raise Abort(f"model.base {recipe.model.base!r} is no folder here; {GET_IT}")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return digest_lines(
        part
        for path in files
        for part in (path.name, _file_digest(str(path), path.stat().st_size, path.stat().st_mtime_ns))
    )


@lru_cache(maxsize=256)
def _file_digest(path: str, size: int, changed: int) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def checkpoint_identity(recipe: Recipe, stage: str, inputs: Mapping[str, Mapping[str, Any]], parent: str | None) -> str:
    """Identity digest of a checkpoint: content digests of its inputs, code version, recipe, what it starts from.

    ``inputs`` maps a name (``axis_a_corpus/2026-05-02``) to at least ``content_digest``; table versions are recorded
    in the manifest and do not enter. A folder the model starts from enters by its content, a parent by its id, which
    digests everything in it.
    """
    return identity_digest(
        stage=stage,
        code_version=code_version(stage),
        inputs={name: str(entry["content_digest"]) for name, entry in inputs.items()},
        settings={
            "recipe": recipe.identity(stage),
            "parent": parent,
            "base": base_digest(recipe) if parent is None else None,
        },
    )


def train_checkpoint(
    *,
    day: str,
    stage: str,
    recipe: Recipe,
    seed: int,
    splits: pa.Table,
    rows: Iterable[Mapping[str, Any]],
    inputs: Mapping[str, Mapping[str, Any]],
    checkpoint_root: str | Path,
    held_out_clusters: Iterable[str] = (),
    parent: Parent | None = None,
    files: Mapping[str, str | Path] | None = None,
    runner: Runner | None = None,
    tracking_uri: str | None = None,
) -> CheckpointResult:
    """Train a stage of a recipe as of a day, go on where a killed run of it stopped, or find that it is there.

    Args:
        splits: ``leak_guarded_splits`` as of the day: no row may share anything with its held-out rows.
        rows: records with the fields of ``RECORD`` (further ones of ``evaluation.guard.SHARED_KEYS`` are compared too);
            they are not touched when the checkpoint exists.
        inputs: see :func:`checkpoint_identity`; stored as given. They must name everything rows and files come from.
        held_out_clusters: dev and sealed clusters known beyond the window (``leak_clusters``).
        parent: None starts from the base model of the recipe.
        files: further inputs of the trainer, by name. runner: starts the process (Dagster Pipes); None does it plainly.

    Raises:
        FailPartition: a leak, a missing or damaged row, too many rows lost, or the process died.
    """
    recipe = recipe.resolved(seed)
    identity = checkpoint_identity(recipe, stage, inputs, parent.checkpoint_id if parent else None)
    name = checkpoints.checkpoint_id(stage, day, identity)
    root = Path(checkpoint_root)
    assert_disjoint(splits)
    if (root / name).exists():
        return _finished(day, root / name, "reused")
    held_out = [row for row in splits.to_pylist() if row["pool"] != "train"]
    checkpoints.sweep_scratch(root)
    resume.sweep_progress(root)
    scratch = checkpoints.scratch_folder(root, name)
    try:
        offered = write_rows(rows, held_out, scratch / "rows.parquet")
        reason = _why_not(stage, recipe, offered)
        if reason is not None:
            return _result(day, stage, None, None, "skipped", reason, [], _counts(offered, recipe))
        job = {
            **_asked(stage, day, recipe, name, identity, parent),
            **_places(root, scratch, files or {}),
            **_held_out(held_out, held_out_clusters),
            "inputs": {key: dict(value) for key, value in inputs.items()},
            "offered_traces": offered.traces,
            "tracking_uri": tracking_uri,
        }
        start = start_of(recipe, scratch)
        done = run_job(MODULE, job, scratch, threads=recipe.threads, runner=runner, start=start)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    result = _finished(day, root / name, "trained")
    return result._replace(metrics={**result.metrics, "mlflow_run": done["mlflow_run"] or ""})


def _asked(stage: str, day: str, recipe: Recipe, name: str, identity: str, parent: Parent | None) -> dict[str, Any]:
    """What is to be made, for the job file."""
    plain = recipe.model_dump(mode="json")
    recorded = recipe.recorded().model_dump(mode="json")
    return {
        "stage": stage,
        "day": day,
        "checkpoint_id": name,
        "recipe": plain,
        "recipe_digest": digest_json(recorded),
        **_origin(recipe, parent),
        "identity": identity,
        "code_version": code_version(stage),
    }


def _places(root: Path, scratch: Path, files: Mapping[str, str | Path]) -> dict[str, Any]:
    return {
        "checkpoint_root": str(root.resolve()),
        "scratch": str(scratch.resolve()),
        "rows": str((scratch / "rows.parquet").resolve()),
        "files": {key: str(Path(path).resolve()) for key, path in files.items()},
    }


def _held_out(rows: list[dict[str, Any]], clusters: Iterable[str]) -> dict[str, list[str]]:
    return {
        "held_out_clusters": sorted({*clusters, *(row["cluster_id"] for row in rows)}),
        "held_out_traces": sorted({row["trace_id"] for row in rows}),
    }


class Offered(NamedTuple):
    """What a job's row file holds: distinct traces (references apart) and rows by role."""

    traces: int
    roles: dict[str, int]


def write_rows(rows: Iterable[Mapping[str, Any]], held_out: list[dict[str, Any]], path: Path) -> Offered:
    """The job's row file (``ROW_COLUMNS``), written as the rows come; each has passed the guard.

    Raises:
        FailPartition: a row shares anything with a held-out one, or lacks its leak cluster or problem.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    schema = pa.schema([(name, pa.float64() if name == "weight" else pa.string()) for name in ROW_COLUMNS])
    traces: set[str] = set()
    roles: dict[str, int] = {}
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in _batches(rows):
            for record in batch:
                if not record["cluster_id"] or not record["problem_key"]:
                    raise FailPartition(f"training row {record['trace_id']} has no leak cluster or no problem")
                roles[record["role"]] = roles.get(record["role"], 0) + 1
                if record["role"] != "reference":
                    traces.add(record["trace_id"])
            assert_no_overlap(batch, held_out)
            flat = [
                {column: record[name] for column, name in zip(ROW_COLUMNS, RECORD, strict=True)} for record in batch
            ]
            writer.write_table(pa.Table.from_pylist(flat, schema=schema))
    return Offered(len(traces), dict(sorted(roles.items())))


def _counts(offered: Offered, recipe: Recipe) -> dict[str, Any]:
    return {"train_traces": offered.traces, "min_traces": recipe.min_traces, **offered.roles}


def _batches(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    batch: list[Mapping[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _why_not(stage: str, recipe: Recipe, offered: Offered) -> str | None:
    """Why the stage is not trained on these rows, or None."""
    own = _OWN_ROLES.get(stage)
    if own is not None and not offered.roles.get(own):
        return NO_GENERATED
    if offered.traces < recipe.min_traces:
        return TOO_FEW
    if stage == "kto" and not (offered.roles.get("desirable") and offered.roles.get("undesirable")):
        return ONE_CLASS
    return None


def _origin(recipe: Recipe, parent: Parent | None) -> dict[str, Any]:
    """What a checkpoint starts from, down to the base model: ``parent``, ``ancestors`` (base first), ``base``."""
    if parent is None:
        digest = base_digest(recipe)
        base = {"folder": Path(str(recipe.model.base)).name, "digest": digest} if digest else None
        return {"parent": None, "ancestors": [], "base": base}
    manifest = checkpoints.verify_checkpoint(parent.folder)
    if manifest["checkpoint_id"] != parent.checkpoint_id:
        raise FailPartition(f"{parent.folder} holds {manifest['checkpoint_id']}, not {parent.checkpoint_id}")
    own = {key: manifest[key] for key in ("checkpoint_id", "stage", "identity", "trace_list_digest")}
    return {
        "parent": {"checkpoint_id": parent.checkpoint_id, "folder": str(parent.folder.resolve())},
        "ancestors": [*manifest["ancestors"], own],
        "base": manifest["base"],
    }


def _finished(day: str, folder: Path, status: str) -> CheckpointResult:
    manifest = checkpoints.verify_checkpoint(folder)
    report = json.loads((folder / "rows_report.json").read_text("utf-8"))
    numbers = {key: value for key, value in manifest["rows"].items() if not isinstance(value, dict | list)}
    metrics = {
        **manifest["metrics"],
        **{f"rows_{key}": value for key, value in numbers.items()},
        **{f"traces_{role}": count for role, count in manifest["roles"].items()},
        "offered_traces": manifest["offered_traces"],
        "run": report["run"],
    }
    return _result(day, manifest["stage"], folder, manifest, status, None, report["traces"], metrics)


def _result(
    day: str,
    stage: str,
    folder: Path | None,
    manifest: dict[str, Any] | None,
    status: str,
    reason: str | None,
    traces: list[dict[str, Any]],
    metrics: dict[str, Any],
) -> CheckpointResult:
    import pyarrow as pa

    name = folder.name if folder is not None else None
    rows: list[dict[str, Any]] = []
    if manifest is not None:
        rows = [
            {
                "checkpoint_id": name,
                "day": day,
                "stage": stage,
                "parent": manifest["parent"],
                "path": name,
                "manifest": json.dumps(manifest, sort_keys=True, separators=(",", ":")),
                "trace_list_digest": manifest["trace_list_digest"],
                "traces": manifest["traces"],
            }
        ]
    fed = [{**row, "checkpoint_id": name, "day": day, "stage": stage} for row in traces]
    return CheckpointResult(
        checkpoint_id=name,
        status=status,
        reason=reason,
        path=folder,
        manifest=manifest,
        checkpoints=pa.Table.from_pylist(rows, schema=CHECKPOINTS.schema()),
        traces=pa.Table.from_pylist(fed, schema=CHECKPOINT_TRACES.schema()),
        metrics=metrics,
    )
