"""Score one checkpoint in this process: ``python -m trajectory_platform.evaluation.process JOB.json``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trajectory_platform.errors import FailPartition, RejectRow
from trajectory_platform.evaluation.child import Report, run_child


def work(job: dict[str, Any], report: Report) -> dict[str, Any]:
    """Load the checkpoint, answer the sampled turns, write the scores as Parquet; returns counts."""
    import pyarrow as pa
    import pyarrow.parquet as parquet
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trajectory_platform.evaluation.actions import DevTrace, build_prompts, score_actions
    from trajectory_platform.evaluation.plan import ActionPlan
    from trajectory_platform.lake.tables import ACTION_SCORES

    plan = ActionPlan.model_validate(job["plan"])
    policy, threads = read_policy(Path(job["checkpoint"]))
    torch.set_num_threads(threads)
    report("loading the checkpoint")
    tokenizer = AutoTokenizer.from_pretrained(job["checkpoint"], trust_remote_code=False, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(
        job["checkpoint"], dtype=torch.float32, trust_remote_code=False, local_files_only=True
    ).eval()
    traces, unreadable = [], 0
    for record in parquet.read_table(job["rows"]).to_pylist():
        try:
            traces.append(DevTrace.from_record(record))
        except RejectRow:
            unreadable += 1
    prompts = build_prompts(traces, tokenizer, policy, plan)
    report(f"{len(prompts.prompts)} turns of {len(traces)} dev traces to score")
    rows = score_actions(model, tokenizer, prompts.prompts, policy=policy, plan=plan, report=report)
    fixed = {"checkpoint_id": job["checkpoint_id"], "day": job["day"], "stage": job["stage"]}
    table = pa.Table.from_pylist([{**fixed, **row} for row in rows], schema=ACTION_SCORES.schema())
    parquet.write_table(table, job["out"])
    counts = {"sampled_turns": prompts.turns, "scored_turns": len(rows), "unreadable_traces": unreadable}
    return {"counts": counts, "skipped_turns": prompts.skipped}


def read_policy(checkpoint: Path) -> tuple[Any, int]:
    """(context policy, threads) of a checkpoint's recipe: it is asked in the very context it was trained in.

    Raises:
        FailPartition: no recipe, or no context in it.
    """
    import yaml

    from trajectory_platform.evaluation.context import ContextPolicy

    path = checkpoint / "recipe.yaml"
    if not path.is_file():
        raise FailPartition(f"checkpoint {checkpoint.name} has no recipe.yaml")
    recipe = yaml.safe_load(path.read_text("utf-8"))
    if not isinstance(recipe, dict) or "context" not in recipe:
        raise FailPartition(f"checkpoint {checkpoint.name}: its recipe.yaml names no context")
    hardware = recipe.get("hardware") or {}
    return ContextPolicy.model_validate(recipe["context"]), int(hardware.get("threads", 1))


if __name__ == "__main__":
    sys.exit(run_child(sys.argv[1], work))
