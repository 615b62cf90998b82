"""From a policy and chosen problems to ``rollouts`` rows: write the job, run the process, read what it left.

The process never sees a reward: a job names queries only, and scoring happens here afterwards. Finished attempts are
in an append-only log, so that a killed evaluation goes on where it was.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from trajectory_platform.evaluation.child import Runner, run_job
from trajectory_platform.evaluation.eval_problems import EvalProblem, selection_digest
from trajectory_platform.evaluation.plan import RolloutPlan
from trajectory_platform.identity import digest_json, sha256_hex
from trajectory_platform.lake.tables import ROLLOUTS

if TYPE_CHECKING:
    import pyarrow as pa

MODULE = "trajectory_platform.evaluation.rollout_process"


class Subject(NamedTuple):
    """Who is measured.

    Attributes:
        name: identity of what answers: a checkpoint id, or the name of an endpoint or script.
        policy: how the process opens it (``rollout_process.open_subject``): a JSON object with ``kind``. It may name
            the environment variable of a key, never the key.
        threads: processor threads it may use.
    """

    name: str
    policy: dict[str, Any]
    threads: int = 1


class Place(NamedTuple):
    """Where it acts: the folder of an index (``sandbox.catalogue_index``) and the content digest of its catalogue."""

    folder: str
    digest: str


class Attempts(NamedTuple):
    """``rollouts`` in the table's schema and counts of the run (``attempts``, ``resumed``, ``seconds``)."""

    rollouts: pa.Table
    counts: dict[str, Any]


def attempts_identity(
    subject: Subject, chosen: Sequence[EvalProblem], plan: RolloutPlan, seed: int, place: Place
) -> str:
    """What the attempts depend on. Scoring settings are not in it: other title rules score the same attempts again."""
    return digest_json(
        {
            "versions": versions(),
            "subject": subject.name,
            "problems": selection_digest(chosen),
            "plan": {
                name: value
                for name, value in plan.identity().items()
                if name not in ("problems", "pool", "sealed_reason")
            },
            "seed": seed,
            "world": place.digest,
        }
    )


def versions() -> str:
    """The code whose change may change an attempt or its row."""
    from trajectory_platform.evaluation import rollout_rows

    return rollout_rows.VERSION


def roll_out(
    subject: Subject,
    chosen: Sequence[EvalProblem],
    plan: RolloutPlan,
    seed: int,
    place: Place,
    *,
    log: Path,
    day: str,
    stage: str,
    runner: Runner | None = None,
) -> Attempts:
    """Attempt every chosen problem ``plan.samples`` times; what the log holds of this very evaluation is kept.

    Args:
        seed: key of the attempts' own seeds.
        log: the append-only log; it may exist from an interrupted run of the same identity.

    Raises:
        FailPartition, Abort: as the process ended, killed ones included.
    """
    import pyarrow.parquet as parquet

    folder = Path(tempfile.mkdtemp(prefix="rollouts-"))
    try:
        (folder / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks(chosen, plan, seed)))
        log.parent.mkdir(parents=True, exist_ok=True)
        job = {
            "name": subject.name,
            "policy": subject.policy,
            "threads": subject.threads,
            "day": day,
            "stage": stage,
            "tasks": str(folder / "tasks.jsonl"),
            "plan": plan.model_dump(mode="json"),
            "seed": seed,
            "world": place.folder,
            "identity": attempts_identity(subject, chosen, plan, seed, place),
            "log": str(log.resolve()),
            "scratch": str(folder),
            "out": str(folder / "rollouts.parquet"),
        }
        done = run_job(MODULE, job, folder, threads=subject.threads, runner=runner)
        return Attempts(parquet.read_table(folder / "rollouts.parquet", schema=ROLLOUTS.schema()), done["counts"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tasks(chosen: Sequence[EvalProblem], plan: RolloutPlan, seed: int) -> list[dict[str, Any]]:
    """The attempts, first samples of all problems before second ones; each has a seed of its own."""
    return [
        {
            "problem_id": one.problem.problem_id,
            "suite_id": one.problem.suite_id,
            "problem_key": one.problem.problem_key,
            "category": one.problem.category or "unknown",
            "query": one.problem.query,
            "sample": sample,
            "seed": attempt_seed(seed, one.problem.problem_key, sample),
        }
        for sample in range(plan.samples)
        for one in chosen
    ]


def attempt_seed(seed: int, problem_key: str, sample: int) -> int:
    """Seed of one attempt: 31 bits of a keyed hash, so that order and company of attempts do not matter."""
    return int(sha256_hex(f"attempt:{seed}:{problem_key}:{sample}".encode())[:8], 16) >> 1


def trained(name: str, folder: Path, threads: int, options: Mapping[str, Any] | None = None) -> Subject:
    """A checkpoint folder; ``options`` of ``policies.open_policy`` as JSON values (``context`` where it has none)."""
    policy = {"kind": "spec", "spec": f"checkpoint:{folder.resolve()}", "options": dict(options or {})}
    return Subject(name, policy, threads)


def outsider(spec: str, plan: RolloutPlan, seed: int, options: Mapping[str, Any] | None = None) -> Subject:
    """An endpoint or a script, by its name in the words of ``policies.open_policy``; nothing is sent here.

    Raises:
        Abort: the spec names nothing that can be opened.
    """
    from trajectory_platform.evaluation.rollout_process import open_subject

    policy = {"kind": "spec", "spec": spec, "options": dict(options or {})}
    return Subject(open_subject({"policy": policy, "seed": seed}, plan).name, policy)


def untrained(manifest: Mapping[str, Any], folder: Path, seed: int, threads: int, day: str) -> Subject:
    """The model a checkpoint started from: its own tokenizer, template, architecture and context, untrained weights.

    Args:
        manifest: the checkpoint's manifest (``files`` with digests, ``recipe``).
        folder: the checkpoint.
        seed: of the fresh weights; without effect where the recipe names a base folder, whose weights are read.
    """
    base = manifest["recipe"]["model"]["base"]
    made_of = {
        "files": {name: manifest["files"][name] for name in ("config.json", "tokenizer.json", "chat_template.jinja")},
        "context": manifest["recipe"]["context"],
        "weights": f"seed {seed}" if base is None else f"folder {base}",
    }
    name = f"base-{day}-{digest_json(made_of)[:12]}"
    policy = {"kind": "untrained", "checkpoint": str(folder.resolve()), "seed": seed, "base": base}
    return Subject(name, policy, threads)
