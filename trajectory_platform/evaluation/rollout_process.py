"""Attempt problems in this process: ``python -m trajectory_platform.evaluation.rollout_process JOB.json``.

The job names the policy, the tasks (queries without rewards), the world and the log. What the log already holds is not
attempted again; at the end its rows become a Parquet file in the schema of ``rollouts``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from trajectory_platform.evaluation.child import Report, run_child

if TYPE_CHECKING:
    from trajectory_platform.evaluation.environment import Limits, Task
    from trajectory_platform.evaluation.plan import RolloutPlan
    from trajectory_platform.evaluation.policies import Policy
    from trajectory_platform.evaluation.policy_sampling import Sampling
    from trajectory_platform.evaluation.rollout_log import RolloutLog

_REPORT_EVERY_S = 5.0
_MODEL_FILES = ("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json")
_ITS_OWN = ("manifest.json", "rows_report.json")  # of the checkpoint: the weights before it have none


def work(job: dict[str, Any], report: Report) -> dict[str, Any]:
    """Open policy and world, attempt what the log lacks, write the rows; returns counts."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from trajectory_platform.evaluation.environment import Limits, Task
    from trajectory_platform.evaluation.plan import RolloutPlan
    from trajectory_platform.evaluation.rollout_log import RolloutLog
    from trajectory_platform.lake.tables import ROLLOUTS

    plan = RolloutPlan.model_validate(job["plan"])
    limits = Limits(**plan.limits.model_dump())
    tasks = [Task(**orjson.loads(line)) for line in Path(job["tasks"]).read_bytes().splitlines()]
    with RolloutLog(Path(job["log"]), policy=job["name"], plan=job["identity"]) as log:
        open_tasks = list(log.remaining(tasks))
        resumed = len(tasks) - len(open_tasks)
        report(f"{len(tasks)} attempts" + (f", {resumed} of them done before" if resumed else ""))
        if open_tasks:
            _attempt(job, plan, limits, open_tasks, log, report)
        wanted = {(task.problem_key, task.sample) for task in tasks}
        rows = [row for row in log.rows() if (row["problem_key"], row["sample"]) in wanted]
    rows.sort(key=lambda row: (row["problem_key"], row["sample"]))
    parquet.write_table(pa.Table.from_pylist(rows, schema=ROLLOUTS.schema()), job["out"], compression="zstd")
    return {"counts": {"attempts": len(rows), "resumed": resumed}}


def _attempt(
    job: dict[str, Any], plan: RolloutPlan, limits: Limits, tasks: list[Task], log: RolloutLog, report: Report
) -> None:
    from trajectory_platform.evaluation.environment import MeasuredClock
    from trajectory_platform.evaluation.policies import EndpointPolicy
    from trajectory_platform.evaluation.rollout import Rollout, run_rollouts
    from trajectory_platform.evaluation.rollout_rows import rollout_row
    from trajectory_platform.sandbox.catalogue_index import open_world

    policy = open_subject(job, plan)
    world = open_world(job["world"])
    # what happened is dated at the beginning of the as-of day: only durations are measured
    start_ms = int(datetime.fromisoformat(job["day"]).replace(tzinfo=UTC).timestamp() * 1000)
    started = said = time.monotonic()
    done = 0

    def keep(rollout: Rollout) -> None:
        nonlocal done, said
        row = rollout_row(rollout, checkpoint_id=job["name"], stage=job["stage"], day=job["day"], plan=job["identity"])
        log.append(rollout.task, row)
        done += 1
        if time.monotonic() - said >= _REPORT_EVERY_S or done == len(tasks):
            said = time.monotonic()
            report(f"{done} of {len(tasks)} attempts in {said - started:.0f} s")

    async def attempts() -> None:
        try:
            await run_rollouts(
                policy,
                tasks,
                world,
                limits,
                concurrency=plan.concurrency,
                clock=lambda _task: MeasuredClock(time.monotonic, start_ms),
                on_done=keep,
            )
        finally:
            if isinstance(policy, EndpointPolicy):
                await policy.aclose()

    asyncio.run(attempts())


def open_subject(job: dict[str, Any], plan: RolloutPlan) -> Policy:
    """The policy of a job: ``{"kind": "untrained", "checkpoint", "seed", "base"}``, or ``{"kind": "spec", "spec",
    "options"}`` with a spec and options of ``policies.open_policy``."""
    from trajectory_platform.evaluation.context import ContextPolicy
    from trajectory_platform.evaluation.policies import open_policy
    from trajectory_platform.evaluation.policy_endpoint import Price

    how = {key: value for key, value in job["policy"].items() if key != "kind"}
    options = how.get("options") or {}
    if job["policy"]["kind"] == "untrained":
        spec = f"checkpoint:{write_untrained(Path(job['scratch']) / job['name'], **how)}"
    else:
        # an endpoint that is down or refuses the key says nothing about the policy: the run stops and can resume
        spec, options = how["spec"], {"outage": "stop", **options}
    if options.get("context") is not None:
        options = {**options, "context": ContextPolicy.model_validate(options["context"])}
    if options.get("prices") is not None:
        options = {**options, "prices": {model: Price(*price) for model, price in options["prices"].items()}}
    return open_policy(spec, sampling=sampling_of(plan, job["seed"]), max_batch=min(64, plan.concurrency), **options)


def sampling_of(plan: RolloutPlan, seed: int) -> Sampling:
    """How a plan draws replies."""
    from trajectory_platform.evaluation.policy_sampling import Sampling

    return Sampling(temperature=plan.temperature, top_p=plan.top_p, seed=seed)


def write_untrained(folder: Path, *, checkpoint: str, seed: int, base: str | None) -> Path:
    """A folder that opens like ``checkpoint`` but holds the weights that training began with.

    Args:
        folder: is created; large files in it are links.
        base: the folder whose weights training read; None: fresh weights of the same architecture by ``seed``.
    """
    folder.mkdir(parents=True)
    for path in sorted(Path(checkpoint).iterdir()):
        if path.is_file() and not any(path.match(pattern) for pattern in (*_MODEL_FILES, *_ITS_OWN)):
            (folder / path.name).symlink_to(path.resolve())
    if base is not None:
        for pattern in _MODEL_FILES:
            for path in sorted(Path(base).glob(pattern)):
                (folder / path.name).symlink_to(path.resolve())
        return folder
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(checkpoint, trust_remote_code=False, local_files_only=True)
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder, safe_serialization=True)
    return folder


if __name__ == "__main__":
    sys.exit(run_child(sys.argv[1], work))
